import math
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from strongticket import BlockMask, FullMask, PackedMask
from strongticket.tickets.mask import Mask, _pack_on_device, density

bool_arrays = hnp.arrays(np.bool_, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=12))


@given(array=bool_arrays)
def test_packing_loses_nothing(array: np.ndarray) -> None:
    mask = PackedMask.from_bool(torch.from_numpy(array))
    np.testing.assert_array_equal(mask.to_bool().numpy(), array)
    assert mask.shape == array.shape
    assert mask.count() == array.sum()
    assert mask.bits.size == math.ceil(array.size / 8)
    assert mask.density == (array.mean() if array.size else 0.0)


@given(array=bool_arrays, flip=st.integers(0, 2**20))
def test_equality_is_of_shape_and_bits(array: np.ndarray, flip: int) -> None:
    mask, same = (PackedMask.from_bool(torch.from_numpy(array.copy())) for _ in range(2))
    assert mask == same
    assert hash(mask) == hash(same)
    assert mask != PackedMask.from_bool(torch.from_numpy(array[None]))
    if array.size:
        other = array.copy()
        other.flat[flip % array.size] ^= True
        assert mask != PackedMask.from_bool(torch.from_numpy(other))


def test_transposed_and_strided_tensors_pack_by_value() -> None:
    array = torch.arange(24).view(4, 6) % 5 == 0
    for view in (array.T, array[:, ::2], array[1:]):
        assert torch.equal(PackedMask.from_bool(view).to_bool(), view)


def test_bit_order_is_the_documented_one() -> None:
    mask = PackedMask.from_bool(torch.tensor([True] + [False] * 7 + [False, True]))
    assert mask.bits.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("shape", "bits", "message"),
    [
        ((9,), np.zeros(1, np.uint8), "9 symbols below 2 need 2 bytes of uint8; got uint8 of shape (1,)"),
        ((8,), np.zeros(1, np.int8), "need 1 bytes of uint8; got int8"),
        ((3,), np.array([8], np.uint8), "the padding after the last of 3 symbols must be 0; got a set bit"),
        ((-1,), np.zeros(0, np.uint8), "a shape must be whole numbers of at least 0; got -1"),
    ],
)
def test_wrong_bits_cannot_become_a_mask(shape: tuple[int, ...], bits: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        PackedMask(shape, bits)


@pytest.mark.parametrize("numel", range(1, 18))
def test_padding_is_0_to_the_last_bit(numel: int) -> None:
    full = np.packbits(np.ones(numel, np.uint8), bitorder="little")
    assert PackedMask((numel,), full).count() == numel
    for bit in range(-numel % 8):
        bits = np.zeros_like(full)
        bits[-1] = 0x80 >> bit
        with pytest.raises(ValueError, match=f"the padding after the last of {numel} symbols must be 0"):
            PackedMask((numel,), bits)


def test_only_bool_becomes_a_mask() -> None:
    with pytest.raises(ValueError, match=r"needs a bool tensor; got torch.float32. Compare first"):
        PackedMask.from_bool(torch.tensor([0.5]))
    with pytest.raises(ValueError, match=r"a mask must be .* a list of True and False, .*; got \[1, 0\]"):
        PackedMask.from_bool([1, 0])
    assert PackedMask.from_bool([[True, False]]) == PackedMask.from_bool(np.array([[True, False]]))


def test_a_mask_cannot_be_changed() -> None:
    bits = np.zeros(1, np.uint8)
    mask = PackedMask((8,), bits)
    with pytest.raises(ValueError, match="read-only"):
        mask.bits[0] = 1


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6) | st.integers(0, 3),
    coordinates=st.integers(1, 6),
    spare=st.integers(0, 3),
    unit_axis=st.sampled_from([0, 1]),
)
def test_block_masks_give_each_unit_one_coordinate(
    sizes: list[int] | int, coordinates: int, spare: int, unit_axis: int
) -> None:
    each = [sizes] * coordinates if isinstance(sizes, int) else sizes
    units = sum(each) + spare
    shape = (len(each), units) if unit_axis == 1 else (units, len(each))
    mask = BlockMask(shape, unit_axis, sizes if isinstance(sizes, int) else tuple(sizes))
    spelled = mask.to_bool()
    by_coordinate = spelled if unit_axis == 1 else spelled.T
    expected = [j for j, size in enumerate(each) for _ in range(size)]
    assert by_coordinate.sum(dim=1).tolist() == each
    assert by_coordinate[:, : len(expected)].int().argmax(dim=0).tolist() == expected
    assert not by_coordinate[:, len(expected) :].any()
    assert mask.count() == int(spelled.sum())
    assert mask == BlockMask(shape, unit_axis, tuple(each)), "equal sizes and one number are the same mask"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((2, 3, 4), 0, 1), "needs a matrix and unit_axis 0 or 1"),
        (((2, 3), 2, 1), "needs a matrix and unit_axis 0 or 1"),
        (((2, 3), 1, (1,)), "needs 2 sizes"),
        (((2, 3), 1, (-1, 2)), "block sizes must be whole numbers of at least 0; got -1"),
        (((2, 3), 1, (2.0, 1.0)), "block sizes must be whole numbers of at least 0; got 2.0"),
        (((2, 3), True, 1), "unit_axis must be whole numbers"),
        (((2, 3), 1, 2), "at most 3 units in all; got 2"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BlockMask(*arguments)


@pytest.mark.parametrize("mask", [FullMask((2, 3)), BlockMask((2, 3), 1, 1), PackedMask((2,), np.array([1], np.uint8))])
def test_every_mask_speaks_the_protocol(mask: Mask) -> None:
    assert isinstance(mask, Mask)
    assert mask.to_bool().shape == mask.shape
    assert density(mask) == mask.to_bool().double().mean().item()


class NotACpu:
    """Torch, but that every device is called another one than the CPU."""

    def __getattr__(self, name: str) -> object:
        return getattr(torch, name)

    def device(self, place: object) -> SimpleNamespace:
        return SimpleNamespace(type="elsewhere")


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (8,), (63, 5)])
def test_bits_unpacked_on_a_device_are_those_unpacked_here(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    array = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.5
    packed = PackedMask.from_bool(array)
    monkeypatch.setattr(sys.modules[PackedMask.__module__], "torch", NotACpu())
    assert packed.to_bool().equal(array)


@pytest.mark.parametrize("density", [0.0, -0.5, 1.5, math.nan])
def test_a_random_mask_keeps_a_fraction(density: float) -> None:
    with pytest.raises(ValueError, match=r"density must be in \(0, 1\]"):
        PackedMask.random((3,), density, seed=0)
    for right in (0.25, 0.5, 1.0):
        assert PackedMask.random((100, 100), right, seed=0).density == pytest.approx(right, abs=0.02)


@pytest.mark.gpu
def test_unpacking_on_cuda_equals_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    for shape in [(0,), (7,), (63, 5)]:
        mask = PackedMask.from_bool(torch.rand(shape) < 0.5)
        assert torch.equal(mask.to_bool("cuda").cpu(), mask.to_bool())


def test_a_mask_owns_its_bits_and_survives_pickling() -> None:
    bits = np.array([1], np.uint8)
    mask = PackedMask((4,), bits)
    bits[0] = 255
    assert mask.count() == 1
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(mask, protocol))
        assert again == mask
        assert not again.bits.flags.writeable
    assert PackedMask((16,), np.array([1, 9, 2, 9], np.uint8)[::2]).bits.tolist() == [1, 2]


def test_density_one_keeps_every_weight() -> None:
    assert PackedMask.random((10_000_000,), 1.0, seed=3).count() == 10_000_000


@pytest.mark.parametrize("sizes", [0, 1, 5, ()])
def test_blocks_of_no_coordinates_are_written_one_way(sizes: int | tuple[int, ...]) -> None:
    assert BlockMask((0, 4), 1, sizes) == BlockMask((0, 4), 1, 0)
    assert BlockMask((0, 4), 1, sizes).sizes == 0


def test_shapes_may_come_from_numpy() -> None:
    assert FullMask(np.array([2, 3])).shape == (2, 3)  # type: ignore[arg-type]
    assert hash(BlockMask([2, 4], np.int64(1), [2, 1])) == hash(BlockMask((2, 4), 1, (2, 1)))  # type: ignore[arg-type]


@pytest.mark.parametrize("numel", [0, 1, 7, 8, 9, 64, 1001])
def test_bits_packed_on_a_device_are_those_packed_here(numel: int) -> None:
    flat = (torch.rand(numel, generator=torch.Generator().manual_seed(0)) < 0.5).view(torch.uint8)
    assert _pack_on_device(flat).tolist() == np.packbits(flat.numpy(), bitorder="little").tolist()
