"""What there is to say of a ticket: as plain data for machines, and in words for `show` and the report."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from strongticket.files import Json
from strongticket.tickets.container import DTYPE_NAMES
from strongticket.tickets.tensors import Certificate
from strongticket.tickets.ticket import Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSummary:
    """A random tensor."""

    name: str
    shape: list[int]
    distribution: str
    scale: float
    mask: str
    density: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSummary:
    """A tensor stored as it is."""

    name: str
    shape: list[int]
    dtype: str
    trained: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What `show --json` prints: the fields, in this order, are those of the JSON object."""

    identity: str
    seed: int
    architecture: Mapping[str, Json]
    weights: int
    kept: int
    density: float
    strong: bool
    norms_at_one: int  # scales of a searched GPT-2 that no file needs to hold
    file_bytes: int
    description_bytes: int  # of the header: names, shapes, hashes and settings, which a small ticket has mostly
    mask_bytes: int
    tensors: list[TensorSummary]
    dense: list[DenseSummary]
    dense_numbers: int
    certificate: Certificate | None
    metadata: Mapping[str, Json]


def summarize(ticket: Ticket, file: Path) -> Summary:
    """Collect everything `show` prints.

    Args:
        ticket: as loaded.
        file: what it was loaded from.
    """
    file_bytes, description_bytes = file.stat().st_size, _description_bytes(file)
    dense = [each.value for each in ticket.dense.values()]
    return Summary(
        identity=ticket.identity,
        seed=ticket.seed,
        architecture=ticket.architecture,
        weights=ticket.numel,
        kept=ticket.kept(),
        density=ticket.density,
        strong=ticket.strong,
        norms_at_one=_norms_at_one(ticket),
        file_bytes=file_bytes,
        description_bytes=description_bytes,
        mask_bytes=file_bytes - description_bytes - sum(value.nbytes for value in dense),
        tensors=[
            TensorSummary(
                name=tensor.name,
                shape=list(tensor.shape),
                distribution=tensor.distribution,
                scale=tensor.scale,
                mask=tensor.mask.kind,
                density=tensor.density,
            )
            for tensor in ticket.tensors.values()
        ],
        dense=[
            DenseSummary(
                name=each.name,
                shape=list(each.value.shape),
                dtype=DTYPE_NAMES[each.value.dtype],
                trained=each.trained,
            )
            for each in ticket.dense.values()
        ],
        dense_numbers=sum(value.numel() for value in dense),
        certificate=ticket.certificate,
        metadata=ticket.metadata,
    )


def _description_bytes(file: Path) -> int:
    """Give the size of the header: names, shapes, hashes and settings, which a small ticket has mostly."""
    with open(file, "rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def _norms_at_one(ticket: Ticket) -> int:
    """Count a searched GPT-2's norm scales if they stay 1, which no file needs to hold."""
    config = ticket.architecture.get("config")
    trained = any("norm" in name for name in ticket.dense)
    if ticket.architecture.get("family") != "gpt2" or not isinstance(config, dict) or trained:
        return 0
    layers, width = config.get("n_layers"), config.get("d_model")
    # Two in each block and one at the end.
    return (2 * layers + 1) * width if isinstance(layers, int) and isinstance(width, int) else 0


def weights_words(summary: Summary) -> str:
    """Say how many weights there are, and how many are kept."""
    return f"{summary.weights:,} random, {summary.kept:,} kept (density {summary.density:.4f})"


def nonzero_words(summary: Summary) -> str:
    """Say what `search` counts as nonzero, which is more than masks keep; nothing where that is all."""
    dense, norms = summary.dense_numbers, summary.norms_at_one
    if not norms and not (dense and "search" in summary.metadata):
        return ""
    parts = [f"{summary.kept:,} kept"]
    if dense:
        parts.append(f"{dense:,} dense")
    if norms:
        parts.append(f"{norms:,} norm scales, which stay 1")
    return f"{summary.kept + dense + norms:,} as search counts: {' + '.join(parts)}"


def dense_words(summary: Summary) -> str:
    """Say how many numbers the file holds as they are."""
    tensors = len(summary.dense)
    return f"{summary.dense_numbers:,} numbers in {tensors} tensor{'s' * (tensors != 1)}" if tensors else "none"


def besides_words(summary: Summary) -> str:
    """Say what the file holds besides random weights and masks; nothing where that is all."""
    count = summary.dense_numbers
    if not count:
        return ""
    numbers = f"{count:,} number{'s' * (count != 1)}"
    if not summary.strong:
        return f"{numbers}, trained ones among them"
    # Only a construction has a target, and takes from it what is exact: its biases.
    return f"{numbers} {'copied from the target' if summary.certificate else 'stored in full'}"


def strong_words(summary: Summary) -> str:
    """Say whether nothing was trained to find the ticket."""
    if not summary.strong:
        return "no: some dense tensors were trained"
    besides = besides_words(summary)
    return f"yes: random weights and masks, {f'plus {besides}' if besides else 'nothing else'}"


def size_words(summary: Summary) -> str:
    """Say how large the file is, and how much of it is masks: only that grows with the network."""
    masks, description = summary.mask_bytes, summary.description_bytes
    dense = summary.file_bytes - masks - description
    bits = f" ({8 * masks / summary.weights:.3f} bits a weight)" if summary.weights and masks else ""
    numbers = f"{dense:,} of dense numbers, " if dense else ""
    return f"{summary.file_bytes:,} bytes: {masks:,} of masks{bits}, {numbers}{description:,} of description"
