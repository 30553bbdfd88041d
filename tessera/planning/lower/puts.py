"""Transfers between hosts: puts into landings, with a credit for each.

In: the launch programs of a replica with sends and receives, and the host of each device. Out: the
same with a put, a wait and a credit in place of each send and receive between hosts, and the
landings that they use.

A pair of devices has up to `LANDINGS` landings, which its transfers take in turn, so that several
may be under way at once. The credit directly follows the wait. So programs that end with sends that
wait for their receives also end with puts, for any number of landings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tessera.ir.plan.launch_program import (
    HOST,
    AwaitPut,
    Credit,
    DeviceProgram,
    Landing,
    LandingId,
    LoweredTrace,
    Put,
    Queue,
    Queued,
    Receive,
    Send,
    Transfer,
    TransferId,
)

LANDINGS = 4
"""Transfers from one device to another that may be under way at once, per request."""

_Pair = tuple[str, str]


def put_between_hosts(
    traces: Sequence[LoweredTrace], hosts: Mapping[str, str]
) -> tuple[tuple[LoweredTrace, ...], tuple[Landing, ...]]:
    """The programs with puts for all transfers between hosts."""
    sizes: dict[_Pair, list[int]] = {}
    turns: list[dict[TransferId, tuple[_Pair, int]]] = []
    for trace in traces:
        own: dict[TransferId, tuple[_Pair, int]] = {}
        for transfer in _in_order(trace):
            if HOST in (transfer.source, transfer.target):
                continue
            pair = (transfer.source, transfer.target)
            if hosts.get(pair[0], "") == hosts.get(pair[1], ""):
                continue
            place = sum(other == pair for other, _ in own.values()) % LANDINGS
            rooms = sizes.setdefault(pair, [])
            rooms += [0] * (place + 1 - len(rooms))
            rooms[place] = max(rooms[place], transfer.size)
            own[transfer.id] = pair, place
        turns.append(own)
    landings: list[Landing] = []
    numbers: dict[tuple[_Pair, int], LandingId] = {}
    for pair, rooms in sorted(sizes.items()):
        for place, size in enumerate(rooms):
            numbers[pair, place] = LandingId(len(landings))
            landings.append(
                Landing(id=numbers[pair, place], source=pair[0], target=pair[1], bytes=size)
            )
    made = [
        _with_puts(trace, {number: numbers[turn] for number, turn in own.items()})
        for trace, own in zip(traces, turns, strict=True)
    ]
    return tuple(made), tuple(landings)


def _in_order(trace: LoweredTrace) -> Iterator[Transfer]:
    """The transfers between devices, in the order in which each source sends its own."""
    transfers = {transfer.id: transfer for transfer in trace.transfers}
    for program in trace.programs:
        for operation in program.on(Queue.OUT):
            if isinstance(operation, Send):
                yield transfers[operation.transfer]


def _with_puts(trace: LoweredTrace, landings: Mapping[TransferId, LandingId]) -> LoweredTrace:
    if not landings:
        return trace
    return replace(trace, programs=tuple(_program(program, landings) for program in trace.programs))


def _program(program: DeviceProgram, landings: Mapping[TransferId, LandingId]) -> DeviceProgram:
    operations: list[Queued] = []
    for queued in program.operations:
        match queued.operation:
            case Send(number) if number in landings:
                operations.append(Queued(queued.queue, Put(number, landings[number])))
            case Receive(number) if number in landings:
                landing = landings[number]
                operations.append(Queued(queued.queue, AwaitPut(number, landing)))
                operations.append(Queued(queued.queue, Credit(landing)))
            case _:
                operations.append(queued)
    return replace(program, operations=tuple(operations))
