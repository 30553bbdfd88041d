"""What a simulation of the plan adds to a report: one period, error bars, what-ifs.

In: a `Plan`. Out: `Followed`. The plan is followed with its own times and links (`tessc
simulate`), so nothing here is measured. What-ifs keep the placement: a plan made anew for the
other machine may gain more. Long plans are followed once and not again for draws and what-ifs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tessera.diagnostics import TesseraError
from tessera.driver.simulated_timeline import timeline_events
from tessera.ir.objectives import Figure, Objective
from tessera.ir.plan.plan import PlacedTrace, Plan
from tessera.ir.program.program import Program
from tessera.report.page.answer import is_split
from tessera.report.page.given import GivenTimeline, TimelineSpan
from tessera.report.page.verdict import Spread, WhatIf, rate_of
from tessera.simulation.options import SimulateOptions
from tessera.simulation.report import SimulationReport, middle
from tessera.simulation.simulate_plan import simulate

_MOST_OPERATIONS = 2_000  # of all slots; many simulations of these take a second
_MOST_TRIED = 20_000  # one takes a second
_ROUNDS = 3
_MOST_REQUESTS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """The results of following a plan. `problem` says why it could not be followed.

    `is_long`: it was followed once only, without draws and what-ifs.
    """

    spread: Spread = field(default_factory=Spread)
    period: GivenTimeline | None = None
    what_ifs: tuple[WhatIf, ...] = ()
    problem: str = ""
    is_long: bool = False


def follow(plan: Plan, programs: Sequence[Program]) -> Followed:
    """Simulate the plan, if possible; `programs` are those of its traces."""
    slots = sum(replica.slots for replica in plan.replicas)
    operations = _operations(plan) * slots
    short, is_long = operations <= _MOST_OPERATIONS, operations > _MOST_TRIED
    try:
        requests = min(_MOST_REQUESTS, _ROUNDS * slots + 4)
        options = SimulateOptions(requests=requests, timeline=True, noise=short)
        found = simulate(plan, options)
        return Followed(
            spread=_spread(plan, found),
            period=_period(found, programs),
            what_ifs=() if is_long else tuple(_what_ifs(plan)),
            is_long=is_long,
        )
    except TesseraError as failure:
        return Followed(spread=_own_spread(plan), problem=str(failure.diagnostics[0].headline))


def _operations(plan: Plan) -> int:
    return sum(
        len(program.operations)
        for replica in plan.replicas
        for lowered in replica.lowered.traces
        for program in lowered.programs
    )


# --- error bars ----------------------------------------------------------------------------------


def _own_spread(plan: Plan) -> Spread:
    """The interval that the plan itself states, in the unit of its objective."""
    if not plan.high > plan.low > 0:
        return Spread()
    match Objective.named(plan.objective).figures:
        case (Figure.LATENCY,):
            return Spread(alone_ns=(plan.low, plan.high))
        case (Figure.MONEY,):
            return Spread(usd=(plan.low, plan.high))
        case (Figure.PERIOD,):
            return Spread(rate=(rate_of(plan.high), rate_of(plan.low)))
        case _:
            return Spread()


def _spread(plan: Plan, found: SimulationReport) -> Spread:
    """The plan's own interval, and intervals of draws for the other figures."""
    own = _own_spread(plan)
    if not found.draws:
        return own
    fulls = [draw.full for draw in found.draws]
    slow, fast = middle([full.period_ns for full in fulls])
    usd = plan.usd_per_request / plan.period_ns if plan.period_ns > 0 else 0.0
    return Spread(
        rate=own.rate or (rate_of(fast), rate_of(slow)),
        alone_ns=own.alone_ns,
        loaded_ns=middle([full.latency_ns for full in fulls]),
        usd=own.usd or ((slow * usd, fast * usd) if usd else None),
    )


# --- one period ----------------------------------------------------------------------------------


def _period(found: SimulationReport, programs: Sequence[Program]) -> GivenTimeline | None:
    """One period of the steady state, cut out of requests that come back to back."""
    period = found.full.period_ns
    served = found.served
    if served is None or period <= 0:
        return None
    begun = sorted(passage.began_ns for passage in served.traffic.passages)
    if not begun:
        return None
    # Past the filling of the pipeline, and before it runs empty.
    slots = sum(replica.slots for replica in found.replicas)
    start = begun[min(2 * slots, len(begun) - 1, max(0, len(begun) - slots - 1))]
    end = start + period
    devices = [device.name for device in found.plan.devices]
    spans = []
    rows: dict[tuple[str, str], list[float]] = {}
    for event in sorted(timeline_events(found, programs), key=lambda e: (e.start_ns, e.end_ns)):
        if event.end_ns <= start or event.start_ns >= end:
            continue
        ends = rows.setdefault((event.device, event.queue.value), [])
        row = next((i for i, last in enumerate(ends) if last <= event.start_ns), len(ends))
        ends[row : row + 1] = [event.end_ns]
        spans.append(
            TimelineSpan(
                device=event.device,
                queue=event.queue.value,
                row=row,
                name=event.name,
                start_ns=max(event.start_ns, start) - start,
                end_ns=min(event.end_ns, end) - start,
                request=event.request,
                step=-1 if event.step is None else int(event.step),
                bytes=event.bytes,
                peer=event.peer,
                kind=event.kind,
            )
        )
    return GivenTimeline(name="one period", devices=tuple(devices), spans=tuple(spans))


# --- what-ifs ------------------------------------------------------------------------------------


def _what_ifs(plan: Plan) -> Iterator[WhatIf]:
    handed = any(replica.hand_overs for replica in plan.replicas)
    if is_split(plan) or handed:
        yield _tried("all links 2 times as fast", _with_links(plan, 2.0))
        yield _tried("all links half as fast", _with_links(plan, 0.5))
    # Shares of traces suit the speeds: with others they would be others.
    for names in () if any(replica.shares for replica in plan.replicas) else _alike(plan):
        yield _twice(plan, names)
    for baseline in plan.baselines:
        if baseline.name.startswith("single:") and baseline.period_ns > 0:
            card = baseline.name.removeprefix("single:")
            yield WhatIf(
                change=f"one more GPU like `{card}`",
                rate=rate_of(plan.period_ns) + rate_of(baseline.period_ns),
                latency_ns=max(plan.latency_ns, baseline.latency_ns),
            )


def _alike(plan: Plan) -> list[list[str]]:
    """The devices, by the GPU and the slice of it that they are."""
    gpus = {card.name: card.gpu for card in plan.cards}
    kinds: dict[tuple[str, int], list[str]] = {}
    for device in plan.devices:
        kinds.setdefault((gpus[device.card], device.sms), []).append(device.name)
    return list(kinds.values())


def _twice(plan: Plan, names: Sequence[str]) -> WhatIf:
    """Devices 2 times as fast; copies of their own take 2 times as many requests."""
    few = " and ".join(f"`{name}`" for name in names)
    change = f"{few if len(names) < 3 else f'`{names[0]}` to `{names[-1]}`'} 2 times as fast"
    tried = _tried(change, _with_devices(plan, names))
    if is_split(plan) or any(replica.policy for replica in plan.replicas):
        return tried
    more = sum(r.share for r in plan.replicas if r.lowered.devices[0] in names)
    return replace(tried, rate=rate_of(plan.period_ns) * (1 + more))


def _tried(change: str, plan: Plan) -> WhatIf:
    found = simulate(plan)
    return WhatIf(change=change, rate=rate_of(found.full.period_ns), latency_ns=found.alone_ns)


def _with_links(plan: Plan, factor: float) -> Plan:
    return replace(
        plan,
        capacities=tuple(
            replace(own, bytes_per_second=own.bytes_per_second * factor) for own in plan.capacities
        ),
        paths=tuple(
            replace(own, bytes_per_second=own.bytes_per_second * factor) for own in plan.paths
        ),
    )


def _with_devices(plan: Plan, names: Sequence[str]) -> Plan:
    def faster(placed: PlacedTrace) -> PlacedTrace:
        steps = tuple(
            replace(step, predicted_ns=step.predicted_ns / 2) if step.device in names else step
            for step in placed.steps
        )
        return replace(placed, steps=steps)

    replicas = (
        replace(replica, traces=tuple(map(faster, replica.traces))) for replica in plan.replicas
    )
    return replace(plan, replicas=tuple(replicas))
