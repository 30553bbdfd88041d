"""The throughput problem as a mixed-integer program, with named columns and rows.

In: a `Problem`. Out: an `IntegerModel` (numpy arrays, ready for HiGHS; `search.solve` runs it).

Columns: `T` the period; `x[k,g]` task k is on device g; `y[t,g,h]` tensor t goes from g to h;
`m[r,g]` resident r is on device g; `again[k,g]` device g does task k, too. The first allowed device
of a task has no column: it is one minus the others. So with two devices there is one binary per
task. Rows, in words: device g: sum of durations + sum of taxes * y at g <= T; pipe: sum of bytes *
y * ns <= T; `y` covers every consumer whose device is not the producer's; room: sum of bytes * m <=
capacity, left out if everything fits at once. Times are divided by `scale`, bytes by the capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessera.planning.problem.problem import Placement, Problem, Task

Expression = tuple[float, tuple[tuple[int, float], ...]]

PERIOD = 0
_TARGET = 1000.0  # the period is of this size in the model, far above the solver's tolerances
# Longer times are clipped to this value, which is far above any useful period: a solver cannot
# handle numbers that are further apart. The bound of a clipped model is still valid.
_LONGEST = 1e9
_SLOW = 1e3  # multiple of the time on the fastest device


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerModel:
    """Minimise `T` subject to `row_lower <= A x <= row_upper`. Rows are in CSR form."""

    problem: Problem
    scale: float
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    integer: NDArray[np.bool_]
    start: NDArray[np.int32]
    index: NDArray[np.int32]
    value: NDArray[np.float64]
    row_lower: NDArray[np.float64]
    row_upper: NDArray[np.float64]
    choice: tuple[tuple[tuple[int, int], ...], ...]  # per task: (device, column or -1)
    counts: tuple[tuple[int, ...], ...] = ()  # columns of each count; its rows are the last ones

    def encode(self, placement: Placement) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """The columns of the tasks, and their values for a placement."""
        pairs = [
            (column, 1.0 if device == chosen else 0.0)
            for options, chosen in zip(self.choice, placement, strict=True)
            for device, column in options
            if column >= 0
        ]
        columns = np.array([column for column, _ in pairs], dtype=np.int32)
        return columns, np.array([value for _, value in pairs], dtype=np.float64)

    def shares(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The fraction of each task that a solution has on each device."""
        shares = np.zeros((len(self.choice), len(self.problem.devices)))
        for task, options in enumerate(self.choice):
            rest = 1.0
            for device, column in options[1:]:
                shares[task, device] = values[column]
                rest -= values[column]
            shares[task, options[0][0]] = rest
        return shares


class ModelBuilder:
    """Columns and rows as they are added; becomes arrays in `finish`."""

    def __init__(self) -> None:
        self.columns: list[str] = []
        self.upper: list[float] = []
        self.integer: list[bool] = []
        self.rows: list[str] = []
        self.start = [0]
        self.index: list[int] = []
        self.value: list[float] = []
        self.row_lower: list[float] = []
        self.row_upper: list[float] = []

    def column(self, name: str, upper: float, integer: bool = False) -> int:
        """Add a column and return its number."""
        self.columns.append(name)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.columns) - 1

    def at_most(
        self, name: str, terms: dict[int, float], bound: float, least: float = -np.inf
    ) -> None:
        """Add the row `least <= sum of terms <= bound`."""
        for column, value in terms.items():
            if value != 0.0:
                self.index.append(column)
                self.value.append(value)
        self.start.append(len(self.index))
        self.rows.append(name)
        self.row_lower.append(least)
        self.row_upper.append(bound)

    def finish(
        self,
        problem: Problem,
        scale: float,
        choice: tuple[tuple[tuple[int, int], ...], ...] = (),
        counts: tuple[tuple[int, ...], ...] = (),
    ) -> IntegerModel:
        """The model of these columns and rows."""
        return IntegerModel(
            problem=problem,
            scale=scale,
            columns=tuple(self.columns),
            rows=tuple(self.rows),
            lower=np.zeros(len(self.columns)),
            upper=np.array(self.upper, dtype=np.float64),
            integer=np.array(self.integer, dtype=np.bool_),
            start=np.array(self.start, dtype=np.int32),
            index=np.array(self.index, dtype=np.int32),
            value=np.array(self.value, dtype=np.float64),
            row_lower=np.array(self.row_lower, dtype=np.float64),
            row_upper=np.array(self.row_upper, dtype=np.float64),
            choice=choice,
            counts=counts,
        )


def add_to(terms: dict[int, float], expression: Expression, factor: float) -> float:
    """Add a multiple of an expression to the terms of a row and return the constant part."""
    constant, parts = expression
    for column, value in parts:
        terms[column] = terms.get(column, 0.0) + factor * value
    return factor * constant


def period_scale(problem: Problem) -> float:
    """Nanoseconds per unit of the model."""
    best = [
        min((ns * task.rate for ns in task.ns if ns is not None), default=0.0)
        for task in problem.tasks
    ]
    return max(sum(best) / max(len(problem.devices), 1), 1e-9) / _TARGET


def build_model(problem: Problem, classes: Sequence[int] = ()) -> IntegerModel:
    """The mixed-integer program of a problem in which every task can run somewhere.

    With a class per task there is a row for each count: how many tasks of a class are on a device,
    how many tensors between two classes go from one device to another. The rows themselves cut off
    nothing; branching on them does (`bound.counts`).
    """
    builder = ModelBuilder()
    builder.column("T", np.inf)
    choice = tuple(_task_columns(builder, problem, task) for task in range(len(problem.tasks)))
    chosen = [_expressions(options) for options in choice]
    scale = period_scale(problem)
    moves, again = _transfer_columns(builder, problem, chosen)
    _load_rows(builder, problem, chosen, moves, again, scale)
    _memory_rows(builder, problem, chosen)
    counts = _count_rows(builder, problem, choice, moves, classes) if classes else ()
    return builder.finish(problem, scale, choice, counts)


def _count_rows(
    builder: ModelBuilder,
    problem: Problem,
    choice: tuple[tuple[tuple[int, int], ...], ...],
    moves: list[tuple[int, int, int, int]],
    classes: Sequence[int],
) -> tuple[tuple[int, ...], ...]:
    """Add a row per class and device, and per kind of tensor and pair; returns their columns."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for number, options in zip(classes, choice, strict=True):
        for device, column in options[1:]:
            groups.setdefault(("n", number, device), []).append(column)
    for index, source, target, column in moves:
        tensor = problem.tensors[index]
        readers = tuple(sorted(classes[task] for task in tensor.consumers))
        shape = (tensor.bytes, tensor.rate, classes[tensor.producer], readers)
        groups.setdefault(("y", *shape, source, target), []).append(column)
    for number, columns in enumerate(groups.values()):
        most = float(len(columns))
        builder.at_most(f"count[{number}]", dict.fromkeys(columns, 1.0), most, least=0.0)
    return tuple(tuple(columns) for columns in groups.values())


def _task_columns(
    builder: ModelBuilder, problem: Problem, task: int
) -> tuple[tuple[int, int], ...]:
    """(device, column) for each device allowed; the first has no column."""
    allowed = _in_order(problem.tasks[task])
    name = problem.tasks[task].name
    columns = [(allowed[0], -1)]
    for device in allowed[1:]:
        label = f"x[{task}:{name},{problem.devices[device]}]"
        columns.append((device, builder.column(label, 1.0, integer=True)))
    if len(allowed) > 2:
        terms = {column: 1.0 for _, column in columns[1:]}
        builder.at_most(f"one[{task}]", terms, 1.0)
    return tuple(columns)


def _in_order(task: Task) -> tuple[int, ...]:
    """The devices that can run a task, far slower ones last: the first is a constant of the rows,
    in which a large number would cost the others their precision."""
    times = [(device, ns) for device, ns in enumerate(task.ns) if ns is not None]
    least = min(ns for _, ns in times)
    return tuple(
        device
        for device, ns in sorted(times, key=lambda device_and_ns: device_and_ns[1] > _SLOW * least)
    )


def in_units(ns: float, scale: float) -> float:
    """Nanoseconds in the unit of the model, clipped to what a solver can handle."""
    return min(ns / scale, _LONGEST)


def _expressions(options: tuple[tuple[int, int], ...]) -> dict[int, Expression]:
    """Per device: "the task is there" as a constant and terms."""
    others = tuple(column for _, column in options[1:])
    expressions: dict[int, Expression] = {
        device: (0.0, ((column, 1.0),)) for device, column in options[1:]
    }
    expressions[options[0][0]] = 1.0, tuple((column, -1.0) for column in others)
    return expressions


_NOWHERE: Expression = (0.0, ())


def _transfer_columns(
    builder: ModelBuilder, problem: Problem, chosen: list[dict[int, Expression]]
) -> tuple[list[tuple[int, int, int, int]], dict[tuple[int, int], int]]:
    """(tensor, from, to, column) for every transfer that could be needed, with its rows; and the
    columns of tasks that devices may do, too."""
    wires = {(wire.source, wire.target) for wire in problem.wires}
    transfers = []
    again: dict[tuple[int, int], int] = {}
    for index, tensor in enumerate(problem.tensors):
        made = chosen[tensor.producer]
        readers = sorted(set(tensor.consumers) - {tensor.producer})
        for target in range(len(problem.devices)):
            here = [task for task in readers if target in chosen[task]]
            if not here or set(made) == {target}:
                continue
            sources = [g for g in made if g != target and (g, target) in wires]
            columns = {
                g: builder.column(f"y[{index},{problem.devices[g]},{problem.devices[target]}]", 1.0)
                for g in sources
            }
            transfers += [(index, g, target, column) for g, column in columns.items()]
            covers = dict(columns)
            if tensor.again and target in made:
                key = tensor.producer, target
                if key not in again:
                    again[key] = builder.column(f"again[{key[0]},{problem.devices[target]}]", 1.0)
                covers[target] = again[key]
            _cover_rows(builder, index, target, here, made, chosen, covers)
            if len(sources) > 1 or len(sources) < len(set(made) - {target}):
                _source_rows(builder, index, made, columns)
    return transfers, again


def _cover_rows(
    builder: ModelBuilder,
    tensor: int,
    target: int,
    readers: list[int],
    made: dict[int, Expression],
    chosen: list[dict[int, Expression]],
    columns: dict[int, int],
) -> None:
    """A reader on the target without the producer needs a transfer there."""
    for reader in readers:
        terms = dict.fromkeys(columns.values(), -1.0)
        constant = add_to(terms, chosen[reader][target], 1.0)
        constant += add_to(terms, made.get(target, _NOWHERE), -1.0)
        builder.at_most(f"cover[{tensor},{reader},{target}]", terms, -constant)


def _source_rows(
    builder: ModelBuilder, tensor: int, made: dict[int, Expression], columns: dict[int, int]
) -> None:
    """A transfer starts where the producer is."""
    for source, column in columns.items():
        terms = {column: 1.0}
        constant = add_to(terms, made[source], -1.0)
        builder.at_most(f"from[{tensor},{source}]", terms, -constant)


def _load_rows(
    builder: ModelBuilder,
    problem: Problem,
    chosen: list[dict[int, Expression]],
    moves: list[tuple[int, int, int, int]],
    again: dict[tuple[int, int], int],
    scale: float,
) -> None:
    devices: list[dict[int, float]] = [{PERIOD: -1.0} for _ in problem.devices]
    constants = [0.0] * len(problem.devices)
    for task, options in zip(problem.tasks, chosen, strict=True):
        for device, expression in options.items():
            ns = task.ns[device]
            assert ns is not None
            units = in_units(ns * task.rate, scale)
            constants[device] += add_to(devices[device], expression, units)
    for (number, device), column in again.items():
        task = problem.tasks[number]
        devices[device][column] = in_units((task.ns[device] or 0.0) * task.rate, scale)
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    for tensor, source, target, column in moves:
        tax = in_units(problem.tax_ns(problem.tensors[tensor], wires[source, target]), scale)
        for end in (source, target):
            devices[end][column] = devices[end].get(column, 0.0) + tax
    for name, terms, constant in zip(problem.devices, devices, constants, strict=True):
        builder.at_most(f"device[{name}]", terms, -constant)
    for pipe in problem.pipes:
        pairs = set(pipe.pairs)
        sent = [tensor.bytes * tensor.rate * pipe.ns_per_byte for tensor in problem.tensors]
        terms = {
            column: in_units(sent[tensor], scale)
            for tensor, source, target, column in moves
            if (source, target) in pairs
        }
        if terms:
            builder.at_most(f"pipe[{pipe.name}]", {PERIOD: -1.0, **terms}, 0.0)
    for load in problem.shared:
        terms, constant = {PERIOD: -1.0}, 0.0
        for ns, options in zip(load.ns, chosen, strict=True):
            for device in load.devices:
                units = in_units(ns, scale)
                constant += add_to(terms, options.get(device, _NOWHERE), units)
        builder.at_most(f"shared[{load.name}]", terms, -constant)


def _memory_rows(
    builder: ModelBuilder, problem: Problem, chosen: list[dict[int, Expression]]
) -> None:
    for room in problem.rooms:
        most = sum(r.bytes for r in problem.residents) * len(room.devices)
        if most <= room.bytes:
            continue
        capacity = max(room.bytes, 1)
        terms: dict[int, float] = {}
        constant = 0.0
        for index, resident in enumerate(problem.residents):
            for device in room.devices:
                held = _held(builder, problem, chosen, index, device)
                constant += add_to(terms, held, resident.bytes / capacity)
        builder.at_most(f"room[{room.name}]", terms, room.bytes / capacity - constant)


def _held(
    builder: ModelBuilder,
    problem: Problem,
    chosen: list[dict[int, Expression]],
    index: int,
    device: int,
) -> Expression:
    """Whether a resident is on a device: the column of its only user, or a column of its own."""
    users = [task for task in problem.residents[index].users if device in chosen[task]]
    if len(users) <= 1:
        return chosen[users[0]][device] if users else _NOWHERE
    if any(len(chosen[task]) == 1 for task in users):
        return 1.0, ()
    column = builder.column(f"m[{index},{problem.devices[device]}]", 1.0)
    for task in users:
        terms = {column: -1.0}
        constant = add_to(terms, chosen[task][device], 1.0)
        builder.at_most(f"held[{index},{task},{device}]", terms, -constant)
    return 0.0, ((column, 1.0),)
