"""Blocks with enough units of either sign, and more for inputs whose weights are large."""

import pytest
import torch

from strongticket.construct.balance import balanced_blocks
from strongticket.construct.feedforward import prune_layer
from strongticket.construct.source import RandomMatrix


def first_layer(items: int, inputs: int) -> RandomMatrix:
    return RandomMatrix(name="map.first", coordinates=inputs, units=2 * items * inputs, unit_axis=0, scale=1.0)


@pytest.mark.parametrize("seed", range(5))
def test_every_half_has_enough_and_all_fit(seed: int) -> None:
    matrix = first_layer(20, 40)
    sizes = balanced_blocks(matrix, torch.full((3, 40), 0.2), 20, seed, None)
    weights, start, fewest = matrix.draw(seed, None), 0, []
    for j, size in enumerate(sizes):
        block = weights[j, start : start + size]
        fewest.append(min(int((block > 0).sum()), int((block < 0).sum())))
        # A block ends as soon as both signs have enough, so its last unit was needed.
        last = block[-1] > 0
        assert int((block > 0).sum() if last else (block < 0).sum()) == fewest[-1]
        start += size
    assert start <= matrix.units
    assert len(set(fewest)) == 1
    assert fewest[0] >= 15


def test_inputs_with_large_weights_get_more_units() -> None:
    weight = torch.full((3, 40), 0.2)
    weight[1, 7] = -6.0
    sizes = balanced_blocks(first_layer(20, 40), weight, 20, 0, None)
    assert sizes[7] >= 2 * 16 * 6
    assert max(size for j, size in enumerate(sizes) if j != 7) < 80
    assert sum(sizes) <= 2 * 20 * 40


def test_what_cannot_fit_is_shared_out_as_far_as_it_goes() -> None:
    matrix = first_layer(4, 10)
    sizes = balanced_blocks(matrix, torch.full((3, 10), 50.0), 4, 0, None)
    assert len(sizes) == 10
    assert sum(sizes) <= matrix.units


def test_balanced_blocks_come_closer_than_equal_ones() -> None:
    weight = 0.1 * torch.randn(8, 120, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight[3, 4] = 5.0
    items = 14
    sizes = balanced_blocks(first_layer(items, 120), weight, items, 0, None)
    equal, balanced = (
        prune_layer(weight, "map", 2 * items * 120, seed=0, init="theory", sizes=some, device=None)
        for some in (None, sizes)
    )
    assert balanced.norm() < 0.2 * equal.norm()
    assert balanced.worst_entry() < 0.2 * equal.worst_entry()
