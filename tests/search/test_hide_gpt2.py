import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from strongticket.attach import load_ticket
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops.supermask import reference
from strongticket.rng import random_weights
from strongticket.search.edge_popup import Hidden, hide
from strongticket.search.policy import Policy
from strongticket.ticket import Ticket

TOKENS = torch.randint(256, (4, 33), generator=torch.Generator().manual_seed(0))

# nano, by hand: d = 64, 2 layers, 128 places, 256 tokens.
D, LAYERS = 64, 2
ATTENTION, MLP, EMBEDDINGS = LAYERS * 4 * D * D, LAYERS * 8 * D * D, (128 + 256) * D
NORMS, HEAD = (2 * LAYERS + 1) * D, 256 * D


def nano(**changes: Any) -> GPT2:
    return GPT2(gpt2_config("nano", **({"bias": False} | changes)), seed=3)


def hidden_nano(policy: Policy | None = None, seed: int = 3, **changes: Any) -> Hidden:
    return hide(nano(**changes), policy or Policy(output_gain=4.0), seed=seed)


def loss_of(model: nn.Module) -> Tensor:
    loss: Tensor = model(TOKENS[:, :-1], TOKENS[:, 1:])
    return loss


def search(hidden: Hidden, steps: int = 12, lr: float = 0.02) -> list[float]:
    optimizer, losses = torch.optim.AdamW([p for _, p in hidden.trainable()], lr=lr), []
    for _ in range(steps):
        loss = loss_of(hidden.model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hidden.refresh()
        losses.append(loss.item())
    return losses


def kept(numel: int, density: float) -> int:
    return numel - reference.dropped_count(numel, density)


def test_hidden_weights_are_the_models_own_except_queries_and_keys() -> None:
    model = hidden_nano().model
    fresh = nano()
    for name in initial_scales(fresh.config):
        original = model.get_parameter(name.replace("weight", "parametrizations.weight.original"))
        expected = fresh.get_parameter(name)
        if name.endswith(("query.weight", "key.weight")):
            expected = random_weights(3, name, (D, D), "normal", 0.02 * 32**0.25)
        assert torch.equal(original, expected), name
        assert not original.requires_grad


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Policy(density=0.25), (ATTENTION // 4, MLP // 4, EMBEDDINGS // 4, NORMS)),
        (Policy(density=0.25, embeddings="trained"), (ATTENTION // 4, MLP // 4, EMBEDDINGS, NORMS)),
        (Policy(density=0.5, attention="frozen"), (ATTENTION, MLP // 2, EMBEDDINGS // 2, NORMS)),
        (Policy(density=0.5, scope="global", norms="trained"), None),
    ],
    ids=str,
)
def test_counts(policy: Policy, expected: tuple[int, ...] | None) -> None:
    hidden = hidden_nano(policy)
    counts, total = hidden.counts(), ATTENTION + MLP + EMBEDDINGS
    if expected:
        assert counts == dict(zip(("attention", "mlp", "embeddings", "norms"), expected, strict=True))
    else:
        assert sum(counts.values()) == total // 2 + NORMS
    everything = sum(counts.values())
    assert hidden.nonzero() == {"all": everything, "without_embeddings": everything - counts["embeddings"]}
    sizes = {"attention": ATTENTION, "mlp": MLP, "embeddings": EMBEDDINGS}
    masked = {group: counts[group] / sizes[group] for group in sizes if getattr(policy, group) == "masked"}
    assert hidden.densities() == masked


def test_a_search_learns_leaves_the_weights_alone_and_its_ticket_gives_the_same_logits() -> None:
    hidden = hidden_nano()
    frozen = {n: p.clone() for n, p in hidden.model.named_parameters() if not p.requires_grad}
    losses = search(hidden)
    assert losses[-1] < losses[0] - 0.5
    for name, before in frozen.items():
        assert torch.equal(hidden.model.get_parameter(name), before), name
    for supermask in hidden.supermasks.values():
        assert torch.equal(supermask.mask, reference.top_mask(supermask.scores, 0.3))
    ticket = Ticket.from_bytes(hidden.to_ticket({"note": "x"}).to_bytes())
    assert ticket.strong
    expected = hidden.model(TOKENS)
    assert torch.equal(ticket.build()(TOKENS), expected)
    assert torch.equal(load_ticket(nano(output_gain=4.0), ticket)(TOKENS), expected)
    assert math.isclose(ticket.density, 0.3, abs_tol=1e-3)


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        (Policy(embeddings="trained", norms="trained", biases="trained"), {"bias": True}),
        (Policy(attention="frozen", scope="global", signed=True), {"bias": True, "tied": False}),
    ],
    ids=str,
)
def test_tickets_with_trained_and_frozen_tensors(policy: Policy, changes: dict[str, Any]) -> None:
    hidden = hidden_nano(policy, **changes)
    search(hidden, steps=3)
    ticket = Ticket.from_bytes(hidden.to_ticket().to_bytes())
    assert ticket.strong == (policy.embeddings != "trained")
    assert torch.equal(ticket.build()(TOKENS), hidden.model(TOKENS))
