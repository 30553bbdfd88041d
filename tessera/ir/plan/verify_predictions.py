"""Consistency of the predictions of a plan: numbers that follow from others are checked.

In: a `Plan` without structural flaws (`ir.plan.verify_plan`). Out: flaws. Nothing here decides
whether a run is correct. A plan that contradicts itself was damaged or edited, and its predictions
are worthless.

For the replicas that serve throughput (the last policy), each device is busy at least for the time
of its steps, and the period is at least the busy time of any device. For the replicas that serve
latency (the first policy), a request takes at least the time of its steps on any one device. Money
is the period times the price of the cards in use, and the gap is how far the objective's value is
above the bound.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.architecture import architecture, sms_of
from tessera.ir.choices import Ending
from tessera.ir.objectives import HOUR_NS, OBJECTIVES, Objective
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.plan.verify_plan import Flaw

_SLACK = 1e-6


def verify_predictions(plan: Plan) -> Iterator[Flaw]:
    """Every contradiction, in the order of the text."""
    if plan.objective not in OBJECTIVES:
        yield Flaw(plan, f"`{plan.objective}` is no objective: one of {', '.join(OBJECTIVES)}")
        return
    if plan.ended not in [*Ending]:
        yield Flaw(plan, f"no search ends by `{plan.ended}`: one of {', '.join(Ending)}")
    yield from _gap(plan)
    serving = [replica for replica in plan.replicas if replica.policy == plan.replicas[-1].policy]
    yield from _money(plan, serving)
    yield from _latency(plan, [r for r in plan.replicas if r.policy == plan.replicas[0].policy])
    for card in plan.cards:
        if architecture(card.arch) is None or sms_of(card.arch):
            yield Flaw(card, f"`{card.arch}` is no architecture, such as `sm_80`")
    yield from _busy(plan, serving)


def predicted_value(plan: Plan) -> float | None:
    """The value that the objective minimizes; None for an objective with two placements."""
    objective = Objective.named(plan.objective)
    return objective.value(plan) if objective.is_single else None


def _gap(plan: Plan) -> Iterator[Flaw]:
    value = predicted_value(plan)
    if value is None or plan.bound <= 0:
        return
    follows = max(0.0, value / plan.bound - 1.0)
    if not _near(plan.gap + 1.0, follows + 1.0):
        yield Flaw(plan, f"`gap` is {plan.gap}, and follows from `bound` as {follows:.6g}")


def _money(plan: Plan, serving: list[Replica]) -> Iterator[Flaw]:
    card_of = {device.name: device.card for device in plan.devices}
    used = {card_of[device] for replica in serving for device in replica.lowered.devices}
    hourly = sum(card.usd_per_hour or 0.0 for card in plan.cards if card.name in used)
    follows = plan.period_ns * hourly / HOUR_NS
    if not _near(plan.usd_per_request, follows):
        yield Flaw(
            plan,
            f"`usd_per_request` is {plan.usd_per_request}, and follows from period and prices as "
            f"{follows:.6g}",
        )


def _latency(plan: Plan, quick: list[Replica]) -> Iterator[Flaw]:
    """Check the latency: a device runs the steps of a request one by one."""
    least = 0.0
    for replica in quick:
        alone = 0.0
        own = replica.own_shares([trace.share for trace in plan.traces])
        for placed in replica.traces:
            on: dict[str, float] = {}
            for step in placed.steps:
                on[step.device] = on.get(step.device, 0.0) + step.times_ns[2]
            alone += own[placed.trace] * max(on.values(), default=0.0)
        least = max(least, alone / (sum(own) or 1.0) if replica.shares else alone)
    if least > plan.latency_ns * (1 + _SLACK):
        yield Flaw(
            plan,
            f"`latency_ns` is {plan.latency_ns}, and the steps of a request take {least:.6g} ns on "
            "one device",
        )


def _busy(plan: Plan, serving: list[Replica]) -> Iterator[Flaw]:
    least = dict.fromkeys((device.name for device in plan.devices), 0.0)
    for replica in serving:
        for placed in replica.traces:
            share = replica.serves(placed.trace) * plan.traces[placed.trace].share
            for step in placed.steps:
                least[step.device] += share * step.least_ns
    for device in plan.devices:
        if device.busy_ns > plan.period_ns * (1 + _SLACK):
            yield Flaw(
                device,
                f"`{device.name}` is busy for {device.busy_ns} ns of every request, and a request "
                f"comes every {plan.period_ns} ns",
            )
        if least[device.name] > device.busy_ns * (1 + _SLACK):
            yield Flaw(
                device,
                f"`{device.name}` is busy for {device.busy_ns} ns of every request, and its steps "
                f"take {least[device.name]:.6g} ns",
            )


def _near(left: float, right: float) -> bool:
    return abs(left - right) <= _SLACK * max(abs(left), abs(right))
