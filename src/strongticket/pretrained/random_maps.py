r"""A ticket's random matrices as the maps of a model: multiplied out, or wide and regenerated at each use."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from strongticket.construct.plan import Product
from strongticket.construct.slots import grouped
from strongticket.construct.source import owners_in
from strongticket.ops.ordered import as_divisor, block_sums
from strongticket.tickets.ticket import Ticket

# Products are added up over this many weights at a time, which fit in a CPU's cache.
_MULTIPLIED_AT_ONCE = 1 << 17


def multiply_out(ticket: Ticket, product: Product, device: torch.device | str) -> Tensor:
    """Multiply two masked matrices over their hidden units, each of which has one weight in the blocked matrix.

    Returns:
        The matrix they stand for, in float64; with a ReLU between them, [W+ W-] for positive and negative inputs.
    """
    return _added_up(ticket, product, device)[0]


def multiplied_size(ticket: Ticket, product: Product, device: torch.device | str) -> Tensor:
    """Add up the absolute values that `multiply_out` adds up, times their largest number: this bounds its rounding."""
    size, terms = _added_up(ticket, product, device, absolute=True)
    return size * (terms + 2)


def _added_up(
    ticket: Ticket, product: Product, device: torch.device | str, *, absolute: bool = False
) -> tuple[Tensor, int]:
    """Return the products added up, or their absolute values, and the largest number of terms."""
    blocked, free = product.blocked, product.free
    tensor = ticket.tensors[blocked.name]
    owners = owners_in(tensor.mask, blocked.unit_axis)
    if owners is None:
        raise ValueError(
            f"{blocked.name} needs a mask with one coordinate per unit; its mask is of kind {tensor.mask.kind!r}."
        )
    order, sizes = grouped(owners, blocked.coordinates)
    u = replace(blocked, scale=tensor.scale).draw_own(owners, ticket.seed, device).double()[order.to(device)]
    c = as_divisor(product.divisor, u)
    weights = ticket.materialize(device=device)[free.name]
    rows, order = weights if free.unit_axis == 1 else weights.T, order.to(device)
    both = [u.clamp(min=0), u.clamp(max=0)] if product.relu else [u]
    if absolute:
        both = [half.abs() for half in both]
    step, parts = max(1, _MULTIPLIED_AT_ONCE // max(len(u), 1)), []
    for start in range(0, len(rows), step):
        some = rows[start : start + step, order].double()
        some = some.abs_() if absolute else some
        parts.append(torch.cat([block_sums(some * own / c, sizes) for own in both], dim=1))
    merged = torch.cat(parts)
    return (merged.T if product.transposed else merged), max(sizes, default=0)


class BySigns(nn.Linear):
    """A map [W+ W-] with separate matrices for positive and negative inputs."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        return super().forward(torch.cat([x.clamp(min=0), x.clamp(max=0)], dim=-1))


def frozen_linear(weight: Tensor, bias: Tensor | None, like: Tensor, kind: type[nn.Linear] = nn.Linear) -> nn.Linear:
    """Make a linear map from given numbers, in the dtype of `like`."""
    linear = kind(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.to(like.dtype).contiguous(), requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias.to(like.dtype), requires_grad=False)
    return linear


def frozen_like(module: nn.Module, weight: Tensor, bias: Tensor | None) -> nn.Module:
    """Make a linear map in place of another, so that the model's class can load it: GPT-2's Conv1D keeps (in, out)."""
    linear = frozen_linear(weight, bias, weight_of(module))
    if isinstance(module, nn.Linear):
        return linear
    with torch.device("meta"):
        made: nn.Module = type(module)(*weight.shape)
    made.weight = nn.Parameter(linear.weight.T.contiguous(), requires_grad=False)
    made.bias = linear.bias
    return made


def weight_of(module: nn.Module) -> Tensor:
    """Return a map's own weight, which sets the device and dtype of its replacement."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight


def exact_bias(ticket: Ticket, name: str, like: Tensor) -> Tensor | None:
    """Return a bias that the ticket keeps, on the device and in the dtype of `like`."""
    tensor = ticket.dense.get(name)
    # A copy, or the model could write into the ticket.
    return tensor.value.to(like.device, like.dtype, copy=True) if tensor else None


class SideBySide(nn.Module):
    """Several maps of one input, with their outputs concatenated."""

    def __init__(self, maps: Sequence[nn.Module]) -> None:
        super().__init__()
        self.maps = nn.ModuleList(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Apply each map and concatenate."""
        return torch.cat([linear(x) for linear in self.maps], dim=-1)


class RandomMaps(nn.Module):
    """Wide masked random matrices of a ticket, each regenerated when used, and an exact bias."""

    bias: Tensor | None

    def __init__(self, ticket: Ticket, names: Sequence[str], bias: Tensor | None = None) -> None:
        super().__init__()
        self.ticket, self.names = ticket, names
        # A buffer moves with the model; the ticket stores it, so a state dict need not.
        self.register_buffer("bias", bias, persistent=False)

    def weight(self, name: str, like: Tensor) -> Tensor:
        """Make one of the matrices."""
        return self.ticket.materialize(device=like.device)[name].to(like.dtype)

    def with_bias(self, y: Tensor) -> Tensor:
        """Add the bias, if there is one."""
        return y if self.bias is None else y + self.bias


class RandomHeads(RandomMaps):
    """x -> x W for each head, or [x; 1] W where the matrix has a row for a bias."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., heads units)."""
        d, heads = x.shape[-1], []
        for name in self.names:
            weight = self.weight(name, x)
            head = x @ weight[:d]
            heads.append(head + weight[d] if len(weight) > d else head)
        return torch.cat(heads, dim=-1)


class RandomOutput(RandomMaps):
    """The sum of the heads' outputs, each times its matrix."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., heads units) -> (..., d_out)."""
        heads = x.chunk(len(self.names), dim=-1)
        total = sum(head @ self.weight(name, x) for name, head in zip(self.names, heads, strict=True))
        assert isinstance(total, Tensor)
        return self.with_bias(total)


class RandomPair(RandomMaps):
    """Two random layers for one linear map, with or without a ReLU between them."""

    def __init__(self, ticket: Ticket, names: Sequence[str], bias: Tensor | None, *, relu: bool) -> None:
        super().__init__(ticket, names, bias)
        self.relu = relu

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        first, second = self.names
        hidden = x @ self.weight(first, x).T
        return self.with_bias((torch.relu(hidden) if self.relu else hidden) @ self.weight(second, x).T)
