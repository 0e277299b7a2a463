"""Damaged checkpoints: none goes on to another result, and none ends in a traceback."""

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from strongticket.data.text import Text, load_text
from strongticket.errors import StrongTicketError
from strongticket.learn import checkpoint
from strongticket.learn.config import RunConfig
from strongticket.learn.folder import CHECKPOINT, METRICS
from strongticket.learn.run import Means, Moment
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run

CPU = torch.device("cpu")
TINY = RunConfig(size="nano", length=32, sequences=2, micro_batch=2, steps=24, warmup=2, lr=1e-2, validate_every=6)
BEFORE = checkpoint.before(Path(CHECKPOINT)).name


@pytest.fixture(scope="module")
def text() -> Text:
    whole = load_text("sample")
    valid = replace(whole.splits["valid"], tokens=whole.valid[:500])  # little to validate on: runs are many
    return replace(whole, splits={**whole.splits, "valid": valid})


@pytest.fixture(scope="module")
def stopped(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose power was cut when it had two checkpoints, and what it comes to."""
    folder = tmp_path_factory.mktemp("run")

    def pull_the_plug(moment: Moment) -> None:
        if moment.step == 20:
            raise RuntimeError("no power")

    with pytest.raises(RuntimeError, match="no power"):
        run(TINY, text, folder / "stopped", Means(share=Share(0, 1, CPU), checkpoint_seconds=0.0), watch=pull_the_plug)
    run(TINY, text, folder / "whole", Means(share=Share(0, 1, CPU)))
    return folder


def go_on(stopped: Path, text: Text, folder: Path, damage: Callable[[Path], object]) -> list[str]:
    """Resume a damaged copy; gives what was told. The end must be that of the unbroken run."""
    shutil.copytree(stopped / "stopped", folder)
    damage(folder)
    told: list[str] = []
    run(TINY, text, folder, Means(share=Share(0, 1, CPU), warn=told.append))
    for name in ("best.ticket", "result.json"):
        assert (folder / name).read_bytes() == (stopped / "whole" / name).read_bytes(), name
    assert sorted(path.name for path in folder.glob("checkpoint*")) == []
    return told


def test_an_undamaged_one_is_used_in_silence(stopped: Path, text: Text, tmp_path: Path) -> None:
    assert {CHECKPOINT, BEFORE} <= {path.name for path in (stopped / "stopped").iterdir()}
    assert go_on(stopped, text, tmp_path / "run", lambda folder: None) == []


@pytest.mark.parametrize("kind", ["flip", "cut", "other file", "empty"])
def test_where_the_newest_is_damaged_the_one_before_is_used_and_that_is_said(
    kind: str, stopped: Path, text: Text, tmp_path: Path
) -> None:
    def damage(folder: Path) -> None:
        data = bytearray((folder / CHECKPOINT).read_bytes())
        if kind == "flip":
            data[len(data) // 2] ^= 1
        broken = {"flip": data, "cut": data[:-100], "other file": b"PK no checkpoint", "empty": b""}[kind]
        (folder / CHECKPOINT).write_bytes(broken)

    (told,) = go_on(stopped, text, tmp_path / "run", damage)
    assert "checkpoint.pt cannot be read (" in told
    assert told.endswith("resumes from the previous checkpoint, checkpoint-before.pt.")


def test_a_kill_between_the_two_renames_costs_nothing(stopped: Path, text: Text, tmp_path: Path) -> None:
    assert go_on(stopped, text, tmp_path / "run", lambda folder: (folder / CHECKPOINT).unlink()) == []


def test_lost_metrics_are_told_and_the_curve_is_kept(stopped: Path, text: Text, tmp_path: Path) -> None:
    (told,) = go_on(stopped, text, tmp_path / "run", lambda folder: (folder / METRICS).write_bytes(b""))
    assert "metrics.jsonl has lost 8 of its 8 lines" in told


def test_every_flipped_bit_is_seen(stopped: Path) -> None:
    path = stopped / "stopped" / CHECKPOINT
    whole = path.read_bytes()
    chosen = random.Random(0)
    places = [*range(8), *range(len(whole) - 80, len(whole)), *(chosen.randrange(len(whole)) for _ in range(300))]
    for place in places:
        data = bytearray(whole)
        data[place] ^= 1 << chosen.randrange(8)
        with pytest.raises(ValueError, match=r"damaged"):
            checkpoint._verified(bytes(data))
    for size in (0, 1, 39, 40, 41, len(whole) - 41, len(whole) - 39, len(whole) - 1):
        with pytest.raises(ValueError, match=r"damaged"):
            checkpoint._verified(whole[:size])


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda state: state.pop(name)


def having(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda state: state.update(values)


FIELDS = ("config", "step", "best_loss", "best_step", "losses", "learned", "best", "optimizer")
FORGED = {
    **{f"without {name}": without(name) for name in FIELDS},
    **{f"{name} is None": having(**{name: None}) for name in FIELDS},
    **{f"{name} is text": having(**{name: "seven"}) for name in FIELDS},
    "a step beyond the last": having(step=10**9),
    "a step below 0": having(step=-1),
    "a step that is no integer": having(step=12.0),
    "a best step to come": having(best_step=10**6),
    "learned of another shape": lambda state: state["learned"].update(
        {name: value[:1].clone() for name, value in state["learned"].items()}
    ),
    "learned without one": lambda state: state["learned"].popitem(),
    "best of another type": lambda state: state["best"].update(
        {name: value.double() for name, value in state["best"].items()}
    ),
    "optimizer without groups": lambda state: state["optimizer"].pop("param_groups"),
    "optimizer of another shape": lambda state: state["optimizer"]["state"][0].update(exp_avg=torch.zeros(3)),
    "optimizer without a moment": lambda state: state["optimizer"]["state"][0].pop("exp_avg_sq"),
    "optimizer with a moment that is none": lambda state: state["optimizer"]["state"][0].update(exp_avg=[]),
    "optimizer without steps": lambda state: state["optimizer"]["state"][0].pop("step"),
    "optimizer with one beta": lambda state: state["optimizer"]["param_groups"][0].update(betas=(0.9,)),
    "optimizer with another kind of decay": lambda state: state["optimizer"]["param_groups"][0].update(weight_decay=[]),
    "optimizer with a list for a parameter": lambda state: state["optimizer"]["state"].update({0: []}),
    "optimizer without epsilon": lambda state: state["optimizer"]["param_groups"][0].update(eps=None),
    "tasks is a number": having(tasks=10**9),
    "a task is a number": having(tasks=[7]),
    "curve is None": having(curve=None),
    "curve of tensors": having(curve=[(1, torch.zeros(3))]),
    "curve of triples": having(curve=[(1, 2.0, 3.0)]),
    "without metrics_lines": without("metrics_lines"),
    "metrics_lines is text": having(metrics_lines="seven"),
    "optimizer of more": lambda state: state["optimizer"]["state"].update({10**6: {"step": torch.zeros(())}}),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_state_that_is_none_is_refused_by_a_line(forged: str, stopped: Path, text: Text, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped / "stopped", folder)
    (folder / BEFORE).unlink()
    state = checkpoint.read(folder / CHECKPOINT, CPU, lambda state: None)
    FORGED[forged](state)
    checkpoint.write(folder / CHECKPOINT, state, keep=False)
    with pytest.raises(
        StrongTicketError, match=r"checkpoint\.pt (cannot be read|belongs to).* to start over"
    ) as refused:
        run(TINY, text, folder, Means(share=Share(0, 1, CPU)))
    assert "\n" not in str(refused.value)


def test_a_module_of_another_size_is_refused(stopped: Path, text: Text, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(stopped / "stopped", folder)
    (folder / "config.json").unlink()
    with pytest.raises(StrongTicketError, match=r"belongs to a run with other settings \(length"):
        run(replace(TINY, length=64), text, folder, Means(share=Share(0, 1, CPU)))
