"""The content of a ticket: seed, tensors, masks and dense numbers; and the hashes that identify it."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from types import MappingProxyType
from typing import TypedDict

import torch
from torch import Tensor

from strongticket.checks import as_seed
from strongticket.files import canonical_json
from strongticket.ops.rng import Distribution, random_weights
from strongticket.tickets.codes import weights_under
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.plain_json import plain_json
from strongticket.tickets.table import draws_of
from strongticket.tickets.tensors import (
    MAX_ELEMENTS,
    SCALES,
    Certificate,
    DenseTensor,
    Digests,
    RandomTensor,
    check_scales,
    spread,
)
from strongticket.tickets.weights_digest import Weights, digest_of_weights

# Called with the number of weights done since the last call; maybe from other threads, but one at a time.
Progress = Callable[[int], object]


class Content:
    """Everything a `Ticket` holds, with the same arguments: the source for files and networks."""

    def __init__(
        self,
        *,
        seed: int,
        tensors: Iterable[RandomTensor],
        dense: Iterable[DenseTensor] = (),
        architecture: Mapping[str, object] | None = None,
        certificate: Certificate | None = None,
        metadata: Mapping[str, object] | None = None,
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
        # The file's digests when this ticket was loaded; `verify` compares the recomputed ones with them.
        self.stored_digests: Digests | None = None
        check_unique([tensor.name for tensor in random] + [tensor.name for tensor in exact])
        for name, scales in self.scales.items():
            check_scales(name, scales, self.tensors[name].shape)
        if self.numel + sum(tensor.value.numel() for tensor in exact) > MAX_ELEMENTS:
            raise ValueError(f"a ticket holds at most 2^40 elements; got {self.numel} random ones.")
        self._sealed = True

    def __setattr__(self, name: str, value: object) -> None:
        # Stored digests cover seed and tensors, so these must not be replaced. They do not cover what can be changed in
        # place, such as the architecture or a dense tensor's numbers: the identity hashes that again.
        if getattr(self, "_sealed", False):
            raise AttributeError(f"a ticket's {name} cannot be set; make a new ticket instead.")
        super().__setattr__(name, value)

    @property
    def numel(self) -> int:
        """The number of random weights, kept or not."""
        return sum(tensor.numel for tensor in self.tensors.values())

    @property
    def drawn(self) -> int:
        """The number of random numbers drawn: more than `numel` if a tensor is drawn several times."""
        return sum(tensor.drawn for tensor in self.tensors.values())

    def kept(self) -> int:
        """Count the kept random weights: those with a nonzero coefficient."""
        return sum(tensor.mask.count() for tensor in self.tensors.values())

    @property
    def density(self) -> float:
        """The fraction of random weights kept."""
        return self.kept() / self.numel if self.numel else 0.0

    @property
    def scales(self) -> dict[str, Tensor]:
        """The factors on random tensors, by tensor name; see `spread`."""
        return {name: self.dense[name + SCALES].value for name in self.tensors if name + SCALES in self.dense}

    @property
    def unscaling(self) -> dict[str, DenseTensor]:
        """The dense tensors with their own place in the network: all but the scales."""
        scales = {name + SCALES for name in self.tensors}
        return {name: tensor for name, tensor in self.dense.items() if name not in scales}

    @property
    def strong(self) -> bool:
        """Whether it has no trained number: every dense tensor follows from the target or was measured."""
        return not any(tensor.trained for tensor in self.dense.values())

    @property
    def strength(self) -> str:
        """Say whether it is strong, strong up to some learned scales, or not strong.

        Example:
            >>> Content(seed=0, tensors=[]).strength
            'strong'
        """
        if any(tensor.trained for tensor in self.unscaling.values()):
            return "not strong: it has trained tensors"
        count = sum(scales.numel() for scales in self.scales.values())
        return f"strong up to {count:,} scale{'s' * (count != 1)}" if count else "strong"

    @property
    def identity(self) -> str:
        """SHA-256 of the uncompressed content: the same ticket has the same identity, however it is stored."""
        digest = hashlib.sha256(b"strongticket identity 1\x00")
        digest.update(canonical_json(content_of(self)).encode() + b"\x00")
        for piece in chain(_symbols_of(self), (tensor.to_bytes() for tensor in self.dense.values())):
            digest.update(piece)
        return digest.hexdigest()

    def materialize(self, *, device: torch.device | str | None = None) -> "MaskedWeights":
        """Return a mapping of names to masked weights; each tensor is regenerated on access, and not kept."""
        return MaskedWeights(self, device)

    def digests(self, progress: Progress | None = None) -> Digests:
        """Compute the digests for a file: regenerate every weight, a few MiB at a time, on torch's threads."""
        weights = [
            Weights(t.name, t.numel, t.distribution, t.scale, draw)
            for t in self.tensors.values()
            for draw in draws_of(t.mask.table)
        ]
        with digest_of_weights(self.seed, weights, progress=progress) as digest:
            return Digests(masks=digest_of_masks(self), weights=digest())


class MaskedWeights(Mapping[str, Tensor]):
    """The masked weights of a ticket by name, each regenerated on access."""

    def __init__(self, ticket: Content, device: torch.device | str | None) -> None:
        self._ticket, self._device = ticket, device

    def __getitem__(self, name: str) -> Tensor:
        tensor = self._ticket.tensors[name]
        how = tensor.distribution, tensor.scale

        def draw(number: int) -> Tensor:
            return random_weights(self._ticket.seed, name, tensor.shape, *how, draw=number, device=self._device)

        weights, scales = weights_under(tensor.mask, draw), self._ticket.dense.get(name + SCALES)
        return weights if scales is None else weights * spread(scales.value.to(weights.device), tensor.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._ticket.tensors)

    def __len__(self) -> int:
        return len(self._ticket.tensors)


def digest_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    """Hash named tensors, in name order: how a certificate identifies its target."""
    digest = hashlib.sha256(b"strongticket tensors 1\x00")
    for name, tensor in sorted(tensors.items()):
        described = {"dtype": str(tensor.dtype).removeprefix("torch."), "name": name, "shape": list(tensor.shape)}
        digest.update(canonical_json(described).encode() + b"\x00")
        digest.update(tensor.detach().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class DenseFields(TypedDict):
    """What a file says of a dense tensor, apart from its numbers."""

    dtype: str
    name: str
    shape: tuple[int, ...]
    trained: bool


class RandomFields(TypedDict):
    """What a file says of a random tensor, apart from its mask's payload."""

    distribution: Distribution
    dtype: str
    mask: dict[str, object]
    name: str
    scale: float
    shape: tuple[int, ...]


class ContentFields(TypedDict):
    """What a file says of a ticket's content."""

    architecture: Mapping[str, object]
    dense: list[DenseFields]
    seed: int
    tensors: list[RandomFields]


def content_of(ticket: Content) -> ContentFields:
    """Describe everything a ticket's identity covers, except symbols and dense bytes."""
    return {
        "architecture": ticket.architecture,
        "dense": [
            {
                "dtype": DTYPE_NAMES[tensor.value.dtype],
                "name": tensor.name,
                "shape": tuple(tensor.value.shape),
                "trained": tensor.trained,
            }
            for tensor in ticket.dense.values()
        ],
        "seed": ticket.seed,
        "tensors": [
            {
                "distribution": tensor.distribution,
                "dtype": "F32",
                "mask": {"kind": tensor.mask.kind, **tensor.mask.rule()},
                "name": tensor.name,
                "scale": tensor.scale,
                "shape": tuple(tensor.shape),
            }
            for tensor in ticket.tensors.values()
        ],
    }


def digest_of_masks(ticket: Content) -> str:
    """Hash the packed symbols of all masks that have any, in the tensors' order."""
    digest = hashlib.sha256()
    for piece in _symbols_of(ticket):
        digest.update(piece)
    return digest.hexdigest()


def _symbols_of(ticket: Content) -> Iterator[bytes | memoryview]:
    return (tensor.mask.symbols.packed.data for tensor in ticket.tensors.values() if tensor.mask.symbols)


def check_unique(names: list[str]) -> None:
    """Refuse a name that occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"tensor names must be unique; got {name!r:.80} twice.")
        seen.add(name)
