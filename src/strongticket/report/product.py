"""The masked product of a ticket of two random matrices, if it is small enough to draw."""

from torch import Tensor

from strongticket.charts.parts import Matrix, Table, number
from strongticket.tickets.ticket import Ticket

LARGEST_SIDE = 64  # of a product, in entries: each is a cell of the picture and of the table
MOST_WEIGHTS = 2**20  # of both matrices
_BY_HAND = " Made by hand, not by construct_linear, so it has no certificate."


def draw_product(ticket: Ticket) -> Matrix | None:
    """Draw what a ticket of the linear family computes; None for any other, or if it is too large."""
    product = product_of(ticket)
    if product is None:
        return None
    d_out, d_in = product.shape
    rows = [(str(i + 1), *(number(value) for value in row)) for i, row in enumerate(product.tolist())]
    return Matrix(
        title="Two pruned random matrices multiply to this",
        caption=f"The product of the two masked matrices, {d_out} × {d_in}. Each entry is a sum of the products of "
        f"random weights that the masks keep. Bluer cells are larger.{'' if ticket.certificate else _BY_HAND}",
        values=[[float(f"{value:.4g}") for value in row] for row in product.tolist()],
        tables=(Table(caption="Entries", columns=("", *map(str, range(1, d_in + 1))), rows=rows, words=0),),
    )


def product_of(ticket: Ticket) -> Tensor | None:
    """Multiply `second` (d_out, n) and `first` (n, d_in) after masking, in float64.

    Returns:
        The product (d_out, d_in), or None if the ticket is of another kind or too large.

    Example:
        >>> import torch
        >>> from strongticket import construct_linear
        >>> target = torch.tensor([[0.25, -0.5], [0.5, 0.0]])
        >>> product = product_of(construct_linear(target, hidden_width=48))
        >>> bool((product - target).abs().max() < 1e-4)
        True
    """
    if ticket.architecture.get("family") != "linear" or set(ticket.tensors) != {"first", "second"}:
        return None
    first, second = ticket.tensors["first"].shape, ticket.tensors["second"].shape
    if len(first) != 2 or len(second) != 2 or first[0] != second[1] or ticket.numel > MOST_WEIGHTS:
        return None
    if not 2 <= min(second[0], first[1]) <= max(second[0], first[1]) <= LARGEST_SIDE:
        return None
    weights = ticket.materialize()
    return weights["second"].double() @ weights["first"].double()
