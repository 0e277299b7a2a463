"""Build a network that runs from a ticket's bits: signed constants in bit planes, without a float per weight."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.models.gpt2 import GPT2, Embedding, Linear
from strongticket.models.gpt2_layers import LayeredGPT2
from strongticket.models.signed import (
    Matrix,
    SignedConv,
    SignedEmbedding,
    SignedLinear,
    SignedMatrix,
    SignedSum,
    stacked,
)
from strongticket.ops.planes import LANES, MOST_LEVELS, Planes, pack, stack
from strongticket.ops.rng import random_chunk, stream_of
from strongticket.tickets.codes import CodeMask
from strongticket.tickets.content import Content
from strongticket.tickets.fused import Cut
from strongticket.tickets.mask import PackedMask
from strongticket.tickets.restore import check_fit, fill, stored_buffers
from strongticket.tickets.table import Table, draws_of
from strongticket.tickets.tensors import RandomTensor, spread

Run = Literal["dense", "bits"]
Resident = Literal["planes", "mask"]

SIGNED = ("sign", "packed-sign")
_AT_ONCE = 1 << 20  # weights packed at a time
_NARROWEST = 16  # columns that share a scale along both axes; for fewer, floats are smaller


def runs_from_bits(ticket: Content) -> bool:
    """Whether all random tensors are signed constants."""
    return all(tensor.distribution in SIGNED for tensor in ticket.tensors.values())


def check_signed(ticket: Content) -> None:
    """Refuse a ticket with random tensors that are not signed constants."""
    for tensor in ticket.tensors.values():
        if tensor.distribution not in SIGNED:
            raise StrongTicketError(
                f"only signed constants run from bits; {tensor.name} has {tensor.distribution} weights. "
                "Search with --init sign (Policy(init='sign')), or run this ticket dense."
            )


def check_resident(run: Run, resident: Resident) -> None:
    """Refuse an option of `run="bits"` without it.

    Example:
        >>> check_resident("dense", "mask")
        Traceback (most recent call last):
            ...
        ValueError: resident='mask' needs run='bits'; got run='dense', which keeps every weight as a float.
    """
    if run != "bits" and resident != "planes":
        raise ValueError(f"{resident=} needs run='bits'; got {run=}, which keeps every weight as a float.")


@torch.no_grad()
def load_bits(
    model: nn.Module, ticket: Content, *, device: torch.device | str | None = None, resident: Resident = "planes"
) -> nn.Module:
    """Replace the layers of a module by signed ones that hold a ticket's bits.

    Linear layers, embeddings, heads tied to them and convolutions of one group are replaced. Random tensors elsewhere,
    and all dense ones, become floats.

    Args:
        model: as created for the search; changed in place. On meta its weights never take memory.
        ticket: of signed constants.
        device: where to place it; by default where the module is, or the CPU.
        resident: "planes" keeps signs, in two bits per weight; "mask" keeps one bit, and redraws signs from the seed
            when needed, if they are a packed stream.

    Returns:
        The network, without gradients: the module itself, or its replacement.
    """
    check_signed(ticket)
    check_fit(model, ticket)
    place = torch.device(device) if device is not None else _place_of(model)
    exchanges = dict(_exchanges(model, ticket, resident))
    kept = {id(layer._parameters["weight"]) for layer, _ in exchanges.values()}
    _allocate(model, kept, place)
    fill(model, ticket, besides={name for _, parts in exchanges.values() for name in parts})
    layers: dict[int, nn.Module] = {}  # a layer may have several places
    for path, (layer, parts) in exchanges.items():
        signed = layers.setdefault(id(layer), _signed(layer, list(parts.values())))
        if not path:
            model = signed
        else:
            parent, _, child = path.rpartition(".")
            setattr(model.get_submodule(parent), child, signed)
    if type(model) is GPT2:
        model = LayeredGPT2(model)
    return model.to(place).requires_grad_(False)


def _place_of(model: nn.Module) -> torch.device:
    place = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    return torch.device("cpu") if place.type == "meta" else place


def _allocate(model: nn.Module, besides: set[int], device: torch.device) -> None:
    """Allocate memory for tensors on meta, except weights that become bits."""
    stored = {id(buffer) for _, buffer in stored_buffers(model)}
    own = {
        id(parameter): nn.Parameter(torch.empty_like(parameter, device=device))
        for parameter in model.parameters()  # tied ones once
        if parameter.is_meta and id(parameter) not in besides
    }
    for module in model.modules():
        for name, parameter in module._parameters.items():
            module._parameters[name] = own.get(id(parameter), parameter)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.is_meta:
                if id(buffer) not in stored:
                    raise ValueError(f"the module has no memory for its {name}; create it on cpu or cuda, not on meta.")
                module._buffers[name] = torch.empty_like(buffer, device=device)


Exchange = tuple[nn.Module, dict[str, Matrix]]  # a layer, and the matrices of its weight by name


def _exchanges(model: nn.Module, ticket: Content, resident: Resident) -> Iterator[tuple[str, Exchange]]:
    """Yield the layers whose weights can be planes, at each of their paths."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    fused = ticket.architecture.get("fused", {})
    # A tied weight stays if one of its places cannot be replaced.
    needed = {
        id(parameter)
        for module in model.modules()
        for name, parameter in module._parameters.items()
        if name != "weight" or not _exchangeable(module)
    }
    made: dict[int, dict[str, Matrix]] = {}  # of each weight; tied ones share theirs
    for path, layer in model.named_modules(remove_duplicate=False):
        weight, axis = layer._parameters.get("weight"), int(_keeps_inputs_first(layer))
        if weight is None or id(weight) in needed:
            continue
        if (name := names[id(weight)]) in fused:
            cut = Cut.from_json(fused[name], weight.shape)
            side_by_side = (cut.axis, cut.blocks, cut.stack) == (axis, 1, 0)
            parts = [f"{name}.{part}" for part in cut.names()] if side_by_side else []
        else:
            parts = [name] if name in ticket.tensors else []
        if id(weight) not in made and parts:
            found = {part: _matrix(ticket, ticket.tensors[part], axis, resident) for part in parts}
            made[id(weight)] = {part: matrix for part, matrix in found.items() if matrix is not None}
        if parts and len(made[id(weight)]) == len(parts):
            yield path, (layer, made[id(weight)])


def _exchangeable(layer: nn.Module) -> bool:
    # By the exact class: a subclass may use its weight differently.
    if type(layer) in (nn.Embedding, Embedding):
        return cast(nn.Embedding, layer).max_norm is None  # which would write to the table
    if type(layer) in (nn.Conv1d, nn.Conv2d):
        return cast(nn.Conv2d, layer).groups == 1
    return type(layer) in (nn.Linear, Linear) or _keeps_inputs_first(layer)


def _keeps_inputs_first(layer: nn.Module) -> bool:
    """Whether a weight is (in, out), as in Hugging Face's Conv1D."""
    return type(layer).__name__ == "Conv1D" and isinstance(getattr(layer, "nf", None), int)


def _signed(layer: Any, matrices: list[Matrix]) -> nn.Module:
    if isinstance(layer, nn.Embedding):
        return SignedEmbedding(matrices[0])
    if isinstance(layer, nn.Conv1d | nn.Conv2d):
        return SignedConv(matrices[0], layer)
    return SignedLinear(stacked(matrices) if len(matrices) > 1 else matrices[0], layer.bias)


# --- One tensor ------------------------------------------------------------------------------------------------------


def _matrix(ticket: Content, tensor: RandomTensor, axis: int, resident: Resident) -> Matrix | None:
    """Make the matrix of a tensor with its rows along an axis; None if its scales are too fine for planes."""
    if not tensor.numel:
        return None
    drawn = _Drawn(ticket.seed, tensor, transposed=axis == 1)
    columns = drawn.shape[1]
    scales = ticket.scales.get(tensor.name)
    each = torch.ones(1, 1) if scales is None else _over_matrix(scales, tensor.shape, axis)
    width = columns
    if scales is not None and min(each.shape) > 1:
        width = -(-columns // scales.shape[1 - axis]) if scales.dim() == 2 else 1
        if width < _NARROWEST:
            return None
    parts = []
    for start in range(0, columns, width):
        here = each[:, start : start + width] if each.shape[1] > 1 else each
        if width < columns:
            here = here[:, :1]  # these columns are all equal
        factor = float(here) if here.numel() == 1 else 1.0
        by_row = here[:, 0].clone() if here.shape[0] > 1 else None
        by_column = here[0].clone() if here.shape[1] > 1 else None
        for unit, levels in _in_units(tensor.mask.table):
            planes = drawn.planes(np.array(levels, np.int8), slice(start, start + width), resident)
            parts.append((start, SignedMatrix(planes, tensor.scale * unit * factor, by_row, by_column)))
    return parts[0][1] if len(parts) == 1 else SignedSum(parts, columns)


def _over_matrix(scales: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
    """Arrange scales for the matrix with its rows along an axis of a tensor: one or all of them each way."""
    full = spread(scales, shape)
    if full[0].numel() > 1:
        full = full.expand(len(full), *shape[1:])
    return full.flatten(1) if axis == 0 else full.T


def _in_units(table: Table) -> Iterator[tuple[float, list[int]]]:
    """Yield coefficients as multiples of a unit, -15 to 15; if no unit fits all, each magnitude separately."""
    sizes = sorted({abs(coefficient) for coefficient, _ in table if coefficient}) or [1.0]
    for divisor in range(1, MOST_LEVELS + 1):
        unit = sizes[0] / divisor
        levels = [round(coefficient / unit) for coefficient, _ in table]
        exact = all(np.float32(level * unit) == c for level, (c, _) in zip(levels, table, strict=True))
        if exact and max(map(abs, levels)) <= MOST_LEVELS:
            yield unit, levels
            return
    for size in sizes:
        yield size, [int(c == size) - int(c == -size) for c, _ in table]


@dataclass(slots=True)
class _Drawn:
    """A random tensor as a matrix of whole numbers, generated a few rows at a time."""

    seed: int
    tensor: RandomTensor
    transposed: bool
    _codes: npt.NDArray[np.uint8] | None = None  # of all weights, if a mask can only return them together

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        first = self.tensor.shape[0]
        rest = self.tensor.numel // first
        return (rest, first) if self.transposed else (first, rest)

    def planes(self, levels: npt.NDArray[np.int8], columns: slice, resident: Resident) -> Planes:
        """Pack some columns; `levels` has the number of each code."""
        rows, width = self.shape
        mine = self.tensor.distribution == "packed-sign" and draws_of(self.tensor.mask.table) == (0,)
        plain = not self.transposed and columns.stop - columns.start >= width and int(levels.min()) >= 0
        signs = stream_of(self.seed, self.tensor.name) if resident == "mask" and mine and plain else None
        if self.transposed:
            return pack(self._numbers(levels, 0, self.tensor.numel).view(width, rows).T[:, columns].contiguous())
        step = max(1, _AT_ONCE // width // LANES) * LANES
        blocks = []
        for start in range(0, rows, step):
            numbers = self._numbers(levels, start * width, min(start + step, rows) * width, signed=signs is None)
            blocks.append(pack(numbers.view(-1, width)[:, columns].contiguous(), signs))
        return stack(blocks)

    def _numbers(self, levels: npt.NDArray[np.int8], begin: int, end: int, *, signed: bool = True) -> Tensor:
        """Return weights `begin` to `end` as whole numbers, or their magnitudes."""
        codes = self._codes_of(begin, end)
        numbers = levels[codes]
        how = self.tensor.name, begin, end, self.tensor.distribution
        draws = np.array([draw for _, draw in self.tensor.mask.table])
        for draw in draws_of(self.tensor.mask.table) if signed else ():
            negative = random_chunk(self.seed, *how, draw=draw).numpy() < 0
            np.negative(numbers, out=numbers, where=negative & (draws == draw)[codes])
        return torch.from_numpy(numbers)

    def _codes_of(self, begin: int, end: int) -> npt.NDArray[np.uint8]:
        mask = self.tensor.mask
        if isinstance(mask, PackedMask) or (isinstance(mask, CodeMask) and mask.frozen is None):
            return mask.symbols.unpack(begin, end).astype(np.uint8, copy=False)
        if self._codes is None:
            codes = mask.codes() if isinstance(mask, CodeMask) else mask.to_bool()
            self._codes = codes.view(-1).to(torch.uint8).numpy()
        return self._codes[begin:end]
