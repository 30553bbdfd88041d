"""The shares of traces: which parts a plan with roles has, and what each serves.

In: a `Problem` of a mix and a `RoleMix`. Out: `TraceShares`, with the least load of the busiest
resource.

A small integer program. A part is there or not, and takes its memory; if it is there, it serves a
share of each of its traces, and the shares of a trace add up to one. Sequences begin with the
shares of the traces that begin them and go on with those of the others: what does not stay where it
began is handed over, which loads links, and the devices at both ends. The load of every device,
link and memory is at most the period, which is minimised. Parts on the same device are not taken
together: requests of two replicas there would wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tessera.planning.bound.model import ModelBuilder, period_scale
from tessera.planning.bound.relax import make_solver, run_solver
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.problem import INFINITY, Problem, measure, memory_of, part_of
from tessera.planning.problem.role_parts import RoleMix, RolePart

LEAST_SHARE = 0.01
"""A part serves at least this share of each of its traces: less is not worth a replica."""

_GAP = 1e-3
_MOST_NODES = 2_000
_LITTLE = 1e-3
"""Cost of a part and of a hand-over, so that none is there for nothing; the period costs 1000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceShares:
    """The parts that are taken, by their number in the mix, with their share of each trace.

    `handed` has the share of all sequences that begin in one part and go on in another.
    """

    period_ns: float
    taken: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    handed: tuple[tuple[int, int, float], ...]


def rates_of(problem: Problem) -> tuple[float, ...]:
    """How often each trace runs per unit of the mix."""
    tasks = problem.detail.problem.tasks if problem.detail is not None else problem.tasks
    rates = {task.trace: task.rate for task in tasks}
    return tuple(rates[trace] for trace in sorted(rates))


def trace_problems(problem: Problem) -> tuple[Problem, ...]:
    """The problem of the steps of each trace alone."""
    base = problem.detail.problem if problem.detail is not None else problem
    tasks: dict[int, list[int]] = {}
    for number, task in enumerate(base.tasks):
        tasks.setdefault(task.trace, []).append(number)
    return tuple(part_of(base, tasks[trace]) for trace in sorted(tasks))


def loads_of(alone: Sequence[Problem], part: RolePart) -> dict[int, tuple[float, ...]]:
    """The loads of a part if it serves all requests of a trace, for each of its traces."""
    return {trace: measure(alone[trace], part.steps_of(trace)).loads for trace in part.traces}


def handed_bytes(
    mix: RoleMix, source: RolePart, target: RolePart
) -> dict[tuple[int, int], float] | None:
    """Bytes of one sequence between pairs of devices; None if a state has no place there."""
    here, there = dict(source.homes), dict(target.homes)
    moved: dict[tuple[int, int], float] = {}
    for name, size in mix.sequences.states:
        if name not in there:
            return None
        if name in here:
            pair = here[name], there[name]
            moved[pair] = moved.get(pair, 0.0) + size
    return {pair: size for pair, size in moved.items() if pair[0] != pair[1]}


def hand_over_loads(
    problem: Problem, moved: dict[tuple[int, int], float]
) -> tuple[float, ...] | None:
    """The load of one hand-over on every resource; None if devices are not connected."""
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    devices = len(problem.devices)
    loads = [0.0] * len(problem.resources())
    for pair, size in moved.items():
        wire = wires.get(pair)
        if wire is None:
            return None
        for end in pair:
            loads[end] += problem.transfer_ns + size * wire.end_ns_per_byte
        for index, pipe in enumerate(problem.pipes):
            if pair in pipe.pairs:
                loads[devices + index] += size * pipe.ns_per_byte
    return tuple(loads)


def best_shares(
    problem: Problem, mix: RoleMix, watch: SearchWatch, *, all_taken: bool = False
) -> TraceShares | None:
    """The shares with the least period; None if the parts cannot serve the mix.

    `all_taken`: every part is there, whatever memory and devices it shares with others.
    """
    rates, alone = rates_of(problem), trace_problems(problem)
    builder = ModelBuilder()
    period = builder.column("T", np.inf)
    scale = period_scale(problem)
    rows: list[dict[int, float]] = [{period: -1.0} for _ in problem.resources()]
    taken, share = [], dict[tuple[int, int], int]()
    held: list[dict[int, float]] = [{} for _ in problem.rooms]
    placed: dict[int, dict[int, float]] = {}
    for number, part in enumerate(mix.parts):
        there = builder.column(f"part[{number}]", 1.0, True)
        taken.append(there)
        if all_taken:
            builder.at_most(f"taken[{number}]", {there: 1.0}, 1.0, least=1.0)
        for room, used in enumerate(memory_of(part.planning.problem, part.placement)):
            held[room][there] = used / max(problem.rooms[room].bytes, 1)
        for device in sorted(set(part.placement)):
            placed.setdefault(device, {})[there] = 1.0
        for trace, loads in loads_of(alone, part).items():
            column = share[number, trace] = builder.column(f"share[{number},{trace}]", 1.0)
            builder.at_most(f"most[{number},{trace}]", {column: 1.0, there: -1.0}, 0.0)
            least = {column: -1.0, there: LEAST_SHARE}
            builder.at_most(f"least[{number},{trace}]", least, 0.0)
            for resource, ns in enumerate(loads):
                if ns == INFINITY:
                    return None
                rows[resource][column] = rows[resource].get(column, 0.0) + ns / scale
    for trace in range(len(rates)):
        own = {column: 1.0 for (_, served), column in share.items() if served == trace}
        if not own:
            return None
        builder.at_most(f"all[{trace}]", own, 1.0, least=1.0)
    flows = _add_hand_overs(builder, problem, mix, share, rates, rows, scale)
    for (kind, name), terms in zip(problem.resources(), rows, strict=True):
        builder.at_most(f"{kind.value}[{name}]", terms, 0.0)
    if not all_taken:
        for room, terms in enumerate(held):
            builder.at_most(f"room[{room}]", terms, 1.0)
        for device, terms in placed.items():
            builder.at_most(f"apart[{device}]", terms, 1.0)
    solver = make_solver(builder.finish(problem, scale), integer=True)
    for column in (*taken, *flows.values()):
        solver.changeColCost(column, _LITTLE)
    solver.setOptionValue("mip_rel_gap", _GAP)
    solver.setOptionValue("mip_max_nodes", _MOST_NODES)
    run_solver(solver, watch, integer=True)
    values = np.array(solver.getSolution().col_value)
    if len(values) == 0 or not np.isfinite(values).all() or values[period] >= INFINITY:
        return None
    return _read(mix, values, taken, share, flows, scale)


def _add_hand_overs(
    builder: ModelBuilder,
    problem: Problem,
    mix: RoleMix,
    share: dict[tuple[int, int], int],
    rates: Sequence[float],
    rows: list[dict[int, float]],
    scale: float,
) -> dict[tuple[int, int], int]:
    """Columns for the sequences from part to part; they load links and both ends."""
    sequences = mix.sequences
    begun = [rate * count for rate, count in zip(rates, sequences.begun, strict=True)]
    carried = [rate * count for rate, count in zip(rates, sequences.carried, strict=True)]
    if not sum(begun):
        return {}
    sides: list[dict[int, dict[int, float]]] = []
    for counts in (begun, carried):
        side: dict[int, dict[int, float]] = {}
        for (number, trace), column in share.items():
            if counts[trace]:
                side.setdefault(number, {})[column] = -counts[trace] / sum(counts)
        sides.append(side)
    flows: dict[tuple[int, int], int] = {}
    for source in sides[0]:
        for target in sides[1]:
            moved = handed_bytes(mix, mix.parts[source], mix.parts[target])
            loads = None if moved is None else hand_over_loads(problem, moved)
            if source == target:
                loads = (0.0,) * len(rows)
            if loads is None:
                continue
            flow = flows[source, target] = builder.column(f"handed[{source},{target}]", 1.0)
            sides[0][source][flow] = sides[1][target][flow] = 1.0
            for resource, ns in enumerate(loads):
                if ns:
                    rows[resource][flow] = ns * sum(begun) / scale
    for name, side in zip(("begun", "carried"), sides, strict=True):
        for number, terms in side.items():
            builder.at_most(f"{name}[{number}]", terms, 0.0, least=0.0)
    return {pair: flow for pair, flow in flows.items() if pair[0] != pair[1]}


def _read(
    mix: RoleMix,
    values: np.ndarray[tuple[int], np.dtype[np.float64]],
    taken: Sequence[int],
    share: dict[tuple[int, int], int],
    flows: dict[tuple[int, int], int],
    scale: float,
) -> TraceShares | None:
    """The solution as shares that add up to one."""
    traces = 1 + max(trace for _, trace in share)
    kept = [number for number in range(len(mix.parts)) if values[taken[number]] > 1 / 2]
    rows = [
        [float(values[share[n, t]]) if (n, t) in share else 0.0 for t in range(traces)]
        for n in kept
    ]
    sums = [sum(row[trace] for row in rows) for trace in range(traces)]
    if not kept or min(sums) <= 1 / 2:
        return None
    return TraceShares(
        period_ns=float(values[0]) * scale,
        taken=tuple(kept),
        shares=tuple(
            tuple(value / total for value, total in zip(row, sums, strict=True)) for row in rows
        ),
        handed=tuple(
            (source, target, float(values[flow]))
            for (source, target), flow in flows.items()
            if values[flow] > _LITTLE
        ),
    )
