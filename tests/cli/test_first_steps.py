"""What a new user meets first: the bare command, the Tab key, and complaints about what was typed."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from tests.command import Run
from typer.testing import CliRunner

from strongticket.cli.main import FIRST, app
from strongticket.tickets.ticket import Ticket

GOLDEN = Path(__file__).parents[1] / "golden" / "search.ticket"


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a ticket that a real search has found, if in two steps."""
    out = tmp_path_factory.mktemp("searched")
    few = ["--steps", "2", "--sequences", "2", "--length", "16", "--out", str(out)]
    done = CliRunner().invoke(app, ["search", "--size", "nano", "--data", "sample", *few])
    assert done.exit_code == 0, done.output
    return out / "seed-0" / "best.ticket"


def commands_shown() -> list[list[str]]:
    joined = FIRST.replace("\\\n", "")
    lines = [line for line in joined.splitlines() if line.startswith("       strongticket ")]
    return [shlex.split(line)[1:] for line in lines]


def test_the_bare_command_shows_five_things_to_do_first(run: Run) -> None:
    done = run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{FIRST}\n"
    assert max(map(len, FIRST.splitlines())) <= 60
    assert len(commands_shown()) == 5


def test_the_first_commands_work_as_they_stand(
    run: Run, searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two take a minute each: they are read here, and the others run on what a shorter search leaves."""
    monkeypatch.chdir(tmp_path)
    found = Path("out/first/seed-0/best.ticket")
    found.parent.mkdir(parents=True)
    shutil.copy(searched, found)
    long, short = commands_shown()[:2], commands_shown()[2:]
    assert [name for name, *_ in long] == ["reproduce", "search"]
    for name, *arguments in long:
        command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
        assert command.make_context(name, arguments).params
    assert "out/first" in long[1]
    for arguments in short:
        assert run(*arguments).returncode == 0, arguments
    assert Path("report.html").exists()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("re", "reproduce report"),
        ("reproduce fig4 f", "fig4 fig5 fig6 fig7 fig8 frontier"),
        ("reproduce fig4 --wi", "--widths"),
        ("search --mode ", "search dense"),
        ("bench d", "decode"),
    ],
)
def test_the_tab_key_offers_commands_options_and_values(typed: str, offered: str) -> None:
    words = f"strongticket {typed}"
    asked = {"_STRONGTICKET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-m", "strongticket"], capture_output=True, text=True, env={**os.environ, **asked}
    )
    assert done.stdout.split() == offered.split()
    assert done.stderr == ""


def test_completion_can_be_installed(run: Run) -> None:
    asked = {**os.environ, "_STRONGTICKET_COMPLETE": "source_zsh"}
    done = subprocess.run([sys.executable, "-m", "strongticket"], capture_output=True, text=True, env=asked)
    assert "#compdef strongticket\n" in done.stdout
    assert {"--install-completion", "--show-completion"} <= set(run("-h").stdout.split())


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--scales seven", "'seven' is not one of 'none', 'tensor', 'head', 'block', 'output'."),
        ("--steps many", "It must be a whole number."),
        ("--lr fast", "It must be a number."),
        ("--steps 0", "It must be at least 1."),
    ],
)
def test_complaints_have_no_words_of_the_parser(run: Run, arguments: str, complaint: str) -> None:
    done = run("search", *arguments.split())
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == f"Error: Invalid value for '{arguments.split()[0]}': {complaint}"


def test_evaluate_takes_the_text_that_the_ticket_records(run: Run, searched: Path, tmp_path: Path) -> None:
    done = run("evaluate", searched)
    assert done.returncode == 0
    assert done.stderr == "text: sample, as the ticket records\n"
    assert ", reproduced (" in done.stdout
    ticket = Ticket.load(searched)
    record = {**ticket.metadata["search"], "data": "my-text"}  # type: ignore[dict-item]
    other = Ticket(seed=0, tensors=ticket.tensors.values(), metadata={"search": record})
    other.save(tmp_path / "own.ticket")
    done = run("evaluate", tmp_path / "own.ticket")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: --data is needed: the ticket was found on 'my-text'; give the folder of that text.\n"
    done = run("evaluate", GOLDEN)
    assert (done.returncode, done.stderr) == (2, "Error: --data is needed: the ticket does not record a text.\n")
