"""Each rule against a plain loop written from its description: the same weights after each of 20 steps."""

from typing import Any

import plain_rules
import pytest
import torch
from plain_rules import Plain
from torch import Tensor, nn

import strongticket as st
from strongticket.learn.rules import RULES
from strongticket.ops import supermask

RULES_TRIED = {
    "edge-popup": plain_rules.EdgePopup,
    "iterand:every=4,rate=0.5": plain_rules.IteRand,
    "biprop": plain_rules.Biprop,
    "signed": plain_rules.Signed,
    "signed:threshold=0.1": plain_rules.SignedThreshold,
    "multicoated": plain_rules.Multicoated,
    "bernoulli": plain_rules.Bernoulli,
    "gem-miner:every=4,l2=0.01": plain_rules.GemMiner,
    "partially-frozen": plain_rules.PartiallyFrozen,
    "relaxed:steps=12,penalty=0.001": plain_rules.Relaxed,
}
TOKENS = torch.randint(11, (24, 5), generator=torch.Generator().manual_seed(0))
LABELS = TOKENS.sum(dim=1) % 3


class Mixed(nn.Module):
    """One weight of each kind: embedding, convolution, norm and linear."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Embedding(11, 8), nn.Conv1d(8, 12, 3, padding=1)
        self.norm, self.head = nn.LayerNorm(12), nn.Linear(12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(self.embed(tokens).transpose(1, 2)).relu().mean(dim=2)))


def mixed() -> Mixed:
    torch.manual_seed(0)
    return Mixed()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, between: Any) -> None:
    loss = nn.functional.cross_entropy(model(TOKENS), LABELS)
    loss.backward()
    between()
    optimizer.step()
    optimizer.zero_grad()


def test_all_rules_are_tried() -> None:
    assert {rule.partition(":")[0] for rule in RULES_TRIED} == set(RULES)


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
@pytest.mark.parametrize("name", RULES_TRIED)
def test_a_rule_is_its_description(name: str, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", 0 if kernels else 2**62)
    policy = st.Policy(density=0.4, score_init="normal" if "gem" not in name else "kaiming")
    hidden = st.hide(mixed(), policy, seed=5, rule=name, groups={"norm.weight": "mlp"})
    optimizer = torch.optim.AdamW([p for _, p in hidden.trainable()], lr=0.03)
    masked = [t for t in hidden.tensors if t.treatment == "masked"]
    assert [t.name for t in masked] == ["embed.weight", "conv.weight", "norm.weight", "head.weight"]

    plain, rule, model = [], RULES_TRIED[name](), mixed().requires_grad_(False)
    for t in masked:
        scores = torch.empty(t.shape).flatten()
        places = getattr(t.module, "free", torch.arange(scores.numel()))
        scores[places] = t.module.scores.detach().flatten()
        other = Plain(t.name, 5, 0.4, t.weight.flatten().clone(), scores, lambda k, t=t: t.draw(k).flatten())
        if name == "biprop":
            other.more["magnitudes"] = t.module.full.abs().flatten()
        plain.append(other)
    for name_of_bias in ("conv.bias", "norm.bias", "head.bias"):
        model.get_parameter(name_of_bias).data.zero_()
    plain_optimizer = torch.optim.AdamW([p.scores for p in plain], lr=0.03)

    first = [hidden.rule.codes(t)[0].clone() for t in masked]
    for number in range(1, 21):
        step(hidden.model, optimizer, hidden.before_step)
        hidden.after_step()
        for p in plain:
            weight = model.get_parameter(p.name).requires_grad_()
            weight.data.copy_(rule.weights(p).view_as(weight))

        def give_gradients() -> None:
            for p in plain:
                weight = model.get_parameter(p.name)
                p.scores.grad, weight.grad = rule.gradient(p, weight.grad.flatten()), None

        step(model, plain_optimizer, give_gradients)
        for p, t in zip(plain, masked, strict=True):
            rule.after(p, number)
            codes, table = hidden.rule.codes(t)
            coefficients = torch.tensor([coefficient for coefficient, _ in table])[codes.long()].flatten()
            expected = rule.kept(p) * p.weight if hasattr(rule, "sharpness") else rule.weights(p)
            rebuilt = torch.stack([t.draw(draw).flatten() for _, draw in table])
            rebuilt = rebuilt.gather(0, codes.long().flatten()[None])[0] * coefficients
            assert torch.equal(rebuilt, expected), (number, p.name)
    assert not all(torch.equal(hidden.rule.codes(t)[0], codes) for t, codes in zip(masked, first, strict=True))
