"""The notebooks run, find what their text says, and show what they are kept with."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.notebooks import NOTEBOOKS, ROOT, run, strip

MOST_BYTES = 80_000  # of a notebook, pictures included


def shown(notebook: Any) -> list[str]:
    """What a reader sees below each cell: text without its numbers, whose last digits are each machine's own."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = ["picture" if "image/png" in output.get("data", {}) else output.get("text", "") for output in outputs]
    return [re.sub(r"\d[\d,.]*(e[-+]\d+)?", "#", re.sub(" +", " ", line)) for line in text]


def results(name: str, folder: Path, ask: str) -> Any:
    """Run a notebook; it has to show what it is kept with, but for digits."""
    path = ROOT / "examples" / "notebooks" / f"{name}.ipynb"
    notebook, answer = run(path, folder, ask)
    assert shown(notebook) == shown(nbformat.read(path, as_version=4)), "make notebooks"
    return answer


def test_own_attention_is_certified_and_comes_back_from_its_file(tmp_path: Path) -> None:
    ask = (
        "[ticket.certificate.error, error(ticket), loaded == ticket, [(m - maps[0]).abs().max().item() for m in maps]]"
    )
    certified, measured, same, off = results("own_attention", tmp_path, ask)
    assert same
    assert 0 < measured < certified < 1e-3
    assert off[1] > 0.1 > 1e-4 > off[3], "the narrowest map is off, the widest is not"
    assert (tmp_path / "attention.ticket").stat().st_size < 6_000


def test_digits_are_read_as_well_as_by_a_trained_network(tmp_path: Path) -> None:
    found, curves = results("digits", tmp_path, "[results, curves]")
    assert found["edge-popup"][0] >= 97, "the defaults of st.search"
    assert all(right > 95 for right, _ in found.values())
    assert 10 * found["signed"][1] < found["trained"][1]
    assert curves["signed"][-1] > curves["edge-popup"][-1] + 20, "nearly all weights kept: signs are left to choose"


def test_adaptive_assignment_has_no_outliers_in_figure_4(tmp_path: Path) -> None:
    ask = "[[[float(e.median()), float(e.max())] for e in found] for found in (equal, adaptive)]"
    equal, adaptive = results("figure4", tmp_path, ask)
    # Four products more a step; exact halving would be a sixteenth.
    assert all(wide[0] < narrow[0] / 2 for narrow, wide in pairwise(equal))
    assert all(ours[0] < theirs[0] for theirs, ours in zip(equal, adaptive, strict=True))
    assert equal[3][1] > 100 * equal[3][0]
    assert adaptive[3][1] < 10 * adaptive[3][0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_small_and_without_what_differs_from_run_to_run(path: Path) -> None:
    kept = nbformat.read(path, as_version=4)
    again = nbformat.from_dict(kept)
    strip(again)
    assert again == kept
    assert path.stat().st_size < MOST_BYTES
    assert [cell.execution_count for cell in kept.cells if cell.cell_type == "code"] == [
        *range(1, 1 + sum(cell.cell_type == "code" for cell in kept.cells))
    ], "run from top to bottom"


def test_every_notebook_is_described_and_on_the_site() -> None:
    assert len(NOTEBOOKS) == 3
    readme, contents = ((ROOT / name).read_text("utf-8") for name in ("examples/README.md", "mkdocs.yml"))
    for path in NOTEBOOKS:
        assert f"notebooks/{path.name}" in readme
        assert f": notebooks/{path.stem}.md\n" in contents
