"""The blocks of a batch: which are free, which jobs have them, and which hold prefixes to share.

In: jobs, and how far each has been computed. Out: the blocks of each job, and how many tokens of a
prompt need not be computed, because blocks hold them already.

Only whole blocks are shared, and a shared block is never written again: a job computes at least the
last token of its prompt, into blocks of its own, so nothing is copied. A `PrefixBlock` is found by
the block before it and its own tokens, which a dictionary compares where their hashes are equal; so
one that is found has the tokens of its whole prefix. The first one is found by the owner of a job:
owners share nothing. Blocks that no job has stay until their room is needed, and the one that was
used longest ago goes first, the end of a sequence before its beginning. Every batch has blocks of
its own, so they never outlive the weights and the plan that computed them.

A block may be shared as soon as the step that writes it has been taken: steps of a batch come one
after the other. Within that step (`turn`), a prompt that needs the block waits for the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence

from tessera.driver.serve.jobs import Job, PrefixBlock

_WRITTEN = -1


class BlockCache:
    """`count` blocks of `block` tokens each; without `is_numbered` they are only counted."""

    def __init__(self, count: int, block: int, *, is_numbered: bool) -> None:
        self.block = block
        self.room = count
        """Blocks that no job has, with those that hold unused prefixes."""
        self.turn = 0
        """The number of the step that is being made."""
        self._count = count
        self._is_numbered = is_numbered
        self._returned: deque[int] = deque()
        self._fresh = 1
        self._kept: dict[tuple[Hashable, Hashable], PrefixBlock] = {}
        self._unused: dict[PrefixBlock, None] = {}
        """Prefixes that no job has, the one used longest ago first."""

    def take(self, count: int) -> Sequence[int]:
        """Take blocks and give their numbers: unused ones first, then the oldest."""
        while self._unused and self.room - len(self._unused) < count:
            oldest = next(iter(self._unused))
            del self._unused[oldest], self._kept[oldest.key]
            self._return((oldest.block,))
        self.room -= count
        if not self._is_numbered:
            return range(count)
        fresh = min(count, self._count - self._fresh + 1)
        self._fresh += fresh
        taken = list(range(self._fresh - fresh, self._fresh))
        return taken + [self._returned.popleft() for _ in range(count - fresh)]

    def give(self, blocks: Sequence[int]) -> None:
        """Give blocks back."""
        self.room += len(blocks)
        self._return(blocks)

    def _return(self, blocks: Sequence[int]) -> None:
        if self._is_numbered:
            self._returned.extend(blocks)

    # --- jobs -------------------------------------------------------------------------------------

    def fits(self, job: Job, needed: int, spare: int) -> bool:
        """Whether a job can have its `needed` blocks, and `spare` ones are left."""
        if self.room >= needed + spare:
            return True
        shared = self._prefix(job)
        idle = sum(not own.users for own in shared)
        return self.room - idle >= needed - len(shared) + spare

    def _prefix(self, job: Job) -> list[PrefixBlock]:
        """The blocks that hold a job's prompt from its beginning on, without its last token."""
        shared: list[PrefixBlock] = []
        while (own := self._next(job, shared)) is not None:
            shared.append(own)
        return shared

    def _key(self, job: Job, shared: Sequence[PrefixBlock]) -> tuple[Hashable, Hashable] | None:
        """What the block after some shared ones is found by; None if nobody can share it."""
        start = len(shared) * self.block
        tokens = None if job.content is None else job.content(start, start + self.block)
        return None if tokens is None else (shared[-1] if shared else job.owner, tokens)

    def _next(self, job: Job, shared: Sequence[PrefixBlock]) -> PrefixBlock | None:
        if (len(shared) + 1) * self.block >= job.prompt:
            return None
        key = self._key(job, shared)
        return None if key is None else self._kept.get(key)

    def seat(self, job: Job, needed: int) -> int:
        """Give a job its `needed` blocks; returns the tokens that shared ones hold already."""
        job.shared, job.keeps = self._prefix(job), job.content is not None
        for own in job.shared:
            self._use(own)
        taken = self.take(needed - len(job.shared))
        job.blocks = self._joined([own.block for own in job.shared], taken)
        return len(job.shared) * self.block

    def _use(self, own: PrefixBlock) -> None:
        if not own.users:
            del self._unused[own]
            self.room -= 1
        own.users += 1

    def _joined(self, blocks: Sequence[int], more: Sequence[int]) -> Sequence[int]:
        return [*blocks, *more] if self._is_numbered else range(len(blocks) + len(more))

    def grow(self, job: Job) -> None:
        """Give a job one more block."""
        job.blocks = self._joined(job.blocks, self.take(1))

    def skip(self, job: Job) -> bool:
        """Pass over tokens of a prompt that others have computed since the job was seated.

        False if the next block is being computed in the step that is being made.
        """
        while job.keeps and job.prefilled == len(job.shared) * self.block:
            own = self._next(job, job.shared)
            if own is None or own.turn == self.turn:
                return own is None
            at = len(job.shared)
            self._use(own)
            self.give(job.blocks[at : at + 1])
            job.blocks = self._joined([*job.blocks[:at], own.block], job.blocks[at + 1 :])
            job.shared.append(own)
            job.prefilled += self.block
        return True

    def keep(self, job: Job, tokens: int) -> None:
        """Let others share the whole blocks of a job, which the step being made writes.

        If another job was first with the same tokens, this one stays with its own from there on.
        """
        while job.keeps and (len(job.shared) + 1) * self.block <= tokens:
            key = self._key(job, job.shared)
            job.keeps = key is not None and key not in self._kept
            if key is not None and job.keeps:
                own = PrefixBlock(key, job.blocks[len(job.shared)], self.turn)
                self._kept[key] = own
                job.shared.append(own)

    def leave(self, job: Job, tokens: int) -> None:
        """Take all blocks back from a job; whole ones of its `tokens` tokens stay to be shared."""
        chain, own = list(job.shared), list(job.shared)
        while job.keeps and (len(chain) + 1) * self.block <= tokens:
            key = self._key(job, chain)
            if key is None:
                break
            if key not in self._kept:
                self._kept[key] = PrefixBlock(key, job.blocks[len(chain)], _WRITTEN)
                own.append(self._kept[key])
            chain.append(self._kept[key])
        if self._is_numbered:
            shared = {kept.block for kept in own}
            self.give([block for block in job.blocks if block not in shared])
        else:
            self.give(job.blocks[len(own) :])
        for kept in reversed(own):
            kept.users -= 1
            if not kept.users:
                self._unused[kept] = None
                self.room += 1
        job.shared, job.blocks, job.keeps = [], (), False
