"""Targets as people have them: every form gives the ticket that its tensors give, or one clear line."""

import re
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import strongticket as st
from strongticket.construct.given import as_feedforward, tensors_of
from strongticket.models.transformer import FeedForward
from strongticket.tickets.content import digest_of_tensors
from tests.construct.test_construct import assert_faithful, on_sphere

MATRIX = [[0.25, -0.5], [0.125, 0.75], [1.0, 0.0]]
WIDTHS = {"key_width": 64, "value_width": 64}


def sequence(*between: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 4), *between, nn.Linear(4, 3)).double()


class Backwards(nn.Sequential):
    """A sequence by its class, and not by what it computes."""

    def forward(self, x: Tensor) -> Tensor:
        for module in reversed(self):
            x = module(x)
        return x


def projections(*, bias: bool = True, dtype: torch.dtype = torch.float64) -> list[nn.Linear]:
    """Two heads of width 3 for queries and keys, of width 2 for values, from 5 features to 6."""
    torch.manual_seed(1)
    sizes = [(5, 6), (5, 6), (5, 4), (4, 6)]
    return [nn.Linear(d_in, d_out, bias=bias, dtype=dtype) for d_in, d_out in sizes]


def plain_attention(x: Tensor, query: nn.Linear, key: nn.Linear, value: nn.Linear, output: nn.Linear) -> Tensor:
    """As anybody would write it."""
    q, k, v = (linear(x).unflatten(-1, (2, -1)).transpose(-3, -2) for linear in (query, key, value))  # (B, H, T, n)
    heads: Tensor = nn.functional.scaled_dot_product_attention(q, k, v)
    return output(heads.transpose(-3, -2).flatten(-2))


def test_a_matrix_in_any_form_gives_one_ticket() -> None:
    expected = st.construct_linear(torch.tensor(MATRIX, dtype=torch.float64), hidden_width=48)
    forms: list[Any] = [MATRIX, np.array(MATRIX), nn.Parameter(torch.tensor(MATRIX, dtype=torch.float64))]
    for form in forms:
        ticket = st.construct_linear(form, hidden_width=48)
        assert ticket == expected
        assert st.certify(ticket, form, [1.0, 0.0]).error <= ticket.certificate.error
        assert st.verify(ticket, form).ok
    assert st.construct_linear(np.array(MATRIX, np.float32), hidden_width=48).certificate is not None


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_layer_keeps_its_bias_exactly(bias: bool) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(2, 3, bias=bias, dtype=torch.float64)
    ticket = st.construct_linear(layer, hidden_width=48, blocks="smaller")
    assert_faithful(ticket, layer, on_sphere(40, 2, norm=1.0, seed=0))
    assert ticket.strong
    assert ticket.certificate.target_sha256 == digest_of_tensors(layer.state_dict())
    found = st.certify(ticket, layer, [[0.5, 0.5]])
    x = torch.tensor([[0.5, 0.5]], dtype=torch.float64)
    assert (ticket.build(dtype=torch.float64)(x) - layer(x)).norm() <= found.error <= ticket.certificate.error
    if bias:
        assert torch.equal(ticket.dense["bias"].value, layer.bias)
        assert ticket.architecture["bias"] is True
    else:
        assert ticket.architecture.keys() == {"family", "d_in", "d_out", "hidden_width", "init", "blocks"}


def test_another_bias_does_not_verify() -> None:
    layer, other = nn.Linear(2, 3), nn.Linear(2, 3)
    ticket = st.construct_linear(layer, hidden_width=48)
    other.weight = layer.weight
    assert not st.verify(ticket, other).ok
    assert not st.verify(ticket, layer.weight).ok


def test_a_sequence_is_the_network_it_computes(tmp_path: Path) -> None:
    target = sequence(nn.ReLU())
    ticket = st.construct_feedforward(target, hidden_width=96)
    assert_faithful(ticket, target, on_sphere(40, 2, norm=1.0, seed=0))
    assert ticket.certificate.target_sha256 == digest_of_tensors(target.state_dict())
    save_file(target.state_dict(), tmp_path / "target.safetensors")
    for form in (target, target.state_dict(), tmp_path / "target.safetensors", str(tmp_path / "target.safetensors")):
        assert st.verify(ticket, form).ok
        assert st.certify(ticket, form, np.array([[0.5, 0.5]])).error <= ticket.certificate.error


def test_sequences_inside_sequences_names_dropout_and_one_relu_for_all() -> None:
    torch.manual_seed(0)
    relu, layers = nn.ReLU(), [nn.Linear(2, 2) for _ in range(12)]
    expected = FeedForward([x.weight for x in layers], [x.bias for x in layers])
    parts = [part for layer in layers for part in (layer, relu)][:-1]
    named = OrderedDict((f"part{i}", part) for i, part in enumerate(parts))
    nested = nn.Sequential(nn.Sequential(*parts[:5]), nn.Dropout(0.5), nn.Identity(), *parts[5:])
    x = torch.randn(4, 2)
    for target in (nn.Sequential(*parts), nn.Sequential(named), nested):
        network = as_feedforward(target)
        torch.testing.assert_close(network(x), expected(x))
        ticket = st.construct_feedforward(target, hidden_width=40)
        assert st.verify(ticket, target).ok
        # A file has them by name, 10 before 2. Numbers say the order; without them the wrong one is noticed.
        by_name = dict(sorted(target.state_dict().items()))
        assert st.verify(ticket, by_name).ok == ("part0.weight" not in by_name)


@pytest.mark.parametrize(
    ("target", "got"),
    [
        (sequence(nn.GELU()), "got Linear, GELU, Linear. Prune other layers one by one: construct_linear"),
        (sequence(), "got Linear, Linear."),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "got Linear, ReLU."),
        (nn.Sequential(nn.ReLU(), nn.Linear(2, 2), nn.ReLU()), "got ReLU, Linear, ReLU."),
        (nn.Sequential(), "got nothing."),
        (Backwards(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), "got Backwards."),
        (nn.Sequential(nn.LayerNorm(2)), "got LayerNorm."),
        (nn.GELU(), "a matrix or a strongticket FeedForward; got GELU."),
        (nn.MultiheadAttention(4, 2), "got MultiheadAttention."),
        ([0.5, 0.5], "got shape (2,)."),
        ([[float("nan")]], "target must be finite; entry (0, 0) is nan."),
        (torch.ones(2, 2, dtype=torch.int64), "target must be a float tensor; got torch.int64."),
        (None, "target must be a tensor, an array or a list of numbers, in rows of one length; got None."),
    ],
)
def test_other_networks_are_refused_in_one_line(target: Any, got: str) -> None:
    with pytest.raises(ValueError, match=re.escape(got)) as refused:
        st.construct_feedforward(target, hidden_width=48)
    assert "\n" not in str(refused.value)


def test_a_sequence_of_other_functions_does_not_verify_by_its_tensors() -> None:
    ticket = st.construct_feedforward(sequence(nn.ReLU()), hidden_width=96)
    with pytest.raises(ValueError, match="got Linear, GELU, Linear"):
        st.verify(ticket, sequence(nn.GELU()))


@pytest.mark.parametrize(
    ("target", "got"),
    [
        (sequence(nn.ReLU()), "got Sequential. construct_feedforward and construct_attention take networks."),
        ([0.5, 0.5], "got shape (2,)."),
        ([[1, 2], [3]], "target must be a tensor, an array or a list of numbers, in rows of one length"),
        ([[float("inf")]], "target must be finite; entry (0, 0) is inf."),
        ([[]], "target has no entries: its shape is (1, 0)."),
        ("weights.npy", "got 'weights.npy'."),
    ],
)
def test_other_linear_maps_are_refused_in_one_line(target: Any, got: str) -> None:
    with pytest.raises(ValueError, match=re.escape(got)) as refused:
        st.construct_linear(target, hidden_width=48)
    assert "\n" not in str(refused.value)


def test_a_bias_that_is_no_number_is_refused() -> None:
    layer = nn.Linear(2, 2)
    layer.bias.data[1] = torch.nan
    for construct in (st.construct_linear, st.construct_feedforward):
        with pytest.raises(ValueError, match=r"bias.* must be finite; entry \(1,\) is nan"):
            construct(layer, hidden_width=48)


@pytest.mark.parametrize("bias", [True, False])
def test_four_linear_maps_are_an_attention(bias: bool) -> None:
    maps = projections(bias=bias)
    attention = st.Attention.from_linears(*maps, n_heads=2)
    x = on_sphere(3, 7, 5, norm=2.0, seed=0)
    torch.testing.assert_close(attention(x), plain_attention(x, *maps))
    ticket = st.construct_attention(attention, input_norm=2.0, key_width=60, value_width=60)
    assert_faithful(ticket, attention, x)
    assert st.verify(ticket, attention).ok
    assert ticket.architecture["query_bias"] is ticket.architecture["output_bias"] is bias


def test_any_of_the_biases_may_be_missing() -> None:
    x = on_sphere(2, 4, 5, norm=1.0, seed=3)
    for without in range(4):
        maps = projections()
        maps[without].bias = None
        torch.testing.assert_close(st.Attention.from_linears(*maps, n_heads=2)(x), plain_attention(x, *maps))


def test_linear_maps_as_arrays_and_of_several_types() -> None:
    maps = projections(bias=False)
    x = on_sphere(2, 4, 5, norm=1.0, seed=3)
    arrays: list[Any] = [linear.weight.detach().numpy() for linear in maps]
    for given in (arrays, [array.tolist() for array in arrays], [maps[0], *arrays[1:]]):
        torch.testing.assert_close(st.Attention.from_linears(*given, 2)(x), plain_attention(x, *maps))
    mixed = st.Attention.from_linears(maps[0].float(), *maps[1:], n_heads=2)
    assert {parameter.dtype for parameter in mixed.parameters()} == {torch.float64}


def test_from_torch_and_from_linears_give_the_same_bits() -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(6, 2)
    nn.init.normal_(module.in_proj_bias)
    maps = [nn.Linear(6, 6) for _ in range(4)]
    weights, biases = module.in_proj_weight.detach().chunk(3), module.in_proj_bias.detach().chunk(3)
    for linear, weight, bias in zip(maps, weights, biases, strict=False):
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
    maps[3] = module.out_proj
    one, other = st.Attention.from_torch(module), st.Attention.from_linears(*maps, n_heads=2)
    assert all(torch.equal(one.state_dict()[name], value) for name, value in other.state_dict().items())
    assert torch.equal(one.bias_rounding, other.bias_rounding)


@pytest.mark.parametrize(
    ("change", "n_heads", "got"),
    [
        ({}, 4, "got (6, 5), (6, 5), (4, 5), (6, 4) and n_heads=4."),
        ({}, 0, "and n_heads=0."),
        ({}, 2.0, "n_heads must be whole numbers of at least 0; got 2.0."),
        ({1: nn.Linear(5, 3)}, 2, "got (6, 5), (3, 5), (4, 5), (6, 4) and n_heads=2."),
        ({3: nn.Linear(6, 4)}, 2, "(4, 6) and n_heads=2."),
        ({0: nn.Conv1d(5, 6, 1)}, 2, "query must be a torch.nn.Linear or a matrix (out, in); got Conv1d."),
        ({2: [0.5]}, 2, "value must be a float matrix (out, in); got torch.float64 (1,)."),
        (
            {2: torch.ones(4, 5, dtype=torch.int64)},
            2,
            "value must be a float matrix (out, in); got torch.int64 (4, 5).",
        ),
        ({1: "key"}, 2, "key must be a tensor, an array or a list of numbers"),
    ],
)
def test_maps_that_make_no_attention(change: dict[int, Any], n_heads: Any, got: str) -> None:
    maps: list[Any] = [*projections()]
    for place, other in change.items():
        maps[place] = other
    with pytest.raises(ValueError, match=re.escape(got)) as refused:
        st.Attention.from_linears(*maps, n_heads=n_heads)
    assert "\n" not in str(refused.value)


def test_attention_is_refused_with_the_way_to_make_one() -> None:
    with pytest.raises(ValueError, match=r"got ModuleList. Attention.from_linears builds one from four linear maps"):
        st.construct_attention(nn.ModuleList(projections()), **WIDTHS)  # type: ignore[arg-type]
    maps = projections()
    maps[0].weight.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="W_QK must be finite; entry"):
        st.construct_attention(st.Attention.from_linears(*maps, n_heads=2), key_width=60, value_width=60)


def test_a_module_with_other_heads_is_another_target() -> None:
    """Its tensors are the same, which is all that a file has."""
    one, other = nn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 1)
    other.load_state_dict(one.state_dict())
    ticket = st.construct_attention(one, **WIDTHS)
    assert st.verify(ticket, one).ok
    assert not st.verify(ticket, other)
    assert st.verify(ticket, other).failures == ("the ticket has 2 heads, the target 1.",)
    with pytest.raises(st.StrongTicketError, match="the ticket has 2 heads, the target 1"):
        st.certify(ticket, other, torch.zeros(3, 4))


def test_samples_and_masks_may_be_arrays() -> None:
    attention = st.Attention.from_linears(*projections(), n_heads=2)
    samples = on_sphere(2, 3, 5, norm=1.0, seed=0)
    arguments: dict[str, Any] = {"key_width": 60, "value_width": 60}
    ticket = st.construct_attention(attention, samples=samples.numpy(), **arguments)
    assert ticket == st.construct_attention(attention, samples=samples, **arguments)
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    expected = st.certify(ticket, attention, samples, attends=causal)
    assert st.certify(ticket, attention, samples.tolist(), attends=causal.tolist()).error == expected.error
    with pytest.raises(ValueError, match=r"attends must be .* a list of True and False"):
        st.certify(ticket, attention, samples, attends=causal.int().tolist())


def test_width_for_takes_the_same_targets() -> None:
    by_list = st.width_for([[0.5, -0.25]], tol=0.1, sources=3)
    assert by_list == st.width_for(torch.tensor([[0.5, -0.25]], dtype=torch.float64), tol=0.1, sources=3)
    assert st.width_for(sequence(nn.ReLU()), tol=0.5, sources=2).found is not None


def test_our_own_modules_take_arrays() -> None:
    maps = [np.ones((1, 2, 1)), np.ones((1, 2, 1)), np.ones((1, 2, 1)), np.ones((1, 1, 2))]
    attention = st.Attention(*maps, output_bias=[1.0, 2.0])
    assert attention(torch.zeros(3, 2, dtype=torch.float64)).tolist() == [[1.0, 2.0]] * 3
    network = st.FeedForward([MATRIX, [[1, 1, 1]]], [None, [0.5]])
    assert network(torch.zeros(2, dtype=torch.float64)).tolist() == [0.5]
    with pytest.raises(ValueError, match=r"a weight must be a tensor, .*; got 'W'"):
        st.FeedForward(["W"])


def test_a_verification_is_true_where_it_is_ok() -> None:
    assert st.verify(st.construct_linear(MATRIX, hidden_width=48), MATRIX)
    assert not st.Verification(("something",))


def test_tensors_are_named_as_the_target_names_them() -> None:
    assert tensors_of(MATRIX).keys() == {"weight"}
    assert tensors_of(sequence(nn.ReLU())).keys() == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert tensors_of({"weight": MATRIX})["weight"].tolist() == MATRIX
    with pytest.raises(ValueError, match=r"the target's bias must be a tensor, .* got None"):
        tensors_of({"bias": None})  # type: ignore[dict-item]
