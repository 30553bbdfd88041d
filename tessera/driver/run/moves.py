"""Hand-overs as they run: sequences that go from one replica to another while both serve.

In: an open plan, and the dispatchers and lanes of two ends. Out: a `MoveHandle`. A
hand-over takes its turn in both lanes (`LaneHold`). Turns are taken in one order for all
hand-overs, so none waits for another in a circle. When both have come, a thread reads and writes
the bytes, transfer by transfer: from device to device if the backends can, else through the memory
of this process. A fault of one end fails the handle and ends that replica; the other one goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import NoReturn

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.host_loop.request_book import LaneHold
from tessera.backend.service import Backend, HandingBackend, ServiceFault
from tessera.diagnostics import TesseraError, error
from tessera.driver.run.open_plan import OpenPlan
from tessera.ir.plan.hand_over import HandOver, MovedSequence, StateTransfer
from tessera.ir.plan.plan import hosts_of
from tessera.passes.checker.check_hand_over import HandOverChecker
from tessera.planning.lower.hand_over import HandOverMaker


@dataclass(frozen=True, slots=True)
class MoveEnd:
    """One end of a hand-over: a replica by its number, its dispatcher, and a lane."""

    replica: int
    dispatcher: Dispatcher
    lane: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A hand-over that is done: how many bytes went, and when, by the clock of timelines."""

    bytes: int
    started_ns: int
    ended_ns: int


class HandOverFault(ServiceFault):
    """A hand-over that failed because a replica did; `replica` is its number in the runtime."""

    def __init__(self, problem: BaseException, replica: int, ends: tuple[int, int]) -> None:
        note = f"replica {replica} failed during a hand-over from replica {ends[0]} to {ends[1]}"
        known = problem.diagnostics[0] if isinstance(problem, TesseraError) else None
        diagnostic = known or error("TSR5051", f"{type(problem).__name__}: {problem}")
        super().__init__(replace(diagnostic, notes=(*diagnostic.notes, note)))
        self.replica = replica
        if isinstance(problem, ServiceFault):
            self.device, self.request, self.step = problem.device, problem.request, problem.step


class MoveHandle(Future[Moved]):
    """A hand-over: a `Future`, which can be awaited. Once it has begun, `cancel` does nothing."""

    def __init__(self, hand_over: HandOver) -> None:
        super().__init__()
        self.hand_over = hand_over

    def __await__(self) -> Generator[object, None, Moved]:
        import asyncio

        return asyncio.wrap_future(self).__await__()


class _RunningMove:
    """One hand-over: its two turns, then its bytes."""

    def __init__(self, source: MoveEnd, target: MoveEnd, made: HandOver) -> None:
        self.handle = MoveHandle(made)
        self._made = made
        self._ends = source, target
        self._lock = threading.Lock()
        self._left = 3
        self._problem: tuple[MoveEnd, BaseException] | None = None
        self._released: list[MoveEnd] = []
        self._holds = [
            LaneHold(end.lane, self._go_on, partial(self._failed, end)) for end in self._ends
        ]

    def start(self) -> None:
        """Stand in line in both lanes."""
        for end, hold in zip(self._ends, self._holds, strict=True):
            end.dispatcher.hold(hold)
        self._go_on()

    def _failed(self, end: MoveEnd, problem: BaseException) -> None:
        """A turn never comes, or its replica has ended since."""
        with self._lock:
            self._problem = self._problem or (end, problem)
        if not self._holds[self._ends.index(end)].has_turn:
            self._go_on()

    def _go_on(self) -> None:
        """One of three is done: both stand in line, or a turn has come, or never will."""
        with self._lock:
            self._left -= 1
            if self._left:
                return
        threading.Thread(target=self._run, name="tessera-move", daemon=True).start()

    def _run(self) -> None:
        handle = self.handle
        begun = handle.set_running_or_notify_cancel()
        started_ns = time.monotonic_ns()
        try:
            if begun and self._problem is None:
                for transfer in self._made.transfers:
                    self._carry(transfer, is_last=transfer is self._made.transfers[-1])
        except BaseException as problem:
            self._problem = self._problem or (self._ends[0], problem)
        for end in self._ends:
            self._release(end)
        if not begun:
            return
        if self._problem is None:
            moved = Moved(
                bytes=self._made.size, started_ns=started_ns, ended_ns=time.monotonic_ns()
            )
            handle.set_result(moved)
        else:
            end, cause = self._problem
            numbers = self._ends[0].replica, self._ends[1].replica
            is_closed = isinstance(cause, TesseraError) and not isinstance(cause, ServiceFault)
            handle.set_exception(cause if is_closed else HandOverFault(cause, end.replica, numbers))

    def _release(self, end: MoveEnd) -> None:
        """Let a lane go on, once."""
        if end not in self._released:
            self._released.append(end)
            end.dispatcher.release(self._holds[self._ends.index(end)])

    def _carry(self, transfer: StateTransfer, *, is_last: bool) -> None:
        """Bring the bytes of a transfer from one end to the other."""
        source, target = self._ends
        with ExitStack() as stack:
            here, there = (self._use(end, stack) for end in self._ends)
            if isinstance(here, HandingBackend):
                try:
                    if here.hand_to(there, source.lane, target.lane, transfer):
                        return
                except BaseException as problem:
                    self._break(source, problem)
            taken, put = transfer.taken(), transfer.put()
            try:
                content = here.read_parts(source.lane, transfer.source, taken)
            except BaseException as problem:
                self._break(source, problem)
            if is_last:
                self._release(source)
            try:
                there.write_parts(target.lane, transfer.target, put, content)
            except BaseException as problem:
                self._break(target, problem)

    def _use(self, end: MoveEnd, stack: ExitStack) -> Backend:
        try:
            return stack.enter_context(end.dispatcher.using())
        except BaseException as problem:
            self._break(end, problem)

    def _break(self, end: MoveEnd, problem: BaseException) -> NoReturn:
        """An end has had a fault: it ends."""
        self._problem = self._problem or (end, problem)
        end.dispatcher.fail(problem)
        raise problem


class Mover:
    """Makes, proves and starts the hand-overs of an open plan, in one order."""

    def __init__(self, opened: OpenPlan) -> None:
        self._opened = opened
        self._makers: tuple[HandOverMaker, HandOverChecker] | None = None
        self._ordering = threading.Lock()

    def start(
        self,
        source: MoveEnd,
        target: MoveEnd,
        moved: Sequence[MovedSequence],
        token_axis: int,
    ) -> MoveHandle:
        """A hand-over between two lanes, after the requests that they have been given before."""
        with self._ordering:
            made = self._make(source.replica, target.replica, moved, token_axis)
            move = _RunningMove(source, target, made)
            move.start()
        return move.handle

    def _make(
        self, source: int, target: int, moved: Sequence[MovedSequence], token_axis: int
    ) -> HandOver:
        if self._makers is None:
            opened = self._opened
            known = [r.lowered for r in opened.replicas], opened.programs, opened.graphs
            self._makers = HandOverMaker(*known, hosts_of(opened.plan)), HandOverChecker(*known)
        made = self._makers[0].make(source, target, moved, token_axis)
        wrong = self._makers[1].check(made, moved, token_axis)
        if wrong:
            raise TesseraError(wrong)
        return made
