"""The values of a plan file that have a syntax of their own: byte ranges and operations.

In: tokens of `grammars/tsp.lark`. Out: records. A short text may stand for many ranges
(`0:1+2*1000000`), so their number over a whole file is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from lark import Token

from tessera.ir.launch_program import (
    Await,
    Bytes,
    DeviceEventId,
    Fill,
    Free,
    Operation,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    TransferId,
)
from tessera.ir.launch_text import NO_BYTES
from tessera.ir.program import BufferId, LaunchId
from tessera.ir.verify_plan import LARGEST, MOST_RANGES

_DIGITS = len(str(LARGEST))
_ITEM = re.compile(r"([0-9]+):([0-9]+)((?:\+[0-9]+\*[0-9]+)*)")
_DIMENSION = re.compile(r"\+([0-9]+)\*([0-9]+)")
_OPERATION = re.compile(
    r"(?P<queue>[a-z]+)\s+(?P<verb>[a-z]+)\s+"
    r"(?:(?P<number>[0-9]+)|buffer=(?P<buffer>[0-9]+)(?:\s+bytes=(?P<bytes>\S+))?)"
)
_NUMBERED: dict[str, Callable[[int], Operation]] = {
    "launch": lambda number: Run(LaunchId(number)),
    "send": lambda number: Send(TransferId(number)),
    "recv": lambda number: Receive(TransferId(number)),
    "record": lambda number: Record(DeviceEventId(number)),
    "wait": lambda number: Await(DeviceEventId(number)),
}


class BadText(Exception):
    """A token that cannot stand as it is, and why."""

    def __init__(self, token: Token, why: str) -> None:
        super().__init__(why)
        self.token = token


class RangeReader:
    """Expands byte ranges, up to a number in all."""

    def __init__(self) -> None:
        self._left = MOST_RANGES

    def read(self, token: Token, text: str) -> Bytes:
        """The ranges in `text`, which is part of `token`."""
        if text == NO_BYTES:
            return ()
        found: list[tuple[int, int]] = []
        for item in text.split(","):
            match = _ITEM.fullmatch(item)
            if match is None or len(max(re.findall(r"[0-9]+", item), key=len)) > _DIGITS:
                raise BadText(token, f"`{item[:40]}` is no byte range")
            found += self._expand(token, int(match[1]), int(match[2]), match[3])
        return tuple(found)

    def _expand(self, token: Token, start: int, end: int, rest: str) -> list[tuple[int, int]]:
        found = [(start, end)]
        for dimension in _DIMENSION.finditer(rest):
            stride, count = int(dimension[1]), int(dimension[2])
            if count * len(found) > self._left:
                raise BadText(token, f"a plan has at most {MOST_RANGES} byte ranges")
            found = [(s + at * stride, e + at * stride) for at in range(count) for s, e in found]
        self._left -= len(found)
        if self._left < 0:
            raise BadText(token, f"a plan has at most {MOST_RANGES} byte ranges")
        return found


def operation_of(token: Token, ranges: RangeReader) -> Queued:
    """The operation in a line of a program."""
    match = _OPERATION.fullmatch(token)
    queue = next((one for one in Queue if match and one.value == match["queue"]), None)
    if match is None or queue is None:
        raise BadText(token, "a line of a program begins with `compute`, `in` or `out`")
    for value in (match["number"], match["buffer"]):
        if value is not None and len(value) > _DIGITS:
            raise BadText(token, "the number is too large")
    verb, filled = match["verb"], match["bytes"]
    if verb in _NUMBERED and match["number"] is not None:
        return Queued(queue, _NUMBERED[verb](int(match["number"])))
    if verb == "free" and match["buffer"] is not None and filled is None:
        return Queued(queue, Free(BufferId(int(match["buffer"]))))
    if verb == "fill" and filled is not None:
        return Queued(queue, Fill(BufferId(int(match["buffer"])), ranges.read(token, filled)))
    raise BadText(token, f"`{token}` is no operation")
