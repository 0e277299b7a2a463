"""The smallest width at which a given target is met, found by trying seeds."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from torch import Tensor, nn

from strongticket.bounds import Bound, Stack, attention_bound, feedforward_bound, linear_bound, transformer_bound
from strongticket.construct.assignment import Assignment
from strongticket.construct.attention import construct_attention, plan_attention
from strongticket.construct.chance import Failures, chance_some_is_out_of_reach, count_failures
from strongticket.construct.feedforward import construct_feedforward, plan_network
from strongticket.construct.given import AttentionTarget, NetworkTarget, as_feedforward, as_linear, as_merged, sizes_of
from strongticket.construct.linear import construct_linear, plan_linear
from strongticket.construct.plan import Plan
from strongticket.construct.recertify import blocks_of, network_of
from strongticket.construct.transformer import construct_transformer, parts_of, plan_blocks
from strongticket.errors import InfeasibleError, StrongTicketError
from strongticket.models.attention import Attention, MergedAttention
from strongticket.models.transformer import Block, Transformer
from strongticket.tickets.ticket import Ticket

MOST_ITEMS = 64

Target = NetworkTarget | AttentionTarget | Transformer
# Called with the number of items being tried, the sources done for it, and the sources in total.
Progress = Callable[[int, int, int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result for one width."""

    items: int  # hidden units per input
    widths: Mapping[str, int | list[int]]
    failures: Failures
    out_of_reach: float  # with equal blocks, a lower bound on the probability that some entry is


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthForTarget:
    """The fewest items that were enough, all results, and what the theorem requires."""

    found: Tried | None  # None if `MOST_ITEMS` are not enough
    tried: list[Tried]
    theorem_items: int  # for any target of this kind with weights of norm at most 1, with the smallest constant

    def __repr__(self) -> str:
        theorem = f"the theorem needs {self.theorem_items:,}"
        if self.found is None:
            return f"WidthForTarget(not found: {MOST_ITEMS} items per input are not enough; {theorem})"
        widths = ", ".join(f"{name}={width}" for name, width in self.found.widths.items())
        failures = f"{self.found.failures.count} of {self.found.failures.sources} sources failed"
        return f"WidthForTarget({self.found.items} items per input: {widths}; {failures}; {theorem})"


def width_for(
    target: Target,
    *,
    tol: float,
    failure: float = 0.05,
    sources: int = 100,
    assignment: Assignment = "adaptive",
    input_norm: float = 1.0,
    progress: Progress = lambda items, done, all_of_them: None,
) -> WidthForTarget:
    """Find how wide a random network must be to contain a given one, by trying seeds; no constant is assumed.

    Args:
        target: a matrix, a ReLU network (a `torch.nn.Linear` is one of one layer), an attention or a transformer, in
            any form that `construct_linear`, `construct_feedforward`, `construct_attention` and `construct_transformer`
            take.
        tol: a construction fails if its certificate is above this.
        failure: the fraction of constructions that may fail.
        sources: the number of seeds per width: 0, 1 and so on.
        assignment: how hidden units are assigned, as in `construct_linear`.
        input_norm: the largest norm of the inputs the certificate covers.
        progress: called after each construction.

    Example:
        >>> answer = width_for([[0.5, -0.3], [0.2, 0.9]], tol=0.01, sources=10)
        >>> answer.found.items < answer.theorem_items
        True
    """
    if not 0 < tol < float("inf") or not 0 <= failure < 1 or sources < 1:
        raise ValueError(
            f"tol must be positive, failure in [0, 1) and sources at least 1; got {tol}, {failure} and {sources}."
        )
    given = _given(target, input_norm)
    tried: list[Tried] = []
    low, high, items = given.least - 1, MOST_ITEMS + 1, 8
    while high - low > 1:
        errors, widths = [], given.widths(items)
        for seed in range(sources):
            errors.append(_error(partial(given.make, target, **widths), seed, assignment, input_norm))
            progress(items, seed + 1, sources)
        failures, reach = count_failures(errors, tol), chance_some_is_out_of_reach(given.plan(**widths))
        tried.append(Tried(items=items, widths=widths, failures=failures, out_of_reach=reach))
        enough = failures.count <= failure * sources
        low, high = (low, items) if enough else (items, high)
        items = min(2 * items, MOST_ITEMS) if high > MOST_ITEMS else (low + high) // 2
    found = next((one for one in tried if one.items == high), None)
    return WidthForTarget(found=found, tried=tried, theorem_items=given.theorem_items(tol))


def _error(make: Callable[..., Ticket], seed: int, assignment: Assignment, input_norm: float) -> float:
    """Return what a certificate says; infinity if no choice of units serves every input."""
    try:
        ticket = make(seed=seed, assignment=assignment, input_norm=input_norm)
    except InfeasibleError:
        return math.inf
    assert ticket.certificate is not None
    return ticket.certificate.error


def target_of(tensors: Mapping[str, Tensor]) -> Target:
    """Build a target from its tensors, as in its `state_dict`."""
    names = tensors.keys()
    if names == {"weight"}:
        return tensors["weight"]
    try:
        if any(name.startswith("blocks.") for name in names):
            return Transformer(
                [Block(_attention_of(attention), network_of(network)) for attention, network in blocks_of(tensors)]
            )
        return _attention_of(tensors) if names & {"qk", "query"} else network_of(tensors)
    except (TypeError, ValueError, LookupError):
        raise StrongTicketError(
            f"the file has the tensors {', '.join(sorted(names))!s:.80}; a target is the weight of a matrix, or the "
            "state_dict of a FeedForward, an Attention or a Transformer."
        ) from None


def _attention_of(tensors: Mapping[str, Tensor]) -> Attention | MergedAttention:
    return MergedAttention(**tensors) if "qk" in tensors else Attention(**tensors)


class _Given(NamedTuple):
    """How a target is constructed from widths, and the bound for all targets of its kind."""

    make: Callable[..., Ticket]
    plan: Callable[..., Plan]
    inputs: dict[str, int | list[int]]  # the number of inputs that share each width
    bound: Bound | Stack
    least: int = 1  # items per input: in a first ReLU layer one for either sign

    def widths(self, items: int) -> dict[str, int | list[int]]:
        return {
            name: [items * d for d in inputs] if isinstance(inputs, list) else items * inputs
            for name, inputs in self.inputs.items()
        }

    def theorem_items(self, tol: float) -> int:
        stack = self.bound if isinstance(self.bound, Stack) else Stack(statement="", parts=(self.bound,))
        least = stack.widths(min(tol, 0.999))  # the theorems need a tolerance below 1
        return max(
            own[line.name] // line.blocks
            for part, own in zip(stack.parts, least, strict=True)
            for line in part.requirements
        )


def _given(target: Target, alpha: float) -> _Given:
    if isinstance(target, Attention | MergedAttention | nn.MultiheadAttention):
        merged = as_merged(target)
        n_heads, d, d_out = merged.vo.shape
        bound = attention_bound(d_model=d, d_out=d_out, n_heads=n_heads, input_norm=alpha, variant="tight")
        plan = partial(plan_attention, merged, init="theory")
        return _Given(construct_attention, plan, {"key_width": d, "value_width": d}, bound)
    if isinstance(target, Transformer):
        return _given_transformer(target, alpha)
    if not isinstance(target, nn.Module):
        matrix, _ = as_linear(target)
        d_out, d = matrix.shape
        bound = linear_bound(d_model=d, d_out=d_out)
        return _Given(
            construct_linear,
            lambda hidden_width: plan_linear(matrix, hidden_width, "theory"),
            {"hidden_width": d},
            bound,
        )
    network = as_feedforward(target)
    sizes = sizes_of(network)
    return _Given(
        construct_feedforward,
        lambda hidden_width: plan_network(network, hidden_width, "theory"),
        {"hidden_width": sizes[:-1]},
        feedforward_bound(sizes, input_norm=alpha, variant="tight"),
        least=2,
    )


def _given_transformer(target: Transformer, alpha: float) -> _Given:
    def plan(**widths: Any) -> Plan:
        products = {
            f"block.{b}.{part}.{name}": wanted
            for b, block in enumerate(plan_blocks(target, init="theory", **widths))
            for part, planned in block.plans.items()
            for name, wanted in planned.products.items()
        }
        return Plan(settings={}, products=products, biases=[], bias_rounding={})

    parts = parts_of(target)
    sizes = [sizes_of(network) for _, network in parts]
    d = sizes[0][0]
    bound = transformer_bound(
        d_model=d,
        blocks=len(parts),
        n_heads=max(len(merged.vo) for merged, _ in parts),
        layers=max(len(own) - 1 for own in sizes),
        hidden=max(max(own) for own in sizes),
        input_norm=alpha,
        variant="tight",
    )
    # All layers of a block's network have the same width, which all their inputs must divide.
    hidden = [math.lcm(*own[:-1]) for own in sizes]
    return _Given(construct_transformer, plan, {"key_width": d, "value_width": d, "hidden_width": hidden}, bound, 2)
