r"""Random weights from a seed and a name: the same bits on every device and version, with any chunks and threads.

Every number is a function of (seed, tensor name, draw, element index) alone; nothing depends on what was drawn before.
`ops/philox/reference.py` defines it, `docs/ticket-format.md` says it in words, and golden values pin both.
"""

import hashlib
import math
import struct
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from strongticket.checks import as_real, as_seed
from strongticket.ops.array_types import F32, I64
from strongticket.ops.philox.reference import Stream

Distribution = Literal["uniform", "normal", "sign", "packed-sign"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)

MAX_DRAW = 2**32 - 1

_DOMAIN = b"strongticket rng 1\x00"


def random_weights(
    seed: int,
    name: str,
    shape: tuple[int, ...],
    distribution: Distribution = "uniform",
    scale: float = 1.0,
    *,
    draw: int = 0,
    device: torch.device | str | None = None,
) -> Tensor:
    r"""Draw the float32 weights of one tensor.

    Args:
        seed: 0 to $2^{64} - 1$.
        name: the tensor's name; tensors of different names are independent.
        shape: the tensor's shape; elements are numbered in row-major order.
        distribution: `"uniform"` on $[-a, a]$, `"normal"` with standard deviation $a$, `"sign"`, $\pm a$, or
            `"packed-sign"`, which is also $\pm a$ but draws 128 signs at the cost of 4.
        scale: $a$, positive; rounded to float32 first, so that a uniform weight is rounded only once.
        draw: 0, or the number of a further draw of the same tensor, below $2^{32}$, independent of all others.
        device: where to generate them; the bits are the same everywhere.

    Example:
        >>> random_weights(0, "head.0.query", (2, 3), "sign", 0.5).tolist()
        [[0.5, -0.5, 0.5], [0.5, 0.5, 0.5]]
        >>> random_weights(0, "head.0.query", (2, 3), "sign", 0.5, draw=1).tolist()
        [[-0.5, 0.5, -0.5], [-0.5, 0.5, 0.5]]
    """
    flat = random_chunk(seed, name, 0, math.prod(shape), distribution, scale, draw=draw, device=device)
    return flat.view(shape)


def random_chunk(
    seed: int,
    name: str,
    start: int,
    stop: int,
    distribution: Distribution = "uniform",
    scale: float = 1.0,
    *,
    draw: int = 0,
    device: torch.device | str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Draw elements `start` to `stop` of one tensor, flattened, without the others; into `out`, if it is given."""
    if distribution not in DISTRIBUTIONS:
        raise ValueError(
            f"distribution must be one of {', '.join(DISTRIBUTIONS)}; got {distribution!r}. "
            "A ticket's weights are drawn entry by entry; orthogonal and similar initialisations cannot be sources."
        )
    if not 0 <= start <= stop:
        raise ValueError(f"a chunk needs 0 <= start <= stop; got start {start} and stop {stop}.")
    stream, scale = stream_of(seed, name, draw), round_scale(scale)
    place = torch.device(device or "cpu")
    if place.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(
            "random weights were asked for on cuda, but torch finds no CUDA device here; use device='cpu'."
        )
    try:
        out = torch.empty(stop - start, dtype=torch.float32, device=place) if out is None else out[: stop - start]
    except RuntimeError as error:
        raise MemoryError(f"{stop - start:,} weights of {name} do not fit in the memory of {place}.") from error
    if out.device.type == "cuda":
        from strongticket.ops.philox import cuda

        cuda.fill(out, start, stream, distribution, scale)
    elif out.device.type == "cpu":
        from strongticket.ops.philox import cpu

        cpu.fill(out.numpy(), start, stream, distribution, scale)
    else:
        raise ValueError(
            f"random weights can be drawn on cpu or cuda; got {out.device}. Draw them on cpu and move them."
        )
    return out


def random_elements(seed: int, name: str, places: I64, scale: float = 1.0) -> F32:
    """Draw the elements of a uniform tensor at the given places alone, on the CPU.

    Example:
        >>> random_elements(0, "head.0.query", np.array([7, 2]))
        array([ 0.07219928, -0.06354802], dtype=float32)
    """
    from strongticket.ops.philox.cpu import uniform_elements

    return uniform_elements(places, stream_of(seed, name), round_scale(scale))


def stream_of(seed: int, name: str, draw: int = 0) -> Stream:
    """Derive the Philox key and high counter words of a tensor's draw from the SHA-256 of seed, name and draw."""
    if not 0 <= draw <= MAX_DRAW:
        raise ValueError(f"draw must be a whole number in 0 .. 2^32 - 1; got {draw!r:.40}.")
    # A zero byte is in no name, so a further draw of one tensor is never the first of another.
    again = b"\x00" + draw.to_bytes(4, "little") if draw else b""
    digest = hashlib.sha256(_DOMAIN + as_seed(seed).to_bytes(8, "little") + name.encode() + again).digest()
    return Stream(*struct.unpack_from("<4I", digest))


def round_scale(scale: float) -> float:
    """Round a scale to float32, as used and stored; within 2^-100 .. 2^100 no weight can overflow."""
    if not 2.0**-100 <= (number := as_real(scale)) <= 2.0**100:
        raise ValueError(f"scale must be between 2^-100 and 2^100; got {scale!r:.40}.")
    return float(np.float32(number))
