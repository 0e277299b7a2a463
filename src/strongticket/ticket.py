"""A ticket: how the random weights are made, which of them are kept, and what is certified about the result."""

import hashlib
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import Tensor

from strongticket.container import DTYPE_NAMES, Json, atomic_write, canonical_json
from strongticket.mask import BlockMask, FullMask, Mask, PackedMask, density
from strongticket.rng import DISTRIBUTIONS, Distribution, as_real, as_seed, random_weights, round_scale
from strongticket.weights_digest import Weights, digest_of_weights

if TYPE_CHECKING:
    from strongticket.build import Form

MAX_ELEMENTS = 2**40
MAX_DIMENSIONS = 16
MAX_JSON_DEPTH = 64

# Letters, digits, '_', '-' and single dots inside: a name can never be mistaken for a path or an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_LONGEST_NAME = 200

# Called with the number of weights done since the last call; perhaps from other threads, but by one at a time.
Progress = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTensor:
    """One random tensor of the source and the mask over it; the weights themselves are not here.

    Args:
        name: letters, digits, `_`, `-`, and dots between them; also keys the random numbers.
        mask: which weights are kept; its shape is the tensor's.
        distribution: `"uniform"`, `"normal"` or `"sign"`.
        scale: half-width, standard deviation or magnitude; rounded to float32.
    """

    name: str
    mask: Mask
    distribution: Distribution = "uniform"
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.mask, PackedMask | FullMask | BlockMask):
            raise ValueError(
                f"{self.name}: mask must be a PackedMask, FullMask or BlockMask; got {type(self.mask).__name__}."
            )
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
        """How many random weights the tensor has."""
        return math.prod(self.shape)

    @property
    def density(self) -> float:
        """The fraction kept."""
        return density(self.mask)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DenseTensor:
    """A float tensor stored as it is: an exact bias, or a trained embedding or norm.

    Args:
        name: as for random tensors, and different from all of theirs.
        value: float16, bfloat16, float32 or float64; kept on the CPU.
        trained: whether training made it. A ticket with a trained tensor is not a *strong* ticket.
    """

    name: str
    value: Tensor
    trained: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        if not isinstance(self.trained, bool):
            raise ValueError(f"{self.name}: trained must be True or False; got {self.trained!r:.40}.")
        if not isinstance(self.value, Tensor):
            got = type(self.value).__name__
            raise ValueError(f"{self.name}: a dense tensor is a torch tensor; got {got}. Use torch.as_tensor.")
        check_shape(self.name, tuple(self.value.shape))
        if not self.value.is_floating_point() or self.value.dtype not in DTYPE_NAMES:
            raise ValueError(
                f"{self.name}: a dense tensor is float16, bfloat16, float32 or float64; got {self.value.dtype}."
            )
        if self.value.is_meta or self.value.layout != torch.strided:
            got = "one on meta, without numbers" if self.value.is_meta else str(self.value.layout)
            raise ValueError(f"{self.name}: a dense tensor has all entries stored; got {got}.")
        object.__setattr__(self, "value", self.value.detach().resolve_neg().cpu().contiguous().clone())

    def to_bytes(self) -> bytes:
        """Give the elements in row-major order, little-endian."""
        return self.value.reshape(-1).view(torch.uint8).numpy().tobytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was proved of a constructed ticket when it was made.

    Args:
        error: a bound on the output error, for every input of norm at most `input_norm`.
        input_norm: the paper's alpha.
        target_sha256: `digest_of_tensors` of the target the error refers to.
        details: how the bound was put together, as JSON: per head, per layer, unreachable entries.
    """

    error: float
    input_norm: float
    target_sha256: str
    details: Mapping[str, Json] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("error", "input_norm"):
            number = as_real(value := getattr(self, name))
            if not 0 <= number < math.inf:
                raise ValueError(f"a certificate's {name} must be finite and at least 0; got {value!r:.40}.")
            object.__setattr__(self, name, number)
        _check_sha256(self.target_sha256)
        object.__setattr__(self, "details", plain_json(self.details, "a certificate's details"))


@dataclass(frozen=True, slots=True)
class Digests:
    """SHA-256 of all mask bits, and of the SHA-256 of every tensor's regenerated weights, as stored in a file."""

    masks: str
    weights: str

    def __post_init__(self) -> None:
        _check_sha256(self.masks)
        _check_sha256(self.weights)


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of `Ticket.verify`: `ok`, or the list of what failed."""

    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures


class Ticket:
    r"""A seed and a bit per weight: enough to rebuild a pruned random network anywhere.

    Args:
        seed: keys every random tensor, 0 to $2^{64} - 1$.
        tensors: the random tensors and their masks, in the architecture's order.
        dense: float tensors that are neither random nor masked.
        architecture: `family` and settings, as JSON, enough to build the network.
        certificate: what is proved about the result; not part of the identity.
        metadata: anything else, as JSON; not part of the identity.

    Example:
        >>> mask = PackedMask.from_bool(torch.tensor([[True, False], [True, True]]))
        >>> ticket = Ticket(seed=7, tensors=[RandomTensor(name="weight", mask=mask, distribution="sign", scale=0.5)])
        >>> Ticket.from_bytes(ticket.to_bytes()) == ticket
        True
        >>> ticket.materialize()["weight"].tolist()
        [[-0.5, 0.0], [0.5, 0.5]]
    """

    def __init__(
        self,
        *,
        seed: int,
        tensors: Iterable[RandomTensor],
        dense: Iterable[DenseTensor] = (),
        architecture: Mapping[str, Json] | None = None,
        certificate: Certificate | None = None,
        metadata: Mapping[str, Json] | None = None,
    ) -> None:
        if certificate is not None and not isinstance(certificate, Certificate):
            raise ValueError(f"certificate must be a Certificate; got {type(certificate).__name__}.")
        self.seed = as_seed(seed)
        random, exact = tuple(tensors), tuple(dense)
        self.tensors = MappingProxyType({tensor.name: tensor for tensor in random})
        self.dense = MappingProxyType({tensor.name: tensor for tensor in exact})
        self.architecture = plain_json(architecture or {}, "architecture")
        self.certificate = certificate
        self.metadata = plain_json(metadata or {}, "metadata")
        # What the file said when this ticket was loaded; `verify` holds the recomputed values against it.
        self.stored_digests: Digests | None = None
        _check_unique([tensor.name for tensor in random] + [tensor.name for tensor in exact])
        if self.numel + sum(tensor.value.numel() for tensor in exact) > MAX_ELEMENTS:
            raise ValueError(f"a ticket holds at most 2^40 elements; got {self.numel} random ones.")
        self._sealed = True

    def __setattr__(self, name: str, value: object) -> None:
        # Stored digests speak of seed and tensors; others put in their place would make them lie. What can be reached
        # inside, as the architecture or a dense tensor's numbers, they do not cover: the identity hashes it anew.
        if getattr(self, "_sealed", False):
            raise AttributeError(f"a ticket's {name} cannot be set; make a new ticket with another one.")
        super().__setattr__(name, value)

    @property
    def numel(self) -> int:
        """How many random weights there are, kept or not."""
        return sum(tensor.numel for tensor in self.tensors.values())

    def kept(self) -> int:
        """Count the random weights that are kept."""
        return sum(tensor.mask.count() for tensor in self.tensors.values())

    @property
    def density(self) -> float:
        """The fraction of random weights kept."""
        return self.kept() / self.numel if self.numel else 0.0

    @property
    def strong(self) -> bool:
        """Whether no trained number is in it: every dense tensor follows from the target, none from training."""
        return not any(tensor.trained for tensor in self.dense.values())

    @property
    def identity(self) -> str:
        """SHA-256 of the uncompressed content: the same ticket has the same identity, however it is stored."""
        return _identity(self)

    def with_stored_digests(self, digests: Digests) -> "Ticket":
        """Give this ticket with what a file said about it, for `verify` to check."""
        loaded = Ticket(
            seed=self.seed,
            tensors=self.tensors.values(),
            dense=self.dense.values(),
            architecture=self.architecture,
            certificate=self.certificate,
            metadata=self.metadata,
        )
        object.__setattr__(loaded, "stored_digests", digests)
        return loaded

    def materialize(self, *, device: torch.device | str | None = None) -> "MaskedWeights":
        """Give name -> masked weight; each tensor is regenerated when it is asked for, and not kept."""
        return MaskedWeights(self, device)

    def build(
        self, form: "Form" = "literal", *, dtype: torch.dtype = torch.float32, device: torch.device | str | None = None
    ) -> torch.nn.Module:
        """Build the network: the wide masked one ("literal"), or the same function with matrices multiplied out."""
        from strongticket.build import build

        return build(self, form, dtype=dtype, device=device)

    def digests(self, progress: Progress | None = None) -> Digests:
        """Compute the digests a file stores: regenerates every weight, a few MiB at a time, on torch's threads."""
        weights = [Weights(t.name, t.numel, t.distribution, t.scale) for t in self.tensors.values()]
        with digest_of_weights(self.seed, weights, progress=progress) as digest:
            return Digests(masks=digest_of_masks(self), weights=digest())

    def verify(self, progress: Progress | None = None) -> Verification:
        """Hold masks and regenerated weights against the stored digests; a ticket never stored has none to fail."""
        if (stored := self.stored_digests) is None:
            return Verification()
        computed, failures = self.digests(progress), []
        if computed.masks != stored.masks:
            failures.append(f"the masks' SHA-256 is {computed.masks}, the file says {stored.masks}")
        if computed.weights != stored.weights:
            failures.append(f"the regenerated weights' SHA-256 is {computed.weights}, the file says {stored.weights}")
        return Verification(tuple(failures))

    def to_bytes(self) -> bytes:
        """Serialise as in `docs/ticket-format.md`."""
        buffer = io.BytesIO()
        self._write(buffer, None)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Ticket":
        """Read what `to_bytes` wrote; anything else raises `TicketFormatError`."""
        from strongticket.ticket_format import read_ticket

        return read_ticket(io.BytesIO(data), len(data), "bytes")

    def save(self, path: str | PathLike[str], progress: Progress | None = None) -> None:
        """Write a file; if that fails half-way, a file that was there before is untouched and no half file is left."""
        with atomic_write(Path(path)) as file:
            self._write(file, progress)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Ticket":
        """Read a file, checking its digest; a file that is no ticket raises `TicketFormatError`."""
        from strongticket.ticket_format import read_ticket

        with open(path, "rb") as file:
            return read_ticket(file, file.seek(0, io.SEEK_END), str(path))

    def _write(self, file: BinaryIO, progress: Progress | None) -> None:
        from strongticket.ticket_format import write_ticket

        write_ticket(self, self.stored_digests or self.digests(progress), file)

    def __deepcopy__(self, memo: dict[int, object]) -> "Ticket":
        # The masks, which are nearly all of it, cannot be changed and are shared. The rest is copied wherever such a
        # part is made, hence `replace`.
        copied = Ticket(
            seed=self.seed,
            tensors=self.tensors.values(),
            dense=[replace(tensor) for tensor in self.dense.values()],
            architecture=self.architecture,
            certificate=self.certificate and replace(self.certificate),
            metadata=self.metadata,
        )
        object.__setattr__(copied, "stored_digests", self.stored_digests)
        return copied

    def __reduce__(self) -> tuple[Callable[[bytes], "Ticket"], tuple[bytes]]:
        # As in a file, so that what is unpickled is checked like one.
        return Ticket.from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ticket):
            return NotImplemented
        mine, theirs = (
            (self.identity, self.certificate, self.metadata),
            (other.identity, other.certificate, other.metadata),
        )
        return mine == theirs

    def __hash__(self) -> int:
        # Of what cannot be changed, so that a ticket is found again in a set whatever becomes of its architecture.
        return hash((self.seed, digest_of_masks(self)))

    def __repr__(self) -> str:
        family = self.architecture.get("family", "no architecture")
        return f"Ticket({family}, seed={self.seed}, weights={self.numel}, density={self.density:.4f})"


class MaskedWeights(Mapping[str, Tensor]):
    """The masked weights of a ticket by name, each made anew when it is looked up."""

    def __init__(self, ticket: Ticket, device: torch.device | str | None) -> None:
        self._ticket, self._device = ticket, device

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._ticket.tensors[name]
        weights = random_weights(
            self._ticket.seed, name, tensor.shape, tensor.distribution, tensor.scale, device=self._device
        )
        if isinstance(tensor.mask, FullMask):
            return weights
        return weights.masked_fill_(~tensor.mask.to_bool(self._device), 0.0)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ticket.tensors)

    def __len__(self) -> int:
        return len(self._ticket.tensors)


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Hash named tensors, in the order of their names: how a certificate names its target."""
    digest = hashlib.sha256(b"strongticket tensors 1\x00")
    for name, tensor in sorted(tensors.items()):
        described = {"dtype": str(tensor.dtype).removeprefix("torch."), "name": name, "shape": list(tensor.shape)}
        digest.update(canonical_json(described).encode() + b"\x00")
        digest.update(tensor.detach().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def content_of(ticket: Ticket) -> dict[str, Json]:
    """Describe everything a ticket's identity covers, bits and dense bytes excepted."""
    return {
        "architecture": ticket.architecture,
        "dense": [
            {
                "dtype": DTYPE_NAMES[tensor.value.dtype],
                "name": tensor.name,
                "shape": list(tensor.value.shape),
                "trained": tensor.trained,
            }
            for tensor in ticket.dense.values()
        ],
        "seed": ticket.seed,
        "tensors": [
            {
                "distribution": tensor.distribution,
                "dtype": "F32",
                "mask": describe_mask(tensor.mask),
                "name": tensor.name,
                "scale": tensor.scale,
                "shape": list(tensor.shape),
            }
            for tensor in ticket.tensors.values()
        ],
    }


def describe_mask(mask: Mask) -> dict[str, Json]:
    """Give a mask's kind and, for blocks, its rule."""
    if not isinstance(mask, BlockMask):
        return {"kind": mask.kind}
    sizes = mask.sizes if isinstance(mask.sizes, int) else list(mask.sizes)
    return {"kind": mask.kind, "sizes": sizes, "unit_axis": mask.unit_axis}


def _identity(ticket: Ticket) -> str:
    digest = hashlib.sha256(b"strongticket identity 1\x00")
    digest.update(canonical_json(content_of(ticket)).encode() + b"\x00")
    _update_with_masks(digest, ticket)
    for tensor in ticket.dense.values():
        digest.update(tensor.to_bytes())
    return digest.hexdigest()


def digest_of_masks(ticket: Ticket) -> str:
    """Hash the packed bits of all masks that have some, in the tensors' order."""
    digest = hashlib.sha256()
    _update_with_masks(digest, ticket)
    return digest.hexdigest()


def _update_with_masks(digest: "hashlib._Hash", ticket: Ticket) -> None:
    for tensor in ticket.tensors.values():
        if isinstance(tensor.mask, PackedMask):
            digest.update(tensor.mask.bits.data)


def check_name(name: str) -> None:
    """Refuse names that are empty, long, path-like or hard to type."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(
            f"a tensor's name has letters, digits, '_' and '-', single dots between them, and at most {_LONGEST_NAME} "
            f"characters; got {name!r:.80}."
        )


def _check_sha256(digest: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError(f"a SHA-256 is 64 hex digits in lower case; got {digest!r:.80}.")


def check_shape(name: str, shape: tuple[int, ...]) -> None:
    """Refuse shapes no ticket can hold."""
    # A zero must not hide sizes that no tensor can have, hence max; and a long shape is not multiplied out at all.
    if len(shape) > MAX_DIMENSIONS or math.prod(max(size, 1) for size in shape) > MAX_ELEMENTS:
        raise ValueError(
            f"{name}: a shape has at most {MAX_DIMENSIONS} dimensions and 2^40 elements, zeros counted as ones; "
            f"got {list(shape)!s:.80}."
        )


def _check_unique(names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"tensor names must be unique; got {name!r} twice.")
        seen.add(name)


def plain_json(value: Mapping[str, Json], what: str) -> dict[str, Json]:
    """Copy a mapping as plain JSON; anything JSON cannot hold exactly is refused by name."""
    copied = _plain(value, what)
    if not isinstance(copied, dict):
        raise ValueError(f"{what} must be a mapping; got {type(value).__name__}.")
    return copied


def _plain(value: Json, what: str, levels: int = MAX_JSON_DEPTH) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(value, what)
    if isinstance(value, int) and abs(value) < 2**64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if levels == 0 and isinstance(value, list | tuple | Mapping):
        raise ValueError(f"{what[:60]} is nested deeper than {MAX_JSON_DEPTH} levels.")
    if isinstance(value, list | tuple):
        return [_plain(item, f"{what}[{i}]", levels - 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {_encodable(key, what): _plain(item, f"{what}.{key}", levels - 1) for key, item in value.items()}
    raise ValueError(
        f"{what} must be plain JSON: text, finite numbers, true, false, null, lists, and mappings with text keys; "
        f"got {type(value).__name__} {str(value)[:40]}."
    )


def _encodable(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what[:60]} has text with half a surrogate pair, which UTF-8 cannot hold.") from None
    return str(text)
