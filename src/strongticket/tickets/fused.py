"""A parameter that holds several tensors: query, key and value side by side, or a stack of experts."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from strongticket.files import Json

Role = Literal["query", "key", "value", "output", "gate", "up", "down"]

_THIRDS = ("query", "key", "value")
_PART = re.compile(r"[a-z]*")
_MOST_PARTS = 8


@dataclass(frozen=True, slots=True)
class Cut:
    """How a parameter is split.

    Args:
        axis: of a matrix, 0 or 1, along which it is split.
        parts: name and width of each part, in order; a part without a name is the only one.
        blocks: how often that order is repeated. A part is gathered from all blocks, for instance from all heads if
            each has its query, key and value side by side.
        stack: the number of matrices stacked along a leading axis; 0 for a plain matrix.

    Example:
        >>> cut = Cut(0, (("query", 1), ("value", 1)), blocks=2)
        >>> {name: cut.of(torch.tensor([[1], [2], [3], [4]]), name).tolist() for name in cut.names()}
        {'query': [[1], [3]], 'value': [[2], [4]]}
    """

    axis: int
    parts: tuple[tuple[str, int], ...]
    blocks: int = 1
    stack: int = 0

    def names(self) -> Iterator[str]:
        """Yield the names of the tensors, to append to their parameter's; matrices of a stack are numbered."""
        for prefix in [str(i) for i in range(self.stack)] or [""]:
            yield from (".".join(filter(None, (prefix, part))) for part, _ in self.parts)

    def of(self, parameter: Tensor, name: str) -> Tensor:
        """Return a tensor: a view, or a copy if it consists of several blocks."""
        return self._view(parameter, name).flatten(self.axis, self.axis + 1)

    def put(self, parameter: Tensor, name: str, value: Tensor) -> None:
        """Write a tensor to its place."""
        self._view(parameter, name).copy_(self._in_blocks(value))

    def joined(self, tensors: Sequence[Tensor]) -> Tensor:
        """Join all tensors, in the order of `names`."""
        blocks = [self._in_blocks(tensor) for tensor in tensors]
        matrices = [
            torch.cat(blocks[i : i + len(self.parts)], dim=self.axis + 1).flatten(self.axis, self.axis + 1)
            for i in range(0, len(blocks), len(self.parts))
        ]
        return torch.stack(matrices) if self.stack else matrices[0]

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether a parameter of this shape can be split like this."""
        dimensions = 3 if self.stack else 2
        return (
            len(shape) == dimensions
            and self.blocks > 0
            and (not self.stack or shape[0] == self.stack)
            and shape[self.axis - 2] == self.blocks * sum(width for _, width in self.parts)
        )

    def _view(self, parameter: Tensor, name: str) -> Tensor:
        prefix, _, part = name.rpartition(".")
        if self.stack:
            prefix, part = (prefix, part) if prefix else (part, "")
            parameter = parameter[int(prefix)]
        names, widths = zip(*self.parts, strict=True)
        place = names.index(part)
        return self._in_blocks(parameter).narrow(self.axis + 1, sum(widths[:place]), widths[place])

    def _in_blocks(self, matrix: Tensor) -> Tensor:
        """Give the blocks their own axis."""
        shape = matrix.shape
        return matrix.view(*shape[: self.axis], self.blocks, shape[self.axis] // self.blocks, *shape[self.axis + 1 :])

    def to_json(self) -> int | dict[str, object]:
        """Return its JSON for a ticket; for equal query, key and value only the axis, as in the first release."""
        names, widths = zip(*self.parts, strict=True)
        if names == _THIRDS and len({*widths}) == 1 and self.blocks == 1 and not self.stack:
            return self.axis
        return {
            "axis": self.axis,
            "blocks": self.blocks,
            "stack": self.stack,
            "parts": [[*part] for part in self.parts],
        }

    @classmethod
    def from_json(cls, found: Json, shape: Sequence[int]) -> "Cut":
        """Read and check it for a parameter of this shape."""
        if type(found) is int and found in (0, 1):
            width = shape[found] // len(_THIRDS) if len(shape) == 2 else 0
            cut = cls(found, tuple((name, width) for name in _THIRDS))
        elif _is_a_cut(found):
            parts = tuple((name, width) for name, width in found["parts"])
            cut = cls(found["axis"], parts, found["blocks"], found["stack"])
        else:
            raise ValueError(f"`fused` must be an axis or a cut with axis, blocks, stack and parts; got {found!r:.80}")
        if not cut.fits(shape):
            held = " and ".join(filter(None, (name for name, _ in cut.parts))) or f"{cut.stack} matrices"
            raise ValueError(f"a tensor {tuple(shape)} does not hold {held} as the ticket says")
        return cut


def _is_a_cut(found: object) -> bool:
    if not isinstance(found, dict) or found.keys() != {"axis", "blocks", "stack", "parts"}:
        return False
    axis, blocks, stack, parts = (found[key] for key in ("axis", "blocks", "stack", "parts"))
    if any(type(number) is not int for number in (axis, blocks, stack)) or not isinstance(parts, list):
        return False
    if axis not in (0, 1) or blocks < 1 or stack < 0 or not 1 <= len(parts) <= _MOST_PARTS:
        return False
    if not all(isinstance(part, list) and len(part) == 2 and type(part[1]) is int and part[1] > 0 for part in parts):
        return False
    names = [name for name, _ in parts]
    if not all(isinstance(name, str) and _PART.fullmatch(name) for name in names) or len({*names}) < len(names):
        return False
    # Only a matrix of a stack may lack a part's name.
    return "" not in names or (len(names) == 1 and stack > 0)
