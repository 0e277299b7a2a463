"""Settings are declared once: a field says its default, what it does and, where it came later, what runs did before.

The command line's options are made of the fields, and files that are older than a field are read by them.
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
    """Declare a field of a frozen dataclass of settings that is an option of a command, too.

    Args:
        default: of the field.
        about: the option's help, a line.
        panel: the heading it stands under.
        least: the smallest number the command takes.
        most: the largest.
        metavar: what help shows in the place of a value, where the type does not say it.
        shown: what help says of the default ("" for nothing) where the command works it out: unless given, the option
            is None.
        before: what runs did before there was this setting, or before its default was changed. Without it, that is
            the default: whoever changes a default keeps the old one here.
    """
    option = {"help": about, "rich_help_panel": panel, "min": least, "max": most, "metavar": metavar}
    metadata = {"option": {key: value for key, value in option.items() if value is not None}, "shown": shown}
    if before is not MISSING:
        metadata["before"] = before
    return field(default=default, metadata=metadata)


def value_before(own: "Field[Any]") -> Any:
    """Give what a run did before it had a setting, or MISSING where there never was a run without."""
    default = own.default if own.default_factory is MISSING else own.default_factory()
    return own.metadata.get("before", default)


def filled(found: Json, kind: type[Any]) -> Json:
    """Spell out settings that a file is too old to have, so that equality of runs is equality of their settings.

    Files have all settings of their time in full, whatever the defaults were and are; only one that came later is
    missing, and then the run did what `value_before` says. A setting that is not known here stays, and makes the run
    another one. A group of settings that a file does without (a trained model has no policy) is not added.

    Args:
        found: read from a file.
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


def other_settings(found: Json, ours: Json, kind: type[Any]) -> str | None:
    """Name the first setting in which a file is of another run than ours, if it is."""
    theirs = filled(found, kind)
    return None if theirs == ours else difference(theirs, ours)
