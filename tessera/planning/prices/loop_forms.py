"""The number of further rounds of a loop on the same path: closed forms in place of steps.

In: two windows of a thread's log (one or a few rounds of a loop each) with the same steps and the
same guards. Out: after how many further windows something may change. In a window every value is
`first + t * rise`: that is shown for each instruction from its operands, by induction over the
windows, and holds until a value would leave the half of its range that it is in, or a comparison
turns; then the thread is walked step by step again. Instructions that keep no straight line (a
division whose step is not a multiple, a product of two counters) give 0: no form is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

FOREVER = 1 << 62

Operands = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class LineRule:
    """The properties of an instruction that a form needs: kind, bits, sign and comparison."""

    kind: str
    bits: int = 32
    result_bits: int = 32
    signed: bool = False
    compare: str = ""


class LogEntry(NamedTuple):
    """One entry of a thread's log: a step, its guard's value, its operands and its result."""

    step: int
    guard: int | None
    read: Operands
    made: int | None
    rule: LineRule | None = None


def more_windows(
    before: Sequence[LogEntry], now: Sequence[LogEntry], skipped: frozenset[int]
) -> int:
    """How many windows follow `now` on its path; `skipped`: steps of loops jumped over inside."""
    if len(before) != len(now):
        return 0
    least = FOREVER
    for old, new in zip(before, now, strict=True):
        if old.step != new.step or old.guard != new.guard or new.guard == -1:
            return 0
        if old.read == new.read and old.made == new.made:
            continue
        least = min(least, _holds(old, new, new.step in skipped))
        if least <= 0:
            return 0
    return least


def _holds(old: LogEntry, new: LogEntry, inside: bool) -> int:
    """Number of windows for which the straight line of one instruction continues."""
    rule = new.rule
    rises = _rises(old, new)
    if rule is None or rises is None:
        return 0
    *by, out = rises
    read = [value or 0 for value in new.read]
    if any(value is None for value in new.read) and any(by):
        return FOREVER if new.made is None and old.made is None else 0
    least = min((room(v, d, rule.bits) for v, d in zip(read, by, strict=True)), default=FOREVER)
    if new.made is not None and rule.kind != "compare":
        least = min(least, room(new.made, out, rule.result_bits))
    form = _FORMS.get(rule.kind)
    if form is None:
        return 0
    if rule.kind == "compare" and inside and rule.compare in ("eq", "ne"):
        return 0
    return min(least, form(rule, read, by, new.made or 0))


def _rises(old: LogEntry, new: LogEntry) -> list[int] | None:
    """The increase of each operand and of the result; None if known and unknown values mix."""
    rises = []
    for a, b in zip((*old.read, old.made), (*new.read, new.made), strict=True):
        if (a is None) != (b is None):
            return None
        rises.append(0 if a is None or b is None else b - a)
    return rises


def room(value: int, rise: int, bits: int) -> int:
    """Number of increments before a value leaves its half of the range."""
    if rise == 0:
        return FOREVER
    if value >> bits:
        bits = 64
    half = 1 << (bits - 1)
    low = half if value >= half else 0
    return (low + half - 1 - value) // rise if rise > 0 else (value - low) // -rise


def _line(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    return FOREVER


def _chosen(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    return 0 if by[2] else FOREVER


def _product(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    return 0 if by[0] and by[1] else FOREVER


def _shifted_left(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    return 0 if by[1] else FOREVER


def _shifted_right(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    return FOREVER if not by[1] and read[1] < 64 and by[0] % (1 << read[1]) == 0 else 0


def _divided(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    divisor = read[1]
    small = read[0] < 1 << (rule.bits - 1) and 0 < divisor < 1 << (rule.bits - 1)
    return FOREVER if not by[1] and small and by[0] % divisor == 0 else 0


def _masked(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    """A mask is linear if the step never changes the bits it keeps, or the low bits it drops."""
    for value, mask in ((0, 1), (1, 0)):
        if by[mask]:
            continue
        kept = read[mask] & ((1 << rule.bits) - 1)
        if by[value] % (1 << kept.bit_length()) == 0:
            return FOREVER
        dropped = ~kept & ((1 << rule.bits) - 1)
        low = dropped + 1
        if dropped & low == 0 and by[value] % low == 0:
            return FOREVER
    return 0


def _joined(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    """`or` and `xor` with bits that the other side never has are sums."""
    for value, other in ((0, 1), (1, 0)):
        high = 1 << (read[other] & ((1 << rule.bits) - 1)).bit_length()
        if not by[other] and read[value] % high == 0 and by[value] % high == 0:
            return FOREVER
    return 0


def _ordered(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    compare = "lt" if signed(read[0], rule) < signed(read[1], rule) else "ge"
    return turns(signed(read[0], rule) - signed(read[1], rule), by[0] - by[1], compare)


def _compared(rule: LineRule, read: list[int], by: list[int], made: int) -> int:
    if any(by[2:]):
        return 0
    return turns(signed(read[0], rule) - signed(read[1], rule), by[0] - by[1], rule.compare)


_FORMS: dict[str, Callable[[LineRule, list[int], list[int], int], int]] = {
    "line": _line,
    "choice": _chosen,
    "product": _product,
    "left": _shifted_left,
    "right": _shifted_right,
    "divide": _divided,
    "mask": _masked,
    "join": _joined,
    "order": _ordered,
    "compare": _compared,
}


def signed(value: int, rule: LineRule) -> int:
    """The number that bits represent for an instruction."""
    value &= (1 << rule.bits) - 1
    return value - (1 << rule.bits) if rule.signed and value >> (rule.bits - 1) else value


def turns(distance: int, rise: int, compare: str) -> int:
    """Number of increments of `distance` (left less right) before a comparison with 0 turns."""
    if rise == 0:
        return FOREVER
    if compare in ("eq", "ne"):
        if distance == 0:
            return 0
        rounds, rest = divmod(-distance, rise)
        return rounds - 1 if rest == 0 and rounds > 0 else FOREVER
    if compare in ("gt", "ge"):
        distance, rise = -distance, -rise
    if compare in ("le", "ge"):
        distance -= 1
    if distance < 0:
        return FOREVER if rise < 0 else (-distance - 1) // rise
    return FOREVER if rise > 0 else distance // -rise
