"""What numba compiled is kept; damaged, or once the source of anything in it has changed, it is not used."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import strongticket.errors
import strongticket.files
import strongticket.ops.compiled

CALLER = """
from strongticket.ops.compiled import kernel
from strongticket.ops.called import number

@kernel
def ask():
    return number()
"""
CALLED = "from strongticket.ops.compiled import part\n\n@part\ndef number():\n    return {}\n"
ASK = "from strongticket.ops.caller import ask; print(ask(), sum(ask.stats.cache_hits.values()))"


@pytest.fixture
def ask(tmp_path: Path) -> Callable[[str], list[str]]:
    """Run a kernel whose part returns a number, in a process of its own: what it returns, and how many were kept."""
    package = tmp_path / "strongticket" / "ops"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for module in (strongticket.errors, strongticket.files, strongticket.ops.compiled):
        copy = package.parent.parent / f"{module.__name__.replace('.', '/')}.py"
        copy.write_text(Path(module.__file__).read_text())
    (package / "caller.py").write_text(CALLER)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}

    def asked(number: str) -> list[str]:
        if not (called := package / "called.py").exists() or called.read_text() != CALLED.format(number):
            called.write_text(CALLED.format(number))
        command = [sys.executable, "-B", "-c", ASK]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()

    return asked


def test_a_kernel_is_compiled_anew_if_a_part_in_another_file_changes(ask: Callable[[str], list[str]]) -> None:
    """It used to run as it was before the change, after an update of a source that is installed in place."""
    for number in ("10", "20"):
        assert ask(number) == [number, "0"]
        assert ask(number) == [number, "1"], "kept while nothing changes"


def test_damaged_code_is_compiled_anew(ask: Callable[[str], list[str]], tmp_path: Path) -> None:
    """It ended in a traceback, in "Aborted!", or as damage of the ticket that was read; or it ran."""
    ask("10")
    files = sorted((tmp_path / "kernels").rglob("*.nbc"))
    assert len(files) == 2
    whole = [file.read_bytes() for file in files]
    for damage in (lambda d: b"", lambda d: d[:-1], lambda d: bytes(len(d)), lambda d: d[:900] + b"!" + d[901:]):
        for file, data in zip(files, whole, strict=True):
            file.write_bytes(damage(data))
        assert ask("10") == ["10", "0"]
        assert ask("10") == ["10", "1"]


def test_without_room_for_the_code_it_is_compiled_each_time(ask: Callable[[str], list[str]], tmp_path: Path) -> None:
    (tmp_path / "kernels").touch()  # a file: nothing can be written below it
    assert ask("10") == ["10", "0"]
