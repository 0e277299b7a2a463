"""A summary of a ticket: as plain data for machines, and in words for `show` and the report."""

import io
from dataclasses import asdict, dataclass
from pathlib import Path

from strongticket.tickets.codes import CodeMask
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.content import Content
from strongticket.tickets.mask import BlockMask, Mask
from strongticket.tickets.owners import OwnerMask
from strongticket.tickets.table import draws_of

_MEANINGS = {
    OwnerMask.kind: "one kept weight per hidden unit",
    BlockMask.kind: "one kept weight per hidden unit, in the order of the inputs",
}


@dataclass(frozen=True, slots=True)
class Summary:
    """A ticket, with counts shared by everything that shows it."""

    ticket: Content
    kept: int
    file_bytes: int
    description_bytes: int  # of the header: names, shapes, hashes and settings, most of a small ticket
    dense_bytes: int
    dense_numbers: int
    norms_at_one: int  # norm scales of a searched GPT-2 that stay 1, which no file needs to store

    @property
    def mask_bytes(self) -> int:
        """All bytes but the header and the dense numbers."""
        return self.file_bytes - self.description_bytes - self.dense_bytes

    def as_json(self) -> dict[str, object]:
        """Return what `show --json` prints."""
        ticket, certificate = self.ticket, self.ticket.certificate
        return {
            "identity": ticket.identity,
            "seed": ticket.seed,
            "architecture": ticket.architecture,
            "weights": ticket.numel,
            "kept": self.kept,
            "density": ticket.density,
            "strong": ticket.strong,
            "strength": ticket.strength,
            "norms_at_one": self.norms_at_one,
            "file_bytes": self.file_bytes,
            "description_bytes": self.description_bytes,
            "mask_bytes": self.mask_bytes,
            "tensors": [
                {
                    "name": tensor.name,
                    "shape": list(tensor.shape),
                    "distribution": tensor.distribution,
                    "scale": tensor.scale,
                    "mask": tensor.mask.kind,
                    "rule": tensor.mask.rule(),
                    "density": tensor.density,
                }
                for tensor in ticket.tensors.values()
            ],
            "dense": [
                {
                    "name": dense.name,
                    "shape": list(dense.value.shape),
                    "dtype": DTYPE_NAMES[dense.value.dtype],
                    "trained": dense.trained,
                }
                for dense in ticket.dense.values()
            ],
            "dense_numbers": self.dense_numbers,
            "certificate": asdict(certificate) if certificate else None,
            "metadata": ticket.metadata,
        }

    def weights_words(self) -> str:
        """Say how many weights there are, and how many are kept."""
        return f"{self.ticket.numel:,} random, {self.kept:,} kept (density {self.ticket.density:.4f})"

    def nonzero_words(self) -> str:
        """Explain the nonzero count of `search` if it is more than masks keep."""
        dense, norms = self.dense_numbers, self.norms_at_one
        if not norms and not (dense and "search" in self.ticket.metadata):
            return ""
        parts = [f"{self.kept:,} kept"]
        if dense:
            parts.append(f"{dense:,} dense")
        if norms:
            parts.append(f"{norms:,} norm scales fixed at 1")
        return f"{self.kept + dense + norms:,} as search counts: {' + '.join(parts)}"

    def dense_words(self) -> str:
        """Say how many dense numbers the file holds."""
        tensors = len(self.ticket.dense)
        return f"{self.dense_numbers:,} numbers in {tensors} tensor{'s' * (tensors != 1)}" if tensors else "none"

    def besides_words(self) -> str:
        """Say what the file holds besides random weights and masks, if anything."""
        count = self.dense_numbers
        if not count:
            return ""
        numbers = f"{count:,} number{'s' * (count != 1)}"
        if not self.ticket.strong:
            return f"{numbers}, trained ones among them"
        if self.ticket.architecture.get("measured"):
            return f"{numbers}, some of them measured on data, as running means are"
        # Only a construction has a target, whose biases it copies exactly.
        return f"{numbers} {'copied from the target' if self.ticket.certificate else 'stored in full, none trained'}"

    def strong_words(self) -> str:
        """Say whether nothing was trained to find the ticket."""
        if not self.ticket.strong:
            strength = self.ticket.strength
            return strength if strength.startswith("strong") else "no: some dense tensors were trained"
        besides, rest = self.besides_words(), self.rest_words()
        held = f"random weights and masks, {f'plus {besides}' if besides else 'nothing else'}"
        return f"yes: {held}{rest and f'; {rest}'}"

    def rest_words(self) -> str:
        """Say what a pretrained model's ticket leaves to the model; empty for a whole network."""
        settings = self.ticket.architecture
        if settings.get("family") != "pretrained":
            return ""
        what = "attention and MLP" if settings.get("what") == "attention+mlp" else "attention"
        return f"this is the model's {what}; the rest of the model is not in the file"

    def mask_meanings(self) -> str:
        """Explain the kinds of masks whose names do not."""
        kinds = {tensor.mask.kind for tensor in self.ticket.tensors.values()}
        return "; ".join(f"{kind}: {meaning}" for kind, meaning in _MEANINGS.items() if kind in kinds)

    def size_words(self) -> str:
        """Say how large the file is, and its share of masks, which alone grows with the network."""
        masks, dense = self.mask_bytes, self.dense_bytes
        bits = f" ({8 * masks / self.ticket.numel:.3f} bits per weight)" if self.ticket.numel and masks else ""
        numbers = f"{dense:,} of dense numbers, " if dense else ""
        return (
            f"{self.file_bytes:,} bytes: {masks:,} of masks{bits}, {numbers}{self.description_bytes:,} of description"
        )


def mask_words(mask: Mask) -> str:
    """Describe a mask: its kind; for codes their number, and whether weights are redrawn or frozen."""
    if not isinstance(mask, CodeMask):
        return mask.kind
    draws = len(draws_of(mask.table))
    drawn = f", {draws} draws" if draws > 1 else ""
    frozen = f", {sum(mask.frozen.shares):.0%} frozen" if mask.frozen else ""
    return f"{len(mask.table)} code{'s' * (len(mask.table) != 1)}{drawn}{frozen}"


def summarize(ticket: Content, stored: Path | bytes) -> Summary:
    """Summarize a ticket and its stored file or bytes."""
    dense = [each.value for each in ticket.dense.values()]
    return Summary(
        ticket=ticket,
        kept=ticket.kept(),
        file_bytes=len(stored) if isinstance(stored, bytes) else stored.stat().st_size,
        description_bytes=_description_bytes(stored),
        dense_bytes=sum(value.nbytes for value in dense),
        dense_numbers=sum(value.numel() for value in dense),
        norms_at_one=_norms_at_one(ticket),
    )


def _description_bytes(stored: Path | bytes) -> int:
    """Return the size of the header."""
    with io.BytesIO(stored) if isinstance(stored, bytes) else open(stored, "rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def _norms_at_one(ticket: Content) -> int:
    """Count a searched GPT-2's norm scales if they stay 1, which no file needs to store."""
    config = ticket.architecture.get("config")
    trained = any("norm" in name for name in ticket.dense)
    if ticket.architecture.get("family") != "gpt2" or not isinstance(config, dict) or trained:
        return 0
    layers, width = config.get("n_layers"), config.get("d_model")
    # Two per block and one at the end.
    return (2 * layers + 1) * width if isinstance(layers, int) and isinstance(width, int) else 0
