"""Sequences were called lanes: options and arguments of the old name go on working.

A sequence is a series of requests that share states. Files and JSON keep the word `lane`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, TypeVar

from tessera.driver.options import WrongOption

_Record = TypeVar("_Record")


class Absent(enum.Enum):
    """Stands for an argument that is not given, where None is not the same."""

    ABSENT = enum.auto()


ABSENT = Absent.ABSENT


def both_given(new: str, old: str) -> str:
    """What to say where both spellings are there."""
    return f"`{old}` is the old name of `{new}`: give one of them"


def lanes_are_sequences(record: type[_Record]) -> type[_Record]:
    """A record of options with `sequences`, which also takes and has `lanes`."""
    build: Callable[..., None] = record.__init__
    every = {part.name for part in fields(record)}  # type: ignore[arg-type]

    @wraps(build)
    def __init__(self: _Record, *arguments: Any, **named: Any) -> None:
        if "lanes" in named:
            # `dataclasses.replace` hands over every field: there the old name is what changes.
            if "sequences" in named and not every <= named.keys():
                raise WrongOption("{lanes} is the old name of {sequences}: give one of them")
            named["sequences"] = named.pop("lanes")
        build(self, *arguments, **named)

    type.__setattr__(record, "__init__", __init__)
    type.__setattr__(record, "lanes", property(lambda options: options.sequences))
    return record
