"""Blocks with enough units of either sign, and as long as their input's weights need."""

import pytest
import torch
from torch import Tensor

from strongticket.construct.balance import balanced_blocks
from strongticket.construct.feedforward import relu_product
from strongticket.construct.plan import Product

OUTPUTS, INPUTS = 400, 40


def layers(weight: Tensor, items: int) -> Product:
    return relu_product("map", weight.shape, 2 * items * weight.shape[1], "theory")


def blocks(weight: Tensor, items: int, seed: int = 0) -> tuple[int, ...]:
    first, second = layers(weight, items).matrices()
    return balanced_blocks(first, second, weight, items, seed, None)


def halves(weight: Tensor, items: int, seed: int, start: int, size: int, j: int) -> list[tuple[int, bool]]:
    """Tell of each sign how many units of a block have it, and whether they reach all weights of input j."""
    first, second = layers(weight, items).matrices()
    units = slice(start, start + size)
    u, v = first.draw(seed, None)[j, units].double(), second.draw(seed, None)[:, units].double()
    found = []
    for chosen in (u > 0, u < 0):
        products = v[:, chosen] * u[chosen]
        low, high = products.clamp(max=0).sum(dim=1), products.clamp(min=0).sum(dim=1)
        found.append((int(chosen.sum()), bool(((low <= weight[:, j]) & (weight[:, j] <= high)).all())))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_block_ends_as_soon_as_both_signs_have_enough_and_all_weights_are_in_reach(seed: int) -> None:
    weight = 0.15 * torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    sizes, start, found, shorter = blocks(weight, 20, seed), 0, [], []
    for j, size in enumerate(sizes):
        found.append(halves(weight, 20, seed, start, size, j))
        shorter.append(halves(weight, 20, seed, start, size - 1, j))
        start += size
    assert start <= 2 * 20 * INPUTS
    assert all(reached for block in found for _, reached in block)
    least = min(count for block in found for count, _ in block)
    assert least >= 14
    assert all(any(count < least or not reached for count, reached in block) for block in shorter)
    assert any(min(count for count, _ in block) > least for block in found), "none was longer for the sake of reach"


def test_inputs_with_large_weights_get_more_units() -> None:
    weight = torch.full((3, 40), 0.2)
    weight[1, 7] = -6.0
    sizes = blocks(weight, 20)
    assert sizes[7] > 2 * 8 * 6 * 0.7, "the positive ones of n products sum to about n / 8"
    assert max(size for j, size in enumerate(sizes) if j != 7) < 80
    assert sum(sizes) <= 2 * 20 * 40


@pytest.mark.parametrize("entry", [2.0, 50.0])
def test_what_cannot_fit_is_shared_out_as_far_as_it_goes(entry: float) -> None:
    sizes = blocks(torch.full((3, 10), entry), 4)
    assert len(sizes) == 10
    assert sum(sizes) <= 2 * 4 * 10


def test_balanced_blocks_come_closer_than_equal_ones() -> None:
    weight = 0.1 * torch.randn(8, 120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[3, 4] = 5.0
    items = 14
    equal, balanced = (
        layers(weight, items).prune(weight, seed=0, sizes=sizes) for sizes in (None, blocks(weight, items))
    )
    assert len(equal.unreachable) > 0
    assert not balanced.unreachable
    assert balanced.norm() < 0.05 * equal.norm()
    assert balanced.worst_entry() < 0.05 * equal.worst_entry()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_gpu_gives_the_same_sizes() -> None:
    weight = 0.15 * torch.randn(OUTPUTS, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first, second = layers(weight, 20).matrices()
    assert balanced_blocks(first, second, weight.cuda(), 20, 0, "cuda") == blocks(weight, 20)
