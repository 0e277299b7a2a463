"""The examples run as a user runs them, and print what examples/README.md says they print."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from strongticket import Ticket

FOLDER = Path(__file__).parents[1] / "examples"
SHOWN = dict(
    re.findall(r"```\n\$ python examples/(\w+)\.py\n(.*?)```", (FOLDER / "README.md").read_text("utf-8"), re.DOTALL)
)


def run(name: str, folder: Path) -> str:
    # One thread: networks this small only lose by sharing, and most where cores are busy.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, FOLDER / f"{name}.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_described() -> None:
    readme = (FOLDER / "README.md").read_text("utf-8")
    assert all(f"`{script.name}`" in readme for script in FOLDER.glob("*.py"))
    assert set(SHOWN) == {"figure4", "own_attention", "edge_popup"}


@pytest.mark.parametrize("name", ["figure4", "own_attention"])
def test_constructed_examples_print_what_is_shown(name: str, tmp_path: Path) -> None:
    assert run(name, tmp_path) == SHOWN[name]


def test_edge_popup_tells_the_spirals_apart(tmp_path: Path) -> None:
    """Losses depend on how torch adds numbers up, so what is compared is the form, and that it works."""
    printed = run("edge_popup", tmp_path)
    number = re.compile(r"\d[\d,.]*")
    assert number.sub("#", printed) == number.sub("#", SHOWN["edge_popup"])
    assert float(number.findall(printed)[-1]) > 90
    ticket = Ticket.load(tmp_path / "out" / "spirals.ticket")
    assert ticket.strong
    assert ticket.verify().ok


def test_hidden_picture_can_be_seen(tmp_path: Path) -> None:
    printed = run("hide_a_matrix", tmp_path)
    picture = (FOLDER / "picture.txt").read_text().split()
    shades = " .:-=+*#%@"
    assert printed.startswith("\n".join("".join(shades[int(digit)] * 2 for digit in row) for row in picture))
    ticket = Ticket.load(tmp_path / "out" / "hidden.ticket")
    assert re.fullmatch(r"python \S*hide_a_matrix\.py", ticket.metadata["command"])
    assert datetime.now(UTC) - datetime.fromisoformat(ticket.metadata["date"]) < timedelta(hours=1)
