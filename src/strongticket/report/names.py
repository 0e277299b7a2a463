"""Distinct names for files of the same name."""

from collections.abc import Sequence
from pathlib import Path


def distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Name each path by its last parts: the same number for all, as few as keep the names distinct.

    Example:
        >>> distinct_names([Path("runs/a/seed-0"), Path("runs/b/seed-0"), Path("runs/seed-1")]).values()
        dict_values(['a/seed-0', 'b/seed-0', 'runs/seed-1'])
    """
    whole = {path: path.parts or (path.absolute().name,) for path in paths}  # "." has a name, too
    own, length = set(whole.values()), 1
    while len({parts[-length:] for parts in own}) < len(own):
        length += 1
    return {path: str(Path(*parts[-length:])) for path, parts in whole.items()}


def ticket_names(tickets: Sequence[Path], runs: Sequence[Path]) -> dict[Path, str]:
    """Name tickets of runs after their runs, and others by their own paths.

    Example:
        >>> ticket_names([Path("x/a/best.ticket"), Path("y.ticket")], [Path("x/a"), Path("x/b")]).values()
        dict_values(['a/best.ticket', 'y.ticket'])
    """
    folders = distinct_names(runs)
    others = distinct_names([path for path in tickets if path.parent not in folders])
    return {path: f"{folders[path.parent]}/{path.name}" if path.parent in folders else others[path] for path in tickets}
