"""Matrices in bit planes, and how far their products may be off."""

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from strongticket.ops.philox import reference as philox
from strongticket.ops.planes import Planes, pack, reference
from strongticket.ops.rng import stream_of

SIZES = st.sampled_from([0, 1, 2, 15, 16, 17, 31, 33, 63, 64, 100, 127, 128, 129, 200])
STREAM = stream_of(7, "w")


@st.composite
def matrices(draw: st.DrawFn, levels: Sequence[int] = range(1, 16)) -> tuple[Planes, Tensor]:
    """Planes and the matrix they stand for: levels, empty rows, stored signs and drawn ones."""
    rows, columns, most = draw(SIZES), draw(SIZES), draw(st.sampled_from(levels))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    codes = torch.randint(-most, most + 1, (rows, columns), generator=generator, dtype=torch.int8)
    codes[torch.rand(rows, generator=generator) < 0.2] = 0
    if draw(st.booleans()):
        return pack(codes), codes
    signs = torch.empty(rows, columns)
    philox.fill(signs.view(-1).numpy(), 0, STREAM, "packed-sign", 1.0)
    return pack(codes.abs(), STREAM), codes.abs() * signs.to(torch.int8)


def assert_product(product: Tensor, planes: Planes, x: Tensor, scale: float) -> None:
    """Hold a product to the reference, within the bound of float32 sums."""
    assert product.shape == (*x.shape[:-1], planes.rows)
    assert product.dtype == torch.float32
    matrix = reference.unpack(planes).double()
    expected = scale * x.double() @ matrix.T
    # gamma_n of Higham, with n roundings at most: a sum of that many terms, its scale, and digits put together.
    unit = 2.0**-24 * (planes.columns + 8)
    bound = unit / (1 - unit) * abs(scale) * (x.double().abs() @ matrix.abs().T)
    assert bool(((product - expected).abs() <= bound).all())
