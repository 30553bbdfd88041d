"""A plan report for other programs: everything that the text says, as JSON.

In: a `PlanReport`. Out: text with the schema `tessera-plan-report/1`. The traces and launch
programs are left out: they are in the plan file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tessera.driver.plan import PlanReport
from tessera.ir.plan.machine import EXCHANGED_BYTES, Machine
from tessera.ir.plan.plan import PlacedTrace, Plan, PlannedTrace, Replica, parts_of_placed
from tessera.planning.explain import explain_step
from tessera.planning.insight import kernel_classes

SCHEMA = "tessera-plan-report/1"


def plan_json(report: PlanReport, steps: Sequence[str] = ()) -> str:
    """The report; `steps` are explained too."""
    document = {
        "schema": SCHEMA,
        **_plan(report.plan),
        "exchange": _exchange(report.machine),
        "sources": {source.value: count for source, count in report.sources},
        "classes": [
            {
                **asdict(kernel_class),
                "ratio": kernel_class.ratio,
                "ratio_bar": kernel_class.ratio_bar,
            }
            for kernel_class in kernel_classes(report.setting, report.plan)
        ],
        "limits": [
            {"kind": limit.kind, "name": limit.text, "ns": limit.ns}
            for limit in report.insight.limits
        ],
        "helpers": list(report.insight.helpers),
        "losses": None
        if (losses := report.insight.losses) is None
        else {
            "of": losses.name,
            "reached": losses.reached,
            "parts": [{"name": name, "ns": ns} for name, ns in losses.parts],
        },
        "doubt": report.decision.doubt and asdict(report.decision.doubt),
        "texts": None if report.texts is None else asdict(report.texts),
        "sizes": [asdict(size) for size in report.sizes],
        "alternatives": [
            {**asdict(own), "standing": own.against and own.against.standing}
            for own in report.alternatives
        ],
        "frontier": [asdict(point) for point in report.frontier],
        "explained": [
            asdict(reason)
            for step in steps
            for reason in explain_step(report.setting, report.decision, step)
        ],
    }
    return json.dumps(document, indent=2, default=_plain) + "\n"


def _exchange(machine: Machine) -> dict[str, object] | None:
    """How long exchanges are taken to last, over all links."""
    if not machine.links:
        return None
    times = [machine.exchange_ns(link, EXCHANGED_BYTES) for link in machine.links]
    return {
        "bytes": EXCHANGED_BYTES,
        "least_ns": min(times),
        "most_ns": max(times),
        "links": len(times),
        "measured": machine.measured_links,
    }


def _plain(value: object) -> object:
    """Enumerations as their value, everything else that JSON lacks as its text."""
    return getattr(value, "value", None) or str(value)


def _plan(plan: Plan) -> dict[str, object]:
    kept = (
        "objective",
        "strategy",
        "period_ns",
        "latency_ns",
        "loaded_latency_ns",
        "low",
        "high",
        "host_call_ns",
        "host_byte_ns",
        "usd_per_request",
        "bound",
        "gap",
        "ended",
        "link",
        "machine_digest",
        "options",
    )
    return {
        **{name: getattr(plan, name) for name in kept},
        "cards": [asdict(card) for card in plan.cards],
        "devices": [asdict(device) for device in plan.devices],
        "traces": [
            {
                "name": trace.name,
                "share": trace.share,
                "digest": trace.digest,
                **asdict(trace.division),
            }
            for trace in plan.traces
        ],
        "replicas": [_replica(replica, plan) for replica in plan.replicas],
        "baselines": [asdict(baseline) for baseline in plan.baselines],
    }


def _replica(replica: Replica, plan: Plan) -> dict[str, Any]:
    lowered = replica.lowered
    return {
        "share": replica.share,
        **({"shares": replica.shares} if replica.shares else {}),
        "slots": replica.slots,
        "lanes": replica.lanes,
        "policy": replica.policy,
        "devices": {name: {"memory_bytes": lowered.memory_bytes(name)} for name in lowered.devices},
        "traces": [_placed(placed, plan.traces[placed.trace]) for placed in replica.traces],
        "moved_bytes": sum(move.size for trace in lowered.traces for move in trace.transfers),
    }


def _placed(placed: PlacedTrace, planned: PlannedTrace) -> dict[str, Any]:
    """The steps of a trace; of a divided trace with the step and the range that each is of it."""
    document = asdict(placed)
    if planned.division:
        parts = parts_of_placed(placed, planned.division)
        for step in document["steps"]:
            part = parts[step["step"]]
            step |= {"origin": part.origin, "range": part.range_on(step["arch"])}
            step["twin"] = part.is_twin
    return document
