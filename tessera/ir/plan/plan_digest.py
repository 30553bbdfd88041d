"""The digest by which a run, a simulation or a report refers to its plan.

It covers the decisions: machine, options, traces and the device of every step. It leaves out slots
and sequences, because a run may choose others.
"""

from __future__ import annotations

from tessera.ir.plan.plan import Plan
from tessera.ir.text_digest import text_digest


def plan_digest(plan: Plan) -> str:
    """A digest of the decisions: equal decisions have equal digests."""
    lines = [plan.objective, plan.strategy, plan.options, plan.machine_digest]
    lines += [trace.digest for trace in plan.traces]
    lines += [repr(trace.division) for trace in plan.traces if trace.division]
    for replica in plan.replicas:
        lines.append(f"{replica.share!r} {replica.policy}")
        lines += [repr(replica.shares)] if replica.shares else []
        lines += [" ".join(step.device for step in placed.steps) for placed in replica.traces]
    return text_digest("\n".join(lines))
