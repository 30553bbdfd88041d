"""Whether transfers carry what is needed, and little else.

In: the bytes that operations receive, use and overwrite. Out: findings.

A received byte is *fresh* until something uses it: a step that needs it, a send that passes it on,
the end of a request that finds it at home. If it is overwritten or the request ends before, nobody
needed it. A transfer may fill gaps between bytes that are needed, so that it is faster to copy (the
walk has proved that this does no harm); it does not begin before the first nor end after the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tessera.ir.launch_program import Queue, Receive
from tessera.passes.check_plan_bytes import Array, Index, join, marked, minus, ranges_of, text
from tessera.passes.check_plan_findings import Findings, Op
from tessera.passes.check_plan_shape import Shape
from tessera.passes.check_plan_space import Space

_USED = -1


@dataclass(slots=True)
class Waste:
    """One device: per atom the receive (its position on the in queue) that nothing has used."""

    device: str
    shape: Shape
    space: Space
    fresh: npt.NDArray[np.int32]
    lost: dict[int, list[Array]] = field(default_factory=dict)

    def use(self, index: Index) -> None:
        """Something needs these bytes."""
        self.fresh[index] = _USED

    def overwrite(self, index: Index, by: Op) -> None:
        """The bytes get new contents; what was fresh was for nothing."""
        self._drop(index)
        self.fresh[index] = by.position if isinstance(by.operation, Receive) else _USED

    def _drop(self, index: Index) -> None:
        here = self.fresh[index]
        if here.size == 0 or here.max() == _USED:
            return
        for position in np.unique(here[here > _USED]).tolist():
            found = marked(self.space.bounds, index, here == position)
            self.lost.setdefault(position, []).append(found)

    def finish(self, findings: Findings) -> None:
        """Report the transfers that reach further than anything needs."""
        self._drop(slice(0, len(self.fresh)))
        for position, parts in sorted(self.lost.items()):
            op = self.shape.queues[self.device, Queue.IN][position]
            assert isinstance(op.operation, Receive)
            transfer = self.shape.transfers[op.operation.transfer]
            lost = join(parts) - self.space.start[int(transfer.buffer)]
            check_reach(self.shape, op, ranges_of(transfer.bytes), lost, findings)


def check_reach(shape: Shape, op: Op, whole: Array, lost: Array, findings: Findings) -> None:
    """Whether the bytes that nobody needs lie between others that somebody does."""
    needed = minus(whole, lost)
    if len(needed):
        ends = ranges_of([(int(needed[0, 0]), int(needed[-1, 1]))])
        lost = minus(lost, ends)
    if len(lost):
        findings.add(
            "TSR4014",
            f"a transfer carries bytes {text(lost)} that nobody needs",
            shape.names.op(op),
        )


def find_waste(device: str, shape: Shape, space: Space) -> Waste:
    """Nothing is fresh when a request begins."""
    return Waste(device, shape, space, np.full(len(space.tags), _USED, dtype=np.int32))
