"""Liveness: the instructions of an excerpt whose results are read, and the live registers.

In: the instructions of an excerpt, block by block, each with the registers that it writes and
reads. Out: the instructions that matter, the registers that each of them is the last to read or
write, and for every block the registers that some path from its start reads before it writes them.

An instruction matters if it is a root (an access, a branch), or if it writes a register that an
instruction that matters may read. Names are reused, so a name may matter at one place and not at
another. A write under a guard may leave the old value, so it does not end the life of a register.

The blocks are walked backwards until nothing changes. A loop that rotates registers (`a = b`,
`b = c`) may need a round for each register; a block that changes too often is kept whole.

Sets of registers are bits of a number, because sets at block borders may be large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from tessera.ir.ptx.control_flow import ControlFlow

MOST_VISITS = 12


class ExcerptStep(NamedTuple):
    """The effect of instruction `at` on registers in an excerpt; `replaces`: it has no guard."""

    at: int
    is_root: bool
    replaces: bool
    writes: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LiveSteps:
    """The instructions that matter, each with its registers that nothing reads later; and the
    registers that are live at the start of each block."""

    ends: dict[int, tuple[str, ...]]
    numbers: dict[str, int]
    bits: tuple[int, ...]

    def is_live(self, block: int, name: str) -> bool:
        """Whether some path from the start of a block reads a register before it writes it."""
        number = self.numbers.get(name)
        return number is not None and bool(self.bits[block] >> number & 1)

    def unwritten(self) -> Iterator[str]:
        """The names that some path from the entry reads before it writes them."""
        entry = self.bits[0].to_bytes((len(self.numbers) >> 3) + 1, "little")
        for name, number in self.numbers.items():
            if entry[number >> 3] >> (number & 7) & 1:
                yield name


def live_steps(flow: ControlFlow, blocks: Sequence[Sequence[ExcerptStep]]) -> LiveSteps:
    """The live registers of an excerpt, found by walking it backwards."""
    return _LiveWalk(flow, blocks).run()


class _LiveWalk:
    """The live registers at the start of blocks, as found so far."""

    def __init__(self, flow: ControlFlow, blocks: Sequence[Sequence[ExcerptStep]]) -> None:
        self.flow = flow
        self.blocks = blocks
        self.numbers: dict[str, int] = {}
        self.live = [0] * len(blocks)
        self.ends: list[dict[int, tuple[str, ...]]] = [
            {step.at: () for step in block} for block in blocks
        ]
        self.visits = [0] * len(blocks)

    def run(self) -> LiveSteps:
        rank = {block: place for place, block in enumerate(self.flow.order)}
        pending = [(-place, block) for block, place in rank.items()]
        pending.sort()
        waiting = set(rank)
        while pending:
            _, block = heappop(pending)
            waiting.discard(block)
            before = self._visit(block)
            if before == self.live[block]:
                continue
            self.live[block] = before
            for above in self.flow.blocks[block].predecessors:
                if above in rank and above not in waiting:
                    waiting.add(above)
                    heappush(pending, (-rank[above], above))
        ends = {at: names for block in self.ends for at, names in block.items()}
        return LiveSteps(ends, self.numbers, tuple(self.live))

    def _visit(self, block: int) -> int:
        """The live registers at the start of a block; records its instructions that matter."""
        after = 0
        for way in self.flow.blocks[block].successors:
            after |= self.live[way]
        self.visits[block] += 1
        keeps_all = self.visits[block] > MOST_VISITS
        # Registers of this block: whether they are live before the current instruction.
        known: dict[str, bool] = {}
        kept: dict[int, tuple[str, ...]] = {}

        def is_live(name: str) -> bool:
            return known[name] if name in known else bool(after >> self._number(name) & 1)

        for step in reversed(self.blocks[block]):
            if not (keeps_all or step.is_root) and not any(map(is_live, step.writes)):
                continue
            kept[step.at] = tuple(n for n in (*step.writes, *step.reads) if not is_live(n))
            if step.replaces:
                for name in step.writes:
                    known[name] = False
            for name in step.reads:
                known[name] = True
        self.ends[block] = kept
        return after & ~self._bits(known, False) | self._bits(known, True)

    def _number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def _bits(self, known: dict[str, bool], wanted: bool) -> int:
        numbers = [self._number(name) for name, is_live in known.items() if is_live is wanted]
        # Built as bytes: a shift per register would copy a long number each time.
        bits = bytearray((max(numbers, default=0) >> 3) + 1)
        for number in numbers:
            bits[number >> 3] |= 1 << (number & 7)
        return int.from_bytes(bits, "little")
