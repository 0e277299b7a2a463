"""Choose the columns of a table that fit a terminal: a number is shown whole or not at all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from strongticket.charts.parts import Table

_LONGEST_WORD = 20  # in a column of words; a longer one, such as a tensor's name, may be wrapped
_EDGES = 3  # extra characters per column; the table takes one more


def fit(table: Table, width: int) -> tuple[Table, list[int], list[str]]:
    """Drop columns until the others fit: minor ones first, then from the right.

    Args:
        table: with cells as they will be printed.
        width: of the terminal, in characters.

    Returns:
        The table that fits, the width of each of its columns, and the names of the columns left out.

    Example:
        >>> table = Table(caption="", columns=("n", "mean", "std"), rows=[("8", "1.25e-09", "3.1e-10")])
        >>> fit(table, 80)[1:], fit(table, 20)[1:]
        (([1, 8, 7], []), ([1, 8], ['std']))
    """
    columns = [(name, [row[place] for row in table.rows]) for place, name in enumerate(table.columns)]
    # What names the rows is not broken as long as it leaves half of the room to the others.
    words = [max(_LONGEST_WORD, width // 2), *([_LONGEST_WORD] * len(columns))]
    numbers = table.numbers()
    least = [_least(*column, None if place in numbers else words[place]) for place, column in enumerate(columns)]
    kept = list(range(len(columns)))
    for place in _order(table):
        if _outer([least[each] for each in kept]) <= width:
            break
        kept.remove(place)
    widths = [least[place] for place in kept]
    wanted = [max(map(len, (columns[place][0], *columns[place][1]))) for place in kept]
    # Spare characters go to the columns that need them most.
    for _ in range(width - _outer(widths)):
        most = max(range(len(kept)), key=lambda column: wanted[column] - widths[column])
        if wanted[most] <= widths[most]:
            break
        widths[most] += 1
    narrow = replace(
        table,
        columns=[table.columns[place] for place in kept],
        rows=[[row[place] for place in kept] for row in table.rows],
        words=sum(place < table.words for place in kept),
        remarks=sum(place >= len(table.columns) - table.remarks for place in kept),
    )
    return narrow, widths, [name for place, name in enumerate(table.columns) if place not in kept]


def _order(table: Table) -> Iterator[int]:
    """Yield columns in the order they are dropped; the first column names the rows and stays."""
    minor = [[*table.columns].index(name) for name in table.minor]
    yield from minor
    yield from (place for place in range(len(table.columns) - 1, 0, -1) if place not in minor)


def _least(heading: str, cells: Sequence[str], longest_word: int | None) -> int:
    """Return the smallest width of a column: words longer than `longest_word` may be broken; None for whole numbers."""
    whole = cells if longest_word is None else [word for cell in cells for word in cell.split()]
    longest = max(map(len, (*heading.split(), *whole)), default=0)
    return longest if longest_word is None else min(longest, longest_word)


def _outer(widths: Sequence[int]) -> int:
    return sum(widths) + _EDGES * len(widths) + 1
