"""What hosts do, for the slow simulator: handing over, and puts and credits between hosts.

From `docs/concepts/simulation.md` alone, without a line of the code that they judge.
"""

from __future__ import annotations

import re
from typing import Any

from tessera.ir.plan import launch_program as lp
from tessera.ir.plan.launch_program import HOST, Credit, Fill, Put, Run


def is_one_graph(machine: Any, lowered: lp.LoweredTrace, slots: int) -> bool:
    """Whether slices of one card meet often."""
    names = [program.device for program in lowered.programs]
    is_card = all(b in machine.neighbours.get(a, ()) for a in names for b in names if a != b)
    sizes = [moved.size for moved in lowered.transfers if HOST not in (moved.source, moved.target)]
    often = len(sizes) >= (1 if slots == 1 else 12)
    return is_card and often and sum(sizes) / len(sizes) <= 1 << 22


def host_time(machine: Any, lowered: lp.LoweredTrace, slots: int) -> Any:
    """What the host of a replica takes to hand a request over."""
    own = [moved.size for moved in lowered.transfers if HOST in (moved.source, moved.target)]
    total, devices = 40 + 5 * len(lowered.transfers) - 4 * len(own), 0
    for program in lowered.programs:
        kinds = [(one.queue, type(one.operation)) for one in program.operations]
        compute = [kind for queue, kind in kinds if queue is lp.Queue.COMPUTE and kind != lp.Free]
        rows = re.findall("R+", "".join("R" if kind is Run else "." for kind in compute))
        events = sum(kind in (lp.Record, lp.Await, Fill) for _, kind in kinds)
        total += (5 + events + 4 * min(len("".join(rows)), 5)) * bool(rows) + sum(
            2 if row[2:] else 1 + len(row) for row in rows
        )
        devices += bool(rows)
    if devices < 2 or is_one_graph(machine, lowered, slots):
        total = 41 + (len(lowered.transfers) - len(own) if devices > 1 else 0)
    return machine.host_byte_ns * sum(own) + machine.host_call_ns * total


def puts(request: Any, landing: int) -> list[int]:
    """The transfers that are put into a landing, in order."""
    every = [one.operation for own in request.lowered.programs for one in own.operations]
    return [int(p.transfer) for p in every if isinstance(p, Put) and p.landing == landing]


def is_put(request: Any, transfer: int) -> bool:
    """Whether a transfer is a put, which needs nobody at its end."""
    every = (one.operation for own in request.lowered.programs for one in own.operations)
    return any(isinstance(one, Put) and one.transfer == transfer for one in every)


def may_land(request: Any, operation: Any, arrived: int) -> bool:
    """Whether an operation is no put, or one whose landing has been credited."""
    if not isinstance(operation, Put):
        return True
    before = puts(request, operation.landing).index(operation.transfer)
    return not before or request.stage["credit", operation.landing, before] == arrived


def credited(request: Any, operation: Credit, paths: Any) -> tuple[Any, float] | None:
    """What the landing is then free for, its next put, and when its source has heard of it."""
    number = 1
    while request.stage["credit", operation.landing, number]:
        number += 1
    if number >= len(puts(request, operation.landing)):
        return None
    moved = request.transfers[puts(request, operation.landing)[number]]
    return ("credit", operation.landing, number), paths[moved.target, moved.source].latency_ns
