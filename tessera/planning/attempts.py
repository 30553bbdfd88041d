"""How many slots and sequences to search with, and the problem that follows.

In: a `PlanSetting`. Out: attempts, the most wanted first; fewer slots come later, for where memory
is short.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.graph.access import AccessKind
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.program.program import Role
from tessera.passes.dependences.pointer_words import moved_words
from tessera.planning.given.setting import Attempt, LoadedTrace, PlanSetting
from tessera.planning.many_slots import attempt_for_many
from tessera.planning.problem.plan_problem import (
    PERSISTENT,
    RESERVED_BYTES,
    Planning,
    TracePart,
    problem_of_mix,
)

AUTO_SLOTS = (4, 2, 1)


def attempts(setting: PlanSetting) -> Iterator[Attempt]:
    """Slots and sequences to try, the most wanted first."""
    options = setting.options
    counts: tuple[int, ...] = AUTO_SLOTS
    if runs_alone(setting) or (options.aim.is_of_one_request and options.slots is None):
        counts = (1,)
    elif options.slots is not None:
        counts = (options.slots,)
    elif options.aim.is_rate:
        first = attempt_for_many(
            setting, lambda slots: build_problem(setting, slots, options.sequences or slots)
        )
        if first is not None:
            yield first
    for slots in counts:
        lanes = options.sequences or slots
        yield Attempt(slots=slots, lanes=lanes, planning=build_problem(setting, slots, lanes))
    # Where nothing fits, buffers that share bytes may.
    packed = packed_slot_bytes(setting)
    if packed < max(map(_private_bytes, setting.traces)):
        planning = build_problem(setting, slots, lanes, slot_bytes=packed)
        yield Attempt(slots=slots, lanes=lanes, planning=planning)


def packed_slot_bytes(setting: PlanSetting) -> int:
    """What is private to a request of any trace, on one device, where buffers share bytes."""
    anywhere = [[""] * len(trace.graph.nodes) for trace in setting.traces]
    areas = setting.lowering.areas(anywhere)
    return sum(area.bytes for area in areas if area.kind is AreaKind.SLOT)


def _private_bytes(trace: LoadedTrace) -> int:
    """The same of one trace, where no buffers share bytes."""
    return sum(b.bytes for b in trace.graph.buffers if b.role not in PERSISTENT)


def is_short(setting: PlanSetting, slots: int, lanes: int) -> bool:
    """Whether a GPU lacks the memory for everything, with buffers that lie apart."""
    kept: dict[tuple[Role, str, int], int] = {}
    for trace in setting.traces:
        for buffer in trace.graph.buffers:
            if buffer.role in PERSISTENT:
                copies = lanes if buffer.role is Role.STATE else 1
                kept[buffer.role, buffer.name, buffer.bytes] = buffer.bytes * copies
    needed = sum(kept.values()) + slots * sum(map(_private_bytes, setting.traces))
    machine = setting.machine
    return needed > min(
        card.memory_bytes - RESERVED_BYTES * len(machine.slices_of(card.id))
        for card in machine.cards
    )


def runs_alone(setting: PlanSetting) -> str:
    """Why one request runs at a time; empty: no reason.

    A launch may write a module variable, or addresses in a state: these are there once.
    """
    for trace in setting.traces:
        for node in trace.graph.nodes:
            for access in node.accesses:
                buffer = trace.graph.buffers[access.buffer]
                if buffer.role is Role.VARIABLE and access.kind is not AccessKind.READ:
                    return f"k{node.id} {node.name} may write the module variable {buffer.name}"
        for node, state in moved_words(trace.program, trace.graph):
            return f"k{node.id} {node.name} may overwrite addresses in the state {state.name}"
    return ""


def host_ns(setting: PlanSetting) -> float:
    """The least time per request that inputs and outputs take over the lanes of all cards."""
    requests = sum(trace.planned.share for trace in setting.traces)
    lanes = sum(card.gpu.pcie_bandwidth for card in setting.machine.cards)
    return _host_bytes(setting) / requests * 1e9 / lanes if lanes else 0.0


def _host_bytes(setting: PlanSetting) -> float:
    """What goes one way between the host and devices for all requests of the mix, the larger."""
    shares = [trace.planned.share for trace in setting.traces]
    ways = zip(*setting.lowering.host_bytes(), strict=True)
    moved = (sum(b * share for b, share in zip(way, shares, strict=True)) for way in ways)
    return max(moved, default=0.0)


def build_problem(
    setting: PlanSetting, slots: int, lanes: int, *, slot_bytes: int | None = None
) -> Planning:
    """What the planner has to solve for so many slots and sequences.

    Where memory is short, launch programs have buffers share bytes. So the problem counts with that
    (`slot_bytes`), wherever it is less than what the buffers of a request take apart.
    """
    if slot_bytes is None and is_short(setting, slots, lanes):
        packed = packed_slot_bytes(setting)
        if packed * len(setting.machine.devices) < sum(map(_private_bytes, setting.traces)):
            slot_bytes = packed
    several = len(setting.traces) > 1
    parts = [
        TracePart(
            name=trace.planned.name if several else "",
            graph=trace.graph,
            costs=costs,
            requests=trace.planned.share,
        )
        for trace, costs in zip(setting.traces, setting.costs, strict=True)
    ]
    return problem_of_mix(
        parts,
        setting.machine,
        slots=slots,
        lanes=lanes,
        slot_bytes=slot_bytes,
        host_bytes=_host_bytes(setting),
    )
