"""The data flow between calls: the writer of each value that a call reads, and its readers.

In: the steps of a program of library calls. Out: `ValueFlow`. A value is a buffer and the call that
wrote it last (-1: none, it exists from the start); views of a buffer are one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.ir.program import program as ir

Value = tuple[int, int]
OUTSIDE = -1


class ValueFlow:
    """Values of calls, by their place in the program."""

    def __init__(self, calls: Sequence[ir.LibraryCall], buffers: Sequence[ir.Buffer]) -> None:
        self.calls = list(calls)
        self.buffers = buffers
        self.reads: list[list[Value]] = []
        self.readers: dict[Value, list[int]] = {}
        self.last: dict[int, int] = {}
        self.writers: dict[int, list[int]] = {}
        for at, call in enumerate(self.calls):
            values = [
                (o.pointer.buffer, self.last.get(o.pointer.buffer, OUTSIDE)) for o in call.reads
            ]
            self.reads.append([(int(b), w) for b, w in values])
            for value in dict.fromkeys(self.reads[at]):
                self.readers.setdefault(value, []).append(at)
            for operand in call.writes:
                self.last[int(operand.pointer.buffer)] = at
                self.writers.setdefault(int(operand.pointer.buffer), []).append(at)

    def written(self, at: int) -> list[Value]:
        """The values that a call writes."""
        return [(int(operand.pointer.buffer), at) for operand in self.calls[at].writes]

    def is_private(self, value: Value, group: Iterable[int]) -> bool:
        """Whether no call outside a group may read a value that the group wrote."""
        role = self.buffers[value[0]].role
        readers = self.readers.get(value, ())
        return role is ir.Role.TEMP and set(readers) <= set(group)

    def is_movable(self, group: Sequence[int], target: int) -> bool:
        """Whether all calls of a group can run at the place `target` of one of them."""
        members = set(group)
        for at in group:
            low, high = sorted((at, target))
            read, wrote = self._touched(at)
            for other in range(low, high + 1):
                if other in members:
                    continue
                also_read, also_wrote = self._touched(other)
                if also_wrote & (read | wrote) or also_read & wrote:
                    return False
        return True

    def _touched(self, at: int) -> tuple[set[int], set[int]]:
        call = self.calls[at]
        read = {int(operand.pointer.buffer) for operand in call.reads}
        return read, {int(operand.pointer.buffer) for operand in call.writes}


def between(flow: ValueFlow, first: int, second: int) -> set[int]:
    """The calls on any way from one call to another, with both."""
    after = {first}
    for at in range(first + 1, second + 1):
        if any(writer in after for _, writer in flow.reads[at]):
            after.add(at)
    before = {second}
    for at in range(second, first - 1, -1):
        if at in before:
            before |= {writer for _, writer in flow.reads[at] if writer != OUTSIDE}
    return (after & before) | {first, second}
