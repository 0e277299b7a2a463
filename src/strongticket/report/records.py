"""The content of files as typed values; a missing field or one of another type raises an error that names it."""

import functools
import types
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_NONE: dict[str, Any] = {}
_EMPTY: list[Any] = []


class Made(NamedTuple):
    """How and where numbers were made, from a run file, a benchmark row or a ticket."""

    command: str | None = None
    date: str | None = None
    commit: str | None = None
    gpu: str | None = None
    cpu: str | None = None
    machine: str | None = None
    cores: int | None = None
    seconds: float | None = None
    tokens_per_second: float | None = None
    steps_per_second: float | None = None
    resumed_at_step: int | None = None


class FigureConfig(NamedTuple):
    """The settings of a figure that the page names."""

    figure: str | None = None
    seed: int | None = None
    schedule: str | None = None  # of figures on text
    models: dict[str, int] = _NONE  # of figures on text, with the number of seeds


class Plan(NamedTuple):
    """The missing runs of a figure on text."""

    missing: list[str] = _EMPTY


class Width(NamedTuple):
    """The sources of one target and width."""

    width: int
    sources: dict[str, list[object]]


class Adaptive(NamedTuple):
    """The same sources with adaptive units."""

    widths: list[Width]


class Certified(NamedTuple):
    """A figure of constructions: its sources, and how many of them exceed their certificates."""

    widths: list[Width]
    violations: int
    rounding: float  # how far rounding may lift an error above its certificate
    adaptive: Adaptive


class SearchConfig(NamedTuple):
    """The settings of a search that the page names; `settings` has all but the seed, including the policy's."""

    mode: str
    size: str  # of a GPT-2; of a search in the caller's module, the module's class
    seed: int
    steps: int
    sequences: int = 1
    length: int = 1
    policy: dict[str, object] = _NONE
    text: dict[str, object] | None = None
    settings: dict[str, object] = _NONE
    module: str | None = None  # the class of the caller's module, which was not searched on a text

    @property
    def x_per_step(self) -> int:
        """Return how far a step moves along the x axis: its tokens, or 1 without a text."""
        return self.sequences * self.length


class Metric(NamedTuple):
    """A line of metrics.jsonl: a step's training loss, or the validation loss after it."""

    step: int
    loss: float | None = None
    validation_loss: float | None = None


class SearchResult(NamedTuple):
    """The result of a finished search."""

    best_validation_loss: float | None  # None without validation
    curve: list[tuple[int, float]]  # step and validation loss
    found: dict[str, object] | None = None  # the ticket, with its identity


class PartError(NamedTuple):
    """One part of a pretrained model: what its certificate allows, and the largest error measured."""

    part: str
    certified: float
    error: float


class Compared(NamedTuple):
    """A model and its ticket, as `compare` prints them: with similarities, or loss and divergence if causal."""

    texts: int
    tokens: int
    largest_difference: float
    float32_rounding: float
    parts: list[PartError]
    cosine: dict[str, float] | None = None  # mean, min
    loss: dict[str, float] | None = None  # ticket, original
    kl: float | None = None


class Constructed(NamedTuple):
    """What `construct` prints about a ticket, if it was kept."""

    worst_entry: float | None = None
    worst_reached: float | None = None
    unreachable: int | None = None
    file_bytes: int | None = None


class Pretrained(NamedTuple):
    """A ticket of one kind with one number of items."""

    what: str
    items: int
    compare: Compared
    ticket: Constructed = Constructed()


class Collected(NamedTuple):
    """All tickets of one model, as `strongticket.bench.pretrained` collects them."""

    model: str
    runs: list[Pretrained]


class SubsetSums(NamedTuple):
    """A row of `bench subset-sum`: one engine at one number of items."""

    engine: str
    label: str
    n: int
    device: str
    threads: int
    clock: str  # "cpu" or "wall"
    rows: int  # in one timed run of a batched engine; in all runs of a one-at-a-time peer together
    p20: float
    median: float
    p80: float
    times_slower: float  # our median rate over this one
    median_error: float
    optimal_share: float  # of the checked rows
    checked: int  # rows whose optimum the reference knows
    timeouts: int
    unit: str = "problems/s"
    op: str = "subset_sum"


class SearchSteps(NamedTuple):
    """A row of `bench search`: one kind of step of one model; ratios are to the dense step, if it was timed."""

    model: str
    kind: str
    device: str
    precision: str
    compiler: str | None
    micro_batches: int
    sequences: int
    length: int
    trained: int  # numbers the optimizer updates
    p20: float  # seconds per step
    median: float
    p80: float
    tokens_per_second: float  # by the median
    loss_error: float  # of the first micro-batch, relative to eager float32
    gradient_error: float  # of the same, in norm
    time_ratio: float | None = None  # the median over turns
    peak_bytes: int | None = None  # the largest during a step, without other memory; None on a CPU
    peak_ratio: float | None = None
    op: str = "search"


class RuleRun(NamedTuple):
    """A row of `bench rules`: one rule at one density on one network, or the trained network."""

    network: str
    rule: str
    density: float  # as set; some rules only start there
    seed: int
    steps: int
    accuracy: float  # on test images
    bytes: int  # of the ticket, or of a trained network's weights in float32
    seconds: float  # of CPU time
    kept: int
    weights: int
    op: str = "rules"


class RuleStep(NamedTuple):
    """A row of `bench rules`: a search step against other steps of the same network, on one CPU thread."""

    network: str
    batch: int
    dense_ms: float
    over_dense: float  # time relative to a dense step, median of turns
    over_published: float  # likewise, relative to a step that sorts all scores, as published scripts do
    rule: str
    op: str = "rule-step"


class Decoding(NamedTuple):
    """A row of `bench decode`: one way to run one GPT-2, in its own process; ratios are to float32's turns."""

    model: str
    engine: str
    device: str
    threads: int
    clock: str  # "cpu" or "wall"
    weights: int  # their number
    weight_bytes: int  # their size
    memory_bytes: int  # growth of the process, or GPU memory allocated, when it was ready to run
    first_seconds: float  # from a prompt to the first token, the median
    prompt: int  # tokens in the prompt
    context: int  # tokens before those timed one by one
    p20: float  # tokens per second
    median: float
    p80: float
    error: float  # of logits, relative to the largest float64 logit
    bandwidth: float  # bytes per second when only reading
    limit_share: float  # time to read a token's weights at that speed, relative to its actual time
    times_float32: float | None = None  # tokens per second relative to float32's, median of turns; None without float32
    first_times_float32: float | None = None  # likewise for the first token
    op: str = "decode"


class Timed(NamedTuple, Generic[T]):
    """A benchmark row, and where it was measured."""

    row: T
    made: Made


def typed(kind: type[T], value: object) -> T:
    """Read a JSON value as a type: a named tuple by its fields, ignoring others; lists, pairs, numbers.

    Example:
        >>> typed(PartError, {"part": "layer.0", "certified": 1, "error": 0.5, "norm": 2.0})
        PartError(part='layer.0', certified=1.0, error=0.5)
        >>> typed(PartError, {"part": "layer.0", "certified": "high", "error": 0.5})
        Traceback (most recent call last):
        TypeError: certified must be float; got 'high'
    """
    read: T = _read(kind, value, kind.__name__)
    return read


def _read(kind: Any, value: object, name: str) -> Any:
    origin, parts = get_origin(kind), get_args(kind)
    if isinstance(kind, types.UnionType):
        return None if value is None else _read(parts[0], value, name)
    if hasattr(kind, "_fields") and isinstance(value, dict):
        hints = _hints(kind)
        # KeyError for a missing field without a default.
        named = [field for field in kind._fields if field in value or field not in kind._field_defaults]
        return kind(**{field: _read(hints[field], value[field], field) for field in named})
    if origin is list and isinstance(value, list):
        return [_read(parts[0], part, name) for part in value]
    if origin is tuple and isinstance(value, list) and len(value) == len(parts):
        return tuple(_read(part, each, name) for part, each in zip(parts, value, strict=True))
    if origin is dict and isinstance(value, dict):
        return {key: _read(parts[1], part, key) for key, part in value.items()}
    if kind is object or type(value) is kind:
        return value
    if kind is float and type(value) is int:
        return float(value)
    raise TypeError(f"{name} must be {getattr(kind, '__name__', kind)}; got {value!r:.40}")


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
