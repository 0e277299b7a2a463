"""Some damages of every kind of file; `make damage` tries thousands."""

from pathlib import Path

import pytest

from tests.damage import Kind, Trials, kinds


def test_every_kind_of_file_is_refused_or_made_good(tmp_path: Path) -> None:
    made = kinds(tmp_path)
    trials = Trials(made)
    trials.handmade(most=9)
    trials.random(len(made) * 8, seed=1)
    assert trials.failures == []
    assert sum(trials.counts[kind.name, "refused"] > 0 for kind in made) > len(made) / 2


@pytest.mark.parametrize(
    ("reads", "failure"),
    [
        (lambda file: file.read_bytes()[:4], "another content, and nothing said"),
        (lambda file: {}["whatever it holds"], "KeyError: 'whatever it holds'"),
    ],
)
def test_what_the_trials_notice(reads: object, failure: str, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "file"
    file.parent.mkdir()
    file.write_bytes(b"what was kept")
    expected, damaged = file.read_bytes(), []

    def read() -> object:
        assert callable(reads)
        if file.read_bytes() == expected:
            return expected
        damaged.append(file.read_bytes())
        return reads(file)

    trials = Trials([Kind("file", file, read, guarded=True)])
    trials.random(20, seed=0)
    assert failure in trials.failures[0]
    assert len(set(damaged)) > 10
    assert file.read_bytes() == expected
