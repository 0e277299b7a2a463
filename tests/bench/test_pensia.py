import pytest
from torch import Tensor

from strongticket.bench import pensia, subset_sum
from strongticket.bench.measure import WrongAnswerError
from strongticket.bench.settings import PUBLISHED_WEIGHTS, PensiaSettings

QUICK = 200  # weights


def test_outcome_compares_per_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sum, "rows_to_check", lambda n: 20)
    ((outcome,),) = pensia.run(PensiaSettings(weights=QUICK, repeats=2))
    assert (outcome.weights, outcome.n, outcome.checked, outcome.threads) == (QUICK, 21, 20, 1)
    assert outcome.p20 <= outcome.median <= outcome.p80
    # 77,266 s times 36 cores over 397,000 weights are 7.0 core-seconds a weight.
    assert outcome.times_less_core_time == pytest.approx(7.006437 / (outcome.median / QUICK), rel=1e-5)
    assert outcome.times_less_time == pytest.approx(0.1946247 / (outcome.median / QUICK), rel=1e-5)
    # 21 items leave about 5e-7 between neighbouring sums.
    assert 1e-8 < outcome.median_error < 5e-6
    assert outcome.median_error <= outcome.worst_error < 1e-2
    assert (outcome.worst_unreachable_error > 0) == (outcome.unreachable > 0)


def test_size_and_range_are_the_published_ones() -> None:
    assert PUBLISHED_WEIGHTS == PensiaSettings().weights == 397_000
    assert (pensia.LOW, pensia.HIGH, pensia.CANDIDATES) == (-0.464, 0.541, 21)


def test_a_wrong_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_chosen(targets: Tensor, items: Tensor) -> Tensor:
        return items > 2

    monkeypatch.setattr(subset_sum, "solve_ours", nothing_chosen)
    monkeypatch.setattr(subset_sum, "rows_to_check", lambda n: 5)
    with pytest.raises(WrongAnswerError, match="5 of 5 answers at n = 21 are worse than those of the reference"):
        list(pensia.run(PensiaSettings(weights=10, repeats=1)))
