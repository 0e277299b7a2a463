from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strongticket.bench import instances, peers
from strongticket.bench.peers import Peer, torch_sort
from strongticket.ops.subset_sum import reference

ALL = [peer for group in peers.GROUPS.values() for peer in group]


def need(peer: Peer) -> None:
    if not peer.installed:
        pytest.skip(peer.missing)


@pytest.mark.parametrize("peer", ALL, ids=lambda peer: peer.name)
def test_peer_finds_the_optimum_of_small_problems(peer: Peer) -> None:
    need(peer)
    problems = instances.draw(6, 8, seed=5)
    answers = peers.solve_apart(peer, problems.targets, problems.items, threads=1, budget=20.0)
    assert answers.failure is None
    assert not answers.timed_out.any()
    assert (answers.seconds > 0).all()
    expected = reference.subset_sum(*problems.to("cpu")).error.numpy()
    # Their tolerances are about 1e-6; the optima of 8 items lie around 3e-3.
    np.testing.assert_allclose(problems.errors(answers.masks), expected, rtol=0, atol=2e-6)


def test_a_peer_stops_when_its_time_is_up() -> None:
    need(peers.HIGHS)
    problems = instances.draw(4096, 12, seed=5)
    answers = peers.solve_apart(peers.HIGHS, problems.targets, problems.items, threads=1, budget=0.3)
    assert 1 <= len(answers.seconds) < 4096
    # Only the last problem may begin inside the budget and end beyond it; CPU time is no more than wall time.
    assert answers.seconds[:-1].sum() <= 0.3
    assert answers.masks.shape == (len(answers.seconds), 12)


def test_a_problem_that_runs_into_the_limit_is_marked() -> None:
    need(peers.HIGHS)
    problems = instances.draw(1, 60, seed=0)
    answers = peers.solve_apart(peers.HIGHS, problems.targets, problems.items, threads=1, budget=0.001)
    assert answers.timed_out.tolist() == [True]


def test_a_peer_that_fails_says_why() -> None:
    broken = Peer("no-such-solver", "Broken", "numpy", "numpy")
    problems = instances.draw(2, 4)
    answers = peers.solve_apart(broken, problems.targets, problems.items, threads=1, budget=1.0)
    assert len(answers.seconds) == 0
    assert answers.masks.shape == (0, 4)
    assert answers.failure == "ValueError: unknown peer 'no-such-solver'"


def test_half_a_line_left_by_a_killed_peer_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"seconds": 0.5, "chosen": [0, 2], "timed_out": false}\n{"seconds": 0.')
    answers = peers.read_answers(path, 3, "killed")
    assert answers.seconds.tolist() == [0.5]
    assert answers.masks.tolist() == [[True, False, True]]
    assert answers.failure == "killed"


def test_names_choose_peers() -> None:
    assert peers.choose(["none"]) == []
    assert peers.choose(["gurobi", "cp-sat", "gurobi"]) == [peers.GUROBI, peers.GUROBI_TIGHT, peers.CP_SAT]
    with pytest.raises(ValueError, match="unknown peer 'cplex'; choose from gurobi, highs, cp-sat, or none"):
        peers.choose(["highs", "cplex"])


def test_a_missing_peer_names_the_pip_command() -> None:
    absent = Peer("absent", "Absent solver", "no_such_module_anywhere", "absent-solver")
    assert not absent.installed
    assert absent.missing == "Absent solver: not installed, left out. Install it with: pip install absent-solver"


@settings(max_examples=30)
@given(
    n=st.integers(1, 13), rows=st.integers(0, 20), seed=st.integers(0, 1000), in_flight=st.sampled_from([1, 64, 2**20])
)
def test_torch_sort_matches_the_reference(n: int, rows: int, seed: int, in_flight: int) -> None:
    problems = instances.draw(rows, n, low=-2, high=2, seed=seed)
    targets, items = problems.to("cpu")
    mask = torch_sort.solve(targets, items, sums_in_flight=in_flight)
    expected = reference.subset_sum(targets, items).error
    # It adds the halves in another order, so it may lose by the rounding of at most 13 items below 1.
    torch.testing.assert_close(reference.error_of(targets, items, mask), expected, rtol=0, atol=1e-14)
