"""A ticket: how the random weights are generated, which are kept, and what is certified about the result."""

import io
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO

import torch

from strongticket import notebook
from strongticket.bounds.upward import up_digits
from strongticket.errors import printable
from strongticket.files import atomic_write
from strongticket.tickets.build import Form, build
from strongticket.tickets.content import Content, Progress, digest_of_masks
from strongticket.tickets.format import read_ticket, write_ticket
from strongticket.tickets.from_bits import Resident, Run
from strongticket.tickets.mask import cells_of
from strongticket.tickets.summary import summarize
from strongticket.tickets.tensors import DenseTensor, Digests

_COUNTED = 2**22  # most weights to count and draw whenever a notebook shows a ticket


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of `Ticket.verify`: `ok`, or a list of failures."""

    failures: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return "Verification(ok)" if self.ok else f"Verification(failed: {'; '.join(self.failures)})"


class Ticket(Content):
    r"""A seed and a bit per weight: enough to rebuild a pruned random network anywhere.

    Args:
        seed: of every random tensor, 0 to $2^{64} - 1$.
        tensors: the random tensors and their masks, in the architecture's order.
        dense: float tensors that are neither random nor masked.
        architecture: `family` and settings, as JSON, enough to build the network.
        certificate: what is proved about the result; not part of the identity.
        metadata: anything else, as JSON; not part of the identity.

    Example:
        >>> from strongticket import PackedMask, RandomTensor
        >>> mask = PackedMask.from_bool(torch.tensor([[True, False], [True, True]]))
        >>> ticket = Ticket(seed=7, tensors=[RandomTensor(name="weight", mask=mask, distribution="sign", scale=0.5)])
        >>> Ticket.from_bytes(ticket.to_bytes()) == ticket
        True
        >>> ticket.materialize()["weight"].tolist()
        [[-0.5, 0.0], [0.5, 0.5]]
    """

    @classmethod
    def of(cls, content: Content, digests: Digests | None, dense: Iterable[DenseTensor] | None = None) -> "Ticket":
        """Make a ticket from content and a file's digests, for `verify` to check."""
        ticket = cls(
            seed=content.seed,
            tensors=content.tensors.values(),
            dense=content.dense.values() if dense is None else dense,
            architecture=content.architecture,
            certificate=content.certificate and replace(content.certificate),
            metadata=content.metadata,
        )
        return ticket._stored(digests)

    def _stored(self, digests: Digests | None) -> "Ticket":
        object.__setattr__(self, "stored_digests", digests)
        return self

    def build(
        self,
        form: "Form" = "literal",
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        run: Run = "dense",
        resident: Resident = "planes",
    ) -> torch.nn.Module:
        """Build the network: the wide masked one ("literal"), or the same function with matrices multiplied out.

        With `run="bits"` the weights of a searched GPT-2 stay in bit planes, if all are signed constants; see
        docs/run-from-bits.md, also for `resident`.
        """
        return build(self, form, dtype=dtype, device=device, run=run, resident=resident)

    def verify(self, progress: Progress | None = None) -> Verification:
        """Compare masks and regenerated weights with the stored digests; a ticket never stored has none."""
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
        write_ticket(self, self.stored_digests or self.digests(), buffer)
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Ticket":
        """Read what `to_bytes` wrote; anything else raises `TicketFormatError`."""
        return cls._read(io.BytesIO(data), "bytes")

    def save(self, path: str | PathLike[str], progress: Progress | None = None) -> None:
        """Write a file; if that fails, an existing file is untouched and no partial file is left."""
        with atomic_write(Path(path)) as file:
            write_ticket(self, self.stored_digests or self.digests(progress), file)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Ticket":
        """Read a file and check its digest; a file that is not a ticket raises `TicketFormatError`."""
        with open(path, "rb") as file:
            return cls._read(file, str(path))

    @classmethod
    def _read(cls, file: BinaryIO, source: str) -> "Ticket":
        ticket, digests = read_ticket(cls, file, file.seek(0, io.SEEK_END), source)
        return ticket._stored(digests)

    def __deepcopy__(self, memo: dict[int, object]) -> "Ticket":
        # The masks, nearly all of it, are immutable and shared. Constructors copy everything else, hence `replace`.
        return Ticket.of(self, self.stored_digests, [replace(tensor) for tensor in self.dense.values()])

    def __reduce__(self) -> tuple[Callable[[bytes], "Ticket"], tuple[bytes]]:
        # As in a file, so that unpickling checks it like one.
        return Ticket.from_bytes, (self.to_bytes(),)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ticket):
            return NotImplemented
        return all(getattr(self, part) == getattr(other, part) for part in ("identity", "certificate", "metadata"))

    def __hash__(self) -> int:
        # Of immutable parts, so that a ticket is still found in a set after its architecture changes.
        return hash((self.seed, digest_of_masks(self)))

    def __repr__(self) -> str:
        error = f", error<={up_digits(self.certificate.error, 3):g}" if self.certificate else ""
        return (
            f"Ticket({self._family()}, seed={self.seed}, weights={self.numel}, density={self.density:.4f}, "
            f"{self.strength}{error})"
        )

    def _repr_html_(self) -> str:
        facts = {"identity": self.identity, "seed": str(self.seed), "weights": f"{self.numel:,}"}
        facts |= {"strong": self.strength, "certificate": str(self.certificate or "none")}
        if self.numel <= _COUNTED:
            said = summarize(self, self.to_bytes())
            facts |= {"weights": said.weights_words(), "strong": said.strong_words(), "size": said.size_words()}
        rows, room = [], _COUNTED
        for tensor in itertools.islice(self.tensors.values(), notebook.ROWS):
            room -= tensor.numel
            drawn = cells_of(tensor.mask) if room >= 0 < tensor.numel else None
            picture = notebook.picture(drawn, f"mask of {tensor.name}") if drawn else ""
            shape = " x ".join(map(str, tensor.shape))
            rows.append((tensor.name, shape, tensor.distribution, f"{tensor.density:.4f}", picture))
        columns = ("tensor", "shape", "weights", "density", "mask")
        masks = notebook.table(columns, rows, more=len(self.tensors) - len(rows))
        return notebook.card(f"Ticket: {self._family()}", facts, masks)

    def _family(self) -> str:
        return printable(f"{self.architecture.get('family', 'no architecture')!s:.40}")
