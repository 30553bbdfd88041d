"""Whether requests in flight can wait for each other in a circle, given what devices have in line.

In: for each process, the operations of one request in the order in which streams get them; the
requests in flight, in the order in which the host submits them to each process; the number of
hardware queues of a process. Out: None, or a diagnostic that names a circle, or an operation that
waits for what nothing sets.

An operation begins when what stands before it on its hardware queue is over, and what it waits for
is set. If every order that this gives is free of circles, the first operation that is not over can
always go on, so all requests end. Which streams share a queue is not known: a process has one queue
of its own for each stream if there are enough for all requests, and otherwise a single one for all
streams, which forbids everything that any sharing forbids.

If all processes get requests in one order, a circle lies within one request: what stands before an
operation on its queue is of the same request or of an earlier one, and what it waits for is of the
same. So two requests prove as much as any number; where orders differ, all have to be given.

Waits between streams of one process that come after what they wait for add nothing to the order of
a single queue. How a request forks from one stream and joins it again can be left out: nothing of
the request comes before the first or after the last.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, error
from tessera.ir.plan.stream_operation import StreamOperation

_MOST = 8
SubmittedRequests = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class _InFlight:
    """An operation of one request on a process."""

    process: str
    request: int
    operation: StreamOperation

    def text(self) -> str:
        operation = self.operation
        what = f"waits for {operation.waits}" if operation.waits else f"sets {operation.sets}"
        return f"request {self.request}, `{self.process}`, {operation.stream}: {what}"


def check_circles(
    orders: Mapping[str, Sequence[StreamOperation]],
    submitted: SubmittedRequests,
    *,
    queues: int = 1,
) -> Diagnostic | None:
    """The diagnostic of requests in flight that can wait forever; None if all of them end."""
    nodes, before = _lines(orders, submitted, queues)
    setters = {(n.request, n.operation.sets): i for i, n in enumerate(nodes) if n.operation.sets}
    for number, node in enumerate(nodes):
        if not node.operation.waits:
            continue
        setter = setters.get((node.request, node.operation.waits))
        if setter is None:
            return error("TSR4008", f"nothing ends a wait: {node.text()}")
        before[number].append(setter)
    stuck = _stuck(before)
    if not stuck:
        return None
    circle, number = list[int](), min(stuck)
    while number not in circle:
        circle.append(number)
        number = next(other for other in before[number] if other in stuck)
    circle = circle[circle.index(number) :]
    return error(
        "TSR4008",
        f"requests in flight wait for each other in a circle of {len(circle)}",
        notes=tuple(nodes[number].text() for number in circle[:_MOST]),
        hint="each waits for the next, which stands behind it on a queue or sets what it waits for",
    )


def _lines(
    orders: Mapping[str, Sequence[StreamOperation]], submitted: SubmittedRequests, queues: int
) -> tuple[list[_InFlight], list[list[int]]]:
    """All operations in flight, and what stands right before each on its hardware queue."""
    nodes: list[_InFlight] = []
    before: list[list[int]] = []
    for process, requests in submitted.items():
        operations = orders[process]
        streams = len({operation.stream for operation in operations}) * len(requests)
        last: dict[tuple[int, str] | None, int] = {}
        for request in requests:
            for operation in operations:
                queue = (request, operation.stream) if streams <= queues else None
                before.append([last[queue]] if queue in last else [])
                last[queue] = len(nodes)
                nodes.append(_InFlight(process, request, operation))
    return nodes, before


def _stuck(before: Sequence[Sequence[int]]) -> set[int]:
    """The operations that never begin: those on a circle, and those behind one."""
    left = [len(set(others)) for others in before]
    after: dict[int, list[int]] = defaultdict(list)
    for number, others in enumerate(before):
        for other in set(others):
            after[other].append(number)
    ready = deque(number for number, count in enumerate(left) if not count)
    stuck = set(range(len(before)))
    while ready:
        number = ready.popleft()
        stuck.discard(number)
        for other in after[number]:
            left[other] -= 1
            if not left[other]:
                ready.append(other)
    return stuck
