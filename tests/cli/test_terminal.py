"""What commands print in terminals of any width."""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table as RichTable
from tests.narrow import check_whole, printed
from tests.small_tickets import small_ticket

from strongticket.bench import render as bench
from strongticket.bench.pensia import Outcome
from strongticket.bench.subset_sum import Comparison
from strongticket.charts.terminal import show as show_section
from strongticket.charts.terminal import show_table
from strongticket.cli import construct
from strongticket.cli.show import render
from strongticket.cli.terminal import bar, echo, print_json, print_parts, print_wrapped, write
from strongticket.report.decode import decode_section
from strongticket.report.find import find
from strongticket.report.rules import rules_section
from strongticket.tickets.summary import summarize
from strongticket.tickets.ticket import Ticket

ROOT = Path(__file__).parents[2]
RESULTS, GOLDEN = ROOT / "results", ROOT / "tests" / "golden"
NARROW = pytest.mark.parametrize("width", [60, 80, 100])


@given(st.floats(0, 1), st.integers(1, 40), st.booleans())
def test_bars_are_as_long_as_the_share(share: float, cells: int, ascii_only: bool) -> None:
    drawn = bar(share, cells, ascii_only=ascii_only)
    assert len(drawn) == cells
    full = sum({" ": 0, "#": 8}.get(char, 8 - (ord(char) - 0x2588)) for char in drawn)
    assert abs(full / 8 - share * cells) <= (0.5 if ascii_only else 1 / 16) + 1e-9
    assert drawn.isascii() == ascii_only or share * cells < 1 / 8


def test_show_draws_densities_as_bars(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small_ticket().save(tmp_path / "small.ticket")
    summary = summarize(small_ticket(), tmp_path / "small.ticket")
    print_parts(render(summary, "small.ticket", every=True, width=120))
    lines = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if line.startswith("│")}
    assert lines["norm"].count("█") == 12
    assert "███" in lines["head.0.key"]  # density 0.57
    assert "█" not in lines["nothing"]


@NARROW
@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.ticket")), ids=lambda file: file.stem)
def test_show_keeps_its_digits_in_a_narrow_terminal(file: Path, width: int) -> None:
    ticket = Ticket.load(file)
    title, identity, *rest = render(summarize(ticket, file), file.name, every=True, width=width)
    assert str(identity).split() == ["identity", ticket.identity]
    check_whole([title, *rest], width)


def bench_tables(width: int) -> Iterable[RichTable | str]:
    """All tables of `bench`, of the rows in the repository."""
    timed = find([RESULTS / "bench" / "results.jsonl"]).benchmarks[0]
    sums = [row.row for row in timed.sums]
    yield from show_table(bench.comparison_table([Comparison(24, 9, 1, sums, [])], "sums"), width)
    yield from show_table(bench.search_table([row.row for row in timed.steps], "steps"), width)
    outcome = Outcome(397_000, 21, "cpu", 1, 0.1, 0.123, 0.2, 1.2e-7, 3.4e-5, 12, 0.1, 9, 123456.0, 1234567.0)
    yield from show_table(bench.pensia_table(outcome), width)
    decode, rules = (RESULTS / name / "results.jsonl" for name in ("decode", "rules"))
    yield from show_section(decode_section(decode, find([decode]).benchmarks[0].decoding), width)
    found = find([rules]).benchmarks[0]
    yield from show_section(rules_section(rules, found.rules, found.rule_steps), width)


@NARROW
def test_bench_and_compare_keep_their_digits_in_a_narrow_terminal(width: int) -> None:
    parts = [*bench_tables(width)]
    assert sum(isinstance(part, RichTable) for part in parts) > 5
    check_whole(parts, width)
    compared = json.loads((RESULTS / "pretrained" / "result.json").read_bytes())["runs"][0]["compare"]
    for table in construct._comparison_tables(compared):
        check_whole(show_table(table, width), width)


def test_compare_claims_no_more_than_is_proved() -> None:
    compared = json.loads((RESULTS / "pretrained" / "result.json").read_bytes())["runs"][0]["compare"]
    *_, table = construct._comparison_tables(compared)
    certified, covered = (table.columns.index(name) for name in ("certified", "covered input"))
    for row, part in zip(table.rows, compared["parts"], strict=True):
        assert part["certified"] <= float(row[certified]) < 1.01 * part["certified"]
        assert 0.99 * part["input_norm"] < float(row[covered]) <= part["input_norm"]


@NARROW
def test_names_of_tensors_are_not_broken(width: int) -> None:
    file = RESULTS / "fig8" / "mini-masked-scale2.83-seed1.ticket"
    ticket = Ticket.load(file)
    shown = printed(render(summarize(ticket, file), file.name, every=True, width=width), width)
    assert all(f"│ {name} " in shown for name in ticket.tensors)
    assert ("density" in shown.split("Random tensors")[1].splitlines()[2], "█" in shown) == (True, width >= 80)


@NARROW
def test_output_to_a_pipe_follows_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    print_wrapped("word " * 40)
    assert max(map(len, capsys.readouterr().out.splitlines())) == 119
    monkeypatch.setenv("COLUMNS", str(width))
    print_wrapped("word " * 40)
    assert max(map(len, capsys.readouterr().out.splitlines())) == width - 1


HOSTILE = "a\x1b]0;owned\x07\x9b31m\x7f\r\u202eb\udcff"


def test_what_is_printed_cannot_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write(f"{HOSTILE}\tc\nd\n")
    echo(f"{HOSTILE}\tc\nd")
    echo(HOSTILE, err=True)
    print_json({HOSTILE: [HOSTILE]})
    out, err = capsys.readouterr()
    escaped = "a\\x1b]0;owned\\x07\\x9b31m\\x7f\\r\\u202eb\\udcff\tc"
    assert out.startswith(f"{escaped}\nd\n{escaped}\\nd\n")
    assert not re.search(r"[^\n\t -~]", out + err)
    assert json.loads(out[out.index("{") :]) == {HOSTILE: [HOSTILE]}


def test_commands_print_in_one_place() -> None:
    """Only `echo`, `write`, `print_json` and `tell` print text, so that no command can forget control characters."""
    files = [*(ROOT / "src/strongticket/cli").glob("*.py")]
    for file in files:
        tree = ast.parse(file.read_text())
        calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        printing = {"print", "typer.echo", "typer.secho", "click.echo", "sys.stdout.write", "sys.stderr.write"}
        assert file.name == "terminal.py" or not printing & {*calls}, file
    assert len(files) > 10
