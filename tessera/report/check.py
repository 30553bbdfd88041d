"""The report of `tessc check` on a proved plan: what was proved, and how much.

In: an `OpenPlan`. Out: text for people, JSON for programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tessera.diagnostics import Diagnostic
from tessera.driver.run.open_plan import OpenPlan
from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.plan.division import Division
from tessera.ir.plan.launch_program import HOST, Await, LoweredReplica, LoweredTrace
from tessera.ir.plan.plan import Plan, hosts_of, staged_bytes
from tessera.report.diagnostics import safe, to_json
from tessera.report.table import Column, Fit, fitted, table

SCHEMA = "tessera-check/1"

_MEMORY = (Column(fit=Fit.CUT), Column())

_PROVED = (
    "every step runs once, on its device, and finds what one device would have left there",
    "no two operations use the same memory at once where one of them writes",
    "outputs reach the host in their last version, and state is in place for the next request",
    "the programs come to an end, also where a send waits for its receive",
    "memory has room, and nothing is used after it is freed",
)

_DIVIDED = "parts of a step do together what the step does, and twins leave equal bytes"
_LANDED = "between hosts, nothing is put on bytes that nobody has taken yet"


def check_text(opened: OpenPlan, width: int | None = None) -> str:
    """The proof in a few lines, for a terminal of that width or for a file."""
    plan = opened.plan
    lines = [f"{safe(opened.name)}: proved, for every request and every order of events:"]
    landed = any(replica.lowered.landings for replica in plan.replicas)
    divided = any(trace.division for trace in plan.traces)
    more = [claim for claim, holds in ((_DIVIDED, divided), (_LANDED, landed)) if holds]
    lines += [f"  - {claim}" for claim in (*_PROVED, *more)]
    for number, replica in enumerate(plan.replicas):
        devices = ", ".join(safe(device) for device in replica.lowered.devices)
        policy = f", policy {safe(replica.policy)}" if replica.policy else ""
        lines.append(
            f"replica {number} on {devices}: {replica.slots} slots, "
            f"{replica.lanes} sequences{policy}"
        )
        for trace in replica.lowered.traces:
            counts = _counts(trace)
            name = safe(plan.traces[trace.trace].name)
            moved = f"{counts['transfers']} transfer{'' if counts['transfers'] == 1 else 's'}"
            parts, twins = _divided(plan.traces[trace.trace].division).values()
            said = f" ({parts} parts, {twins} twins)" if parts or twins else ""
            lines.append(
                f"  {name}: {len(opened.graphs[trace.trace].nodes)} steps{said}, "
                f"{counts['operations']} operations, {counts['waits']} waits, "
                f"{moved} of {format_bytes(counts['transfer_bytes'])}"
            )
    rows = (
        (f"memory of {name}:", f"{format_bytes(used)} of {format_bytes(room)}")
        for name, used, room in _memory(plan)
    )
    lines += table(_MEMORY, rows, width, indent=0, gap=1)
    for host, size in staged_bytes(plan.replicas, hosts_of(plan)).items():
        lines.append(f"memory of host {safe(host)} for transfers: {format_bytes(size)}")
    return fitted("\n".join(lines) + "\n", width)


def check_json(opened: OpenPlan) -> str:
    """The same as JSON."""
    plan = opened.plan
    value = {
        "schema": SCHEMA,
        "file": opened.name,
        "proved": True,
        "diagnostics": [to_json(diagnostic) for diagnostic in opened.diagnostics],
        "replicas": [
            {
                "devices": list(replica.lowered.devices),
                "slots": replica.slots,
                "lanes": replica.lanes,
                "policy": replica.policy,
                "traces": [
                    {
                        "name": plan.traces[trace.trace].name,
                        "steps": len(opened.graphs[trace.trace].nodes),
                        **_divided(plan.traces[trace.trace].division),
                        **_counts(trace),
                    }
                    for trace in replica.lowered.traces
                ],
            }
            for replica in plan.replicas
        ],
        "memory": [
            {"card": name, "used_bytes": used, "capacity_bytes": room}
            for name, used, room in _memory(plan)
        ],
        "host_memory": [
            {"host": host, "staged_bytes": size}
            for host, size in staged_bytes(plan.replicas, hosts_of(plan)).items()
        ],
    }
    return json.dumps(value, indent=2) + "\n"


def refusal_json(name: str, diagnostics: Iterable[Diagnostic]) -> str:
    """The document for a plan that could not be proved."""
    listed = [to_json(diagnostic) for diagnostic in diagnostics]
    value: dict[str, object] = {
        "schema": SCHEMA,
        "file": name,
        "proved": False,
        "diagnostics": listed,
    }
    return json.dumps(value, indent=2) + "\n"


def _counts(trace: LoweredTrace) -> dict[str, int]:
    """The operations of one request; transfers are those between devices, not with the host."""
    operations = [queued.operation for program in trace.programs for queued in program.operations]
    between = [
        transfer for transfer in trace.transfers if HOST not in (transfer.source, transfer.target)
    ]
    return {
        "operations": len(operations),
        "waits": sum(isinstance(operation, Await) for operation in operations),
        "transfers": len(between),
        "transfer_bytes": sum(transfer.size for transfer in between),
    }


def _divided(division: Division) -> dict[str, int]:
    """How many of the steps are parts, and how many twins."""
    return {
        "parts": sum(cut.count for cut in division.cuts if not cut.arch),
        "twins": sum(twin.count for twin in division.twins),
    }


def _memory(plan: Plan) -> Iterable[tuple[str, int, int]]:
    for card in plan.cards:
        devices = {device.name for device in plan.devices if device.card == card.name}
        used = sum(_used(replica.lowered, devices) for replica in plan.replicas)
        yield card.name, used, card.capacity_bytes


def _used(lowered: LoweredReplica, devices: set[str]) -> int:
    return sum(lowered.memory_bytes(device) for device in lowered.devices if device in devices)
