"""Given samples of a pretrained model: checked, and run through it to see what its first layers read."""

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from strongticket.construct.certify import as_samples
from strongticket.errors import first_line
from strongticket.ops.arrays import Array, as_tensor
from strongticket.pretrained.check import inputs_for
from strongticket.pretrained.heads import Heads
from strongticket.pretrained.layer import Layer
from strongticket.pretrained.parts import Rotary
from strongticket.pretrained.target import Target

# Of a model with one list of layers; otherwise by the names that `sides` gives.
Samples = Array | Mapping[str, Array]


def sides(target: Target) -> dict[str, str]:
    """Return the lists of layers by the module that has them, such as "encoder"; "" if there is only one list."""
    paths = [*target.family.layers]
    return {"": paths[0]} if len(paths) == 1 else {path.partition(".")[0]: path for path in paths}


def unnamed(samples: Samples) -> Array:
    """Return the samples of a model that reads one thing only, under whatever name."""
    if not isinstance(samples, Mapping):
        return samples
    if len(samples) != 1:
        got = f"{len(samples)}: {', '.join(map(str, samples))}" if samples else "none"
        raise ValueError(f"samples must be one tensor; got {got}.")
    return next(iter(samples.values()))


def _is_joined(target: Target) -> bool:
    """Whether one side reads the outputs of the other; two towers do not."""
    parts = [part for listed in target.family.layers.values() for part in listed]
    return any(isinstance(part, Heads) and part.memory is not None for part in parts)


def as_inputs(target: Target, samples: Samples) -> dict[str, Tensor]:
    """Check samples of each side: tokens (sequences, T), or vectors (sequences, T, d) for the first layer."""
    names = [*sides(target)]
    if names == [""]:
        return {"": _as_rows(target, "", unnamed(samples))}
    # An encoder and a decoder are followed together, but of two towers only one.
    needed = [names] if _is_joined(target) else [[name] for name in names]
    if not isinstance(samples, Mapping) or {*samples} not in [{*each} for each in needed]:
        need = "two arrays, named" if len(needed) == 1 else "exactly one of"
        got = ", ".join(map(str, samples)) or "none" if isinstance(samples, Mapping) else "one array"
        raise ValueError(
            f"samples for this {target.model_type} need {need} {' and '.join(names)} (a dict in Python, a .safetensors "
            f"file with {'these names' if len(needed) == 1 else 'this name'} on the command line); got {got}."
        )
    rows = {name: _as_rows(target, name, samples[name]) for name in names if name in samples}
    rows = {name: x if _are_tokens(x) else x.reshape(-1, *x.shape[-2:]) for name, x in rows.items()}
    if len({len(x) for x in rows.values()}) > 1:
        got = " and ".join(str(len(x)) for x in rows.values())
        raise ValueError(f"{' and '.join(names)} need the same number of sequences; got {got}.")
    return rows


def _as_rows(target: Target, side: str, samples: Array) -> Tensor:
    """Check samples of one side: tokens (sequences, T), or vectors (..., T, d)."""
    values = samples if isinstance(samples, Tensor) else np.asarray(samples)
    dtype = str(values.dtype).removeprefix("torch.") if isinstance(values, Tensor) else values.dtype.name
    config = next(layer.config for layer, _ in target.parts.values() if layer.layers == sides(target)[side])
    whose = f"this {target.model_type}" + (f"'s {side}" if side else "")
    arguments = inspect.signature(target.backbone.get_submodule(side).forward).parameters
    if dtype.startswith(("int", "uint")):
        if "input_ids" not in arguments:
            raise ValueError(f"samples must be vectors: {whose} has no tokens; got integers.")
        rows = _as_tokens(values, config.vocab_size)
        length = rows.shape[1]
    else:
        given = torch.as_tensor(values) if dtype == "bool" else as_tensor("samples", values)
        width, shape = config.hidden_size, tuple(given.shape)
        if len(shape) < 2 or shape[-1] != width:
            advice = f"; tokens must be integers; these are {dtype}" if "input_ids" in arguments else ""
            raise ValueError(
                f"samples must be what the first layer of {whose} reads, (..., tokens, {width}); got {shape}{advice}."
            )
        if "pixel_values" in arguments and len(shape) > 3:
            raise ValueError(f"samples are patch vectors (sequences, patches, {width}), not pixels; got {shape}.")
        rows = as_samples(given, width)
        length = shape[-2]
    longest = target.most_tokens() if target.family.positions.startswith(side) else None
    if longest is not None and length > longest:
        raise ValueError(f"samples have {length} tokens; {whose} takes at most {longest}.")
    return rows


def _as_tokens(values: Array, vocabulary: int) -> Tensor:
    """Check tokens (..., T), and list their sequences."""
    # NumPy compares all of its integers; beyond int64 torch would change them.
    ids = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if not ids.size or not ids.ndim:
        raise ValueError(f"samples must have at least one token; their shape is {ids.shape}.")
    if len(wrong := ids[(ids < 0) | (ids >= vocabulary)]):
        raise ValueError(f"samples must be tokens from 0 to {vocabulary - 1}; got {wrong[0]}.")
    return torch.from_numpy(ids.astype(np.int64).reshape(-1, ids.shape[-1]))


class Run(NamedTuple):
    """What is seen when a model runs on samples."""

    read: dict[str, Tensor]  # by the first layer of each side, (..., T, d)
    output: Tensor  # the last hidden state, in the shape of what the last side reads
    rotary: Mapping[str, Rotary]  # by the layer's name; empty where queries and keys are not turned


def run(target: Target, inputs: Mapping[str, Tensor]) -> Run:
    """Run a model on tokens, or on vectors in place of what the first layer of a side would read."""
    side_of = {path: side for side, path in sides(target).items() if side in inputs}
    inputs = {side: inputs[side] for side in side_of.values()}
    batches = {side: x if _are_tokens(x) else x.view(-1, *x.shape[-2:]) for side, x in inputs.items()}
    layers = {layer.name: layer for layer, _ in target.parts.values() if layer.layers in side_of}
    read: dict[str, Any] = {}
    rotary: dict[str, Rotary] = {}
    outputs: list[Tensor] = []

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], layer: Layer) -> Any:
        if kwargs.get("position_embeddings") is not None:
            # Without padding all sequences have the same positions; samples may have any axes before the tokens'.
            cos, sin = kwargs["position_embeddings"]
            rotary[layer.name] = cos[0], sin[0]
        if layer.index:
            return None
        side, name = side_of[layer.layers], "hidden_states"
        theirs = kwargs.get(name, args[0] if args else None)
        read[side] = theirs if _are_tokens(inputs[side]) else batches[side]
        return ((read[side], *args[1:]), kwargs) if args else ((), {**kwargs, name: read[side]})

    def behind(_: nn.Module, __: tuple[Any, ...], output: Any) -> None:
        outputs.append(output[0])

    *_, last = inputs
    gives = target.backbone.get_submodule(last)
    # An encoder runs with its decoder, a tower by itself.
    runs = target.backbone if len(inputs) == len(sides(target)) else gives
    with ExitStack() as hooks:
        for layer in layers.values():
            hook = layer.module("").register_forward_pre_hook(partial(before, layer=layer), with_kwargs=True)
            hooks.callback(hook.remove)
        # Some backbones have a head on top of their decoder.
        hooks.callback(gives.register_forward_hook(behind).remove)
        try:
            runs(**_arguments(runs, getattr(runs, "config", target.config), batches))
        except (RuntimeError, IndexError, ValueError) as error:
            raise ValueError(f"this {target.model_type} cannot read these samples ({first_line(error)}).") from error
    # Each in the shape in which it came.
    shaped = {side: read[side] if _are_tokens(x) else x for side, x in inputs.items()}
    return Run(shaped, outputs[0].view(*shaped[last].shape[:-1], -1), rotary)


def _arguments(module: nn.Module, config: Any, batches: Mapping[str, Tensor]) -> dict[str, Any]:
    """Make a model's arguments; where vectors are given they only have the right shape."""
    made = inputs_for(module, config)
    first = next(iter(batches))
    for name, tensor in made.items():
        batch = batches[next((side for side in batches if name.startswith(f"{side}_")), first)]
        if name.endswith("input_ids"):
            made[name] = batch if _are_tokens(batch) else torch.zeros(batch.shape[:2], dtype=torch.int64)
        elif isinstance(tensor, Tensor):
            made[name] = tensor[:1].double().expand(len(batch), *tensor.shape[1:])
    return made


def _are_tokens(inputs: Tensor) -> bool:
    return not inputs.is_floating_point()
