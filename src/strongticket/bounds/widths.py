r"""The common part of all a-priori bounds: sums of $n'$ random items come within $e = \exp(-n'/C)$ of their target.

All theorems rest on this corollary of Lueker (1998), which holds for one sum with probability at least $1 - e$. A
theorem adds how many sums there are, into how many blocks a width is divided, and which $e$ its error $\varepsilon$
requires: the scale in $n \ge d_1 C \log($scale$/\varepsilon)$. Scales are kept as logarithms, because that of a deep
transformer does not fit into a float.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strongticket.bounds.checks import check_counts, check_positive

# C is not known, but it cannot be smaller than these values, or too many sums would miss the target 1 because too few
# of their items are positive (docs/theory.md, section 6): for products u v, and for u^+ v as behind a ReLU.
LEAST_CONSTANT_LINEAR = 7.0
LEAST_CONSTANT_RELU = 14.6

Widths = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    r"""One line of a theorem: width $\ge$ blocks $\cdot C \log($scale$/\varepsilon)$."""

    name: str  # "key_width", "value_width" or "hidden_width"
    blocks: int  # the width is divided into this many blocks, one per input coordinate
    sums: int  # the number of subset sums
    log_scale: float
    constant: float  # C
    growth: float | None = None  # Theorem 10 promises exp(growth eps / 2) - 1 where others promise eps

    def miss(self, width: int) -> float:
        """Return e for a width's items per block: how far one sum misses, and how often it misses by more."""
        return math.exp(-(width // self.blocks) / self.constant)

    def error(self, width: int) -> float:
        """Return the error this line guarantees; infinity if it would be 1 or more, where the theorem says nothing."""
        log_eps = self.log_scale - (width // self.blocks) / self.constant
        if log_eps >= 0:
            return math.inf
        eps = math.exp(log_eps)
        # Never 0: on underflow, the smallest positive float64 is still a bound.
        return max(eps if self.growth is None else _expm1(self.growth * eps / 2), math.ulp(0.0))

    def width(self, tol: float) -> int:
        """Return the smallest width, a multiple of the blocks, whose error is at most tol."""
        log_eps = math.log(tol)
        if self.growth is not None:
            log_eps = math.log(2) + math.log(math.log1p(tol)) - math.log(self.growth)
        # Start two items too low, so that rounding in the logarithm cannot change the result.
        items = max(1, math.ceil(self.constant * (self.log_scale - min(log_eps, 0.0))) - 2)
        while self.error(items * self.blocks) > tol:
            items += 1 + (items >> 40)  # from 2^40 items on, a step large enough for a float
        return items * self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lemma or theorem with its numbers filled in: `widths` for an error, or `error` for widths."""

    statement: str  # "Theorem 9"
    requirements: tuple[Requirement, ...]
    input_norm: float = 1.0  # as used, after raising it to what the statement assumes
    notes: tuple[str, ...] = ()

    @property
    def constants(self) -> dict[str, float]:
        """C as used for each width."""
        return {line.name: line.constant for line in self.requirements}

    def widths(self, tol: float) -> dict[str, int]:
        """Return the smallest widths that guarantee an error of at most `tol`, each a multiple of its blocks."""
        check_positive(tol=tol)
        if tol >= 1 and any(line.growth is None for line in self.requirements):
            raise ValueError(f"{self.statement} needs tol in (0, 1); got {tol}.")
        return {line.name: line.width(tol) for line in self.requirements}

    def error(self, widths: Widths) -> float:
        """Return the error guaranteed for these widths: the largest over all lines, infinity if one says nothing."""
        self._check_widths(widths)
        return max(line.error(widths[line.name]) for line in self.requirements)

    def failure(self, widths: Widths) -> float:
        """Bound the probability that a source of these widths misses the error: the union bound over all its sums."""
        self._check_widths(widths)
        return min(1.0, sum(line.sums * line.miss(widths[line.name]) for line in self.requirements))

    def _check_widths(self, widths: Widths) -> None:
        names = [line.name for line in self.requirements]
        if set(names) != set(widths):
            raise ValueError(f"{self.statement} needs {', '.join(names)}; got {', '.join(widths) or 'nothing'}.")
        check_counts(**widths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A sequence of layers or blocks with one error; like `Bound`, with a list of widths."""

    statement: str
    parts: tuple[Bound, ...]

    @property
    def constants(self) -> dict[str, float]:
        """C as used for each width, the same in all parts."""
        return self.parts[0].constants

    @property
    def input_norm(self) -> float:
        """The input norm as used in the first part."""
        return self.parts[0].input_norm

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed in the arguments."""
        return self.parts[0].notes

    def widths(self, tol: float) -> list[dict[str, int]]:
        """Return the smallest widths of each part for an error of at most `tol` after the last."""
        return [part.widths(tol) for part in self.parts]

    def error(self, widths: Sequence[Widths]) -> float:
        """Return the error guaranteed after the last part for these widths."""
        return max(part.error(own) for part, own in self._pairs(widths))

    def failure(self, widths: Sequence[Widths]) -> float:
        """Bound the probability that sources of these widths miss the error."""
        return min(1.0, sum(part.failure(own) for part, own in self._pairs(widths)))

    def _pairs(self, widths: Sequence[Widths]) -> list[tuple[Bound, Widths]]:
        if len(widths) != len(self.parts):
            raise ValueError(f"{self.statement} needs widths for {len(self.parts)} parts; got {len(widths)}.")
        return list(zip(self.parts, widths, strict=True))


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf
