"""A cell as the linear program takes it: parts of the model with their times, bytes and tensors.

In: the steps of a model with times per kind of GPU (`ServedModel`, of `tessc fleet`), the GPUs, the
requests. Out: a `Served`. Only numbers come from there: times of steps, bytes of buffers, links.

Steps of a decode trace that touch one state are one unit (what writes a cache, and attention over
it); every other step is a unit. A step of the prefill trace belongs to the unit that has its state
or its weight, or to that of the same number if both traces are alike; if there is none, it is a
unit of its own. Units with equal times and bytes are one part; parts that take next to nothing are
left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log

import numpy as np
import numpy.typing as npt

from benchmarks.gain.relaxation import Kind, Part, Passed, Served
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.frontend.machine.collectives import host_link
from tessera.ir.plan.costs import Costs
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.program import LibraryCall, Role
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.prices.work_shapes import call_shape
from tessera.planning.problem.plan_problem import RESERVED_BYTES, problem_of

_DIGITS = 200  # units are alike if their times differ by less than half a percent
_LEAST = 0.005  # of the time of a step: parts with less count as nothing

Floats = npt.NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _Unit:
    """Steps that are in one place, by number, and what they hold.

    `ns` has a row per kind: a column per batch of decode steps, and one for a prompt.
    """

    decode: list[int] = field(default_factory=list)
    prompt: list[int] = field(default_factory=list)
    weights: float = 0.0
    kept: float = 0.0
    read: float = 0.0
    joined: float = 0.0
    ns: Floats = field(default_factory=lambda: np.zeros(0))

    def likeness(self) -> tuple[object, ...]:
        """Units are of one part if this is equal."""
        rounded = tuple(x if x in (0.0, inf) else round(log(x) * _DIGITS) for x in self.ns.flat)
        return (rounded, self.weights, self.kept, self.read, not self.decode, not self.prompt)


def image_model(
    traces: Sequence[LoadedTrace],
    costs: Sequence[Costs],
    machine: Machine,
    batches: Sequence[int],
) -> ServedModel:
    """Steps of an image model at several batches, as decode steps without states."""
    steps = []
    for trace, own, rows in zip(traces, costs, batches, strict=True):
        detail = problem_of(trace.graph, machine, own, slots=1, lanes=1).problem.detail
        assert detail is not None
        tasks = detail.problem.tasks
        steps.append(
            ModelStep(
                trace=trace,
                costs=own,
                rows=rows,
                tokens=1,
                context=1,
                ns=tuple(task.ns for task in tasks),
                attends=(False,) * len(tasks),
                tensors=detail.problem.tensors,
            )
        )
    held = {b.name: b.bytes for b in steps[-1].buffers(Role.WEIGHT)}
    return ServedModel(
        decode=tuple(steps), prefill=(), token_bytes={}, row_bytes={}, weight_bytes=held
    )


def served_of(
    model: ServedModel,
    offered: Offered,
    request: tuple[int, float],
    tpot_ns: float | None = None,
    demand: float | None = None,
) -> Served:
    """The model, GPUs and requests: tokens of a prompt, and decode steps."""
    units = _units(model, request, all(kind.most in (1, inf) for kind in offered.kinds))
    kinds = len(offered.kinds)
    for unit in units:
        unit.ns = _times(model, request, unit, kinds)
    total = sum(unit.ns for unit in units)
    gathered: dict[tuple[object, ...], list[_Unit]] = defaultdict(list)
    for unit in units:
        gathered[unit.likeness()].append(unit)
    parts = [own for own in gathered.values() if _is_large(own, np.maximum(total, 1e-9))]
    part_of = {unit: number for number, own in enumerate(parts) for unit in own}
    machine, decode = offered.machine, model.decode[-1]
    wire = min((c.bytes_per_second / 1e9 for c in machine.channels), default=inf)
    return Served(
        kinds=tuple(
            Kind(
                count=1.0 if kind.most == inf else kind.most,
                memory=kind.gpu.memory_bytes - RESERVED_BYTES,
                wire=wire,
                usd=kind.usd_per_hour or 0.0,
                inner=host_link(kind.gpu).port(kind.gpu) / 1e9,
                inner_latency=host_link(kind.gpu).latency_ns / 2,
            )
            for kind in offered.kinds
        ),
        parts=tuple(_part(own) for own in parts),
        passed=_passed(decode, part_of, lambda unit: unit.decode, decode.rows),
        prompted=tuple(
            tensor
            for step in model.prefill[-1:]
            for tensor in _passed(step, part_of, lambda unit: unit.prompt, 1.0)
        ),
        batches=tuple(step.rows for step in model.decode),
        steps=request[1],
        latency=min((link.latency_ns for link in machine.links), default=0.0),
        transfer=machine.transfer_ns,
        tpot=inf if tpot_ns is None else tpot_ns,
        demand=demand,
    )


def _units(model: ServedModel, request: tuple[int, float], alone: bool) -> list[_Unit]:
    decode = model.decode[-1]
    owner = [_Unit(decode=[step]) for step in range(len(decode.ns))]
    states = decode.users(Role.STATE)
    known: dict[str, _Unit] = {}
    for name, users in states.items():
        first = owner[users[0]]
        for other in {owner[user] for user in users} - {first}:
            first.decode += other.decode
            for step in other.decode:
                owner[step] = first
            first.kept += other.kept
            first.read += other.read
        known[name] = first
        each, fixed = model.token_bytes.get(name, 0.0), model.row_bytes.get(name, 0.0)
        first.kept += each * sum(request) + fixed
        first.read += each * request[0] + fixed
    for name, users in decode.users(Role.WEIGHT).items():
        known[name] = owner[users[0]]
        known[name].weights += model.weight_bytes[name]
    known |= {name: owner[users[0]] for name, users in states.items()}
    units = list(dict.fromkeys(owner))
    if model.prefill:
        _join(decode, units, alone)
    for prefill in model.prefill[-1:]:
        units += _join_prompt(decode, prefill, known, owner)
    return units


def _join(decode: ModelStep, units: Sequence[_Unit], alone: bool) -> None:
    """What GPUs exchange that have parts of a unit's weights, per token.

    GPUs of several kinds (`alone`: one of each) have columns of products, as plans with parts do:
    all that goes in is gathered. They do not cut a call with all experts. GPUs of one kind may add
    up products. The weights of a norm are as few as a token's numbers: it is not cut by weights.
    """
    calls = list(decode.trace.program.work())
    for unit in units:
        own = set(unit.decode)
        shapes = [call_shape(call) for n in own if isinstance(call := calls[n], LibraryCall)]
        made = max((t.bytes for t in decode.tensors if t.producer in own), default=inf)
        taken = max((t.bytes for t in decode.tensors if own & set(t.consumers)), default=inf)
        each = (taken if alone and taken < inf else min(made, taken)) / decode.rows
        if alone and any(shape and shape.kind is TableKind.MOE for shape in shapes):
            unit.joined = inf
        elif each < unit.weights / 16:
            unit.joined = each


def _join_prompt(
    decode: ModelStep, prefill: ModelStep, known: Mapping[str, _Unit], owner: Sequence[_Unit]
) -> list[_Unit]:
    """Put the steps of a prefill trace into units; those without one are new units."""
    named: dict[int, str] = {}
    for role in (Role.WEIGHT, Role.STATE):  # a state is stronger
        for name, users in prefill.users(role).items():
            # A weight that many steps read, such as a table of sines, says nothing of any of them.
            named |= dict.fromkeys(users if len(users) == 1 or role is Role.STATE else (), name)
    names = [[node.name for node in step.trace.graph.nodes] for step in (decode, prefill)]
    alike = names[0] == names[1]
    added: list[_Unit] = []
    for step in range(len(prefill.ns)):
        place = known.get(named.get(step, ""))
        if place is None and alike and not owner[step].kept:
            place = owner[step]
        if place is None or (place.prompt and not place.kept):
            added.append(_Unit(prompt=[step]))
        else:
            place.prompt.append(step)
    return added


def _times(model: ServedModel, request: tuple[int, float], unit: _Unit, kinds: int) -> Floats:
    context = request[0] + (request[1] + 1) / 2
    columns = [
        [
            _sum(step, unit.decode, k, context / step.context if step.context > 1 else 1.0)
            for k in range(kinds)
        ]
        for step in model.decode
    ]
    last = [_sum(s, unit.prompt, k, 1.0) for s in model.prefill[-1:] for k in range(kinds)]
    return np.array([*columns, last or [0.0] * kinds]).T


def _sum(step: ModelStep, numbers: Iterable[int], kind: int, scale: float) -> float:
    total = 0.0
    for number in numbers:
        ns = step.ns[number][kind]
        if ns is None:
            return inf
        total += ns * (scale if step.attends[number] else 1.0)
    return total


def _is_large(units: Sequence[_Unit], total: Floats) -> bool:
    own = sum(unit.ns for unit in units)
    return bool((own / total).max() > _LEAST) or any(u.weights or u.kept for u in units)


def _part(units: Sequence[_Unit]) -> Part:
    ns = sum(unit.ns for unit in units)
    return Part(
        decode=tuple(tuple(float(x) for x in row[:-1]) for row in ns),
        prompt=tuple(float(x) for x in ns[:, -1]),
        weights=sum(unit.weights for unit in units),
        kept=sum(unit.kept for unit in units),
        read=sum(unit.read for unit in units),
        steps=len(units),
        joined=min(unit.joined for unit in units),
    )


def _passed(
    step: ModelStep,
    part_of: Mapping[_Unit, int],
    steps_of: Callable[[_Unit], Sequence[int]],
    per: float,
) -> tuple[Passed, ...]:
    """Tensors between parts, each charged once: to the first step of another part that reads it."""
    owner = {number: unit for unit in part_of for number in steps_of(unit)}
    pairs: dict[tuple[int, int], dict[_Unit, tuple[_Unit, float, bool]]] = defaultdict(dict)
    for tensor in step.tensors:
        source = owner.get(tensor.producer)
        targets = [owner[n] for n in sorted(tensor.consumers) if n in owner]
        if source is None or len(targets) < len(tensor.consumers):
            continue
        target = next((unit for unit in targets if part_of[unit] != part_of[source]), None)
        if target is None:
            continue
        made = pairs[part_of[source], part_of[target]]
        if source not in made and target not in {other for other, *_ in made.values()}:
            waits = tensor.producer + 1 in steps_of(target)
            made[source] = (target, tensor.bytes / per, waits)
    return tuple(
        Passed(
            source=a,
            target=b,
            pairs=len(made),
            bytes=min(size for _, size, _ in made.values()),
            waits=all(waits for *_, waits in made.values()),
        )
        for (a, b), made in pairs.items()
    )
