"""Names for files that are called alike."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path


def distinct_names(paths: Sequence[Path]) -> dict[Path, str]:
    """Give each path the shortest end of it that no other has.

    Example:
        >>> distinct_names([Path("a/seed-0/best.ticket"), Path("b/seed-0/best.ticket"), Path("x.ticket")]).values()
        dict_values(['a/seed-0/best.ticket', 'b/seed-0/best.ticket', 'x.ticket'])
    """
    names = {path: path.name for path in paths}
    for length in range(2, max((len(path.parts) for path in paths), default=0) + 1):
        counts = Counter(names.values())
        for path, name in names.items():
            if counts[name] > 1:
                names[path] = str(Path(*path.parts[-length:]))
    return names
