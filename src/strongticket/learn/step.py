"""One optimizer step, the same for searches and ordinary training: compilation, precision, accumulation, update.

Nothing in a step waits for the GPU: the loss stays a tensor, and a new learning rate is an argument of a kernel.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from strongticket.learn.config import Precision as Precision
from strongticket.learn.config import StepConfig as StepConfig

_LARGE = 31 << 20  # nearly the largest block that glibc's limit follows
Loss = Callable[[nn.Module, Any], Tensor]


def make_optimizer(parameters: Iterable[nn.Parameter], *, lr: float, weight_decay: float = 0.0) -> torch.optim.AdamW:
    """Make AdamW as one kernel over many parameters.

    Args:
        parameters: to train; one without gradients is an error, not skipped.
        lr: initial learning rate; see `Step.set_lr`.
        weight_decay: decoupled, times the learning rate.
    """
    trained = list(parameters)
    if not trained or not all(p.requires_grad for p in trained):
        frozen = sum(not p.requires_grad for p in trained)
        raise ValueError(f"an optimizer needs parameters that take gradients; got {len(trained)}, {frozen} frozen.")
    return torch.optim.AdamW(trained, lr=lr, weight_decay=weight_decay, fused=True)


class Step:
    """Compute loss and gradient of some micro-batches, then do one update.

    With an initialized process group, the model is wrapped in DDP: gradients are averaged over all processes, once per
    step.

    Args:
        model: on its device; compiled or wrapped, its own parameters are trained.
        optimizer: over the parameters to train.
        config: see `StepConfig`.
        loss: (model, micro-batch) -> mean loss, a scalar; by default `model(*micro_batch)`.
        prepare: called before each update, when the gradients are complete but not clipped.
        refresh: called after each update, for instance to refresh masks.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> step = Step(model, make_optimizer(model.parameters(), lr=0.1), loss=lambda run, x: run(x).square().mean())
        >>> step([torch.ones(3, 2), torch.zeros(3, 2)]).shape
        torch.Size([])
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        config: StepConfig | None = None,
        *,
        loss: Loss = lambda model, micro_batch: model(*micro_batch),
        prepare: Callable[[], object] = lambda: None,
        refresh: Callable[[], object] = lambda: None,
    ) -> None:
        self.optimizer, self.config = optimizer, config or StepConfig()
        self.module = _wrapped(model, self.config.compiler)  # compiled and wrapped
        self._loss, self._prepare, self._refresh = loss, prepare, refresh
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self._trained[0].device
        # glibc gives freed blocks back to the system above a limit, which grows to twice the largest block ever freed.
        # Below it, page faults took up to half of a step on a CPU.
        torch.empty(_LARGE, dtype=torch.uint8)

    def __call__(self, micro_batches: Sequence[Any]) -> Tensor:
        """Update the model.

        Args:
            micro_batches: inputs of `loss`, on the model's device, all of one size.

        Returns:
            The mean loss before the update: a scalar on the device, over this process's micro-batches only.
        """
        if not micro_batches:
            raise ValueError("a step needs at least one micro-batch; got none.")
        total = torch.zeros((), device=self.device)
        for place, micro_batch in enumerate(micro_batches, 1):
            with self._gradients_kept_here(unless=place == len(micro_batches)):
                loss = self.loss(micro_batch) / len(micro_batches)
                loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        self._prepare()
        if self.config.clip is not None:
            clip_grad_norm_(self._trained, self.config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._refresh()
        return total

    def loss(self, micro_batch: Any) -> Tensor:
        """Return the loss of one micro-batch, by the compiled model in the step's precision; nothing is updated."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            return self._loss(self.module, micro_batch)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _gradients_kept_here(self, *, unless: bool) -> AbstractContextManager[object]:
        """Keep DDP from sending incomplete gradients."""
        if isinstance(self.module, DistributedDataParallel) and not unless:
            kept: AbstractContextManager[object] = self.module.no_sync()
            return kept
        return nullcontext()


def _wrapped(model: nn.Module, compiler: str | None) -> nn.Module:
    if compiler is not None:
        # Batches have one size: fixed shapes make faster kernels.
        model = torch.compile(model, backend=compiler, dynamic=False)  # type: ignore[assignment]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        # Buffers are constants, or masks derived from scores that DDP keeps equal: sending them only costs time.
        with warnings.catch_warnings():
            # The argument's new name is unknown to older versions of torch.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(model, broadcast_buffers=False)
    return model
