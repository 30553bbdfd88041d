"""The planning problem of a setting, with the bytes that a request keeps and sends.

In: a `PlanSetting`, and numbers of slots and sequences. Out: a `Planning`.
"""

from __future__ import annotations

from tessera.ir.plan.division import parts_of
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.program.program import Role
from tessera.planning.given.setting import LoadedTrace, PlanSetting
from tessera.planning.problem.plan_problem import (
    PERSISTENT,
    RESERVED_BYTES,
    Planning,
    TracePart,
    problem_of_mix,
)


def _parts_of_steps(trace: LoadedTrace) -> frozenset[int]:
    division = trace.planned.division
    parts = parts_of(division.steps_of(len(trace.graph.nodes)), division) if division else ()
    return frozenset(part.step for part in parts if part.cuts)


def build_problem(
    setting: PlanSetting,
    slots: int,
    lanes: int,
    *,
    slot_bytes: int | None = None,
    is_placed: bool = False,
    are_apart: bool = False,
) -> Planning:
    """The planning problem for a number of slots and sequences; `is_placed` and `are_apart` as in
    `plan_problem`.

    If memory is short, the buffers of launch programs share bytes. The problem then counts
    `slot_bytes` wherever that is less than the separate buffers of a request.
    """
    if slot_bytes is None and not is_placed and is_short(setting, slots, lanes):
        packed = packed_slot_bytes(setting)
        if packed * len(setting.machine.devices) < sum(map(private_bytes, setting.traces)):
            slot_bytes = packed
    several = len(setting.traces) > 1
    parts = [
        TracePart(
            name=trace.planned.name if several else "",
            graph=trace.graph,
            costs=costs,
            requests=trace.planned.share,
            apart=_parts_of_steps(trace),
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
        is_placed=is_placed,
        are_apart=are_apart,
    )


def packed_slot_bytes(setting: PlanSetting) -> int:
    """Private bytes of a request of any trace on one device if buffers share bytes."""
    anywhere = [[""] * len(trace.graph.nodes) for trace in setting.traces]
    areas = setting.lowering.areas(anywhere)
    return sum(area.bytes for area in areas if area.kind is AreaKind.SLOT)


def private_bytes(trace: LoadedTrace) -> int:
    """Private bytes of a request of one trace if no buffers share bytes."""
    return sum(b.bytes for b in trace.graph.buffers if b.role not in PERSISTENT)


def is_short(setting: PlanSetting, slots: int, lanes: int) -> bool:
    """Whether a GPU lacks memory for everything if no buffers share bytes."""
    kept: dict[tuple[Role, str, int], int] = {}
    for trace in setting.traces:
        for buffer in trace.graph.buffers:
            if buffer.role in PERSISTENT:
                copies = lanes if buffer.role is Role.STATE else 1
                kept[buffer.role, buffer.name, buffer.bytes] = buffer.bytes * copies
    needed = sum(kept.values()) + slots * sum(map(private_bytes, setting.traces))
    machine = setting.machine
    return needed > min(
        card.memory_bytes - RESERVED_BYTES * len(machine.slices_of(card.id))
        for card in machine.cards
    )


def host_ns(setting: PlanSetting) -> float:
    """Minimum time per request of inputs and outputs over the host links of all cards."""
    requests = sum(trace.planned.share for trace in setting.traces)
    lanes = sum(card.gpu.pcie_bandwidth for card in setting.machine.cards)
    return _host_bytes(setting) / requests * 1e9 / lanes if lanes else 0.0


def _host_bytes(setting: PlanSetting) -> float:
    """Bytes between host and devices for all requests of the mix, in the larger direction."""
    shares = [trace.planned.share for trace in setting.traces]
    ways = zip(*setting.lowering.host_bytes(), strict=True)
    moved = (sum(b * share for b, share in zip(way, shares, strict=True)) for way in ways)
    return max(moved, default=0.0)
