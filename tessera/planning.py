"""`plan`: from a trace and a list of GPUs to a plan, in one straight line.

In: a file and `PlanOptions`. Out: a `PlanReport`: the plan and what was found on the way. Raises
`TesseraError`, with exit code 3 where no plan is possible: it says which constraint is in the way
and the smallest change that would help.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.driver import load
from tessera.frontend.gpus import DEFAULT_LINK, machine_of
from tessera.frontend.profile import bad_profile, parse_profile
from tessera.frontend.quantities import format_bytes
from tessera.frontend.readfile import read_source
from tessera.ir.costs import Costs, CostSource, Duration
from tessera.ir.graph import KernelGraph
from tessera.ir.machine import CardId, Machine
from tessera.ir.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTrace,
    PlannedTransfer,
    Replica,
    text_digest,
)
from tessera.ir.program import Launch, Program
from tessera.ir.trace_text import print_program
from tessera.passes.adjust_costs import merge_profiles, restrict_steps
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences import Dependences
from tessera.passes.estimate_costs import estimate_costs, runs_on
from tessera.passes.lower_plan import lower_replica
from tessera.passes.partition_infeasible import find_obstacle
from tessera.passes.partition_plans import Candidate, Choice, ReplicaPlan, choose
from tessera.passes.partition_problem import transfers_of
from tessera.passes.partition_solve import SolveOptions, write_lp
from tessera.passes.plan_problem import RESERVED_BYTES, Planning, problem_of

NO_PLAN = 3
AUTO_SLOTS = (4, 2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """What to plan for. `machine` wins over `gpus`; no `slots` is the most of 4, 2, 1 that fits."""

    gpus: str = ""
    machine: Machine | None = None
    link: str = DEFAULT_LINK
    objective: str = "throughput"
    slots: int | None = None
    gap: float = 0.001
    prices: tuple[tuple[str, float], ...] = ()
    memory: tuple[tuple[str, int], ...] = ()
    profiles: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()

    def text(self) -> str:
        """The one text form of what decides the plan, but for machine and program."""
        slots = "auto" if self.slots is None else self.slots
        rules = [f"pin={rule}" for rule in self.pins] + [f"forbid={rule}" for rule in self.forbids]
        parts = (f"objective={self.objective}", f"slots={slots}", f"gap={self.gap!r}", *rules)
        return f"plan{{{','.join(parts)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A plan, the machine it is for, and where its durations come from."""

    plan: Plan
    machine: Machine
    sources: tuple[tuple[CostSource, int], ...]
    diagnostics: tuple[Diagnostic, ...]


def plan(path: str | os.PathLike[str], options: PlanOptions) -> PlanReport:
    """Plan one trace for a machine."""
    program = load(path)
    machine = _machine(options)
    facts = AnalysisManager(program).get(Dependences)
    if not facts.graph.nodes:
        raise TesseraError(
            error("TSR3013", f"there is nothing to plan in `{os.fspath(path)}`",
                  notes=("it has no launch, memset, memcpy or op record",))
        )  # fmt: skip
    costs = _costs(program, facts.graph, machine, options)
    planning, choice, slots = _choose(facts.graph, machine, costs, options)
    found = _plan(program, machine, facts.graph, costs, planning, choice, slots, options)
    unmeasured = warning(
        "TSR3014",
        "durations come from data sheets, not from measurements",
        notes=("loops count once; ranking two GPUs by these times can be wrong",),
    )
    return PlanReport(
        plan=found, machine=machine, sources=costs.sources(),
        diagnostics=(*facts.diagnostics, *([unmeasured] if _estimated(costs) else ())),
    )  # fmt: skip


def emit_lp(path: str | os.PathLike[str], options: PlanOptions) -> str:
    """The integer program behind a throughput plan, in the LP format."""
    program = load(path)
    machine = _machine(options)
    graph = AnalysisManager(program).get(Dependences).graph
    costs = _costs(program, graph, machine, options)
    planning = problem_of(graph, machine, costs, slots=options.slots or AUTO_SLOTS[0])
    if not all(task.allowed() for task in planning.problem.tasks):
        raise TesseraError(_no_plan(planning, costs, machine), exit_code=NO_PLAN)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "model.lp"
        write_lp(planning.problem, str(target))
        return target.read_text("utf-8")


def _estimated(costs: Costs) -> bool:
    return any(source is not CostSource.PROFILE for source, _ in costs.sources())


def _costs(program: Program, graph: KernelGraph, machine: Machine, options: PlanOptions) -> Costs:
    """Estimates, then profiles, then pins."""
    costs = estimate_costs(program, graph, machine)
    digest = _digest(program)
    profiles = []
    for path in options.profiles:
        profile = parse_profile(read_source(path).text, path)
        if profile.program_digest != digest:
            raise bad_profile(
                f"`{path}` is a profile of another trace", f"the digest of this one is {digest}"
            )
        profiles.append(profile)
    costs = merge_profiles(costs, machine, profiles)
    for rules, forbid in ((options.pins, False), (options.forbids, True)):
        for rule in rules:
            steps, _, devices = rule.rpartition("=")
            changed = restrict_steps(costs, machine, steps, devices, forbid=forbid)
            if changed is None:
                option = "--forbid" if forbid else "--pin"
                raise TesseraError(_bad_rule(f"{option} {rule}", machine))
            costs = changed
    return costs


def _bad_rule(rule: str, machine: Machine) -> Diagnostic:
    names = ", ".join(device.name for device in machine.devices)
    return error(
        "TSR3016", f"`{rule}` names no step or no GPU of the machine",
        hint=f"write `STEP=GPU`, a step as `#3` or by kernel name; the GPUs are: {names}",
    )  # fmt: skip


def _digest(program: Program) -> str:
    return text_digest(print_program(program))


def _machine(options: PlanOptions) -> Machine:
    return options.machine or machine_of(
        options.gpus, options.link, prices=dict(options.prices), memory=dict(options.memory)
    )


def _choose(
    graph: KernelGraph, machine: Machine, costs: Costs, options: PlanOptions
) -> tuple[Planning, Choice, int]:
    tries = AUTO_SLOTS if options.slots is None else (options.slots,)
    for slots in (1,) if options.objective == "latency" and options.slots is None else tries:
        planning = problem_of(graph, machine, costs, slots=slots)
        choice = choose(planning.problem, options.objective, SolveOptions(gap=options.gap))
        if choice is not None:
            return planning, choice, slots
    raise TesseraError(_no_plan(planning, costs, machine), exit_code=NO_PLAN)


def _no_plan(planning: Planning, costs: Costs, machine: Machine) -> Diagnostic:
    obstacle = find_obstacle(planning.problem)
    if obstacle.kind == "task":
        name = obstacle.tasks[0]
        index = [task.name for task in planning.problem.tasks].index(name)
        steps = [n for n, task in enumerate(planning.task_of) if task == index]
        why = [
            f"{device.name}: {cost.reason}"
            for n in steps
            for device, cost in zip(machine.devices, costs.steps[n].on_device, strict=True)
            if not isinstance(cost, Duration)
        ]
        return error(
            "TSR3011", f"no GPU of the machine can run `{name}`", notes=tuple(why[:4]),
            hint="add a GPU that can, or a variant of the module for one of these",
        )  # fmt: skip
    if obstacle.kind == "links":
        return error(
            "TSR3012", "steps that depend on each other must be on GPUs that no link joins",
            hint="join the GPUs with a link, or offer one that can run all the steps",
        )  # fmt: skip
    need, have = format_bytes(obstacle.need_bytes), format_bytes(obstacle.have_bytes)
    hint = None
    if obstacle.extra_bytes:
        name, extra = min(
            ((n, b + _missing_reserve(machine, n)) for n, b in obstacle.extra_bytes),
            key=lambda pair: pair[1],
        )
        hint = f"with {format_bytes(extra)} more on `{name}` it fits; or add a GPU"
    return error(
        "TSR3010", "the model does not fit in the memory of these GPUs",
        notes=(f"one copy of all buffers takes {need}, the GPUs have {have} in all",), hint=hint,
    )  # fmt: skip


def _missing_reserve(machine: Machine, name: str) -> int:
    """Bytes that a card lacks of what is kept back before any buffer."""
    card = next(card for card in machine.cards if card.name == name)
    return max(0, RESERVED_BYTES * len(machine.slices_of(card.id)) - card.memory_bytes)


def _plan(
    program: Program,
    machine: Machine,
    graph: KernelGraph,
    costs: Costs,
    planning: Planning,
    choice: Choice,
    slots: int,
    options: PlanOptions,
) -> Plan:
    best = choice.best
    resources = planning.problem.resources()
    busy = [
        sum(r.measure.loads[index] * r.share for r in best.replicas)
        for index in range(len(resources))
    ]
    rooms = planning.problem.rooms
    replicas = tuple(
        _replica(program, graph, planning, machine, costs, one, slots) for one in best.replicas
    )
    text = print_program(program)
    return Plan(
        objective=choice.objective, strategy=best.name,
        period_ns=best.period_ns, latency_ns=best.latency_ns, usd_per_request=best.usd,
        bound=choice.bound, gap=choice.gap, ended=choice.ended, link=machine.link_name,
        machine_digest=machine.digest(), options=options.text(),
        cards=tuple(
            PlanCard(name=card.name, gpu=card.gpu.key, arch=card.gpu.arch,
                     capacity_bytes=room.bytes, used_bytes=_used(machine, card.id, replicas),
                     usd_per_hour=card.usd_per_hour)
            for card, room in zip(machine.cards, rooms, strict=True)
        ),
        devices=tuple(
            PlanDevice(name=device.name, card=machine.cards[device.card].name, sms=device.sms,
                       busy_ns=busy[device.id])
            for device in machine.devices
        ),
        traces=(PlannedTrace(name="trace", share=1.0, digest=text_digest(text), text=text),),
        replicas=replicas,
        baselines=tuple(_baseline(one) for one in choice.candidates if one is not best),
    )  # fmt: skip


def _used(machine: Machine, card: CardId, replicas: tuple[Replica, ...]) -> int:
    """What the areas of all replicas take on a card."""
    names = [device.name for device in machine.slices_of(card)]
    return sum(replica.lowered.memory_bytes(name) for replica in replicas for name in names)


def _baseline(one: Candidate) -> Baseline:
    return Baseline(
        name=one.name, period_ns=one.period_ns, latency_ns=one.latency_ns, usd_per_request=one.usd,
        memory_bytes=sum(one.memory),
    )  # fmt: skip


def _replica(
    program: Program,
    graph: KernelGraph,
    planning: Planning,
    machine: Machine,
    costs: Costs,
    one: ReplicaPlan,
    slots: int,
) -> Replica:
    names = [device.name for device in machine.devices]
    placement = planning.expand(one.placement)
    steps = []
    for work, step, device in zip(program.work(), costs.steps, placement, strict=True):
        cost = step.on_device[device]
        assert isinstance(cost, Duration)
        arch = machine.gpu_of(machine.devices[device]).arch
        steps.append(
            PlacedStep(step=step.step, name=step.name, device=names[device],
                       arch=_variant(program, work, arch) if isinstance(work, Launch) else "",
                       predicted_ns=cost.ns, error=cost.error, source=cost.source.value)
        )  # fmt: skip
    transfers = tuple(
        PlannedTransfer(
            tensor=planning.problem.tensors[tensor].name,
            bytes=planning.problem.tensors[tensor].bytes,
            source=names[source],
            target=names[target],
        )
        for tensor, source, target in transfers_of(planning.problem, one.placement)
    )
    lowered = lower_replica(
        [program], [graph], [[names[device] for device in placement]], slots=slots, lanes=slots
    )
    return Replica(
        share=one.share, slots=lowered.slots, lanes=lowered.lanes, lowered=lowered,
        traces=(PlacedTrace(trace=0, steps=tuple(steps), transfers=transfers),),
    )  # fmt: skip


def _variant(program: Program, work: Launch, arch: str) -> str:
    """The architecture of the newest code that runs there."""
    usable = [v.arch for v in program.modules[work.module].variants if runs_on(v.arch, arch)]
    return max(usable, key=lambda one: (int("".join(filter(str.isdigit, one))), one))
