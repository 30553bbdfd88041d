"""Figures of a plan in words: rates, times, what they lie between, and whether that decides.

In: a `PlanReport`. Out: texts.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.driver.plan import PlanReport
from tessera.frontend.machine.quantities import format_time
from tessera.ir.choices import Ending, Objective
from tessera.ir.plan.plan import Plan


def rate_text(period_ns: float) -> str:
    """Requests per second."""
    return f"{1e9 / period_ns:.1f}" if period_ns > 0 else "-"


def interval_text(plan: Plan) -> str:
    """The figure of the objective that nine of ten draws lie between."""
    if plan.objective == Objective.LATENCY:
        return f"latency {format_time(plan.low)} to {format_time(plan.high)}"
    if plan.objective == Objective.COST:
        return f"${plan.low * 1e6:.4f} to ${plan.high * 1e6:.4f} per million requests"
    return f"{rate_text(plan.high)} to {rate_text(plan.low)} requests/s"


def doubt_lines(report: PlanReport) -> Iterator[str]:
    """Whether splitting is ahead by more than the times may be off, and what would settle it."""
    doubted = report.decision.doubt
    if doubted is None:
        return
    yield (
        f"  `{doubted.split}` against `{doubted.rival}`, which splits no request: "
        f"{doubted.gain:+.1%}, {doubted.low:+.1%} to {doubted.high:+.1%} with the error bars; "
        f"ahead in {doubted.wins:.0%} of the draws"
    )
    if not doubted.is_sure:
        taken = "taken as asked for" if report.plan.ended == Ending.GIVEN else "so it is not taken"
        yield f"  that is less than the times may be off, {taken}"
    if doubted.causes and doubted.wins < 1.0:
        listed = ", ".join(f"{name} on {device}" for name, device in doubted.causes)
        yield f"  it depends on {listed}: `tessc profile` would settle it"
