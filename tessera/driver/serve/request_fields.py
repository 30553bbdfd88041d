"""Fields of a request's body, each checked as it is read.

In: bytes. Out: `Fields`, whose methods give values of one type, or raise `BadRequest` with the name
of the field. A field that is null counts as left out.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import cast

from tessera.driver.serve.api_errors import BadRequest, ErrorCode

_SHOWN = 80
"""Most characters of a client's text that an error repeats."""


class Fields:
    """The fields that a client gave."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = {key: part for key, part in values.items() if part is not None}

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def get(self, key: str, default: object = None) -> object:
        """A value as the client gave it."""
        return self._values.get(key, default)

    def needed(self, key: str) -> object:
        """A value that must be there."""
        if key not in self._values:
            code = ErrorCode.MISSING_PARAMETER
            raise BadRequest(f"`{key}` is missing", code=code, field=key)
        return self._values[key]

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Refuse fields that are not known: they might change an answer."""
        for key in self._values:
            if key not in known:
                raise BadRequest(
                    f"`{shown(key)}` is not known here",
                    code=ErrorCode.UNKNOWN_PARAMETER,
                    field=shown(key),
                )

    def refuse_others(self, fixed: Mapping[str, object]) -> None:
        """Refuse fields that are not offered, unless they have the value that changes nothing."""
        for key, only in fixed.items():
            value = self._values.get(key, only)
            if value != only or isinstance(value, bool) != isinstance(only, bool):
                message = f"`{key}` can only be {json.dumps(only)} here"
                raise BadRequest(message, code=ErrorCode.UNSUPPORTED_VALUE, field=key)

    def whole(self, key: str, default: int, least: int, most: int = 1 << 62) -> int:
        """A whole number."""
        value = self._values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            bound = f"{least} or more" if most == 1 << 62 else f"from {least} to {most}"
            raise BadRequest(f"`{key}` must be a whole number, {bound}", field=key)
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A number within bounds; NaN is in none."""
        value = self._values.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, int | float) or not is_number or not least <= value <= most:
            raise BadRequest(f"`{key}` must be a number from {least:g} to {most:g}", field=key)
        return float(value)

    def flag(self, key: str, *, default: bool = False) -> bool:
        """A truth value."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            raise BadRequest(f"`{key}` must be true or false", field=key)
        return value

    def part(self, key: str) -> Fields:
        """An object; empty if it is left out."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            raise BadRequest(f"`{key}` must be an object", field=key)
        return Fields(value)

    def items(self) -> list[tuple[str, object]]:
        """All keys and values."""
        return list(self._values.items())


def read_fields(body: bytes) -> Fields:
    """The fields of a body."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequest("the body is no JSON", code=ErrorCode.INVALID_REQUEST) from None
    if not isinstance(value, dict):
        raise BadRequest("the body must be an object", code=ErrorCode.INVALID_REQUEST)
    return Fields(value)


def read_tokens_field(given: object, field: str) -> tuple[int, ...]:
    """Token ids."""
    if not isinstance(given, list) or not all(is_whole(token) for token in given):
        wanted = "texts or token ids" if field == "prompt" else "a list of token ids"
        raise BadRequest(f"`{field}` must be {wanted}", field=field)
    return tuple(cast("list[int]", given))


def shown(text: str) -> str:
    """The beginning of a client's text, without lone surrogates."""
    return text[:_SHOWN].encode(errors="replace").decode()


def is_text(value: object) -> bool:
    """Whether a value is text that can be encoded: JSON can contain lone surrogates."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_whole(value: object) -> bool:
    """Whether a value is a whole number, and no truth value."""
    return isinstance(value, int) and not isinstance(value, bool)
