"""Few learned scales over masked tensors: how many, what they do, and what is said of a ticket that has some."""

from pathlib import Path
from typing import Any

import pytest
import torch
from search_models import nano
from torch import Tensor, nn
from typer.testing import CliRunner

import strongticket as st
from strongticket.cli.main import app
from strongticket.learn.policy import Policy
from strongticket.learn.rules import RULES
from strongticket.tickets.export import export_ticket
from strongticket.tickets.summary import summarize
from strongticket.tickets.tensors import spread

pytestmark = pytest.mark.usefixtures("sample_is_short")
POINTS = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] > POINTS[:, 1]).long()


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 130), nn.ReLU(), nn.Linear(130, 2))


def classify(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def search(model: nn.Module | None = None, **more: Any) -> st.Hidden:
    settings: dict[str, Any] = {"policy": Policy(scales="output", density=0.5), "steps": 20, "lr": 3e-2}
    return st.search(model or make(), [(POINTS, LABELS)], loss=classify, **(settings | more))


@pytest.mark.parametrize(
    ("counts", "shape", "expected"),
    [
        ((1, 1), (2, 3), [[0, 0, 0], [0, 0, 0]]),
        ((2, 1), (2, 3), [[0, 0, 0], [1, 1, 1]]),
        ((1, 2), (2, 3), [[0, 0, 1], [0, 0, 1]]),
        ((2, 2), (3, 2), [[0, 1], [0, 1], [2, 3]]),
    ],
)
def test_a_scale_belongs_to_weights_in_a_row(counts: Any, shape: Any, expected: Any) -> None:
    scales = torch.arange(counts[0] * counts[1], dtype=torch.float32).view(counts)
    assert spread(scales, shape).expand(shape).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "shapes"),
    [
        ("none", []),
        ("tensor", [[1, 1], [1, 1]]),
        ("head", [[1, 1], [1, 1]]),
        ("block", [[3, 1], [1, 3]]),
        ("output", [[130, 1], [2, 1]]),
    ],
)
def test_how_many_there_are(kind: Any, shapes: list[list[int]]) -> None:
    hidden = st.hide(make(), Policy(scales=kind), seed=0)
    rows = [row for row in hidden.describe() if row["treatment"] == "masked"]
    assert [row["learned_scales"] for row in rows if "learned_scales" in row] == shapes
    plain = st.hide(make(), Policy(), seed=0)
    more = sum(a * b for a, b in shapes)
    assert hidden.nonzero()["all"] == plain.nonzero()["all"] + more
    assert len(hidden.trainable()) == len(plain.trainable()) + len(shapes)


def test_blocks_of_a_convolution_are_of_whole_filters() -> None:
    hidden = st.hide(nn.Sequential(nn.Conv1d(70, 65, 129)), Policy(scales="block"), seed=0)
    assert [row["learned_scales"] for row in hidden.describe() if "learned_scales" in row] == [[2, 2, 1]]


def test_heads_of_a_gpt2() -> None:
    hidden = st.hide(nano(), Policy(scales="head"), seed=0)
    found = {row["name"]: row["learned_scales"] for row in hidden.describe() if "learned_scales" in row}
    heads = hidden.model.config.n_heads
    attention = {name: shape for name, shape in found.items() if "attention" in name}
    assert {tuple(shape) for shape in attention.values()} == {(heads, 1), (1, heads)}
    assert all((shape[1] == heads) == (".output." in name) for name, shape in attention.items())
    assert all(shape == [1, 1] for name, shape in found.items() if name not in attention)


@pytest.mark.parametrize("kind", ["tensor", "block", "output"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_ticket_brings_them_back_to_the_last_bit(kind: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    points = POINTS.to(dtype)
    hidden = st.search(
        make().to(dtype), [(points, LABELS)], loss=classify, policy=Policy(scales=kind), steps=20, lr=3e-2
    )
    scales = [parameter for name, parameter in hidden.trainable() if name.endswith(".scales")]
    assert all((scale != 1).any() for scale in scales), "they learn"
    hidden.to_ticket().save(tmp_path / "a.ticket")
    ticket = st.Ticket.load(tmp_path / "a.ticket")
    assert ticket.verify().ok
    again = st.load_ticket(make().to(dtype), ticket)
    assert torch.equal(again(points), hidden.model(points))


def test_they_are_checkpointed(tmp_path: Path) -> None:
    def stop(step: int, loss: float) -> None:
        if step == 11:
            raise KeyboardInterrupt

    whole = search()
    with pytest.raises(KeyboardInterrupt):
        search(out=tmp_path, checkpoint_seconds=0, progress=stop)
    assert search(out=tmp_path).to_ticket().identity == whole.to_ticket().identity


def test_strong_up_to_so_many_scales_and_never_plainly(tmp_path: Path) -> None:
    ticket = search().to_ticket()
    assert not ticket.strong
    assert ticket.strength == "strong up to 132 scales"
    ticket.save(file := tmp_path / "a.ticket")
    assert summarize(ticket, file).strong_words() == "strong up to 132 scales"
    assert "strong up to 132 scales" in CliRunner().invoke(app, ["show", str(file)]).output
    biased = search(policy=Policy(scales="tensor", biases="trained")).to_ticket()
    assert biased.strength.startswith("not strong")
    export_ticket(ticket, tmp_path / "plain")
    assert "scales" not in (tmp_path / "plain" / "tensors.json").read_text(), "they are in the weights"


def test_on_the_command_line(tmp_path: Path) -> None:
    line = "search --size nano --data sample --steps 4 --sequences 4 --micro-batch 4 --length 32 --scales head"
    told = CliRunner().invoke(app, [*line.split(), "--out", str(tmp_path)])
    assert told.exit_code == 0, told.output
    ticket = st.Ticket.load(tmp_path / "seed-0" / "best.ticket")
    count = sum(scales.numel() for scales in ticket.scales.values())
    assert f"strong up to {count} scales, identity" in told.output
    assert ticket.build() is not None


@pytest.mark.parametrize("rule", RULES)
def test_any_rule(rule: str) -> None:
    hidden = search(rule=rule)
    ticket = hidden.to_ticket()
    assert ticket.strength == "strong up to 132 scales"
    assert torch.equal(st.load_ticket(make(), ticket)(POINTS), hidden.model.eval()(POINTS))


def test_scales_that_do_not_fit_are_refused() -> None:
    tensor = st.RandomTensor(name="w", mask=st.FullMask((2, 3)))
    for wrong in (torch.ones(3, 1), torch.ones(1), torch.ones(0, 1), torch.ones(1, 1, dtype=torch.float64)):
        with pytest.raises(
            ValueError, match="the scales of w must be float32, at least 1 and at most one per weight along each axis"
        ):
            st.Ticket(seed=0, tensors=[tensor], dense=[st.DenseTensor(name="w.scales", value=wrong, trained=True)])
