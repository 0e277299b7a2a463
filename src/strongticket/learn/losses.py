"""What a search takes for its loss: the caller's, in one of two forms, or the one that fits model and batch."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from strongticket.learn.step import Loss

_TARGETS = ("target", "targets", "label", "labels", "y")


def as_loss(loss: Any) -> Loss:
    """Turn what the caller gave into a function of the model and a batch.

    Args:
        loss: (model, batch) -> scalar; or (output, target) -> scalar, a module such as `nn.CrossEntropyLoss()` or a
            function whose second argument is called `target`, as torch's are, or `targets`, `label`, `labels` or `y`.
            None takes `own_loss`.
    """
    if loss is None:
        return own_loss
    if not callable(loss):
        raise ValueError(
            f"loss is a function of the model and a batch, or of an output and a target; got {loss!r:.60}."
        )
    if not isinstance(loss, nn.Module) and _second(loss) not in _TARGETS:
        of_batch: Loss = loss
        return of_batch

    def of_output(model: nn.Module, batch: Any) -> Tensor:
        if not _is_pair(batch):
            raise ValueError(
                f"loss takes an output and a target, so that a batch is (x, y); got a {type(batch).__name__}. "
                "Pass a function of the model and a batch."
            )
        value: Tensor = loss(_output(model(batch[0])), batch[1])
        return value

    return of_output


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """Give the loss that a model itself computes from a batch, or the cross entropy where a batch is (x, y).

    The model is called with a mapping as keywords, with a tuple or list as arguments, and gives a scalar or an output
    that has it as `loss`. Of a pair it is given x alone, unless it takes the second for its targets.
    """
    if isinstance(batch, Mapping):
        output = model(**batch)
    elif _is_pair(batch) and not _takes_targets(model):
        return cross_entropy(_output(model(batch[0])), batch[1])
    else:
        output = model(*batch) if isinstance(batch, tuple | list) else model(batch)
    loss: Tensor = getattr(output, "loss", output)
    return loss


def cross_entropy(logits: Any, classes: Tensor) -> Tensor:
    """Give the mean cross entropy of logits (..., classes) and class numbers (...)."""
    if not isinstance(logits, Tensor) or classes.is_floating_point() or logits.shape[:-1] != classes.shape:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            "the loss of batches (x, y) is the cross entropy, unless loss= says otherwise: it needs outputs (..., "
            f"classes) and class numbers (...); got {shape} and {classes.dtype} {tuple(classes.shape)}. Pass another, "
            "nn.MSELoss() for instance."
        )
    return F.cross_entropy(logits.flatten(0, -2), classes.flatten())


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)


def _output(output: Any) -> Any:
    """Give what a loss looks at: Hugging Face's models have their logits beside other things."""
    return getattr(output, "logits", output)


def _takes_targets(model: nn.Module) -> bool:
    """Whether a model cannot do without a second argument, or calls it targets."""
    given = _positional(model.forward)
    return len(given) > 1 and (given[1].default is inspect.Parameter.empty or given[1].name in _TARGETS)


def _second(function: Any) -> str | None:
    given = _positional(function)
    return given[1].name if len(given) > 1 else None


def _positional(function: Any) -> list[inspect.Parameter]:
    kinds = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    try:
        return [parameter for parameter in inspect.signature(function).parameters.values() if parameter.kind in kinds]
    except (TypeError, ValueError):  # one that is written in C
        return []
