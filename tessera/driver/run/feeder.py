"""Submits the requests of a run, and collects how each ends.

In: a `Serving`, the turns of the run and its `Materials`. Out: completions by request, or the
first fault.

The command's own work for requests (making inputs, digesting outputs) does not count as time of the
plan: inputs are made before a batch of requests begins, in as many threads as there are cores, and
separate threads make digests. The bytes of a batch are limited; between two batches the devices are
idle, and that time does not count either (`Outcome.figures`).

`Replays` says which requests of a lost replica are submitted again. A request whose trace has no
states gives the same results wherever it runs. A request with states needs those that the requests
before it left, which are lost with the replica; it can be replayed on a restarted replica only if
no request of its sequence had begun.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.service import Bytes, Completion
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, warning
from tessera.driver.run.digests import Digests, Sums, threads
from tessera.driver.run.materials import Materials
from tessera.driver.run.schedule import Turn
from tessera.driver.run.serving import Serving
from tessera.ir.program.program import Program, Role

MOST_STARTS = 3
"""Most times that a replica is started again."""
LOST = "TSR5072"
_MOST_SHOWN = 12


class Replays:
    """The lost requests, and which of them are replayed; used by several threads."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._has_states = [
            any(buffer.role is Role.STATE for buffer in program.buffers) for program in programs
        ]
        self._begun: set[int] = set()
        self._submitted: set[int] = set()
        self._again: dict[int, str] = {}
        self._given_up: dict[str, list[int]] = {}

    def begin(self, turn: Turn) -> None:
        """Note that a request is under way."""
        self._submitted.add(turn.request)
        if self._has_states[turn.trace]:
            self._begun.add(turn.sequence)

    def sort_out(self, unfinished: Iterable[Turn], fault: TesseraError) -> list[Turn]:
        """The requests of a lost replica that can be replayed."""
        again: list[Turn] = []
        stuck: list[Turn] = []
        for turn in unfinished:
            has_begun = self._has_states[turn.trace] and turn.sequence in self._begun
            (stuck if has_begun else again).append(turn)
        self.give_up(stuck, "the states of their sequences are lost")
        for turn in again:
            if turn.request in self._submitted:
                self._again[turn.request] = str(fault.diagnostics[0].headline)
        return again

    def give_up(self, turns: Iterable[Turn], why: str) -> None:
        """Note that these requests are not replayed, and why."""
        for turn in turns:
            self._again.pop(turn.request, None)
            self._given_up.setdefault(why, []).append(turn.request)

    def on(self, fault: TesseraError) -> TesseraError:
        """The fault, with the requests that are not replayed, and why."""
        notes = tuple(
            f"not run: {_numbers(requests)}: {why}"
            for why, requests in self._given_up.items()
            if requests
        )
        first, *others = fault.diagnostics
        first = replace(first, notes=(*first.notes, *notes))
        return TesseraError([first, *others], fault.exit_code) if notes else fault

    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings of replayed requests, by the fault that made the replay necessary."""
        of_fault: dict[str, list[int]] = {}
        for request, headline in sorted(self._again.items()):
            of_fault.setdefault(headline, []).append(request)
        return tuple(
            warning("TSR5073", f"replayed from their inputs: {_numbers(requests)}", notes=(why,))
            for why, requests in of_fault.items()
        )


def _numbers(requests: Sequence[int]) -> str:
    """Numbers of requests as text, with consecutive numbers as ranges."""
    runs: list[list[int]] = []
    for request in sorted(requests):
        if runs and request == runs[-1][1] + 1:
            runs[-1][1] = request
        else:
            runs.append([request, request])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    more = f" and {len(texts) - _MOST_SHOWN} more ranges" if len(texts) > _MOST_SHOWN else ""
    noun = "request" if len(requests) == 1 else "requests"
    return f"{noun} {', '.join(texts[:_MOST_SHOWN])}{more}"


_LOOK_S = 0.1
_END_S = 0.005
_BATCH_BYTES = 4 << 30
_BATCH_REQUESTS = 1 << 16
_LARGE_BYTES = 1 << 20


class Feeder:
    """Submits turns, each replica's in its own thread because submitting waits for a slot.

    The thread that Ctrl-C interrupts only waits, so that nothing is left half done. The first
    request that fails ends the run, unless `each_alone`: then other replicas go on. With `retry`, a
    lost replica is started again, and its requests are replayed where possible. If outputs are not
    kept, completions have none, and `digests` has their digests.
    """

    def __init__(
        self,
        serving: Serving,
        turns: Sequence[Turn],
        materials: Materials,
        *,
        each_alone: bool = False,
        retry: bool = False,
        keep_outputs: bool = True,
    ) -> None:
        self._each_alone = each_alone
        self._replays = Replays(serving.opened.programs) if retry else None
        self._serving = serving
        self._materials = materials
        self._digests = None if keep_outputs else Digests()
        self._left = batches(turns, self._bytes_by_trace(), batch_bytes())
        self._inputs: dict[int, dict[str, Bytes]] = {}
        self._done: dict[int, Completion] = {}
        self._failed: dict[int, BaseException] = {}
        self._problems: list[BaseException] = []
        self._starts = Counter[int]()
        self._given_up: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._changed = threading.Event()
        self.begins: list[int] = []
        self.command_s = 0.0

    def start(self) -> None:
        """Make the inputs of the first batch, and begin to submit it."""
        batch = next((left for left in self._left if self._has_takers(left)), ())
        if not batch:
            return
        began = time.perf_counter()
        self._make_inputs(batch)
        self.command_s += time.perf_counter() - began
        self.begins.append(batch[0].request)
        of_replica: dict[int, list[Turn]] = {}
        for turn in batch:
            of_replica.setdefault(self._serving.sequences[turn.sequence][0], []).append(turn)
        self._threads = [
            threading.Thread(target=self._feed, args=(replica, turns), daemon=True)
            for replica, turns in sorted(of_replica.items())
            if replica not in self._given_up
        ]
        for thread in self._threads:
            thread.start()

    def _has_takers(self, batch: Sequence[Turn]) -> bool:
        replicas = {self._serving.sequences[turn.sequence][0] for turn in batch}
        return not replicas <= self._given_up

    def _bytes_by_trace(self) -> Callable[[int], int]:
        """Bytes that a request takes on the host while its batch runs, by trace."""
        if self._digests is None:
            return self._materials.made_bytes
        programs = self._materials.programs
        outputs = [
            sum(buffer.bytes for buffer in program.buffers if buffer.role is Role.OUTPUT)
            for program in programs
        ]
        return lambda trace: self._materials.made_bytes(trace) + outputs[trace]

    def _make_inputs(self, batch: Sequence[Turn]) -> None:
        def make(turn: Turn) -> dict[str, Bytes]:
            return self._materials.inputs(turn.request, turn.trace, turn.turn)

        def keep(made: Iterable[dict[str, Bytes]]) -> None:
            # Inputs that do not fit memory now are made when they are submitted, or never.
            with suppress(MemoryError):
                for turn, inputs in zip(batch, made, strict=True):
                    self._inputs[turn.request] = inputs

        if sum(self._materials.made_bytes(turn.trace) for turn in batch) < _LARGE_BYTES:
            keep(map(make, batch))
            return
        with threads("tessera-inputs") as pool:
            keep(pool.map(make, batch))

    def _feed(self, replica: int, turns: Sequence[Turn]) -> None:
        pending = list(turns)
        while pending:
            problem: BaseException | None = None
            try:
                self._submit(pending)
            except BaseException as raised:
                problem = raised
            pending = self._lost(replica, pending, problem)
        self._changed.set()

    def _submit(self, turns: Sequence[Turn]) -> None:
        """Submit requests, and wait for them; the waiting thread collects completions."""
        handles: list[tuple[int, RequestHandle[Completion]]] = []
        try:
            for turn in turns:
                if self._problems and not self._each_alone:
                    return
                inputs = self._inputs.pop(turn.request, None)
                if inputs is None:
                    inputs = self._materials.inputs(turn.request, turn.trace, turn.turn)
                handle = self._serving.submit(
                    inputs,
                    sequence=turn.sequence,
                    trace=turn.trace,
                    number=turn.request,
                    finish=self._finish,
                )
                if self._replays is not None:
                    self._replays.begin(turn)
                handles.append((turn.request, handle))
        finally:
            for number, handle in handles:
                self._hear(number, handle)

    def _finish(self, completion: Completion) -> Completion:
        """Keep a completion; called by the thread that collects it."""
        kept = completion if self._digests is None else self._digests.take(completion)
        self._done[completion.request] = kept
        return kept

    def _hear(self, number: int, handle: RequestHandle[Completion]) -> None:
        try:
            failure = handle.exception()
        except CancelledError:
            return
        if failure is None:
            self._done.setdefault(number, handle.result())
        else:
            self._failed[number] = failure  # only this replica's requests end; the others go on
            self._changed.set()

    def _lost(
        self, replica: int, turns: Sequence[Turn], problem: BaseException | None
    ) -> list[Turn]:
        """The requests to submit again, on a restarted replica."""
        replays = self._replays
        fault = problem
        if replays is not None:
            failed = (self._failed[t.request] for t in turns if t.request in self._failed)
            fault = next(failed, problem)
        if replays is None or not isinstance(fault, TesseraError) or not _is_lost(fault):
            if problem is not None:
                # The other threads stop too; requests that are running are waited for.
                self._problems.append(problem)
            if problem is not None or any(turn.request in self._failed for turn in turns):
                self._given_up.add(replica)
            return []
        unfinished = [turn for turn in turns if turn.request not in self._done]
        self._starts[replica] += 1
        if self._starts[replica] > MOST_STARTS:
            replays.give_up(unfinished, f"its replica was started {MOST_STARTS} times")
            return self._gives_up(replica, fault)
        again = replays.sort_out(unfinished, fault)
        if len(again) < len(unfinished):
            self._problems.append(fault)
        if not again:
            return []
        try:
            self._serving.restart(turns[0].sequence)
        except BaseException as why:
            said = str(why.diagnostics[0].headline) if isinstance(why, TesseraError) else str(why)
            replays.give_up(again, f"the replica cannot be started again: {said}")
            return self._gives_up(replica, fault, why)
        for turn in again:
            self._failed.pop(turn.request, None)
        return again

    def _gives_up(self, replica: int, *problems: BaseException) -> list[Turn]:
        self._problems += problems
        self._given_up.add(replica)
        return []

    def wait(self, report: Callable[[int], None]) -> None:
        """Wait until every request is done, or one has failed."""
        while not self._has_to_end() and self._is_under_way():
            self._changed.wait(_LOOK_S)
            self._changed.clear()
            report(len(self._done))
        report(len(self._done))

    def _has_to_end(self) -> bool:
        return bool(self._failed) and not self._each_alone

    def _is_under_way(self) -> bool:
        """Whether requests are under way; starts the next batch when they are not."""
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_S)  # it may be ending right now
        if any(thread.is_alive() for thread in self._threads):
            return True
        if self._has_to_end() or (self._problems and not self._each_alone):
            return False
        began = time.perf_counter()
        self.digests()
        self.command_s += time.perf_counter() - began
        self._threads = []
        self.start()
        return bool(self._threads)

    def digests(self) -> Mapping[int, Sums]:
        """The digests of outputs that were not kept, by request."""
        return {} if self._digests is None else self._digests.wait()

    def close(self) -> None:
        """End the threads."""
        if self._digests is not None:
            self._digests.close()

    def completions(self) -> dict[int, Completion]:
        """The completions up to now, by request."""
        return dict(sorted(self._done.copy().items()))

    def fault(self) -> TesseraError | None:
        """The first fault, if any; a problem that is not an error of the run is raised."""
        for problem in [*self._failed.copy().values(), *self._problems]:
            if isinstance(problem, TesseraError):
                return problem if self._replays is None else self._replays.on(problem)
            if isinstance(problem, MemoryError):
                return TesseraError.of(
                    "TSR5020", "this machine is out of memory", exit_code=ExitCode.FAULT
                )
            raise problem
        return None

    def warnings(self) -> tuple[Diagnostic, ...]:
        """Warnings of replayed requests."""
        return () if self._replays is None else self._replays.warnings()


def batches(
    turns: Iterable[Turn], bytes_of: Callable[[int], int], most_bytes: int
) -> Iterator[list[Turn]]:
    """Turns in their order, cut into batches of at most `most_bytes` bytes."""
    batch: list[Turn] = []
    taken = 0
    for turn in turns:
        size = bytes_of(turn.trace)
        if batch and (taken + size > most_bytes or len(batch) == _BATCH_REQUESTS):
            yield batch
            batch, taken = [], 0
        batch.append(turn)
        taken += size
    if batch:
        yield batch


def batch_bytes() -> int:
    """Most bytes for the inputs and outputs of a batch."""
    free = available_bytes()
    return _BATCH_BYTES if free is None else min(_BATCH_BYTES, free // 4)


def _is_lost(fault: TesseraError) -> bool:
    """Whether a fault means that a replica is lost, and not that the request is at fault."""
    return fault.diagnostics[0].code == LOST
