"""One token through a signed GPT-2 on a CPU.

A block of GPT-2 small takes 150 microseconds for its products from bits. torch would take as long for the thirty small
operations between them, so these are compiled here and reuse memory.
"""

import math
from typing import TypeGuard

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from numba import njit
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Block
from strongticket.models.gpt2_layers import LayeredAttention, LayeredGPT2
from strongticket.models.signed import SignedLinear, SignedMatrix, SignedStack
from strongticket.ops.philox.reference import F32
from strongticket.ops.planes.cpu import Product

# Sums may be taken in any order, so that they can be vectorized; NaN and infinity keep their meaning.
_ANY_ORDER = {"reassoc", "contract", "arcp", "nsz"}


class OneToken:
    """A signed GPT-2 as a function of one token and the tokens before it.

    Args:
        model: a model for which `fits` is true.
    """

    @staticmethod
    def fits(model: GPT2) -> TypeGuard[LayeredGPT2]:
        """Return whether all layers of a model are plain signed ones, in float32 on a CPU."""
        if not isinstance(model, LayeredGPT2) or model.final_norm.weight.device.type != "cpu":
            return False
        layers = [module for module in model.modules() if isinstance(module, SignedLinear)]
        norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
        # Four per block and the head: no layer is of another kind.
        return (
            len(layers) == 4 * len(model.blocks) + 1
            and all(map(_is_plain, layers))
            and all(norm.weight.dtype == torch.float32 for norm in norms)
        )

    def __init__(self, model: LayeredGPT2) -> None:
        self.model = model
        self._blocks = [_Block(block) for block in model.blocks]  # type: ignore[arg-type]
        self._head, self._norm = _Layer(model.head), _Norm(model.final_norm)  # type: ignore[arg-type]

    def __call__(self, token: int, place: int, past: list[Tensor]) -> Tensor:
        """Return the logits of the next token, (V,); write keys and values at `place` to `past`."""
        x: F32 = self.model.embed(torch.tensor([[token]]), torch.tensor([place]))[0].numpy()  # (1, d)
        for block, kept in zip(self._blocks, past, strict=True):
            block.add_to(x, place, kept.numpy())
        y = self._norm(x)
        y *= np.float32(self.model.config.output_gain)
        return torch.from_numpy(self._head(y)[0].copy())


def _is_plain(layer: SignedLinear) -> bool:
    return all(isinstance(matrix, SignedMatrix) and matrix.columns is None for matrix in _matrices(layer))


def _matrices(layer: SignedLinear) -> list[nn.Module]:
    return [*layer.matrix.parts] if isinstance(layer.matrix, SignedStack) else [layer.matrix]


class _Layer:
    """A linear layer that writes to the same memory each time."""

    def __init__(self, layer: SignedLinear) -> None:
        matrices = [matrix for matrix in _matrices(layer) if isinstance(matrix, SignedMatrix)]
        self.y = np.empty((1, layer.out_features), np.float32)
        ends = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
        self._products = [
            Product(matrix.planes, matrix.scale, self.y[:, begin:end])
            for matrix, begin, end in zip(matrices, ends, ends[1:], strict=False)
        ]
        rows = [np.ones(m.shape[0], np.float32) if m.rows is None else m.rows.numpy() for m in matrices]
        self.plain = all(matrix.rows is None for matrix in matrices) and layer.bias is None
        self.rows = np.concatenate(rows) if not self.plain else np.empty(0, np.float32)
        self.bias = np.zeros(len(self.rows), np.float32) if layer.bias is None else layer.bias.numpy()

    def __call__(self, x: F32) -> F32:
        """Apply to (1, in)."""
        for product in self._products:
            product(x)
        if not self.plain:
            _scale_and_shift(self.y[0], self.rows, self.bias)
        return self.y


class _Norm:
    """A layer norm that writes to the same memory each time."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        self._gain, self._epsilon = norm.weight.numpy(), np.float32(norm.eps)
        self._shift = np.zeros_like(self._gain) if norm.bias is None else norm.bias.numpy()
        self._y = np.empty((1, len(self._gain)), np.float32)

    def __call__(self, x: F32) -> F32:
        """Apply to (1, d)."""
        _normalise(x[0], self._gain, self._shift, self._epsilon, self._y[0])
        return self._y


class _Block:
    def __init__(self, block: Block) -> None:
        attention = block.attention
        assert isinstance(attention, LayeredAttention)
        self._norms = _Norm(block.attention_norm), _Norm(block.mlp_norm)
        self._qkv, self._output, self._up, self._down = (
            _Layer(layer)  # type: ignore[arg-type]
            for layer in (attention.qkv, attention.output, block.mlp.up, block.mlp.down)
        )
        self._mixed = np.empty((1, block.attention_norm.weight.numel()), np.float32)
        self._relu = block.mlp.activation == "relu"

    def add_to(self, x: F32, place: int, past: F32) -> None:
        """Add the outputs of attention and MLP to the stream (1, d)."""
        heads = past.shape[2]
        _attend(self._qkv(self._norms[0](x)).reshape(3, heads, -1), past, place, self._mixed.reshape(heads, -1))
        x += self._output(self._mixed)
        up = torch.from_numpy(self._up(self._norms[1](x)))
        x += self._down((F.relu(up) if self._relu else F.gelu(up, approximate="tanh")).numpy())


@njit(cache=True, fastmath=_ANY_ORDER)
def _normalise(x: F32, gain: F32, shift: F32, epsilon: np.float32, y: F32) -> None:
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i]
    mean = total / np.float32(len(x))
    squares = np.float32(0)
    for i in range(len(x)):
        squares += (x[i] - mean) * (x[i] - mean)
    inverse = np.float32(1) / np.sqrt(squares / np.float32(len(x)) + epsilon)
    for i in range(len(x)):
        y[i] = (x[i] - mean) * inverse * gain[i] + shift[i]


@njit(cache=True)
def _scale_and_shift(y: F32, rows: F32, bias: F32) -> None:
    for i in range(len(y)):
        y[i] = y[i] * rows[i] + bias[i]


@njit(cache=True, fastmath=_ANY_ORDER)
def _attend(qkv: F32, past: F32, place: int, mixed: F32) -> None:
    """Store key and value at a position, and mix all values up to it; qkv is (3, H, w), past (room, 2, H, w)."""
    heads, width = mixed.shape
    past[place] = qkv[1:]
    scores = np.empty(place + 1, np.float32)
    scale = np.float32(1 / math.sqrt(width))
    for head in range(heads):
        largest = np.float32(-np.inf)
        for i in range(place + 1):
            score = np.float32(0)
            for c in range(width):
                score += qkv[0, head, c] * past[i, 0, head, c]
            scores[i] = score * scale
            largest = max(largest, scores[i])
        total = np.float32(0)
        for i in range(place + 1):
            scores[i] = np.exp(scores[i] - largest)
            total += scores[i]
        mixed[head] = 0
        for i in range(place + 1):
            share = scores[i] / total
            for c in range(width):
                mixed[head, c] += share * past[i, 1, head, c]
