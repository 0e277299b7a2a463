"""JSON that a ticket can hold: copied, and refused by name if it would not survive writing and reading."""

import math
from collections.abc import Mapping

from strongticket.errors import printable
from strongticket.files import Json

MAX_JSON_DEPTH = 64

Level = list[object] | tuple[object, ...] | Mapping[object, object]  # a value that holds others

_LONGEST_PLACE = 80
_NOT_PLAIN = "must be plain JSON: text, finite numbers, true, false, null, lists, and mappings with text keys"


class _NotPlainError(Exception):
    """Why a value is refused, and the path to it, innermost step first.

    The path is built as the error passes each level: naming every value beforehand made long files slow.
    """

    def __init__(self, value: object, reason: str) -> None:
        super().__init__(reason)
        self.inside, self.steps = value, list[str]()

    def passed(self, level: Level) -> "_NotPlainError":
        steps, form = (level.items(), ".{}") if isinstance(level, Mapping) else (enumerate(level), "[{}]")
        for step, child in steps:
            if child is self.inside:
                self.steps.append(form.format(step)[:_LONGEST_PLACE])
                break
        self.inside = level
        return self


def plain_json(value: Mapping[str, object], what: str) -> dict[str, Json]:
    """Copy a mapping as plain JSON; anything JSON cannot hold exactly is refused by name."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a mapping; got {type(value).__name__}.")
    try:
        copied: dict[str, Json] = _plain(value, MAX_JSON_DEPTH)
    except _NotPlainError as error:
        place = what + "".join(reversed(error.steps))
        raise ValueError(f"{printable(place[:_LONGEST_PLACE])} {error}") from None
    return copied


def _plain(value: object, levels: int) -> Json:
    # First what a file may hold millions of.
    if type(value) is int and -(2**64) < value < 2**64:
        return value
    if type(value) is list or type(value) is dict:
        return _nested(value, levels)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(value)
    if isinstance(value, int) and abs(value) < 2**64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if isinstance(value, list | tuple | Mapping):
        return _nested(value, levels)
    raise _NotPlainError(value, f"{_NOT_PLAIN}; got {type(value).__name__} {printable(str(value)[:40])}.")


def _nested(value: Level, levels: int) -> Json:
    if levels == 0:
        raise _NotPlainError(value, f"is nested deeper than {MAX_JSON_DEPTH} levels.")
    try:
        if isinstance(value, list | tuple):
            return [_plain(item, levels - 1) for item in value]
        return {_key(key): _plain(item, levels - 1) for key, item in value.items()}
    except _NotPlainError as error:
        raise error.passed(value) from None


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise _NotPlainError(key, f"{_NOT_PLAIN}; got the key {printable(str(key)[:40])}.")
    return _encodable(key)


def _encodable(text: str) -> str:
    if text.isascii():
        return str(text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _NotPlainError(text, "has text with half a surrogate pair, which UTF-8 cannot hold.") from None
    return str(text)
