"""Random replicas with states in rows or blocks, and what a hand-over does to their memory.

States are split and copied over devices at random; traces read and write parts of rows. The bytes
of every copy are kept as arrays, so a byte that should not be read, or is not written, shows.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from tessera.backend.service import Bytes
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hand_over import HandOver, MovedSequence, RowPlace
from tessera.ir.plan.launch_program import (
    Area,
    AreaKind,
    Home,
    LoweredReplica,
    LoweredTrace,
    Place,
    Queue,
    Receive,
    Send,
)
from tessera.ir.program import program as ir
from tests.helpers.served import graph_of
from tests.helpers.traces import trace

ROWS, AXIS, WIDTH = 4, 4, 24
"""Rows (or blocks) of a state, tokens of each, bytes of a token."""

_ROW = AXIS * WIDTH


@cache
def programs(seed: int) -> tuple[tuple[ir.Program, ...], tuple[KernelGraph, ...]]:
    """Two traces that share states: a part of each row is read, a part is written before."""
    rng = random.Random(seed)
    made = []
    for number in range(2):
        lines = [f"buffer x bytes={ROWS * _ROW} role=output"]
        steps = []
        for state in ("k", "v", "own"[: 3 * number] or "w"):
            lines.append(
                f"buffer {state} bytes={ROWS * _ROW} role=state dtype=u8 "
                f"shape={ROWS}x{AXIS}x{WIDTH}"
            )
            if rng.random() < 0.5:
                start, size = _part(rng)
                steps.append(f"memset {state}+{start} bytes={size} value=0x07")
            for _ in range(rng.randint(0 if state == "w" else 1, 2)):
                start, size = _part(rng)
                steps.append(f"memcpy x+0 {state}+{start} bytes={size}")
        made.append(
            trace("\n".join(lines), "", "\n".join(steps or ["memset x+0 bytes=4 value=0x00"]))
        )
    return tuple(made), tuple(map(graph_of, made))


def _part(rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(ROWS * _ROW)
    return start, rng.randint(1, min(ROWS * _ROW - start, _ROW + 8))


def replica(
    rng: random.Random, devices: Sequence[str], traces: Sequence[int], of: Sequence[ir.Program]
) -> LoweredReplica:
    """Homes of random bytes on random devices; some bytes have none, some have two."""
    places, homes = [], []
    known: dict[str, list[tuple[str, tuple[tuple[int, int], ...]]]] = {}
    for number in traces:
        for buffer in of[number].buffers:
            if buffer.role is not ir.Role.STATE:
                continue
            if buffer.name not in known:
                known[buffer.name] = _random_homes(rng, devices, buffer.bytes)
            for device in devices:
                places.append(
                    Place(
                        trace=number,
                        buffer=buffer.id,
                        device=device,
                        kind=AreaKind.LANE,
                        offset=4096 * list(known).index(buffer.name),
                    )
                )
            homes += [
                Home(trace=number, buffer=buffer.id, device=device, bytes=ranges)
                for device, ranges in known[buffer.name]
            ]
    return LoweredReplica(
        devices=tuple(devices),
        slots=1,
        lanes=1,
        areas=tuple(
            Area(device=device, kind=AreaKind.LANE, bytes=1 << 16, count=1) for device in devices
        ),
        places=tuple(places),
        homes=tuple(homes),
        traces=tuple(LoweredTrace(trace=number, transfers=(), programs=()) for number in traces),
    )


def _random_homes(
    rng: random.Random, devices: Sequence[str], size: int
) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    edges = sorted({0, size, *(rng.randrange(size) for _ in range(rng.randint(0, 6)))})
    ranges: dict[str, list[tuple[int, int]]] = {}
    for start, end in pairwise(edges):
        for device in rng.sample(devices, rng.randint(0, len(devices))):
            own = ranges.setdefault(device, [])
            if own and own[-1][1] == start:
                own[-1] = own[-1][0], end
            else:
                own.append((start, end))
    return [(device, tuple(own)) for device, own in ranges.items()]


def moved_sequences(rng: random.Random) -> tuple[MovedSequence, ...]:
    """Rows, or blocks, of up to two sequences."""
    here, there = rng.sample(range(ROWS), ROWS), rng.sample(range(ROWS), ROWS)
    if rng.random() < 0.5:
        return tuple(
            MovedSequence(RowPlace(a), RowPlace(b), rng.choice((None, rng.randint(0, AXIS))))
            for a, b in list(zip(here, there, strict=True))[: rng.randint(1, 3)]
        )
    count = rng.randint(1, ROWS)
    tokens = rng.choice((None, rng.randint(0, AXIS * count)))
    places = RowPlace(blocks=tuple(here[:count])), RowPlace(blocks=tuple(there[:count]))
    return (MovedSequence(*places, tokens),)


@dataclass(slots=True)
class States:
    """The memory of a replica: every device's copy of every state."""

    copies: dict[tuple[str, str], Bytes]

    @classmethod
    def random(cls, of: LoweredReplica, programs: Sequence[ir.Program], seed: int) -> States:
        rng = np.random.default_rng(seed)
        copies: dict[tuple[str, str], Bytes] = {}
        truth: dict[str, Bytes] = {}
        homes = {(h.device, programs[h.trace].buffers[h.buffer].name): h for h in of.homes}
        for place in of.places:
            buffer = programs[place.trace].buffers[place.buffer]
            whole = truth.setdefault(
                buffer.name, rng.integers(0, 256, buffer.bytes, dtype=np.uint8)
            )
            copy = whole.copy()  # bytes without a home are the same everywhere
            for (device, name), home in homes.items():
                if name == buffer.name and device != place.device:
                    for start, end in home.bytes:
                        copy[start:end] = rng.integers(0, 256, end - start, dtype=np.uint8)
            own = homes.get((place.device, buffer.name))
            for start, end in own.bytes if own is not None else ():
                copy[start:end] = whole[start:end]
            copies.setdefault((place.device, buffer.name), copy)
        return cls(copies)

    def take(self, made: HandOver, source: States) -> None:
        """Do what the transfers say."""
        for transfer in made.transfers:
            for portion in transfer.portions:
                for start, put, size in portion.spans:
                    given = source.copies[transfer.source, portion.state][start : start + size]
                    self.copies[transfer.target, portion.state][put : put + size] = given

    def run(self, made: HandOver, source: States, rng: random.Random) -> str:
        """Do the programs in a random order; what goes wrong, or nothing."""
        rows = [list(program.on(queue)) for program in made.programs for queue in Queue]
        transfers = {transfer.id: transfer for transfer in made.transfers}
        sent, begun = dict[int, list[tuple[str, int, Bytes]]](), set[int]()
        is_buffered = rng.random() < 0.5
        while rows := [row for row in rows if row]:
            for row in rng.sample(rows, len(rows)):
                operation = row[0]
                assert isinstance(operation, Send | Receive)
                number = operation.transfer
                transfer = transfers[number]
                if isinstance(operation, Receive):
                    is_new = number not in begun
                    begun.add(number)
                    if number in sent:
                        for state, put, given in rng.sample(sent[number], len(sent[number])):
                            copy = self.copies.get((transfer.target, state))
                            if copy is None or not 0 <= put <= put + len(given) <= len(copy):
                                return "outside"
                            copy[put : put + len(given)] = given
                        del row[0]
                    elif not is_new:
                        continue
                    break
                if number not in sent:
                    sent[number] = []
                    for portion in transfer.portions:
                        copy = source.copies.get((transfer.source, portion.state))
                        for start, put, size in portion.spans:
                            if copy is None or not 0 <= start <= start + size <= len(copy):
                                return "outside"
                            given = copy[start : start + size].copy()
                            sent[number].append((portion.state, put, given))
                elif not (is_buffered or number in begun):
                    continue
                if is_buffered or number in begun:
                    del row[0]
                break
            else:
                return "it hangs"
        return ""
