"""The loss of a search: the caller's, in one of two forms, or a default that fits model and batch."""

import inspect
from typing import Any

import numpy as np
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from strongticket.learn.probe import called
from strongticket.learn.step import Loss

_TARGETS = ("target", "targets", "label", "labels", "y")


def as_loss(loss: Any) -> Loss:
    """Turn the caller's loss into a function of the model and a batch.

    Args:
        loss: (model, batch) -> scalar; or (output, target) -> scalar, a module such as `nn.CrossEntropyLoss()` or a
            function whose second argument is called `target`, as in torch, or `targets`, `label`, `labels` or `y`.
            None takes `own_loss`.
    """
    if loss is None:
        return own_loss
    if not callable(loss):
        raise ValueError(
            f"loss must be a function of the model and a batch, or of an output and a target; got {loss!r:.60}."
        )

    def of_batch(model: nn.Module, batch: Any) -> Tensor:
        try:
            value: Tensor = loss(model, batch)
        except TypeError as error:
            names = f"{', '.join(_TARGETS[:-1])} or {_TARGETS[-1]}"
            error.add_note(f"A loss gets the model and a batch, or output and target if the latter is called {names}.")
            raise
        return value

    if not isinstance(loss, nn.Module) and _second(loss) not in _TARGETS:
        return of_batch

    def of_output(model: nn.Module, batch: Any) -> Tensor:
        if not _is_pair(batch):
            raise ValueError(
                f"a loss of an output and a target needs batches (x, y); got a {type(batch).__name__}. "
                "Pass a function of the model and a batch."
            )
        value: Tensor = loss(_output(model(batch[0])), batch[1])
        return value

    return of_output


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss that a model computes from a batch, or the cross entropy if the batch is (x, y).

    The model is called with a mapping as keywords, with a tuple or list as arguments, and returns a scalar or an
    output whose `loss` is one. Of a pair it gets x alone, unless its second argument is the targets.
    """
    if isinstance(batch, tuple | list) and any(isinstance(each, np.ndarray) for each in batch):
        raise ValueError("batches must hold tensors; got NumPy arrays. torch.from_numpy makes tensors of them.")
    if _is_pair(batch) and not _takes_targets(model):
        return cross_entropy(_output(model(batch[0])), batch[1])
    output = called(model, batch)
    loss: Tensor = getattr(output, "loss", output)
    return loss


def cross_entropy(logits: Any, classes: Tensor) -> Tensor:
    """Return the mean cross entropy of logits (..., classes) and class numbers (...)."""
    if not isinstance(logits, Tensor) or classes.is_floating_point() or logits.shape[:-1] != classes.shape:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(
            "the default loss of batches (x, y) is the cross entropy, which needs outputs (..., classes) and class "
            f"numbers (...); got {shape} and {classes.dtype} {tuple(classes.shape)}. Pass another, for instance "
            "loss=nn.MSELoss()."
        )
    return F.cross_entropy(logits.flatten(0, -2), classes.flatten())


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, tuple | list) and len(batch) == 2 and isinstance(batch[1], Tensor)


def _output(output: Any) -> Any:
    """Return the output for a loss: the logits, where a Hugging Face model returns more."""
    return getattr(output, "logits", output)


def _takes_targets(model: nn.Module) -> bool:
    """Whether a model requires a second argument, or calls it targets."""
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
    except (TypeError, ValueError):  # written in C
        return []
