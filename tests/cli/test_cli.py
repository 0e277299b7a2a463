import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main
from safetensors.torch import load_file, save_file
from tests.command import Run
from tests.small_tickets import edited, put_together, small_ticket, take_apart

from strongticket import FullMask, RandomTensor, Ticket, __version__, certify, construct_linear
from strongticket.cli.main import app
from strongticket.errors import StrongTicketError


@pytest.fixture
def ticket_file(tmp_path: Path) -> Path:
    small_ticket().save(path := tmp_path / "small.ticket")
    return path


def test_version_in_a_process_of_its_own() -> None:
    done = subprocess.run([sys.executable, "-m", "strongticket", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"strongticket {__version__}\n", "")


def test_version_has_a_short_name(run: Run) -> None:
    assert run("-V").stdout == f"strongticket {__version__}\n"


def commands(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Give every command and group with the words that call it."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, *path, name)


HELP_PAGES = [
    pytest.param(path, command, id=" ".join(path) or "strongticket")
    for path, command in commands(typer.main.get_command(app))
]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(("path", "command"), HELP_PAGES)
def test_help_is_whole_and_its_lines_are_full(
    run: Run, path: tuple[str, ...], command: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run(*path, "-h")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    width = min(columns, 100) - 2  # click leaves two columns free
    assert max(map(len, lines)) <= width

    # A line of prose ends where the next word has no room, not where the source has a line break.
    prose = lines[2 : next(i for i, line in enumerate(lines) if line.endswith(":") and not line.startswith(" "))]
    for line, after in pairwise(prose):
        if line and after:
            assert len(line) + 1 + len(after.split()[0]) > width, f"broken early: {line!r}"

    words = set(re.split(r"[\s,]+", done.stdout))
    listed_options = [param for param in command.params if not getattr(param, "hidden", False)]
    names = {name for param in listed_options for name in (*param.opts, *param.secondary_opts) if name[0] == "-"}
    assert names <= words
    if hasattr(command, "commands"):
        listed = " ".join(" ".join(lines[lines.index("Commands:") + 1 :]).split())
        every = (f"{name} {each.get_short_help_str(1000)}" for name, each in command.commands.items())
        assert listed == " ".join(every)
    else:
        assert "--json" in words
        # To be copied: a broken line ends as a shell wants it.
        example = done.stdout.rpartition("\n\n  ")[2]
        assert re.sub(r" \\\n +", " ", example) == f"{command.epilog}\n"
        assert command.epilog.startswith(f"Example: strongticket {' '.join(path)} ")


@pytest.mark.parametrize(("path", "command"), HELP_PAGES)
def test_options_are_the_parameters_in_lower_case(path: tuple[str, ...], command: Any) -> None:
    """Typer 0.27 took an option's placeholder for its name where they differ in case only: --DEVICE DEVICE."""
    taken = {param.name: [*param.opts, *param.secondary_opts] for param in command.params}
    declared = inspect.signature(command.callback).parameters if command.callback else {}
    assert set(declared) - {"context"} <= set(taken)
    names = [name for given in taken.values() for name in given]
    assert len(names) == len(set(names))
    # One letter may be a capital: -V is --version.
    assert [name for name in names if len(name) > 2 and name != name.lower()] == []


@pytest.mark.parametrize(("path", "command"), HELP_PAGES)
def test_help_speaks_no_python(run: Run, path: tuple[str, ...], command: Any) -> None:
    """Options take FILE, N or a choice of words; limits that only keep a number within 64 bits are not told."""
    page = run(*path, "-h").stdout
    assert not re.findall(r"<\S+>|\{\S+\}|int range|list\[|x>=|\d{10}", page)


def test_help_names_arguments_as_they_are_typed(run: Run) -> None:
    assert "strongticket show [OPTIONS] FILE\n" in run("show", "-h").stdout
    # Typer has the dots since 0.29.
    assert re.search(r"strongticket report \[OPTIONS\] DIR(\.\.\.)?\n", run("report", "-h").stdout)
    assert re.search(r"\n  --tokens N +Tokens to write\.  \[default: 200; at least 1\]", run("generate", "-h").stdout)
    assert "FIGURE  One or more of fig4, " in run("reproduce", "-h").stdout


def test_help_puts_many_options_under_headings(run: Run) -> None:
    lines = run("search", "-h").stdout.splitlines()
    assert lines.index("Options:") < lines.index("Schedule:") < lines.index("Machine:")
    assert "Arguments:" in run("reproduce", "-h").stdout.splitlines()


def test_show_says_what_a_ticket_holds(run: Run, ticket_file: Path) -> None:
    done = run("show", ticket_file)
    assert done.returncode == 0
    assert done.stderr == ""
    for fact in (
        small_ticket().identity,
        "9223372036854775819",
        "head.0.query",
        "40 x 9",
        "blocks",
        "no: some dense tensors were trained",
        "output error at most 0.25 for every input of norm at most 2",
    ):
        assert fact in done.stdout


def test_show_verify_and_export_know_codes_and_owners(run: Run, tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
    shown = run("show", golden / "codes.ticket").stdout
    assert "3,338 kept (density 0.0239)" in shown
    for words in ("5 codes, 4 draws", "2 codes, 70% frozen", "1 code ", "packed-sign"):
        assert words in shown
    assert "\nowners: one kept weight per hidden unit\n" in run("show", golden / "owners.ticket").stdout
    tensors = json.loads(run("show", golden / "codes.ticket", "--json").stdout)["tensors"]
    assert tensors[0]["rule"] == {"frozen": None, "table": [[0.0, 0], [1.0, 0], [-1.0, 0]]}
    told = run("verify", golden / "codes.ticket").stdout
    assert "ok, 139,818 weights regenerated from 142,893 draws" in told, "three draws more of one tensor"
    for name in ("codes", "owners"):
        assert run("export", golden / f"{name}.ticket", "--out", tmp_path / name).returncode == 0
        exported = load_file(tmp_path / name / "weights.safetensors")
        for tensor, weights in Ticket.load(golden / f"{name}.ticket").materialize().items():
            assert torch.equal(exported[tensor], weights)


def test_show_json(run: Run, ticket_file: Path) -> None:
    summary = json.loads(run("show", ticket_file, "--json").stdout)
    ticket = small_ticket()
    assert summary["identity"] == ticket.identity
    assert summary["kept"] == ticket.kept()
    assert summary["file_bytes"] == ticket_file.stat().st_size
    assert [tensor["name"] for tensor in summary["tensors"]] == list(ticket.tensors)
    assert summary["certificate"]["error"] == 0.25


def test_show_shortens_long_lists(run: Run, tmp_path: Path) -> None:
    tensors = [RandomTensor(name=f"layer-{i}", mask=FullMask((1,))) for i in range(50)]
    Ticket(seed=0, tensors=tensors).save(path := tmp_path / "long.ticket")
    assert "... and 30 more; --all lists them." in run("show", path).stdout
    assert "layer-49" in run("show", path, "--all").stdout


def test_show_lays_nested_settings_out_in_lines(run: Run, tmp_path: Path) -> None:
    metadata = {
        "search": {"loss": 4.8636030, "text": {"digest": "ab" * 32}, "note": 100 * "x", "empty": {}, "also": None},
        "many": {f"key{i}": i for i in range(25)},
    }
    Ticket(seed=0, tensors=[], architecture={"family": "gpt2", "config": {"bias": False}}, metadata=metadata).save(
        path := tmp_path / "nested.ticket"
    )
    lines = [line.split() for line in run("show", path).stdout.splitlines()]
    assert ["architecture", "family", "gpt2"] in lines
    assert ["config", "bias", "no"] in lines
    assert ["text", "digest", 8 * "ab"] in lines
    shown = " ".join(word for line in lines for word in line)
    assert f"search also none, empty {{}}, loss 4.8636, note {60 * 'x'}... text" in shown
    assert "... and 5 more" in shown
    assert "key24 24" in " ".join(run("show", path, "--all").stdout.split())
    assert json.loads(run("show", path, "--json").stdout)["metadata"] == metadata


def test_show_cuts_a_list_between_its_entries(run: Run, tmp_path: Path) -> None:
    names = [f"attention.{name}" for name in ("query", "key", "value", "output")]
    Ticket(seed=0, tensors=[], architecture={"linear": names}).save(path := tmp_path / "a.ticket")
    shown = " ".join(run("show", path).stdout.split())
    assert 'linear ["attention.query", "attention.key", "attention.value", ...]' in shown


def test_show_cannot_drive_the_terminal(run: Run, tmp_path: Path) -> None:
    told = {"a": "\x1b[2Jgone [red]red[/red]", "\x1b[1m": {"\x1b": ["\x1b"]}}
    Ticket(seed=0, tensors=[], metadata=told, architecture=told).save(path := tmp_path / "a.ticket")
    done = run("show", path)
    assert "\x1b" not in done.stdout
    assert r"\x1b[2Jgone [red]red[/red]" in done.stdout


def test_verify_good_ticket(run: Run, ticket_file: Path) -> None:
    done = run("verify", ticket_file)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{ticket_file}: ok, 439 weights regenerated, identity ")
    assert json.loads(run("verify", ticket_file, "--json").stdout)["ok"] is True


def test_verify_lists_failures_and_exits_1(run: Run, ticket_file: Path) -> None:
    wrong = edited(ticket_file.read_bytes(), lambda d: d["sha256"].update(masks="0" * 64, weights="1" * 64))
    ticket_file.write_bytes(wrong)
    done = run("verify", ticket_file)
    assert done.returncode == 1
    assert re.search(r"2 failed\n  the masks' SHA-256 is .*\n  the regenerated weights' SHA-256 is ", done.stdout)
    assert len(json.loads(run("verify", ticket_file, "--json").stdout)["failures"]) == 2


def test_a_folder_is_not_a_ticket_but_may_hold_one(run: Run, tmp_path: Path) -> None:
    done = run("generate", tmp_path)
    assert done.returncode == 2
    assert f"{tmp_path} is a folder; give a ticket file." in done.stderr
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "best.ticket").touch()
    done = run("generate", tmp_path)
    assert f"{tmp_path} is a folder; give a ticket file, such as {tmp_path / 'seed-0' / 'best.ticket'}." in done.stderr


def test_a_target_that_is_no_safetensors_says_how_to_save_one(run: Run, tmp_path: Path) -> None:
    torch.save({"weight": torch.ones(1, 2)}, tmp_path / "t.pt")
    done = run("bound", "given", "--target", tmp_path / "t.pt", "--tol", 0.01)
    assert done.returncode == 1
    assert "Save one with safetensors.torch.save_file(model.state_dict(), 'target.safetensors')." in done.stderr


def test_verify_holds_the_certificate_against_a_target(run: Run, tmp_path: Path) -> None:
    target, other = {"weight": torch.tensor([[0.3, -0.2]])}, {"weight": torch.zeros(1, 2)}
    save_file(target, tmp_path / "model.safetensors")
    save_file(other, tmp_path / "other.safetensors")
    construct_linear(target["weight"], hidden_width=24).save(path := tmp_path / "a.ticket")
    assert run("verify", path, "--target", tmp_path / "model.safetensors").returncode == 0
    assert run("verify", path, "--target", tmp_path).returncode == 0, "a folder is searched for model.safetensors"
    wrong = run("verify", path, "--target", tmp_path / "other.safetensors")
    assert wrong.returncode == 1
    assert "the target has the right shapes but other names, types or numbers (SHA-256 " in wrong.stdout
    save_file({"weight": target["weight"].T.contiguous()}, tmp_path / "transposed.safetensors")
    wrong = run("verify", path, "--target", tmp_path / "transposed.safetensors")
    assert wrong.returncode == 1
    assert "does not fit the ticket: it has weight (2, 1); the ticket is for d_in 2, d_out 1, hidden" in wrong.stdout
    path.write_bytes(edited(path.read_bytes(), lambda d: d["certificate"].update(error=1e-9)))
    boasted = run("verify", path, "--target", tmp_path)
    assert boasted.returncode == 1
    assert "the certificate says 1.000000e-09, the masks and the target give" in boasted.stdout
    Ticket(seed=0, tensors=[]).save(path)
    assert "has no certificate" in run("verify", path, "--target", tmp_path).stdout
    assert run("verify", path, "--target", tmp_path / "none").returncode == 2


def test_verify_bounds_the_error_on_samples(run: Run, tmp_path: Path) -> None:
    weight = torch.tensor([[0.3, -0.2]])
    save_file({"weight": weight}, tmp_path / "model.safetensors")
    (ticket := construct_linear(weight, hidden_width=24)).save(path := tmp_path / "a.ticket")
    samples = torch.tensor([[0.6, 0.8], [0.1, 0.0], [0.0, 0.2]])
    save_file({"x": samples}, tmp_path / "x.safetensors")
    np.save(tmp_path / "x.npy", samples.numpy())
    verify = ("verify", path, "--target", tmp_path, "--samples")
    expected = certify(ticket, weight, samples, radius=0.25)
    for file in ("x.npy", "x.safetensors"):
        told = json.loads(run(*verify, tmp_path / file, "--radius", 0.25, "--json").stdout)
        assert told["ok"] is True
        assert told["samples"] == expected.as_json()
    told = run(*verify, tmp_path / "x.npy").stdout.splitlines()
    assert len(told) == 2
    assert told[1].startswith(f"{tmp_path / 'x.npy'}: output error at most ")

    np.save(tmp_path / "wide.npy", np.ones((2, 3)))
    np.save(tmp_path / "nan.npy", np.array([[0.0, np.nan]]))
    np.save(tmp_path / "words.npy", np.array(["a", "b"]))
    np.save(tmp_path / "complex.npy", np.array([[0.6, 0.8j]]))
    for name in ("bool", "M8[s]", "m8[s]"):
        np.save(tmp_path / f"{name[:2]}.npy", np.zeros((2, 2), dtype=name))
    (tmp_path / "broken.safetensors").write_bytes(b"broken")
    save_file({"x": samples, "y": samples + 1}, tmp_path / "two.safetensors")
    save_file({"x": samples.to(torch.complex64)}, tmp_path / "complex.safetensors")
    (tmp_path / "text.npy").write_text("0.6 0.8")
    os.mkfifo(tmp_path / "pipe.npy")
    for arguments, code, message in (
        (("wide.npy",), 1, "samples must be (..., 2) with at least one input; got (2, 3)."),
        (("nan.npy",), 1, "samples must be finite; entry (0, 1) is nan."),
        (("words.npy",), 1, "samples must be a .npy file of numbers"),
        (("text.npy",), 1, "samples must be a .npy file of numbers"),
        (("complex.npy",), 1, "samples must be a .npy file of numbers"),
        (("complex.safetensors",), 1, "samples must be real numbers; got torch.complex64."),
        (("bo.npy",), 1, "a .npy file of numbers, or a .safetensors file; tokens must be integers; these are bool."),
        (("M8.npy",), 1, "tokens must be integers; these are datetime64[s]."),
        (("m8.npy",), 1, "tokens must be integers; these are timedelta64[s]."),
        (("broken.safetensors",), 1, "Save one with safetensors.torch.save_file({'samples': samples}, 'samples.saf"),
        (("pipe.npy",), 1, "not a regular file: "),
        (("two.safetensors",), 1, "samples must be one tensor; got 2: x, y."),
        (("x.npy", "--radius", "inf"), 2, "--radius must be finite; got inf."),
    ):
        done = run(*verify, tmp_path / arguments[0], *arguments[1:])
        assert (done.returncode, done.stdout) == (code, "")
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    for radius in (-1, "nan"):
        refused = run(*verify, tmp_path / "x.npy", "--radius", radius)
        assert refused.returncode == 2
        assert refused.stderr.endswith("'--radius': It must be at least 0.\n")
    assert "--samples is for --target" in run("verify", path, "--samples", tmp_path / "x.npy").stderr
    assert "--radius is for --samples" in run("verify", path, "--target", tmp_path, "--radius", 1).stderr


@pytest.mark.parametrize("arguments", [["show"], ["show", "x"], ["report"], ["verify", "x", "--target"]])
def test_names_in_complaints_about_arguments_cannot_drive_the_terminal(
    run: Run, arguments: list[str], ticket_file: Path, tmp_path: Path
) -> None:
    """The complaints are printed by typer itself: here about a folder, one argument too many, and a missing file."""
    hostile = tmp_path / "a\x1b]0;owned\x07\x9b31m\u202e\nforged"
    if arguments[0] == "show":
        hostile.mkdir()
    done = run(*(ticket_file if word == "x" else word for word in arguments), hostile)
    assert done.returncode == 2
    assert not re.search("^forged", done.stdout + done.stderr, re.MULTILINE)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", done.stdout + done.stderr)
    assert "x1b]0;owned" in done.stderr


def test_names_cannot_look_like_lines_of_a_command(run: Run, ticket_file: Path, tmp_path: Path) -> None:
    hostile = tmp_path / "a.ticket: ok\nb.ticket"
    shutil.copy(ticket_file, hostile)
    folder = tmp_path / "out\nforged: ok"
    for arguments in (("verify", hostile), ("show", hostile), ("export", hostile, "--out", folder)):
        done = run(*arguments)
        assert done.returncode == 0, done.stderr
        assert not re.search("^b.ticket|^forged", done.stdout + done.stderr, re.MULTILINE)
        assert len(done.stdout.splitlines()) == 1 or arguments[0] == "show"
    page = run("report", hostile, "--out", tmp_path / "page\nforged.html")
    assert "forged" in page.stdout
    assert not re.search("^b.ticket|^forged", page.stdout + page.stderr, re.MULTILINE)


def test_export_writes_plain_weights(run: Run, ticket_file: Path, tmp_path: Path) -> None:
    done = run("export", ticket_file, "--out", tmp_path / "out")
    assert done.returncode == 0
    weights = load_file(tmp_path / "out" / "weights.safetensors")
    ticket = small_ticket()
    assert set(weights) == set(ticket.tensors) | set(ticket.dense)
    for name, weight in ticket.materialize().items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=0)
    for name, dense in ticket.dense.items():
        torch.testing.assert_close(weights[name], dense.value, rtol=0, atol=0)
    described = json.loads((tmp_path / "out" / "tensors.json").read_text())
    assert {t["name"]: tuple(t["shape"]) for t in described["tensors"]} == {
        n: tuple(w.shape) for n, w in weights.items()
    }
    assert described["identity"] == ticket.identity


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("show", "no-such-file"), 2, "does not exist"),
        (("show", __file__), 1, "Error: .*test_cli.py: not a ticket, or truncated"),
        (("verify",), 2, "Missing argument"),
        (("export", __file__), 2, "Missing option"),
        (("juggle",), 2, "No such command"),
    ],
)
def test_errors_are_short_and_codes_are_kept(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.stderr


def test_errors_have_a_traceback_for_those_who_ask(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRONGTICKET_DEBUG", "1")
    with pytest.raises(StrongTicketError, match="not a ticket"):
        run("show", __file__)


def test_export_into_an_unwritable_place_is_one_line(run: Run, ticket_file: Path) -> None:
    done = run("export", ticket_file, "--out", "/proc/no-such-place")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


ESCAPE = "\x1b]0;owned\x07\x9b31m\r\n"


def with_escapes(value: Any) -> Iterator[Any]:
    """Give a description once for each text in it, names of fields included, with that text made hostile."""
    if isinstance(value, str):
        yield value + ESCAPE
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from ([*value[:i], changed, *value[i + 1 :]] for changed in with_escapes(item))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield {other if other != key else key + ESCAPE: content for other, content in value.items()}
            yield from ({**value, key: changed} for changed in with_escapes(item))


def test_no_text_of_a_ticket_drives_the_terminal(run: Run, tmp_path: Path) -> None:
    header, description, payload = take_apart(small_ticket().to_bytes())
    count = 0
    for count, changed in enumerate(with_escapes(description)):  # noqa: B007
        (file := tmp_path / "hostile.ticket").write_bytes(put_together(header, changed, payload))
        for command in (("show", "--all"), ("verify",), ("generate",)):
            done = run(command[0], file, *command[1:])
            assert not re.search(r"[^\n -~\xa0-\U0010ffff]", done.stdout + done.stderr), done
    assert count > 60


def test_lemmas_either_way(run: Run) -> None:
    """Lemmas 8, 12 and 13: what an error does, and which error is allowed."""
    sizes = ("--d-model", "64", "--input-norm", "2")
    for command, moved in (
        (("softmax", *sizes), "score_error"),
        (("drift", *sizes, "--n-heads", "4"), "input_error"),
        (("drift", *sizes, "--of", "block", "--variant", "tight"), "input_error"),
    ):
        option = f"--{moved.replace('_', '-')}"
        error = json.loads(run("bound", *command, option, "0.001", "--json").stdout)["error"]
        back = json.loads(run("bound", *command, "--tol", str(error), "--json").stdout)[moved]
        assert back == pytest.approx(0.001, rel=1e-6)
        assert f"{error:.6g}" in run("bound", *command, option, "0.001").stdout
        both = run("bound", *command, option, "0.1", "--tol", "0.1")
        assert both.returncode == 2
        assert f"give {option} to get the error, or --tol" in both.stderr
