r"""ReLU networks and transformers without normalisation layers, as in section 3.3 and Theorem 10 of the paper."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from strongticket.models.attention import Attention
from strongticket.ops.arrays import Array, as_tensor


class FeedForward(nn.Module):
    r"""$W_L\,\mathrm{ReLU}(W_{L-1} \cdots \mathrm{ReLU}(W_1 x + b_1) \cdots) + b_L$, applied to each token.

    Args:
        weights: $W_1 \ldots W_L$, each (out, in).
        biases: one per layer, (out,) or None; by default no layer has one.

    Example:
        >>> FeedForward([[[1.0, -1.0]], [[2.0], [3.0]]])(torch.tensor([3.0, 1.0], dtype=torch.float64)).tolist()
        [4.0, 6.0]
    """

    def __init__(self, weights: Sequence[Array], biases: Sequence[Array | None] | None = None) -> None:
        super().__init__()
        given = [None] * len(weights) if biases is None else biases
        if not weights or len(given) != len(weights):
            raise ValueError(
                f"a network needs layers, and a bias or None for each; got {len(weights)} and {len(given)}."
            )
        layers = [
            (as_tensor("a weight", weight), None if bias is None else as_tensor("a bias", bias))
            for weight, bias in zip(weights, given, strict=True)
        ]
        for weight, bias in layers:
            if weight.dim() != 2 or (bias is not None and bias.shape != weight.shape[:1]):
                raise ValueError(
                    "a layer needs a weight (out, in) and a bias (out,) or None; "
                    f"got {tuple(weight.shape)} and {tuple(bias.shape) if bias is not None else None}."
                )
        for (below, _), (above, _) in pairwise(layers):
            if below.shape[0] != above.shape[1]:
                raise ValueError(
                    f"layers must fit: one returns {below.shape[0]} numbers, the next takes {above.shape[1]}."
                )
        self.layers = nn.ModuleList(
            linear_of(nn.Parameter(weight), None if bias is None else nn.Parameter(bias)) for weight, bias in layers
        )

    @property
    def weights(self) -> list[Tensor]:
        """The layers' matrices, (out, in) each."""
        return [layer.weight for layer in self._linears()]

    @property
    def biases(self) -> list[Tensor | None]:
        """The layers' biases."""
        return [layer.bias for layer in self._linears()]

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (..., d_in)."""
        first, *rest = self._linears()
        x = first(x)
        for layer in rest:
            x = layer(torch.relu(x))
        return x

    def _linears(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]


class Block(nn.Module):
    r"""A block without norms: $z = x + \mathrm{Attn}(x)$, then $z + F(z)$."""

    def __init__(self, attention: nn.Module, feedforward: nn.Module) -> None:
        super().__init__()
        self.attention, self.feedforward = attention, feedforward

    def forward(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Apply to (..., T, d)."""
        z: Tensor = x + self.attention(x, attends)
        out: Tensor = z + self.feedforward(z)
        return out


class Transformer(nn.Module):
    """A sequence of blocks."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor, attends: Tensor | None = None) -> Tensor:
        """Apply to (..., T, d)."""
        for block in self.blocks:
            x = block(x, attends)
        return x


def random_transformer(
    n_blocks: int,
    d_model: int,
    *,
    key_width: int,
    generator: torch.Generator,
    n_heads: int = 1,
    normalize: bool = True,
) -> Transformer:
    """Draw a target from uniform entries, with an attention and one linear layer as F per block.

    Args:
        n_blocks: the number of blocks.
        d_model: the width d.
        key_width: the width of query, key and value.
        generator: the source of random numbers.
        n_heads: the number of heads per attention.
        normalize: divide each matrix by its spectral norm, as the theorems assume.
    """

    def draw(*shape: int) -> Tensor:
        matrix = 2 * torch.rand(*shape, generator=generator, dtype=torch.float64) - 1
        return matrix / torch.linalg.matrix_norm(matrix, ord=2, keepdim=True) if normalize else matrix

    d, n, H = d_model, key_width, n_heads
    blocks = [
        Block(Attention(draw(H, d, n), draw(H, d, n), draw(H, d, n), draw(H, n, d)), FeedForward([draw(d, d)]))
        for _ in range(n_blocks)
    ]
    return Transformer(blocks)


def linear_of(weight: nn.Parameter, bias: nn.Parameter | None) -> nn.Linear:
    """Make torch's layer of a weight (out, in) and a bias (out,), without copying them."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = weight
    layer.register_parameter("bias", bias)
    return layer
