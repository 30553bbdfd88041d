"""A simulation as events of a timeline, like those of a run.

In: a `SimulationReport` that kept the operations of every device. Out: `TimelineEvent`s, which
`driver.timeline` writes. A transfer is on the out queue of its source and on the in queue of its
target while its bytes are on their way; time that it takes of the devices themselves is on their
compute queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.backend.service import TimelineEvent
from tessera.driver.traces import read_planned
from tessera.ir.plan.division import StepPart
from tessera.ir.plan.launch_program import HOST, Queue, Transfer
from tessera.ir.plan.plan import parts_of_placed
from tessera.ir.program.program import LaunchId, Program
from tessera.simulation.journal import Busy
from tessera.simulation.known_work import work_of
from tessera.simulation.report import SimulationReport
from tessera.simulation.work import WIRE, WorkNode


def timeline_events(
    report: SimulationReport, programs: Sequence[Program] = ()
) -> list[TimelineEvent]:
    """The events of every device; `programs` are the plan's, if they are read already."""
    return list(_Events(report, programs).make())


class _Events:
    def __init__(self, report: SimulationReport, programs: Sequence[Program]) -> None:
        self._works = work_of(report.replicas, report.hardware)
        self._replicas = report.replicas
        self._timeline = (report.served or report.full).traffic.timeline
        self._planned = report.plan.traces
        self._known: dict[tuple[int, int], Mapping[int, StepPart]] = {}
        self._programs = programs or [
            read_planned(trace, report.name)[0] for trace in report.plan.traces
        ]
        self._transfers: list[Mapping[int, Mapping[int, Transfer]]] = [
            {own.trace: {t.id: t for t in own.transfers} for own in replica.lowered.traces}
            for replica in report.replicas
        ]

    def make(self) -> Iterator[TimelineEvent]:
        for busy in self._timeline:
            node = self._works[busy.replica][busy.trace].nodes[busy.node]
            if node.kind == WIRE:
                yield from self._wire(busy, node)
            else:
                yield self._compute(busy, node)

    def _wire(self, busy: Busy, node: WorkNode) -> Iterator[TimelineEvent]:
        transfer = self._transfers[busy.replica][busy.trace][node.transfer]
        name = self._buffer(busy, transfer)
        if transfer.source != HOST:
            text = f"send {name} to {transfer.target}"
            yield self._event(
                busy, transfer.source, Queue.OUT, text, bytes=transfer.size, peer=transfer.target
            )
        if transfer.target != HOST:
            text = f"receive {name} from {transfer.source}"
            yield self._event(
                busy, transfer.target, Queue.IN, text, bytes=transfer.size, peer=transfer.source
            )

    def _compute(self, busy: Busy, node: WorkNode) -> TimelineEvent:
        device = busy.place[0]
        if node.step >= 0:
            placed = self._replicas[busy.replica].traces[busy.trace].steps[node.step]
            name = f"{placed.name}{self._parts(busy)[node.step].words(placed.arch)}"
            return self._event(busy, device, Queue.COMPUTE, name, step=LaunchId(node.step))
        if node.transfer < 0:
            return self._event(busy, device, Queue.COMPUTE, "fill")
        transfer = self._transfers[busy.replica][busy.trace][node.transfer]
        text = f"start or end of the transfer of {self._buffer(busy, transfer)}"
        return self._event(busy, device, Queue.COMPUTE, text)

    def _parts(self, busy: Busy) -> Mapping[int, StepPart]:
        """What the steps of a trace are of the trace as it was read."""
        key = busy.replica, busy.trace
        if key not in self._known:
            planned = self._planned[busy.trace % len(self._planned)]
            placed = self._replicas[busy.replica].traces[busy.trace]
            self._known[key] = parts_of_placed(placed, planned.division)
        return self._known[key]

    def _buffer(self, busy: Busy, transfer: Transfer) -> str:
        known = dict(enumerate(buffer.name for buffer in self._programs[busy.trace].buffers))
        return transfer.names(lambda buffer: known.get(int(buffer), f"buffer {buffer}"))

    def _event(
        self,
        busy: Busy,
        device: str,
        queue: Queue,
        name: str,
        *,
        step: LaunchId | None = None,
        bytes: int = 0,
        peer: str = "",
    ) -> TimelineEvent:
        return TimelineEvent(
            device=device,
            queue=queue,
            slot=busy.slot,
            request=busy.request,
            name=name,
            start_ns=round(busy.start_ns),
            end_ns=round(busy.end_ns),
            step=step,
            bytes=bytes,
            peer=peer,
        )
