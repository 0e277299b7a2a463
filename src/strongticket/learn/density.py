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
    return [_given(tensor.name, policy.densities, policy.density) for tensor in tensors]


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


def _given(name: str, densities: Mapping[str, float], otherwise: float) -> float:
    return next((density for pattern, density in densities.items() if fnmatchcase(name, pattern)), otherwise)


def check_densities(tensors: Sequence[ModelTensor], policy: Policy) -> None:
    """Refuse a pattern that matches no masked tensor, and a density that keeps nothing of one."""
    for tensor, density in zip(tensors, densities_of(tensors, policy), strict=True):
        if 0 < tensor.numel <= dropped_count(tensor.numel, density):
            raise ValueError(f"a density of {density:g} keeps none of the {tensor.numel:,} weights of {tensor.name}.")
    names = [tensor.name for tensor in tensors]
    for pattern in policy.densities if isinstance(policy.densities, Mapping) else ():
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(
                f"densities: no masked tensor matches {pattern!r:.60}; the first is {next(iter(names), None)!r}."
            )
