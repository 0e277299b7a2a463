"""What the tests of documentation pages share: the tables of a page, and the committed results they quote."""

import json
import re
from pathlib import Path

from strongticket.files import Json

ROOT = Path(__file__).parents[1]


def result_of(figure: str) -> Json:
    return json.loads((ROOT / "results" / figure / "result.json").read_text("utf-8"))


def table_under(page: Path, heading: str, place: int = 0) -> list[list[str]]:
    """The cells of a table in the section of a heading, head and rule included, without bold type."""
    text = page.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    tables = re.findall(r"(?:^\|.*\|\n)+", section, flags=re.MULTILINE)
    lines = [line.strip("|") for line in tables[place].splitlines()]
    return [[cell.strip().replace("**", "") for cell in line.split("|")] for line in lines]
