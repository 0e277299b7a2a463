r"""Hide a network in a random module (edge-popup; Ramanujan et al., 2020): redraw it, freeze it, learn what to keep.

The module keeps its forward pass. Each masked weight becomes a parametrization, $w \odot m$, whose only trainable part
is a score for each weight.
"""

import operator
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from strongticket.files import Json
from strongticket.learn.checks import check_module, check_tensors
from strongticket.learn.draw import draw_scores, weight_distribution
from strongticket.learn.groups import Groups, is_norm, places_of
from strongticket.learn.hidden import Hidden as Hidden
from strongticket.learn.hidden import HiddenTensor
from strongticket.learn.policy import Policy
from strongticket.learn.tensors import ModelTensor, tensors_of
from strongticket.models.gpt2 import GPT2
from strongticket.ops.rng import random_weights, stream_of
from strongticket.ops.supermask import Supermask
from strongticket.tickets.restore import stored_buffers


def hide(model: nn.Module, policy: Policy, *, seed: int, groups: Groups | None = None) -> Hidden:
    """Turn a module into a random one with masks over it, in place.

    Masked and frozen tensors are drawn anew by `strongticket.ops.rng`, whatever they were, so that the seed brings them
    back; frozen norms and biases become constants; trained tensors keep the values they have. A parameter under two
    names has one mask. A parameter that holds query, key and value side by side is three tensors.

    Args:
        model: any module with plain parameters, those to draw in float32 or float64.
        policy: what is masked, frozen and trained.
        seed: of every random tensor and of the first scores.
        groups: groups of the caller's own for some parameters, a function of the name or patterns such as
            `{"*.pooler.*": "head"}`; `Hidden.describe` says where each tensor went.

    Example:
        >>> from strongticket.models.gpt2 import gpt2_config
        >>> hidden = hide(GPT2(gpt2_config("nano", bias=False)), Policy(density=0.25), seed=1)
        >>> hidden.densities()["attention"], hidden.to_ticket().strong
        (0.25, True)
    """
    stream_of(seed, "")  # refuses what is no seed
    check_module(model)
    tensors = tensors_of(model, groups)
    check_tensors(model, tensors, policy)
    gained = _gained(model, policy)
    plan = [_treated(tensor, policy, tensor.parameter in gained) for tensor in tensors]
    # All that can be refused was: from here on the module changes.
    if type(model) is GPT2 and policy.output_gain != 1:
        model.config = replace(model.config, output_gain=float(policy.output_gain))
    architecture = _architecture(model, tensors)
    buffers = {name: buffer.detach().cpu().clone() for name, buffer in stored_buffers(model)}
    supermasks = _put_in_place(model, policy, operator.index(seed), plan)
    return Hidden(
        model,
        policy,
        seed=operator.index(seed),
        tensors=plan,
        supermasks=supermasks,
        buffers=buffers,
        architecture=architecture,
    )


def _gained(model: nn.Module, policy: Policy) -> set[str]:
    """Name the parameters that the output gain multiplies, those of the last norm; our GPT-2 has a setting instead."""
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
        raise ValueError(f"output_gain is carried by the last norm's weight; this {type(model).__name__} has none.")
    return {place.name for place in norms if place.holder is norms[-1].holder}


def _treated(tensor: ModelTensor, policy: Policy, gained: bool) -> HiddenTensor:
    treatment, gain = policy.treatment(tensor.group), policy.output_gain if gained else 1.0
    if treatment == "trained":
        return HiddenTensor(tensor, treatment, None, None, gain)
    if tensor.constant is None:
        distribution, scale = weight_distribution(tensor, policy)
        return HiddenTensor(tensor, treatment, distribution, scale)
    if gained and tensor.constant == 0 and tensor.parameter.endswith("weight"):
        raise ValueError(f"output_gain would multiply {tensor.name}, which is 0: this norm counts otherwise. Use 1.")
    return HiddenTensor(tensor, treatment, None, tensor.constant * gain)


@torch.no_grad()
def _put_in_place(model: nn.Module, policy: Policy, seed: int, plan: Sequence[HiddenTensor]) -> dict[str, Supermask]:
    places = places_of(model)
    supermasks: dict[str, Supermask] = {}
    for name, group in groupby(plan, lambda hidden: hidden.tensor.parameter):
        parameter, pieces = model.get_parameter(name), list(group)
        for hidden in pieces:
            _set(hidden.tensor.of(parameter), hidden, seed)
        parameter.requires_grad_(pieces[0].treatment == "trained")
        if pieces[0].treatment != "masked":
            continue
        masks = [_supermask(hidden.tensor, policy, seed, parameter.device) for hidden in pieces]
        supermasks |= {hidden.name: mask for hidden, mask in zip(pieces, masks, strict=True)}
        mask = masks[0] if len(masks) == 1 else JoinedSupermasks(masks, pieces[0].tensor.axis)
        for place in places[name]:
            register_parametrization(place.holder, place.attribute, mask)
    return supermasks


def _set(view: Tensor, hidden: HiddenTensor, seed: int) -> None:
    if hidden.distribution is not None:
        assert hidden.scale is not None
        shape = hidden.tensor.shape
        view.copy_(random_weights(seed, hidden.name, shape, hidden.distribution, hidden.scale, device=view.device))
    elif hidden.scale is not None:
        view.fill_(hidden.scale)
    elif hidden.gain != 1:
        view.mul_(hidden.gain)


def _supermask(tensor: ModelTensor, policy: Policy, seed: int, device: torch.device) -> Supermask:
    return Supermask(draw_scores(tensor, policy, seed, device), policy.density, signed=policy.signed)


class JoinedSupermasks(nn.Module):
    """The masks of a parameter that holds several tensors side by side, as one parametrization."""

    def __init__(self, supermasks: Sequence[Supermask], axis: int) -> None:
        super().__init__()
        self.pieces, self.axis = nn.ModuleList(supermasks), axis

    def forward(self, weight: Tensor) -> Tensor:
        """Mask each piece by its own mask."""
        views = weight.chunk(len(self.pieces), dim=self.axis)
        return torch.cat([mask(view) for mask, view in zip(self.pieces, views, strict=True)], dim=self.axis)


def _architecture(model: nn.Module, tensors: Sequence[ModelTensor]) -> dict[str, Json]:
    """Say what the ticket belongs to, before parametrizations change the classes."""
    if type(model) is GPT2:
        return {"family": "gpt2", "config": asdict(model.config)}
    fused = {tensor.parameter: tensor.axis for tensor in tensors if tensor.pieces > 1}
    kind = type(model)
    return {"family": "module", "class": f"{kind.__module__}.{kind.__qualname__}", "fused": fused}
