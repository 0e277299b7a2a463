"""Every rule once more, as a plain loop over numbers: written from the descriptions, without any of the package.

Only random numbers come from it, and those a rule begins with. A tensor has its `weight` and its `scores`, flat, and a
rule three functions: the weights to compute with, the scores' gradient from theirs, and what follows a step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strongticket.ops.rng import random_weights, stream_of


@dataclass
class Plain:
    """One tensor, flat."""

    name: str
    seed: int
    density: float
    weight: Tensor
    scores: Tensor
    draw: Callable[[int], Tensor]
    more: dict[str, Tensor] = field(default_factory=dict)

    def uniform(self, purpose: str) -> list[float]:
        return random_weights(self.seed, f"{self.name}.{purpose}", (self.weight.numel(),)).tolist()


def kept_by_rank(scores: Tensor, density: float, signed: bool = False) -> Tensor:
    """Drop the lowest int((1 - density) n); of equal ones the first."""
    values = scores.tolist()
    order = sorted(range(len(values)), key=lambda i: values[i] if signed else abs(values[i]))
    kept = [True] * len(values)
    for i in order[: int((1 - density) * len(values))]:
        kept[i] = False
    return torch.tensor(kept)


class EdgePopup:
    signed = False

    def weights(self, t: Plain) -> Tensor:
        return t.weight * self.kept(t)

    def kept(self, t: Plain) -> Tensor:
        return kept_by_rank(t.scores, t.density, self.signed)

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        return g * t.weight * (1 if self.signed else t.scores.sign())

    def after(self, t: Plain, step: int) -> None:
        pass


class IteRand(EdgePopup):
    """Every 4 steps a dropped weight is drawn again with probability 0.5, 14 times at most."""

    signed = True

    def after(self, t: Plain, step: int) -> None:
        if step % 4:
            return
        draws = t.more.setdefault("draws", torch.zeros(t.weight.numel(), dtype=torch.int64))
        kept, chances = self.kept(t).tolist(), t.uniform(f"again-{step}")
        for i in range(len(chances)):
            if not kept[i] and abs(chances[i]) < 0.5 and draws[i] < 14:
                draws[i] += 1
                t.weight[i] = t.draw(int(draws[i]))[i]


class Biprop(EdgePopup):
    """The weight is a sign here; `magnitudes` are what the rule drew."""

    def weights(self, t: Plain) -> Tensor:
        kept = self.kept(t)
        alpha = math.fsum(t.more["magnitudes"][kept].tolist()) / int(kept.sum())
        return t.weight * kept * torch.tensor(alpha)

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        return g * t.weight * t.more["magnitudes"] * t.scores.sign()


class Signed(EdgePopup):
    def weights(self, t: Plain) -> Tensor:
        return t.weight * self.kept(t) * t.scores.sign()

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        return g * t.weight * (1 - t.scores.tanh().square())


class SignedThreshold(Signed):
    def kept(self, t: Plain) -> Tensor:
        return torch.tensor([abs(math.tanh(score)) > 0.1 for score in t.scores.tolist()])


class Multicoated(EdgePopup):
    """Densities d, 0.32 d and 0.32^2 d."""

    def weights(self, t: Plain) -> Tensor:
        coats = [kept_by_rank(t.scores, t.density * 0.32**coat) for coat in range(3)]
        return t.weight * sum(coat.float() for coat in coats)


class Bernoulli:
    def __init__(self) -> None:
        self.step = 0

    def kept(self, t: Plain) -> Tensor:
        """A number on [-1, 1], brought to [0, 1], is below the probability."""
        chances = t.uniform(f"sample-{t.more.get('step', torch.tensor(0))}")
        probabilities = t.scores.double().sigmoid().tolist()
        return torch.tensor([(chance + 1) / 2 < p for chance, p in zip(chances, probabilities, strict=True)])

    def weights(self, t: Plain) -> Tensor:
        return t.weight * self.kept(t)

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        p = t.scores.sigmoid()
        return g * t.weight * (1 - p) * p

    def after(self, t: Plain, step: int) -> None:
        t.more["step"] = torch.tensor(step)


class GemMiner:
    """L2 0.01; every 4 steps all but the density are frozen."""

    def frozen(self, t: Plain) -> Tensor:
        return t.more.setdefault("frozen", torch.zeros(t.weight.numel(), dtype=torch.bool))

    def weights(self, t: Plain) -> Tensor:
        return t.weight * ((t.scores >= 0.5) & ~self.frozen(t))

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        return (g * t.weight + 0.01 * t.scores) * ~self.frozen(t)

    def after(self, t: Plain, step: int) -> None:
        frozen = self.frozen(t)
        t.scores.clamp_(0, 1)
        t.scores[frozen] = -1
        if step % 4 == 0:
            frozen |= ~kept_by_rank(t.scores, t.density, signed=True)
            t.scores[frozen] = -1


class PartiallyFrozen(EdgePopup):
    """0.7 of the weights are decided by the seed, as many of them kept as of all."""

    def kept(self, t: Plain) -> Tensor:
        stream, never = stream_of(t.seed, f"{t.name}.frozen"), 0.7 * (1 - t.density)
        chances = random_weights(stream.key0 | stream.key1 << 32, "frozen", (t.weight.numel(),)).tolist()
        shares = [(chance + 1) / 2 for chance in chances]
        kept = torch.tensor([never <= share < never + 0.7 * t.density for share in shares])
        rest = torch.tensor([share >= never + 0.7 * t.density for share in shares])
        kept[rest] = kept_by_rank(t.scores[rest], t.density)
        return kept


class Relaxed:
    """Sharpness 200 after 12 steps, penalty 0.001."""

    sharpness = 1.0

    def weights(self, t: Plain) -> Tensor:
        return t.weight * (self.beta(t) * t.scores).sigmoid()

    def gradient(self, t: Plain, g: Tensor) -> Tensor:
        p = (self.beta(t) * t.scores).sigmoid()
        return g * t.weight * ((1 - p) * p) * self.beta(t) + 0.001 * self.beta(t) * p * (1 - p)

    def beta(self, t: Plain) -> Tensor:
        return torch.tensor(200.0 ** min(1, int(t.more.get("step", torch.tensor(0))) / 12))

    def after(self, t: Plain, step: int) -> None:
        t.more["step"] = torch.tensor(step)

    def kept(self, t: Plain) -> Tensor:
        return t.scores > 0
