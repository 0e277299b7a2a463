import json
import subprocess
from pathlib import Path

import pytest

from strongticket import environment


def test_environment_is_json_and_names_what_matters() -> None:
    described = json.loads(json.dumps(environment.environment()))
    assert described["cpu"]
    assert described["cores"] >= 1
    assert described["gpu"] is None
    assert {"strongticket", "python", "numpy", "torch"} <= described["versions"].keys()


def test_commit_is_that_of_the_checkout() -> None:
    here = Path(environment.__file__).parent
    head = subprocess.run(["git", "-C", here, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("not a git checkout: nothing to compare with")
    environment.commit.cache_clear()
    assert head.stdout.startswith(environment.commit().removesuffix("-dirty"))


def test_commit_without_git_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    environment.commit.cache_clear()
    assert environment.commit() == "unknown"
    monkeypatch.setenv("STRONGTICKET_COMMIT", "abc123")
    environment.commit.cache_clear()
    assert environment.commit() == "abc123"
    environment.commit.cache_clear()


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["/usr/bin/strongticket", "search", "--out", "a b"], "strongticket search --out 'a b'"),
        (["/lib/strongticket/__main__.py", "report"], "strongticket report"),
        (["./mine.py", "3"], "./mine.py 3"),
        ([""], None),
        (["-c"], None),
    ],
)
def test_a_command_is_what_was_typed(
    arguments: list[str], command: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", arguments)
    assert environment.command_line() == command
