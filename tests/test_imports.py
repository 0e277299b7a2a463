"""Imports go one way: the graph is drawn from the source and held against what docs/reading-order.md states."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "strongticket"
PAGE = ROOT / "docs" / "reading-order.md"
# The package's own face, which names what is public, and the command: they stand above all rooms.
FRONT = {"strongticket", "strongticket.__main__"}


def name_of(path: Path) -> str:
    return ".".join(("strongticket", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_of(source: str) -> Iterator[str]:
    """Give the modules of ours that some source imports: anywhere, in functions and for type checkers too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else str(node.module) for name in names if in_package(name))


def in_package(name: str) -> bool:
    return name.startswith("strongticket.")


def graph() -> dict[str, set[str]]:
    return {name: set(imports_of(path.read_text("utf-8"))) - {name} for name, path in MODULES.items()}


def room_of(module: str) -> str:
    return module.split(".")[1]


def stated() -> dict[str, list[str]]:
    """Read the page's drawing: a line per room, what it imports after an arrow."""
    (block,) = re.findall(r"```text\n(errors.*?)```", PAGE.read_text("utf-8"), flags=re.DOTALL)
    lines = (line.partition("<-") for line in block.splitlines())
    return {room.strip(): above.split() for room, _, above in lines}


def drawn(rooms: list[str]) -> str:
    """Draw the graph of rooms as the page has it, for the rooms in this order."""
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for module, imported in graph().items():
        if module not in FRONT:
            found.setdefault(room_of(module), set()).update(room_of(name) for name in imported if name not in FRONT)
    width = max(map(len, found))
    lines = []
    for room, below in found.items():
        known = sorted(below - {room}, key=lambda name: list(found).index(name))
        lines.append(f"{room:{width}} <- {' '.join(known)}".rstrip().removesuffix(" <-").rstrip())
    return "\n".join(lines) + "\n"


def test_the_page_draws_the_rooms_as_they_are() -> None:
    page, block = PAGE.read_text("utf-8"), drawn(list(stated()))
    assert block in page, f"docs/reading-order.md should say:\n{block}"


def test_a_room_imports_only_rooms_before_it() -> None:
    seen: set[str] = set()
    for room, imported in stated().items():
        assert set(imported) <= seen, f"{room} imports {set(imported) - seen}, which come after it"
        seen.add(room)


def test_no_cycle_among_modules() -> None:
    TopologicalSorter(graph()).prepare()


def test_imports_are_found_wherever_they_stand() -> None:
    source = "def f():\n    from strongticket.files import as_json\nif TYPE_CHECKING:\n    import strongticket.errors\n"
    assert set(imports_of(source)) == {"strongticket.errors", "strongticket.files"}
