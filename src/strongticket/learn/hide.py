"""Hide a network in a random module: redraw its weights, freeze them, and let a rule learn which to keep.

The module keeps its forward pass. The rule puts a parametrization over each masked weight.
"""

import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from strongticket.learn.checks import check_module, check_tensors
from strongticket.learn.density import check_densities, check_patterns, densities_of
from strongticket.learn.draw import weight_distribution
from strongticket.learn.groups import Groups, Place, groups_of, is_norm, places_of
from strongticket.learn.hidden import Hidden, check_finite
from strongticket.learn.policy import CONSTANT_GROUPS, Policy
from strongticket.learn.probe import probe_of
from strongticket.learn.rules.rule import Rule, as_rule
from strongticket.learn.scales import Scaled, scales_of
from strongticket.learn.tensors import HiddenTensor, ModelTensor, tensors_of
from strongticket.models.gpt2 import GPT2
from strongticket.ops.rng import stream_of
from strongticket.tickets.fused import Cut


def hide(
    model: nn.Module,
    policy: Policy | None = None,
    *,
    seed: int,
    groups: Groups | None = None,
    rule: Rule | str | None = None,
    inputs: Any = None,
) -> Hidden:
    """Turn a module into a random one with masks over it, in place.

    Masked and frozen tensors are redrawn by `strongticket.ops.rng`, so that the seed reproduces them; frozen norms and
    biases become constants; trained tensors keep their values. A parameter under two names has one mask. A parameter
    that holds query, key and value, gate and up, or a stack of experts, is split. Queries and keys are checked:
    outputs must not change when one is multiplied by a number and the other divided by it.

    Args:
        model: any module with plain parameters; those to draw must be float32 or float64.
        policy: what is masked, frozen and trained; by default what suits the module, see `default_policy`.
        seed: of every random tensor and of the first scores.
        groups: your own groups for some parameters, a function of the name or patterns such as
            `{"*.pooler.*": "head"}`; `Hidden.describe` shows the group of each tensor.
        rule: how the masks are learned, a name or a `Rule`; by default the policy's.
        inputs: for the check: a tensor, a tuple of arguments, a mapping of keywords, or a function that calls the
            module. By default they are generated, from the configuration of a Hugging Face model; where that is
            impossible, names decide, and `Hidden.describe` says so.

    Example:
        >>> from strongticket.models.gpt2 import gpt2_config
        >>> hidden = hide(GPT2(gpt2_config("nano", bias=False)), Policy(density=0.25), seed=1)
        >>> hidden.densities()["attention"], hidden.to_ticket().strong
        (0.25, True)
    """
    stream_of(seed, "")  # refuses an invalid seed
    check_module(model)
    policy = policy or default_policy(model, groups)
    chosen = as_rule(policy.rule if rule is None else rule)
    tensors = tensors_of(model, groups, cache(partial(probe_of, model, inputs)))
    check_tensors(model, tensors, policy)
    gained, places, densities = _gained(model, policy), places_of(model), _densities(tensors, policy)
    chosen.check(densities, policy)
    plan = [
        _treated(
            tensor,
            replace(policy, density=densities.get(tensor.name, 1.0)),
            chosen,
            operator.index(seed),
            tensor.parameter in gained,
            places[tensor.parameter],
        )
        for tensor in tensors
    ]
    # Every check has passed: from here on the module changes.
    if type(model) is GPT2 and policy.output_gain != 1:
        model.config = replace(model.config, output_gain=float(policy.output_gain))
    architecture = _architecture(model, tensors)
    stored = model.state_dict().keys()
    buffers = {name: buffer.detach().cpu().clone() for name, buffer in model.named_buffers() if name in stored}
    _draw(model, plan)
    masked = [hidden for hidden in plan if hidden.treatment == "masked"]
    chosen.begin(masked, policy)
    chosen.after_restore(masked, 0)
    for hidden in masked:
        hidden.scales = scales_of(hidden, policy.scales)
    _put_in_place(plan, places, chosen)
    return Hidden(
        model, policy, chosen, seed=operator.index(seed), tensors=plan, buffers=buffers, architecture=architecture
    )


def default_policy(model: nn.Module, groups: Groups | None = None) -> Policy:
    """Choose a policy for a module: the paper's if it has attention, otherwise one suited to ReLU.

    The latter draws signed constants of Kaiming's size over the square root of the density, so that the kept weights
    have the variance of a full Kaiming initialization.

    Example:
        >>> default_policy(nn.Linear(2, 1)).init, default_policy(nn.MultiheadAttention(4, 2)).init
        ('kaiming-sign', 'own')
    """
    if "attention" in groups_of(model, groups).values():
        return Policy()
    return Policy(init="kaiming-sign", rescale=True, density=0.5)


def _densities(tensors: Sequence[ModelTensor], policy: Policy) -> dict[str, float]:
    """Return the fraction to keep of each masked tensor."""
    masked = [tensor for tensor in tensors if policy.treatment(tensor.group) == "masked"]
    check_densities(masked, policy)
    random = [
        each for each in tensors if each.group not in CONSTANT_GROUPS and policy.treatment(each.group) != "trained"
    ]
    check_patterns("factors", policy.factors, "random", [tensor.name for tensor in random])
    return dict(zip([tensor.name for tensor in masked], densities_of(masked, policy), strict=True))


def _gained(model: nn.Module, policy: Policy) -> set[str]:
    """Return the parameters that the output gain multiplies: the last norm's. Our GPT-2 has a setting instead."""
    if policy.output_gain == 1:
        return set()
    if type(model) is GPT2:
        if model.config.output_gain not in (1, policy.output_gain):
            raise ValueError(
                f"the model's output_gain is {model.config.output_gain:g}, the policy's {policy.output_gain:g}; "
                "leave one of them at 1."
            )
        return set()
    norms = [place for places in places_of(model).values() for place in places if is_norm(place.holder)]
    if not norms:
        raise ValueError(f"output_gain multiplies the last norm's weight; this {type(model).__name__} has none.")
    return {place.name for place in norms if place.holder is norms[-1].holder}


def _treated(
    tensor: ModelTensor, policy: Policy, rule: Rule, seed: int, gained: bool, places: Sequence[Place]
) -> HiddenTensor:
    treatment, gain = policy.treatment(tensor.group), policy.output_gain if gained else 1.0
    hidden = HiddenTensor(
        tensor=tensor,
        treatment=treatment,
        seed=seed,
        gain=gain,
        density=policy.density,
        places=tuple(place.name for place in places),
    )
    if treatment == "trained":
        return hidden
    if tensor.constant is None:
        source = rule.source if treatment == "masked" else weight_distribution
        hidden.distribution, hidden.scale = source(tensor, policy)
        return hidden
    if gained and tensor.constant == 0 and tensor.parameter.endswith("weight"):
        raise ValueError(
            f"output_gain cannot multiply {tensor.name}, which is 0: this norm counts from 0. Use output_gain=1."
        )
    hidden.scale = tensor.constant * gain
    return hidden


@torch.no_grad()
def _draw(model: nn.Module, plan: Sequence[HiddenTensor]) -> None:
    """Set every tensor's first values, and require gradients of trained ones only."""
    for hidden in plan:
        hidden.parameter = model.get_parameter(hidden.tensor.parameter)
        hidden.parameter.requires_grad_(hidden.treatment == "trained")
        if hidden.distribution is not None:
            hidden.weight = hidden.draw()
        elif hidden.scale is not None:
            hidden.parameter.fill_(hidden.scale)
        elif hidden.gain != 1:
            hidden.parameter.mul_(hidden.gain)


def _put_in_place(plan: Sequence[HiddenTensor], places: Mapping[str, Sequence[Place]], rule: Rule) -> None:
    masked = (hidden for hidden in plan if hidden.treatment == "masked")
    for name, group in groupby(masked, lambda hidden: hidden.tensor.parameter):
        pieces = list(group)
        for hidden in pieces:
            _check_weights(rule, hidden)
        modules = [
            hidden.module if hidden.scales is None else Scaled(hidden.module, hidden.scales) for hidden in pieces
        ]
        cut = pieces[0].tensor.cut
        joined = modules[0] if cut is None else Joined(modules, cut)
        joined = joined if pieces[0].parameter.dtype == torch.float32 else InFloat32(joined)
        for place in places[name]:
            register_parametrization(place.holder, place.attribute, joined)


@torch.no_grad()
def _check_weights(rule: Rule, hidden: HiddenTensor) -> None:
    weight = hidden.weight
    value = hidden.module(weight)
    if not isinstance(value, Tensor) or (value.shape, value.dtype) != (weight.shape, weight.dtype):
        got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"the rule {rule.name} turns {hidden.name}, {weight.dtype} {tuple(weight.shape)}, into {got}; "
            "a rule must keep shape and type."
        )
    check_finite(rule, hidden, value)


class InFloat32(nn.Module):
    """A rule's module over a float64 parameter: products are rounded to float32, as in a ticket."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, weight: Tensor) -> Tensor:
        """Return float32 numbers as float64."""
        value: Tensor = self.inner(weight.float())
        return value.to(weight.dtype)


class Joined(nn.Module):
    """A rule's modules over a parameter that holds several tensors, as one parametrization."""

    def __init__(self, modules: Sequence[nn.Module], cut: Cut) -> None:
        super().__init__()
        self.pieces, self.cut = nn.ModuleList(modules), cut

    def forward(self, weight: Tensor) -> Tensor:
        """Apply to each piece its own module."""
        names = self.cut.names()
        return self.cut.joined(
            [module(self.cut.of(weight, name)) for module, name in zip(self.pieces, names, strict=True)]
        )


def _architecture(model: nn.Module, tensors: Sequence[ModelTensor]) -> dict[str, object]:
    """Describe the module for the ticket, before parametrizations change its classes."""
    if type(model) is GPT2:
        return {"family": "gpt2", "config": asdict(model.config)}
    fused = {tensor.parameter: tensor.cut.to_json() for tensor in tensors if tensor.cut is not None}
    kind = type(model)
    return {"family": "module", "class": f"{kind.__module__}.{kind.__qualname__}", "fused": fused}
