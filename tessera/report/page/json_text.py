"""Read JSON that a page may hold, and look into it.

In: text. Out: a value; raises `ValueError` that says what is wrong. Numbers that are not finite,
or have more digits than any of ours, would not survive being written again. What a document lacks,
or has of another type, reads as nothing: files of other versions have other keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from tessera.frontend.text.nested import is_deep

Json = Mapping[str, object]
_MOST_DIGITS = 300


def read_json(text: str) -> object:
    """The value in a text."""
    try:
        value: object = json.loads(
            text, parse_float=_finite, parse_int=_whole, parse_constant=_refuse
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as problem:
        raise ValueError(f"it is not JSON: {problem}") from None
    if is_deep(value):
        raise ValueError("it is nested too deeply")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        return _refuse(text)
    return number


def _whole(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        _refuse(text)
    return int(text)


def _refuse(text: str) -> float:
    raise ValueError(f"`{text:.20}` in it is no number that can be used")


# --- parts of an object --------------------------------------------------------------------------


def number(value: Json, key: str) -> float:
    """A number of an object; 0 if it has none."""
    found = value.get(key)
    return float(found) if isinstance(found, int | float) else 0.0


def inner(value: Json, key: str) -> Json:
    """An object in an object; an empty one if it has none."""
    found = value.get(key)
    return found if isinstance(found, Mapping) else {}


def rows(value: Json, key: str) -> list[Json]:
    """The objects in a list of an object."""
    found = value.get(key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def texts(value: Json, key: str) -> list[str]:
    """The texts in a list of an object."""
    found = value.get(key)
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []
