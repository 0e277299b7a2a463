"""One token through a signed GPT-2 on a CPU.

The products of a block of GPT-2 small take 160 microseconds on one core. torch would take as long for the thirty small
operations between them, and so would starting threads for each product. So a token is one compiled function that all
threads run. A layer is divided into parts; each thread takes parts until none is left, then waits for those that others
have taken. A thread that comes late, as on a busy machine, finds nothing left to do and holds nobody up.
"""

import math
from functools import partial
from typing import Any, TypeGuard, cast

import numpy as np
import torch
from numba import carray  # type: ignore[attr-defined]
from torch import Tensor, nn

from strongticket.models.gpt2 import GPT2, Block
from strongticket.models.gpt2_layers import LayeredAttention, LayeredGPT2
from strongticket.models.signed import SignedLinear, SignedMatrix, SignedStack
from strongticket.ops.addresses import floats, pointer
from strongticket.ops.array_types import F32, Records
from strongticket.ops.compiled import part
from strongticket.ops.planes.cpu import LEAST_WORK, TASK, fill_tables, multiply_groups, task_of
from strongticket.ops.planes.planes import LANES
from strongticket.ops.team import compiled_once, run, take, threads_for, wait_until

# Sums may be taken in any order, so that they can be vectorized; NaN and infinity keep their meaning.
_ANY_ORDER = {"reassoc", "contract", "arcp", "nsz"}

_STORE, _ADD, _GELU, _RELU = range(4)  # what becomes of a product: it stays in its memory, or is added to the stream

# The model as compiled code sees it; arrays are addresses.
_PRODUCT = np.dtype([("task", TASK), ("then", "i8"), ("rows", "i8"), ("bias", "i8"), ("stream", "i8")])
_NORM = np.dtype([("gain", "i8"), ("shift", "i8"), ("epsilon", "f4"), ("factor", "f4")])
_MODEL = np.dtype(
    [
        *((name, "i8") for name in ("place", "past", "room", "parts", "counters")),
        *((name, "i8") for name in ("blocks", "d", "heads", "tables", "products", "ends", "norms")),
        *((name, "i8") for name in ("x", "qkv", "mixed", "hidden")),
    ]
)
_LINE = 64  # bytes from a counter to the next, so that they do not share a cache line


def is_plain(model: GPT2) -> TypeGuard[LayeredGPT2]:
    """Return whether all layers of a model are plain signed ones, in float32."""
    if not isinstance(model, LayeredGPT2):
        return False
    layers = [module for module in model.modules() if isinstance(module, SignedLinear)]
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    # Four per block and the head: no layer is of another kind.
    return (
        len(layers) == 4 * len(model.blocks) + 1
        and all(isinstance(m, SignedMatrix) and m.columns is None for layer in layers for m in matrices_of(layer))
        and all(norm.weight.dtype == torch.float32 for norm in norms)
    )


def matrices_of(layer: SignedLinear) -> list[Any]:
    """Return the matrices whose outputs follow each other."""
    return [*layer.matrix.parts] if isinstance(layer.matrix, SignedStack) else [layer.matrix]


class OneToken:
    """A signed GPT-2 on a CPU as a function of one token and the tokens before it.

    Args:
        model: a model for which `is_plain` is true.
    """

    def __init__(self, model: LayeredGPT2) -> None:
        self.model, config, d = model, model.config, model.config.d_model
        self._kept: list[F32] = []  # arrays whose addresses are used
        self._x, self._logits = self._array(d), self._array(config.vocabulary)
        qkv, mixed, total, hidden = (self._array(size) for size in (3 * d, d, d, 4 * d))
        layers: list[Records] = []
        norms: list[nn.LayerNorm] = []
        for block in cast("list[Block]", model.blocks):
            attention, mlp = cast(LayeredAttention, block.attention), block.mlp
            activation = _RELU if mlp.activation == "relu" else _GELU
            layers += [
                self._products_of(attention.qkv, qkv, _STORE),
                self._products_of(attention.output, total, _ADD),
                self._products_of(mlp.up, hidden, activation),
                self._products_of(mlp.down, total, _ADD),
            ]
            norms += [block.attention_norm, block.mlp_norm]
        layers.append(self._products_of(model.head, self._logits, _STORE))
        self._products, self._ends = np.concatenate(layers), np.cumsum([0, *map(len, layers)])
        self._norms = np.concatenate(
            [*map(self._norm_of, norms), self._norm_of(model.final_norm, factor=config.output_gain)]
        )
        self._past = np.zeros(len(model.blocks), np.int64)
        self._counters = np.zeros((5 * len(model.blocks) + 1, 2, _LINE // 8), np.int64)
        tasks = self._products["task"]
        self._work = int((tasks["rows"] * tasks["columns"]).sum())
        self._model = np.zeros(1, _MODEL)
        self._set(blocks=len(model.blocks), d=d, heads=config.n_heads, past=self._past, counters=self._counters)
        self._set(products=self._products, ends=self._ends, norms=self._norms)
        self._set(x=self._x, qkv=qkv, mixed=mixed, hidden=hidden, tables=8 * tasks["width"].max())

    def __call__(self, token: int, place: int, past: list[Tensor]) -> Tensor:
        """Return the logits of the next token, (V,); write keys and values at `place` to `past`."""
        self._x[:] = self.model.embed(torch.tensor([[token]]), torch.tensor([place])).numpy()[0, 0]
        self._past[:] = [kept.data_ptr() for kept in past]
        self._counters[:] = 0
        threads = threads_for(self._work, LEAST_WORK)
        self._set(place=place, room=len(past[0]), parts=threads)
        run(_pass(), self._model.ctypes.data, threads)
        return torch.from_numpy(self._logits.copy())

    def _array(self, size: int) -> F32:
        self._kept.append(np.zeros(size, np.float32))
        return self._kept[-1]

    def _address(self, tensor: Tensor | None) -> int:
        """Return the address of a parameter's numbers, or 0."""
        if tensor is None:
            return 0
        self._kept.append(tensor.detach().contiguous().numpy())
        return self._kept[-1].ctypes.data

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            self._model[name] = value.ctypes.data if isinstance(value, np.ndarray) else value

    def _norm_of(self, norm: nn.LayerNorm, factor: float = 1.0) -> Records:
        return np.array([(self._address(norm.weight), self._address(norm.bias), norm.eps, factor)], _NORM)

    def _products_of(self, layer: Any, y: F32, then: int) -> Records:
        """Return the products of a layer, whose outputs follow each other."""
        found, begin = [], 0
        for matrix in matrices_of(layer):
            end = begin + matrix.shape[0]
            product = np.zeros(1, _PRODUCT)
            # x is what the layer before has computed, in memory of each thread.
            product["task"] = task_of(matrix.planes, np.empty((1, 0), np.float32), matrix.scale, y[None, begin:end])
            bias = None if layer.bias is None else layer.bias[begin:end]
            product["then"], product["stream"] = then, self._x.ctypes.data
            product["rows"], product["bias"] = self._address(matrix.rows), self._address(bias)
            found.append(product)
            begin = end
        return np.concatenate(found)


# --- Compiled --------------------------------------------------------------------------------------------------------


@partial(part, fastmath=_ANY_ORDER)
def _normalise(norm: Any, x: F32, y: F32) -> None:
    total = np.float32(0)
    for i in range(len(x)):
        total += x[i]
    mean = total / np.float32(len(x))
    squares = np.float32(0)
    for i in range(len(x)):
        squares += (x[i] - mean) * (x[i] - mean)
    inverse = np.float32(1) / np.sqrt(squares / np.float32(len(x)) + norm.epsilon)
    gain = floats(norm.gain, len(x))
    for i in range(len(x)):
        y[i] = (x[i] - mean) * inverse * gain[i]
    if norm.shift:
        shift = floats(norm.shift, len(x))
        for i in range(len(x)):
            y[i] += shift[i]
    if norm.factor != 1:
        for i in range(len(x)):
            y[i] *= norm.factor


@partial(part, fastmath=_ANY_ORDER)
def _attend(qkv: F32, past: F32, place: int, mixed: F32, head: int) -> None:
    """Store a head's key and value at a position, and mix all values up to it.

    Shapes: qkv (3, H, w), past (room, 2, H, w), mixed (H, w).
    """
    width = mixed.shape[1]
    scores = np.empty(place + 1, np.float32)
    scale = np.float32(1 / math.sqrt(width))
    past[place, :, head] = qkv[1:, head]
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


@partial(part, fastmath=_ANY_ORDER)
def _finish(product: Any, first: int, last: int) -> None:
    """Scale and shift some rows of a product, apply the activation, or add them to the stream."""
    y = floats(product.task.y, product.task.rows)
    if product.rows:
        rows = floats(product.rows, len(y))
        for i in range(first, last):
            y[i] *= rows[i]
    if product.bias:
        bias = floats(product.bias, len(y))
        for i in range(first, last):
            y[i] += bias[i]
    if product.then == _ADD:
        stream = floats(product.stream, len(y))
        for i in range(first, last):
            stream[i] += y[i]
    elif product.then == _RELU:
        for i in range(first, last):
            y[i] = max(y[i], np.float32(0))
    elif product.then == _GELU:
        # x (1 + tanh(u)) / 2 = x / (1 + exp(-2 u))
        for i in range(first, last):
            u = np.float32(math.sqrt(2 / math.pi)) * (y[i] + np.float32(0.044715) * y[i] * y[i] * y[i])
            y[i] /= np.float32(1) + np.exp(np.float32(-2) * u)


@part
def _take(model: Any, phase: int) -> int:
    """Take the next part of a phase: a layer, or attention."""
    return take(pointer(model.counters + 2 * phase * _LINE))  # type: ignore[no-any-return]


@part
def _done(model: Any, phase: int) -> None:
    take(pointer(model.counters + (2 * phase + 1) * _LINE))


@part
def _wait(model: Any, phase: int, parts: int) -> None:
    """Wait until all parts of a phase are done."""
    wait_until(pointer(model.counters + (2 * phase + 1) * _LINE), parts)


@part
def _layer(model: Any, phase: int, layer: int, norm: int, x: F32, tables: F32) -> None:
    """Compute parts of a layer's rows from x, or from the normalised stream if `norm` is one."""
    ends = carray(pointer(model.ends), 4 * model.blocks + 2, np.int64)
    products = carray(pointer(model.products), ends[-1], _PRODUCT)
    norms = carray(pointer(model.norms), 2 * model.blocks + 1, _NORM)
    ready = False
    part = _take(model, phase)
    while part < model.parts:
        if not ready:
            if norm >= 0:
                _normalise(norms[norm], floats(model.x, model.d), x)
            fill_tables(x.reshape(1, -1), tables[:, : 8 * products[ends[layer]].task.width])
            ready = True
        for index in range(ends[layer], ends[layer + 1]):
            product = products[index]
            task = product.task
            first, last = task.groups * part // model.parts, task.groups * (part + 1) // model.parts
            multiply_groups(task, first, last, tables, floats(task.y, (1, task.rows)))
            _finish(product, first * LANES, min(last * LANES, task.rows))
        _done(model, phase)
        part = _take(model, phase)
    _wait(model, phase, model.parts)


@compiled_once
def _pass(at: Any) -> None:
    """Compute the logits, in one of the threads."""
    model = carray(at, 1, _MODEL)[0]
    d, heads = model.d, model.heads
    qkv, mixed = floats(model.qkv, (3, heads, d // heads)), floats(model.mixed, (heads, d // heads))
    hidden = floats(model.hidden, 4 * d)
    pasts = carray(pointer(model.past), model.blocks, np.int64)
    tables, normed = np.empty((1, model.tables, 16), np.float32), np.empty(d, np.float32)
    for block in range(model.blocks):
        phase, layer, norm = 5 * block, 4 * block, 2 * block
        _layer(model, phase, layer, norm, normed, tables)
        past = floats(pasts[block], (model.room, 2, heads, d // heads))
        head = _take(model, phase + 1)
        while head < heads:
            _attend(qkv, past, model.place, mixed, head)
            _done(model, phase + 1)
            head = _take(model, phase + 1)
        _wait(model, phase + 1, heads)
        _layer(model, phase + 2, layer + 1, -1, mixed.reshape(d), tables)
        _layer(model, phase + 3, layer + 2, norm + 1, normed, tables)
        _layer(model, phase + 4, layer + 3, -1, hidden, tables)
    _layer(model, 5 * model.blocks, 4 * model.blocks, 2 * model.blocks, normed, tables)
