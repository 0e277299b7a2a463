r"""A ticket in the place of a model's own matrices.

Attention by merged matrices is attention of heads as wide as the model: query $[x; 1]^\top W_{QK}$, keys and values $x$
itself, output $\sum_j$ of heads times $W_{VO}$. The literal source is attention of heads `items` times wider still. So
the model's own attention code runs either form: only its linear maps, the width of a head and the scale are exchanged.
"""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from strongticket.construct.recertify import check_dense
from strongticket.construct.source import RandomMatrix, check_option
from strongticket.errors import StrongTicketError
from strongticket.ops.ordered import as_divisor, block_sums
from strongticket.pretrained.adapters import Target, What
from strongticket.pretrained.construct import FAMILY, describe, exact_biases
from strongticket.pretrained.parts import parts_of
from strongticket.tickets.build import SignSplitNetwork
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.mask import BlockMask
from strongticket.tickets.ticket import Ticket

Mode = Literal["merged", "literal"]

# Products are added up over so many weights at a time, which stay in the cache of a CPU.
_MULTIPLIED_AT_ONCE = 1 << 17


def attach(model: nn.Module, ticket: Ticket, mode: Mode = "merged") -> nn.Module:
    """Give a model whose attention, and MLPs if the ticket has them, are the pruned random ones.

    Args:
        model: the Hugging Face model the ticket was made for. It stays as it is; all other parameters of the copy
            are in the same memory.
        ticket: from `construct_pretrained` or `strongticket construct`.
        mode: "merged" multiplies the random matrices out, which takes seconds once; "literal" keeps them wide, and
            makes each anew from the seed whenever it is used, so that memory stays small and every call takes long.

    Returns:
        A model of the same class, in evaluation mode.
    """
    check_option("mode", mode, get_args(Mode))
    check_ticket(model, ticket)
    # The same memory in other objects: moving, casting or freezing the copy must not touch the original.
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    shared |= {id(buffer): buffer.detach() for buffer in model.buffers()}
    attached = copy.deepcopy(model, shared)
    try:
        _exchange(Target(attached), ticket, mode)
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        # A file may claim any architecture for any tensors, so whatever goes wrong here is the file's doing.
        raise StrongTicketError(f"the ticket's tensors do not fit the model: {error!r:.200}") from error
    return attached.eval()


def check_ticket(model: nn.Module, ticket: Ticket) -> None:
    """Refuse a ticket that was not made from this model's weights and biases, scaled and cut into heads as it does."""
    family = ticket.architecture.get("family")
    if family != FAMILY or ticket.certificate is None:
        raise StrongTicketError(
            f"a ticket made by `strongticket construct --model` is needed; this one's family is {family!r}."
        )
    recorded: str = ticket.certificate.target_sha256
    what: Any = ticket.architecture.get("what")
    if what not in get_args(What):
        raise StrongTicketError(f"the ticket stands for {what!r:.40}; known are {', '.join(get_args(What))}.")
    target = Target(model)
    digest = digest_of_tensors(target.tensors(what))
    if digest != recorded:
        raise StrongTicketError(
            f"the ticket was made for a {ticket.architecture.get('model_type')} whose weights have SHA-256 {recorded}; "
            f"this {target.model_type} has {digest}, where the attention's scaling counts too. "
            "Give the model it was made from."
        )
    items = ticket.architecture.get("items")
    if type(items) is not int or ticket.architecture != describe(target, what, items):
        raise StrongTicketError(f"the ticket's architecture is not that of this {target.model_type}.")
    parts = parts_of(target, what, items, ticket.seed, "cpu")
    shapes = {matrix.name: matrix.shape for part in parts for matrix in part.matrices()}
    if shapes != {name: tensor.shape for name, tensor in ticket.tensors.items()}:
        raise StrongTicketError(f"the ticket's tensors are not those of a {target.model_type} with {items} items.")
    for name, tensor in ticket.tensors.items():
        # `multiply_out` draws the units' own weights, and only this way.
        if tensor.distribution != "uniform":
            raise StrongTicketError(f"{name} must be drawn uniformly; the ticket says {tensor.distribution!r}.")
    check_dense(ticket, [bias for i, layer in enumerate(target.layers()) for bias in exact_biases(layer, i, what)])


def _exchange(target: Target, ticket: Ticket, mode: Mode) -> None:
    make = _Merged if mode == "merged" else _Literal
    for i in range(target.n_layers):
        source = make(ticket, i, target.module("output", i))
        _exchange_attention(target, i, source)
        if ticket.architecture["what"] == "attention+mlp":
            for name in ("up", "down"):
                _put(target, name, i, source.linear(f"layer.{i}.mlp.{name}"))


def _exchange_attention(target: Target, i: int, source: "_Source") -> None:
    adapter, attention = target.adapter, target.module("attention", i)
    inputs = [source.projection(part) for part in ("query", "key", "value")]
    if adapter.fused:
        _put(target, "query", i, _SideBySide(inputs))
    else:
        for part, module in zip(("query", "key", "value"), inputs, strict=True):
            _put(target, part, i, module)
    _put(target, "output", i, source.projection("output"))
    setattr(attention, adapter.head_size, source.head_size)
    if adapter.all_heads_size:
        setattr(attention, adapter.all_heads_size, source.head_size * source.n_heads)
    attention.scaling = source.scaling  # type: ignore[assignment]


def _put(target: Target, part: str, i: int, module: nn.Module) -> None:
    parent, _, name = getattr(target.adapter, part).format(i=i, before=i - 1).rpartition(".")
    setattr(target.backbone.get_submodule(parent), name, module)


class _Source:
    """The maps of one layer, made from a ticket; `like` says on which device and in which dtype."""

    head_size: int
    scaling: float

    def __init__(self, ticket: Ticket, layer: int, like: nn.Module) -> None:
        weight = like.weight
        assert isinstance(weight, Tensor)
        self.ticket, self.device, self.dtype = ticket, weight.device, weight.dtype
        self.d_model, self.n_heads = ticket.architecture["d_model"], ticket.architecture["n_heads"]
        self.prefix = f"layer.{layer}.attention"

    def names(self, part: str) -> list[str]:
        """Name a part's tensor in each head."""
        return [f"{self.prefix}.head.{j}.{part}" for j in range(self.n_heads)]

    def projection(self, part: str) -> nn.Module:
        """Make the attention's query, key, value or output map."""
        raise NotImplementedError

    def linear(self, name: str) -> nn.Module:
        """Make a map of the MLP."""
        raise NotImplementedError

    def dense(self, name: str) -> Tensor | None:
        """Give an exact bias."""
        tensor = self.ticket.dense.get(name)
        # A copy, or the model could write into the ticket.
        return tensor.value.to(self.device, self.dtype, copy=True) if tensor else None


class _Merged(_Source):
    """The matrices multiplied out, in float64: heads as wide as the model."""

    def __init__(self, ticket: Ticket, layer: int, like: nn.Module) -> None:
        super().__init__(ticket, layer, like)
        self.head_size, self.scaling = self.d_model, 1.0

    def projection(self, part: str) -> nn.Module:
        if part == "query":
            divisor = math.sqrt(self.ticket.architecture["items"] * self.d_model)
            heads = [
                multiply_out(self.ticket, key, query, self.device, divisor=divisor).T
                for query, key in zip(self.names("query"), self.names("key"), strict=True)
            ]
            merged = torch.cat(heads)  # (H d, d or d + 1)
            bias = merged[:, self.d_model] if merged.shape[1] > self.d_model else None
            return self._linear(merged[:, : self.d_model], bias)
        if part == "output":
            heads = [
                multiply_out(self.ticket, value, output, self.device, free_unit_axis=0)
                for value, output in zip(self.names("value"), self.names("output"), strict=True)
            ]
            return self._linear(torch.cat(heads, dim=1), self.dense(f"{self.prefix}.output_bias"))  # (d_out, H d)
        return _Repeated(self.n_heads)

    def linear(self, name: str) -> nn.Module:
        positive, negative = (
            multiply_out(self.ticket, f"{name}.first", f"{name}.second", self.device, own=own).to(self.dtype)
            for own in (lambda u: u.clamp(min=0), lambda u: u.clamp(max=0))
        )
        network = SignSplitNetwork([positive], [negative], [self.dense(f"{name}.bias")])
        return network.requires_grad_(False)

    def _linear(self, weight: Tensor, bias: Tensor | None) -> nn.Module:
        linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
        linear.weight = nn.Parameter(weight.to(self.dtype).contiguous(), requires_grad=False)
        if bias is not None:
            linear.bias = nn.Parameter(bias.to(self.dtype), requires_grad=False)
        return linear


class _Literal(_Source):
    """The wide masked random matrices, each made when it is used."""

    def __init__(self, ticket: Ticket, layer: int, like: nn.Module) -> None:
        super().__init__(ticket, layer, like)
        self.head_size = ticket.architecture["items"] * self.d_model
        self.scaling = 1 / math.sqrt(self.head_size)

    def projection(self, part: str) -> nn.Module:
        if part == "output":
            return _RandomOutput(self.ticket, self.names(part), self.dense(f"{self.prefix}.output_bias"))
        return _RandomHeads(self.ticket, self.names(part))

    def linear(self, name: str) -> nn.Module:
        return _RandomPair(self.ticket, name, self.dense(f"{name}.bias"))


class _Repeated(nn.Module):
    """Every head gets the input itself."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., times d)."""
        return torch.cat([x] * self.times, dim=-1)


class _SideBySide(nn.Module):
    """Several maps of one input, their outputs side by side."""

    def __init__(self, maps: Sequence[nn.Module]) -> None:
        super().__init__()
        self.maps = nn.ModuleList(maps)

    def forward(self, x: Tensor) -> Tensor:
        """Apply each."""
        return torch.cat([linear(x) for linear in self.maps], dim=-1)


class _RandomHeads(nn.Module):
    """x -> the heads' x W, or [x; 1] W where the matrix has a row for a bias."""

    def __init__(self, ticket: Ticket, names: list[str]) -> None:
        super().__init__()
        self.ticket, self.names = ticket, names

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., heads units)."""
        weights, d, heads = self.ticket.materialize(device=x.device), x.shape[-1], []
        for name in self.names:
            weight = weights[name].to(x.dtype)
            head = x @ weight[:d]
            heads.append(head + weight[d] if len(weight) > d else head)
        return torch.cat(heads, dim=-1)


class _RandomOutput(nn.Module):
    """The heads' outputs, each by its matrix, added up."""

    bias: Tensor | None

    def __init__(self, ticket: Ticket, names: list[str], bias: Tensor | None) -> None:
        super().__init__()
        self.ticket, self.names = ticket, names
        # A buffer moves with the model; the ticket keeps it, so a state dict need not.
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., heads units) -> (..., d_out)."""
        weights = self.ticket.materialize(device=x.device)
        heads = x.chunk(len(self.names), dim=-1)
        total = sum(head @ weights[name].to(x.dtype) for name, head in zip(self.names, heads, strict=True))
        assert isinstance(total, Tensor)
        return total if self.bias is None else total + self.bias


class _RandomPair(nn.Module):
    """Two random layers with a ReLU between them, for one linear map."""

    bias: Tensor | None

    def __init__(self, ticket: Ticket, name: str, bias: Tensor | None) -> None:
        super().__init__()
        self.ticket, self.name = ticket, name
        self.register_buffer("bias", bias, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d_in) -> (..., d_out)."""
        weights = self.ticket.materialize(device=x.device)
        hidden = torch.relu(x @ weights[f"{self.name}.first"].to(x.dtype).T)
        out = hidden @ weights[f"{self.name}.second"].to(x.dtype).T
        return out if self.bias is None else out + self.bias


def multiply_out(
    ticket: Ticket,
    blocked: str,
    free: str,
    device: torch.device | str,
    *,
    free_unit_axis: int = 1,
    divisor: float = 1.0,
    own: Callable[[Tensor], Tensor] = lambda u: u,
) -> Tensor:
    """Multiply two masked matrices over their hidden units, of which each has one weight in the blocked matrix.

    Args:
        ticket: has both.
        blocked: the name of the matrix with a block mask.
        free: the name of the other one.
        device: where to work.
        free_unit_axis: the axis of the free matrix that the units lie on.
        divisor: of the product.
        own: applied to the units' own weights first.

    Returns:
        (coordinates of the free matrix, coordinates of the blocked one), float64.
    """
    tensor, mask = ticket.tensors[blocked], ticket.tensors[blocked].mask
    if not isinstance(mask, BlockMask):
        raise ValueError(f"{blocked} needs a block mask; it has one of kind {mask.kind!r}.")
    units, coordinates = mask.shape[mask.unit_axis], mask.shape[1 - mask.unit_axis]
    sizes = (mask.sizes,) * coordinates if isinstance(mask.sizes, int) else mask.sizes
    matrix = RandomMatrix(
        name=blocked, coordinates=coordinates, units=units, unit_axis=mask.unit_axis, scale=tensor.scale
    )
    u = own(matrix.draw_own(sizes, ticket.seed, device)).double()
    c = as_divisor(divisor, u)
    weights = ticket.materialize(device=device)[free]
    rows = (weights if free_unit_axis == 1 else weights.T)[:, : len(u)]
    step = max(1, _MULTIPLIED_AT_ONCE // max(len(u), 1))
    parts = [block_sums(rows[i : i + step].double() * u / c, sizes) for i in range(0, len(rows), step)]
    return torch.cat(parts)
