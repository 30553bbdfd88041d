"""A simulation as events of a timeline, like those of a run.

In: a `SimulationReport` that kept the operations of every device. Out: `TimelineEvent`s, which
`driver.timeline` writes. A transfer is on the out queue of its source and on the in queue of its
target while its bytes are on their way, and waits there before that and for the latency of the
link; time that it takes of the devices themselves is on their compute queues.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tessera.backend.service import TimelineEvent
from tessera.driver.traces import read_planned
from tessera.driver.waiting import waits_of
from tessera.ir.plan.division import StepPart
from tessera.ir.plan.launch_program import HOST, Queue, Transfer
from tessera.ir.plan.plan import PlacedTrace, parts_of_placed
from tessera.ir.program.program import LaunchId, Program
from tessera.simulation.journal import Busy
from tessera.simulation.known_work import work_of
from tessera.simulation.report import SimulationReport
from tessera.simulation.work import WIRE, WorkNode


def timeline_events(
    report: SimulationReport, programs: Sequence[Program] = ()
) -> list[TimelineEvent]:
    """The events of every device; `programs` are the plan's, if they are read already."""
    by_request: dict[tuple[int, int, int], list[TimelineEvent]] = defaultdict(list)
    for busy, event in _Events(report, programs).make():
        by_request[busy.replica, busy.trace, busy.request].append(event)
    lowered = [{own.trace: own for own in replica.lowered.traces} for replica in report.replicas]
    return [
        event
        for (replica, trace, _), own in by_request.items()
        for event in (*own, *waits_of(own, lowered[replica][trace]))
    ]


class _Events:
    def __init__(self, report: SimulationReport, programs: Sequence[Program]) -> None:
        self._works = work_of(report.replicas, report.hardware)
        self._replicas, self._paths = report.replicas, report.hardware.paths
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

    def make(self) -> Iterator[tuple[Busy, TimelineEvent]]:
        for busy in self._timeline:
            work = self._works[busy.replica][busy.trace]
            node = work.nodes[busy.node]
            if busy.node >= len(work.nodes) - work.handed:
                yield from ((busy, event) for event in self._hand_over(busy, node))
            elif node.kind == WIRE:
                yield from ((busy, event) for event in self._wire(busy, node))
            else:
                yield busy, self._compute(busy, node)

    def _wire(self, busy: Busy, node: WorkNode) -> Iterator[TimelineEvent]:
        transfer = self._transfers[busy.replica][busy.trace][node.transfer]
        name = self._buffer(busy, transfer)
        late_ns = max(self._paths[transfer.source, transfer.target].latency_ns, node.delay_ns)
        ends = (
            (transfer.source, Queue.OUT, f"send {name} to {transfer.target}", node.delay_ns),
            (transfer.target, Queue.IN, f"receive {name} from {transfer.source}", late_ns),
        )
        for (device, queue, text, after_ns), (peer, *_) in zip(ends, reversed(ends), strict=True):
            if device == HOST:
                continue
            event = self._event(busy, device, queue, text, transfer=transfer, peer=peer)
            yield event
            if after_ns > 0 and peer != HOST:
                yield replace(
                    event,
                    name=f"wait for the link: {text}",
                    start_ns=event.end_ns,
                    end_ns=round(busy.end_ns + after_ns),
                    bytes=0,
                    is_wait=True,
                )

    def _hand_over(self, busy: Busy, node: WorkNode) -> Iterator[TimelineEvent]:
        """A hand-over that is on its way, or what it takes at one of its ends."""
        if node.kind != WIRE:
            yield self._event(busy, busy.place[0], Queue.COMPUTE, "start or end of a hand-over")
            return
        for own in self._replicas[busy.replica].hand_overs:
            path = self._paths[own.source, own.target]
            if own.trace == busy.trace and path.shares == node.place:
                size = round(own.part * own.bytes)
                for device, queue, peer in (
                    (own.source, Queue.OUT, own.target),
                    (own.target, Queue.IN, own.source),
                ):
                    event = self._event(busy, device, queue, "hand-over", peer=peer)
                    yield replace(event, bytes=size)
                return

    def _compute(self, busy: Busy, node: WorkNode) -> TimelineEvent:
        device = busy.place[0]
        if node.step >= 0:
            placed = self._placed(busy).steps[node.step]
            name = f"{placed.name}{self._parts(busy)[node.step].words(placed.arch)}"
            return self._event(busy, device, Queue.COMPUTE, name, step=LaunchId(node.step))
        if node.transfer < 0:
            return self._event(busy, device, Queue.COMPUTE, "fill")
        transfer = self._transfers[busy.replica][busy.trace][node.transfer]
        text = f"start or end of the transfer of {self._buffer(busy, transfer)}"
        return self._event(busy, device, Queue.COMPUTE, text, transfer=transfer)

    def _placed(self, busy: Busy) -> PlacedTrace:
        traces = self._replicas[busy.replica].traces
        return next(placed for placed in traces if placed.trace == busy.trace)

    def _parts(self, busy: Busy) -> Mapping[int, StepPart]:
        """What the steps of a trace are of the trace as it was read."""
        key = busy.replica, busy.trace
        if key not in self._known:
            planned = self._planned[busy.trace % len(self._planned)]
            placed = self._placed(busy)
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
        transfer: Transfer | None = None,
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
            bytes=0 if transfer is None or not peer else transfer.size,
            peer=peer,
            transfer=None if transfer is None else transfer.id,
        )
