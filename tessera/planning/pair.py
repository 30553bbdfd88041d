"""Two policies in one plan, for latency and for throughput, that fit in memory together.

In: a `PlanSetting`. Out: a `Decision` whose plan has replicas of two policies. The chosen pair
loses least against the best plan of each policy. Both stay resident: they share the weights, with
one layout on every device, and nothing else.

With `states_alike`, a sequence may change between the policies at any step: the search for latency
is made again with every step that touches a state kept where the policy for throughput has it
(`alike_pairs`). The cost of this is reported against the best pair that places states anywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tessera.diagnostics import Diagnostic, warning
from tessera.ir.objectives import LATENCY, PAIR, POLICIES, THROUGHPUT, Objective
from tessera.ir.plan.costs import Barred, Costs
from tessera.ir.plan.launch_program import PLACE_ALIGNMENT, AreaKind, Place
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.plan.policies import are_alike
from tessera.ir.program.program import Program, Role
from tessera.planning.attempts import (
    attempt_with,
    attempts,
    bound_of_any,
    runs_alone,
)
from tessera.planning.choose_best import choose_best
from tessera.planning.find_plan import PROVING, SIMULATING, Decision, find_plan
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.given.setting_problem import build_problem
from tessera.planning.promise.assemble import Simulated, assemble, overflows, used_bytes
from tessera.planning.promise.promise import Promise, promise, promises
from tessera.planning.refusals import (
    Refused,
    findings_of,
    no_plan,
    none_left,
    refusals_of,
    was_ended,
)
from tessera.planning.search.plans import Choice
from tessera.wording import Wording

_MOST_WIDE = 3
"""Number of throughput candidates that get their own search for latency."""


def alike_pairs(
    setting: PlanSetting, quick: Attempt, widest: Sequence[Promise], watch: Watch
) -> Iterator[tuple[Promise, Promise]]:
    """Pairs with one replica each, whose states are on the same devices."""
    programs = [trace.program for trace in setting.traces]
    single = [wide for wide in widest if len(wide.simulated.replicas) == 1]
    for wide in single[:_MOST_WIDE]:
        kept = _kept_where(setting, wide.simulated.replicas[0])
        attempt = replace(quick, planning=build_problem(kept, quick.slots, quick.lanes))
        choice = choose_best(kept, attempt, LATENCY, watch)
        if choice is None:
            continue
        quickest = promises(kept, [(attempt, choice)], LATENCY, keep_slots=True, part=0.5)
        for first in quickest:
            replicas = first.simulated.replicas
            if len(replicas) == 1 and are_alike(replicas[0], wide.simulated.replicas[0], programs):
                yield first, wide


def _kept_where(setting: PlanSetting, replica: Replica) -> PlanSetting:
    """Restrict steps that touch states to the devices where a replica runs them."""
    numbers = {device.name: device.id for device in setting.machine.devices}
    made = []
    for trace, costs, placed in zip(setting.traces, setting.costs, replica.traces, strict=True):
        states = {b.id for b in trace.program.buffers if b.role is Role.STATE}
        touching = {
            int(node.id)
            for node in trace.graph.nodes
            if any(access.buffer in states for access in node.accesses)
        }
        where = {step.step: numbers[step.device] for step in placed.steps}
        made.append(
            Costs(
                tuple(
                    replace(
                        step,
                        on_device=tuple(
                            cost
                            if device == where[step.step]
                            else Barred(Wording("states are alike"))
                            for device, cost in enumerate(step.on_device)
                        ),
                    )
                    if step.step in touching
                    else step
                    for step in costs.steps
                )
            )
        )
    return replace(setting, costs=tuple(made))


def cost_of(first: Promise, second: Promise, fast: Promise, wide: Promise) -> Diagnostic:
    """The loss of the pair against the best of each policy with states anywhere."""
    latency = first.chosen.latency_ns / fast.chosen.latency_ns - 1
    period = second.chosen.period_ns / wide.chosen.period_ns - 1
    return warning(
        "TSR3028",
        f"states are placed alike: {latency:.1%} more latency, {period:.1%} more time between "
        "requests than the best of each policy",
        notes=(
            f"latency: `{first.chosen.name}` in place of `{fast.chosen.name}`",
            f"throughput: `{second.chosen.name}` in place of `{wide.chosen.name}`",
        ),
    )


_MOST_PAIRS = 12  # pairs to lower and prove before fewer slots are tried


def find_pair(setting: PlanSetting, watch: Watch) -> Decision:
    """The best pair of policies that fits and is proved.

    If requests run one at a time, the same plan is best for both policies.
    """
    if runs_alone(setting):
        options = replace(setting.options, objective=POLICIES[0])
        return find_plan(replace(setting, options=options), watch)
    refused: list[Refused] = []
    attempt = None
    watch.stopped()
    for attempt in attempts(setting):
        quick = attempt_with(setting, setting.options.slots or 1, attempt.lanes)
        fast = choose_best(setting, quick, LATENCY, watch)
        wide = choose_best(setting, attempt, THROUGHPUT, watch)
        if fast is None or wide is None:
            continue
        watch.tell(SIMULATING)
        fast, wide = (
            replace(own, bound=min(own.bound, bound_of_any(setting, attempt, own.objective, watch)))
            for own in (fast, wide)
        )
        quickest = _half(setting, quick, fast, LATENCY)
        widest = _half(setting, attempt, wide, THROUGHPUT)
        pairs: Iterable[tuple[Promise, Promise]] = itertools.product(quickest, widest)
        if setting.options.states_alike:
            pairs = alike_pairs(setting, quick, widest, watch)
        ranked = sorted(pairs, key=lambda pair: _loss(pair, quickest, widest))
        for first, second in ranked[:_MOST_PAIRS]:
            watch.tell(PROVING)
            others = [other.simulated for other in widest if other is not second]
            plan = _join(setting, fast, first, wide, second, others)
            if overflows(plan):
                first = _packed(first.setting, first.attempt, first, LATENCY)
                second = _packed(setting, attempt, second, THROUGHPUT)
                plan = _join(setting, fast, first, wide, second, others)
            findings = findings_of(setting, plan)
            if not findings:
                notes = [*refusals_of(refused), *was_ended(wide, second.chosen)]
                if setting.options.states_alike:
                    notes.append(cost_of(first, second, quickest[0], widest[0]))
                return Decision(
                    plan=plan,
                    setting=setting,
                    attempt=attempt,
                    choice=wide,
                    chosen=second.chosen,
                    diagnostics=tuple(notes),
                )
            refused.append((plan.strategy, findings))
    assert attempt is not None
    if refused:
        raise none_left(refused)
    raise no_plan(attempt.planning, setting.costs, setting.machine)


def _half(
    setting: PlanSetting, attempt: Attempt, choice: Choice, objective: Objective
) -> list[Promise]:
    """Promises for one of the two policies, with half of the memory."""
    return promises(setting, [(attempt, choice)], objective, keep_slots=True, part=0.5)


def _packed(setting: PlanSetting, attempt: Attempt, made: Promise, objective: Objective) -> Promise:
    """A promise of the same candidate whose buffers share bytes wherever possible."""
    return promise(setting, attempt, made.searched, objective, keep_slots=True, part=0.0)


def _loss(pair: tuple[Promise, Promise], quickest: list[Promise], widest: list[Promise]) -> float:
    """The loss of a pair against the best of each policy."""
    quick, wide = pair[0].chosen, pair[1].chosen
    return (
        quick.latency_ns / quickest[0].chosen.latency_ns
        + wide.period_ns / widest[0].chosen.period_ns
    )


def _join(
    setting: PlanSetting,
    fast: Choice,
    first: Promise,
    wide: Choice,
    second: Promise,
    others: list[Simulated],
) -> Plan:
    """One plan with the replicas of both."""
    base = assemble(setting, second.attempt, wide, second.simulated, others)
    quick = (replace(replica, policy=POLICIES[0]) for replica in first.simulated.replicas)
    replicas = share_weights(
        (*quick, *(replace(replica, policy=POLICIES[1]) for replica in base.replicas)),
        [trace.program for trace in setting.traces],
    )
    gap = first.chosen.latency_ns / fast.bound - 1.0 if fast.bound > 0 else 0.0
    return replace(
        base,
        objective=PAIR,
        strategy=f"{first.chosen.name} + {second.chosen.name}",
        latency_ns=first.chosen.latency_ns,
        gap=max(base.gap, gap, 0.0),
        replicas=replicas,
        cards=tuple(
            replace(planned, used_bytes=used_bytes(setting.machine, card.id, replicas))
            for planned, card in zip(base.cards, setting.machine.cards, strict=True)
        ),
    )


_Held = tuple[int, int | None]
"""What a place holds of its buffer: `first` and `end`."""


def share_weights(replicas: Sequence[Replica], programs: Sequence[Program]) -> tuple[Replica, ...]:
    """The replicas with one weight layout per device that holds the weights of all of them."""
    held: dict[tuple[str, str], _Held] = {}
    sizes: dict[str, int] = {}
    for replica in replicas:
        for place in replica.lowered.places:
            if place.kind is AreaKind.WEIGHTS:
                buffer = programs[place.trace].buffers[place.buffer]
                sizes[buffer.name] = buffer.bytes
                key = place.device, buffer.name
                held[key] = _both(held.get(key, (place.first, place.end)), place)
    layout: dict[tuple[str, str], tuple[int, _Held]] = {}
    ends: dict[str, int] = {}
    for (device, name), (first, end) in held.items():
        layout[device, name] = ends.get(device, 0), (first, end)
        size = (sizes[name] if end is None else end) - first
        ends[device] = ends.get(device, 0) + -(-size // PLACE_ALIGNMENT) * PLACE_ALIGNMENT
    return tuple(_laid_out(replica, programs, layout, ends) for replica in replicas)


def _both(known: _Held, place: Place) -> _Held:
    end = None if known[1] is None or place.end is None else max(known[1], place.end)
    return min(known[0], place.first), end


def _laid_out(
    replica: Replica,
    programs: Sequence[Program],
    layout: Mapping[tuple[str, str], tuple[int, _Held]],
    ends: dict[str, int],
) -> Replica:
    lowered = replica.lowered
    areas = (
        replace(area, bytes=ends[area.device]) if area.kind is AreaKind.WEIGHTS else area
        for area in lowered.areas
    )
    places = []
    for place in lowered.places:
        if place.kind is AreaKind.WEIGHTS:
            name = programs[place.trace].buffers[place.buffer].name
            offset, (first, end) = layout[place.device, name]
            place = replace(place, offset=offset, first=first, end=end)
        places.append(place)
    return replace(replica, lowered=replace(lowered, areas=tuple(areas), places=tuple(places)))
