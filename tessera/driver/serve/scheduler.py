"""Which step comes next: continuous batching, for the engine and for the simulation alike.

In: jobs (the token counts of a prompt and its answer), and notice that a step is done. Out: the
next step of a batch. Nothing here knows of clocks, arrays or devices.

A batch is one copy of the states, with a row for each sequence. It does one step at a time; batches
go on side by side. A job gets a row when it is admitted and keeps it to its end, unless it is
handed over to a row of another batch:

- Jobs are admitted in the order in which they came, to the batch with the fewest rows in use for
  its share of the requests; with a cache in blocks, only if all blocks that the job can ever need
  there are free. With several policies, only batches of the currently chosen policy take jobs.
- Where steps are mixed, a job gets the blocks of its prompt when it is admitted, shares those that
  hold the same tokens already (`block_cache`), and gets one block after the other for its answer.
  Every other job in the batch leaves one block free for its next one. If none is left, the job of
  the batch that came last goes back in line: its tokens are known, and are computed once more. The
  job that came first is never sent back and fits alone, so all jobs end.
- Batches that serve only some steps have roles. A prompt is read in a batch that serves prefill
  steps. If that batch serves no decode steps, the job is handed over to one that does: the first
  job that waits for that gets the first row, before any prompt in line does. If a batch serves
  less of the answers than of the prompts, it hands over the difference, and keeps jobs for which
  there is no room elsewhere; batches that serve more keep rows free for these. So a job waits only
  where nothing is decoded, for rows that answers leave: no two batches can wait for one another.
- A hand-over (`RowMove`) has its row and its blocks in the other batch before it begins. Until it
  has ended the batch that it leaves owns the job, and both rows stay taken, whatever happens.
- The first `Sizes.prefilled(prompt)` tokens of a prompt go through prefill steps, a chunk at a
  time. The rest of the prompt goes through decode steps, like the tokens of the answer.
- If prefill steps give tokens, the last prefill step of a prompt gives the answer's first token.
- Of the jobs whose step has faulted before, one has a row at a time; others may overtake them.
- A batch decodes all its rows at once. At most `burst` prefill steps come between two decode steps.
- Where steps are mixed, every step takes a token of each row that is answered, and chunks of
  prompts in order: as many tokens as the largest step has room for, or as `pace` says.
- Of several steps that fit, the one with the fewest rows (or the shortest chunk that holds what is
  left, else the longest) is taken, then the one with the shortest context.

Longer than 400 lines because steps, hand-overs and ends change the same lists of a batch.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tessera.driver.serve.batches import Batch, Sizes, StepSize, StepWork
from tessera.driver.serve.jobs import Job, RowMove
from tessera.driver.serve.move_turns import MoveTurns
from tessera.driver.serve.step_pace import StepPace

_ROUNDED = 1e-6


class Scheduler:
    """Jobs in line, batches with rows, and what each batch does next.

    Without `numbers_blocks` blocks are only counted, so that jobs of any length take little memory.
    """

    def __init__(
        self,
        sizes: Sizes,
        *,
        burst: int = 1,
        pace: StepPace | None = None,
        reuse: bool = True,
        numbers_blocks: bool = True,
    ) -> None:
        self.sizes = sizes
        self.reuse = reuse
        self.reused = 0
        """Tokens of prompts that were not computed, because blocks held them."""
        self.preempted = 0
        """How often a job went back in line because no block was left."""
        self.burst = burst
        self.pace = pace
        self.numbers_blocks = numbers_blocks
        self.policy = ""
        """The policy of jobs that get a row; the caller sets it if there are several."""
        self.unfilled = 0
        """Tokens of prompts that have a row and have not been through a prefill step."""
        self.line: deque[Job] = deque()
        self.parked: deque[Job] = deque()
        """Jobs whose prompt is read where they are not answered; they wait for a row elsewhere."""
        self.batches = [self._batch(number) for number in range(sizes.batches)]
        self.turns = MoveTurns(self.batches)

    def _batch(self, number: int) -> Batch:
        return Batch(number, self.sizes, numbers_blocks=self.numbers_blocks)

    def add(self, job: Job) -> list[Job]:
        """Add a job, which `Sizes.holds` must accept; returns the jobs that get a row."""
        self.line.append(job)
        return self.admit()

    def admit(self) -> list[Job]:
        """Give rows to the jobs that are first in line; returns these jobs."""
        seated: list[Job] = []
        held = 0  # jobs at the head of the line that may not be beside others of their kind
        while len(self.line) > held:
            job = self.line[held]
            if job.is_suspect and any(batch.has_suspect for batch in self.batches):
                held += 1
                continue
            job.to_prefill = self.sizes.prefilled(job.prompt)
            if not (self.reuse and self.sizes.is_mixed):
                job.content = None
            rooms = self._rooms(job)
            if not rooms:
                break
            del self.line[held]
            by_role = bool(self.sizes.serves)
            self._seat(job, min(rooms, key=lambda own: own.seat_load(by_role=by_role)))
            seated.append(job)
        return seated

    def _rooms(self, job: Job) -> list[Batch]:
        """The batches that may take a job from the line."""
        rooms = [
            batch
            for batch in self.batches
            if batch.free_rows
            and batch.is_open
            and (not batch.policies or self.policy in batch.policies)
            and batch.cache.fits(
                job, self._blocks(batch, job), batch.used if batch.sizes.is_mixed else 0
            )
        ]
        if not (self.sizes.serves or self.parked):
            return rooms
        return [
            batch
            for batch in rooms
            if (batch.fills if job.to_prefill else batch.decodes) > 0
            and not (batch.decodes and self._is_awaited(batch))
            and not self._is_kept(batch, job)
        ]

    def _blocks(self, batch: Batch, job: Job) -> int:
        """The blocks that a job needs in a batch before it gets there.

        In mixed steps those of its tokens until now; else the most that it can need, which without
        decode steps is for its prompt.
        """
        if batch.sizes.is_mixed:
            held = self.batches[job.batch].position(job) if job.batch >= 0 else 0
            return self.sizes.blocks_for(max(job.prompt, held), 1)
        return self.sizes.blocks_for(job.prompt, job.answer if batch.decodes else 1)

    def _is_awaited(self, batch: Batch) -> bool:
        """Whether a job that cannot be answered where it is may be handed over to a batch."""
        return any(batch.serves_policy(self._policy_of(job)) for job in self.parked)

    def _is_kept(self, batch: Batch, job: Job) -> bool:
        """Whether the rows and blocks that are free are for answers to prompts that others read.

        A batch that reads its share of the prompts, and gives more of the answers, keeps rows for
        those: else prompts in line would take all of them, and no share would be kept.
        """
        short = batch.decodes - batch.fills
        if not self.sizes.serves or short <= 0:
            return False
        others = [own for own in self.batches if own.is_open and own.policies == batch.policies]
        if batch.seated < batch.fills * sum(own.seated for own in others):
            return False
        coming = [(own.surplus, filling) for own in others for filling in own.filling]
        part = short / sum(max(own.decodes - own.fills, 0.0) for own in others)
        rows = part * sum(surplus for surplus, _ in coming)
        blocks = part * sum(surplus * self._blocks(batch, other) for surplus, other in coming)
        left = batch.cache.room - self._blocks(batch, job)
        return len(batch.free_rows) <= rows or left < blocks

    def _seat(self, job: Job, batch: Batch) -> None:
        batch.seated += 1
        job.batch, job.row = batch.number, heapq.heappop(batch.free_rows)
        job.policy = self.policy
        job.prefilled = batch.cache.seat(job, self._blocks(batch, job))
        self.reused += job.prefilled
        self.unfilled += job.to_prefill - job.prefilled
        if job.to_prefill:
            batch.filling.append(job)
        else:
            batch.joining.append(job)

    # --- steps ------------------------------------------------------------------------------------

    def take(self, number: int) -> StepWork | None:
        """The next step of a free batch; None if it has nothing to do, or a hand-over its turn."""
        batch = self.batches[number]
        if self.turns.moves and self.turns.holds(number):
            return None
        for job in batch.joining:
            job.joined, job.base = batch.steps, job.prefilled
            batch.decoding[job.row] = job
            if batch.sizes.is_mixed:
                self._mark_growth(job, batch)
        if batch.joining:
            batch.joining.clear()
            batch.find_longest()
        if batch.sizes.is_mixed:
            self._grow(batch)
            batch.at_work = self._mix(batch) if batch.filling or batch.decoding else None
        elif batch.filling and not (batch.decoding and batch.since_decode >= self.burst):
            batch.at_work = self._prefill(batch)
        elif batch.decoding:
            rows = len(batch.decoding)
            reach = batch.longest + batch.steps + 1
            size = batch.sizes.decode_step(rows, reach)
            batch.at_work = StepWork(size, self._trace(size, batch), number, [], rows, reach)
        return batch.at_work

    def _prefill(self, batch: Batch) -> StepWork:
        first = batch.filling[0]
        waiting = len(batch.filling)
        size = batch.sizes.chunk_step(waiting, first.prefilled, first.to_prefill - first.prefilled)
        chunks = [
            (job, min(size.tokens, job.to_prefill - job.prefilled))
            for job in list(batch.filling)[: size.rows]
            if job.prefilled + size.tokens <= size.context
        ]
        reach = max(job.prefilled + tokens for job, tokens in chunks)
        trace = self._trace(size, batch)
        return StepWork(size, trace, batch.number, chunks, len(chunks), reach)

    def _mix(self, batch: Batch) -> StepWork:
        """A token of each answer, and prompts for as many tokens as there is room for."""
        cache = batch.cache
        cache.turn += 1
        rows, most = len(batch.decoding), batch.sizes.decode[-1].tokens
        if self.pace is not None and batch.filling:
            waiting = sum(job.to_prefill - job.prefilled for job in batch.filling)
            most = max(min(most, self.pace.tokens(rows, waiting)), rows + 1)
        room, chunks = most - rows, []
        for job in batch.filling:
            if not room:
                break
            before = job.prefilled
            is_next = cache.skip(job)
            self.reused += job.prefilled - before
            self.unfilled -= job.prefilled - before
            if is_next:
                left = job.to_prefill - job.prefilled
                tokens = min(room, 1 if job.is_single else left)
                cache.keep(job, job.prefilled + tokens)
                chunks.append((job, tokens))
                room -= tokens
        reach = max((job.prefilled + tokens for job, tokens in chunks), default=0)
        reach = max(reach, batch.longest + batch.steps + 1)
        size = batch.sizes.mixed_step(most - room)
        trace = self._trace(size, batch)
        return StepWork(size, trace, batch.number, chunks, rows + len(chunks), reach)

    @staticmethod
    def _mark_growth(job: Job, batch: Batch) -> None:
        """Note the step of a batch before which an answer needs one more block."""
        step = job.joined + len(job.blocks) * batch.sizes.block - job.base
        heapq.heappush(batch.growing, (step, job.number, job.joined, job))

    def _grow(self, batch: Batch) -> None:
        """Give answers the blocks that the next step writes; jobs that came last make room."""
        while batch.growing and batch.growing[0][0] <= batch.steps:
            *_, joined, job = heapq.heappop(batch.growing)
            if batch.decoding.get(job.row) is not job or job.joined != joined:
                continue
            while not batch.cache.room and job.batch >= 0:
                seated = (*batch.filling, *batch.decoding.values())
                self._preempt(max(seated, key=lambda own: own.number), batch)
            if job.batch >= 0:
                batch.cache.grow(job)
                self._mark_growth(job, batch)

    def _preempt(self, job: Job, batch: Batch) -> None:
        """Send a job back in line, before those that came later; its answer is prompt now."""
        held, whole = batch.position(job), job.prompt + job.answer
        if batch.decoding.get(job.row) is job:
            job.prompt, job.answer = held + 1, whole - held - 1
        self._leave(job, batch)
        batch.free(job, held)
        before = sum(1 for own in self.line if own.number < job.number)
        self.line.insert(before, job)
        self.preempted += 1

    def _trace(self, size: StepSize, batch: Batch) -> int:
        """The trace of a step under the current policy, if the batch serves that policy."""
        policies = batch.policies
        policy = self.policy if self.policy in policies or not policies else policies[0]
        return size.trace + self.sizes.ways.get(policy, 0)

    def after(self, work: StepWork, leaving: int) -> StepWork:
        """The decode step after the one under way, if `leaving` rows leave with that one."""
        sizes = self.batches[work.batch].sizes
        size = sizes.decode_step(work.rows - leaving, work.reach + 1)
        return replace(work, size=size, rows=work.rows - leaving, reach=work.reach + 1)

    def done(self, work: StepWork) -> None:
        """Note that a step is done; `end` drops the jobs that it ends."""
        batch = self.batches[work.batch]
        batch.at_work = None
        batch.steps += work.answers
        batch.since_decode = 0 if work.answers else batch.since_decode + 1
        for job, tokens in work.chunks:
            job.prefilled += tokens
            self.unfilled -= 0 if job.dropped else tokens
            if job.prefilled == job.to_prefill and not job.dropped:
                batch.filling.remove(job)
                self._read(job, batch)

    # --- hand-overs -------------------------------------------------------------------------------

    def _read(self, job: Job, batch: Batch) -> None:
        """A prompt has been read: the job is answered here, or is to be handed over."""
        if batch.decodes:
            batch.owed += batch.surplus
            if batch.owed < 1 - _ROUNDED:
                batch.joining.append(job)
                return
        batch.leaving[job.row] = job
        self.parked.append(job)

    def _policy_of(self, job: Job) -> str:
        """The policy of a job where it goes; a batch that retires may be of another plan."""
        return self.policy if self.batches[job.batch].retires else job.policy

    def hand_over(self) -> None:
        """Reserve rows for the jobs that wait to be handed over, in order.

        `turns` says when each move begins; `moved` ends it.
        """
        full: set[str] = set()
        for job in tuple(self.parked):
            source, policy = self.batches[job.batch], self._policy_of(job)
            target = None if policy in full else self._target(job, policy, short=source.decodes > 0)
            if target is not None:
                self.parked.remove(job)
                source.owed = max(source.owed - 1, 0.0)
                self._reserve(job, target, policy)
            elif source.decodes:  # it is answered where it is
                self.parked.remove(job)
                del source.leaving[job.row]
                source.joining.append(job)
            else:
                full.add(policy)

    def shift(self, pays: Callable[[Job, Batch, Batch], bool]) -> None:
        """Hand over answers under way to batches of the current policy, where that `pays`.

        Only between two steps of their batch, and not while prompts wait for a row. Answers in
        batches that retire are handed over in any case.
        """
        for batch in self.batches:
            stays = batch.serves_policy(self.policy) and not batch.retires
            if stays or batch.at_work is not None or self.parked:
                continue
            for job in [*batch.decoding.values(), *batch.joining]:
                target = self._target(job, self.policy)
                if target is None or not (
                    batch.retires or (not self.line and pays(job, batch, target))
                ):
                    continue
                job.prefilled = batch.position(job)
                self._leave(job, batch)
                batch.leaving[job.row] = job
                self._reserve(job, target, self.policy)

    def _target(self, job: Job, policy: str, *, short: bool = False) -> Batch | None:
        """The batch with the fewest answers for its share that has room for a job.

        With `short`, only batches that read less prompts than they give answers.
        """
        rooms = [
            batch
            for batch in self.batches
            if batch.decodes
            and batch.is_open
            and batch.free_rows
            and batch.number != job.batch
            and (batch.decodes > batch.fills or not short)
            and batch.serves_policy(policy)
            and batch.cache.room >= self._blocks(batch, job)
        ]
        return min(rooms, key=lambda batch: (batch.answering + 1) / batch.decodes, default=None)

    def _reserve(self, job: Job, target: Batch, policy: str) -> None:
        job.move = move = RowMove(
            job=job,
            source=job.batch,
            target=target.number,
            row=heapq.heappop(target.free_rows),
            blocks=target.cache.take(self._blocks(target, job)),
            tokens=job.prefilled,
            policy=policy,
        )
        target.reserved[move.row] = move
        self.turns.add(move)

    def moved(self, move: RowMove, *, arrived: bool) -> bool:
        """Note the end of a hand-over; returns whether the other batch owns the job now.

        If the states did not arrive, the job is where it was. Of a job that was dropped, or that
        was lost with its batch, all rows become free.
        """
        job, move.job.move = move.job, None
        self.turns.remove(move)
        source, target = self.batches[move.source], self.batches[move.target]
        is_here = arrived and not (job.dropped or move.source_is_lost or move.target_is_lost)
        if not move.target_is_lost:
            del target.reserved[move.row]
            if not is_here:
                heapq.heappush(target.free_rows, move.row)
                target.cache.give(move.blocks)
        if not move.source_is_lost and (is_here or job.dropped):
            del source.leaving[job.row]
            source.free(job, job.prefilled)
        elif not move.source_is_lost and source.decodes:
            del source.leaving[job.row]
            source.joining.append(job)
        elif not move.source_is_lost:
            self.parked.appendleft(job)
        if is_here:
            job.batch, job.row, job.blocks = move.target, move.row, move.blocks
            job.policy = move.policy
            target.joining.append(job)
        return is_here

    # --- ends, and other batches ------------------------------------------------------------------

    def grow(self, sizes: Sizes, *, hands_over: bool = False) -> None:
        """Add the batches of `sizes`; the existing batches take no more jobs.

        With `hands_over`, jobs of existing batches are handed over to the new ones.
        """
        old, count = self.sizes, len(self.batches)
        for batch in self.batches:
            batch.is_open, batch.retires = False, hands_over
        policies = (*(old.policies or ((),) * count), *(sizes.policies or ((),) * sizes.batches))
        shares = (*(old.shares or (1.0,) * count), *(sizes.shares or (1.0,) * sizes.batches))
        serves: tuple[tuple[float, ...], ...] = ()
        if old.serves or sizes.serves:
            every = (1.0,) * (1 + max(step.trace for step in sizes.steps))
            serves = (
                *(old.serves or (every,) * count),
                *(sizes.serves or (every,) * sizes.batches),
            )
        total = count + sizes.batches
        self.sizes = replace(sizes, batches=total, policies=policies, shares=shares, serves=serves)
        self.batches += [self._batch(number) for number in range(count, total)]

    def clear(self, number: int) -> list[Job]:
        """Empty a batch that lost its states, and shut it until it is opened; returns its jobs.

        Jobs that were on their way here are where they were, once their hand-over has ended.
        """
        old = self.batches[number]
        self.batches[number] = self._batch(number)
        self.batches[number].is_open = False
        self.batches[number].retires = old.retires
        self.unfilled -= sum(job.to_prefill - job.prefilled for job in old.filling)
        for job in old.leaving.values():
            if job.move is None:
                self.parked.remove(job)
            else:
                job.move.source_is_lost = True
        for move in old.reserved.values():
            move.target_is_lost = True
        moves = (*(job.move for job in old.leaving.values()), *old.reserved.values())
        for move in [own for own in moves if own is not None and not own.is_begun]:
            self.moved(move, arrived=False)
        jobs = (*old.filling, *old.joining, *old.decoding.values(), *old.leaving.values())
        return [job for job in jobs if not job.dropped]

    def end(self, job: Job) -> None:
        """Drop a job that is done or cancelled; not while a step of its batch is under way."""
        job.dropped = True
        if job.batch < 0:
            if job in self.line:
                self.line.remove(job)
            return
        if job.move is not None:
            if not job.move.is_begun:
                self.moved(job.move, arrived=False)
            return
        batch = self.batches[job.batch]
        held = batch.position(job)
        self._leave(job, batch)
        batch.free(job, held)

    def _leave(self, job: Job, batch: Batch) -> None:
        """Take a job off the lists of its batch."""
        if batch.decoding.get(job.row) is job:
            del batch.decoding[job.row]
            batch.find_longest()
        elif job in batch.joining:
            batch.joining.remove(job)
        elif batch.leaving.get(job.row) is job:
            del batch.leaving[job.row]
            self.parked.remove(job)
        elif job in batch.filling:
            batch.filling.remove(job)
            self.unfilled -= job.to_prefill - job.prefilled
