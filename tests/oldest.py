"""The oldest versions that `pyproject.toml` allows, as a constraints file for pip.

    python -m tests.oldest

`make test-oldest` runs the tests with them. What users need has its lowest version; all else is, as everywhere,
what `constraints.txt` names, or older where something that old asks for it.
"""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOOLS = ("dev", "docs")  # extras of those who work on the package, not of those who use it


def requirements() -> dict[str, list[str]]:
    """Give what is required, for use itself ("") and by each extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def lowest(requirement: str) -> tuple[str, str]:
    """Split a requirement into a package and its lowest version."""
    found = re.fullmatch(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)(?:,<[\d.]+)?", requirement)
    if found is None:
        raise ValueError(f"pyproject.toml: needs NAME>=VERSION or NAME>=VERSION,<VERSION; got {requirement!r}.")
    return found[1], found[2]


def oldest() -> dict[str, str]:
    """Give every package a user may need with its lowest version."""
    return dict(lowest(line) for extra, lines in requirements().items() if extra not in TOOLS for line in lines)


def constraints() -> list[str]:
    """Write the constraints, one a line."""
    pinned = re.findall(r"^([\w-]+)==(\S+)", (ROOT / "constraints.txt").read_text("utf-8"), flags=re.MULTILINE)
    exactly = [f"{name}=={version}" for name, version in oldest().items()]
    return exactly + [f"{name}<={version}" for name, version in pinned if name not in oldest()]


if __name__ == "__main__":
    print(*constraints(), sep="\n")
