r"""The attention that sources are pruned into: drawn as in appendix B.1, and optionally trained on the angular task.

A target has one head (or `n_heads`), $d_1 = 2$, $d_2 = 1$, and a regression token that starts at zero and is learned
along with it (a token that stayed zero would attend uniformly, and query and key would get no gradient).
"""

import math
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor, nn

from strongticket.data.angular import SAMPLES, AngularData, draw_angular, with_token
from strongticket.experiments.tasks import Indexed, derive_seed
from strongticket.models.attention import Attention
from strongticket.parallel import one_thread

D_MODEL, D_OUT = 2, 1

Kind = Literal["trained", "untrained"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    """How a target is made, with the paper's values, or ours where it gives none."""

    kind: Kind = "trained"
    n_heads: int = 1
    normalize: bool = False  # divide matrices of spectral norm above 1 by their norm, as the theorems assume
    key_width: int = 8  # d_K
    value_width: int = 8  # d_V; the paper does not say
    samples: int = SAMPLES  # in the training and in the validation split
    epochs: int = 25
    batch: int = 1024
    learning_rate: float = 0.1
    weight_decay: float = 0.01
    shortest: int = 4  # lengths of training sequences, one drawn for each batch; the token is not counted
    longest: int = 256


class Weights(TypedDict):
    """An attention's matrices as lists, (heads, rows, columns)."""

    query: list[list[list[float]]]
    key: list[list[list[float]]]
    value: list[list[list[float]]]
    output: list[list[list[float]]]


class Training(TypedDict):
    """The losses of a target's training, and the variance that a prediction of the mean would leave."""

    validation_losses: list[float]  # before training, then after each epoch
    best_validation_loss: float
    final_validation_loss: float
    velocity_variance: float


class Made(Weights, Indexed):
    """A target as a result file has it."""

    token: list[float]
    norms: dict[str, float]  # the largest spectral norm of each of the four matrices
    merged_qk: list[list[list[float]]]
    merged_vo: list[list[list[float]]]
    training: Training | None


def weights_of(attention: Attention) -> Weights:
    """Write an attention's matrices as lists."""
    query, key, value, output = (weight.detach().tolist() for weight in attention.parameters())
    return {"query": query, "key": key, "value": value, "output": output}


def read_attention(content: Weights) -> Attention:
    """Read an attention whose weights were written as lists."""
    weights = content["query"], content["key"], content["value"], content["output"]
    return Attention(*(torch.tensor(weight, dtype=torch.float64) for weight in weights)).requires_grad_(False)


@dataclass(frozen=True, slots=True)
class Target:
    """An attention and its regression token, both float64."""

    attention: Attention
    token: Tensor

    @classmethod
    def from_json(cls, content: Made) -> "Target":
        """Read what `make_target` wrote."""
        return cls(read_attention(content), torch.tensor(content["token"], dtype=torch.float64))

    def input_norm(self) -> float:
        """Return the largest norm of a token: points lie on the unit circle, the regression token anywhere."""
        # One more unit in the last place: cos^2 + sin^2 may round above 1.
        return math.nextafter(max(1.0, self.token.norm().item()), math.inf)


def make_target(config: TargetConfig, seed: int, index: int) -> Made:
    """Draw target number `index`, train it if its kind is "trained", and describe it in plain JSON.

    Returns:
        Weights, token, the spectral norms of the four matrices, the merged matrices, and the losses of training.
    """
    with one_thread():
        target = draw_target(config, derive_seed(seed, "target", index))
        training = train(target, config, seed, index) if config.kind == "trained" else None
        if config.normalize:
            normalize(target.attention)
        merged = target.attention.merged()
    return {
        "index": index,
        **weights_of(target.attention),
        "token": target.token.detach().tolist(),
        "norms": {part: _norms(weight).max().item() for part, weight in target.attention.named_parameters()},
        "merged_qk": merged.qk.tolist(),
        "merged_vo": merged.vo.tolist(),
        "training": training,
    }


def draw_target(config: TargetConfig, seed: int) -> Target:
    """Draw query and key from $U[-d_K^{1/4}, d_K^{1/4}]$, value and output from $U[-1, 1]$; the token is zero."""
    generator = torch.Generator().manual_seed(seed)

    def draw(rows: int, columns: int, scale: float) -> Tensor:
        return scale * (2 * torch.rand(config.n_heads, rows, columns, generator=generator, dtype=torch.float64) - 1)

    d_k, d_v = config.key_width, config.value_width
    query, key = (draw(D_MODEL, d_k, d_k**0.25) for _ in range(2))
    value, output = draw(D_MODEL, d_v, 1.0), draw(d_v, D_OUT, 1.0)
    return Target(Attention(query, key, value, output), torch.zeros(D_MODEL, dtype=torch.float64))


def train(target: Target, config: TargetConfig, seed: int, index: int) -> Training:
    """Train in place on the squared error of the regression token's output; keep the last epoch's weights."""
    data, held_out = (draw_angular(split, config.samples, seed=seed) for split in ("train", "validation"))
    generator = torch.Generator().manual_seed(derive_seed(seed, "training", index))
    # Validation batches have their own lengths, the same in every epoch, so that losses are comparable.
    lengths = torch.Generator().manual_seed(derive_seed(seed, "validation"))
    validation = [(batch, _draw_length(config, lengths)) for batch in _batches(held_out, config.batch, None)]
    token = target.token.requires_grad_()
    parameters = [*target.attention.parameters(), token]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    losses = [_mean_loss(target, validation)]
    for _ in range(config.epochs):
        for batch in _batches(data, config.batch, generator):
            optimizer.zero_grad()
            _loss(target, batch, _draw_length(config, generator)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        losses.append(_mean_loss(target, validation))
    token.requires_grad_(False)
    return {
        "validation_losses": losses,
        "best_validation_loss": min(losses),
        "final_validation_loss": losses[-1],
        "velocity_variance": held_out.velocity.var(unbiased=False).item(),
    }


def token_output(qk: Tensor, vo: Tensor, x: Tensor) -> Tensor:
    """Compute only the first token's output, (N, d_2), in time linear in the length.

    Args:
        qk: (H, d_1, d_1), the scale included.
        vo: (H, d_1, d_2).
        x: (N, T, d_1).
    """
    x = x.unsqueeze(1)  # (N, 1, T, d_1)
    weights = (x[:, :, :1] @ qk @ x.mT).softmax(dim=-1)  # (N, H, 1, T)
    return (weights @ x @ vo).sum(dim=1)[:, 0]


def draw_of_norm_one(generator: torch.Generator, *shape: int) -> Tensor:
    """Draw a matrix, or one per head, of spectral norm 1, as the theorems assume."""
    matrix = 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1
    return matrix / _norms(matrix)


def draw_tokens(inputs: int, length: int, d: int, norm: float, seed: int) -> Tensor:
    """Draw sequences whose tokens have the largest norm a certificate allows, (inputs, length, d)."""
    x = torch.randn(inputs, length, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    # Slightly smaller, since norms are rounded.
    return norm * (1 - 1e-12) * torch.nn.functional.normalize(x, dim=-1)


def normalize(attention: nn.Module) -> None:
    """Divide each head's matrices of spectral norm above 1 by their norm, in place."""
    with torch.no_grad():
        for weight in attention.parameters():
            weight.div_(_norms(weight).clamp(min=1))


def _loss(target: Target, data: AngularData, length: int) -> Tensor:
    head = target.attention
    qk = head.query @ head.key.mT / math.sqrt(head.key.shape[2])
    predicted = token_output(qk, head.value @ head.output, with_token(target.token, data.sequences(length)))
    return (predicted[:, 0] - data.velocity).square().mean()


def _mean_loss(target: Target, batches: list[tuple[AngularData, int]]) -> float:
    with torch.no_grad():
        total = sum(len(batch) * _loss(target, batch, length).item() for batch, length in batches)
    return total / sum(len(batch) for batch, _ in batches)


def _batches(data: AngularData, size: int, shuffle: torch.Generator | None) -> list[AngularData]:
    order = torch.randperm(len(data), generator=shuffle) if shuffle is not None else torch.arange(len(data))
    return [data[order[start : start + size]] for start in range(0, len(data), size)]


def _draw_length(config: TargetConfig, generator: torch.Generator) -> int:
    return int(torch.randint(config.shortest, config.longest + 1, (), generator=generator))


def _norms(weight: Tensor) -> Tensor:
    """Return each head's spectral norm, (H, 1, 1)."""
    norms: Tensor = torch.linalg.matrix_norm(weight.detach(), ord=2, keepdim=True)
    return norms
