"""Targets in the forms callers have: torch's modules and ours, tensors, arrays, lists, tensors by name, files."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import torch
from torch import Tensor, nn

from strongticket.construct.source import check_target
from strongticket.construct.target import load_target
from strongticket.models.attention import Attention, MergedAttention
from strongticket.models.transformer import FeedForward
from strongticket.ops.arrays import Array, as_tensor

LinearTarget = nn.Linear | Array
NetworkTarget = FeedForward | nn.Sequential | nn.Linear | Array
AttentionTarget = Attention | MergedAttention | nn.MultiheadAttention
# Everything a ticket may have been constructed from, as accepted by `certify` and `verify`.
Target = nn.Module | Array | Mapping[str, Array] | str | PathLike[str]


def as_linear(target: LinearTarget) -> tuple[Tensor, Tensor | None]:
    """Convert a linear map to its matrix (d_out, d_in) and its bias."""
    if isinstance(target, nn.Linear):
        weight, bias = target.weight.detach(), target.bias
    elif isinstance(target, nn.Module):
        raise ValueError(
            f"construct_linear needs a torch.nn.Linear or a matrix (d_out, d_in); got {type(target).__name__}. "
            "construct_feedforward and construct_attention take networks."
        )
    else:
        weight, bias = as_tensor("target", target).detach(), None
    check_target("target", weight)
    if weight.dim() != 2:
        raise ValueError(f"construct_linear needs a matrix (d_out, d_in); got shape {tuple(weight.shape)}.")
    if bias is not None:
        check_target("the target's bias", bias.detach())
    return weight, None if bias is None else bias.detach()


def as_feedforward(target: NetworkTarget) -> FeedForward:
    """Convert a network, a linear layer or a matrix to a `FeedForward`."""
    if isinstance(target, FeedForward):
        return target
    if isinstance(target, nn.Sequential | nn.Linear):
        layers = _linears_of(target)
        biases = [layer.bias.detach() if layer.bias is not None else None for layer in layers]
        return FeedForward([layer.weight.detach() for layer in layers], biases)
    if not isinstance(target, nn.Module):
        matrix = as_tensor("target", target)
        if matrix.dim() == 2:
            check_target("target", matrix)
            return FeedForward([matrix.detach()])
    got = type(target).__name__ if isinstance(target, nn.Module) else f"shape {tuple(matrix.shape)}"
    raise ValueError(
        "construct_feedforward needs a torch.nn.Sequential of Linear and ReLU, a torch.nn.Linear, a matrix or a "
        f"strongticket FeedForward; got {got}."
    )


def as_merged(target: AttentionTarget) -> MergedAttention:
    """Merge an attention given in any of its forms."""
    if isinstance(target, MergedAttention):
        return target
    if isinstance(target, nn.MultiheadAttention):
        for name, tensor in target.state_dict().items():
            check_target(f"the target's {name}", tensor)
        target = Attention.from_torch(target, dtype=torch.float64)
    if isinstance(target, Attention):
        return target.merged()
    raise ValueError(
        "construct_attention needs a torch.nn.MultiheadAttention or a strongticket Attention; "
        f"got {type(target).__name__}. Attention.from_linears builds one from four linear maps."
    )


def tensors_of(target: Target) -> dict[str, Tensor]:
    """Return a target's tensors by their `state_dict` names; a bare matrix is `weight`, and a path is read."""
    if isinstance(target, str | PathLike):
        return load_target(Path(target))
    if isinstance(target, nn.Module):
        if isinstance(target, nn.Sequential):
            _linears_of(target)  # its tensors alone do not show the functions between them
        target = target.state_dict()
    named: Mapping[str, Array] = target if isinstance(target, Mapping) else {"weight": target}
    return {name: as_tensor(f"the target's {name}", value).detach().cpu() for name, value in named.items()}


def heads_of(target: Target) -> int | None:
    """Return the number of heads of a target whose tensors do not show it."""
    return target.num_heads if isinstance(target, nn.MultiheadAttention) else None


def sizes_of(network: FeedForward) -> list[int]:
    """List the target's layer widths, inputs first."""
    return [network.weights[0].shape[1], *(weight.shape[0] for weight in network.weights)]


def _linears_of(target: nn.Sequential | nn.Linear) -> list[nn.Linear]:
    """Return the linear layers of a target that computes Linear, ReLU, Linear and so on, and nothing else."""
    modules = list(_flat(target))
    kinds = [nn.ReLU if i % 2 else nn.Linear for i in range(len(modules))]
    if len(modules) % 2 == 0 or not all(map(_is_plain, modules, kinds)):
        got = ", ".join(type(module).__name__ for module in modules) or "nothing"
        raise ValueError(
            f"construct_feedforward needs Linear, ReLU, Linear and so on, with a Linear at the end; got {got:.200}. "
            "Prune other layers one by one: construct_linear takes each Linear."
        )
    return [module for module in modules if isinstance(module, nn.Linear)]


def _flat(target: nn.Module) -> Sequence[nn.Module]:
    """Flatten nested sequences; omit modules that do nothing in evaluation."""
    if isinstance(target, nn.Sequential) and _is_plain(target, nn.Sequential):
        return [module for part in target for module in _flat(part)]
    return [] if isinstance(target, nn.Identity | nn.Dropout) else [target]


def _is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module computes what its kind does: a subclass may not."""
    return isinstance(module, kind) and type(module).forward is kind.forward
