import pytest
import torch
from torch import nn

import strongticket as st
from strongticket.construct.recertify import failures, recertify
from strongticket.errors import StrongTicketError
from strongticket.models.transformer import FeedForward, random_transformer
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
