"""Windows of tokens: those of a training step, and all of them in order.

A text of N tokens has floor((N - 1) / length) windows that do not overlap; each has `length` inputs and, shifted by
one, `length` targets. A training step needs no state: its windows follow from the seed and the step number alone, so
an interrupted run can resume.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from strongticket.ops.philox.reference import words
from strongticket.ops.rng import stream_of

# uint16, or uint32 for a vocabulary that needs it.
Tokens = npt.NDArray[np.unsignedinteger[Any]]


def window_count(tokens: Tokens, length: int, what: str = "the text") -> int:
    """Count the windows; a text shorter than one is an error, whose message calls the text `what`."""
    if length < 1:
        raise ValueError(f"a sequence needs at least one token; got length {length}.")
    if len(tokens) <= length:
        raise ValueError(
            f"{what} has {len(tokens):,} tokens, but one sequence of length {length:,} and the token after it "
            f"need {length + 1:,}. Use more text or a smaller length."
        )
    return (len(tokens) - 1) // length


def training_batch(tokens: Tokens, *, length: int, sequences: int, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return the sequences of one training step.

    Windows follow one permutation per epoch, without gaps between epochs: step t takes positions t * sequences to
    (t + 1) * sequences of this endless series.

    Args:
        tokens: (N,) unsigned integers.
        length: tokens per sequence.
        sequences: sequences per step.
        seed: seed of the permutations.
        step: 0 or more.

    Returns:
        Inputs and targets, (sequences, length) int64 each; targets are the inputs shifted by one.
    """
    _check_sequences(sequences)
    if step < 0:
        raise ValueError(f"steps count from 0; got {step}.")
    windows = window_count(tokens, length)
    places = np.arange(step * sequences, (step + 1) * sequences)
    epochs = range(places[0] // windows, places[-1] // windows + 1)
    chosen = [_permutation(seed, epoch, windows)[places[places // windows == epoch] % windows] for epoch in epochs]
    return _gather(tokens, np.concatenate(chosen), length)


def validation_batches(tokens: Tokens, *, length: int, sequences: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield all windows in order, `sequences` at a time; the last batch may have fewer.

    Returns:
        Inputs and targets as in `training_batch`.
    """
    _check_sequences(sequences)
    windows = window_count(tokens, length)
    for start in range(0, windows, sequences):
        yield _gather(tokens, np.arange(start, min(start + sequences, windows)), length)


def _gather(tokens: Tokens, chosen: npt.NDArray[np.int64], length: int) -> tuple[Tensor, Tensor]:
    stop = window_count(tokens, length) * length
    rows = (tokens[shift : shift + stop].reshape(-1, length)[chosen] for shift in (0, 1))  # (sequences, length) each
    inputs, targets = (torch.from_numpy(row.astype(np.int64)) for row in rows)
    return inputs, targets


# Two, because a step may span the end of an epoch.
@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, windows: int) -> npt.NDArray[np.int64]:
    """Order an epoch's windows by 64-bit random keys from our own generator, independent of NumPy's release."""
    keys = words(stream_of(seed, f"windows of epoch {epoch}"), 0, 2 * windows).view(np.uint64)
    return np.argsort(keys, kind="stable")


def _check_sequences(sequences: int) -> None:
    if sequences < 1:
        raise ValueError(f"a batch needs at least one sequence; got {sequences}.")
