"""Two policies that place states alike, so that a sequence may change between them at any step.

In: what the search found for throughput. Out: the same search for latency with every step that
touches a state kept where the policy for throughput has it, and the pairs that come of that. What
that costs is said against the best pair that places states anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tessera.diagnostics import Diagnostic, warning
from tessera.ir.objectives import LATENCY
from tessera.ir.plan.costs import Barred, Costs
from tessera.ir.plan.plan import Replica
from tessera.ir.plan.policies import are_alike
from tessera.ir.program.program import Role
from tessera.planning.attempts import build_problem
from tessera.planning.find_plan import choose_best
from tessera.planning.given.options import Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.promise.promise import Promise, promises
from tessera.wording import Wording

_MOST_WIDE = 3
"""So many ways for throughput get a search for latency of their own."""


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
    """Steps that touch states can run only where a replica runs them."""
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
    """What the pair loses against the best of each policy, with states anywhere."""
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
