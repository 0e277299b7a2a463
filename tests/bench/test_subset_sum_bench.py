import json
from collections.abc import Callable
from dataclasses import replace

import numba
import numpy as np
import pytest
import torch
from torch import Tensor

from strongticket.bench import instances, peers, subset_sum
from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.settings import SubsetSumSettings as Settings
from strongticket.bench.subset_sum import OURS

TINY = Settings(items=(5, 9), rows=80, repeats=2, peers=())
Solver = Callable[[Tensor, Tensor], Tensor]


def spoil(row: int) -> Solver:
    """Our engine with all bits of one row flipped."""
    honest = subset_sum.solve_ours

    def solve(targets: Tensor, items: Tensor) -> Tensor:
        mask = honest(targets, items)
        if len(mask) > row:  # pilot runs are shorter
            mask[row] = ~mask[row]
        return mask

    return solve


def test_a_tiny_run_gives_every_number() -> None:
    said: list[str] = []
    comparisons = list(subset_sum.run(TINY, progress=said.append))
    assert [comparison.n for comparison in comparisons] == [5, 9]
    assert len(said) == subset_sum.count_steps(TINY)
    for comparison in comparisons:
        ours, baseline = comparison.measurements
        assert (ours.engine, baseline.engine) == (OURS, "horowitz-sahni")
        assert (ours.optimal_share, ours.times_slower, ours.checked) == (1.0, 1.0, ours.rows)
        assert baseline.optimal_share > 0.9
        assert baseline.times_slower == pytest.approx(ours.median / baseline.median)
        for measured in (ours, baseline):
            assert 0 < measured.p20 <= measured.median <= measured.p80
            assert json.loads(json.dumps(measured._asdict()))["op"] == "subset_sum"


@pytest.mark.gpu
def test_a_tiny_run_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device here")
    for comparison in subset_sum.run(replace(TINY, items=(5, 16), device="cuda")):
        ours, baseline = comparison.measurements
        assert (ours.device, baseline.engine) == ("cuda", "torch-sort")
        assert ours.optimal_share == 1.0


def test_unreachable_targets_are_counted() -> None:
    comparison = next(subset_sum.run(TINY))
    problems = instances.draw(80, 5)
    assert comparison.unreachable == problems.unreachable().sum() > 0
    assert comparison.drawn == 80


def test_a_wrong_kernel_is_refused_by_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "solve_ours", spoil(17))
    with pytest.raises(
        WrongAnswerError, match=r"1 of 80 answers at n = 5 are worse .* the reference; first row 17: error"
    ):
        list(subset_sum.run(TINY))


def test_a_row_the_reference_did_not_check_is_refused_for_losing_to_a_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "solve_ours", spoil(70))
    monkeypatch.setattr(subset_sum, "rows_to_check", lambda n: 50)
    with pytest.raises(WrongAnswerError, match=r"plain numba Horowitz-Sahni; first row 70"):
        list(subset_sum.run(TINY))


def test_a_kernel_wrong_only_in_its_timed_runs_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Right at first, wrong from its second call on: the masks that were timed count too.
    calls = 0
    honest, spoilt = subset_sum.solve_ours, spoil(0)

    def solve(targets: Tensor, items: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return (honest if calls == 1 else spoilt)(targets, items)

    monkeypatch.setattr(subset_sum, "solve_ours", solve)
    with pytest.raises(WrongAnswerError, match="the same engine before it was timed; first row 0"):
        list(subset_sum.run(replace(TINY, items=(5,))))


def test_equal_errors_are_not_worse() -> None:
    subset_sum.refuse_if_worse(3, "anyone", np.array([0.0, 0.5]), np.array([0.0, 0.5]))
    with pytest.raises(WrongAnswerError, match="first row 1"):
        subset_sum.refuse_if_worse(3, "anyone", np.array([0.0, np.nextafter(0.5, 1)]), np.array([0.0, 0.5]))


def test_a_peer_joins_the_table() -> None:
    if not peers.HIGHS.installed:
        pytest.skip(peers.HIGHS.missing)
    settings = Settings(items=(6,), rows=30, repeats=1, peers=("highs",), budget=0.5)
    (comparison,) = subset_sum.run(settings)
    highs = comparison.measurements[-1]
    assert highs.engine == "highs"
    assert 1 <= highs.rows <= 30
    assert highs.times_slower > 1
    assert comparison.notes == []


def test_a_peer_that_fails_is_a_note_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = peers.Peer("no-such-solver", "Broken", "numpy", "numpy")
    monkeypatch.setitem(peers.GROUPS, "broken", (broken,))
    settings = Settings(items=(6,), rows=10, repeats=1, peers=("broken",), budget=0.5)
    (comparison,) = subset_sum.run(settings)
    assert len(comparison.measurements) == 2
    assert comparison.notes == [
        "Broken at n = 6 ended after 0 rows: ValueError: unknown peer 'no-such-solver'",
    ]


def test_peer_rates_are_those_of_groups_of_problems() -> None:
    # Times too unlike for a median of single problems: dealt in turn, each of the five runs has one slow problem.
    seconds = np.array([0.1] * 5 + [0.9] * 5)
    answers = peers.Answers(seconds, np.zeros((10, 2), np.bool_), np.zeros(10, np.bool_))
    sample = subset_sum.as_sample(peers.HIGHS, answers, TINY)
    np.testing.assert_allclose(sample.rates, [2.0] * 5)
    beside_a_gpu = subset_sum.as_sample(peers.HIGHS, answers, replace(TINY, device="cuda"))
    assert (beside_a_gpu.of.label, beside_a_gpu.of.device) == ("HiGHS (scipy), on the CPU", "cpu")


def test_threads_beyond_the_machine_are_refused() -> None:
    with pytest.raises(ValueError, match="threads must be between 1 and the"):
        subset_sum.use_threads(100_000)
    subset_sum.use_threads(1)


def test_several_threads_are_compared_with_one() -> None:
    if numba.config.NUMBA_NUM_THREADS < 2:
        pytest.skip("one core only: there is nothing to compare")
    (comparison,) = subset_sum.run(replace(TINY, items=(9,), threads=2))
    ours, alone, _ = comparison.measurements
    assert (ours.threads, alone.threads, alone.engine, alone.clock) == (2, 1, "strongticket-1", "wall")
    assert numba.get_num_threads() == 2
    subset_sum.use_threads(1)
