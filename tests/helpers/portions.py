"""Transfers in tests: of one portion, and with other portions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import Bytes, Portion, Transfer, TransferId
from tessera.ir.program.program import BufferId


def one_portion(number: int, buffer: int, source: str, target: str, found: Bytes) -> Transfer:
    """A transfer of bytes of one buffer."""
    portions = (Portion(BufferId(buffer), found),)
    return Transfer(id=TransferId(number), source=source, target=target, portions=portions)


def with_portion(transfer: Transfer, at: int, *put: Portion) -> Transfer:
    """The transfer with others in place of one of its portions."""
    rows = transfer.portions
    return replace(transfer, portions=(*rows[:at], *put, *rows[at + 1 :]))


def cut_portions(
    portions: Sequence[Portion], at: int
) -> tuple[tuple[Portion, ...], tuple[Portion, ...]]:
    """The bytes before and after the first `at` of them."""
    before: list[Portion] = []
    after: list[Portion] = []
    for portion in portions:
        for made, found in zip((before, after), cut(portion.bytes, at), strict=True):
            if found:
                made.append(Portion(portion.buffer, found))
        at -= portion.size
    return tuple(before), tuple(after)


def cut(found: Bytes, at: int) -> tuple[Bytes, Bytes]:
    """The bytes before and after the first `at` of them."""
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    for start, end in found:
        middle = min(end, start + max(0, at))
        at -= end - start
        if start < middle:
            before.append((start, middle))
        if middle < end:
            after.append((middle, end))
    return tuple(before), tuple(after)


def merged(found: Sequence[tuple[int, int]]) -> Bytes:
    """Ranges in order, those that touch as one."""
    made: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if made and start <= made[-1][1]:
            made[-1] = (made[-1][0], max(made[-1][1], end))
        else:
            made.append((start, end))
    return tuple(made)
