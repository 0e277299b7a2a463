"""Threads that share compiled work: every number is taken once, waiting ends, and a forked process works alone."""

import os
from typing import Any

import numpy as np
import pytest
import torch
from numba import carray

from strongticket.ops import team
from strongticket.ops.addresses import pointer
from strongticket.ops.planes import multiply, pack
from strongticket.ops.team import compiled_once, run, take, wait_until

COUNT = 2000


@compiled_once
def mark(at: Any) -> None:
    marks = carray(at, 3 + COUNT, np.int64)  # a counter of what is taken, one of what is done, an address, and marks
    number = take(at)
    while number < COUNT:
        marks[3 + number] += 1
        take(pointer(marks[2]))
        number = take(at)
    wait_until(pointer(marks[2]), COUNT)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_number_is_taken_once_and_all_wait_for_the_last(threads: int) -> None:
    for _ in range(20):
        marks = np.zeros(3 + COUNT, np.int64)
        marks[2] = marks.ctypes.data + 8
        run(mark(), marks.ctypes.data, threads)
        assert marks[0] == COUNT + threads  # each is told once that none is left
        assert marks[1] == COUNT
        assert (marks[3:] == 1).all()


def test_little_work_has_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert [team.threads_for(work, 100) for work in (0, 99, 199, 200, 10_000)] == [1, 1, 1, 2, 4]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_works_alone() -> None:
    planes, x = pack(torch.ones(4096, 512, dtype=torch.int8)), torch.ones(512)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = multiply(planes, x)  # with threads that the child does not have
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.equal(multiply(planes, x), expected) else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        torch.set_num_threads(before)
