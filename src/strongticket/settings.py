"""Settings are declared once: a field has its default, its help and, if added later, what runs did before it.

The command line's options are made from the fields, which also tell how to read files older than a field.
"""

from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any, TypeVar

from strongticket.files import Json, as_json, difference

T = TypeVar("T")


def setting(
    default: T,
    about: str,
    *,
    panel: str | None = None,
    least: float | None = None,
    most: float | None = None,
    metavar: str | None = None,
    shown: str | None = None,
    before: Any = MISSING,
) -> T:
    """Declare a field of a frozen dataclass of settings that is also a command-line option.

    Args:
        default: the field's default.
        about: the option's help, one line.
        panel: the heading of the option in the help.
        least: the smallest number the command accepts.
        most: the largest.
        metavar: the placeholder for a value in the help, where the type is not enough.
        shown: the default as shown in the help ("" for nothing) if the command computes it; the option is then None
            unless given.
        before: what runs did before this setting existed, or before its default changed; by default, `default`. When
            you change a default, keep the old one here.
    """
    option = {"help": about, "rich_help_panel": panel, "min": least, "max": most, "metavar": metavar}
    metadata = {"option": {key: value for key, value in option.items() if value is not None}, "shown": shown}
    if before is not MISSING:
        metadata["before"] = before
    return field(default=default, metadata=metadata)


def value_before(own: "Field[Any]") -> Any:
    """Return what runs did before a setting existed, or MISSING if every run had it."""
    default = own.default if own.default_factory is MISSING else own.default_factory()
    return own.metadata.get("before", default)


def filled(found: object, kind: type[Any]) -> Json:
    """Fill in settings that a file is too old to have, so that runs are equal if their settings are.

    A file has all settings of its time, regardless of defaults; only later ones are missing, for which the run did what
    `value_before` returns. An unknown setting is kept and makes the run a different one. A missing group of settings
    (a trained model has no policy) is not added.

    Args:
        found: settings read from a file.
        kind: the dataclass of the settings.
    """
    if not isinstance(found, dict):
        return found
    full = dict(found)
    for own in fields(kind):
        before = value_before(own)
        if is_dataclass(before):
            if own.name in found:
                full[own.name] = filled(found[own.name], type(before))
        elif before is not MISSING:
            full.setdefault(own.name, as_json(before))
    return full


def read_settings(found: object, kind: type[T]) -> T:
    """Make settings from those in a file: later ones are filled in, and what else the file has is left out.

    Args:
        found: settings read from a file.
        kind: the dataclass of the settings.
    """
    full, values = filled(found, kind), dict[str, Any]()
    for own in fields(kind):  # type: ignore[arg-type]  # any dataclass
        before, value = value_before(own), full[own.name]
        nested = read_settings(value, type(before)) if is_dataclass(before) else value
        values[own.name] = tuple(nested) if isinstance(nested, list) else nested
    return kind(**values)


def other_settings(found: object, ours: object, kind: type[Any]) -> str | None:
    """Name the first setting in which a file's run differs from ours, or return None."""
    theirs = filled(found, kind)
    return None if theirs == ours else difference(theirs, ours)
