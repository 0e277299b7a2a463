"""JSON that a ticket can hold: copied, and refused by name where it could not be written and read again."""

import math
from collections.abc import Mapping

from strongticket.files import Json

MAX_JSON_DEPTH = 64


def plain_json(value: Mapping[str, Json], what: str) -> dict[str, Json]:
    """Copy a mapping as plain JSON; anything JSON cannot hold exactly is refused by name."""
    copied = _plain(value, what)
    if not isinstance(copied, dict):
        raise ValueError(f"{what} must be a mapping; got {type(value).__name__}.")
    return copied


def _plain(value: Json, what: str, levels: int = MAX_JSON_DEPTH) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(value, what)
    if isinstance(value, int) and abs(value) < 2**64:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if levels == 0 and isinstance(value, list | tuple | Mapping):
        raise ValueError(f"{what[:60]} is nested deeper than {MAX_JSON_DEPTH} levels.")
    if isinstance(value, list | tuple):
        return [_plain(item, f"{what}[{i}]", levels - 1) for i, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {_encodable(key, what): _plain(item, f"{what}.{key}", levels - 1) for key, item in value.items()}
    raise ValueError(
        f"{what} must be plain JSON: text, finite numbers, true, false, null, lists, and mappings with text keys; "
        f"got {type(value).__name__} {str(value)[:40]}."
    )


def _encodable(text: str, what: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what[:60]} has text with half a surrogate pair, which UTF-8 cannot hold.") from None
    return str(text)
