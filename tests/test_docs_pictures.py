"""The pictures of the documentation show what the committed results say, on light pages and on dark ones."""

import importlib.util
from pathlib import Path

import pytest
from PIL import Image

from strongticket.charts.picture import words_of

DOCS = Path(__file__).parents[1] / "docs"
_spec = importlib.util.spec_from_file_location("pictures", DOCS / "pictures.py")
assert _spec is not None
assert _spec.loader is not None
pictures = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(pictures)

SECTIONS = dict(pictures.sections())


@pytest.mark.parametrize("name", SECTIONS)
def test_a_picture_is_up_to_date_in_both_themes(name: str) -> None:
    words = words_of(SECTIONS[name]())
    shown = [] if name in pictures.NOT_IN_DOCS else [DOCS / f"{name}.png", DOCS / f"{name}-dark.png"]
    kept = [pictures.RESULTS / name / f"{name}.png"] if name in pictures.WITH_PICTURES else []
    for path in (*shown, *kept):
        with Image.open(path) as picture:
            assert picture.info["Description"] == words, f"run: python docs/pictures.py {name}"
    if shown:
        light, dark = (Image.open(path).convert("L").getpixel((0, 0)) for path in shown)
        assert light == 255
        assert isinstance(dark, int)
        assert dark < 60
    if shown and kept:
        assert shown[0].read_bytes() == kept[0].read_bytes()


def test_nothing_else_is_drawn_and_left_behind() -> None:
    drawn = {path.stem.removesuffix("-dark") for path in DOCS.glob("*.png") if not path.stem.startswith("report-")}
    assert drawn == {name for name in SECTIONS if name not in pictures.NOT_IN_DOCS}


def test_the_readme_has_one_message() -> None:
    section = SECTIONS["fig4-readme"]()
    assert section.title == "Each extra random number halves the error"
    (chart,) = section.blocks
    (view,) = chart.views
    assert len(view.series) == 2
