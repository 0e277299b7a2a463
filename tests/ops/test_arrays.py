"""Numbers as callers have them: what is taken, with which type, and what is refused in one line."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from strongticket.ops.arrays import as_tensor, load_npy


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], torch.float64),
        ((0.5, 1), torch.float64),
        (0.5, torch.float64),
        ([], torch.float64),
        (np.float32(0.5), torch.float64),
        (np.array([1.0, 2.0], np.float32), torch.float32),
        (np.array([1.0, 2.0], ">f8"), torch.float64),
        (np.array([1, 2], np.uint8), torch.float64),
        (np.arange(4.0)[::-1], torch.float64),
        (np.broadcast_to(np.ones(1), (3,)), torch.float64),
        ([torch.tensor(1.0), 2.0], torch.float64),
    ],
)
def test_numbers_are_taken_as_they_are(value: Any, dtype: torch.dtype) -> None:
    taken = as_tensor("x", value)
    assert taken.dtype == dtype
    np.testing.assert_array_equal(taken.numpy(), np.asarray(value))


def test_a_tensor_is_left_alone() -> None:
    given = torch.tensor([1], dtype=torch.int32)
    assert as_tensor("x", given) is given


def test_whole_numbers_and_truths_have_types_of_their_own() -> None:
    assert as_tensor("x", [1, 2], torch.int64).dtype == torch.int64
    assert as_tensor("x", np.array([True]), torch.bool).dtype == torch.bool
    assert as_tensor("x", [], torch.int64).shape == (0,)


@pytest.mark.parametrize(
    ("value", "dtype", "got"),
    [
        ([[1, 2], [3]], torch.float64, "list of numbers, in rows of one length; got [[1, 2], [3]]."),
        (None, torch.float64, "got None."),
        ("1.0", torch.float64, "got '1.0'."),
        ([True, False], torch.float64, "got [True, False]."),
        (1j, torch.float64, "got 1j."),
        (nn.Sequential(nn.Linear(2, 2)), torch.float64, "got Sequential( (0): Linear("),
        ([1.5], torch.int64, "list of whole numbers, in rows of one length; got [1.5]."),
        ([1], torch.bool, "list of True and False, in rows of one length; got [1]."),
    ],
)
def test_anything_else_is_refused_in_one_line(value: Any, dtype: torch.dtype, got: str) -> None:
    with pytest.raises(ValueError, match=re.escape(got)) as refused:
        as_tensor("x", value, dtype)
    assert str(refused.value).startswith("x must be a tensor, an array or a list of ")
    assert "\n" not in str(refused.value)


def npy(header: bytes) -> bytes:
    """A `.npy` file of three zeros with this header."""
    return b"\x93NUMPY\x01\x00v\x00" + header.ljust(117) + b"\n" + bytes(24)


GOOD = b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }"


def test_npy_files_are_read(tmp_path: Path) -> None:
    (file := tmp_path / "a.npy").write_bytes(npy(GOOD))
    assert load_npy(file).tolist() == load_npy(file, mmap_mode="r").tolist() == [0.0] * 3


@pytest.mark.parametrize("header", [GOOD[:-9], GOOD.replace(b"False,", b"False 0"), b"{b" + GOOD[1:], b"(" * 90, b""])
def test_a_damaged_npy_file_is_a_value_error(header: bytes, tmp_path: Path) -> None:
    # NumPy itself raises a TokenError, a SyntaxError, a TypeError and others here.
    (file := tmp_path / "a.npy").write_bytes(npy(header))
    with pytest.raises(ValueError, match=r"^a\.npy is not a \.npy file \("):
        load_npy(file)
