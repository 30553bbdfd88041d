"""The bytes that one effect of one instruction touches in one object, as they are collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tessera.ir.arrays import Ranges
from tessera.passes.byte_sets import intervals


class Key(NamedTuple):
    """An instruction, one of its effects, and the zone of the object."""

    at: int
    effect: int
    zone: int


@dataclass(slots=True)
class TouchedBytes:
    """Bytes of one object by one effect of one instruction; `whole`: maybe any byte of it."""

    may: list[Ranges] = field(default_factory=list)
    sure: list[Ranges] = field(default_factory=list)
    whole: int | None = None
    always: bool = True

    def compact(self) -> None:
        """Merge what was collected."""
        alike = len(self.may) == len(self.sure) and all(
            a is b for a, b in zip(self.may, self.sure, strict=True)
        )
        self.may = [intervals.union(self.may)]
        self.sure = self.may[:] if alike else [intervals.union(self.sure)]

    def add(self, other: TouchedBytes) -> None:
        """Bytes that were collected apart."""
        self.may += other.may
        self.sure += other.sure
        self.whole = other.whole if self.whole is None else self.whole
        self.always = self.always and other.always
        self.compact()
