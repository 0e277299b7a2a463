r"""Masks that do more than keep and drop: signs, levels, scales, redrawn weights, and parts fixed by the seed.

A search rule returns a code for each weight and a table of the codes; `coded_mask` turns them into a mask. Its weights
are `weights_under(mask, draw)`, where `draw(k)` returns draw k of the tensor:

    >>> codes, table = torch.tensor([0, 1, 2, 1]), ((0.0, 0), (1.0, 0), (-0.5, 1))
    >>> mask = coded_mask(codes, table)
    >>> weights_under(mask, lambda k: torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])[k]).tolist()
    [0.0, 2.0, -3.5, 4.0]
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from strongticket.checks import as_real, as_seed, as_sizes
from strongticket.ops.arrays import Array, as_tensor
from strongticket.ops.rng import random_chunk, stream_of
from strongticket.tickets.mask import FullMask, Mask, PackedMask
from strongticket.tickets.symbols import Symbols
from strongticket.tickets.table import KEEP_OR_DROP, Table, as_table, draws_of

FREE = -1
_STREAM = "frozen"
_DRAWN_AT_ONCE = 1 << 20
# So that a small file cannot demand a map of any size.
_MOST_FROZEN = 255 / 256


@dataclass(frozen=True, slots=True)
class Frozen:
    """Weights whose codes a seed fixes, so that no file needs to store them (Otsuka et al., 2025).

    Args:
        seed: of the map, 0 to 2^64 - 1. Tensors of one network need different seeds; `Frozen.of` provides them.
        shares: for each code of the table, the fraction of the tensor frozen at it; at most 255/256 in total.

    Example:
        >>> Frozen(seed=7, shares=(0.4, 0.3)).codes(9).tolist()
        [1, 0, 1, -1, 1, -1, 0, -1, 1]
    """

    seed: int
    shares: tuple[float, ...]

    @classmethod
    def of(cls, seed: int, name: str, shares: tuple[float, ...]) -> "Frozen":
        """Freeze parts of one tensor of a network: its name and the network's seed determine the map's seed."""
        stream = stream_of(seed, f"{name}.frozen")
        return cls(stream.key0 | stream.key1 << 32, shares)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seed", as_seed(self.seed))
        shares = tuple(map(as_real, self.shares))
        total = [0.0, *accumulate(shares)][-1]  # one after another, unlike sum() in newer Pythons
        if not (all(share >= 0 for share in shares) and 0 < total <= _MOST_FROZEN):
            raise ValueError(
                f"frozen shares must be at least 0, and their sum above 0 and at most 255/256; got {self.shares!s:.80}."
            )
        object.__setattr__(self, "shares", tuple(share or 0.0 for share in shares))

    def codes(self, numel: int, device: torch.device | str | None = None) -> Tensor:
        """Return the code of each weight, int8; -1 for free weights."""
        found = torch.empty(numel, dtype=torch.int8, device=device or "cpu")
        edges = torch.tensor(self._edges(), dtype=torch.float64, device=found.device)
        for start in range(0, numel, _DRAWN_AT_ONCE):
            uniform = random_chunk(self.seed, _STREAM, start, min(start + _DRAWN_AT_ONCE, numel), device=device)
            codes = torch.bucketize(uniform.double(), edges, right=True).to(torch.int8)
            found[start : start + _DRAWN_AT_ONCE] = torch.where(codes < len(edges), codes, FREE)
        return found

    def free(self, numel: int) -> int:
        """Count the free weights."""
        return self.counts(numel)[-1]

    def counts(self, numel: int) -> tuple[int, ...]:
        """Count the weights frozen at each code and, last, the free ones."""
        return _counts(self, numel)

    def _edges(self) -> list[float]:
        """Return where the codes end on [-1, 1], one after another."""
        return [2 * total - 1 for total in accumulate(self.shares)]


@lru_cache(maxsize=64)
def _counts(frozen: Frozen, numel: int) -> tuple[int, ...]:
    # Counted where they are drawn, never stored: a reader does this for every file.
    from strongticket.ops.philox import cpu

    below = cpu.count_below(numel, stream_of(frozen.seed, _STREAM), np.array(frozen._edges()))
    return tuple(np.diff(below, prepend=0, append=numel).tolist())


@dataclass(frozen=True, slots=True)
class CodeMask:
    """One of up to 16 codes for each weight, and a table of their meanings; `coded_mask` makes one.

    Args:
        shape: the tensor's shape.
        table: (coefficient, draw) of each code, all different; coefficients as float32, 0 with draw 0.
        symbols: the codes of the free weights, in the tensor's order.
        frozen: the weights that are not free.
    """

    kind: ClassVar[str] = "codes"
    shape: tuple[int, ...]
    table: Table
    symbols: Symbols
    frozen: Frozen | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_sizes("a shape", self.shape))
        object.__setattr__(self, "table", as_table(self.table))
        codes, frozen = len(self.table), self.frozen
        if len(set(self.table)) < codes:
            raise ValueError(f"the codes of a table must differ; got {self.table!s:.80}.")
        if self.table == KEEP_OR_DROP and not frozen:
            raise ValueError("a mask that only keeps or drops must be a PackedMask.")
        if frozen and len(frozen.shares) != codes:
            raise ValueError(f"{codes} codes need {codes} frozen shares; got {len(frozen.shares)}.")
        free = frozen.free(math.prod(self.shape)) if frozen else math.prod(self.shape)
        if (self.symbols.alphabet, self.symbols.count) != (codes, free):
            raise ValueError(
                f"a mask of {free} free weights and {codes} codes needs {free} symbols below {codes}; "
                f"got {self.symbols.count} below {self.symbols.alphabet}."
            )

    def rule(self) -> dict[str, object]:
        """Return the table and the frozen parts."""
        frozen = {"seed": self.frozen.seed, "shares": list(self.frozen.shares)} if self.frozen else None
        return {"frozen": frozen, "table": [list(entry) for entry in self.table]}

    def count(self) -> int:
        """Count the weights whose coefficient is not 0."""
        counts = self.symbols.counts()
        if self.frozen:
            counts += self.frozen.counts(math.prod(self.shape))[:-1]
        return sum(int(number) for number, (coefficient, _) in zip(counts, self.table, strict=True) if coefficient)

    def codes(self, device: torch.device | str | None = None) -> Tensor:
        """Return the code of each weight, uint8, in the tensor's shape."""
        free = torch.tensor(self.symbols.unpack(), device=device or "cpu")
        if self.frozen:
            codes = self.frozen.codes(math.prod(self.shape), device)
            codes[codes == FREE] = free.to(torch.int8)
            free = codes.to(torch.uint8)
        return free.view(self.shape)

    def to_bool(self, device: torch.device | str | None = None) -> Tensor:
        """Return which weights have a nonzero coefficient."""
        kept = torch.tensor([coefficient != 0 for coefficient, _ in self.table], device=device or "cpu")
        return kept[self.codes(device).int()]


def coded_mask(codes: Array, table: Table, frozen: Frozen | None = None) -> PackedMask | CodeMask:
    """Make a mask from codes and their table, and the frozen part by which a rule fixed some of them.

    Args:
        codes: of each weight, shaped like the tensor: whole numbers or bool, on any device.
        table: (coefficient, draw) of each code, at most 16. Coefficients are rounded to float32; they are 0 or of
            magnitude 2^-24 to 2^24. Codes with equal meanings are merged.
        frozen: the weights that are not stored, since `frozen` determines their codes.
    """
    codes = as_tensor("codes", codes, torch.int64)
    entries, shape = as_table(table), tuple(codes.shape)
    _check_codes(codes, len(entries))
    if entries == KEEP_OR_DROP and frozen is None:
        return PackedMask.from_bool(codes.bool())
    flat = codes.detach().to(torch.uint8).cpu().numpy().reshape(-1)
    if frozen is not None:
        fixed = frozen.codes(flat.size).numpy()
        if (flat != fixed)[fixed != FREE].any():
            raise ValueError("a frozen weight's code differs from the one its seed gives.")
        return CodeMask(shape, entries, Symbols.pack(flat[fixed == FREE], len(entries)), frozen)
    distinct = tuple(dict.fromkeys(entries))
    symbols = Symbols.pack(np.array([distinct.index(entry) for entry in entries], np.uint8)[flat], len(distinct))
    return PackedMask(shape, symbols.packed) if distinct == KEEP_OR_DROP else CodeMask(shape, distinct, symbols)


def weights_under(mask: Mask, draw: Callable[[int], Tensor]) -> Tensor:
    """Return the weights of a mask: coefficient times draw, one float32 product each, and +0 where that is 0.

    Args:
        mask: of any kind.
        draw: returns draw k of the tensor's weights, float32, a new tensor at each call.
    """
    if isinstance(mask, FullMask):
        return draw(0)
    if not isinstance(mask, CodeMask):
        weights = draw(0)
        return weights.masked_fill_(~mask.to_bool(weights.device), 0.0)
    first, *others = draws_of(mask.table)
    drawn = draw(first)
    codes, weights = mask.codes(drawn.device).int(), torch.zeros_like(drawn)
    for number in (first, *others):
        drawn = drawn if number == first else draw(number)
        factors = [coefficient if k == number else 0.0 for coefficient, k in mask.table]
        factor = torch.tensor(factors, dtype=torch.float32, device=drawn.device)[codes]
        weights = torch.where(factor != 0, drawn.mul_(factor), weights)
    return weights


def _check_codes(codes: Tensor, count: int) -> None:
    if codes.is_floating_point() or codes.is_complex():
        raise ValueError(f"codes must be whole numbers; got {codes.dtype}.")
    whole = codes.to(torch.uint8) if codes.dtype == torch.bool else codes
    least, most = (int(end) for end in whole.aminmax()) if codes.numel() else (0, 0)
    if not 0 <= least <= most < count:
        raise ValueError(f"codes must be below {count}, the length of their table; got {least} to {most}.")
