"""Tenancies: the buffer that holds each byte of a slot, and its first and last operation.

In: the operations of a request as the checker walks them. Out: findings.

Places in a slot may overlap; their tenancies may not. A buffer moves into its place on a device
with the first operation there that touches it, and moves out with its `free`, or when the request
ends. In between it holds all bytes of its place, touched or not. So a buffer moves in only after
the earlier tenants of the bytes have moved out; a `free` names a buffer that is in its place, once;
and nothing touches a buffer after its `free`. Moving in counts as a write of the whole place: all
operations of earlier tenants there are over. Another order may have another operation of the buffer
first, on another queue: so every operation of a buffer comes after those of earlier tenants,
whatever bytes it touches.

A backend may rely on this: it may hide, poison or reuse bytes without a tenant.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import AreaKind, Queue
from tessera.passes.checker.findings import Findings, Op
from tessera.passes.checker.memory import Memory
from tessera.passes.checker.order import Clock
from tessera.passes.checker.shape import TraceShape
from tessera.passes.checker.space import Space


class Tenants:
    """The buffers in the slots of all devices."""

    def __init__(
        self, shape: TraceShape, memory: Memory, spaces: Mapping[str, Space], findings: Findings
    ) -> None:
        self.shape = shape
        self.memory = memory
        self.spaces = spaces
        self.findings = findings
        self.names = shape.names
        self._since: dict[tuple[str, int], Op] = {}
        self._rows: dict[str, list[tuple[int, int, int]]] = {device: [] for device in spaces}
        self._freed: dict[tuple[str, int], Op] = {}
        self._longest = dict.fromkeys(spaces, 0)
        self._earlier: dict[tuple[str, int], Clock] = {}

    def is_freed(self, op: Op, buffer: int) -> bool:
        """Whether the place of a buffer is already freed; if so, report it."""
        free = self._freed.get((op.device, buffer))
        if free is not None:
            self.findings.add(
                "TSR4012",
                f"{self.names.buffer(buffer)} is used on `{op.device}` after its memory was freed",
                self.names.op(free),
                self.names.op(op),
            )
        return free is not None

    def move_in(self, op: Op, buffer: int) -> bool:
        """Whether a buffer moves into its place with this operation."""
        if (op.device, buffer) in self._since or not self._is_in_slot(op.device, buffer):
            return False
        space, rows = self.spaces[op.device], self._rows[op.device]
        start, end = space.extent(buffer)
        near = bisect_left(rows, (start - self._longest[op.device],))
        for first, last, other in rows[near : bisect_left(rows, (end,))]:
            since = self._since[op.device, other]
            if start < last and since is not op:
                self._report(op, buffer, other, (max(first, start), min(last, end)), since)
        self._longest[op.device] = max(self._longest[op.device], end - start)
        insort(rows, (start, end, buffer))
        self._since[op.device, buffer] = op
        return True

    def note_earlier(self, op: Op, buffer: int, *tables: npt.NDArray[np.int32]) -> None:
        """Note the last operations of earlier tenants, by queue, when a buffer moves in."""
        last = np.maximum.reduce([table.max(axis=1, initial=-1) for table in tables])
        self._earlier[op.device, buffer] = last

    def check_moved_in(self, op: Op, done: Clock, buffer: int) -> None:
        """Check that a later operation of a buffer cannot come before the place is its own."""
        last = self._earlier.get((op.device, buffer))
        if last is None or not (last >= done).any():
            return
        row = int(np.flatnonzero(last >= done)[0])
        other = self.shape.queues[op.device, tuple(Queue)[row]][int(last[row])]
        self.findings.add(
            "TSR4012",
            f"{self.names.buffer(buffer)} may be used on `{op.device}` before an earlier buffer of "
            "its place is gone",
            self.names.op(other),
            self.names.op(op),
            "nothing makes the second wait for the first",
        )

    def check_apart(self, op: Op, buffers: Sequence[int]) -> None:
        """Check that the buffers that one operation touches share no bytes."""
        space = self.spaces[op.device]
        reach, owner = -1, -1
        for start, end, buffer in sorted((*space.extent(b), b) for b in buffers):
            if start < reach:
                self.findings.add(
                    "TSR4005",
                    f"{self.names.buffer(owner)} and {self.names.buffer(buffer)} share memory on "
                    f"`{op.device}` while one operation uses both",
                    self.names.op(op),
                )
            if end > reach:
                reach, owner = end, buffer

    def _is_in_slot(self, device: str, buffer: int) -> bool:
        place = self.memory.place(self.shape.trace.trace, device, buffer)
        return place is not None and place.kind is AreaKind.SLOT

    def _report(self, op: Op, buffer: int, other: int, common: tuple[int, int], since: Op) -> None:
        at = self.spaces[op.device].start[buffer]
        self.findings.add(
            "TSR4012",
            f"{self.names.buffer(buffer)} takes bytes {common[0] - at}:{common[1] - at} of its "
            f"place on `{op.device}` before {self.names.buffer(other)} is freed there",
            self.names.op(since),
            self.names.op(op),
            "two buffers that are in a slot at the same time share no bytes",
        )

    def move_out(self, op: Op, buffer: int) -> None:
        """End a tenancy with a `free`."""
        self._freed[op.device, buffer] = op
        if self._since.pop((op.device, buffer), None) is None:
            self.findings.add(
                "TSR4012",
                f"{self.names.buffer(buffer)} is freed on `{op.device}`, where it is not",
                self.names.op(op),
                "only what is private to a request is freed, once something there has touched it",
            )
            return
        space = self.spaces[op.device]
        self._rows[op.device].remove((*space.extent(buffer), buffer))
