"""From a candidate to a plan: placements become launch programs, in one record.

In: a `PlanSetting`, the solved problem, and a candidate. Out: a `Plan` whose memory is that of the
areas of its launch programs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic, error
from tessera.ir.choices import Ending
from tessera.ir.plan.costs import Costs, Duration, StepCosts
from tessera.ir.plan.launch_program import Area, LoweredReplica
from tessera.ir.plan.machine import CardId, Machine
from tessera.ir.plan.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTransfer,
    Replica,
    memory_on,
    staged_bytes,
)
from tessera.ir.program.program import Program, Work
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.prices.estimate_costs import variant_on
from tessera.planning.problem.plan_problem import Planning
from tessera.planning.problem.problem import Room, transfers_of
from tessera.planning.search.candidates import Candidate, ReplicaPlan
from tessera.planning.search.plans import Choice
from tessera.simulation.hardware import paths_of


def nodes_over(machine: Machine, replicas: Sequence[Replica]) -> list[tuple[str, int, int]]:
    """Nodes whose transfers exceed their host memory: bytes needed and bytes allowed."""
    cards = machine.cards
    hosts = {device.name: cards[device.card].node for device in machine.devices}
    staged = staged_bytes(replicas, hosts)
    return [(n, staged[n], room) for n, room in machine.node_memory if staged.get(n, 0) > room]


def short_of_memory(machine: Machine, replicas: Sequence[Replica]) -> Diagnostic | None:
    """The diagnostic for launch programs that exceed a host's memory; None if they fit."""
    over = nodes_over(machine, replicas)
    if not over:
        return None
    node, taken, room = over[0]
    slots = max(replica.slots for replica in replicas)
    fewer = room * slots // taken
    need = taken if fewer or slots == 1 else -(-taken // slots)
    hint = f'with `memory = "{need}B"` of that `[[node]]` in the machine file it fits'
    if fewer:
        hint = f"with `--slots {fewer}` it fits; {hint}"
    elif slots > 1:
        hint += ", with `--slots 1`"
    return error(
        "TSR3010",
        f"transfers take {taken} bytes of the memory of node `{node}`, and may take {room}",
        hint=f"{hint}; plans that do not split requests (`--strategy dp`) need none",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A candidate with the figures of its simulation, and the launch programs behind them.

    `loaded_ns` is the median time of a request at the full rate. `copies_take_memory`: the times of
    steps do not include the slowdown by copies between slices.
    """

    candidate: Candidate
    replicas: tuple[Replica, ...]
    loaded_ns: float
    copies_take_memory: bool


def assemble(
    setting: PlanSetting,
    attempt: Attempt,
    choice: Choice,
    chosen: Simulated,
    others: Iterable[Simulated],
) -> Plan:
    """The plan of a candidate, with the others as rows beside it."""
    machine = setting.machine
    candidate, replicas = chosen.candidate, chosen.replicas
    busy = [
        sum(replica.measure.loads[device.id] * replica.share for replica in candidate.replicas)
        for device in machine.devices
    ]
    capacities, paths = paths_of(machine, copies_take_memory=chosen.copies_take_memory)
    value = candidate.value(choice.objective)
    bound = min(choice.bound, value)
    gap = max(0.0, value / bound - 1.0) if bound > 0 else 0.0
    return Plan(
        objective=choice.objective,
        strategy=candidate.name,
        period_ns=candidate.period_ns,
        latency_ns=candidate.latency_ns,
        loaded_latency_ns=chosen.loaded_ns,
        usd_per_request=candidate.usd_per_request,
        bound=bound,
        gap=gap,
        ended=_ended(choice, gap, setting.options.gap),
        link=machine.joined_by(),
        machine_digest=machine.digest(),
        host_call_ns=machine.host_call_ns,
        host_byte_ns=machine.host_byte_ns,
        options=setting.options.text(),
        cards=_cards(machine, attempt.planning.problem.rooms, replicas),
        devices=tuple(
            PlanDevice(
                name=device.name,
                card=machine.cards[device.card].name,
                sms=device.sms,
                # Beside idle neighbours, a device is less busy than the search assumes.
                busy_ns=min(busy[device.id], candidate.period_ns),
                memory_bytes_per_second=machine.gpu_of(device).memory_bandwidth,
            )
            for device in machine.devices
        ),
        traces=tuple(trace.planned for trace in setting.traces),
        replicas=replicas,
        capacities=capacities,
        paths=paths,
        baselines=tuple(
            baseline_of(other.candidate, other.loaded_ns) for other in _rows(candidate.name, others)
        ),
    )


def _rows(chosen: str, others: Iterable[Simulated]) -> Iterable[Simulated]:
    """The first of each name, without the chosen one."""
    by_name: dict[str, Simulated] = {}
    for other in others:
        by_name.setdefault(other.candidate.name, other)
    by_name.pop(chosen, None)
    return by_name.values()


def _cards(
    machine: Machine, rooms: Sequence[Room], replicas: Sequence[Replica]
) -> tuple[PlanCard, ...]:
    return tuple(
        PlanCard(
            name=card.name,
            gpu=card.gpu.key,
            arch=card.gpu.arch,
            capacity_bytes=room.bytes,
            used_bytes=used_bytes(machine, card.id, replicas),
            usd_per_hour=card.usd_per_hour,
            node=card.node,
            like=card.gpu.like,
        )
        for card, room in zip(machine.cards, rooms, strict=True)
    )


def _ended(choice: Choice, gap: float, wanted: float) -> Ending:
    """Why the search stopped: a gap that was not reached is not the reason."""
    missed = choice.ended is Ending.GAP and gap > wanted + 1e-9
    return Ending.SEARCH if missed else choice.ended


def baseline_of(candidate: Candidate, loaded_ns: float) -> Baseline:
    """A candidate as a row of the table."""
    return Baseline(
        name=candidate.name,
        period_ns=candidate.period_ns,
        latency_ns=candidate.latency_ns,
        usd_per_request=candidate.usd_per_request,
        memory_bytes=sum(candidate.memory),
        loaded_latency_ns=loaded_ns,
    )


def used_bytes(machine: Machine, card: CardId, replicas: Sequence[Replica]) -> int:
    """Bytes of the areas of all replicas on a card."""
    return sum(memory_on(replicas, device.name) for device in machine.slices_of(card))


def overflows(plan: Plan) -> bool:
    """Whether the areas of a plan exceed the memory of a card."""
    return any(card.used_bytes > card.capacity_bytes for card in plan.cards)


# --- replicas ----------------------------------------------------------------------------------


_Parts = tuple[tuple[int, ...] | None, ...]


class KnownPrograms:
    """A cache of the launch programs of candidates and their memory.

    Replicas that differ only in their devices are lowered once.
    """

    def __init__(self) -> None:
        self._lowered: dict[object, tuple[tuple[str, ...], LoweredReplica]] = {}
        self._steps: dict[int, tuple[Costs, dict[tuple[int, int], PlacedStep]]] = {}
        self._areas: dict[object, tuple[tuple[str, ...], tuple[Area, ...]]] = {}

    def areas(
        self, setting: PlanSetting, planning: Planning, chosen: Candidate, roomy: Collection[str]
    ) -> list[Area]:
        """The areas of the replicas of a candidate, for one slot and one sequence each."""
        areas = []
        for part_plan in chosen.replicas:
            shape = _ReplicaShape(setting, split_placement(setting, planning, part_plan), roomy)
            if shape.key not in self._areas:
                made = setting.lowering.areas(shape.placements(), roomy)
                self._areas[shape.key] = shape.devices, made
            first, known = self._areas[shape.key]
            names = dict(zip(first, shape.devices, strict=True))
            areas += [replace(area, device=names[area.device]) for area in known]
        return areas

    def replicas(
        self, setting: PlanSetting, planning: Planning, chosen: Candidate, roomy: Collection[str]
    ) -> tuple[Replica, ...]:
        """The replicas of a candidate, with their launch programs; `roomy` devices have memory
        left.

        The replicas have two slots, or one if requests run one after the other.
        """
        replicas = []
        for part_plan in chosen.replicas:
            parts = split_placement(setting, planning, part_plan)
            shape = _ReplicaShape(setting, parts, roomy)
            if shape.key not in self._lowered:
                made = setting.lowering.lower(
                    shape.placements(), slots=2, lanes=2, roomy=roomy, hosts=shape.hosts
                )
                self._lowered[shape.key] = shape.devices, made
            first, lowered = self._lowered[shape.key]
            lowered = rename_devices(lowered, dict(zip(first, shape.devices, strict=True)))
            replicas.append(
                Replica(
                    share=part_plan.share,
                    slots=lowered.slots,
                    lanes=lowered.lanes,
                    shares=part_plan.shares,
                    traces=self._placed(setting, planning, part_plan, parts),
                    hand_overs=part_plan.hand_overs,
                    lowered=lowered,
                )
            )
        return tuple(replicas)

    def _placed(
        self,
        setting: PlanSetting,
        planning: Planning,
        replica_plan: ReplicaPlan,
        parts: _Parts,
    ) -> tuple[PlacedTrace, ...]:
        moved = _moves(setting, planning, replica_plan)
        return tuple(
            PlacedTrace(
                trace=index,
                steps=tuple(self._placed_steps(setting.machine, trace.program, costs, part)),
                transfers=moved[index],
            )
            for index, (trace, costs, part) in enumerate(
                zip(setting.traces, setting.costs, parts, strict=True)
            )
            if part is not None
        )

    def _placed_steps(
        self, machine: Machine, program: Program, costs: Costs, placement: Sequence[int]
    ) -> Iterator[PlacedStep]:
        """A step on a device is one record for all candidates."""
        _, known = self._steps.setdefault(id(costs), (costs, {}))
        for number, (work, device) in enumerate(zip(program.work(), placement, strict=True)):
            key = number, device
            if key not in known:
                known[key] = _step(machine, program, work, costs.steps[number], device)
            yield known[key]


class _ReplicaShape:
    """The placement of a replica's steps: its devices, and a key independent of their names."""

    def __init__(self, setting: PlanSetting, parts: _Parts, roomy: Collection[str]) -> None:
        self._parts = parts
        self._names = [device.name for device in setting.machine.devices]
        order = tuple(dict.fromkeys(device for part in parts for device in part or ()))
        number = {device: at for at, device in enumerate(order)}
        self.devices = tuple(self._names[device] for device in order)
        cards = setting.machine.cards
        nodes = [cards[setting.machine.devices[device].card].node for device in order]
        self.hosts = dict(zip(self.devices, nodes, strict=True))
        self.key = (
            tuple(part and tuple(number[device] for device in part) for part in parts),
            tuple(name in roomy for name in self.devices),
            tuple(nodes.index(node) for node in nodes),
        )

    def placements(self) -> list[list[str] | None]:
        """The device of each step, trace by trace; None for a trace that is not served."""
        return [
            None if part is None else [self._names[device] for device in part]
            for part in self._parts
        ]


def rename_devices(lowered: LoweredReplica, names: dict[str, str]) -> LoweredReplica:
    """The same programs on other devices."""
    if all(old == new for old, new in names.items()):
        return lowered
    of = {**names, "host": "host"}
    return replace(
        lowered,
        devices=tuple(of[name] for name in lowered.devices),
        areas=tuple(replace(area, device=of[area.device]) for area in lowered.areas),
        places=tuple(replace(place, device=of[place.device]) for place in lowered.places),
        homes=tuple(replace(home, device=of[home.device]) for home in lowered.homes),
        landings=tuple(
            replace(landing, source=of[landing.source], target=of[landing.target])
            for landing in lowered.landings
        ),
        traces=tuple(
            replace(
                trace,
                transfers=tuple(
                    replace(transfer, source=of[transfer.source], target=of[transfer.target])
                    for transfer in trace.transfers
                ),
                programs=tuple(
                    replace(device_program, device=of[device_program.device])
                    for device_program in trace.programs
                ),
            )
            for trace in lowered.traces
        ),
    )


def split_placement(setting: PlanSetting, planning: Planning, replica_plan: ReplicaPlan) -> _Parts:
    """The device of each step, trace by trace; None for a trace that is not served."""
    traces, part = range(len(setting.traces)), replica_plan.part
    if part is not None:
        return tuple(part.steps_of(n) if n in part.traces else None for n in traces)
    return tuple(planning.expand_part(replica_plan.placement, number) for number in traces)


def _step(
    machine: Machine, program: Program, work: Work, step: StepCosts, index: int
) -> PlacedStep:
    device, cost = machine.devices[index], step.on_device[index]
    assert isinstance(cost, Duration)
    return PlacedStep(
        step=step.step,
        name=step.name,
        device=device.name,
        arch=cost.variant or variant_on(program, work, machine.gpu_of(device), device.sms),
        predicted_ns=cost.ns,
        error=cost.error,
        source=cost.source.value,
        alone_ns=cost.alone_ns,
        quiet_ns=cost.quiet_ns,
    )


def _moves(
    setting: PlanSetting, planning: Planning, replica_plan: ReplicaPlan
) -> tuple[tuple[PlannedTransfer, ...], ...]:
    """The transfers that the planner expects, by the trace of the producing step."""
    names = [device.name for device in setting.machine.devices]
    part, served = replica_plan.part, tuple(range(len(setting.traces)))
    if part is not None:
        planning, served = part.planning, part.traces
    traces = [trace for trace in served for _ in setting.traces[trace].graph.nodes]
    trace_of: dict[int, int] = {}  # that of its first step
    for task, trace in zip(planning.task_of, traces, strict=True):
        trace_of.setdefault(task, trace)
    moves_of: list[list[PlannedTransfer]] = [[] for _ in setting.traces]
    for index, source, target in transfers_of(planning.problem, replica_plan.placement):
        tensor = planning.problem.tensors[index]
        moves_of[trace_of[tensor.producer]].append(
            PlannedTransfer(
                tensor=tensor.name,
                bytes=float(tensor.bytes),
                source=names[source],
                target=names[target],
            )
        )
    return tuple(tuple(moves) for moves in moves_of)
