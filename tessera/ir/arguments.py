"""Checks of the arguments that a program passes to the library.

In: arguments by name. Out: nothing, or TSR5053 with the name, the value given and the type wanted.
Numbers of other libraries, such as NumPy, count as numbers. Strings and bools do not.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import SupportsFloat, SupportsIndex, cast

from tessera.diagnostics import TesseraError


def wrong_type(name: str, value: object, wanted: str) -> TesseraError:
    """The error for an argument of the wrong type."""
    kind = "None" if value is None else f"a {type(value).__name__}"
    shown = f": {value!r}" if isinstance(value, str | int | float) else ""
    return TesseraError.of("TSR5053", f"`{name}` must be {wanted}, not {kind}{shown:.80}")


def check_number(name: str, value: object) -> int:
    """Check that a value is an integer, and return it."""
    try:
        if isinstance(value, bool) or not isinstance(value, SupportsIndex):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "a whole number") from None


def check_counts(counts: Mapping[str, object], *, least: int, optional: bool = True) -> None:
    """Check that values are integers of at least `least`."""
    for name, given in counts.items():
        if given is None and optional:
            continue
        if check_number(name, given) < least:
            raise TesseraError.of("TSR5053", f"`{name}` must be {least} or more, not {given}")


def check_amounts(amounts: Mapping[str, object], *, optional: bool = True) -> None:
    """Check that values are finite numbers above zero."""
    for name, given in amounts.items():
        if given is None and optional:
            continue
        try:
            if isinstance(given, bool) or not isinstance(given, SupportsFloat | SupportsIndex):
                raise TypeError
            amount = float(given)
        except (TypeError, ValueError, OverflowError):
            raise wrong_type(name, given, "a number") from None
        if not (isfinite(amount) and amount > 0):
            raise TesseraError.of("TSR5053", f"`{name}` must be above 0, not {given}")


def check_texts(texts: Mapping[str, object], *, optional: bool = True) -> None:
    """Check that values are strings, or None if `optional`."""
    for name, given in texts.items():
        if not isinstance(given, str) and not (given is None and optional):
            raise wrong_type(name, given, "a text")


def check_flags(flags: Mapping[str, object]) -> None:
    """Check that values are bools: a string such as "no" would be true."""
    for name, given in flags.items():
        if not isinstance(given, bool):
            raise wrong_type(name, given, "True or False")


def check_paths(paths: Mapping[str, object]) -> None:
    """Check that values are paths, lists of paths, or None."""
    for name, given in paths.items():
        is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        for path in cast("Sequence[object]", given) if is_list else [given]:
            if path is not None and not isinstance(path, str | os.PathLike):
                raise wrong_type(name, path, "a path")


def check_targets(targets: object) -> None:
    """Check that the argument maps device names to targets."""
    if targets is None:
        return
    if not isinstance(targets, Mapping):
        raise wrong_type("targets", targets, "a mapping of devices to targets")
    for device, target in targets.items():
        for value in (device, target):
            if not isinstance(value, str):
                raise wrong_type("targets", value, "a mapping of texts to texts")
