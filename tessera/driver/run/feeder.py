"""Submits the requests of a run, and hears how each ends.

In: a `Serving`, the turns of the run and its `Materials`. Out: completions by request, or the
fault that came first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import Completion
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.run.materials import Materials
from tessera.driver.run.replay import LOST, MOST_STARTS, Replays
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import Serving

_LOOK_S = 0.1


class Feeder:
    """Submits turns, each replica's in its own thread, since submitting waits for a slot.

    The thread that is interrupted by Ctrl-C only waits, so that nothing is left half done. The
    first request that fails ends the run, unless `each_alone`: then other replicas go on. With
    `retry`, a replica that is lost is started again, and what can be is replayed.
    """

    def __init__(
        self,
        serving: Serving,
        turns: Sequence[Turn],
        materials: Materials,
        *,
        each_alone: bool = False,
        retry: bool = False,
    ) -> None:
        self._each_alone = each_alone
        self._replays = Replays(serving.opened.programs) if retry else None
        self._serving = serving
        self._turns = turns
        self._materials = materials
        self._handles: dict[int, RequestHandle[Completion]] = {}
        self._problems: list[BaseException] = []
        self._changed = threading.Event()
        self._finished = 0
        self._failed = False
        replicas = range(len(serving.opened.replicas))
        self._threads = [
            threading.Thread(target=self._feed, args=(replica,), daemon=True)
            for replica in replicas
        ]

    def start(self) -> None:
        """Begin to submit."""
        for thread in self._threads:
            thread.start()

    def _feed(self, replica: int) -> None:
        pending = [t for t in self._turns if self._serving.sequences[t.sequence][0] == replica]
        for start in range(MOST_STARTS + 1):
            try:
                self._submit(pending)
                pending = self._lost(pending, None, is_last=start == MOST_STARTS)
            except BaseException as problem:
                pending = self._lost(pending, problem, is_last=start == MOST_STARTS)
            if not pending:
                return

    def _submit(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            if self._problems and not self._each_alone:
                return
            inputs = self._materials.inputs(turn.request, turn.trace, turn.turn)
            handle = self._serving.submit(
                inputs, sequence=turn.sequence, trace=turn.trace, number=turn.request
            )
            if self._replays is not None:
                self._replays.begin(turn)
            self._handles[turn.request] = handle
            handle.add_done_callback(self._heard)

    def _lost(
        self, turns: Sequence[Turn], problem: BaseException | None, *, is_last: bool
    ) -> list[Turn]:
        """What is to be submitted again, on a replica that was started again."""
        replays = self._replays
        fault: BaseException | None = problem
        if replays is not None:
            fault = next(self._failures(turns), problem)
        if replays is None or not isinstance(fault, TesseraError) or not _is_lost(fault):
            if problem is not None:
                # The other threads stop too, what runs is waited for.
                self._problems.append(problem)
            return []
        unfinished = [turn for turn in turns if not self._has_finished(turn.request)]
        if is_last:
            replays.give_up(unfinished, f"its replica was started {MOST_STARTS} times")
            self._problems.append(fault)
            return []
        again = replays.sort_out(unfinished, fault)
        if len(again) < len(unfinished):
            self._problems.append(fault)
        if not again:
            return []
        try:
            self._serving.restart(turns[0].sequence)
        except BaseException as why:
            said = why.diagnostics[0].headline if isinstance(why, TesseraError) else str(why)
            replays.give_up(again, f"the replica cannot be started again: {said}")
            self._problems += [fault, why]
            return []
        for turn in again:
            self._handles.pop(turn.request, None)
        return again

    def _failures(self, turns: Sequence[Turn]) -> Iterator[BaseException]:
        """What requests have failed with, once all have ended."""
        handles = [self._handles[t.request] for t in turns if t.request in self._handles]
        for handle in handles:
            with suppress(CancelledError):
                handle.exception()
        for handle in handles:
            failure = None if handle.cancelled() else handle.exception()
            if failure is not None:
                yield failure

    def _has_finished(self, request: int) -> bool:
        handle = self._handles.get(request)
        if handle is None or handle.cancelled():
            return False
        return handle.done() and handle.exception() is None

    def wait(self, report: Callable[[int], None]) -> None:
        """Until every request is done, or one has failed."""
        while not (self._failed and not self._each_alone) and not self._is_over():
            self._changed.wait(_LOOK_S)
            self._changed.clear()
            report(self._finished)
        report(self._finished)

    def _is_over(self) -> bool:
        if any(thread.is_alive() for thread in self._threads):
            return False
        return all(handle.done() for handle in list(self._handles.values()))

    def _heard(self, handle: RequestHandle[Completion]) -> None:
        if handle.exception() is None:
            self._finished += 1
        else:
            self._failed = True  # of one replica: the others would go on
        self._changed.set()

    def completions(self) -> dict[int, Completion]:
        """The results that there are, by request."""
        return {
            number: handle.result()
            for number, handle in sorted(self._handles.copy().items())
            if handle.done() and not handle.cancelled() and handle.exception() is None
        }

    def fault(self) -> TesseraError | None:
        """What went wrong first, if anything did; what is not an error of the run is raised."""
        ended = [f for f in self._handles.values() if f.done() and not f.cancelled()]
        failures = [failure for f in ended if (failure := f.exception()) is not None]
        for problem in [*failures, *self._problems]:
            if isinstance(problem, TesseraError):
                return problem if self._replays is None else self._replays.on(problem)
            if isinstance(problem, MemoryError):
                return TesseraError(
                    error("TSR5020", "this machine is out of memory"), ExitCode.FAULT
                )
            raise problem
        return None

    def warnings(self) -> tuple[Diagnostic, ...]:
        """What was replayed."""
        return () if self._replays is None else self._replays.warnings()


def _is_lost(fault: TesseraError) -> bool:
    """Whether a replica is lost, by no fault of the request."""
    return fault.diagnostics[0].code == LOST
