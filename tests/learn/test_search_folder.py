"""A search in a module of one's own has what GPT-2's has: validation, best masks, a folder, several processes."""

import copy
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import own_search
import pytest
import torch
from own_search import LABELS, POINTS, classify, make
from rules_tried import ONE_OF_EACH
from tests.two_processes import in_two_processes
from torch import nn

import strongticket as st
from strongticket.learn.run import Moment

SCRIPT = Path(__file__).with_name("own_search.py")
WHOLE = [(POINTS, LABELS)]


def search(**more: Any) -> st.Hidden:
    settings = {"loss": classify, "steps": 12, "lr": 3e-2, "validation": WHOLE, "validate_every": 5}
    return st.search(make(), WHOLE, **(settings | more))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Sums in one order, as in the script."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("rule", ONE_OF_EACH)
def test_a_killed_search_ends_with_the_bytes_of_an_unbroken_one(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["mine.py", "--fast"])
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    process = subprocess.Popen([sys.executable, str(SCRIPT), str(broken), rule], stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (broken / "checkpoint.pt").exists():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (broken / "result.json").exists()
    for out in (broken, whole):
        own_search.search(out, rule)
    for name in ("best.ticket", "result.json", "config.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes(), name
    told = json.loads((broken / "run.json").read_text())
    assert 0 < told["resumed_at_step"] < 60
    assert told["command"] == "mine.py --fast", "no command of ours is made up"
    rows = [json.loads(line) for line in (broken / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "validation_loss" in row] == [0, 20, 40, 60]
    assert [row["step"] for row in rows if "loss" in row] == [10, 20, 30, 40, 50, 60]


def test_best_and_final_masks(tmp_path: Path) -> None:
    scores = iter([3.0, 1.0, 2.0, 4.0])
    moments: list[Moment] = []
    hidden = search(validation=lambda model: next(scores), out=tmp_path, watch=moments.append)
    assert hidden.best is not None
    assert hidden.final is not None
    assert (hidden.best.step, hidden.best.loss) == (5, 1.0)
    assert (hidden.final.step, hidden.final.loss) == (12, 4.0)
    assert (moments[-1].validation_loss, moments[-1].best_loss) == (4.0, 1.0)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["curve"] == [[0, 3.0], [5, 1.0], [10, 2.0], [12, 4.0]]
    best = hidden.to_ticket()
    assert best.identity == result["found"]["identity"] == st.Ticket.load(tmp_path / "best.ticket").identity
    hidden.restore(hidden.final)
    final = hidden.to_ticket()
    assert final.identity != best.identity
    assert final.identity == search(validation=None).to_ticket().identity, "validating changes nothing"
    hidden.restore(hidden.best)
    assert hidden.to_ticket().identity == best.identity


def test_validation_is_the_mean_loss_in_evaluation_mode() -> None:
    batches, modes = [(POINTS[i::4], LABELS[i::4]) for i in range(4)], []

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        modes.append(model.training)
        return classify(model, list(batch))

    hidden = search(loss=loss, validation=batches, steps=1)
    assert modes == [False] * 4 + [True] + [False] * 4
    assert hidden.model.training
    assert hidden.final is not None
    hidden.restore(hidden.final)
    hidden.model.eval()
    with torch.no_grad():
        expected = sum(classify(hidden.model, list(batch)).item() for batch in batches) / 4
    assert hidden.final.loss == pytest.approx(expected, rel=1e-6)


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    def interrupt(step: int, loss: float) -> None:
        if step == 3:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt, match="Stopped after step 3 of 12; the same call resumes"):
            search(out=tmp_path, progress=interrupt)
        with pytest.raises(KeyboardInterrupt):  # without a folder nothing could be kept
            search(progress=interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    seen: list[int] = []
    ticket = search(out=tmp_path, progress=lambda step, _: seen.append(step)).to_ticket()
    assert seen[0] == 4
    assert ticket.identity == search().to_ticket().identity


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"seed": 1}, "seed: 0 there, 1 here"),
        ({"density": 0.4}, "policy.density"),
        ({"validate_every": 4}, "validate_every"),
        ({"policy": st.Policy(init="kaiming-sign", rescale=True, density=0.5, mlp="trained")}, "policy.mlp"),
    ],
)
def test_a_folder_of_other_settings_is_refused(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    search(out=tmp_path, steps=5)
    with pytest.raises(st.StrongTicketError, match=rf"holds a run with other settings \({told}"):
        search(out=tmp_path, steps=5, **change)


def test_an_iterator_cannot_be_resumed(tmp_path: Path) -> None:
    def fail(step: int, loss: float) -> None:
        if step == 11:
            raise KeyboardInterrupt

    settings: dict[str, Any] = {"loss": classify, "steps": 12, "out": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        st.search(make(), iter(WHOLE * 12), checkpoint_seconds=0, progress=fail, **settings)
    with pytest.raises(ValueError, match="cannot resume after step 10: its batches are an iterator"):
        st.search(make(), iter(WHOLE * 12), **settings)
    with pytest.raises(ValueError, match="fewer batches than when the search started; it cannot resume after step 10"):
        st.search(make(), WHOLE, **settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"validation": iter(WHOLE)}, "validation is used many times; pass a list"),
        ({"validate_every": 0}, "validate_every must be at least 1"),
    ],
)
def test_validation_that_cannot_work_is_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        search(**settings)


def test_validation_without_batches_is_refused() -> None:
    with pytest.raises(ValueError, match="validation has no batches"):
        search(validation=[])


def _shared_search(rank: int) -> tuple[str, str, int, dict[str, Any]]:
    """Stopped after a checkpoint and gone on with, each process with its half of the points."""
    folder = Path(_FOLDER)
    half = [(POINTS[rank::2], LABELS[rank::2])]
    settings: dict[str, Any] = {"loss": classify, "steps": 25, "lr": 3e-2, "validation": half, "validate_every": 10}

    def fail(step: int, loss: float) -> None:
        if step == 21:
            raise KeyboardInterrupt

    whole = st.search(make(), half, **settings)
    with pytest.raises(KeyboardInterrupt):
        st.search(make(), half, **settings, out=folder, checkpoint_seconds=0, progress=fail)
    seen: list[int] = []
    again = st.search(make(), half, **settings, out=folder, progress=lambda step, _: seen.append(step))
    result = json.loads((folder / "run.json").read_text()) if rank == 0 else {}
    assert again.best is not None
    masks = torch.cat([supermask.mask.flatten() for supermask in again.supermasks.values()])
    same = all(torch.equal(a.mask, whole.supermasks[name].mask) for name, a in again.supermasks.items())
    return str(masks.int().tolist()), f"{again.best.loss} {same}", seen[0], result


_FOLDER = ""


def test_two_processes_share_a_search_and_its_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_FOLDER", str(tmp_path))
    first, second = in_two_processes(_shared_search)
    assert first[:3] == second[:3]
    assert first[1].endswith("True"), "resumed as unbroken"
    assert first[2] == 21
    assert first[3]["processes"] == 2
    assert st.Ticket.load(tmp_path / "best.ticket").verify().ok


def _measured_by_both(rank: int) -> list[float | str]:
    """Each with its half of the points: a ticket holds running means, and is as good as its search says."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))
    fresh, points = copy.deepcopy(model), [(POINTS, LABELS)]
    settings: dict[str, Any] = {"loss": classify, "steps": 6, "lr": 3e-2, "validation": points}
    hidden = st.search(model, [(POINTS[rank::2], LABELS[rank::2])], **settings)
    assert hidden.best is not None
    with torch.no_grad():
        loss = classify(st.load_ticket(fresh, hidden.to_ticket()).eval(), points[0])
    return [hidden.to_ticket().identity, hidden.best.loss, float(loss)]


def test_running_means_are_those_of_all_processes() -> None:
    first, second = in_two_processes(_measured_by_both)
    assert first == second
    assert first[1] == first[2]
