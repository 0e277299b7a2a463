import math
import pickle
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from strongticket import PackedMask, RandomTensor, Ticket
from strongticket.ops.rng import random_weights
from strongticket.tickets.codes import CodeMask, Frozen, coded_mask, weights_under
from strongticket.tickets.coding import encode
from strongticket.tickets.mask import Mask, density
from strongticket.tickets.owners import owner_mask
from strongticket.tickets.symbols import Symbols
from strongticket.tickets.table import KEEP_OR_DROP, Table, as_table

SIGNED: Table = ((0.0, 0), (1.0, 0), (-1.0, 0))
LEVELS: Table = tuple((0.1 * level, 0) for level in range(16))
DRAWN_AGAIN: Table = ((0.0, 0), (1.0, 0), (1.0, 1), (1.0, 2))
SCALED: Table = ((0.0, 0), (0.0123, 0))
TABLES = [SIGNED, LEVELS, DRAWN_AGAIN, SCALED, ((0.5, 3),), KEEP_OR_DROP]

coefficients = st.just(0.0) | st.floats(2.0**-24, 2.0**24, width=32).flatmap(lambda c: st.sampled_from([c, -c]))
tables = st.lists(st.tuples(coefficients, st.integers(0, 3) | st.just(2**32 - 1)), min_size=1, max_size=16).map(tuple)


def drawing(shape: tuple[int, ...], seed: int = 4) -> Callable[[int], Tensor]:
    return lambda number: random_weights(seed, "w", shape, "normal", 0.02, draw=number)


def spelled_out(codes: Tensor, table: Table, seed: int = 4) -> np.ndarray:
    """The meaning, weight by weight: one product in float64, rounded once to float32."""
    draws = {draw: drawing(tuple(codes.shape), seed)(draw).numpy().reshape(-1) for _, draw in table}
    flat = np.zeros(codes.numel(), np.float32)
    for i, code in enumerate(codes.flatten().tolist()):
        coefficient, draw = table[code]
        if coefficient:
            flat[i] = np.float32(np.float64(np.float32(coefficient)) * np.float64(draws[draw][i]))
    return flat.reshape(codes.shape)


@given(table=tables, rows=st.integers(0, 9), columns=st.integers(0, 9), seed=st.integers(0, 99))
def test_a_weight_is_its_coefficient_times_its_draw(table: Table, rows: int, columns: int, seed: int) -> None:
    codes = torch.from_numpy(np.random.default_rng(seed).integers(0, len(table), (rows, columns)))
    mask = coded_mask(codes, table)
    expected = spelled_out(codes, table)
    found = weights_under(mask, drawing((rows, columns))).numpy()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    np.testing.assert_array_equal(mask.to_bool().numpy(), np.array([c != 0 for c, _ in table])[codes.numpy()])
    assert mask.count() == int(mask.to_bool().sum())
    assert isinstance(mask, Mask)

    ticket = Ticket(seed=4, tensors=[RandomTensor(name="w", mask=mask, distribution="normal", scale=0.02)])
    again = Ticket.from_bytes(ticket.to_bytes())
    assert again == ticket
    assert again.tensors["w"].mask == mask
    assert again.verify().ok
    np.testing.assert_array_equal(again.materialize()["w"].numpy().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("table", TABLES)
def test_torch_multiplies_alike(table: Table) -> None:
    """What a rule computes with, draw * coefficient in float32, is what a ticket brings back."""
    codes = torch.randint(len(table), (200, 300), generator=torch.Generator().manual_seed(0))
    forward = torch.zeros(200, 300)
    for code, (coefficient, draw) in enumerate(table):
        if coefficient:
            product = drawing((200, 300))(draw) * torch.tensor(coefficient, dtype=torch.float32)
            forward = torch.where(codes == code, product, forward)
    assert torch.equal(weights_under(coded_mask(codes, table), drawing((200, 300))), forward)


@pytest.mark.gpu
@pytest.mark.parametrize("table", TABLES)
def test_cuda_multiplies_alike(table: Table) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    codes = torch.randint(len(table), (200, 300))
    for frozen in (None, Frozen(5, (0.5 / len(table),) * len(table))):
        fixed = frozen.codes(codes.numel()).view(200, 300) if frozen else torch.full_like(codes, -1)
        mask = coded_mask(torch.where(fixed >= 0, fixed.long(), codes).cuda(), table, frozen)
        ticket = Ticket(seed=4, tensors=[RandomTensor(name="w", mask=mask, distribution="normal", scale=0.02)])
        assert torch.equal(ticket.materialize(device="cuda")["w"].cpu(), ticket.materialize()["w"])


def test_keep_or_drop_is_a_packed_mask_however_it_is_told() -> None:
    kept = torch.tensor([True, False, True])
    for codes, table in (
        (kept, KEEP_OR_DROP),
        (kept.long(), KEEP_OR_DROP),
        (kept.long() * 2, ((0.0, 0), (0.0, 7), (1.0, 0))),
    ):
        assert coded_mask(codes, table) == PackedMask.from_bool(kept)


def test_codes_that_mean_the_same_become_one() -> None:
    mask = coded_mask(torch.tensor([0, 1, 2, 3]), ((0.0, 0), (0.5, 1), (0.5, 1), (-0.0, 5)))
    assert mask.table == ((0.0, 0), (0.5, 1))
    assert isinstance(mask, CodeMask)
    assert mask.codes().tolist() == [0, 1, 1, 0]


@given(
    table=st.sampled_from([SIGNED, LEVELS, KEEP_OR_DROP]),
    total=st.floats(0.01, 0.99),
    numel=st.integers(0, 3000),
    seed=st.integers(0, 2**64 - 1),
)
def test_frozen_weights_take_no_bits(table: Table, total: float, numel: int, seed: int) -> None:
    rng = np.random.default_rng(numel)
    shares = tuple((rng.dirichlet(np.ones(len(table))) * total).tolist())
    frozen = Frozen(seed, shares)
    fixed = frozen.codes(numel)
    # In plain words: where the uniform number of a weight falls among the shares, laid side by side from -1 on.
    uniform = random_weights(seed, "frozen", (numel,)).double().numpy()
    edges = 2 * np.cumsum([0.0, *shares]) - 1
    places = np.searchsorted(edges, uniform, side="right") - 1
    np.testing.assert_array_equal(fixed.numpy(), np.where(places < len(shares), places, -1))

    codes = torch.from_numpy(np.where(fixed.numpy() < 0, rng.integers(0, len(table), numel), fixed.numpy()))
    mask = coded_mask(codes, table, frozen)
    assert isinstance(mask, CodeMask)
    assert mask.symbols.count == int((fixed < 0).sum())
    assert torch.equal(mask.codes().long(), codes)
    assert mask.count() == int(mask.to_bool().sum())
    assert density(mask) == (mask.to_bool().double().mean().item() if numel else 0.0)
    ticket = Ticket(seed=4, tensors=[RandomTensor(name="w", mask=mask, distribution="normal", scale=0.02)])
    again = Ticket.from_bytes(ticket.to_bytes())
    assert again.tensors["w"].mask == mask
    np.testing.assert_array_equal(again.materialize()["w"].numpy(), spelled_out(codes, as_table(table)))


def test_a_payload_is_as_long_as_its_map_asks_for_and_no_longer() -> None:
    """A reader draws 4,096 weights a byte at most; a mask that takes fewer bytes is filled up to that."""
    numel, frozen = 1 << 18, Frozen(3, (0.7, 0.0))
    codes = frozen.codes(numel).clamp(min=0)
    mask = coded_mask(codes, KEEP_OR_DROP, frozen)
    coding, pieces = encode(mask.symbols, numel)
    assert (coding, sum(map(len, pieces))) == ("rans", numel // 4096 - 1)
    ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)])
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket


def test_a_large_map_is_counted_in_a_fraction_of_the_time_of_drawing_it() -> None:
    """A reader counts it before it knows whether the payload fits, and 32 kB may ask for this many."""
    frozen = Frozen(3, (0.7, 0.2))
    frozen.counts(1)  # compiles
    start = time.process_time()
    counts = frozen.counts(1 << 27)
    assert time.process_time() - start < 0.7
    assert sum(counts) == 1 << 27


def test_shares_are_what_is_frozen() -> None:
    codes = Frozen.of(3, "layer.weight", (0.4, 0.0, 0.3)).codes(1_000_000)
    assert torch.equal(codes, Frozen.of(3, "layer.weight", (0.4, 0.0, 0.3)).codes(1_000_000))
    for code, share in ((0, 0.4), (1, 0.0), (2, 0.3), (-1, 0.3)):
        assert abs((codes == code).double().mean().item() - share) < 0.003
    other = Frozen.of(3, "another.weight", (0.4, 0.0, 0.3)).codes(1_000_000)
    assert abs((codes == other).double().mean().item() - (0.16 + 0.09 + 0.09)) < 0.003, "independent by name"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: coded_mask(torch.tensor([0]), ()), "a table has 1 to 16 codes; got 0"),
        (lambda: coded_mask(torch.tensor([0]), ((1.0, 0),) * 17), "a table has 1 to 16 codes; got 17"),
        (lambda: coded_mask(torch.tensor([2]), KEEP_OR_DROP), "codes must be below 2, .*; got 2 to 2"),
        (lambda: coded_mask(torch.tensor([-1]), KEEP_OR_DROP), "codes must be below 2, .*; got -1 to -1"),
        (lambda: coded_mask(torch.tensor([0.0]), KEEP_OR_DROP), "codes must be whole numbers; got torch.float32"),
        (lambda: as_table(((math.inf, 0),)), r"a coefficient is 0, or from 2\^-24 to 2\^24 with either sign; got inf"),
        (lambda: as_table(((math.nan, 0),)), "a coefficient is 0, .*; got nan"),
        (lambda: as_table(((2.0**24 + 2, 0),)), "a coefficient is 0"),
        (lambda: as_table(((1e-8, 0),)), "a coefficient is 0"),
        (lambda: as_table(((1.0, -1),)), "draws must be whole numbers of at least 0; got -1"),
        (lambda: as_table(((1.0, 2**32),)), r"a draw is a whole number in 0 \.\. 2\^32 - 1"),
        (lambda: CodeMask((1,), ((1.0, 0), (1.0, 0)), Symbols.pack(np.zeros(1, int), 2)), "a table must differ"),
        (lambda: CodeMask((1,), KEEP_OR_DROP, Symbols.pack(np.zeros(1, int), 2)), "must be a PackedMask"),
        (lambda: CodeMask((2,), SIGNED, Symbols.pack(np.zeros(1, int), 3)), "needs 2 symbols below 3; got 1 below 3"),
        (lambda: CodeMask((1,), SIGNED, Symbols.pack(np.zeros(1, int), 2)), "needs 1 symbols below 3; got 1 below 2"),
        (lambda: Frozen(-1, (0.1, 0.1)), "seed must be"),
        (lambda: Frozen(0, (0.5, 0.6)), "frozen shares must be at least 0, .* at most 255/256"),
        (lambda: Frozen(0, (0.0, 0.0)), "frozen shares"),
        (lambda: Frozen(0, (-0.1, 0.2)), "frozen shares"),
        (lambda: Frozen(0, (math.nan, 0.2)), "frozen shares"),
        (lambda: coded_mask(torch.ones(99), KEEP_OR_DROP), "codes must be whole numbers"),
        (lambda: coded_mask(torch.ones(99).bool(), KEEP_OR_DROP, Frozen(0, (0.5, 0.1))), "differs from the one its"),
        (lambda: coded_mask(torch.zeros(9).bool(), KEEP_OR_DROP, Frozen(0, (0.5,))), "2 codes need 2 frozen"),
    ],
)  # fmt: skip
def test_what_no_ticket_holds_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_masks_are_values() -> None:
    codes = torch.tensor([[0, 1, 2], [2, 2, 0]])
    mask = coded_mask(codes, SIGNED)
    assert mask == coded_mask(codes.to(torch.uint8), SIGNED) == pickle.loads(pickle.dumps(mask))
    assert hash(mask) == hash(coded_mask(codes, SIGNED))
    assert mask != coded_mask(codes.T, SIGNED)
    assert mask != coded_mask(codes, ((0.0, 0), (1.0, 0), (-2.0, 0)))
    assert repr(mask).endswith("symbols=Symbols(alphabet=3, count=6), frozen=None)")
    with pytest.raises(AttributeError, match="cannot assign to field"):
        mask.table = KEEP_OR_DROP  # type: ignore[misc]


def test_codes_and_owners_may_be_lists_and_arrays() -> None:
    expected = coded_mask(torch.tensor([[0, 1, 2]]), SIGNED)
    assert coded_mask([[0, 1, 2]], SIGNED) == coded_mask(np.array([[0, 1, 2]], np.uint8), SIGNED) == expected
    assert owner_mask((2, 3), 1, [1, -1, 0]) == owner_mask((2, 3), 1, torch.tensor([1, -1, 0]))
    with pytest.raises(ValueError, match=r"codes must be .* whole numbers, .*; got \[0.5\]"):
        coded_mask([0.5], SIGNED)
