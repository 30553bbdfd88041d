"""Read JSON that a page may hold: plain numbers, and not nested deeply.

In: text. Out: a value; raises `ValueError` that says what is wrong. Numbers that are not finite,
or have more digits than any of ours, would not survive being written again.
"""

from __future__ import annotations

import json
import math

from tessera.frontend.text.nested import is_deep

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
