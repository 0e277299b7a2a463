"""What a terminal of a given width shows of tables and lines, checked digit by digit."""

from collections.abc import Iterable
from io import StringIO

from rich.console import Console
from rich.table import Table as RichTable


def printed(parts: Iterable[RichTable | str], width: int) -> str:
    file = StringIO()
    terminal = Console(file=file, width=width, force_terminal=True, color_system=None, highlight=False, markup=False)
    for part in parts:
        terminal.print(part, soft_wrap=isinstance(part, str))
    return file.getvalue()


def check_whole(parts: Iterable[RichTable | str], width: int) -> None:
    """No line is longer than the terminal, and every cell of every table stands there in full."""
    for part in parts:
        text = printed([part], width)
        assert all(len(line) <= width for line in text.splitlines()), text
        assert "…" not in text
        if isinstance(part, RichTable):
            columns = zip(*(line.split("│")[1:-1] for line in text.splitlines() if line.startswith("│")), strict=True)
            for column, lines in zip(part.columns, columns, strict=True):
                cells = [str(cell).strip() for cell in column.cells]
                assert "".join("".join(lines).split()) == "".join("".join(cells).split()), column.header
                if column.justify == "right":
                    assert [line.strip() for line in lines if line.strip()] == [cell for cell in cells if cell]
