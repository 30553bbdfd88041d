"""The values of a plan file with their own syntax (byte ranges, operations), and faults.

In: text of tokens of `grammars/tsp.lark`, and its offset. Out: records. A short text may stand for
many ranges (`0:1+2*1000000`), so their number over a whole file is limited. A fault, from Lark or
in a value, becomes a diagnostic with its line (TSR3020).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from lark import UnexpectedInput, UnexpectedToken

from tessera.diagnostics import Diagnostic, Source, Span, error
from tessera.ir.arguments import wrong_type
from tessera.ir.plan.launch_program import (
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceEventId,
    Fill,
    Free,
    LandingId,
    Operation,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    TransferId,
)
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_launch import NO_BYTES, PORTION_END
from tessera.ir.plan.print_plan import FORMAT, VERSION
from tessera.ir.plan.verify_plan import LARGEST, MOST_RANGES
from tessera.ir.program.program import BufferId, LaunchId

DIGITS = len(str(LARGEST))
"""The most digits of a number."""

STRING = r'"(?:[^"\\\n]|\\[^\n])*+"'
"""A string in quotes."""

_STRINGS = re.compile(STRING)
_QUEUES = {queue.value: queue for queue in Queue}
_ITEM = re.compile(r"([0-9]+):([0-9]+)((?:\+[0-9]+\*[0-9]+)*)")
_DIMENSION = re.compile(r"\+([0-9]+)\*([0-9]+)")
_OPERATION = re.compile(
    r"(?P<queue>[a-z]+)\s+(?P<verb>[a-z]+)\s+"
    r"(?:(?P<number>[0-9]+)(?:\s+landing=(?P<landing>[0-9]+))?|buffer=(?P<buffer>[0-9]+)(?:\s+bytes=(?P<bytes>\S+))?)"
)
_NUMBERED: dict[str, Callable[[int], Operation]] = {
    "launch": lambda number: Run(LaunchId(number)),
    "send": lambda number: Send(TransferId(number)),
    "recv": lambda number: Receive(TransferId(number)),
    "record": lambda number: Record(DeviceEventId(number)),
    "wait": lambda number: Await(DeviceEventId(number)),
    "credit": lambda number: Credit(LandingId(number)),
}
_LANDED: dict[str, type[Put | AwaitPut]] = {"put": Put, "wait": AwaitPut}


class BadText(Exception):
    """Characters of a plan that are at fault, and why."""

    def __init__(self, start: int, length: int, why: str) -> None:
        super().__init__(why)
        self.start = start
        self.length = max(length, 1)


class TextField(NamedTuple):
    """`key=value` as written in the text, and its place."""

    name: str
    value: str
    start: int

    def bad(self, why: str) -> BadText:
        """The value cannot be, and why."""
        return BadText(self.start, len(self.name) + 1 + len(self.value), why)


def strings_of(field: TextField) -> tuple[str, ...]:
    """The strings of a value, as JSON writes them."""
    if field.value[0] != '"':
        raise field.bad(f"`{field.name}` is a list of names in quotes")
    try:
        return tuple(
            str(json.loads(text, strict=False)) if "\\" in text else text[1:-1]
            for text in _STRINGS.findall(field.value)
        )
    except ValueError:
        raise field.bad("this is no string as JSON writes them") from None


def area_kind_of(field: TextField, text: str) -> AreaKind:
    """The kind of an area by its name."""
    try:
        return AreaKind(text)
    except ValueError:
        known = ", ".join(f"`{kind.value}`" for kind in AreaKind)
        raise field.bad(f"`{text}` is not one of {known}") from None


@dataclass(frozen=True, slots=True)
class TransferLine:
    """The fields of a transfer as they are written: its buffers, and the bytes of each."""

    buffer: tuple[int, ...]
    source: str
    target: str
    bytes: tuple[Bytes, ...]


class RangeReader:
    """Expands byte ranges, up to a total number."""

    def __init__(self) -> None:
        self._left = MOST_RANGES

    def read(self, text: str, start: int) -> Bytes:
        """The ranges in `text`, which is at offset `start`."""
        if text == NO_BYTES:
            return ()
        ranges: list[tuple[int, int]] = []
        for item in text.split(","):
            match = _ITEM.fullmatch(item)
            if match is None or len(max(re.findall(r"[0-9]+", item), key=len)) > DIGITS:
                raise BadText(start, len(text), f"`{item[:40]}` is no byte range")
            many = BadText(start, len(text), f"a plan has at most {MOST_RANGES} byte ranges")
            ranges += self._expand(int(match[1]), int(match[2]), match[3], many)
        return tuple(ranges)

    def read_portions(self, text: str, start: int) -> tuple[Bytes, ...]:
        """The ranges of several buffers in `text`, which is at offset `start`."""
        portions = []
        for portion in text.split(PORTION_END):
            portions.append(self.read(portion, start))
            start += len(portion) + 1
        return tuple(portions)

    def _expand(self, start: int, end: int, rest: str, many: BadText) -> list[tuple[int, int]]:
        ranges = [(start, end)]
        for dimension in _DIMENSION.finditer(rest):
            stride, count = int(dimension[1]), int(dimension[2])
            if count * len(ranges) > self._left:
                raise many
            ranges = [(s + at * stride, e + at * stride) for at in range(count) for s, e in ranges]
        self._left -= len(ranges)
        if self._left < 0:
            raise many
        return ranges


def operations_of(block: str, first: int, ranges: RangeReader) -> Iterator[tuple[int, int, Queued]]:
    """The operations in the lines of a program at offset `first`, each with its place."""
    for match in _OPERATION.finditer(block):
        start, end = first + match.start(), first + match.end()
        yield start, end, _operation(match, start, ranges)


def _operation(match: re.Match[str], start: int, ranges: RangeReader) -> Queued:
    text = match[0]
    queue = _QUEUES.get(match["queue"])
    if queue is None:
        raise BadText(start, len(text), "a program's line begins with `compute`, `in` or `out`")
    number, buffer, filled, verb = match["number"], match["buffer"], match["bytes"], match["verb"]
    landing = match["landing"]
    if max(len(number or buffer), len(landing or "")) > DIGITS:
        raise BadText(start, len(text), "the number is too large")
    if verb in _LANDED and landing is not None:
        return Queued(queue, _LANDED[verb](TransferId(int(number)), LandingId(int(landing))))
    if landing is None and verb in _NUMBERED and number is not None:
        return Queued(queue, _NUMBERED[verb](int(number)))
    if verb == "free" and buffer is not None and filled is None:
        return Queued(queue, Free(BufferId(int(buffer))))
    if verb == "fill" and filled is not None:
        at = start + match.start("bytes") - match.start()
        return Queued(queue, Fill(BufferId(int(buffer)), ranges.read(filled, at)))
    raise BadText(start, len(text), f"`{text}` is no operation")


def unexpected(source: Source, fault: UnexpectedInput) -> Diagnostic:
    """A diagnostic for text that the grammar does not accept, with the expected tokens."""
    text = source.text
    at = len(text.rstrip()) if _at_end(fault) else int(fault.pos_in_stream or 0)
    start, end = at, at
    while start > 0 and text[start - 1].isidentifier():
        start -= 1
    while end < len(text) and end < at + 40 and not text[end].isspace():
        end += 1
    span = Span(source, min(start, max(len(text) - 1, 0)), max(end, start + 1))
    if start == 0:
        headline = f"this is no plan: the first line must be `{FORMAT} {VERSION}`"
    elif _at_end(fault):
        headline = "the plan ends too early"
    else:
        headline = f"`{text[start:end]}` cannot stand here"
    return error("TSR3020", headline, span, _expected(fault))


def _at_end(fault: UnexpectedInput) -> bool:
    return isinstance(fault, UnexpectedToken) and fault.token.type == "$END"


def _expected(fault: UnexpectedInput) -> str:
    names = set(getattr(fault, "accepts", None) or getattr(fault, "allowed", None) or ())
    words = sorted(f"`{name.lower()}`" for name in names if name in _KEYWORDS)
    words += [said for name, said in _SAID.items() if name in names]
    return f"expected {' or '.join(words)}" if words else ""


_KEYWORDS = {
    "PLAN",
    "CARD",
    "DEVICE",
    "CAPACITY",
    "PATH",
    "BASELINE",
    "REPLICA",
    "PLACEMENT",
    "STEP",
    "MOVE",
    "AREA",
    "PLACE",
    "HOME",
    "REQUEST",
    "TRANSFER",
    "PROGRAM",
    "TRACE",
    "CUT",
    "TWIN",
}
_SAID = {
    "FIELDS": "`key=value`",
    "INT": "a number",
    "OPERATIONS": "an operation",
    "TEXT": "the lines of a trace",
}


def bad_text(source: Source, fault: BadText) -> Diagnostic:
    """A diagnostic for an impossible value or record."""
    return error("TSR3020", str(fault), Span(source, fault.start, fault.start + fault.length))


def check_plan_given(plan: object) -> None:
    """Refuse an argument that is neither a plan nor a path."""
    if not isinstance(plan, str | os.PathLike | Plan):
        hint = " (the `plan` of a report is one)" if hasattr(plan, "plan") else ""
        raise wrong_type("plan", plan, f"a path or a `Plan`{hint}")
