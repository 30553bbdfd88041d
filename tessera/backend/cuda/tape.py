"""A request as a list of driver calls with all their arguments ready.

In: calls from `enqueue`, one after the other. Out: a `Tape`, which makes them: once under stream
capture, to build a graph, or for every request if graphs are not used. Each call refers to its
action, so that the fault of a refused call names the step, its sizes and the device.

`with_graph_rows` turns each row of launches, memsets and copies on one stream into one graph; calls
that join queues stay calls. A graph that spans devices has inner queues that the driver picks, and
requests that often change device hold each other up in these queues: on an H200, plans of slices
took up to 60% longer (`benchmarks/results/simulated_h200.json`). A graph of one row runs on the
stream on which it is launched, so each queue of each slot continues as soon as its waits are over,
and the host still makes few calls. Transfers and short rows stay single calls: with graphs for them
too, plans took up to 28% longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.faults import run_fault
from tessera.backend.cuda.issue_order import Action, Do, Move
from tessera.backend.cuda.queued_work import step_name
from tessera.backend.service import ServedTrace, ServiceFault
from tessera.diagnostics import error
from tessera.ir.plan.launch_program import Run
from tessera.ir.program.program import Launch, LaunchId, Work, for_arch


class QueueRow(NamedTuple):
    """The compute queue of a slot. Consecutive plain work calls on it can become one graph."""

    device: str
    stream: Handle


class TapeCall(NamedTuple):
    """A driver call with its arguments; `row` is set if it is plain work of a compute queue."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    action: Action | None
    row: QueueRow | None = None


class Refused(Exception):
    """A call that the driver refused while a request was handed over."""

    def __init__(self, problem: DriverError, action: Action | None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.action = action


@dataclass(slots=True)
class Tape:
    """The calls in order, and the objects that have to stay alive for them."""

    calls: list[TapeCall] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def play(self, driver: Driver) -> None:
        """Make all calls; none of them waits for the GPU."""
        for name, function, arguments, action, _ in self.calls:
            try:
                status = function(*arguments)[0]
                if status:
                    driver.check(name, status)
            except DriverError as problem:
                raise Refused(problem, action) from None


LEAST_CALLS = 3

Capture = Callable[[Tape, Handle, str], Handle | None]


def with_graph_rows(driver: Driver, tape: Tape, capture: Capture) -> tuple[Tape, list[Handle]]:
    """The tape with graphs, and the graphs; a row that cannot be captured stays as it is."""
    graphs = []
    short = Tape(kept=tape.kept)
    launch = driver.functions["cuGraphLaunch"]
    for row, group in groupby(tape.calls, key=lambda call: call.row):
        calls = list(group)
        graph = _graph(tape, row, calls, capture)
        if row is None or graph is None:
            short.calls.extend(calls)
        else:
            graphs.append(graph)
            given = graph, row.stream
            short.calls.append(TapeCall("cuGraphLaunch", launch, given, calls[0].action))
    return short, graphs


def _graph(
    tape: Tape, row: QueueRow | None, calls: Sequence[TapeCall], capture: Capture
) -> Handle | None:
    if row is None or len(calls) < LEAST_CALLS:
        return None
    return capture(Tape(calls=list(calls), kept=tape.kept), row.stream, row.device)


def refusal(refused: Refused, served: ServedTrace, request: int | None) -> ServiceFault:
    """The fault of a call that the driver refuses."""
    work = tuple(served.program.work())
    device, step = _place_of(refused.action, work)
    if step is None:
        return run_fault(refused.problem, device=device, request=request)
    size = _sizes(step, served.arches[step.id])
    diagnostic = error(
        "TSR5104",
        f"the driver refuses the launch of `{step_name(step)}`: {refused.problem.name}",
        step.span,
        notes=(size,) if size else (),
    )
    return ServiceFault(
        diagnostic, device=device, request=request, step=LaunchId(step.id), name=step_name(step)
    )


def _place_of(action: Action | None, work: tuple[Work, ...]) -> tuple[str | None, Work | None]:
    match action:
        case Do(device, Run(step)):
            return device, work[step]
        case Do(device, _):
            return device, None
        case Move(transfer):
            return transfer.source, None
        case None:
            return None, None
        case _:
            return action.device, None


def _sizes(step: Work, arch: str) -> str:
    if not isinstance(step, Launch):
        return ""
    launch = for_arch(step, arch)
    grid, block = (",".join(map(str, size)) for size in (launch.grid, launch.block))
    text = f"grid {grid}, block {block}, {launch.shared_bytes} bytes of dynamic shared memory"
    if launch.cluster is not None:
        text += f", cluster {','.join(map(str, launch.cluster))}"
    return text + (", cooperative" if launch.cooperative else "")
