"""Two ways to serve in one plan, for latency and for throughput, whose memory fits together.

In: a `PlanSetting`. Out: a `Decision` whose plan has replicas of two policies. The pair is chosen
that loses least against the best of each. Both stay resident: weights once for both, with one
layout on every device, all else for each.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic, ExitCode, TesseraError
from tessera.driver.plan.assemble import Attempt, PlanSetting, assemble, lower_candidate, used_bytes
from tessera.driver.plan.options import Watch
from tessera.driver.plan.refusals import no_plan
from tessera.driver.plan.search import (
    PROVING,
    Decision,
    attempts,
    build_problem,
    choose_best,
    find_plan,
    findings_of,
    refusal_of,
    runs_alone,
    was_ended,
)
from tessera.ir.choices import POLICIES, Objective
from tessera.ir.plan.launch_program import PLACE_ALIGNMENT, AreaKind
from tessera.ir.plan.plan import Plan, Replica
from tessera.ir.program.program import Program
from tessera.passes.placement.candidates import Candidate
from tessera.passes.placement.plans import Choice

_MOST_PAIRS = 12  # to lower and prove, before fewer slots are tried


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How to serve under one policy."""

    attempt: Attempt
    choice: Choice
    chosen: Candidate


def find_pair(setting: PlanSetting, watch: Watch) -> Decision:
    """The best two ways that fit together and are proved.

    Where requests run one at a time, what is best for one is best for the other.
    """
    if runs_alone(setting):
        options = replace(setting.options, objective=POLICIES[0])
        return find_plan(replace(setting, options=options), watch)
    refused: list[Diagnostic] = []
    attempt = None
    watch.stopped()
    for attempt in attempts(setting):
        slots = setting.options.slots or 1
        quick = Attempt(
            slots=slots,
            lanes=attempt.lanes,
            planning=build_problem(setting, slots, attempt.lanes),
        )
        fast = choose_best(setting, quick, Objective.LATENCY, watch)
        wide = choose_best(setting, attempt, Objective.THROUGHPUT, watch)
        if fast is None or wide is None:
            continue
        for first, second in itertools.islice(_pairs(quick, fast, attempt, wide), _MOST_PAIRS):
            watch.tell(PROVING)
            plan = _join(setting, first, second)
            findings = findings_of(setting, plan)
            if not findings:
                return Decision(
                    plan=plan,
                    setting=setting,
                    attempt=attempt,
                    choice=wide,
                    chosen=second.chosen,
                    diagnostics=(*refused, *was_ended(wide, second.chosen)),
                )
            refused.append(refusal_of(plan.strategy, findings))
    assert attempt is not None
    if refused:
        raise TesseraError(refused[0], exit_code=ExitCode.NO_PLAN)
    raise no_plan(attempt.planning, setting.costs, setting.machine)


def _pairs(
    quick: Attempt, fast: Choice, attempt: Attempt, wide: Choice
) -> Iterator[tuple[_Way, _Way]]:
    """All pairs, those that lose least first."""

    def loss(pair: tuple[Candidate, Candidate]) -> float:
        return pair[0].latency_ns / fast.best.latency_ns + pair[1].period_ns / wide.best.period_ns

    for for_latency, for_throughput in sorted(
        itertools.product(fast.candidates, wide.candidates), key=loss
    ):
        yield (
            _Way(attempt=quick, choice=fast, chosen=for_latency),
            _Way(attempt=attempt, choice=wide, chosen=for_throughput),
        )


def _join(setting: PlanSetting, fast: _Way, wide: _Way) -> Plan:
    """One plan with the replicas of both."""
    base = assemble(setting, wide.attempt, wide.choice, wide.chosen)
    quick = lower_candidate(setting, fast.attempt, fast.chosen, POLICIES[0])
    replicas = share_weights(
        (*quick, *(replace(replica, policy=POLICIES[1]) for replica in base.replicas)),
        [trace.program for trace in setting.traces],
    )
    gap = fast.chosen.latency_ns / fast.choice.bound - 1.0 if fast.choice.bound > 0 else 0.0
    return replace(
        base,
        objective=Objective.PAIR,
        strategy=f"{fast.chosen.name} + {wide.chosen.name}",
        latency_ns=fast.chosen.latency_ns,
        gap=max(base.gap, gap, 0.0),
        replicas=replicas,
        cards=tuple(
            replace(planned, used_bytes=used_bytes(setting.machine, card.id, replicas))
            for planned, card in zip(base.cards, setting.machine.cards, strict=True)
        ),
    )


def share_weights(replicas: Sequence[Replica], programs: Sequence[Program]) -> tuple[Replica, ...]:
    """The replicas with one layout of the weights on every device, which has all that any needs."""
    layouts: dict[str, dict[str, int]] = {}
    ends: dict[str, int] = {}
    for replica in replicas:
        for place in replica.lowered.places:
            if place.kind is AreaKind.WEIGHTS:
                buffer = programs[place.trace].buffers[place.buffer]
                layout = layouts.setdefault(place.device, {})
                if buffer.name not in layout:
                    layout[buffer.name] = ends.get(place.device, 0)
                    blocks = -(-buffer.bytes // PLACE_ALIGNMENT)
                    ends[place.device] = layout[buffer.name] + blocks * PLACE_ALIGNMENT
    return tuple(_laid_out(replica, programs, layouts, ends) for replica in replicas)


def _laid_out(
    replica: Replica,
    programs: Sequence[Program],
    layouts: dict[str, dict[str, int]],
    ends: dict[str, int],
) -> Replica:
    lowered = replica.lowered
    areas = (
        replace(area, bytes=ends[area.device]) if area.kind is AreaKind.WEIGHTS else area
        for area in lowered.areas
    )
    places = (
        replace(
            place,
            offset=layouts[place.device][programs[place.trace].buffers[place.buffer].name],
        )
        if place.kind is AreaKind.WEIGHTS
        else place
        for place in lowered.places
    )
    return replace(replica, lowered=replace(lowered, areas=tuple(areas), places=tuple(places)))
