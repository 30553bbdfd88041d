"""What a program hands to the library, held against what it takes.

In: arguments by name. Out: nothing, or TSR5053 with the name, what was given and what is wanted.
Numbers of other libraries (NumPy's) are numbers; texts and truth values are none.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from tessera.diagnostics import TesseraError, error
from tessera.ir.plan.plan import Plan


def wrong_type(name: str, value: object, wanted: str) -> TesseraError:
    """An argument that is something else than it has to be."""
    kind = "None" if value is None else f"a {type(value).__name__}"
    shown = f": {value!r}" if isinstance(value, str | int | float) else ""
    return TesseraError(error("TSR5053", f"`{name}` must be {wanted}, not {kind}{shown:.80}"))


def check_number(name: str, value: Any) -> int:
    """A whole number."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise wrong_type(name, value, "a whole number") from None


def check_counts(counts: Mapping[str, Any], *, least: int, optional: bool = True) -> None:
    """Whole numbers that are not too small."""
    for name, given in counts.items():
        if given is None and optional:
            continue
        if check_number(name, given) < least:
            raise TesseraError(error("TSR5053", f"`{name}` must be {least} or more, not {given}"))


def check_amounts(amounts: Mapping[str, Any], *, optional: bool = True) -> None:
    """Finite numbers above zero."""
    for name, given in amounts.items():
        if given is None and optional:
            continue
        try:
            if isinstance(given, str | bytes | bool):
                raise TypeError
            amount = float(given)
        except (TypeError, ValueError, OverflowError):
            raise wrong_type(name, given, "a number") from None
        if not (isfinite(amount) and amount > 0):
            raise TesseraError(error("TSR5053", f"`{name}` must be above 0, not {given}"))


def check_texts(texts: Mapping[str, Any], *, optional: bool = True) -> None:
    """Texts, or nothing."""
    for name, given in texts.items():
        if not isinstance(given, str) and not (given is None and optional):
            raise wrong_type(name, given, "a text")


def check_flags(flags: Mapping[str, Any]) -> None:
    """Truth values: a text such as "no" would be a true one."""
    for name, given in flags.items():
        if not isinstance(given, bool):
            raise wrong_type(name, given, "True or False")


def check_paths(paths: Mapping[str, Any]) -> None:
    """Paths, lists of paths, or nothing."""
    for name, given in paths.items():
        listed = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        for path in given if listed else [given]:
            if path is not None and not isinstance(path, str | os.PathLike):
                raise wrong_type(name, path, "a path")


def check_targets(targets: Any) -> None:
    """What stands for devices, by name."""
    if targets is not None and not isinstance(targets, Mapping):
        raise wrong_type("targets", targets, "a mapping of devices to targets")
    for device, target in (targets or {}).items():
        for value in (device, target):
            if not isinstance(value, str):
                raise wrong_type("targets", value, "a mapping of texts to texts")


def check_plan_given(plan: Any) -> None:
    """A plan or the path of one."""
    if not isinstance(plan, str | os.PathLike | Plan):
        hint = " (the `plan` of a report is one)" if hasattr(plan, "plan") else ""
        raise wrong_type("plan", plan, f"a path or a `Plan`{hint}")
