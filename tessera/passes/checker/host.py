"""What the host has of the outputs when a request ends.

In: the transfers to the host, with the versions that they carry. Out: findings.

A send may end before its bytes arrive, so two sends of one byte arrive in no certain order: each
byte of an output goes to the host once, in its last version. What no step writes is there already.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tessera.ir.program.program import Role
from tessera.passes.checker.bytes import Array, marked, places, text
from tessera.passes.checker.expected import FIRST, ExpectedVersions, Versions
from tessera.passes.checker.findings import Findings, Op
from tessera.passes.checker.shape import TraceShape
from tessera.passes.checker.space import POISON_VERSION
from tessera.passes.checker.waste import report_excess

_NOT_SENT = -2


class Host:
    """Per output and atom the version that was sent."""

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
        """Bytes are sent to the host."""
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
            report_excess(self.shape, op, untouched, "that no step writes", self.findings)

    def finish(self) -> None:
        """All that steps wrote has been sent."""
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
