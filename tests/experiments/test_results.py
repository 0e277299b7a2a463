import json
from dataclasses import asdict
from pathlib import Path

import pytest

from strongticket.errors import StrongTicketError
from strongticket.experiments import fig4
from strongticket.experiments.figure import How
from strongticket.experiments.results import RESULT, ResultFolder
from strongticket.files import Json, as_json, unsealed
from tests.experiments.runs import UNTRAINED

CONFIG = as_json({"figure": "fig4", **asdict(fig4.Config(sources=5))})


def folder_of(path: Path, config: Json = CONFIG) -> ResultFolder:
    return ResultFolder(path, config, fig4.Config)


def test_work_is_kept_line_by_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "fig4")
    assert folder.finished() is None
    with folder.partial() as partial:
        partial.keep_targets([{"index": 0}])
        partial.keep("b", {"error": 0.1})
    with folder.partial() as partial:
        assert partial.targets == [{"index": 0}]
        assert partial.rows == {"b": {"error": 0.1}}


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_line_cut_short_is_dropped_and_written_again(tmp_path: Path, cut: int) -> None:
    folder = folder_of(tmp_path)
    with folder.partial() as partial:
        partial.keep("a", [1])
        partial.keep("b", [2, 3, 4, 5])
    file = tmp_path / "partial.jsonl"
    file.write_bytes(file.read_bytes()[:-cut])
    with folder.partial() as partial:
        assert partial.rows == {"a": [1]}
        partial.keep("b", [2, 3, 4, 5])
    assert [unsealed(json.loads(line)) for line in file.read_text().splitlines()] == [
        {"config": CONFIG},
        {"task": "a", "rows": [1]},
        {"task": "b", "rows": [2, 3, 4, 5]},
    ]


def test_finishing_leaves_two_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    with folder.partial() as partial:
        partial.keep("a", [1])
        folder.finish({"config": CONFIG, "rows": [0.1, 1e-300, 3]}, {"seconds": 1})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["result.json", "run.json"]
    assert folder.finished() == {"config": CONFIG, "rows": [0.1, 1e-300, 3]}


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({**CONFIG, "sources": 6}, "sources: 6 there, 5 here"),
        (
            {**CONFIG, "target": {**CONFIG["target"], "kind": "untrained"}},
            'target.kind: "untrained" there, "trained" here',
        ),
        ({**CONFIG, "extra": 1}, "extra: 1 there, null here"),
    ],
)
def test_another_configuration_is_refused(tmp_path: Path, other: dict[str, object], said: str) -> None:
    for name in ("finished", "begun"):
        theirs = folder_of(tmp_path / name, other)
        with theirs.partial():
            if name == "finished":
                theirs.finish({"config": other}, {})
    with pytest.raises(StrongTicketError, match="holds the result of another configuration") as caught:
        folder_of(tmp_path / "finished").finished()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    before = (tmp_path / "begun" / "partial.jsonl").read_bytes()
    with (
        pytest.raises(StrongTicketError, match="another configuration"),
        folder_of(tmp_path / "begun").partial(),
    ):
        pass
    assert (tmp_path / "begun" / "partial.jsonl").read_bytes() == before


@pytest.mark.parametrize("line", [b"7", b"[]", b'{"task": "b", "rows": [9]}', b"[" * 100_000])
def test_a_line_that_is_none_of_ours_is_not_used_and_told(tmp_path: Path, line: bytes) -> None:
    folder = folder_of(tmp_path)
    with folder.partial() as partial:
        partial.keep("a", [1])
    with open(tmp_path / "partial.jsonl", "ab") as file:
        file.write(line + b"\n")
    with folder.partial(lambda _: None) as partial:
        partial.keep("c", [3])
    told: list[str] = []
    with folder.partial(told.append) as partial:
        assert partial.rows == {"a": [1], "c": [3]}
    assert told == [f"{tmp_path / 'partial.jsonl'}: 1 of 4 lines are damaged; their work is done again."]


def test_rows_of_another_release_are_named(tmp_path: Path) -> None:
    """Their digests are right, but no figure reads them; what fails before anything was kept is no file's fault."""
    config = fig4.Config(sources=1, widths=(8, 16, 24), inputs=5, target=UNTRAINED)
    folder = ResultFolder(tmp_path / "fig4", as_json({"figure": "fig4", **asdict(config)}), fig4.Config)
    with pytest.raises(KeyError), folder.partial() as partial:
        partial.rows["nothing kept yet"]
    with folder.partial() as partial:
        partial.keep("equal, target 0, width 8, sources 0 to 0", {"error": "small"})
        partial.keep_targets([])
    with pytest.raises(StrongTicketError, match=r"partial\.jsonl is broken, or from another release \(KeyError"):
        fig4.FIGURE.plan.carry_out("fig4", config, tmp_path, How())
    assert not (tmp_path / "fig4" / RESULT).exists()


def test_another_digit_is_damage(tmp_path: Path) -> None:
    folder, file = folder_of(tmp_path), tmp_path / "partial.jsonl"
    with folder.partial() as partial:
        partial.keep("a", [0.25])
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"0.25", b"0.35"))
    with pytest.warns(UserWarning, match="1 of 2 lines are damaged"), folder.partial() as partial:
        assert partial.rows == {}
    file.write_bytes(whole.replace(b'"sources": 5', b'"sources": 4'))
    with pytest.raises(StrongTicketError, match=r"partial.jsonl is damaged in its first line"), folder.partial():
        pass
    folder.finish({"config": CONFIG, "rows": [0.25]}, {})
    result = tmp_path / "result.json"
    result.write_bytes(result.read_bytes().replace(b"0.25", b"0.35"))
    with pytest.raises(StrongTicketError, match=r"result.json is damaged .*\(its SHA-256 does not match.*move it away"):
        folder.finished()


@pytest.mark.parametrize("content", [b"not json", b"[]", b'{"no": "config"}', b"[" * 100_000])
def test_a_strange_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(StrongTicketError, match=r"not JSON|another configuration"):
        folder_of(tmp_path).finished()


def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    told = pytest.raises(StrongTicketError, match="another run is working in this folder")
    with folder.partial(), told, folder.partial():
        pass
    with folder.partial():
        pass
