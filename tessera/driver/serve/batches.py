"""Batches of sequences: the sizes of steps, and the rows of a batch.

In: nothing. Out: the records that `scheduler` changes. A batch is one copy of the states, with a
row for each sequence. `Sizes.serves` gives batches roles: a batch takes only steps of traces that
it serves a share of.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from tessera.driver.serve.block_cache import BlockCache
from tessera.driver.serve.jobs import Job, RowMove


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """The size of a step: `tokens` of each of `rows` sequences, after `context` earlier tokens.

    `trace` is the number of the step's trace in the plan. A mixed step takes `tokens` in all, of
    prompts and answers of up to `rows` sequences.
    """

    trace: int
    rows: int
    tokens: int
    context: int
    is_mixed: bool = False

    @property
    def is_decode(self) -> bool:
        """Whether it takes one token of each sequence."""
        return self.tokens == 1 and not self.is_mixed

    @property
    def answers(self) -> bool:
        """Whether all rows that are answered get a token."""
        return self.is_decode or self.is_mixed

    @property
    def all_tokens(self) -> int:
        """The most tokens of all rows together."""
        return self.tokens if self.is_mixed else self.tokens * self.rows


def _order(step: StepSize) -> tuple[int, int, int]:
    return step.rows, step.tokens, step.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What the scheduler knows of a model: its steps, and the capacity of a batch.

    The sequences of a batch share `blocks` blocks of `block` tokens each; with 0 blocks, each row
    has a cache of its own, or a state of fixed size. `policies` are those of each batch; `shares`
    are the parts of its policy's requests that each batch is made for (empty: all alike). `ways`
    gives, for each policy, the offset added to a step's trace number, if batches serve several.
    `serves` has, for each batch, its share of the requests of each trace (empty: every batch serves
    all traces alike, so no sequence is handed over). `token_axis` is the length of the second axis
    of states if that counts tokens, of a row or of a block: then only tokens that are there move.
    Mixed steps count among those for prompts (`prefill`) and those for answers (`decode`).
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
    serves: tuple[tuple[float, ...], ...] = ()
    token_axis: int = 0
    prefill: tuple[StepSize, ...] = field(init=False)
    decode: tuple[StepSize, ...] = field(init=False)

    def __post_init__(self) -> None:
        chunks = [step for step in self.steps if not step.is_decode]
        single = [step for step in self.steps if step.answers]
        object.__setattr__(self, "prefill", tuple(sorted(chunks, key=_order)))
        object.__setattr__(self, "decode", tuple(sorted(single, key=_order)))

    def served_by(self, batch: int) -> Sizes:
        """The same sizes with only the steps that a batch serves."""
        if not self.serves:
            return self
        own = self.serves[batch]
        return replace(self, steps=tuple(step for step in self.steps if own[step.trace] > 0))

    def share_of(self, batch: int, steps: Sequence[StepSize]) -> float:
        """The share of requests for which a batch takes these steps."""
        if not self.serves:
            return self.shares[batch] if self.shares else 1.0
        own = self.serves[batch]
        return sum(own[step.trace] for step in steps) / len(steps) if steps else 0.0

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

    def longest_answer(self, prompt: int) -> int:
        """The most tokens of an answer to a prompt; 0 or less if there is no room for it."""
        most = min(self.context, self.blocks * self.block) if self.blocks else self.context
        return most - prompt + 1

    def chunk_step(self, rows: int, start: int, left: int) -> StepSize:
        """The prefill step for a prompt from token `start` on, with `left` tokens left."""
        room = [step for step in self.prefill if start + step.tokens <= step.context]
        usable = [step for step in room if step.rows >= rows] or room
        enough = [step for step in usable if step.tokens >= left]
        if enough:
            return min(enough, key=lambda step: (step.tokens, step.context, step.rows))
        return max(usable, key=lambda step: (step.tokens, -step.context, -step.rows))

    @property
    def is_mixed(self) -> bool:
        """Whether prompts and answers share steps."""
        return bool(self.steps) and self.steps[0].is_mixed

    def mixed_step(self, tokens: int) -> StepSize:
        """The smallest step for so many tokens; the largest if none has room for all of them."""
        return next((step for step in self.decode if step.tokens >= tokens), self.decode[-1])

    def decode_step(self, rows: int, longest: int) -> StepSize:
        """The smallest decode step for `rows` rows, the longest of which has `longest` tokens."""
        for step in self.decode:
            if step.rows >= rows and step.context >= longest:
                return step
        return self.decode[-1]


@dataclass(slots=True)
class StepWork:
    """A step that a batch takes: its jobs with their rows, and the number of tokens of each.

    The jobs of a decode step are those in `Batch.decoding`, one token of each; a mixed step takes
    those and `chunks` of prompts. `reach` is the number of tokens that the longest of them has
    after this step. `trace` is the trace of the policy by which the step runs.
    """

    size: StepSize
    trace: int
    batch: int
    chunks: list[tuple[Job, int]]
    rows: int
    reach: int

    @property
    def answers(self) -> bool:
        """Whether all rows of the batch that are answered get a token."""
        return self.size.answers


class Batch:
    """The rows of one copy of the states."""

    def __init__(self, number: int, sizes: Sizes, *, numbers_blocks: bool = True) -> None:
        self.number = number
        self.policies = sizes.policies[number] if sizes.policies else ()
        self.sizes = sizes.served_by(number)
        self.fills = sizes.share_of(number, sizes.prefill)
        """The share of prompts that it reads."""
        self.decodes = sizes.share_of(number, sizes.decode)
        """The share of answers that it gives."""
        self.is_open = True
        self.retires = False
        widest = max((step.rows for step in self.sizes.decode), default=sizes.rows)
        self.free_rows = list(range(min(sizes.rows, widest)))
        self.cache = BlockCache(sizes.blocks, sizes.block, is_numbered=numbers_blocks)
        self.growing: list[tuple[int, int, int, Job]] = []
        """The steps at which answers need one more block, with number and `joined` of their job."""
        self.filling: deque[Job] = deque()
        self.joining: list[Job] = []
        self.decoding: dict[int, Job] = {}
        self.leaving: dict[int, Job] = {}
        """Jobs that are handed over, or wait until they can be, by row."""
        self.reserved: dict[int, RowMove] = {}
        """Rows for jobs that are on their way here."""
        self.seated = 0
        """Prompts that got a row here."""
        self.steps = 0
        self.since_decode = 0
        self.owed = 0.0
        """Prompts that were read here and should be answered elsewhere."""
        self.longest = 0
        self.at_work: StepWork | None = None

    @property
    def answering(self) -> int:
        """The number of rows of answers, with those that are on their way."""
        return len(self.joining) + len(self.decoding) + len(self.reserved)

    @property
    def used(self) -> int:
        """The number of rows that are not free."""
        return len(self.filling) + len(self.leaving) + self.answering

    @property
    def has_suspect(self) -> bool:
        """Whether a job whose step has faulted before has a row."""
        jobs = (*self.filling, *self.joining, *self.decoding.values(), *self.leaving.values())
        return any(job.is_suspect for job in jobs)

    @property
    def surplus(self) -> float:
        """The part of the prompts read here that is answered elsewhere."""
        return max(1 - self.decodes / self.fills, 0.0) if self.fills else 0.0

    def serves_policy(self, policy: str) -> bool:
        """Whether it takes jobs of a policy."""
        return not self.policies or policy in self.policies

    def seat_load(self, *, by_role: bool) -> float:
        """How much it has to do for its share of prompts, with one more of them."""
        own = len(self.filling) if by_role else self.used
        return (own + 1) / (self.fills or 1.0)

    def free(self, job: Job, tokens: int) -> None:
        """Free the row and the blocks of a job, which hold `tokens` of its tokens."""
        heapq.heappush(self.free_rows, job.row)
        self.cache.leave(job, tokens)
        job.batch = -1

    def position(self, job: Job) -> int:
        """The number of tokens of a job that the states hold."""
        is_decoding = self.decoding.get(job.row) is job
        return job.base + self.steps - job.joined if is_decoding else job.prefilled

    def row_position(self, row: int) -> int:
        """The number of tokens of a sequence that a row holds, or is about to hold."""
        if row in self.reserved:
            return self.reserved[row].tokens
        job = self.decoding.get(row) or self.leaving.get(row)
        job = job or next((own for own in self.filling if own.row == row), None)
        return 0 if job is None else self.position(job)

    def find_longest(self) -> None:
        """Find how far the longest row is ahead of the steps, after rows have joined or left."""
        self.longest = max((job.base - job.joined for job in self.decoding.values()), default=0)
