"""Which step comes next: continuous batching, for the engine and for the simulation alike.

In: jobs (the token counts of a prompt and its answer), and notice that a step is done. Out: the
next step of a batch. Nothing here knows of clocks, arrays or devices.

A batch is one copy of the states, with a row for each sequence. It does one step at a time; batches
go on side by side. A job gets a row when it is admitted and keeps it to its end:

- Jobs are admitted in the order in which they came, to the batch with the fewest rows in use for
  its share of the requests; with a cache in blocks, only if all blocks that the job can ever need
  are free. With several policies, only batches of the currently chosen policy take jobs.
- The first `Sizes.prefilled(prompt)` tokens of a prompt go through prefill steps, a chunk at a
  time. The rest of the prompt goes through decode steps, like the tokens of the answer.
- If prefill steps give tokens, the last prefill step of a prompt gives the answer's first token.
- A batch decodes all its rows at once. At most `burst` prefill steps come between two decode steps.
- Of several steps that fit, the one with the fewest rows (or the shortest chunk that holds what is
  left, else the longest) is taken, then the one with the shortest context.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """The size of a step: `tokens` of each of `rows` sequences, after `context` earlier tokens.

    `trace` is the number of the step's trace in the plan.
    """

    trace: int
    rows: int
    tokens: int
    context: int

    @property
    def is_decode(self) -> bool:
        """Whether it takes one token of each sequence."""
        return self.tokens == 1


def _order(step: StepSize) -> tuple[int, int, int]:
    return step.rows, step.tokens, step.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the scheduler knows of a model: its steps, and the capacity of a batch.

    The sequences of a batch share `blocks` blocks of `block` tokens each; with 0 blocks, each row
    has a cache of its own, or a state of fixed size. `policies` are those of each batch; `shares`
    are the parts of its policy's requests that each batch is made for (empty: all alike). `ways`
    gives, for each policy, the offset added to a step's trace number, if batches serve several.
    """

    steps: tuple[StepSize, ...]
    batches: int
    rows: int
    context: int
    first_from_prefill: bool = False
    blocks: int = 0
    block: int = 0
    policies: tuple[tuple[str, ...], ...] = ()
    shares: tuple[float, ...] = ()
    ways: Mapping[str, int] = field(default_factory=dict)
    prefill: tuple[StepSize, ...] = field(init=False)
    decode: tuple[StepSize, ...] = field(init=False)

    def __post_init__(self) -> None:
        chunks = [step for step in self.steps if not step.is_decode]
        single = [step for step in self.steps if step.is_decode]
        object.__setattr__(self, "prefill", tuple(sorted(chunks, key=_order)))
        object.__setattr__(self, "decode", tuple(sorted(single, key=_order)))

    def prefilled(self, prompt: int) -> int:
        """The number of tokens of a prompt that go through prefill steps."""
        if not self.prefill:
            return 0
        return prompt if self.first_from_prefill else prompt - 1

    def decode_steps(self, prompt: int, answer: int) -> int:
        """The number of decode steps in which a job takes part."""
        return prompt - self.prefilled(prompt) + answer - 1

    def blocks_for(self, prompt: int, answer: int) -> int:
        """The most blocks that a job can need: the last token of an answer is not kept."""
        return ceil((prompt + answer - 1) / self.block) if self.blocks else 0

    def holds(self, prompt: int, answer: int) -> bool:
        """Whether a batch has room for a job of these lengths."""
        fits = prompt + answer - 1 <= self.context
        return fits and self.blocks_for(prompt, answer) <= self.blocks

    def chunk_step(self, rows: int, start: int, left: int) -> StepSize:
        """The prefill step for a prompt from token `start` on, with `left` tokens left."""
        room = [step for step in self.prefill if start + step.tokens <= step.context]
        usable = [step for step in room if step.rows >= rows] or room
        enough = [step for step in usable if step.tokens >= left]
        if enough:
            return min(enough, key=lambda step: (step.tokens, step.context, step.rows))
        return max(usable, key=lambda step: (step.tokens, -step.context, -step.rows))

    def decode_step(self, rows: int, longest: int) -> StepSize:
        """The smallest decode step for `rows` rows, the longest of which has `longest` tokens."""
        for step in self.decode:
            if step.rows >= rows and step.context >= longest:
                return step
        return self.decode[-1]


class Job:
    """One prompt and the progress of its answer."""

    __slots__ = (
        "answer",
        "base",
        "batch",
        "blocks",
        "dropped",
        "joined",
        "number",
        "policy",
        "prefilled",
        "prompt",
        "row",
        "to_prefill",
    )

    def __init__(self, number: int, prompt: int, answer: int) -> None:
        self.number = number
        self.prompt = prompt
        self.answer = answer
        self.batch = -1
        self.row = -1
        self.blocks: Sequence[int] = ()
        self.to_prefill = 0
        self.prefilled = 0
        self.joined = 0
        self.base = 0
        self.dropped = False
        self.policy = ""


@dataclass(slots=True)
class StepWork:
    """A step that a batch takes: its jobs with their rows, and the number of tokens of each.

    The jobs of a decode step are those in `Batch.decoding`, one token of each. `reach` is the
    number of tokens that the longest of them has after this step. `trace` is the trace of the
    policy by which the step runs.
    """

    size: StepSize
    trace: int
    batch: int
    chunks: list[tuple[Job, int]]
    rows: int
    reach: int

    @property
    def is_decode(self) -> bool:
        """Whether all rows of the batch get a token."""
        return self.size.is_decode


class Batch:
    """The rows of one copy of the states."""

    def __init__(self, number: int, sizes: Sizes) -> None:
        self.number = number
        self.blocks = sizes.blocks
        self.policies = sizes.policies[number] if sizes.policies else ()
        self.share = sizes.shares[number] if sizes.shares else 1.0
        self.is_open = True
        self.free_rows = list(range(sizes.rows))
        self.room = sizes.blocks
        """Blocks that are free."""
        self._returned: deque[int] = deque()
        self._fresh = 1
        self.filling: deque[Job] = deque()
        self.joining: list[Job] = []
        self.decoding: dict[int, Job] = {}
        self.steps = 0
        self.since_decode = 0
        self.longest = 0
        self.at_work: StepWork | None = None

    @property
    def used(self) -> int:
        """The number of rows that have a job."""
        return len(self.filling) + len(self.joining) + len(self.decoding)

    def take_blocks(self, count: int) -> list[int]:
        """Take free blocks and give their numbers: unused blocks first, then the oldest."""
        self.room -= count
        fresh = min(count, self.blocks - self._fresh + 1)
        self._fresh += fresh
        taken = list(range(self._fresh - fresh, self._fresh))
        return taken + [self._returned.popleft() for _ in range(count - fresh)]

    def give_back(self, blocks: Sequence[int], *, numbered: bool) -> None:
        """Free blocks."""
        self.room += len(blocks)
        if numbered:
            self._returned.extend(blocks)

    def position(self, job: Job) -> int:
        """The number of tokens of a job that the states hold."""
        return job.base + self.steps - job.joined if job.row in self.decoding else job.prefilled

    def find_longest(self) -> None:
        """Find how far the longest row is ahead of the steps, after rows have joined or left."""
        self.longest = max((job.base - job.joined for job in self.decoding.values()), default=0)


class Scheduler:
    """Jobs in line, batches with rows, and what each batch does next.

    Without `numbers_blocks` blocks are only counted, so that jobs of any length take little memory.
    """

    def __init__(self, sizes: Sizes, *, burst: int = 1, numbers_blocks: bool = True) -> None:
        self.sizes = sizes
        self.burst = burst
        self.numbers_blocks = numbers_blocks
        self.policy = ""
        """The policy of jobs that get a row; the caller sets it if there are several."""
        self.unfilled = 0
        """Tokens of prompts that have a row and have not been through a prefill step."""
        self.line: deque[Job] = deque()
        self.batches = [Batch(number, sizes) for number in range(sizes.batches)]

    def add(self, job: Job) -> list[Job]:
        """Add a job, which `Sizes.holds` must accept; returns the jobs that get a row."""
        self.line.append(job)
        return self.admit()

    def admit(self) -> list[Job]:
        """Give rows to the jobs that are first in line; returns these jobs."""
        seated: list[Job] = []
        while self.line:
            job = self.line[0]
            needed = self.sizes.blocks_for(job.prompt, job.answer)
            rooms = [
                batch
                for batch in self.batches
                if batch.free_rows
                and batch.is_open
                and batch.room >= needed
                and (not batch.policies or self.policy in batch.policies)
            ]
            if not rooms:
                break
            self.line.popleft()
            self._seat(job, min(rooms, key=lambda batch: (batch.used + 1) / batch.share), needed)
            seated.append(job)
        return seated

    def _seat(self, job: Job, batch: Batch, blocks: int) -> None:
        job.batch, job.row = batch.number, heapq.heappop(batch.free_rows)
        job.policy = self.policy
        if self.numbers_blocks:
            job.blocks = batch.take_blocks(blocks)
        else:
            job.blocks = range(blocks)
            batch.room -= blocks
        job.to_prefill = self.sizes.prefilled(job.prompt)
        self.unfilled += job.to_prefill
        if job.to_prefill:
            batch.filling.append(job)
        else:
            batch.joining.append(job)

    def take(self, number: int) -> StepWork | None:
        """The next step of a free batch; None if it has nothing to do."""
        batch = self.batches[number]
        for job in batch.joining:
            job.joined, job.base = batch.steps, job.prefilled
            batch.decoding[job.row] = job
        if batch.joining:
            batch.joining.clear()
            batch.find_longest()
        if batch.filling and not (batch.decoding and batch.since_decode >= self.burst):
            batch.at_work = self._prefill(batch)
        elif batch.decoding:
            rows = len(batch.decoding)
            reach = batch.longest + batch.steps + 1
            size = self.sizes.decode_step(rows, reach)
            batch.at_work = StepWork(size, self._trace(size, batch), number, [], rows, reach)
        return batch.at_work

    def _prefill(self, batch: Batch) -> StepWork:
        first = batch.filling[0]
        waiting = len(batch.filling)
        size = self.sizes.chunk_step(waiting, first.prefilled, first.to_prefill - first.prefilled)
        chunks = [
            (job, min(size.tokens, job.to_prefill - job.prefilled))
            for job in list(batch.filling)[: size.rows]
            if job.prefilled + size.tokens <= size.context
        ]
        reach = max(job.prefilled + tokens for job, tokens in chunks)
        trace = self._trace(size, batch)
        return StepWork(size, trace, batch.number, chunks, len(chunks), reach)

    def _trace(self, size: StepSize, batch: Batch) -> int:
        """The trace of a step under the current policy, if the batch serves that policy."""
        policies = batch.policies
        policy = self.policy if self.policy in policies or not policies else policies[0]
        return size.trace + self.sizes.ways.get(policy, 0)

    def after(self, work: StepWork, leaving: int) -> StepWork:
        """The decode step after the one under way, if `leaving` rows leave with that one."""
        size = self.sizes.decode_step(work.rows - leaving, work.reach + 1)
        return replace(work, size=size, rows=work.rows - leaving, reach=work.reach + 1)

    def done(self, work: StepWork) -> None:
        """Note that a step is done; `end` drops the jobs that it ends."""
        batch = self.batches[work.batch]
        batch.at_work = None
        if work.is_decode:
            batch.steps += 1
            batch.since_decode = 0
        else:
            batch.since_decode += 1
            for job, tokens in work.chunks:
                job.prefilled += tokens
                self.unfilled -= 0 if job.dropped else tokens
                if job.prefilled == job.to_prefill and not job.dropped:
                    batch.filling.remove(job)
                    batch.joining.append(job)

    def grow(self, sizes: Sizes) -> None:
        """Add the batches of `sizes`; the existing batches take no more jobs."""
        old, count = self.sizes, len(self.batches)
        for batch in self.batches:
            batch.is_open = False
        policies = (*(old.policies or ((),) * count), *(sizes.policies or ((),) * sizes.batches))
        shares = (*(old.shares or (1.0,) * count), *(sizes.shares or (1.0,) * sizes.batches))
        total = count + sizes.batches
        self.sizes = replace(sizes, batches=total, policies=policies, shares=shares)
        self.batches += [Batch(number, self.sizes) for number in range(count, total)]

    def clear(self, number: int) -> list[Job]:
        """Empty a batch that lost its states, and shut it until it is opened; returns its jobs."""
        old = self.batches[number]
        self.batches[number] = Batch(number, self.sizes)
        self.batches[number].is_open = False
        self.unfilled -= sum(job.to_prefill - job.prefilled for job in old.filling)
        return [*old.filling, *old.joining, *old.decoding.values()]

    def end(self, job: Job) -> None:
        """Drop a job that is done or cancelled; not while a step of its batch is under way."""
        job.dropped = True
        if job.batch < 0:
            if job in self.line:
                self.line.remove(job)
            return
        batch = self.batches[job.batch]
        if batch.decoding.get(job.row) is job:
            del batch.decoding[job.row]
            batch.find_longest()
        elif job in batch.joining:
            batch.joining.remove(job)
        elif job in batch.filling:
            batch.filling.remove(job)
            self.unfilled -= job.to_prefill - job.prefilled
        heapq.heappush(batch.free_rows, job.row)
        batch.give_back(job.blocks, numbered=self.numbers_blocks)
        job.batch, job.blocks = -1, ()
