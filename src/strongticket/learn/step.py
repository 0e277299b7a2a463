"""One optimizer step, the same for searching and for ordinary training: how a model is compiled, cast and accumulated.

Nothing in a step waits for the GPU: the loss stays a tensor, and a new learning rate is a number handed to a kernel.
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

Loss = Callable[[nn.Module, Any], Tensor]


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    *,
    lr: float,
    weight_decay: float = 0.0,
    betas: tuple[float, float] = (0.9, 0.999),
) -> torch.optim.AdamW:
    """AdamW as one kernel over many parameters.

    Args:
        parameters: those to train; one that takes no gradient is an error, not skipped.
        lr: the first learning rate; see `Step.set_lr`.
        weight_decay: decoupled, times the learning rate.
        betas: decay of the first and the second moment.
    """
    trained = list(parameters)
    if not trained or not all(p.requires_grad for p in trained):
        frozen = sum(not p.requires_grad for p in trained)
        raise ValueError(f"an optimizer needs parameters that take gradients; got {len(trained)}, {frozen} frozen.")
    return torch.optim.AdamW(trained, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)


class Step:
    """Loss and gradient of some micro-batches, then one update.

    With an initialized process group of several processes, the model is wrapped for DDP: gradients are averaged over
    all processes, once a step.

    Args:
        model: on its device; its own parameters are trained, compiled and wrapped or not.
        optimizer: over the parameters to train.
        config: see `StepConfig`.
        loss: (model, micro-batch) -> mean loss, a scalar; by default the model gives it: `model(*micro_batch)`.
        prepare: called before each update, when the gradients are complete but not clipped.
        refresh: called after each update, for instance a `Refresh` of masks.

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
        self.module = _wrapped(model, self.config.compiler)  # what runs
        self._loss, self._prepare, self._refresh = loss, prepare, refresh
        self._trained = [p for group in optimizer.param_groups for p in group["params"]]
        self.device = self._trained[0].device

    def __call__(self, micro_batches: Sequence[Any]) -> Tensor:
        """Update the model.

        Args:
            micro_batches: each as `loss` takes it, on the model's device, all of one size.

        Returns:
            The mean loss before the update: a scalar on the device, of this process's micro-batches alone.
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
        """Give the loss of one micro-batch, by the compiled model in the step's precision; nothing is updated."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            return self._loss(self.module, micro_batch)

    def set_lr(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def _gradients_kept_here(self, *, unless: bool) -> AbstractContextManager[object]:
        """Keep DDP from sending gradients that are not complete yet."""
        if isinstance(self.module, DistributedDataParallel) and not unless:
            kept: AbstractContextManager[object] = self.module.no_sync()
            return kept
        return nullcontext()


def _wrapped(model: nn.Module, compiler: str | None) -> nn.Module:
    if compiler is not None:
        # Batches of one size: shapes known to the compiler make faster kernels.
        model = torch.compile(model, backend=compiler, dynamic=False)  # type: ignore[assignment]
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        # Buffers are constants, or masks that follow from scores DDP keeps equal: sending them would only cost time.
        with warnings.catch_warnings():
            # That the argument will have another name, which older versions of torch do not know.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            return DistributedDataParallel(model, broadcast_buffers=False)
    return model
