"""One request of a trace as work for the simulator: nodes, their times and their successors.

In: a `LoweredTrace`, the predicted time of each step, a `Hardware`. Out: a `RequestWork`. Queues
and events become edges: every queue does its operations in order, an event orders two queues of one
device, a transfer joins two devices. Events and frees take no time and are edges alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceProgram,
    Fill,
    Free,
    LoweredTrace,
    Put,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    meets_often,
)
from tessera.simulation.hardware import Hardware, Path
from tessera.simulation.host_calls import host_bytes, host_calls

NOTHING, COMPUTE, WIRE, WAIT = 0, 1, 2, 3
"""Kinds of nodes: no time, compute on a device, bytes that occupy a path, elapsed time."""


@dataclass(slots=True, kw_only=True)  # a frozen dataclass takes three times as long to construct
class WorkNode:
    """Work on one resource. `place` is a device, or the shares of a path; `after` lists its
    successors.

    `step` is the step of a launch, else -1; `transfer` is the transfer of bytes under way. `rate`
    is taken from each share; bytes that have left their path arrive `delay_ns` later. `ns` is the
    device time of compute; alone on the device it takes `alone_ns`, and `quiet_ns` while no other
    slice of the card computes.
    """

    kind: int
    ns: float
    place: tuple[str, ...]
    after: tuple[int, ...]
    before: int
    step: int = -1
    transfer: int = -1
    rate: float = 0.0
    delay_ns: float = 0.0
    alone_ns: float = 0.0
    quiet_ns: float = 0.0

    @property
    def least_ns(self) -> float:
        """The minimum time on its place."""
        return self.ns * self.quiet_ns / self.alone_ns if self.alone_ns > 0 else self.ns


StepTimes = tuple[float, float, float]
"""Times of a step in ns: on its device, alone there, and with no other slice busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestWork:
    """The nodes of one request; `gate` is the node after which the next request may begin.

    `operations` is the number of operations in the programs, including those without time.
    `host_ns` is the time of the host to hand the request over, which is also a node. `is_split`:
    the request has steps on several devices. The last `handed` nodes are hand-overs, which follow
    the end of the request.
    """

    nodes: tuple[WorkNode, ...]
    gate: int | None
    operations: int
    host_ns: float = 0.0
    is_split: bool = False
    handed: int = 0


def request_work(
    lowered: LoweredTrace, times: Sequence[StepTimes], hardware: Hardware, slots: int
) -> RequestWork:
    """The work of one request of a trace, of which `slots` are under way."""
    return _Builder(lowered, times, hardware, slots).build()


class _NewNode:
    """A `WorkNode` under construction."""

    __slots__ = (
        "after",
        "before",
        "delay_ns",
        "kind",
        "place",
        "rate",
        "step",
        "times",
        "transfer",
    )

    def __init__(self, kind: int, times: StepTimes, place: tuple[str, ...]) -> None:
        self.kind = kind if times[0] > 0 else NOTHING
        self.times = times
        self.place = place
        self.step = self.transfer = -1
        self.rate = self.delay_ns = 0.0
        self.before: set[int] = set()
        self.after: set[int] = set()


class _Builder:
    def __init__(
        self, lowered: LoweredTrace, times: Sequence[StepTimes], hardware: Hardware, slots: int
    ) -> None:
        self._lowered = lowered
        self._times = times
        self._hardware = hardware
        self._is_one_graph = hardware.is_one_card(lowered) and meets_often(lowered, slots)
        self._transfers: Mapping[int, Transfer] = {t.id: t for t in lowered.transfers}
        self._nodes: list[_NewNode] = []
        self._wires: dict[int, int] = {}
        self._arrivals: dict[int, int] = {}
        self._put = {
            queued.operation.transfer
            for program in lowered.programs
            for queued in program.operations
            if isinstance(queued.operation, Put)
        }
        # Per landing: the nodes where its puts begin, and its credits.
        self._landed: dict[int, list[tuple[int, Transfer]]] = {}
        self._credits: dict[int, list[int]] = {}
        self._gate: int | None = None

    def build(self) -> RequestWork:
        for transfer in self._lowered.transfers:
            self._add_wire(transfer)
        for program in self._lowered.programs:
            self._add_program(program)
        self._free_landings()
        operations = sum(len(program.operations) for program in self._lowered.programs)
        hardware, lowered = self._hardware, self._lowered
        host_ns = hardware.host_call_ns and (
            hardware.host_call_ns * host_calls(lowered, is_one_graph=self._is_one_graph)
            + hardware.host_byte_ns * host_bytes(lowered)
        )
        if host_ns:
            self._add(WAIT, host_ns, ())
        gone = self._drop_empty()
        numbers: dict[int, int] = {}
        for old in range(len(self._nodes)):
            if old not in gone:
                numbers[old] = len(numbers)
        return RequestWork(
            nodes=tuple(_finished(self._nodes[old], numbers) for old in numbers),
            gate=None if self._gate is None else numbers[self._gate],
            operations=operations,
            host_ns=host_ns,
            is_split=sum(map(_has_steps, lowered.programs)) > 1,
        )

    def _add_program(self, program: DeviceProgram) -> None:
        """Add nodes in program order, which is the order of service within one request."""
        last: dict[Queue, int | None] = dict.fromkeys(Queue)
        recorded: dict[int, int] = {}
        awaited: list[tuple[int, int]] = []
        for queued in program.operations:
            before = last[queued.queue]
            match queued.operation:
                case Record(event):
                    if before is not None:
                        recorded[event] = before
                    continue
                case Await(event):
                    node = self._chain(before, self._add(NOTHING, 0.0, ()))
                    awaited.append((event, node))
                case Run(step):
                    node = self._chain(before, self._add_step(step, (program.device,)))
                    if step == self._lowered.gate:
                        self._gate = node
                case Fill(_, filled):
                    ns = self._fill_ns(program.device, filled)
                    node = self._chain(before, self._add(COMPUTE, ns, (program.device,)))
                case Free():
                    continue
                case Send(number):
                    node = self._send(before, self._transfers[number])
                case Receive(number):
                    node = self._receive(before, self._transfers[number])
                case Put(number, landing):
                    begin = self._chain(before, self._add(NOTHING, 0.0, ()))
                    transfer = self._transfers[number]
                    self._landed.setdefault(landing, []).append((begin, transfer))
                    node = self._send(begin, transfer)
                case AwaitPut(number):
                    node = self._receive(before, self._transfers[number])
                case Credit(landing):
                    node = self._chain(before, self._add(NOTHING, 0.0, ()))
                    self._credits.setdefault(landing, []).append(node)
                case _:
                    assert_never(queued.operation)
            last[queued.queue] = node
        for awaited_event, waiter in awaited:
            if awaited_event in recorded:  # an event recorded before any work needs no edge
                self._edge(recorded[awaited_event], waiter)

    def _add(self, kind: int, ns: float, place: tuple[str, ...]) -> int:
        self._nodes.append(_NewNode(kind, (ns, ns, ns), place))
        return len(self._nodes) - 1

    def _add_step(self, step: int, place: tuple[str, ...]) -> int:
        node = _NewNode(COMPUTE, self._times[step], place)
        node.step = step
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _edge(self, first: int, second: int) -> None:
        self._nodes[first].after.add(second)
        self._nodes[second].before.add(first)

    def _chain(self, last: int | None, node: int) -> int:
        if last is not None:
            self._edge(last, node)
        return node

    def _fill_ns(self, device: str, filled: Bytes) -> float:
        size = sum(end - start for start, end in filled)
        return self._hardware.fill_ns + size * self._hardware.fill_ns_per_byte.get(device, 0.0)

    # --- transfers ------------------------------------------------------------------------------

    def _path(self, transfer: Transfer) -> Path:
        return self._hardware.paths[transfer.source, transfer.target]

    def _add_wire(self, transfer: Transfer) -> None:
        path = self._path(transfer)
        ns = transfer.size * 1e9 / path.bytes_per_second
        latency_ns = path.latency_ns
        if self._is_one_graph and HOST not in (transfer.source, transfer.target):
            latency_ns += 2 * path.end_ns(transfer.size)
        wire = self._add(WIRE, ns, path.shares)
        node = self._nodes[wire]
        node.transfer, node.rate = transfer.id, path.bytes_per_second
        self._wires[transfer.id] = self._arrivals[transfer.id] = wire
        if ns > 0 and not self._goes_on(transfer):  # no queue continues when bytes have only left
            node.delay_ns = latency_ns
        else:
            self._arrivals[transfer.id] = self._add(WAIT, latency_ns, ())
            self._edge(wire, self._arrivals[transfer.id])

    def _tax(self, last: int | None, transfer: Transfer, device: str) -> int | None:
        """Add the time that a transfer takes from the compute queue at one end.

        In one graph it takes as long as otherwise, but meanwhile others compute there.
        """
        ns = self._path(transfer).end_ns(transfer.size)
        if ns <= 0 or self._is_one_graph or HOST in (transfer.source, transfer.target):
            return last
        taxed = self._chain(last, self._add(COMPUTE, ns, (device,)))
        self._nodes[taxed].transfer = transfer.id
        return taxed

    def _send(self, last: int | None, transfer: Transfer) -> int:
        """The node after which the out queue continues: bytes have left, or have arrived."""
        wire = self._wires[transfer.id]
        taxed = self._tax(last, transfer, transfer.source)
        if taxed is not None:
            self._edge(taxed, wire)
        return wire if self._goes_on(transfer) else self._arrivals[transfer.id]

    def _goes_on(self, transfer: Transfer) -> bool:
        """Whether the out queue continues when the bytes have left, whatever the target does."""
        return self._hardware.buffered or transfer.id in self._put

    def _free_landings(self) -> None:
        """Add edges: a put begins when the credit of the previous put has come back."""
        for landing, puts in self._landed.items():
            for credit, (begin, transfer) in zip(
                self._credits.get(landing, ()), puts[1:], strict=False
            ):
                back = self._hardware.paths.get((transfer.target, transfer.source))
                way = self._add(WAIT, 0.0 if back is None else back.latency_ns, ())
                self._edge(credit, way)
                self._edge(way, begin)

    def _receive(self, last: int | None, transfer: Transfer) -> int:
        """The node after which the in queue continues: bytes have arrived."""
        arrival = self._arrivals[transfer.id]
        if self._goes_on(transfer) and transfer.source != HOST:
            arrival = self._add(NOTHING, 0.0, ())
            self._edge(self._arrivals[transfer.id], arrival)
            if last is not None:
                self._edge(last, arrival)
        elif last is not None:
            # One copy: it begins when both ends have reached it.
            self._edge(last, self._wires[transfer.id])
        taxed = self._tax(arrival, transfer, transfer.target)
        assert taxed is not None
        return taxed

    # --- edges ----------------------------------------------------------------------------------

    def _drop_empty(self) -> set[int]:
        """Replace nodes that take no time by edges where that does not add edges."""
        nodes = self._nodes
        gone = set()
        for index, node in enumerate(nodes):
            if node.kind != NOTHING or index == self._gate:
                continue
            sources, targets = node.before, node.after
            if len(sources) * len(targets) > len(sources) + len(targets):
                continue
            gone.add(index)
            for source in sources:
                after = nodes[source].after
                after.discard(index)
                after |= targets
            for target in targets:
                before = nodes[target].before
                before.discard(index)
                before |= sources
        return gone


def _has_steps(program: DeviceProgram) -> bool:
    return any(isinstance(queued.operation, Run) for queued in program.operations)


def _finished(node: _NewNode, numbers: Mapping[int, int]) -> WorkNode:
    ns, alone_ns, quiet_ns = node.times
    return WorkNode(
        kind=node.kind,
        ns=ns,
        place=node.place,
        after=tuple(sorted([numbers[target] for target in node.after])),
        before=len(node.before),
        step=node.step,
        transfer=node.transfer,
        rate=node.rate,
        delay_ns=node.delay_ns,
        alone_ns=alone_ns,
        quiet_ns=quiet_ns,
    )
