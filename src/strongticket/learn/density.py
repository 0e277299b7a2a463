"""How much of each tensor is kept: the same fraction of all, more of small ones (ERK), or as given."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from strongticket.learn.policy import Policy
from strongticket.learn.tensors import ModelTensor
from strongticket.ops.supermask import dropped_count


def densities_of(tensors: Sequence[ModelTensor], policy: Policy) -> list[float]:
    """Return the fraction a policy keeps of each masked tensor, after any ramp.

    Args:
        tensors: the masked ones.
        policy: its `density` applies to each tensor; with ERK, to all together; with patterns, to unmatched tensors.
    """
    if policy.densities == "uniform":
        return [policy.density] * len(tensors)
    if policy.densities == "erk":
        return _erk(tensors, policy.density)
    return [first_match(tensor.name, policy.densities, policy.density) for tensor in tensors]


def _erk(tensors: Sequence[ModelTensor], density: float) -> list[float]:
    """Erdos-Renyi-Kernel (Evci et al., 2020): proportional to the sum of a tensor's sizes over their product.

    A tensor that would need more than it has is kept whole, and the others make up for it.
    """
    sizes = [tensor.numel for tensor in tensors]
    shares = [sum(tensor.shape) / max(tensor.numel, 1) for tensor in tensors]
    whole: set[int] = set()
    while True:
        rest = [i for i in range(len(tensors)) if i not in whole]
        left = density * sum(sizes) - sum(sizes[i] for i in whole)
        factor = left / max(sum(shares[i] * sizes[i] for i in rest), 1e-30)
        full = {i for i in rest if factor * shares[i] > 1}
        if not full:
            return [1.0 if i in whole else factor * share for i, share in enumerate(shares)]
        whole |= full


def first_match(name: str, numbers: Mapping[str, float], otherwise: float) -> float:
    """Return the number of the first pattern that matches a name."""
    return next((number for pattern, number in numbers.items() if fnmatchcase(name, pattern)), otherwise)


def check_patterns(setting: str, numbers: object, what: str, names: Sequence[str]) -> None:
    """Refuse a pattern that matches no tensor."""
    for pattern in numbers if isinstance(numbers, Mapping) else ():
        if not any(fnmatchcase(name, pattern) for name in names):
            first = next(iter(names), None)
            raise ValueError(f"{setting}: no {what} tensor matches {pattern!r:.60}; the first is {first!r}.")


def check_densities(tensors: Sequence[ModelTensor], policy: Policy) -> None:
    """Refuse a pattern that matches no masked tensor, and a density that keeps nothing of one."""
    for tensor, density in zip(tensors, densities_of(tensors, policy), strict=True):
        if 0 < tensor.numel <= dropped_count(tensor.numel, density):
            raise ValueError(f"a density of {density:g} keeps none of the {tensor.numel:,} weights of {tensor.name}.")
    check_patterns("densities", policy.densities, "masked", [tensor.name for tensor in tensors])
