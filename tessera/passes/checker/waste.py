"""Checks that transfers carry the needed bytes and nothing else, and that outputs reach the host.

In: the bytes that operations receive, use and overwrite, and the transfers to the host with the
versions that they carry. Out: findings.

A received byte is *fresh* until it is used: by a step that needs it, by a send that passes it on,
or by the end of a request if the byte is at home. If it is overwritten while fresh, or still fresh
when the request ends, nothing needed it. A byte is also not needed if its place already has the
same version: a version goes to a device once. Transfers are exact, so an excess byte means that the
plan was damaged or edited.

A send may end before its bytes arrive, so the order in which two sends of one byte arrive is
unknown. Each byte of an output therefore goes to the host once, in its last version. The host
already has the bytes that no step writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import AwaitPut, Queue, Receive
from tessera.ir.program.program import Role
from tessera.passes.checker.bytes import (
    Array,
    Index,
    common,
    join,
    marked,
    places,
    ranges_of,
    text,
)
from tessera.passes.checker.expected import FIRST, ExpectedVersions, Versions
from tessera.passes.checker.findings import Findings, Op
from tessera.passes.checker.shape import TraceShape
from tessera.passes.checker.space import POISON_VERSION, Space

_USED = -1


@dataclass(slots=True)
class Waste:
    """One device: per atom the unused receive, as its position on the in queue.

    `lost` has the bytes of receives that nothing used; `known` has the bytes of receives whose
    version was already there.
    """

    device: str
    shape: TraceShape
    space: Space
    fresh: npt.NDArray[np.int32]
    lost: dict[int, list[Array]] = field(default_factory=dict)
    known: dict[int, list[Array]] = field(default_factory=dict)

    def use(self, index: Index) -> None:
        """Record that an operation needs these bytes."""
        self.fresh[index] = _USED

    def overwrite(self, index: Index, by: Op) -> None:
        """Record an overwrite of these bytes; those that were fresh are lost."""
        self._drop(index)
        self.fresh[index] = by.position if isinstance(by.operation, Receive | AwaitPut) else _USED

    def receive(self, index: Index, by: Op, same: npt.NDArray[np.bool_]) -> None:
        """Record the arrival of bytes; `same` marks those whose version is already there."""
        self.overwrite(index, by)
        if same.any():
            repeated = marked(self.space.bounds, index, same)
            self.known.setdefault(by.position, []).append(repeated)

    def _drop(self, index: Index) -> None:
        here = self.fresh[index]
        if here.size == 0 or here.max() == _USED:
            return
        for position in np.unique(here[here > _USED]).tolist():
            unread = marked(self.space.bounds, index, here == position)
            self.lost.setdefault(position, []).append(unread)

    def finish(self, findings: Findings) -> None:
        """Report the transfers that carry bytes that nothing needs."""
        self._drop(slice(0, len(self.fresh)))
        rows = ((self.known, f"that `{self.device}` has already"), (self.lost, "that nobody needs"))
        for parts, why in rows:
            for position, pieces in sorted(parts.items()):
                op = self.shape.queues[self.device, Queue.IN][position]
                assert isinstance(op.operation, Receive | AwaitPut)
                for portion in self.shape.transfers[op.operation.transfer].portions:
                    buffer = int(portion.buffer)
                    own = common(join(pieces), ranges_of([self.space.extent(buffer)]))
                    excess = own - self.space.start[buffer]
                    report_excess(self.shape, op, buffer, excess, why, findings)


def report_excess(
    shape: TraceShape, op: Op, buffer: int, excess: Array, why: str, findings: Findings
) -> None:
    """Report the bytes of a buffer that a transfer carries needlessly, if there are any."""
    if len(excess):
        what = f"a transfer carries bytes {text(excess)} of {shape.names.buffer(buffer)} {why}"
        findings.add("TSR4014", what, shape.names.op(op))


def find_waste(device: str, shape: TraceShape, space: Space) -> Waste:
    """The `Waste` of a device at the start of a request: nothing is fresh."""
    return Waste(device, shape, space, np.full(len(space.tags), _USED, dtype=np.int32))


_NOT_SENT = -2


class Host:
    """The version that was sent to the host, per output and atom."""

    def __init__(self, shape: TraceShape, expected: ExpectedVersions, findings: Findings) -> None:
        self.shape = shape
        self.names = shape.names
        self.expected = expected
        self.findings = findings
        self.sent = {
            int(held.id): np.full(len(expected.bounds[int(held.id)]) - 1, _NOT_SENT, dtype=np.int32)
            for held in shape.graph.buffers
            if held.role is Role.OUTPUT and held.bytes
        }

    def take(self, op: Op, buffer: int, ranges: Array, version: int | Versions) -> None:
        """Record bytes that are sent to the host."""
        before = self.findings.count
        lost = np.asarray(version) == POISON_VERSION
        bounds, final = self.expected.bounds[buffer], self.expected.final[buffer]
        index = places(bounds, ranges)
        again = self.sent[buffer][index] != _NOT_SENT
        if again.any():
            self.findings.add(
                "TSR4007",
                f"bytes {text(marked(bounds, index, again))} of {self.names.buffer(buffer)} go to "
                "the host twice, in no certain order",
                self.names.op(op),
            )
        stale = (final[index] != version) & ~lost
        if stale.any():
            self.findings.add(
                "TSR4007",
                f"the host gets bytes {text(marked(bounds, index, stale))} of "
                f"{self.names.buffer(buffer)} that are not the result",
                self.names.op(op),
                f"the result is {self._version(final[index], stale)}",
            )
        self.sent[buffer][index] = version
        if self.findings.count == before and not lost.any():
            untouched = marked(bounds, index, final[index] == FIRST)
            why = "that no step writes"
            report_excess(self.shape, op, buffer, untouched, why, self.findings)

    def finish(self) -> None:
        """Check that all output bytes that steps wrote have been sent."""
        for buffer, sent in self.sent.items():
            final = self.expected.final[buffer]
            missing = (sent == _NOT_SENT) & (final > FIRST)
            if missing.any():
                where = text(marked(self.expected.bounds[buffer], slice(0, len(sent)), missing))
                self.findings.add(
                    "TSR4007",
                    f"bytes {where} of the output {self.names.buffer(buffer)} never reach the host",
                    f"they are {self._version(final, missing)}",
                )

    def _version(self, versions: Versions, mask: npt.NDArray[np.bool_]) -> str:
        return self.names.version(int(versions[int(np.flatnonzero(mask)[0])]))
