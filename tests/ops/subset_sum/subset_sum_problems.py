"""Problems that are hard to get right: ties, zeros, cancelling pairs, wild magnitudes, targets on and off the sums."""

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

ITEM_KINDS = {
    "plain": st.floats(-1, 1, width=32),
    "few values": st.sampled_from([0.0, 0.1, -0.1, 0.2, 0.3, 0.5, -0.5, 1.0]),
    "powers of two": st.builds(lambda e, sign: sign * 2.0**e, st.integers(-40, 40), st.sampled_from([-1, 1])),
    "wild": st.builds(lambda m, e: m * 10.0**e, st.floats(-10, 10), st.integers(-30, 30)),
    "denormal": st.floats(-1e-307, 1e-307),
    "enormous": st.floats(-1.7e308, 1.7e308),
    "zero": st.just(0.0),
}


@st.composite
def items_of(draw: st.DrawFn, n: int) -> list[float]:
    """n items of one kind or of several, sometimes with equal or cancelling pairs."""
    kinds = draw(st.lists(st.sampled_from(list(ITEM_KINDS)), min_size=1, max_size=2))
    items = [draw(ITEM_KINDS[kinds[k % len(kinds)]]) for k in range(n)]
    pairs = draw(st.sampled_from(["", "", "", "equal", "cancelling"]))
    for k in range(1, n if pairs else 0, 2):
        items[k] = items[k - 1] if pairs == "equal" else -items[k - 1]
    return items


@st.composite
def problems(draw: st.DrawFn, min_items: int = 0, max_items: int = 12, max_rows: int = 5) -> tuple[Tensor, Tensor]:
    """Targets (rows,) and items (rows, n), float64."""
    rows, n = draw(st.integers(0, max_rows)), draw(st.integers(min_items, max_items))
    items = torch.tensor([draw(items_of(n)) for _ in range(rows)], dtype=torch.float64).reshape(rows, n)
    targets = [draw(target_for(row)) for row in items.numpy()]
    return torch.tensor(targets, dtype=torch.float64), items


@st.composite
def target_for(draw: st.DrawFn, items: np.ndarray) -> float:
    """A target that is anything, or a sum of some items, or just beside one."""
    chosen = np.array(draw(st.lists(st.booleans(), min_size=len(items), max_size=len(items))), dtype=bool)
    with np.errstate(over="ignore"):
        total = float(items[chosen].sum()) if len(items) else 0.0
    beside = draw(st.sampled_from([0.0, 1e-9, -1e-3, 0.25]))
    if not np.isfinite(total) or draw(st.integers(0, 3)) == 0:
        return draw(st.floats(-2, 2))
    return float(np.clip(total * (1 + beside) + beside * draw(st.integers(0, 1)), -1.7e308, 1.7e308))


def random_problems(rows: int, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The problems of the paper: items are products of two U[-1, 1] float32 weights, targets are U[-1, 1]."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator) * 2 - 1

    return uniform(rows).double(), uniform(rows, n).double() * uniform(rows, n).double()
