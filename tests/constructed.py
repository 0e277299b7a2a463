"""One ticket of each kind that is constructed, from targets with the same bits on every machine.

    python -m tests.constructed FOLDER

writes the tickets, and how far each was seen to be off.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import strongticket as st
from strongticket.construct.product import prune_product
from strongticket.construct.source import RandomMatrix
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer
from strongticket.pretrained import construct_pretrained
from strongticket.pretrained.target import Target
from strongticket.tickets.content import digest_of_tensors
from tests.construct.test_construct import draw, random_attention, worst_error
from tests.pretrained.small_models import make_bert


class Case(NamedTuple):
    """What a ticket is made from, and by which call."""

    target: nn.Module
    d_model: int
    construct: Callable[[], st.Ticket]

    def worst_error(self, ticket: st.Ticket) -> float:
        """Give the largest error found, climbing from a few inputs."""
        network = ticket.build("merged", dtype=torch.float64)
        norm = ticket.certificate.input_norm
        inputs = draw(8, 4, self.d_model, seed=9)
        inputs *= norm / inputs.norm(dim=-1, keepdim=True)

        def distance(x: Tensor) -> Tensor:
            return (network(x) - self.target(x)).norm(dim=-1).flatten()

        return worst_error(distance, inputs, norm, steps=8)


def cases() -> dict[str, Case]:
    """Give targets of each kind; uniform draws of float64 have the same bits on every kind of CPU, normal ones not."""
    linear = nn.Linear(8, 6, bias=False, dtype=torch.float64)
    linear.weight.data = draw(6, 8, seed=0, scale=0.3)
    # Biases that are large beside the weights count in the certificate of the layer behind them.
    weights = [draw(9, 8, seed=1, scale=0.3), draw(8, 9, seed=2, scale=0.3)]
    network = FeedForward(weights, [draw(9, seed=3, scale=9.0), draw(8, seed=4)])
    attention = random_attention(2, 8, 7, bias=True, seed=5)
    fused = nn.MultiheadAttention(24, 2, batch_first=True)
    for i, parameter in enumerate(fused.parameters()):
        parameter.data = draw(*parameter.shape, seed=10 + i, scale=0.2).float()
    transformer = Transformer([Block(random_attention(2, 8, 8, bias=True, seed=s), network) for s in (20, 30)])
    widths = {"key_width": 240, "value_width": 240}
    hidden: dict[str, Any] = {"hidden_width": (8 * 40, 9 * 40)}
    return {
        "linear": Case(linear, 8, lambda: st.construct_linear(linear.weight, hidden_width=8 * 24)),
        "feedforward": Case(network, 8, lambda: st.construct_feedforward(network, **hidden)),
        "attention": Case(attention, 8, lambda: st.construct_attention(attention, **widths)),
        "torch": Case(_Fused(fused), 24, lambda: st.construct_attention(fused, **widths)),
        "transformer": Case(
            transformer, 8, lambda: st.construct_transformer(transformer, hidden_width=360, input_norm=1.0, **widths)
        ),
    }


def bert(**settings: Any) -> nn.Module:
    """Give a small BERT; transformers draws normal numbers, so these are drawn again."""
    model = make_bert(**settings).eval()
    for i, parameter in enumerate(model.parameters()):
        parameter.data = draw(*parameter.shape, seed=100 + i, scale=0.3).float()
    return model


def sums() -> dict[str, str]:
    """Hash what masks and certificates are made from; masks and six digits would hide most of what BLAS changes."""
    attention = Attention(
        *(draw(3, *shape, seed=i) for i, shape in enumerate([(24, 16), (24, 16), (24, 16), (16, 24)]))
    )
    merged = attention.merged()
    head, *_ = Target(bert(hidden_size=48)).pieces(items=8, seed=0)["layer.0.attention"]
    matrices = (RandomMatrix(name=name, coordinates=24, units=480, unit_axis=1, scale=1.0) for name in "bf")
    pruned = prune_product(merged.qk[0].detach(), *matrices, seed=0, divisor=3.0)
    made = {"qk": merged.qk, "vo": merged.vo, "errors": pruned.error, "part": torch.cat([*head.targets().values()])}
    return {name: digest_of_tensors({name: tensor}) for name, tensor in made.items()}


class _Fused(nn.Module):
    """A `torch.nn.MultiheadAttention` as a function of one input, in float64."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        super().__init__()
        self.source, self.attention = module, Attention.from_torch(module, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x)


if __name__ == "__main__":
    folder, seen = Path(sys.argv[1]), {}
    folder.mkdir(parents=True, exist_ok=True)
    for name, case in cases().items():
        ticket = case.construct()
        ticket.save(folder / f"{name}.ticket")
        seen[name] = case.worst_error(ticket)
    construct_pretrained(bert(), items=8, what="attention+mlp").save(folder / "bert.ticket")
    (folder / "seen.json").write_text(json.dumps(seen))
    (folder / "sums.json").write_text(json.dumps(sums()))
