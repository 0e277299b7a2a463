"""What `docs/theory.md`, section 7, says of chosen units: each number of it is made again here."""

import itertools
import json
import math
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from strongticket import bounds

PAGE = (Path(__file__).parents[2] / "docs" / "theory.md").read_text()
SECTION = PAGE[PAGE.index("## 7. Units that are chosen") : PAGE.index("## 8. Rounding")]


def floor_of_the_constant(least: float) -> float:
    """The largest n / log(1 / e) over n: items u v, |u| uniform above `least`, of which half are positive, miss 1."""
    steps = 4096
    grid = np.arange(1, steps + 1) / steps
    if least == 1:
        below_x = grid
    else:
        # P[|u v| <= x] is the mean of min(1, x / u); items are rounded up, which can only help a sum.
        small = grid * math.log(1 / max(least, 1e-300)) if least else np.inf
        below_x = np.where(grid <= least, small, grid - least - grid * np.log(grid)) / (1 - least)
    mass = np.concatenate(([0.5], 0.5 * np.diff(below_x, prepend=0.0)))
    below, floors = np.eye(1, steps + 1)[0], []
    for n in range(1, 13):
        below = np.convolve(below, mass)[: steps + 1]
        e = (1 - grid)[np.cumsum(below)[:-1] > 1 - grid].max()
        floors.append(n / math.log(1 / e))
    return max(floors)


@pytest.mark.parametrize(("least", "told"), [(0.0, 7.00), (0.5, 4.67), (0.9, 3.84), (1.0, 3.70)])
def test_floors_of_the_constant_with_quotas(least: float, told: float) -> None:
    assert floor_of_the_constant(least) == pytest.approx(told, abs=0.006)
    assert f"| {told:.2f} |" in SECTION


QUOTAS = [
    ({"units": 640, "coordinates": 32, "quota": 20, "takes": "positive"}, "1.5e-07"),
    ({"units": 640, "coordinates": 32, "quota": 19, "takes": "positive"}, "2.9e-156"),
    ({"units": 1024, "coordinates": 32, "quota": 16, "takes": "own"}, "3.4e-273"),
    ({"units": 7680, "coordinates": 384, "quota": 20, "takes": "positive", "fits": 0.1}, "2.1e-05"),
    ({"units": 7680, "coordinates": 384, "quota": 20, "takes": "either", "fits": 0.1}, "2.1e-14"),
]


@pytest.mark.parametrize(("quotas", "told"), QUOTAS)
def test_quotas_of_the_page(quotas: dict, told: str) -> None:
    assert f"{bounds.quota_failure(**quotas):.1e}" == told
    assert f"| {told} |" in SECTION


def can_be_met(fits: np.ndarray, quota: int) -> bool:
    """Hall's condition, by all sets of slots; fits is (units, slots)."""
    slots = range(fits.shape[1])
    return all(
        fits[:, chosen].any(axis=1).sum() >= quota * len(chosen)
        for size in slots
        for chosen in itertools.combinations(slots, size + 1)
    )


@pytest.mark.parametrize("takes", ["either", "positive", "own"])
@pytest.mark.parametrize(("units", "coordinates", "quota", "fits"), [(12, 3, 2, 0.7), (16, 4, 3, 0.9), (9, 3, 1, 0.3)])
def test_quotas_fail_no_more_often_than_is_said(
    takes: str, units: int, coordinates: int, quota: int, fits: float
) -> None:
    generator, trials, failed = np.random.default_rng(0), 2000, 0
    for _ in range(trials):
        u = generator.uniform(-1, 1, (units, coordinates))
        good = np.abs(u) >= 1 - fits
        slots = {"either": good, "positive": good & (u > 0), "own": np.hstack([good & (u > 0), good & (u < 0)])}
        failed += not can_be_met(slots[takes], quota)
    said = bounds.quota_failure(units=units, coordinates=coordinates, quota=quota, takes=takes, fits=fits)
    assert failed / trials <= said + 4 * math.sqrt(said * (1 - min(said, 1)) / trials) + 1e-12


def test_fewer_units_than_quotas_fail_for_sure() -> None:
    assert bounds.quota_failure(units=3, coordinates=2, quota=2, takes="either") == 1.0
    assert bounds.quota_failure(units=4, coordinates=2, quota=2, takes="either") == 0.0


def test_equal_blocks_leave_the_signs_to_chance() -> None:
    few = sum(math.comb(20, k) for k in range(6)) / 2**20
    assert "one slot in fifty gets fewer than 6" in SECTION
    assert 1 / few == pytest.approx(50, rel=0.05)


def test_counting_by_hand() -> None:
    assert bounds.counting_width(d_model=1, d_out=1, largest=1.0, tol=0.25) == 1.0
    assert bounds.counting_width(d_model=32, d_out=32, largest=1.0, tol=2.0) == 0.0
    # One unit has 4 pairs of masks of a 1 x 1 matrix: with error 1/4 they serve no more than 4 * 1/4 of [-1, 1].
    assert 2 ** (1 * 2) * (0.25 / 1) ** 1 == 1.0


def test_the_table_is_that_of_the_kept_rows() -> None:
    from strongticket.bench.script import RESULTS

    lines = (Path(__file__).parents[2] / RESULTS).read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["op"] == "assignment"]
    latest = {(row["case"], row["units"], row["assignment"]): row for row in rows if "times_counting" in row}
    told = re.findall(r"\| (.+?), n = (\d+) d \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|", SECTION)
    assert len(told) == 6
    for case, items, *numbers in told:
        equal, adaptive = (latest[case, int(items) * 32, how] for how in ("equal", "adaptive"))
        made = [f"{row['error']:.1e}" for row in (equal, adaptive)]
        assert numbers == [*made, f"{equal['times_counting']:.1f}", f"{adaptive['times_counting']:.1f}"]


def test_how_tight_certificates_of_transformers_are() -> None:
    folder = Path(__file__).parents[2] / "results"
    points = {point["width"]: point for point in json.loads((folder / "fig6/result.json").read_text())["widths"]}
    for width in (32, 64, 96):
        sources = points[width]["sources"]
        pairs = [*zip(sources["certificate"], sources["worst"], strict=True)]
        ratios = [statistics.median(said[b] / seen[b] for said, seen in pairs) for b in range(4)]
        told = " | ".join(f"{float(f'{ratio:.2g}'):,.{1 if ratio < 10 else 0}f}" for ratio in ratios)
        assert f"| {width} | {told} |" in PAGE
    points = json.loads((folder / "fig4/result.json").read_text())["widths"]
    sources = {point["width"]: point["sources"] for point in points}
    ratios = [
        statistics.median(said / seen for said, seen in zip(s["certificate"], s["worst"], strict=True))
        for s in (sources[32], sources[64], sources[96])
    ]
    assert f"the\nratio is {min(ratios):.1f} to {max(ratios):.1f}" in PAGE


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"fits": 0.0}, "fits must be a probability above 0"),
        ({"fits": 1.5}, "fits must be a probability above 0; got 1.5"),
        ({"takes": "any"}, "takes must be one of"),
        ({"units": 0}, "units"),
    ],
)
def test_bad_arguments_of_quotas(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bounds.quota_failure(**{"units": 4, "coordinates": 2, "quota": 1, "takes": "own", **wrong})
