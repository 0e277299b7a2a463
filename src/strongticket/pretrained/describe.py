"""Describe a model's family in words; for a model without one, write a starting point from what the model does."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from strongticket.errors import StrongTicketError
from strongticket.pretrained.check import inputs_for
from strongticket.pretrained.heads import why_not_merged
from strongticket.pretrained.layer import LINEAR_MAPS
from strongticket.pretrained.target import Target

_NAMES = ("Heads", "LinearMap", "Norm", "fused_gated_mlp", "gated_mlp", "mlp")
_GATES = ("gate", "w1", "wi_0")


def describe(target: Target) -> Iterator[str]:
    """List a model's lists of layers, and the parts of each layer."""
    chosen = target.family.chosen(target.what, target.asked)
    for path, parts in chosen.items():
        n = sum(layer.layers == path for layer, part in target.parts.values() if part == parts[0])
        yield f"{path or 'the model itself'}: {n} layer{'' if n == 1 else 's'}"
        for part in parts:
            yield f"  {part.name:18} {type(part).__name__:9} at {part.at or '.'}, reads {part.input.in_words()}"


@dataclass(frozen=True, slots=True)
class _Map:
    path: str  # in its layer
    norm: str  # the source of its inputs, as written in a family, or ""
    d_in: int
    d_out: int

    @property
    def word(self) -> str:
        return self.path.rpartition(".")[2].lower()


def skeleton(model: nn.Module) -> str:
    """Write a family for a model that has none, from which map reads the output of which norm.

    Args:
        model: on meta, where it runs without numbers.
    """
    backbone, config = getattr(model, "base_model", model), cast("Any", model.config)
    lists = [
        name
        for name, module in backbone.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) and any(_is_map(inner) for inner in module[0].modules())
    ]
    # A list inside a layer is covered by the layer.
    lists = [name for name in lists if not any(name.startswith(f"{outer}.") for outer in lists)]
    if not lists:
        raise StrongTicketError(
            f"no draft can be made for a {config.model_type}: it has no list of layers with linear maps "
            f"({', '.join(LINEAR_MAPS[:2])})."
        )
    norms = _norms_by_reader(backbone, config)
    written: list[str] = []
    for i, path in enumerate(lists):
        written += [f"layer_{i} = [", *(f"    {line}" for line in _parts(backbone, path, norms)), "]"]
    names = [name for name in _NAMES if re.search(rf"\b{name}\(", "\n".join(written))]
    reason = why_not_merged(config)
    draft = "# A draft, made from what the model does; check it against the model's source."
    said = [draft, *([f"# Note that {config.model_type} {reason}"] if reason else [])]
    written = [
        *said,
        f"from strongticket.pretrained import Family, {', '.join([*names, 'register_family'])}",
        "",
        *written,
    ]
    layers = ", ".join(f'"{path}": layer_{i}' for i, path in enumerate(lists))
    linear = ", linear=True" if reason else ""
    causal, image = getattr(model, "lm_head", None) is not None, getattr(model, "main_input_name", "") == "pixel_values"
    kind = ', kind="causal"' if causal else ', kind="image"' if image else ""
    return "\n".join([*written, f'register_family("{config.model_type}", Family({{{layers}}}{kind}{linear}))', ""])


def _is_map(module: nn.Module) -> bool:
    return type(module).__name__ in LINEAR_MAPS


def _norms_by_reader(backbone: nn.Module, config: Any) -> dict[str, str]:
    """Run a model, and return the place of the norm whose output each linear map reads, by the map's place."""
    made: dict[int, tuple[str, Tensor]] = {}  # keeps the tensor, or another could get its id
    read: dict[str, str] = {}

    def gave(_: nn.Module, __: Any, output: Tensor, name: str) -> None:
        made[id(output)] = name, output

    def took(_: nn.Module, args: tuple[Tensor, ...], name: str) -> None:
        if id(args[0]) in made:
            read[name] = made[id(args[0])][0]

    for name, module in backbone.named_modules():
        if "norm" in type(module).__name__.lower():
            module.register_forward_hook(partial(gave, name=name))
        elif _is_map(module):
            module.register_forward_pre_hook(partial(took, name=name))
    # Arbitrary code, run without numbers: it may fail in any way, and what it did until then is still seen. Some models
    # look at the numbers of a given mask, others only if there is none.
    with suppress(Exception):
        batch = inputs_for(backbone, config)
        with suppress(Exception):
            backbone(**batch)
        backbone(**batch, attention_mask=torch.ones_like(batch["input_ids"]))
    return read


def _parts(backbone: nn.Module, path: str, norms: dict[str, str]) -> Iterator[str]:
    layers: Any = backbone.get_submodule(path)
    # The second layer shows how it reads the first one's output, if the model ran that far without numbers.
    index = int(any(name.startswith(f"{path}.1.") for name in norms))
    found = []
    for name, module in layers[index].named_modules():
        if _is_map(module):
            place, weight = norms.get(f"{path}.{index}.{name}", ""), module.weight
            d_in, d_out = weight.shape if type(module).__name__ == "Conv1D" else reversed(weight.shape)
            found.append(_Map(name, _as_norm(place, path, index, norms.get(f"{path}.0.{name}", "")), d_in, d_out))
    attention = [each for each in found if "att" in each.path.lower()]
    rest = [each for each in found if each not in attention]
    yield from _heads(attention)
    yield from _mlp(rest)


def _as_norm(place: str, path: str, index: int, first: str) -> str:
    if place.startswith(f"{path}.{index}."):
        return f'Norm("{place.removeprefix(f"{path}.{index}.")}")'
    if index and place.startswith(f"{path}.0."):
        return f'Norm("../{place.removeprefix(f"{path}.0.")}", first="{first}")'
    return f'Norm("/{place}")' if place else ""


def _heads(found: list[_Map]) -> Iterator[str]:
    inputs, outputs = [each for each in found if each.norm], [each for each in found if not each.norm]
    # A single one makes queries, keys and values.
    by_letter = inputs * 3 if len(inputs) == 1 else sorted(inputs, key=lambda each: "qkv".find(each.word[:1]))
    if len(outputs) != 1 or (len(inputs) != 1 and "".join(each.word[:1] for each in by_letter) != "qkv"):
        yield from _each(found)
        return
    at = by_letter[0].path.rpartition(".")[0]
    paths = ", ".join(f'"{each.path}"' for each in (*by_letter, *outputs))
    yield from ("Heads(", f'    at="{at}",', f"    maps=({paths}),", f"    input={by_letter[0].norm},", "),")


def _mlp(found: list[_Map]) -> Iterator[str]:
    inputs, outputs = [each for each in found if each.norm], [each for each in found if not each.norm]
    if len(outputs) == 1 and len(inputs) in (1, 2):
        (down,), norm = outputs, inputs[0].norm
        ordered = sorted(inputs, key=lambda each: each.word not in _GATES and "gate" not in each.word)
        paths = ", ".join(f'"{each.path}"' for each in (*ordered, down))
        fused = "fused_gated_mlp" if inputs[0].d_out == 2 * down.d_in else "mlp"
        yield f"*{'gated_mlp' if len(inputs) == 2 else fused}({paths}, {norm}),"
        return
    yield from _each(found)


def _each(found: list[_Map]) -> Iterator[str]:
    for each in found:
        bound = each.norm or "..."
        ask = "" if each.norm else "  # what bounds its inputs?"
        yield f'LinearMap("{each.path}", "{each.path}", {bound}),{ask}'
