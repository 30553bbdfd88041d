"""What replicas serve, and what they hand over, in words.

In: a `Plan`. Out: lines for reports and pages.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.plan.plan import Plan, Replica
from tessera.report.diagnostics import safe


def role_words(plan: Plan, replica: Replica) -> str:
    """The share of requests that a replica serves, of each trace if they differ."""
    if not replica.shares:
        return f"{replica.share:.1%} of requests"
    served = zip(plan.traces, replica.shares, strict=True)
    listed = [f"{share:.1%} of {safe(trace.name)}" for trace, share in served if share > 0]
    return ", ".join(listed)


def hand_over_lines(plan: Plan, replica: Replica) -> Iterator[str]:
    """What a replica hands over to others."""
    for own in replica.hand_overs:
        served, trace = replica.serves(own.trace), plan.traces[own.trace]
        every = served * trace.share * own.part * own.bytes / max(plan.period_ns, 1e-9)
        yield (
            f"{own.part:.2f} sequences per request of {safe(trace.name)} go on at {own.target}: "
            f"{format_bytes(int(own.bytes))} each, {every:.3g} GB/s"
        )
