"""Plans with two policies, both ready: which replica serves which policy, and times of steps.

In: the replicas of a plan. Out: what the scheduler and the switching rule need to know of them.
After a switch, sequences are handed over where that pays; the others stay until they end. If a
replica of one policy places every step like one of the other policy, the two are one replica, which
takes requests of both. If the two place only states alike, a replica has every trace twice, and its
sequences follow the current policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.batches import Sizes
from tessera.driver.serve.drift import StepMonitor
from tessera.driver.serve.follow import Pays
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.move_prices import MovePrices, check_moves, rule_of_moves
from tessera.driver.serve.policies import LATENCY, PolicySwitch, StepPrices, SwitchRule
from tessera.driver.serve.step_clocks import RatedClock, batches_of
from tessera.driver.serve.step_pace import StepPace, pace_of
from tessera.driver.serve.step_roles import GenerationSteps, wrong_steps
from tessera.ir.plan.plan import Plan, Replica, hosts_of
from tessera.planning.lower.hand_over import HandOverMaker
from tessera.simulation.hardware import Hardware, hardware_of, process_hardware


def with_policies(
    sizes: Sizes,
    replicas: Sequence[Replica],
    policies: Sequence[tuple[str, ...]],
    ways: Mapping[str, int],
) -> Sizes:
    """The sizes, with the policies and the share of every batch, and the traces of each policy."""
    places = batches_of(replicas)
    shares = tuple((replicas[number].share or 1.0) / replicas[number].lanes for number, _ in places)
    named = tuple(policies[number] for number, _ in places)
    is_single = len({policy for own in policies for policy in own}) < 2
    serves: tuple[tuple[float, ...], ...] = ()
    if any(replica.shares for replica in replicas):
        count = 1 + max(step.trace for step in sizes.steps)
        serves = tuple(
            tuple(replicas[n].serves(t) / replicas[n].lanes for t in range(count))
            for n, _ in places
        )
    made = replace(
        sizes, policies=() if is_single else named, shares=shares, ways=ways, serves=serves
    )
    check_roles(made)
    return made


def check_roles(sizes: Sizes) -> None:
    """Refuse replicas that read or answer some prompts only by their length."""
    for batch in range(sizes.batches if sizes.serves else 0):
        own = sizes.served_by(batch)
        for steps, every, what in (
            (own.prefill, sizes.prefill, "prefill"),
            (own.decode, sizes.decode, "decode"),
        ):
            longest = max((step.context for step in every), default=0)
            if steps and max(step.context for step in steps) < longest:
                raise wrong_steps(
                    f"a replica serves only {what} steps of less than {longest} tokens of context",
                    "give it a share of a step with the whole context too",
                )


def find_prices(
    sizes: Sizes,
    replicas: Sequence[Replica],
    policies: Sequence[tuple[str, ...]],
    hardware: Hardware,
) -> StepPrices:
    """Times of steps of the policy for latency, by simulation."""
    traces = 1 + max(placed.trace for replica in replicas for placed in replica.traces)
    clock = RatedClock(replicas, hardware, traces)
    quick = [number for number, own in enumerate(policies) if LATENCY in own]
    way = sizes.ways.get(LATENCY, 0)
    widest = max(sizes.decode, key=lambda step: (step.rows, -step.context))
    chunks = [clock.step_ns(step.trace + way, quick) for step in sizes.prefill]
    return StepPrices(
        sizes=sizes,
        prefill_ns=max(chunks, default=0.0),
        decode_ns=clock.step_ns(widest.trace + way, quick) / widest.rows,
    )


def find_pace(
    sizes: Sizes, replicas: Sequence[Replica], hardware: Hardware, slo: Slo, backend: str
) -> StepPace | None:
    """How many tokens mixed steps take, by the times of the plan; None if steps are not mixed.

    Plans have no times of the CPU backend: there steps are as large as they can be, but for limits.
    """
    if not sizes.is_mixed or (backend == "cpu" and slo == Slo()):
        return None
    traces = 1 + max(placed.trace for replica in replicas for placed in replica.traces)
    clock = RatedClock(replicas, hardware, traces)
    times = [
        (step.tokens, max(clock.alone_ns(step.trace, number) for number in range(len(replicas))))
        for step in sizes.decode
    ]
    return pace_of(times, ttft_ns=slo.ttft_ns, tpot_ns=slo.tpot_ns)


def engine_sizes(model: GenerationSteps, runtime: Runtime) -> Sizes:
    """The sizes that the scheduler of an engine needs."""
    sizes = model.sizes(runtime.sequences)
    return with_policies(sizes, runtime.replicas, runtime.policies, runtime.ways)


def find_switch(sizes: Sizes, runtime: Runtime, rule: SwitchRule | None) -> PolicySwitch | None:
    """The rule that gives prompts their policy; None if there is only one policy."""
    check_rule(rule, is_needed=bool(sizes.policies))
    if not sizes.policies:
        return None
    hardware = engine_hardware(runtime.plan, runtime.backend)
    return PolicySwitch(find_prices(sizes, runtime.replicas, runtime.policies, hardware), rule)


def find_pays(sizes: Sizes, runtime: Runtime, switch: PolicySwitch | None) -> Pays | None:
    """Which answers are handed over after a switch; None if they all stay where they are.

    Raises TSR4020 if replicas have roles, and sequences cannot go from one to another.
    """
    if not sizes.serves and (switch is None or runtime.ways):
        return None
    hardware = engine_hardware(runtime.plan, runtime.backend)
    made = partial(
        HandOverMaker,
        [replica.lowered for replica in runtime.replicas],
        runtime.programs,
        runtime.graphs,
        hosts_of(runtime.plan),
    )
    prices = MovePrices(sizes, runtime.replicas, hardware, made)
    check_moves(sizes, prices)
    if switch is None or runtime.ways:
        return None
    return rule_of_moves(sizes, runtime.replicas, hardware, prices, switch)


def check_rule(rule: SwitchRule | None, *, is_needed: bool) -> None:
    """Refuse a rule if there is nothing to switch between: it would be ignored silently."""
    if rule is not None and not is_needed:
        raise TesseraError.of(
            "TSR5053",
            "a rule says when to switch, and there are no two policies to switch between",
            hint="plan with `--objective latency+throughput`, and name no `--policy`",
        )


def find_monitor(runtime: Runtime, asked: bool | None) -> StepMonitor | None:
    """The monitor of step times; by default only on GPUs, for which plans are made."""
    is_wanted = runtime.backend.is_on_gpus if asked is None else asked
    if not is_wanted:
        return None
    hardware = engine_hardware(runtime.plan, runtime.backend)
    return StepMonitor(runtime.plan, runtime.replicas, hardware)


def check_same_steps(before: GenerationSteps, after: GenerationSteps) -> None:
    """Refuse a plan that cannot take over: its steps, or what its states hold, differ."""
    for name in ("state_rows", "context", "blocks", "block", "end", "resets"):
        ours, theirs = getattr(before, name), getattr(after, name)
        if ours != theirs:
            raise wrong_steps(
                f"the other plan cannot take over: its `{name}` is {theirs}, not {ours}"
            )
    steps = [[(step.name, step.size) for step in model.steps] for model in (before, after)]
    if steps[0] != steps[1]:
        raise wrong_steps(
            "the other plan cannot take over: its traces are other steps",
            "plan the same traces, in the same order",
        )


def engine_hardware(plan: Plan, backend: str) -> Hardware:
    """The hardware on which a runtime is simulated; plans without links have no wires."""
    made = None if backend == "cpu" else hardware_of(plan)
    return made or process_hardware(tuple(device.name for device in plan.devices), None)
