r"""The value of choosing each hidden unit's input: the same sources, with equal blocks and with adaptive units.

Each row is one case and one assignment: medians over the seeds of the error's spectral norm and of its largest entry,
entries out of reach, and how many times more units there are than any masks need for that largest entry, by counting
(`docs/theory.md`, section 7). Figures 4 to 6 also have both assignments. Last come the rows about time: which share of
`construct_linear` is spent on the choice.

Before a row is kept, every product is multiplied out from the ticket's masks: its error must be as reported.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.bench.measure import WrongAnswerError, time_alternating
from strongticket.bench.script import run_script
from strongticket.bounds import counting_width
from strongticket.construct.assignment import Assignment
from strongticket.construct.attention import head_products
from strongticket.construct.feedforward import relu_product
from strongticket.construct.linear import construct_linear, plan_linear
from strongticket.construct.plan import Product
from strongticket.construct.product import Pruned, prune_product
from strongticket.construct.source import owners_in
from strongticket.tickets.ticket import Ticket

ASSIGNMENTS: tuple[Assignment, ...] = ("equal", "adaptive")
D = 32


def linear_weight(seed: int) -> Tensor:
    """A linear layer as torch draws it: uniform, at most 1 / sqrt(d)."""
    torch.manual_seed(seed)
    return nn.Linear(D, D).weight.detach().double()


def query_by_key(seed: int) -> Tensor:
    """The merged query and key matrix of one of four heads, as torch draws them."""
    torch.manual_seed(seed)
    heads = 4
    query, key, _ = nn.MultiheadAttention(D, heads).in_proj_weight.detach().double().chunk(3)
    d_k = D // heads
    merged: Tensor = query[:d_k].T @ key[:d_k] / d_k**0.5
    return merged


# By the number of units.
PRODUCTS: dict[str, Callable[[int], Product]] = {
    "behind a ReLU": lambda units: relu_product("map", (D, D), units, "theory", nonnegative_inputs=True),
    "first layer": lambda units: relu_product("map", (D, D), units, "theory"),
    "linear": lambda units: plan_linear(torch.zeros(D, D), units, "theory").products["product"].product,
    "query by key": lambda units: head_products("head.0", D, D, D, units, units, "theory")[0],
}
# The product, units per input, and the goal for adaptive units.
CASES = (
    ("behind a ReLU", 20, 3e-4),
    ("behind a ReLU", 24, 3e-5),
    ("first layer", 28, 2e-3),
    ("first layer", 32, 3e-4),
    ("linear", 16, 5e-4),
    ("query by key", 16, 5e-4),
)


def products(seeds: int) -> Iterator[dict[str, Any]]:
    """Prune the same sources both ways."""
    for name, items, asked in CASES:
        product, draw = PRODUCTS[name](items * D), query_by_key if name == "query by key" else linear_weight
        for assignment in ASSIGNMENTS:
            norms, entries, missed, spent = [], [], 0, []
            for seed in range(seeds):
                target = draw(seed)
                start = time.process_time()
                pruned = product.prune(target, seed=seed, assignment=assignment)
                spent.append(time.process_time() - start)
                check(product, target, pruned, seed)
                norms.append(pruned.norm())
                entries.append(pruned.worst_entry())
                missed += len(pruned.unreachable)
            worst = statistics.median(entries)
            least = counting_width(d_model=D, d_out=D, largest=float(target.abs().max()), tol=worst)
            yield {
                "case": name,
                "units": items * D,
                "assignment": assignment,
                "seeds": seeds,
                "error": statistics.median(norms),
                "largest": max(norms),
                "entry": worst,
                "unreachable": missed,
                "times_counting": items * D / least if least else float("inf"),
                "cpu_seconds": statistics.median(spent),
                "asked": asked,
            }


def shares(repeats: int) -> Iterator[dict[str, Any]]:
    """Construct, prune with units chosen, and prune with the same units given: the choice takes the difference."""
    for d, items in ((16, 20), (32, 16), (32, 20), (128, 16), (128, 20), (384, 20)):
        torch.manual_seed(0)
        target = nn.Linear(d, d).weight.detach().double()
        matrices = plan_linear(target, items * d, "theory").products["product"].product.matrices()
        owners = owners_in(prune_product(target, *matrices, seed=0, assignment="adaptive").tensors[0].mask, unit_axis=0)
        assert owners is not None
        runs: dict[str, Callable[[], object]] = {
            "construct": partial(construct_linear, target, hidden_width=items * d),
            "chosen": partial(prune_product, target, *matrices, seed=0, assignment="adaptive"),
            "given": partial(prune_product, target, *matrices, seed=0, assignment=owners),
        }
        times = time_alternating(runs, repeats=3 + repeats * D // d, clock=time.process_time)
        construct = statistics.median(times["construct"])
        # In pairs, since other work on the machine slows both of a round.
        choice = statistics.median(a - b for a, b in zip(times["chosen"], times["given"], strict=True))
        yield {
            "case": "time of the choice",
            "d": d,
            "units": items * d,
            "repeats": len(times["construct"]),
            "choice_ms": 1e3 * choice,
            "construct_ms": 1e3 * construct,
            "share": choice / construct,
        }


def check(product: Product, target: Tensor, pruned: Pruned, seed: int) -> None:
    """Multiply out the kept weights, and compare with the reported error."""
    weights = Ticket(seed=seed, tensors=pruned.tensors).materialize()
    blocked, free = (
        weights[m.name].double().T if m.unit_axis == 0 else weights[m.name].double()
        for m in (product.blocked, product.free)
    )  # (coordinates, units)
    signs = [blocked.clamp(min=0), blocked.clamp(max=0)][: product.signs.slots] if product.relu else [blocked]
    error = torch.cat([free @ sign.T / product.divisor - target for sign in signs], dim=1)
    if (error - pruned.error).abs().max() > 1e-12:
        raise WrongAnswerError("the error of the masks is not the reported one")


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Measure errors, then times."""
    return chain(products(seeds), shares(30 * seeds))


if __name__ == "__main__":
    run_script(__doc__, measure, op="assignment", seeds=10)
