"""Roles of parameters by name: query, key and value of an attention; gate, up and down of an MLP.

Fused parameters have many layouts; `sites.py` finds out which.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from strongticket.learn.groups import Place
from strongticket.tickets.fused import Cut, Role

_SIGNS: dict[str, tuple[Role, ...]] = {
    **dict.fromkeys(("q", "query", "queries", "wq"), ("query",)),
    **dict.fromkeys(("k", "key", "keys", "wk"), ("key",)),
    **dict.fromkeys(("v", "value", "values", "wv"), ("value",)),
    **dict.fromkeys(("qkv", "wqkv"), ("query", "key", "value")),
    "kv": ("key", "value"),
}
# Words allowed beside a role's sign, as in to_q or k_proj_weight. No others: a q_a_proj is only half a query.
_OTHERS = {"to", "w", "c", "in", "fc", "lin", "linear", "proj", "projection", "dense", "layer", "attn", "weight"}
_OTHERS |= {"global"}  # of tokens that see all others
_FUSED = {"c_attn", "in_proj", "in_proj_weight"}
_OUTPUTS = {"o", "wo", "out", "output", "o_proj", "out_proj", "out_lin", "c_proj", "proj", "dense"}
_MLP: dict[str, Role] = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
_ORDER: tuple[Role, ...] = ("query", "key", "value")

_WIDTHS = ("head_dim", "attention_head_size", "dim_head", "key_width", "head_size", "key_value_proj_dim")
_COUNTS = ("num_heads", "n_heads", "num_attention_heads", "n_head", "nhead", "heads")
_KEY_COUNTS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")


def label_of(place: Place) -> str:
    """Return the name of a parameter's layer, or its own name if the attention module holds it directly."""
    return place.path[-1] if place.path and place.attribute == "weight" else place.attribute


def site_of(place: Place) -> str:
    """Return the module that query, key and value share, or gate and up."""
    return ".".join(place.path[:-1] if label_of(place) != place.attribute else place.path)


def roles_of(place: Place) -> tuple[Role, ...]:
    """Return the roles that the name of an attention's parameter suggests: one, several side by side, or none."""
    label = label_of(place).lower()
    words = set(label.split("_"))
    if label in _FUSED:
        # Beside a separate query, as in GPT-2's cross-attention, it holds two.
        shape = place.parameter.shape
        return ("key", "value") if 2 * shape.numel() == shape[output_axis(place.holder)] ** 2 else _ORDER
    if label in _OUTPUTS:
        return ("output",)
    named = {role for word in words for role in _SIGNS.get(word, ())}
    return tuple(role for role in _ORDER if role in named) if words <= _SIGNS.keys() | _OTHERS else ()


def mlp_role_of(place: Place) -> Role | None:
    """Return the role that the name of an MLP's parameter suggests, if any."""
    return _MLP.get(label_of(place))


def output_axis(holder: nn.Module) -> int:
    """Return the axis of a weight's outputs; Hugging Face's Conv1D is (in, out)."""
    return int(type(holder).__name__ == "Conv1D" or isinstance(holder, _ConvTransposeNd))


def is_stack(place: Place) -> bool:
    """Whether a parameter stacks one matrix per expert."""
    if place.parameter.dim() != 3 or isinstance(place.holder, _ConvNd):
        return False
    return any("expert" in name.lower() for name in (*place.name.split("."), type(place.holder).__name__))


def cuts_of(place: Place, roles: Sequence[Role]) -> Iterator[Cut]:
    """Yield the ways in which a parameter may hold several roles, the usual ones first.

    Side by side; head by head, or key by key if several queries share one; in another number of blocks; and each of
    these in any order.
    """
    axis = output_axis(place.holder)
    size = place.parameter.shape[axis]
    count = next(_numbers(place, _COUNTS), None)
    for widths in _widths(place, roles, size, count):
        smallest = min(widths.values())
        width = key_width_of(place, "query", widths.get("query", smallest))
        groups = smallest // width if width and all(each % width == 0 for each in widths.values()) else 1
        blocks = [1, groups, *(n for n in range(groups - 1, 1, -1) if groups % n == 0)]
        for n in dict.fromkeys(blocks):
            for order in permutations(roles):
                yield Cut(axis, tuple((role, widths[role] // n) for role in order), n)


def _widths(place: Place, roles: Sequence[Role], size: int, count: int | None) -> Iterator[dict[Role, int]]:
    if size % len(roles) == 0:
        yield dict.fromkeys(roles, size // len(roles))
    width = next(_numbers(place, _WIDTHS), None)
    if "query" not in roles or width is None or count is None or len(roles) < 2:
        return
    of_keys, rest = divmod(size - count * width, len(roles) - 1)
    if rest == 0 and of_keys > 0 and of_keys % width == 0 and of_keys != count * width:
        yield {role: count * width if role == "query" else of_keys for role in roles}


def usual_cut(place: Place, roles: Sequence[Role]) -> Cut | None:
    """Without a check: return equal parts side by side, if the name and the shape leave no other choice."""
    if len(roles) < 2:
        return None
    label, words = label_of(place).lower(), set(label_of(place).lower().split("_"))
    shape = place.parameter.shape
    outputs = shape[output_axis(place.holder)]
    heads, key_heads = (next(_numbers(place, names), None) for names in (_COUNTS, _KEY_COUNTS))
    by_shape = len(roles) * shape.numel() == outputs * outputs
    if not (by_shape if label in _FUSED else words & {"qkv", "wqkv"} and key_heads in (None, heads)):
        return None
    return next((cut for cut in cuts_of(place, roles) if len({width for _, width in cut.parts}) == 1), None)


def key_width_of(place: Place, role: Role, outputs: int) -> int | None:
    """Find the width of a head in the modules around or a configuration, or from a number of heads."""
    if (width := next(_numbers(place, _WIDTHS), None)) is not None:
        return width
    counts = (*_KEY_COUNTS, *_COUNTS) if role == "key" else _COUNTS
    for count in _numbers(place, counts):
        if outputs % count == 0:
            return outputs // count
    return None


def _numbers(place: Place, names: tuple[str, ...]) -> Iterator[int]:
    """Look up attributes in the modules around a parameter, nearest first, and in their configurations."""
    for module in reversed(place.modules):
        for holder in (module, getattr(module, "config", None)):
            found: list[Any] = [getattr(holder, name, None) for name in names]
            yield from (number for number in found if type(number) is int and number > 0)
