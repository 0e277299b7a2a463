"""What a certificate counts: leaving out a bias, a rounding or a part must show as an error above the certified one."""

import pytest
import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer
from tests.construct.test_construct import draw


def seen_error(ticket: st.Ticket, target: nn.Module, inputs: Tensor) -> float:
    """Give the largest error on some inputs."""
    network = ticket.build("merged", dtype=torch.float64)
    return (network(inputs) - target(inputs)).norm(dim=-1).max().item()


def scalar(number: float) -> Tensor:
    return torch.tensor([number], dtype=torch.float64)


@pytest.mark.parametrize("bias", [0.0, 50.0, -5000.0])
def test_a_bias_counts_for_the_layers_behind_it(bias: float) -> None:
    """Networks of one number: nothing is lost in norms, so the certificate is nearly attained."""
    network = FeedForward([draw(1, 1, seed=0), draw(1, 1, seed=1)], [scalar(abs(bias)), scalar(0.3)])
    ticket = st.construct_feedforward(network, hidden_width=10, input_norm=2.0)
    seen = seen_error(ticket, network, torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None])
    assert seen <= ticket.certificate.error < 3 * seen

    one = torch.ones(1, 1, 1, dtype=torch.float64)
    block = Block(Attention(0 * one, 0 * one, 0.3 * one, one, scalar(bias)), FeedForward([draw(1, 1, seed=2)]))
    ticket = st.construct_transformer(Transformer([block]), key_width=8, value_width=8, hidden_width=10, input_norm=2.0)
    seen = seen_error(ticket, Transformer([block]), torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None, None])
    assert seen <= ticket.certificate.error < 3 * seen
