"""Public names that are imported when they are first asked for, so that `-h` does not wait for torch."""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Make a package's `__getattr__` and `__dir__` (PEP 562).

    Python overwrites a package's attribute when it imports the submodule of the same name, so no name may be that of
    a submodule.

    Args:
        package: its `__name__`.
        homes: its modules, and the names that come from each, separated by spaces.
    """
    home_of = {name: f"{package}.{home}" for home, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home_of[name]), name)
        # Python asks only for what is missing, so the next use costs nothing.
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of})

    return load, names
