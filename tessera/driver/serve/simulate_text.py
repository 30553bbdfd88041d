"""`simulate_text`: how a plan would serve requests for text that arrive at given times.

In: a plan, its declaration, arrivals. Out: a `ServingReport`. The scheduler is that of the engine;
a clock of `step_clocks` says when steps end, by the launch programs of the plan. Nothing runs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.driver.run.join_policies import can_join, joined_replica
from tessera.driver.serve.batches import Sizes
from tessera.driver.serve.follow import Following, Wanted, crowding, refusals
from tessera.driver.serve.measures import ServingReport
from tessera.driver.serve.move_prices import MovePrices, check_moves, rule_of_moves
from tessera.driver.serve.options import (
    BY_NAME,
    ArrivingText,
    Between,
    ClockKind,
    TextSimulationOptions,
)
from tessera.driver.serve.policies import ForeseenSwitch, PolicySwitch, StepPrices
from tessera.driver.serve.residents import check_rule, find_pace, find_prices, with_policies
from tessera.driver.serve.step_clocks import ExactClock, RatedClock, StepClock, batches_of
from tessera.driver.serve.step_roles import GenerationSteps
from tessera.driver.serve.steps import Declaration, declaration_beside, find_steps, read_declaration
from tessera.driver.traces import read_planned
from tessera.ir.choices import ADAPTIVE
from tessera.ir.plan.plan import Plan, Replica, hosts_of
from tessera.ir.plan.policies import policies_of
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, counter
from tessera.planning.lower.hand_over import HandOverMaker
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate import with_counts
from tessera.simulation.simulate_plan import (
    check_followed,
    choose_served,
    find_hardware,
    read_followed,
)

MOST_EXACT = 3_000_000
"""Most operations that are simulated one by one (about a minute); above that, rates are used
unless `exact` is asked for."""


def simulate_text(
    plan: Plan | str | os.PathLike[str],
    arriving: ArrivingText,
    options: TextSimulationOptions | None = None,
    on_progress: OnProgress | None = None,
) -> ServingReport:
    """Follow requests for text through a plan."""
    options = options or TextSimulationOptions()
    read, name = read_followed(plan)
    model = stated_steps(read, plan, options.steps)
    plain = SimulateOptions(
        slots=options.slots,
        sequences=options.sequences,
        policy=options.chosen_policy(read),
        backend=options.backend,
        throttle_bytes_per_s=options.throttle_bytes_per_s,
    )
    replicas, policies = choose_served(read, plain, name)
    programs = programs_of(read)
    ways: dict[str, int] = {}
    if plain.policy == ADAPTIVE and can_join(read, programs):
        ways[policies_of(read)[-1]] = len(read.traces)
        joined = joined_replica(read)
        slots, lanes = options.slots or joined.slots, options.sequences or joined.lanes
        replicas = (with_counts(joined, slots, lanes),)
        policies = (tuple(policies_of(read)),)
    hardware = find_hardware(read, plain, name)
    check_followed(read, read.replicas, hardware)
    sizes = with_policies(model.sizes(len(batches_of(replicas))), replicas, policies, ways)
    wanted = arriving.wanted(arriving.read())
    policy, is_adaptive = None, plain.policy == ADAPTIVE
    check_rule(options.switch, is_needed=is_adaptive)
    if is_adaptive:
        policy = switching(find_prices(sizes, replicas, policies, hardware), options, wanted)
    is_exact = _is_exact(options, sizes, wanted, replicas)
    count = len(read.traces) * (1 + len(ways))
    between = sizes.steps if options.between == Between.INTERPOLATE else ()
    clock: StepClock = (
        ExactClock(replicas, hardware)
        if is_exact
        else RatedClock(replicas, hardware, count, between)
    )
    prices = MovePrices(sizes, replicas, hardware, partial(_hand_overs, read, replicas))
    check_moves(sizes, prices)
    pays = None
    if policy is not None and not ways:
        pays = rule_of_moves(sizes, replicas, hardware, prices, policy)
    following = Following(
        sizes,
        clock,
        burst=arriving.burst,
        reuse=arriving.reuse,
        pace=find_pace(sizes, replicas, hardware, arriving.slo, options.backend),
        policy=policy,
        move_price=prices.of,
        pays=pays,
    )
    followed = following.run(wanted, counter(on_progress, "simulating", "requests"))
    first = min((request.came_ns for request in followed.requests), default=0.0)
    span = followed.ended_ns - first
    busy = {place: ns / span if span else 0.0 for place, ns in clock.busy_ns().items()}
    return ServingReport(
        name=name,
        source="simulated",
        requests=followed.requests,
        waiting=followed.waiting,
        steps=_counted(followed.steps, [trace.name for trace in read.traces]),
        busy=busy,
        slo=arriving.slo,
        notes=(*_notes(sizes, options, is_exact), *refusals(sizes, wanted), *crowding(followed)),
        switches=() if policy is None else tuple(policy.switches),
        reused=followed.reused,
        preempted=followed.preempted,
    )


def _hand_overs(plan: Plan, replicas: Sequence[Replica]) -> HandOverMaker:
    """How sequences are handed over between replicas; without graphs, all of their states."""
    programs = [read_planned(trace, trace.name)[0] for trace in plan.traces]
    return HandOverMaker([own.lowered for own in replicas], programs, None, hosts_of(plan))


def switching(
    prices: StepPrices, options: TextSimulationOptions, wanted: list[Wanted]
) -> PolicySwitch:
    """The switching rule, or with `foresees` the one that knows future requests."""
    rule = options.switch
    if not options.foresees:
        return PolicySwitch(prices, rule)
    return ForeseenSwitch(prices, rule, ((w.at_ns, w.prompt, w.answer) for w in wanted))


def stated_steps(
    plan: Plan, given: object, steps: Declaration | str | os.PathLike[str] | None
) -> GenerationSteps:
    """The steps of a plan, from a declaration, the file beside the plan, or names of inputs."""
    chosen = declaration_beside(given) if steps is None else steps
    declared = None if chosen is None or chosen == BY_NAME else read_declaration(chosen)
    return find_steps([trace.name for trace in plan.traces], programs_of(plan), declared)


def programs_of(plan: Plan) -> list[Program]:
    """The programs of a plan's traces."""
    return [read_program(Source(trace.name, trace.text))[0] for trace in plan.traces]


def _counted(steps: Mapping[int, int], names: Sequence[str]) -> dict[str, int]:
    """The number of steps by name of their trace, over all policies."""
    counts: dict[str, int] = {}
    for trace, count in sorted(steps.items()):
        name = names[trace % len(names)]
        counts[name] = counts.get(name, 0) + count
    return counts


def _is_exact(
    options: TextSimulationOptions,
    sizes: Sizes,
    wanted: list[Wanted],
    replicas: tuple[Replica, ...],
) -> bool:
    """Whether every operation is simulated: as asked, or if there are few enough."""
    if options.clock != ClockKind.AUTO or options.between == Between.INTERPOLATE:
        return options.clock == ClockKind.EXACT
    operations = max(
        sum(len(program.operations) for program in lowered.programs)
        for replica in replicas
        for lowered in replica.lowered.traces
    )
    chunk = max((step.tokens for step in sizes.prefill), default=1)
    steps = sum(
        sizes.prefilled(w.prompt) / chunk + sizes.decode_steps(w.prompt, w.answer) / sizes.rows
        for w in wanted
    )
    return steps * operations <= MOST_EXACT


def _notes(sizes: Sizes, options: TextSimulationOptions, is_exact: bool) -> list[str]:
    """What the figures rest on."""
    counted = "m - 1" if sizes.first_from_prefill else "m"
    if sizes.is_mixed:
        most = sizes.decode[-1].tokens
        steps = f"steps take up to {most} tokens, of answers first and then of prompts"
    elif sizes.prefill:
        steps = (
            f"a prompt of n tokens is ceil(n/{max(s.tokens for s in sizes.prefill)}) prefill "
            f"steps, an answer of m tokens takes part in {counted} decode steps"
        )
    else:
        steps = "prompts go through decode steps, token by token: the plan has no prefill step"
    if options.between == Between.INTERPOLATE:
        times = "times of rows and contexts between the traces are interpolated"
    elif len(sizes.steps) > len({step.tokens for step in sizes.steps}):
        times = "every step takes the time of the smallest trace that holds it"
    else:
        times = "every step takes the time of its trace, however many rows are in use"
    how = (
        "every operation is followed"
        if is_exact
        else "steps go by rates, found by following each trace alone and beside its kind"
    )
    return [steps, times, how]
