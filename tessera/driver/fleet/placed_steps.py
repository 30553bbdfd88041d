"""What the steps of a model take with each of them on a given GPU of a unit: time, links, memory.

In: a `ServedModel`, a unit of GPUs, the place of each step of a decode trace. Out: the places of
all traces (`places_of_all`), the time of steps by size (`curves`), the bytes on each GPU
(`held_by`) and the sequences that memory holds (`cache_room`). Steps of a trace follow one another;
the time of attention in a decode step is proportional to the context.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.workload import Workload
from tessera.ir.plan.machine import Machine
from tessera.ir.program.program import Role
from tessera.planning.problem.plan_problem import RESERVED_BYTES


@dataclass(frozen=True, slots=True)
class Taken:
    """The time of a step alone, and its load on each device and channel of the unit."""

    ns: float
    loads: tuple[float, ...]

    def scaled(self, factor: float) -> Taken:
        """Scaled by a factor."""
        return Taken(self.ns * factor, tuple(load * factor for load in self.loads))


@dataclass(frozen=True, slots=True)
class Curve:
    """Times of steps by size, at some sizes; linear between them."""

    points: tuple[tuple[float, Taken], ...]

    def at(self, size: float) -> Taken:
        """The time of a step of a size; beyond the largest and below the smallest, theirs."""
        for (low, first), (high, second) in pairwise(self.points):
            if low <= size <= high:
                part = (size - low) / (high - low)
                loads = zip(first.loads, second.loads, strict=True)
                return Taken(
                    first.ns + (second.ns - first.ns) * part,
                    tuple(a + (b - a) * part for a, b in loads),
                )
        return self.points[0][1] if size < self.points[0][0] else self.points[-1][1]

    @property
    def largest(self) -> float:
        """The largest size that a trace has."""
        return self.points[-1][0]


Places = tuple[int, ...]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUnit:
    """The GPUs of a unit: its own machine, and the kind of each of its devices."""

    machine: Machine
    kinds: tuple[int, ...]

    def loads(self) -> int:
        """The number of resources that can be busy: devices and channels."""
        return len(self.kinds) + len(self.machine.channels)


@dataclass(frozen=True, slots=True, eq=False)
class PlacedUnit:
    """The device of a unit that each step of each trace is on, by the name of the trace."""

    unit: GpuUnit
    places: Mapping[str, Places]


@dataclass(frozen=True, slots=True, eq=False)
class _StepTable:
    """A trace in arrays: times by step and kind, and a row per tensor and step that reads it."""

    ns: Floats
    attends: NDArray[np.bool_]
    tensor: Ints
    source: Ints
    target: Ints
    bytes: Floats
    count: Floats


@lru_cache(maxsize=64)
def _table(step: ModelStep) -> _StepTable:
    read = [(n, t, user) for n, t in enumerate(step.tensors) for user in sorted(t.consumers)]
    return _StepTable(
        np.array([[np.nan if ns is None else ns for ns in row] for row in step.ns]),
        np.array(step.attends),
        np.array([n for n, _, _ in read], dtype=np.int64),
        np.array([t.producer for _, t, _ in read], dtype=np.int64),
        np.array([user for _, _, user in read], dtype=np.int64),
        np.array([t.bytes for _, t, _ in read], dtype=float),
        np.array([t.count for _, t, _ in read], dtype=float),
    )


def taken_by(step: ModelStep, places: Places, unit: GpuUnit, work: Workload) -> Taken | None:
    """The time of a trace with each of its steps on a device of the unit; None if it cannot run.

    A transfer takes `transfer_ns` of both devices, and the link for its bytes.
    """
    machine, count = unit.machine, len(unit.kinds)
    table, where = _table(step), np.array(places)
    ns = table.ns[np.arange(len(where)), np.array(unit.kinds)[where]]
    if step.is_decode:
        ns = np.where(table.attends, ns * (work.context / step.context), ns)
    if np.isnan(ns).any():
        return None
    loads = np.zeros(unit.loads())
    loads[:count] = np.bincount(where, ns, minlength=count)
    total = float(ns.sum())
    # A tensor goes to a device once, whatever number of steps reads it there.
    source, target = where[table.source], where[table.target]
    crossing = np.flatnonzero(source != target)
    first = np.unique(table.tensor[crossing] * count + target[crossing], return_index=True)[1]
    sent = crossing[first]
    pairs = source[sent] * count + target[sent]
    times, taxes, sizes = (
        np.bincount(pairs, weights, minlength=count * count)
        for weights in (None, table.count[sent] * machine.transfer_ns, table.bytes[sent])
    )
    ways = {(int(k.source), int(k.target)): k for k in machine.links}
    for pair in np.flatnonzero(times):
        a, b = divmod(int(pair), count)
        link = ways.get((a, b))
        if link is None:
            return None
        loads[[a, b]] += taxes[pair]
        total += 2 * taxes[pair] + times[pair] * link.latency_ns
        total += sizes[pair] * 1e9 / link.bytes_per_second
        for number, channel in enumerate(machine.channels, count):
            if (a, b) in channel.pairs:
                loads[number] += sizes[pair] * 1e9 / channel.bytes_per_second
    return Taken(float(total), tuple(loads.tolist()))


@dataclass(frozen=True, slots=True)
class HeldBytes:
    """Bytes on each device of a unit: weights, caches per token, states per row, the rest."""

    weights: tuple[float, ...]
    tokens: tuple[float, ...]
    rows: tuple[float, ...]
    beside: tuple[float, ...]


def held_by(model: ServedModel, places: Mapping[str, Places], unit: GpuUnit) -> HeldBytes:
    """The bytes that devices hold: weights and states are wherever a step that touches them runs.

    Buffers between steps are estimated as twice the bytes that the largest step touches; only
    launch programs give the exact size.
    """
    count = len(unit.kinds)
    weights, states = (
        np.zeros((len(_kept_bytes(model, role)), count), dtype=bool) for role in _HELD
    )
    beside = np.zeros(count)
    for step in model.steps:
        where = np.array(places[step.name])
        for role, held in zip(_HELD, (weights, states), strict=True):
            buffers, users = _used(model, step, role)
            held[buffers, where[users]] = True
        np.maximum.at(beside, where, 2.0 * _touched(step))
    (own,), (tokens, rows) = _kept_bytes(model, Role.WEIGHT).T, _kept_bytes(model, Role.STATE).T
    return HeldBytes(
        tuple((own @ weights).tolist()),
        tuple((tokens @ states).tolist()),
        tuple((rows @ states).tolist()),
        tuple(beside.tolist()),
    )


_HELD = Role.WEIGHT, Role.STATE


@lru_cache(maxsize=64)
def _kept_bytes(model: ServedModel, role: Role) -> Floats:
    """A row per weight, with its bytes; or per state, with those per token and per sequence."""
    if role is Role.WEIGHT:
        return np.array([[size] for size in model.weight_bytes.values()], float).reshape(-1, 1)
    both = model.token_bytes, model.row_bytes
    return np.array([[b.get(n, 0.0) for b in both] for n in _state_names(model)]).reshape(-1, 2)


def _state_names(model: ServedModel) -> list[str]:
    return list(model.token_bytes | model.row_bytes)


@lru_cache(maxsize=64)
def _used(model: ServedModel, step: ModelStep, role: Role) -> tuple[Ints, Ints]:
    """Weights or states by number, and the steps that touch them."""
    names = list(model.weight_bytes) if role is Role.WEIGHT else _state_names(model)
    number = {name: n for n, name in enumerate(names)}
    pairs = [
        (number[name], user)
        for name, users in step.users(role).items()
        if name in number
        for user in users
    ]
    buffers, users = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return buffers, users


def cache_room(
    model: ServedModel, held: HeldBytes, unit: GpuUnit, work: Workload, lanes: int
) -> tuple[int, int]:
    """Sequences and cache tokens that memory holds for each lane; 0 if weights do not fit."""
    room_rows, room_tokens = inf, inf
    each = work.prompt + work.answer
    for device in range(len(unit.kinds)):
        card = unit.machine.cards[unit.machine.devices[device].card]
        free = card.memory_bytes - RESERVED_BYTES - held.weights[device]
        free -= lanes * held.beside[device]
        if free < 0:
            return 0, 0
        tokens = held.tokens[device]
        alone = held.rows[device] + tokens * each
        if alone:
            room_rows = min(room_rows, free / lanes / alone)
        if tokens:
            share = tokens * each / alone
            room_tokens = min(room_tokens, free / lanes * share / tokens)
    most = int(model.decode[-1].rows)
    fits = most if room_rows == inf else int(min(room_rows, most))
    return fits, int(min(room_tokens, 1e12))


@lru_cache(maxsize=64)
def _touched(step: ModelStep) -> Floats:
    """The bytes private to a request that each step of a trace touches."""
    graph = step.trace.graph
    private = {
        int(buffer.id)
        for buffer in graph.buffers
        if buffer.role in (Role.TEMP, Role.INPUT, Role.OUTPUT)
    }
    return np.array(
        [
            sum(
                graph.buffers[buffer].bytes
                for buffer in {int(access.buffer) for access in node.accesses} & private
            )
            for node in graph.nodes
        ],
        dtype=float,
    )


@lru_cache(maxsize=64)
def _leaders(first: ModelStep, step: ModelStep, with_caches: bool) -> tuple[int, ...]:
    """For each step of a prefill trace, the step of a decode trace that it is placed with.

    That step shares a state or a weight; a weight of several steps, such as a table of sines, says
    nothing of any of them. A step with neither is placed with the step before it, or (not
    `with_caches`) with the last step that has a weight.
    """
    known: dict[str, int] = {}
    for role in (Role.WEIGHT, Role.STATE):
        for name, users in first.users(role).items():
            if len(users) == 1 or role is Role.STATE:
                known[name] = users[0]
    graph = step.trace.graph
    leaders: list[int] = []
    before = 0
    for node in graph.nodes:
        held = [graph.buffers[access.buffer] for access in node.accesses]
        named = [b for role in (Role.STATE, Role.WEIGHT) for b in held if b.role is role]
        own = next((b for b in named if b.name in known), None)
        leaders.append(before if own is None else known[own.name])
        if own is not None and (with_caches or own.role is Role.WEIGHT):
            before = leaders[-1]
    return tuple(leaders)


def places_of_all(
    model: ServedModel, decode: Sequence[int], with_caches: bool = True
) -> dict[str, Places]:
    """The places of every trace, from those of the decode traces, which are alike.

    Steps of a prefill trace are with the decode steps that share their states or weights. If
    prompts are read in one step each, attention over the tokens of that step alone need not be
    where the cache is (not `with_caches`): keys and values are sent there.
    """
    first = model.decode[-1]
    return {
        step.name: tuple(decode)
        if step.is_decode
        else tuple(decode[leader] for leader in _leaders(first, step, with_caches))
        for step in model.steps
    }


def curves(
    model: ServedModel, places: Mapping[str, Places], unit: GpuUnit, work: Workload
) -> tuple[Curve, Curve] | None:
    """Times of decode and prefill steps by size; None if a step cannot run."""
    made: list[list[tuple[float, Taken]]] = [[], []]
    for step in model.steps:
        taken = taken_by(step, places[step.name], unit, work)
        if taken is None:
            return None
        size = step.rows if step.is_decode else step.rows * step.tokens
        made[0 if step.is_decode else 1].append((float(size), taken))
    return Curve(tuple(made[0])), Curve(tuple(made[1]))
