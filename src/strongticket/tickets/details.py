"""The parts of a certificate's bound, as our constructions write them; a file from elsewhere may hold anything."""

from typing import NotRequired, TypedDict


class HeadDetails(TypedDict):
    """Norms of a head's merged matrices and of their errors."""

    qk_error: float
    qk_norm: float
    query_bias_error: float
    vo_error: float
    vo_norm: float


class LayerDetails(TypedDict):
    """Norms of a linear map and of its error."""

    norm: float
    error_norm: float


class BlockDetails(TypedDict):
    """The bound after a transformer's block; None if it overflows."""

    error: float | None
    norm: float | None
    heads: list[HeadDetails]
    layers: list[LayerDetails]


class PartNorms(TypedDict):
    """Norms of a part of a pretrained model: an attention's or a linear map's."""

    heads: NotRequired[list[HeadDetails]]
    norm: NotRequired[float]


class PartDetails(PartNorms):
    """A part of a pretrained model: its bound, and how far off its entries are."""

    part: str
    input_norm: float
    error: float
    worst_entry: float
    worst_reached: float
    unreachable: int


class MissedEntry(TypedDict):
    """An entry that no subset reaches."""

    matrix: str
    row: int
    column: int
    missed: float


class Unreachable(TypedDict):
    """How many entries no subset reaches, and the worst of them."""

    count: int
    worst: list[MissedEntry]


class Assigned(TypedDict):
    """How many products have adaptive units, and which kept equal blocks."""

    adaptive: int
    equal: list[str]


class Details(TypedDict, total=False):
    """All of them; each family of networks has its own."""

    error_norm: float
    layers: list[LayerDetails]
    heads: list[HeadDetails]
    blocks: list[BlockDetails]
    paper_error: float | None  # None if it overflows
    scope: str
    parts: list[PartDetails]
    assignment: Assigned
    unreachable: Unreachable
