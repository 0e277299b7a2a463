import math
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strongticket import BlockMask, RandomTensor, Ticket, owner_mask
from strongticket.tickets.coding import encode
from strongticket.tickets.mask import Mask
from strongticket.tickets.owners import OwnerMask
from strongticket.tickets.symbols import Symbols


@given(
    coordinates=st.integers(0, 20) | st.just(300),
    unit_axis=st.sampled_from([0, 1]),
    ordered=st.booleans(),
    data=st.data(),
)
def test_each_unit_keeps_its_own_weight(coordinates: int, unit_axis: int, ordered: bool, data: st.DataObject) -> None:
    owners = data.draw(st.lists(st.integers(-1, coordinates - 1), max_size=30))
    if ordered:
        owners = sorted(owners, key=lambda owner: (owner < 0, owner))
    units = len(owners)
    shape = (units, coordinates) if unit_axis == 0 else (coordinates, units)
    mask = owner_mask(shape, unit_axis, torch.tensor(owners, dtype=torch.int64))
    expected = np.zeros(shape, bool)
    for unit, owner in enumerate(owners):
        if owner >= 0:
            expected[(unit, owner) if unit_axis == 0 else (owner, unit)] = True
    np.testing.assert_array_equal(mask.to_bool().numpy(), expected)
    assert mask.owners().tolist() == owners
    assert mask.count() == expected.sum()
    assert isinstance(mask, Mask)
    assert isinstance(mask, BlockMask) or not ordered, "blocks are written as blocks"

    ticket = Ticket(seed=3, tensors=[RandomTensor(name="w", mask=mask)])
    again = Ticket.from_bytes(ticket.to_bytes())
    assert again == ticket
    assert again.tensors["w"].mask == mask == pickle.loads(pickle.dumps(mask))
    assert hash(again.tensors["w"].mask) == hash(mask)
    np.testing.assert_array_equal(again.materialize()["w"].numpy() != 0, expected)


def entropy(owners: np.ndarray) -> float:
    shares = np.unique(owners, return_counts=True)[1] / owners.size
    return float(-shares @ np.log2(shares))


@pytest.mark.parametrize(
    ("coordinates", "each", "nowhere"), [(16, 28, 0.0), (32, 20, 0.5), (768, 16, 0.0), (768, 20, 0.1)]
)
def test_owners_take_their_entropy(coordinates: int, each: int, nowhere: float) -> None:
    """As many units for each coordinate, in any order, and some that keep nothing."""
    owned = np.repeat(np.arange(coordinates), each)
    owners = np.concatenate([owned, np.full(int(nowhere * owned.size), -1)])
    np.random.default_rng(0).shuffle(owners)
    mask = owner_mask((owners.size, coordinates), 0, torch.from_numpy(owners))
    assert isinstance(mask, OwnerMask)
    coding, pieces = encode(mask.symbols)
    bits = 8 * sum(map(len, pieces)) / owners.size
    assert coding == "rans"
    assert bits <= 1.02 * entropy(owners) + 8 * 14 / owners.size
    assert bits <= math.ceil(math.log2(coordinates + 1))


def test_owners_of_units_of_any_size_take_their_entropy() -> None:
    shares = np.random.default_rng(1).dirichlet(np.ones(64))
    owners = np.random.default_rng(0).choice(64, 50_000, p=shares)
    mask = owner_mask((64, 50_000), 1, torch.from_numpy(owners))
    assert 8 * sum(map(len, encode(mask.symbols)[1])) <= 1.02 * entropy(owners) * owners.size  # type: ignore[arg-type]


def symbols(owners: list[int], coordinates: int) -> Symbols:
    return Symbols.pack(np.array(owners) + 1, coordinates + 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: owner_mask((2, 3, 4), 0, torch.zeros(2).int()), "owners need a matrix and unit_axis 0 or 1"),
        (lambda: owner_mask((2, 3), 2, torch.zeros(2).int()), "owners need a matrix and unit_axis 0 or 1"),
        (lambda: owner_mask((2, 3), 0, torch.zeros(3).int()), "2 units need 2 owners, .*; got torch.int32 of shape"),
        (lambda: owner_mask((2, 3), 0, torch.zeros(2)), "2 units need 2 owners, whole numbers; got torch.float32"),
        (lambda: owner_mask((2, 3), 0, torch.tensor([0, 3])), "owners must be -1 to 2; got 0 to 3"),
        (lambda: owner_mask((2, 3), 0, torch.tensor([0, -2])), "owners must be -1 to 2; got -2 to 0"),
        (lambda: OwnerMask((2, 3), 0, symbols([0, 1], 3)), "must be a BlockMask"),
        (lambda: OwnerMask((2, 3), 0, symbols([1, 0], 4)), "2 units of 3 coordinates need .*; got 2 below 5"),
        (lambda: OwnerMask((2, 3), 1, symbols([1, 0], 2)), "3 units of 2 coordinates need 3 symbols below 3"),
    ],
)  # fmt: skip
def test_wrong_owners_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
