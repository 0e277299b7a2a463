"""The cost of a search step of GPT-2 beside a training step, after checking that both are correct.

Several kinds of steps take turns in one process. `search` masks every matrix of a GPT-2 without biases by edge-popup
and leaves its norms at 1; a kind with another rule's name uses that rule. `dense` trains the same tensors of the same
network, so that the ratio of the two is the cost of the masks alone. `gpt2` is the network as published, with every
bias and norm trained.
"""

import gc
from collections.abc import Callable, Iterator, Sequence

import torch
import torch._dynamo
from torch import Tensor

from strongticket.bench.measure import WrongAnswerError, percentiles, ratio, time_alternating
from strongticket.bench.settings import SEARCH
from strongticket.bench.settings import SearchSettings as Settings
from strongticket.learn.hide import hide
from strongticket.learn.policy import Policy
from strongticket.learn.rules import DEFAULT_RULE
from strongticket.learn.step import Step, make_optimizer
from strongticket.models.gpt2 import GPT2, gpt2_config, group_of
from strongticket.ops.supermask import Supermask, reference
from strongticket.report.records import SearchSteps

Progress = Callable[[str], None]
Batch = tuple[Tensor, Tensor]

DENSITY, OUTPUT_GAIN = 0.3, 4.0
WARM_UP = 5  # steps; their masks are the ones checked
STEPS = 3  # per timing, so that waiting for the GPU at its end matters little
# Allowed relative error to eager float32. bfloat16 has 8 bits: a gradient is off by about the last two (GPT-2 mini to
# medium: 0.7 to 0.9 %), a loss, the mean over all tokens, by far less (0.0005 % at most).
TOLERANCES = {"loss": {"bfloat16": 2e-4, "float32": 1e-5}, "gradient": {"bfloat16": 3e-2, "float32": 1e-3}}


def run(settings: Settings, *, progress: Progress = lambda step: None) -> Iterator[list[SearchSteps]]:
    """Measure one model after another; yields the kinds of each, `dense` first.

    Raises:
        WrongAnswerError: masks differ from the published rule, or a loss or a gradient from eager float32.
    """
    for model in settings.sizes:
        # One compiled network per kind; beyond eight, torch would run the rest eagerly.
        with torch._dynamo.config.patch(recompile_limit=len(settings.kinds) + 1):
            measured = _measure(model, settings, progress)
        yield measured
        # So that this model's compiled code holds no memory when the next is measured.
        torch.compiler.reset()
        gc.collect()


def count_steps(settings: Settings) -> int:
    """Count the calls of `progress`."""
    return len(settings.sizes) * (len(settings.kinds) + 1)


class Trial:
    """One model with its step and its batches, warmed up and checked.

    Raises:
        WrongAnswerError: see `run`.
    """

    def __init__(self, model: str, kind: str, settings: Settings) -> None:
        self.kind, self._device = kind, settings.device
        before = self._allocated()
        self.model, self._supermasks, refresh = build(model, kind, settings.device)
        trained = [p for p in self.model.parameters() if p.requires_grad]
        self.trained = sum(p.numel() for p in trained)
        self._step = Step(self.model, make_optimizer(trained, lr=1e-4), settings.step, refresh=refresh)
        self._batches = random_batches(self.model.config.vocabulary, settings)
        self.loss_error, self.gradient_error = self._errors(settings)
        for _ in range(WARM_UP):
            self._step(self._batches)
        self._refuse_wrong_masks(model)
        self._resident = self._allocated() - before  # held between steps: parameters, optimizer, batches

    def __call__(self) -> None:
        """Do some steps, without waiting for the device."""
        for _ in range(STEPS):
            self._step(self._batches)

    def peak_bytes(self) -> int | None:
        """Return the peak memory that one step allocates."""
        if not self._device.startswith("cuda"):
            return None
        others = self._allocated() - self._resident
        torch.cuda.reset_peak_memory_stats(self._device)
        self._step(self._batches)
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_allocated(self._device) - others

    def _allocated(self) -> int:
        return torch.cuda.memory_allocated(self._device) if self._device.startswith("cuda") else 0

    def _errors(self, settings: Settings) -> tuple[float, float]:
        """Compare loss and gradient of the first micro-batch with eager float32; then discard the gradients."""
        precision = settings.step.precision
        actual = _loss_and_gradient(self.model, self._step.loss, [self._batches[0]])
        # One sequence at a time: eager float32 takes many times the memory of a compiled step.
        alone = [(x[None], y[None]) for x, y in zip(*self._batches[0], strict=True)]
        expected = _loss_and_gradient(self.model, lambda batch: self.model(*batch), alone)
        errors = [float((a - e).norm() / e.norm()) for a, e in zip(actual, expected, strict=True)]
        for (name, tolerance), error in zip(TOLERANCES.items(), errors, strict=True):
            if not error <= (most := tolerance[precision]):
                raise WrongAnswerError(
                    f"the {name} of a {self.kind} step is off by {error:.2g} of eager float32, more than the "
                    f"{most:g} that {precision} explains. No speed is reported."
                )
        return errors[0], errors[1]

    def _refuse_wrong_masks(self, model: str) -> None:
        wrong = [m for m in self._supermasks if not torch.equal(m.mask, reference.top_mask(m.scores, m.density))]
        if wrong:
            raise WrongAnswerError(
                f"{len(wrong)} of {len(self._supermasks)} masks of GPT-2 {model} differ from the published rule after "
                f"{WARM_UP} steps. No speed is reported."
            )


def build(model: str, kind: str, device: str) -> tuple[GPT2, Sequence[Supermask], Callable[[], object]]:
    """Make a GPT-2 to search or train; also return edge-popup's masks, and a function that updates masks."""
    gpt2 = GPT2(gpt2_config(model, bias=kind == "gpt2", output_gain=OUTPUT_GAIN), device=device)
    if kind == "gpt2":
        return gpt2, (), lambda: None
    if kind == "dense":
        for name, parameter in gpt2.named_parameters():
            parameter.requires_grad_(group_of(name) != "norms")
        return gpt2, (), lambda: None
    rule = DEFAULT_RULE if kind == SEARCH else kind
    hidden = hide(gpt2, Policy(density=DENSITY, rule=rule), seed=0)
    return gpt2, list(hidden.supermasks.values()) if kind == SEARCH else (), hidden.after_step


def random_batches(vocabulary: int, settings: Settings) -> list[Batch]:
    """Draw tokens, the same for each kind."""
    generator = torch.Generator().manual_seed(0)
    micro_batches, sequences, length = settings.batch
    tokens = torch.randint(vocabulary, (micro_batches, sequences, length + 1), generator=generator).to(settings.device)
    return [(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in tokens]


def _loss_and_gradient(model: GPT2, loss_of: Callable[[Batch], Tensor], batches: Sequence[Batch]) -> list[Tensor]:
    """Return the mean loss, and its whole gradient in one row."""
    total = torch.zeros((), device=batches[0][0].device)
    for batch in batches:
        loss = loss_of(batch) / len(batches)
        loss.backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    model.zero_grad(set_to_none=True)
    return [total, gradient]


def _measure(model: str, settings: Settings, progress: Progress) -> list[SearchSteps]:
    trials: dict[str, Trial] = {}
    for kind in settings.kinds:
        progress(f"GPT-2 {model}: checking {kind} steps")
        trials[kind] = Trial(model, kind, settings)
    progress(f"GPT-2 {model}: timing")
    seconds = time_alternating(trials, repeats=settings.repeats, device=settings.device)
    peaks = {kind: trial.peak_bytes() for kind, trial in trials.items()}
    micro_batches, sequences, length = settings.batch
    rows = []
    for name, trial in trials.items():
        speed, peak, dense_peak = percentiles(second / STEPS for second in seconds[name]), peaks[name], peaks["dense"]
        rows.append(
            SearchSteps(
                model=model,
                kind=trial.kind,
                device=settings.device,
                precision=settings.step.precision,
                compiler=settings.step.compiler,
                micro_batches=micro_batches,
                sequences=sequences,
                length=length,
                trained=trial.trained,
                **speed,
                tokens_per_second=micro_batches * sequences * length / speed["median"],
                time_ratio=ratio(seconds[name], seconds["dense"]),
                peak_bytes=peak,
                peak_ratio=peak / dense_peak if peak is not None and dense_peak is not None else None,
                loss_error=trial.loss_error,
                gradient_error=trial.gradient_error,
            )
        )
    return rows
