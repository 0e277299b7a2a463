"""What files hold, as typed values; a field that is missing or of another kind is an error that names it."""

import functools
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from strongticket.files import Json

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """How and where numbers were made, as a run file, a benchmark row or a ticket says; empty where it does not."""

    command: str = ""
    date: str = ""
    commit: str = ""
    gpu: str = ""
    cpu: str = ""
    machine: str = ""
    cores: int = 0


def made_of(facts: Json) -> Made:
    """Read what is there of it. A ticket's metadata are free, so what is of another kind says nothing."""
    known = facts if isinstance(facts, Mapping) else {}
    return Made(**{each.name: known[each.name] for each in fields(Made) if type(known.get(each.name)) is each.type})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The numbers of a run file."""

    seconds: float | None = None
    tokens_per_second: float | None = None
    resumed_at_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """The settings of a search that the page names; `settings` has all of them, those of the policy among them."""

    mode: str
    size: str
    seed: int
    steps: int
    sequences: int
    length: int
    policy: dict[str, object] = field(default_factory=dict)
    text: dict[str, object] | None = None
    settings: dict[str, object] = field(default_factory=dict)

    @property
    def tokens_a_step(self) -> int:
        """How many tokens one step learns from."""
        return self.sequences * self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A line of metrics.jsonl: a step's training loss, or the validation loss after it."""

    step: int
    loss: float | None = None
    validation_loss: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTicket:
    """Which ticket a search wrote."""

    identity: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The result of a finished search."""

    best_validation_loss: float
    curve: list[tuple[int, float]]  # step and validation loss
    found: FoundTicket | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cosine:
    """Similarity of embeddings over texts."""

    mean: float
    min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Of a language model and of its ticket."""

    ticket: float
    original: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartError:
    """One part of a pretrained model: what its certificate allows, and the largest error measured."""

    part: str
    certified: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A model beside its ticket, as `compare` prints it: with similarities, or loss and divergence if it is causal."""

    texts: int
    tokens: int
    largest_difference: float
    float32_rounding: float
    parts: list[PartError]
    cosine: Cosine | None = None
    loss: Losses | None = None
    kl: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Constructed:
    """What `construct` prints of a ticket, where that was kept."""

    worst_entry: float | None = None
    worst_reached: float | None = None
    unreachable: int | None = None
    file_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """One number of items for one kind of ticket."""

    what: str
    items: int
    compare: Compared
    ticket: Constructed = field(default_factory=Constructed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetSums:
    """A row of `bench subset-sum`: one engine at one number of items."""

    engine: str
    label: str
    n: int
    device: str
    threads: int
    clock: str  # "cpu" or "wall"
    rows: int  # a timed run of a batched engine has this many; all runs of a one-at-a-time peer together
    p20: float
    median: float
    p80: float
    unit: str = "problems/s"
    times_slower: float  # our median rate over this one
    median_error: float
    optimal_share: float  # of the checked rows
    checked: int  # rows whose optimum the reference knows
    timeouts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSteps:
    """A row of `bench search`: one kind of step of one model; ratios are to the dense step, where it was timed."""

    model: str
    kind: str
    device: str
    precision: str
    compiler: str | None
    micro_batches: int
    sequences: int
    length: int
    trained: int  # numbers the optimizer updates
    p20: float  # seconds a step
    median: float
    p80: float
    tokens_per_second: float  # by the median
    time_ratio: float | None = None  # the median over the turns
    peak_bytes: int | None = None  # its own, most at any moment of a step; None on a CPU
    peak_ratio: float | None = None
    loss_error: float  # of the first micro-batch, relative to eager float32
    gradient_error: float  # of the same, in norm


def typed(kind: type[T], value: Json) -> T:
    """Read a JSON value as a type: a dataclass by its fields, others of the file left aside; lists, pairs, numbers.

    Example:
        >>> typed(Cosine, {"mean": 1, "min": 0.5, "max": 1.0})
        Cosine(mean=1.0, min=0.5)
        >>> typed(Cosine, {"mean": "high", "min": 0.5})
        Traceback (most recent call last):
        TypeError: mean must be float; got 'high'
    """
    read: T = _read(kind, value, kind.__name__)
    return read


def _read(kind: Any, value: Json, name: str) -> Any:
    parts = get_args(kind)
    if isinstance(kind, types.UnionType):
        return None if value is None else _read(parts[0], value, name)
    if kind is object:
        return value
    if is_dataclass(kind) and isinstance(value, dict):
        made: Any = kind
        known = {key: _read(part, value[key], key) for key, part in _hints(made).items() if key in value}
        if missing := [each.name for each in fields(kind) if each.name not in known and _is_needed(each)]:
            raise KeyError(missing[0])
        return made(**known)
    if get_origin(kind) is list and isinstance(value, list):
        return [_read(parts[0], part, name) for part in value]
    if get_origin(kind) is tuple and isinstance(value, list) and len(value) == len(parts):
        return tuple(_read(part, each, name) for part, each in zip(parts, value, strict=True))
    if get_origin(kind) is dict and isinstance(value, dict):
        return value
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"{name} must be {getattr(kind, '__name__', kind)}; got {value!r:.40}")
    return value


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _is_needed(each: Field[Any]) -> bool:
    return each.default is MISSING and each.default_factory is MISSING
