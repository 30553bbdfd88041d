"""States of two replicas, as the checker of hand-overs sees them.

In: replicas, and the programs and graphs of traces. Out: which device has which bytes of a state
between requests, and which bytes of a row a request may read as it finds them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import AreaKind, LoweredReplica
from tessera.ir.program.program import Buffer, Program, Role
from tessera.passes.checker.bytes import NOTHING, Array, join, minus, ranges_of, region_ranges

HeldBytes = tuple[Buffer, dict[str, Array]]
"""A state, and the bytes of it that each device has between requests."""


@dataclass(frozen=True, slots=True)
class SharedState:
    """A state of the target: where it is in both replicas, the bytes of a row that steps may read,
    and those that steps of the target may read. States with one `form` are alike."""

    name: str
    source: HeldBytes | None
    target: HeldBytes
    live: Array
    needed: Array
    has_words: bool

    @property
    def form(self) -> object:
        """What a verdict about the state depends on, but for what moves."""
        sides = [held for held in (self.source, self.target) if held is not None]
        return (
            len(sides),
            self.has_words,
            self.live.tobytes(),
            self.needed.tobytes(),
            *(
                (held[0].bytes, held[0].shape, *((d, r.tobytes()) for d, r in held[1].items()))
                for held in sides
            ),
        )


def states_held(replica: LoweredReplica, programs: Sequence[Program]) -> dict[str, HeldBytes]:
    """The states of a replica: their buffers, and what each device has of them."""
    homes: dict[tuple[int, int], dict[str, Array]] = {}
    for home in replica.homes:
        homes.setdefault((home.trace, int(home.buffer)), {})[home.device] = ranges_of(home.bytes)
    states: dict[str, HeldBytes] = {}
    for place in replica.places:
        buffer = programs[place.trace].buffers[place.buffer]
        if place.kind is AreaKind.LANE and buffer.role is Role.STATE:
            own = homes.get((place.trace, int(place.buffer)), {})
            anywhere = minus(ranges_of([place.held(buffer.bytes)]), join(list(own.values())))
            current = join([anywhere, own.get(place.device, NOTHING)])
            states.setdefault(buffer.name, (buffer, {}))[1][place.device] = current
    return states


def first_reads(program: Program, graph: KernelGraph) -> dict[str, tuple[Buffer, Array]]:
    """The bytes of states that a request may read as it finds them, with the buffer of each."""
    reads: dict[int, list[Array]] = {}
    covered: dict[int, Array] = {}
    for node in graph.nodes:
        certain: dict[int, list[Array]] = {}
        for access in node.accesses:
            buffer = program.buffers[access.buffer]
            if buffer.role is not Role.STATE:
                continue
            number = int(access.buffer)
            ranges = region_ranges(access.region, buffer.bytes)
            if access.kind.reads:
                fresh = minus(ranges, covered.get(number, NOTHING))
                reads.setdefault(number, []).append(fresh)
            if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
                certain.setdefault(number, []).append(ranges)
        for number, parts in certain.items():
            covered[number] = join([covered.get(number, NOTHING), *parts])
    return {
        program.buffers[number].name: (program.buffers[number], join(parts))
        for number, parts in reads.items()
    }


def read_in_row(reads: tuple[Buffer, Array] | None, held: Buffer) -> Array | None:
    """The bytes of a row that are read in some row of a state; None if none is."""
    if reads is None or not len(reads[1]):
        return None
    buffer, ranges = reads
    count = (held.shape or (1,))[0]
    size = held.bytes // count
    if (buffer.shape or ())[1:] != (held.shape or ())[1:]:
        return ranges_of([(0, size)])
    parts = []
    for start, end in ranges.tolist():
        if end - start >= size:
            return ranges_of([(0, size)])
        row = start // size * size
        parts.append((start - row, min(end - row, size)))
        parts.append((0, end - row - size))
    return ranges_of(parts)
