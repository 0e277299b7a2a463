import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strongticket.data.windows import Tokens, training_batch, validation_batches, window_count


def counting(n: int) -> Tokens:
    return np.arange(n, dtype=np.uint16)


shapes = st.tuples(st.integers(1, 9), st.integers(1, 7), st.integers(2, 200)).filter(lambda s: s[2] > s[0])


@given(shapes, st.integers(0, 2**64 - 1))
def test_an_epoch_shows_every_window_once(shape: tuple[int, int, int], seed: int) -> None:
    length, sequences, n = shape
    tokens, windows = counting(n), (n - 1) // length
    steps = -(-2 * windows // sequences)
    batches = [training_batch(tokens, length=length, sequences=sequences, seed=seed, step=t) for t in range(steps)]
    inputs = torch.cat([batch[0] for batch in batches])
    targets = torch.cat([batch[1] for batch in batches])
    assert inputs.dtype == targets.dtype == torch.int64
    assert inputs.shape == (steps * sequences, length)
    torch.testing.assert_close(targets, inputs + 1)
    whole = torch.arange(windows * length).view(windows, length)
    for epoch in range(2):
        seen = inputs[epoch * windows : (epoch + 1) * windows]
        torch.testing.assert_close(seen[seen[:, 0].argsort()], whole)


def test_a_step_follows_from_seed_and_number_alone() -> None:
    tokens = counting(5000)

    def batch(seed: int, step: int) -> list[list[int]]:
        return training_batch(tokens, length=7, sequences=4, seed=seed, step=step)[0].tolist()

    later = batch(0, 300)
    assert [batch(0, t) for t in (299, 0, 300)][-1] == later
    assert batch(1, 300) != later
    assert batch(0, 301) != later


def test_windows_of_a_seed_are_pinned() -> None:
    """Resuming a run under another release must see the same text."""
    inputs, _ = training_batch(counting(1000), length=10, sequences=8, seed=3, step=13)
    assert (inputs[:, 0] // 10).tolist() == [86, 91, 34, 20, 94, 85, 8, 89]


def test_epochs_differ() -> None:
    tokens = counting(1001)
    first, second = (
        training_batch(tokens, length=10, sequences=100, seed=0, step=step)[0][:, 0].tolist() for step in range(2)
    )
    assert sorted(first) == sorted(second)
    assert first != second


@given(shapes)
def test_validation_shows_all_windows_in_order(shape: tuple[int, int, int]) -> None:
    length, sequences, n = shape
    batches = list(validation_batches(counting(n), length=length, sequences=sequences))
    inputs = torch.cat([inputs for inputs, _ in batches])
    torch.testing.assert_close(inputs.flatten(), torch.arange((n - 1) // length * length))
    torch.testing.assert_close(torch.cat([targets for _, targets in batches]), inputs + 1)
    assert all(len(inputs) == sequences for inputs, _ in batches[:-1])
    assert len(batches) == -(-len(inputs) // sequences)


def test_large_vocabularies_keep_their_tokens() -> None:
    tokens = np.array([5, 2**32 - 1, 70_000], dtype=np.uint32)
    inputs, targets = training_batch(tokens, length=2, sequences=1, seed=0, step=0)
    assert (inputs.tolist(), targets.tolist()) == ([[5, 2**32 - 1]], [[2**32 - 1, 70_000]])


def test_too_little_text_names_both_numbers() -> None:
    assert window_count(counting(11), 10) == 1
    with pytest.raises(ValueError, match=r"10 tokens.* length 10 .* need 11"):
        window_count(counting(10), 10)


@pytest.mark.parametrize(
    ("changed", "message"),
    [({"length": 0}, "at least one token"), ({"sequences": 0}, "at least one sequence"), ({"step": -1}, "from 0")],
)
def test_bad_arguments_are_named(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        training_batch(counting(100), **{"length": 4, "sequences": 2, "seed": 0, "step": 0, **changed})
