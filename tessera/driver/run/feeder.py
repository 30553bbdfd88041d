"""Submits the requests of a run, and hears how each ends.

In: a `Serving`, the turns of the run and its `Materials`. Out: completions by request, or the
fault that came first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import Completion
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.run.materials import Materials
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import Serving

_LOOK_S = 0.1


class Feeder:
    """Submits turns, each replica's in its own thread, since submitting waits for a slot.

    The thread that is interrupted by Ctrl-C only waits, so that nothing is left half done. The
    first request that fails ends the run, unless `each_alone`: then other replicas go on.
    """

    def __init__(
        self,
        serving: Serving,
        turns: Sequence[Turn],
        materials: Materials,
        *,
        each_alone: bool = False,
    ) -> None:
        self._each_alone = each_alone
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
        try:
            for turn in self._turns:
                if self._problems and not self._each_alone:
                    return
                if self._serving.sequences[turn.sequence][0] == replica:
                    inputs = self._materials.inputs(turn.request, turn.trace, turn.turn)
                    handle = self._serving.submit(
                        inputs, sequence=turn.sequence, trace=turn.trace, number=turn.request
                    )
                    self._handles[turn.request] = handle
                    handle.add_done_callback(self._heard)
        except BaseException as problem:
            self._problems.append(problem)  # the other threads stop too, what runs is waited for

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
                return problem
            if isinstance(problem, MemoryError):
                return TesseraError(
                    error("TSR5020", "this machine is out of memory"), ExitCode.FAULT
                )
            raise problem
        return None
