"""Show results and tickets on one HTML page that needs no server and no network."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypedDict


class Written(TypedDict):
    """The content of a page: the titles of its sections, and the files left out with the reasons."""

    file: str
    bytes: int
    sections: list[str]
    left_out: list[dict[str, str]]


def write_report(
    paths: Iterable[Path], out: Path, progress: Callable[[int, int], object] = lambda done, total: None
) -> Written:
    """Write a page of all results, benchmark rows and tickets under `paths`.

    Files that are broken, too large or from a newer release are named on the page and skipped.

    Args:
        paths: folders, searched to any depth, or single files.
        out: the page; an existing file is replaced unless there is nothing to show.
        progress: called with the number of finished files, and their total.

    Returns:
        `file`, `bytes` written, the titles of its `sections`, and what was `left_out` and why.

    Raises:
        FileNotFoundError: a path does not exist.
        ValueError: `out` has the name of a result or ticket, or is not a regular file.
    """
    from strongticket.files import atomic_write
    from strongticket.report.build import build_sections
    from strongticket.report.find import check_out, find
    from strongticket.report.page import render_page

    check_out(out)
    found = find(paths)
    sections = build_sections(found, progress)
    # Names and texts may hold lone surrogates, which UTF-8 cannot encode; these are escaped.
    page = render_page(sections, found.left_out).encode(errors="backslashreplace")
    written = bool(sections) or not out.exists()
    if written:
        out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(out, durable=False) as file:
            file.write(page)
    return {
        "file": str(out),
        "bytes": len(page) if written else 0,
        "sections": [section.title for section in sections],
        "left_out": [{"file": name, "reason": reason} for name, reason in found.left_out],
    }
