from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import nn

import strongticket as st
from strongticket.construct.recertify import failures, recertify
from strongticket.errors import StrongTicketError
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from tests.construct.test_construct import draw, random_attention
from tests.tickets import edited, small_ticket


def constructed() -> dict[str, tuple[st.Ticket, dict[str, torch.Tensor]]]:
    torch.manual_seed(0)
    attention = random_attention(2, 3, 2, bias=True, seed=0)
    torch_attention = nn.MultiheadAttention(4, 2)
    network = FeedForward([draw(3, 2, seed=0), draw(2, 3, seed=1)], [draw(3, seed=2), None])
    transformer = random_transformer(2, 2, key_width=3, generator=torch.Generator().manual_seed(0))
    matrix, layer = draw(2, 3, seed=5), nn.Linear(3, 2)
    widths = {"key_width": 48, "value_width": 48}
    return {
        "linear": (st.construct_linear(matrix, hidden_width=48), {"weight": matrix}),
        "matrix": (st.construct_feedforward(matrix, hidden_width=48), {"weight": matrix}),
        "layer": (st.construct_feedforward(layer, hidden_width=48), layer.state_dict()),
        "feedforward": (st.construct_feedforward(network, hidden_width=48), network.state_dict()),
        "attention": (st.construct_attention(attention, **widths), attention.state_dict()),
        "merged": (st.construct_attention(attention.merged(), **widths), attention.merged().state_dict()),
        "smaller": (st.construct_attention(attention, blocks="smaller", **widths), attention.state_dict()),
        "torch": (st.construct_attention(torch_attention, **widths), torch_attention.state_dict()),
        "transformer": (
            st.construct_transformer(transformer, hidden_width=48, **widths),
            transformer.state_dict(),
        ),
    }


@pytest.mark.parametrize("name", constructed())
def test_certificate_comes_out_the_same_from_the_file(name: str) -> None:
    ticket, target = constructed()[name]
    loaded = st.Ticket.from_bytes(ticket.to_bytes())
    assert recertify(loaded, target).error == pytest.approx(ticket.certificate.error, rel=1e-9)
    assert failures(loaded, target) == []
    boasting = edited(ticket.to_bytes(), lambda d: d["certificate"].update(error=ticket.certificate.error * 0.999))
    (failure,) = failures(st.Ticket.from_bytes(boasting), target)
    assert "the masks and the target give" in failure


def with_dense(ticket: st.Ticket, dense: Iterable[st.DenseTensor], **changes: Any) -> st.Ticket:
    """Forge a ticket: the same masks and certificate, other dense tensors, and what else is given."""
    same = {"seed": ticket.seed, "tensors": ticket.tensors.values(), "certificate": ticket.certificate}
    return st.Ticket(**{**same, "dense": dense, "architecture": ticket.architecture, **changes})


def biased_transformer() -> Transformer:
    attention = random_attention(1, 2, 2, bias=True, seed=0)
    network = FeedForward([draw(3, 2, seed=0), draw(2, 3, seed=1)], [draw(3, seed=2), draw(2, seed=3)])
    return Transformer([Block(attention, network), Block(attention, FeedForward([draw(2, 2, seed=4)]))])


@pytest.mark.parametrize("name", ["layer", "feedforward", "attention", "merged", "torch", "transformer"])
def test_biases_must_be_the_targets(name: str) -> None:
    ticket, target = constructed()[name]
    if name == "transformer":
        model = biased_transformer()
        ticket = st.construct_transformer(model, key_width=24, value_width=24, hidden_width=24)
        target = model.state_dict()
        assert set(ticket.dense) == {
            "block.0.attention.output_bias",
            "block.0.feedforward.layer.0.bias",
            "block.0.feedforward.layer.1.bias",
            "block.1.attention.output_bias",
        }
    assert failures(ticket, target) == []
    dense = list(ticket.dense.values())
    for i, bias in enumerate(dense):
        for shift in (100.0, 1e-6, float("nan")):
            value = bias.value.clone()
            value[-1] += shift
            shifted = st.DenseTensor(name=bias.name, value=value)
            (failure,) = failures(with_dense(ticket, [*dense[:i], shifted, *dense[i + 1 :]]), target)
            assert failure.startswith(f"{bias.name} is not the target's: entries differ by up to ")
        short = st.DenseTensor(name=bias.name, value=bias.value[:1])
        (failure,) = failures(with_dense(ticket, [*dense[:i], short, *dense[i + 1 :]]), target)
        assert failure == f"{bias.name} has shape (1,), the target's {tuple(bias.value.shape)}."
        (failure,) = failures(with_dense(ticket, dense[:i] + dense[i + 1 :]), target)
        assert failure == f"the ticket has no dense tensor {bias.name}, and the target has one."


@pytest.mark.parametrize(("name", "added"), [("linear", "bias"), ("matrix", "layer.0.bias")])
def test_a_target_without_biases_makes_none(name: str, added: str) -> None:
    ticket, target = constructed()[name]
    forged = with_dense(ticket, [st.DenseTensor(name=added, value=torch.full((2,), 100.0))])
    (failure,) = failures(forged, target)
    assert failure == f"the ticket has a dense tensor {added}, and the target makes none of that name."


def test_a_merged_bias_may_round_otherwise() -> None:
    """Where the value bias is multiplied out, another machine adds in another order."""
    ticket, target = constructed()["torch"]
    target = {name: draw(*tensor.shape, seed=1).float() for name, tensor in target.items()}
    module = nn.MultiheadAttention(4, 2)
    module.load_state_dict(target)
    ticket = st.construct_attention(module, key_width=48, value_width=48)
    bias = ticket.dense["output_bias"].value
    near = st.DenseTensor(name="output_bias", value=torch.nextafter(bias, torch.full_like(bias, 9.0)))
    assert not torch.equal(near.value, bias)
    assert failures(with_dense(ticket, [near]), target) == []


def test_another_target_is_named() -> None:
    ticket, target = constructed()["linear"]
    (failure,) = failures(ticket, {"weight": target["weight"] + 1})
    assert "the certificate is for" in failure


@pytest.mark.parametrize(
    "architecture",
    [
        {"family": []},
        {"family": "transformer", "blocks": [1]},
        {"family": "transformer", "blocks": []},
        {"family": "linear"},
    ],
)
def test_hostile_architectures_are_refused(architecture: dict[str, object]) -> None:
    ticket, target = constructed()["attention"]
    data = edited(ticket.to_bytes(), lambda d: d["content"].update(architecture=architecture))
    hostile = st.Ticket.from_bytes(data)
    with pytest.raises(StrongTicketError):
        recertify(hostile, target)
    if architecture.get("blocks") != []:
        with pytest.raises(StrongTicketError):
            hostile.build()


def test_what_cannot_be_certified_is_said() -> None:
    with pytest.raises(StrongTicketError, match="family 'test' are not constructed from a target"):
        recertify(small_ticket(), {})
    ticket, _ = constructed()["attention"]
    with pytest.raises(StrongTicketError, match="the target does not fit a ticket of family 'attention'"):
        recertify(ticket, {"weight": torch.ones(2, 2)})
    with pytest.raises(StrongTicketError, match="has no certificate"):
        recertify(st.Ticket(seed=0, tensors=[]), {})
