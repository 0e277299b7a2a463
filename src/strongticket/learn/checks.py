"""Refuse what cannot be hidden, before anything is changed."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import is_parametrized

from strongticket.learn.policy import Policy
from strongticket.learn.tensors import ModelTensor
from strongticket.tickets.tensors import check_name, check_shape

_NAMES_SHOWN = 3


def check_is_module(model: object) -> None:
    """Refuse what is not a module.

    Example:
        >>> check_is_module(nn.Linear)
        Traceback (most recent call last):
            ...
        ValueError: a search needs a torch.nn.Module; got the class Linear. Create one: Linear(...).
    """
    if isinstance(model, nn.Module):
        return
    name = getattr(model, "__name__", "")
    if isinstance(model, type) and issubclass(model, nn.Module):
        got = f"the class {name}. Create one: {name}(...)."
    elif callable(model):
        got = f"the function {name}. If it returns a module, call it; otherwise put it into one."
    else:
        got = f"{type(model).__name__}."
    raise ValueError(f"a search needs a torch.nn.Module; got {got}")


def check_module(model: nn.Module) -> None:
    """Refuse a module whose parameters are not plain numbers."""
    check_is_module(model)
    for name, module in model.named_modules():
        if is_parametrized(module):
            what = f"layer {name}" if name else "the module"
            raise ValueError(
                f"{what} has a parametrization. If an earlier search left it there, build a new "
                f"{type(model).__name__}, or search copy.deepcopy(model): a search changes its model in place. "
                "Remove another kind, such as a weight norm (torch.nn.utils.parametrize.remove_parametrizations)."
            )
    for name, parameter in model.named_parameters():
        if is_lazy(parameter) or parameter.is_meta:
            raise ValueError(f"{name} has no values yet; run a lazy module once, or move a meta module to a device.")
        if not parameter.is_floating_point():
            raise ValueError(f"a search needs float parameters; {name} is {parameter.dtype}.")


def check_tensors(model: nn.Module, tensors: Sequence[ModelTensor], policy: Policy) -> None:
    """Refuse a policy that these tensors do not allow."""
    for tensor in tensors:
        check_name(tensor.name)
        check_shape(tensor.name, tensor.shape)
    _check_something_is_masked(tensors, policy)
    drawn = [t for t in tensors if policy.treatment(t.group) != "trained" and t.constant is None]
    for tensor in drawn:
        if (dtype := model.get_parameter(tensor.parameter).dtype) not in (torch.float32, torch.float64):
            raise ValueError(f"{tensor.name} is {dtype}, which cannot hold a float32 weight; use model.float().")
    _check_queries_and_keys(drawn, policy)
    masked = {t.parameter for t in drawn if policy.treatment(t.group) == "masked"}
    for name in masked:
        if isinstance(holder := model.get_submodule(name.rpartition(".")[0]), nn.RNNBase):
            raise ValueError(f"{type(holder).__name__} keeps lists of its weights, which masks cannot reach: {name}.")
    if len(devices := {model.get_parameter(name).device for name in masked}) > 1:
        raise ValueError(f"masked tensors must be on one device; got {', '.join(sorted(map(str, devices)))}.")


def _check_something_is_masked(tensors: Sequence[ModelTensor], policy: Policy) -> None:
    if any(policy.treatment(tensor.group) == "masked" for tensor in tensors):
        return
    groups = Counter(tensor.group for tensor in tensors)
    has = ", ".join(f"{count} in {group} ({policy.treatment(group)})" for group, count in groups.items())
    advice = f"{has}. Mask one of these groups" if has else "none"
    raise ValueError(f"the policy masks no tensor of this module, which has {advice}.")


def _check_queries_and_keys(drawn: Sequence[ModelTensor], policy: Policy) -> None:
    """Refuse to scale queries and keys that are not identified: a missing scale would go unnoticed."""
    attention = [tensor for tensor in drawn if tensor.group == "attention"]
    if policy.qk_scale == 1 or not attention:
        return
    advice = "Pass policy=Policy(qk_scale=1), which scales nothing and does not split the tensor."
    if refused := [tensor for tensor in attention if tensor.refused]:
        raise ValueError(
            f"cannot tell which part of {refused[0].name} {list(refused[0].shape)} is a query or a key: "
            f"{refused[0].note}. {advice}"
        )
    if not any(tensor.is_query_or_key for tensor in attention):
        names = ", ".join(tensor.name for tensor in attention[:_NAMES_SHOWN])
        raise ValueError(f"no query or key was identified among the attention tensors ({names}, ...). {advice}")
