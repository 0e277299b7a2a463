"""The parts of a ticket: random tensors under masks, dense tensors, and certificates."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strongticket.bounds.upward import down_digits, up_digits
from strongticket.checks import as_real
from strongticket.notebook import card
from strongticket.ops.arrays import as_tensor
from strongticket.ops.rng import DISTRIBUTIONS, Distribution, round_scale
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.details import Details
from strongticket.tickets.mask import Mask, density
from strongticket.tickets.plain_json import plain_json
from strongticket.tickets.table import draws_of

MAX_ELEMENTS = 2**40
MAX_DIMENSIONS = 16

# Letters, digits, '_', '-' and single dots inside: a name can never be mistaken for a path or an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTensor:
    """One random tensor of the source and the mask over it, without the weights themselves.

    Args:
        name: letters, digits, `_`, `-`, and dots between them; also keys the random numbers.
        mask: which weights are kept, and with what coefficients; its shape is the tensor's.
        distribution: `"uniform"`, `"normal"`, `"sign"` or `"packed-sign"`.
        scale: half-width, standard deviation or magnitude; rounded to float32.
    """

    name: str
    mask: Mask
    distribution: Distribution = "uniform"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_name(self.name)
        # Python 3.11 takes 10 us to compare an object with a protocol, which adds up in a file of 50,000 tensors.
        if not hasattr(self.mask, "symbols"):
            raise ValueError(f"{self.name}: mask must be a PackedMask or another mask; got {type(self.mask).__name__}.")
        check_shape(self.name, self.mask.shape)
        if self.distribution not in DISTRIBUTIONS:
            raise ValueError(
                f"{self.name}: distribution must be one of {', '.join(DISTRIBUTIONS)}; got {self.distribution!r}."
            )
        object.__setattr__(self, "scale", round_scale(self.scale))

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.mask.shape

    @property
    def numel(self) -> int:
        """The number of random weights."""
        return math.prod(self.shape)

    @property
    def drawn(self) -> int:
        """The number of random numbers drawn: `numel` for each draw of its table."""
        return self.numel * len(draws_of(self.mask.table))

    @property
    def density(self) -> float:
        """The fraction kept."""
        return density(self.mask)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseTensor:
    """A float tensor stored in full: an exact bias, a trained embedding or norm, or a random tensor's scales.

    Args:
        name: as for random tensors; all names in a ticket differ.
        value: float16, bfloat16, float32 or float64, a tensor or an array; kept on the CPU.
        trained: whether it was trained. A ticket with a trained tensor is not a *strong* ticket.
    """

    name: str
    value: Tensor
    trained: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.trained, bool):
            raise ValueError(f"{self.name}: trained must be True or False; got {self.trained!r:.40}.")
        object.__setattr__(self, "value", as_tensor(f"{self.name}: a dense tensor", self.value))
        check_shape(self.name, tuple(self.value.shape))
        if not self.value.is_floating_point() or self.value.dtype not in DTYPE_NAMES:
            raise ValueError(
                f"{self.name}: a dense tensor must be float16, bfloat16, float32 or float64; got {self.value.dtype}."
            )
        if self.value.is_meta or self.value.layout != torch.strided:
            got = "one on meta, without values" if self.value.is_meta else str(self.value.layout)
            raise ValueError(f"{self.name}: a dense tensor must store all its entries; got {got}.")
        object.__setattr__(self, "value", self.value.detach().resolve_neg().cpu().contiguous().clone())

    def to_bytes(self) -> bytes:
        """Return the elements in row-major order, little-endian."""
        return self.value.reshape(-1).view(torch.uint8).numpy().tobytes()


SCALES = ".scales"  # appended to the name of the random tensor it multiplies


def spread(scales: Tensor, shape: Sequence[int]) -> Tensor:
    """Repeat scales to the shape of the tensor they multiply, or to one that broadcasts to it.

    Along each axis, a scale multiplies ceil(size / scales) consecutive weights.

    Example:
        >>> spread(torch.tensor([[1.0, 2.0]]), (4, 3)).tolist()
        [[1.0, 1.0, 2.0]]
    """
    for axis, (size, count) in enumerate(zip(shape, scales.shape, strict=True)):
        if 1 < count < size:
            scales = scales.repeat_interleave(-(-size // count), dim=axis).narrow(axis, 0, size)
    return scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was proved about a constructed ticket.

    Args:
        error: a bound on the output error, for every input of norm at most `input_norm`.
        input_norm: the paper's alpha.
        target_sha256: `digest_of_tensors` of the target the error refers to.
        details: the parts of the bound, as JSON: per head, per layer, unreachable entries.
    """

    error: float
    input_norm: float
    target_sha256: str
    details: Details = field(default_factory=Details)

    def __post_init__(self) -> None:
        for name in ("error", "input_norm"):
            number = as_real(value := getattr(self, name))
            if not 0 <= number < math.inf:
                raise ValueError(f"a certificate's {name} must be finite and at least 0; got {value!r:.40}.")
            object.__setattr__(self, name, number)
        _check_sha256(self.target_sha256)
        object.__setattr__(self, "details", plain_json(self.details, "a certificate's details"))

    def __str__(self) -> str:
        return self.in_words("{:g}".format)

    def in_words(self, write: Callable[[float], str]) -> str:
        """Say what was proved, never more: the error is rounded up, the norm down.

        Args:
            write: writes a number of at most three digits.
        """
        error, norm = write(up_digits(self.error, 3)), write(down_digits(self.input_norm, 3))
        parts = self.details.get("parts")
        of = f"each of {len(parts):,} parts by itself: " if isinstance(parts, list) else ""
        return f"{of}output error at most {error} for every input of norm at most {norm}"

    def __repr__(self) -> str:
        return f"Certificate({self}; target {self.target_sha256[:16]})"

    def _repr_html_(self) -> str:
        counted = self.details.get("unreachable")
        missed = counted.get("count") if isinstance(counted, dict) else None
        facts = {"proved": str(self), "target": f"SHA-256 {self.target_sha256}"}
        if missed:
            facts["out of reach"] = f"{missed} entries of the target, which the error covers"
        return card("Certificate", facts)


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 of all mask bits, and of the SHA-256 of every tensor's regenerated weights, as stored in a file."""

    masks: str
    weights: str

    def __post_init__(self) -> None:
        _check_sha256(self.masks)
        _check_sha256(self.weights)


def check_name(name: str) -> None:
    """Refuse names that are empty, long, path-like or hard to type."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(
            f"a tensor's name must be letters, digits, '_' and '-', with single dots between them, at most "
            f"{_LONGEST_NAME} characters; got {name!r:.80}."
        )


def check_scales(name: str, scales: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse scales that do not fit their random tensor."""
    counts = tuple(scales.shape)
    fits = len(counts) == len(shape) and all(
        1 <= count <= max(1, size) for count, size in zip(counts, shape, strict=True)
    )
    if not fits or scales.dtype != torch.float32:
        raise ValueError(
            f"the scales of {name} must be float32, at least 1 and at most one per weight along each axis of "
            f"{list(shape)!s:.80}; got {scales.dtype} {list(counts)!s:.80}."
        )


def _check_sha256(digest: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"a SHA-256 must be 64 lowercase hex digits; got {digest!r:.80}.")


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse shapes no ticket can hold."""
    # A zero must not hide impossible sizes, hence max; and a long shape is not multiplied at all.
    if len(shape) > MAX_DIMENSIONS or math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        raise ValueError(
            f"{name}: a shape may have at most {MAX_DIMENSIONS} dimensions and 2^40 elements, zeros counted as ones; "
            f"got {list(shape)!s:.80}."
        )
