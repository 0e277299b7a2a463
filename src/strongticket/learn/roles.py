"""What is a query, a key or a value in an attention layer, by name; and how wide its heads are."""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvTransposeNd

from strongticket.learn.groups import Place
from strongticket.tickets.restore import FUSED, Role

_SIGNS: dict[str, Role] = {
    **dict.fromkeys(("q", "query", "queries", "wq"), "query"),
    **dict.fromkeys(("k", "key", "keys", "wk"), "key"),
    **dict.fromkeys(("v", "value", "values", "wv"), "value"),
}
# Words that may stand beside a sign, as in to_q or k_proj_weight. Not others: a q_a_proj is only half a query.
_OTHERS = {"to", "w", "c", "in", "fc", "lin", "linear", "proj", "projection", "dense", "layer", "attn", "weight"}
_FUSED_SIGNS = {"qkv", "wqkv"}
_FUSED_NAMES = {"c_attn", "in_proj", "in_proj_weight"}

_WIDTHS = ("head_dim", "attention_head_size", "dim_head", "key_width")
_COUNTS = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "heads")
_KEY_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")


def roles_of(place: Place) -> tuple[Role, ...]:
    """Name what a parameter of an attention layer holds side by side: three roles, one, or none that is known."""
    # An attention module may hold its weights itself or have a layer for each.
    label = (place.path[-1] if place.path and place.attribute == "weight" else place.attribute).lower()
    words = set(label.split("_"))
    if (words & _FUSED_SIGNS or label in _FUSED_NAMES) and _in_thirds(place, label):
        return FUSED
    roles = {_SIGNS[word] for word in words if word in _SIGNS}
    return tuple(roles) if len(roles) == 1 and words <= _SIGNS.keys() | _OTHERS else ()


def _in_thirds(place: Place, label: str) -> bool:
    """Whether a fused parameter is query, key and value in equal parts; several queries may share a key."""
    shape = place.holder.get_parameter(place.attribute).shape
    outputs = shape[output_axis(place.holder)]
    if label in _FUSED_NAMES:
        return 3 * shape.numel() == outputs * outputs
    heads, key_heads = (next(_numbers(place, names), None) for names in (_COUNTS, _KEY_COUNTS))
    return outputs % 3 == 0 and key_heads in (None, heads)


def output_axis(holder: nn.Module) -> int:
    """Tell along which axis of a weight the outputs lie; Hugging Face's Conv1D has (in, out)."""
    return int(type(holder).__name__ == "Conv1D" or isinstance(holder, _ConvTransposeNd))


def key_width_of(place: Place, role: Role, outputs: int) -> int | None:
    """Find the width of a head: said by the module around it or a configuration, or from a number of heads."""
    if (width := next(_numbers(place, _WIDTHS), None)) is not None:
        return width
    counts = (*_KEY_COUNTS, *_COUNTS) if role == "key" else _COUNTS
    for count in _numbers(place, counts):
        if outputs % count == 0:
            return outputs // count
    return None


def _numbers(place: Place, names: tuple[str, ...]) -> Iterator[int]:
    """Look attributes up in the modules around a parameter, the nearest first, and in their configurations."""
    for module in reversed(place.modules):
        for holder in (module, getattr(module, "config", None)):
            found: list[Any] = [getattr(holder, name, None) for name in names]
            yield from (number for number in found if type(number) is int and number > 0)
