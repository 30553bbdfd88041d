"""The thread of an engine: arrivals, steps, their ends and faults, one event after the other.

In: requested answers, and a runtime. Out: tokens in answers. `engine.Engine` is the interface for
callers; other threads may only use the inbox and the state that the lock guards.

Longer than 400 lines because steps, hand-overs and faults change the same state, in one thread.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import EarlierOutput, ServiceFault
from tessera.diagnostics import TesseraError
from tessera.driver.run.moves import Moved
from tessera.driver.run.runtime import Result, Runtime
from tessera.driver.serve.answer_book import AnswerBook
from tessera.driver.serve.batches import Batch, Sizes, StepWork
from tessera.driver.serve.drift import Drift
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.hand_overs import Carried, HandOvers
from tessera.driver.serve.homes import MOST_RESTARTS, BatchGroup, Homes
from tessera.driver.serve.look_ahead import HandedStep, LookAhead
from tessera.driver.serve.measures import AnswerEnd
from tessera.driver.serve.opened import EngineCounts, OpenedRuntime
from tessera.driver.serve.policies import PolicySwitch
from tessera.driver.serve.scheduler import Scheduler
from tessera.driver.serve.step_inputs import (
    read_prompt_chances,
    read_tokens,
    row_input,
    step_inputs,
)
from tessera.driver.serve.step_pace import StepPace
from tessera.driver.serve.step_roles import GenerationSteps, state_shapes

DEATHS = ("TSR5051", "TSR5052", "TSR5072")
"""Codes of faults in which a process or a host ended or stood still, for whatever reason."""
MOST_FAULTS = 2
"""Faults of one and the same step of an answer, after which the answer ends with the fault."""
MOST_DEATHS = 3
"""The same for steps in which a process or a host ended or stood still."""


class EngineLoop:
    """The state and the event loop of an engine's thread."""

    def __init__(
        self,
        serving: OpenedRuntime,
        *,
        burst: int,
        pace: StepPace | None = None,
        reuse: bool = True,
        on_end: Callable[[Generation], object] | None,
        on_drift: Callable[[Drift], object] | None,
    ) -> None:
        self._serving = serving
        self.counts = EngineCounts(dict.fromkeys(serving.runtime.traces, 0))
        self._on_end = on_end
        self._on_drift = on_drift
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._book = AnswerBook(lambda: self._inbox.put(None))
        self._scheduler = Scheduler(serving.sizes, burst=burst, pace=pace, reuse=reuse)
        self._homes = Homes()
        self._homes.add(serving.runtime, serving.monitor)
        self._ahead = LookAhead(self._scheduler, self._homes)
        self._ahead.add(serving.runtime, serving.chains)
        self._under_way: dict[int, HandedStep] = {}
        self._hand_overs = HandOvers(self._homes, self._inbox.put, self._end_move)
        self._news: list[Generation] = []
        self._left = 0
        """Prompts that found no row: prompts that have just arrived do not wait yet."""
        self._thread = threading.Thread(target=self._run, name="tessera-engine", daemon=True)
        self._thread.start()

    @property
    def runtime(self) -> Runtime:
        """The runtime in which prompts get rows now."""
        return self._serving.runtime

    @property
    def model(self) -> GenerationSteps:
        """The steps that the traces state."""
        return self._serving.model

    @property
    def sizes(self) -> Sizes:
        """The sizes of steps, rows and contexts."""
        return self._serving.sizes

    @property
    def switch(self) -> PolicySwitch | None:
        """The rule that gives prompts their policy, if there are two policies."""
        return self._serving.switch

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as problem:
            self._homes.give_up_retiring()
            self._book.fail(problem)

    def _turn(self) -> bool:
        """Handle one event and everything that follows from it; False at the end."""
        for answer in self._book.take_arrived():
            if self.switch is not None:
                self.switch.come(time.monotonic_ns(), len(answer.prompt), answer.wish.most)
            self._scheduler.line.append(answer.job)
        # Answers that take part in a step under way end with that step.
        for answer, how in self._book.leaving():
            if answer.job.batch not in self._under_way:
                self._finish(answer, how)
        self._begin_moves()
        self._begin_steps()
        self._tell_news()
        self._homes.close_retired(self._is_used)
        if self._book.is_over() and not self._under_way and not self._scheduler.turns.moves:
            return False
        try:
            event = self._inbox.get(timeout=self._book.patience_s())
        except queue.Empty:
            return True
        if event is not None:
            event()
        return True

    def _is_used(self, batch: int) -> bool:
        return bool(self._scheduler.batches[batch].used) or batch in self._under_way

    def _admit(self) -> None:
        """Give rows to prompts in line by the current policy; waiting prompts may change it."""
        for _ in range(2):
            now_ns = time.monotonic_ns()
            if self.switch is not None:
                unfilled = self._scheduler.unfilled
                self._scheduler.policy = self.switch.choose(now_ns, self._left, unfilled)
            for job in self._scheduler.admit():
                answer = self._book[job.number]
                answer.seated_ns, answer.policy = now_ns, job.policy
            self._left = len(self._scheduler.line)
            if self.switch is None or not self._left:
                return

    def _begin_steps(self) -> None:
        self._admit()
        for batch in self._scheduler.batches:
            if batch.number in self._under_way:
                continue
            work = self._scheduler.take(batch.number)
            if work is not None:
                self._begin(batch, work)
        if len(self._under_way) == 1 and not self._book.has_leaving:
            (number,) = self._under_way
            if not self._scheduler.turns.holds(number):
                self._begin_ahead(number)

    def _begin(self, batch: Batch, work: StepWork, before: HandedStep | None = None) -> None:
        """Hand a step over; `before` is the step before it, if that one is under way."""
        step = self.model.of_trace(work.size.trace)
        runtime, sequence = self._homes.place(batch.number)
        jobs = [(job, 1) for job in batch.decoding.values()] if work.answers else []
        jobs += work.chunks
        given, answers, fresh = [], [], []
        seats_before = {} if before is None else before.seats
        for job, count in jobs:
            answer = self._book[job.number]
            position = batch.position(job)
            if answer.is_fresh and self.model.resets:
                fresh.append(job.row)
            answer.is_fresh = False
            if answer.begun_ns < 0:
                answer.begun_ns = time.monotonic_ns()
            seat = seats_before.get(answer.number)
            given.append(row_input(answer, position, count, step.has("uniform"), seat))
            assert len(given[-1].tokens) == count
            answers.append((answer, position, count))
        arrays, seats = step_inputs(self.model, step, given, batch.row_position)
        taking = [(a, p + c, s) for (a, p, c), s in zip(answers, seats, strict=True)]
        inputs: dict[str, object] = dict(arrays)
        handed = HandedStep(work, taking, inputs)
        group = self._homes.group(batch.number)
        starts = group.starts
        if before is None:
            self._under_way[batch.number] = handed
            self._watch_begin(group, batch.number, work)
        else:
            earlier = self.model.of_trace(before.work.size.trace).buffers["next"]
            inputs[step.buffers["earlier"].name] = EarlierOutput(earlier.name)
            self._ahead.add_handed(batch.number, handed)
        try:
            for row in fresh:
                runtime.reset_states(sequence, rows=row)
            handle = runtime.submit(inputs, sequence=sequence, trace=work.trace)
        except TesseraError as problem:
            self._ended(starts, batch.number, None, problem)
            return
        handed.request = handle.request.number
        handle.add_done_callback(partial(self._hear, starts, batch.number))

    @staticmethod
    def _watch_begin(group: BatchGroup, number: int, work: StepWork) -> None:
        if group.monitor is not None:
            own = replace(work, batch=number - group.first)
            group.monitor.begin(own, time.monotonic_ns())

    def _begin_ahead(self, number: int) -> None:
        """Begin the step after the only one under way, if everything but its tokens is known."""
        if self.sizes.is_mixed:
            self._mix_ahead(number)
            return
        starts = self._homes.group(number).starts
        try:
            handle = self._ahead.begin(self.model, number, self._under_way[number])
        except TesseraError as problem:
            self._ended(starts, number, None, problem)
            return
        if handle is not None:
            handle.add_done_callback(partial(self._hear, starts, number))

    def _mix_ahead(self, number: int) -> None:
        """Count the only step under way as done, and begin the mixed step after it."""
        under_way, batch = self._under_way[number], self._scheduler.batches[number]
        traces = [step.trace for step in self.sizes.steps]
        if self.sizes.ways or not self._ahead.takes(number, *traces):
            return
        if not under_way.is_done:
            under_way.is_done = True
            self._scheduler.done(under_way.work)
            for answer, reached, _ in under_way.taking:
                is_given = reached >= len(answer.prompt) + len(answer.tokens)
                if is_given and len(answer.tokens) + 1 >= answer.wish.most:
                    self._scheduler.end(answer.job)  # its last token is on its way
            batch.at_work = under_way.work
            self._admit()
        work = self._scheduler.take(number)
        if work is None:
            batch.at_work = under_way.work
        else:
            self._begin(batch, work, under_way)

    def _hear(self, started: int, batch: int, handle: RequestHandle[Result]) -> None:
        """Called by the runtime's thread that collects completions."""
        try:
            self._ended(started, batch, handle.result(), None)
        except BaseException as problem:
            self._ended(started, batch, None, problem)

    def _ended(
        self, started: int, batch: int, result: Result | None, problem: BaseException | None
    ) -> None:
        self._inbox.put(partial(self._end_step, started, batch, result, problem))

    def _end_step(
        self, started: int, number: int, result: Result | None, problem: BaseException | None
    ) -> None:
        group = self._homes.group(number)
        if started != group.starts:
            return  # the step is of a replica that has been given up
        if result is None:
            self._recover(group, problem)
            return
        handed = self._under_way.pop(number)
        work = handed.work
        if group.monitor is not None:
            find = group.monitor.end(number - group.first, time.monotonic_ns())
            if find is not None:
                self._simulate_drift(find)
        step = self.model.of_trace(work.size.trace)
        self.counts.steps_done[step.name] += 1
        if not handed.is_done:
            self._scheduler.done(work)
        self._scheduler.batches[number].at_work = None
        gives = [
            (answer, seat, reached)
            for answer, reached, seat in handed.taking
            if reached >= len(answer.prompt) + len(answer.tokens) and not answer.ended
        ]
        if work.answers or self.sizes.first_from_prefill:
            read_prompt_chances(step, result, handed.taking)
            tokens = read_tokens(step, work, result, [(a, seat) for a, seat, _ in gives])
            for (answer, _, _), read in zip(gives, tokens, strict=True):
                if read.problem is not None:
                    self._finish(answer, AnswerEnd.FAULT, read.problem)
                    continue
                how = answer.add(read.token, self.model.end, read.chances)
                answer.strikes, answer.job.is_suspect = 0, False
                if how:
                    self._finish(answer, how)
                else:
                    self._news.append(answer)
        after = self._ahead.go_on(number)
        if after is not None:
            self._under_way[number] = after
            self._watch_begin(group, number, after.work)

    def _tell_news(self) -> None:
        """Notify listeners of new tokens while the next steps are under way."""
        news, self._news = self._news, []
        for answer in news:
            answer.tell()

    def _finish(
        self, answer: Generation, how: AnswerEnd, problem: BaseException | None = None
    ) -> None:
        self._scheduler.end(answer.job)
        self._book.forget(answer)
        if self.switch is not None and how.is_whole:
            self.switch.end(len(answer.tokens))
        answer.end(how, problem)
        answer.tell()
        if self._on_end is not None:
            self._on_end(answer)

    # --- hand-overs -------------------------------------------------------------------------------

    def _begin_moves(self) -> None:
        """Hand over the sequences for which another batch has room, between steps."""
        scheduler, now_ns = self._scheduler, time.monotonic_ns()
        for job in scheduler.parked:
            self._book[job.number].leave(now_ns)
        scheduler.hand_over()
        if self._homes.is_retiring or self._serving.pays is not None:
            scheduler.shift(self._serving.pays or (lambda *_: False))
        for moves in scheduler.turns.begin():
            for move in moves:
                self._book[move.job.number].leave(now_ns)
            self._hand_overs.begin(moves, self.sizes)

    def _end_move(
        self, carried: Carried, moved: Moved | None, problem: BaseException | None
    ) -> None:
        """Hand-overs have ended; if a replica died in them, that one is started again."""
        part = 0 if moved is None else moved.bytes // len(carried.moves)
        for move in carried.moves:
            if self._scheduler.moved(move, arrived=moved is not None) and moved is not None:
                self.counts.hand_overs += 1
                self.counts.hand_over_bytes += part
                self.counts.hand_over_ns += moved.ended_ns - moved.started_ns
                self._book[move.job.number].arrive(time.monotonic_ns(), part, move.policy)
        for group in () if problem is None else carried.broken(problem):
            self._recover(group, problem)

    # --- faults -----------------------------------------------------------------------------------

    def _recover(self, group: BatchGroup, problem: BaseException | None) -> None:
        """Start the replica of a faulted step again; its answers are computed again, and go on.

        Tokens are known, and nothing else is kept: no block of these batches is read again. An
        answer that may be why is alone among such answers from then on, until it has its next
        token. So if the same step of it faults again, it is why, and ends.
        """
        if not isinstance(problem, ServiceFault):
            raise problem or self._book.refusal()
        self.counts.restarts += 1
        most = MOST_DEATHS if problem.diagnostics[0].code in DEATHS else MOST_FAULTS
        struck = self._strike(group, problem)
        kept = []
        for batch in group.batches:
            under_way = self._under_way.pop(batch, None)
            for answer, _, _ in () if under_way is None else under_way.taking:
                if answer.job.batch < 0 and not answer.ended:  # its token was on its way
                    self._scheduler.end(answer.job)
                    kept.append(answer)
            self._ahead.forget(batch)
            if group.monitor is not None:
                group.monitor.forget(batch - group.first)
            for job in self._scheduler.clear(batch):
                answer = self._book[job.number]
                job.batch = -1
                kept.append(answer)
        for answer in sorted(kept, key=lambda kept_answer: kept_answer.number, reverse=True):
            was_suspect = answer.job.is_suspect
            if was_suspect and answer.number in struck and answer.strikes >= most:
                self._finish(answer, AnswerEnd.FAULT, problem)
                continue
            job = answer.start_again()
            job.is_suspect = was_suspect or answer.strikes >= most - 1
            self._scheduler.line.appendleft(job)
        self._homes.restart(
            group, lambda failed: self._inbox.put(partial(self._again, group, failed))
        )

    def _strike(self, group: BatchGroup, problem: ServiceFault) -> Collection[int]:
        """Note the fault in the answers of the faulted step, or of all that may have faulted."""
        under_way = {b: self._under_way[b] for b in group.batches if b in self._under_way}
        struck: dict[int, tuple[Generation, int, int]] = {}
        for step in self._ahead.faulted(problem.request, under_way):
            counts = {job.number: count for job, count in step.work.chunks}
            for answer, reached, _ in step.taking:
                start = reached - counts.get(answer.number, 1)
                _, start, _ = struck.get(answer.number, (answer, start, 0))
                struck[answer.number] = answer, start, reached
        for answer, start, stop in struck.values():
            answer.strike(start, stop)
        return struck.keys()

    def _again(self, group: BatchGroup, problem: BaseException | None) -> None:
        """A replica has been started again, or cannot be."""
        if problem is None:
            group.is_open, group.in_row = True, 0
            for batch in group.batches:
                self._scheduler.batches[batch].is_open = not group.is_retired
        elif group.in_row < MOST_RESTARTS:
            self._homes.restart(
                group, lambda failed: self._inbox.put(partial(self._again, group, failed))
            )
        elif not self._can_serve():
            raise problem

    def _can_serve(self) -> bool:
        """Whether open replicas read prompts and give answers."""
        open_groups = [group for group in self._homes.groups if group.is_open]
        batches = [self._scheduler.batches[b] for group in open_groups for b in group.batches]
        reads = any(batch.fills for batch in batches) or not self.sizes.prefill
        return reads and any(batch.decodes for batch in batches)

    # --- other times, other plans -----------------------------------------------------------------

    def _simulate_drift(self, find: Callable[[], Drift]) -> None:
        """Simulate in another thread, while steps go on."""

        def simulate() -> None:
            self._inbox.put(partial(self._hear_drift, find()))

        threading.Thread(target=simulate, name="tessera-drift", daemon=True).start()

    def _hear_drift(self, drift: Drift) -> None:
        self.counts.drifts.append(drift)
        if self.switch is not None:
            self.switch.pace = drift.planned_per_s / (drift.requests_per_s or 1.0)
        if self._on_drift is not None:
            self._on_drift(drift)

    def _take_over(self, serving: OpenedRuntime, over: threading.Event) -> None:
        """Give rows in another runtime from now on."""
        is_alike = state_shapes(self.runtime.programs) == state_shapes(serving.runtime.programs)
        self._homes.retire_all(over)
        self._scheduler.grow(serving.sizes, hands_over=is_alike)
        self._homes.add(serving.runtime, serving.monitor)
        self._ahead.add(serving.runtime, serving.chains)
        self._serving = replace(serving, sizes=self._scheduler.sizes)
