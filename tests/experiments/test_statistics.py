import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongticket.errors import MissingExtraError
from strongticket.experiments.statistics import decay_at, fit_decay, fit_decay_in_logs, summarize

WIDTHS = (8, 16, 24, 32, 48, 64)


@given(st.floats(0.01, 10), st.floats(0.001, 0.4))
def test_an_exact_decay_is_found_again(gamma: float, delta: float) -> None:
    errors = [decay_at({"gamma": gamma, "delta": delta}, n) for n in WIDTHS]
    for found in (fit_decay(WIDTHS, errors), fit_decay_in_logs(WIDTHS, errors)):
        assert found is not None
        assert math.isclose(found["gamma"], gamma, rel_tol=1e-4)
        assert math.isclose(found["delta"], delta, rel_tol=1e-4)


@given(st.floats(0.01, 10), st.floats(0.001, 0.4), st.floats(0.001, 0.4))
def test_a_fixed_rate_stays_and_gamma_is_the_least_squares_one(gamma: float, delta: float, kept: float) -> None:
    errors = np.array([decay_at({"gamma": gamma, "delta": delta}, n) for n in WIDTHS])
    found = fit_decay(WIDTHS, errors.tolist(), delta=kept)
    assert found is not None
    assert found["delta"] == kept
    shape = np.exp(-kept * np.array(WIDTHS))
    assert math.isclose(found["gamma"], float(errors @ shape / (shape @ shape)), rel_tol=1e-6)


def test_no_decay_is_no_error() -> None:
    flat = fit_decay(WIDTHS, [0.3] * len(WIDTHS))
    assert flat is not None
    assert abs(flat["delta"]) < 1e-6
    assert fit_decay(WIDTHS, [0.0] * len(WIDTHS)) is None
    assert fit_decay_in_logs((8,), (0.1,)) is None


def test_zeros_do_not_spoil_a_fit_on_logarithms() -> None:
    errors = [decay_at({"gamma": 1.0, "delta": 0.2}, n) for n in WIDTHS]
    found = fit_decay_in_logs(WIDTHS, [*errors[:-1], 0.0])
    assert found is not None
    assert math.isclose(found["delta"], 0.2, rel_tol=1e-9)


def test_summary_of_known_numbers() -> None:
    assert summarize([4.0, 1.0, 3.0, 2.0, 5.0]) == {
        "mean": 3.0,
        "std": math.sqrt(2.0),
        "median": 3.0,
        "quartile_low": 2.0,
        "quartile_high": 4.0,
        "min": 1.0,
        "max": 5.0,
    }


def test_missing_scipy_names_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'strongticket\[report\]'"):
        fit_decay(WIDTHS, [1.0] * len(WIDTHS))
