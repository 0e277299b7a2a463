from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from strongticket.learn.groups import Place, places_of
from strongticket.learn.roles import cuts_of, key_width_of, roles_of, usual_cut


class Layer(nn.Module):
    """An attention layer with one parameter and some attributes."""

    def __init__(self, label: str, shape: tuple[int, ...] = (12, 12), **attributes: Any) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)
        if label.endswith("weight"):
            self.register_parameter(label, nn.Parameter(torch.ones(shape)))
        else:
            layer = nn.Linear(1, 1, bias=False)
            layer.weight = nn.Parameter(torch.ones(shape))
            self.add_module(label, layer)


def place_in(module: nn.Module) -> Place:
    ((place,),) = places_of(module).values()
    return place


@pytest.mark.parametrize(
    ("label", "role"),
    [
        *(
            (label, "query")
            for label in ("query", "q", "q_proj", "to_q", "Wq", "w_q", "q_lin", "q_proj_weight", "q_attn")
        ),
        *((label, "key") for label in ("key", "k", "k_proj", "to_k", "Wk", "key_layer", "k_proj_weight")),
        *((label, "value") for label in ("value", "v_proj", "Wv", "v_proj_weight")),
        *((label, "output") for label in ("o_proj", "out_proj", "dense", "c_proj", "proj", "out_lin")),
        *((label, "query") for label in ("query_global", "q_global")),
        *((label, None) for label in ("q_a_proj", "pos_proj", "rotary", "kv_a_proj_with_mqa")),
        ("kv_proj", "key value"),
        *((label, "query key value") for label in ("query_key_value", "qkv_proj", "Wqkv", "in_proj_weight", "c_attn")),
    ],
)
def test_layers_by_name(label: str, role: str | None) -> None:
    assert roles_of(place_in(Layer(label))) == tuple((role or "").split())


@pytest.mark.parametrize(
    ("label", "shape", "attributes", "fused"),
    [
        ("in_proj_weight", (36, 12), {}, True),
        ("c_attn", (36, 12), {}, True),
        ("qkv", (36, 12), {}, True),
        ("to_qkv", (48, 12), {"heads": 4}, True),  # heads together wider than the stream
        ("qkv_proj", (36, 12), {"num_heads": 3, "num_key_value_heads": 3}, True),
        ("qkv_proj", (24, 12), {"num_heads": 4, "num_key_value_heads": 1}, False),  # one key for four queries
        ("qkv", (32, 12), {}, False),
        # Interleaved by heads in the models that use this name: no thirds.
        ("query_key_value", (36, 12), {"num_heads": 3}, False),
    ],
)
def test_fused_layers_that_nothing_can_check(
    label: str, shape: tuple[int, ...], attributes: dict[str, int], fused: bool
) -> None:
    place, roles = place_in(Layer(label, shape, **attributes)), ("query", "key", "value")
    cut = usual_cut(place, roles)
    assert (cut is not None) == fused
    if cut is not None:
        assert cut.to_json() == 0  # side by side, in equal parts


def test_a_cross_attention_has_key_and_value_beside_its_query() -> None:
    assert roles_of(place_in(Layer("c_attn", (24, 12)))) == ("key", "value")


def test_the_ways_to_lie_begin_with_the_usual_ones_and_fill_the_parameter() -> None:
    place, roles = place_in(Layer("qkv", (24, 8), num_heads=4, head_dim=2)), ("query", "key", "value")
    ways = [*cuts_of(place, roles)]
    assert [(cut.blocks, [*cut.names()]) for cut in ways[:2]] == [(1, [*roles]), (1, ["query", "value", "key"])]
    assert {cut.blocks for cut in ways} == {1, 2, 4}
    assert len(ways) == 18
    assert all(cut.fits((24, 8)) for cut in ways)
    grouped = [*cuts_of(place_in(Layer("qkv", (16, 8), num_heads=4, head_dim=2)), roles)]
    assert {tuple(sorted(cut.parts)) for cut in grouped if cut.blocks == 2} == {
        (("key", 2), ("query", 4), ("value", 2))
    }


SETTINGS = SimpleNamespace(num_attention_heads=6)


@pytest.mark.parametrize(
    ("attributes", "width"),
    [
        ({"num_heads": 3}, 4),
        ({"n_heads": 3, "head_dim": 5}, 5),
        ({"attention_head_size": 7}, 7),
        ({"config": SETTINGS}, 2),
        ({"n_heads": 3, "config": SETTINGS}, 4),
        ({"n_heads": 5}, None),  # 12 is no multiple
        ({"n_heads": "3", "head_dim": None, "heads": True, "num_heads": 0}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_width_of_a_head(attributes: dict[str, Any], width: int | None) -> None:
    assert key_width_of(place_in(Layer("query", **attributes)), "query", 12) == width


def test_the_nearest_module_knows_best_and_a_far_one_helps() -> None:
    inner = Layer("query", n_heads=3)
    assert key_width_of(place_in(nn.ModuleList([inner])), "query", 12) == 4
    outer = nn.ModuleList([Layer("query")])
    outer.num_heads = 2
    assert key_width_of(place_in(outer), "query", 12) == 6


def test_keys_shared_by_queries_are_as_wide_as_these() -> None:
    layer = Layer("key", shape=(6, 12), num_heads=4, num_key_value_heads=2)
    assert key_width_of(place_in(layer), "key", 6) == 3
