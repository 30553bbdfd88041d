"""The shares of devices: whole numbers of units per class of chains, by a small integer program.

In: `ShareClass`es, the time and bytes of what is not cut, and the room of each device. Out: units
per class and device, with the least time of a request, or the least load of the busiest device.

The time of a part grows with its units from a fixed time; a device without units takes none. For a
request alone, a chain ends with its slowest part. At full load, devices work on several requests,
and only the sums matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessera.planning.bound.model import IntegerModel, ModelBuilder
from tessera.planning.bound.relax import make_solver, run_solver
from tessera.planning.division.chains import ShareClass
from tessera.planning.problem.problem import Problem

_GAP = 2e-3
_MOST_NODES = 2_000
_TARGET = 1000.0
_NOTHING = Problem(devices=(), tasks=())

Counts = tuple[tuple[int, ...], ...]
"""Per class, the units of each device."""


def best_shares(
    classes: Sequence[ShareClass],
    fixed_ns: Sequence[float],
    room: Sequence[float],
    *,
    is_rate: bool,
    lanes: int = 1,
) -> Counts | None:
    """The best units for each device; None if memory does not hold the model.

    `fixed_ns` and `room` are what wholes and twins take on each device, and the memory they leave.
    """
    if min(room, default=0.0) < 0:
        return None
    model, columns = _model(classes, fixed_ns, room, is_rate=is_rate, lanes=lanes)
    solver = make_solver(model, integer=True)
    solver.setOptionValue("mip_rel_gap", _GAP)
    solver.setOptionValue("mip_max_nodes", _MOST_NODES)
    run_solver(solver, integer=True)
    values = np.array(solver.getSolution().col_value)
    if len(values) == 0 or not np.isfinite(values).all():
        return None
    counts = tuple(tuple(round(values[column]) for column in row) for row in columns)
    if any(sum(row) != kind.units for row, kind in zip(counts, classes, strict=True)):
        return None
    return counts


def _model(
    classes: Sequence[ShareClass],
    fixed_ns: Sequence[float],
    room: Sequence[float],
    *,
    is_rate: bool,
    lanes: int,
) -> tuple[IntegerModel, list[list[int]]]:
    builder = ModelBuilder()
    total = builder.column("T", np.inf)
    scale = (
        max(sum(len(kind.chains) * min(kind.ns) for kind in classes) + max(fixed_ns), 1.0) / _TARGET
    )
    held: list[dict[int, float]] = [{} for _ in room]
    loads: list[dict[int, float]] = [{total: -1.0} for _ in room]
    sum_of_times = {total: -1.0}
    columns = []
    for number, kind in enumerate(classes):
        chains = len(kind.chains)
        row = [
            builder.column(f"n[{number},{d}]", 0.0 if np.isinf(kind.ns[d]) else kind.units, True)
            for d in range(len(room))
        ]
        columns.append(row)
        builder.at_most(f"all[{number}]", dict.fromkeys(row, 1.0), kind.units, least=kind.units)
        slowest = builder.column(f"t[{number}]", np.inf)
        sum_of_times[slowest] = float(chains)
        for device, column in enumerate(row):
            if np.isinf(kind.ns[device]):
                continue
            used = builder.column(f"used[{number},{device}]", 1.0, True)
            builder.at_most(f"uses[{number},{device}]", {column: 1.0, used: -kind.units}, 0.0)
            fixed, slope = kind.fixed_ns[device] / scale, kind.ns[device] / scale / kind.units
            if is_rate:
                loads[device] |= {column: chains * slope, used: chains * fixed}
            else:
                terms = {column: slope, used: fixed, slowest: -1.0}
                builder.at_most(f"part[{number},{device}]", terms, 0.0)
            size = (kind.bytes + lanes * kind.lane_bytes) * chains
            held[device][column] = size / kind.units / max(room[device], 1.0)
    for device, terms in enumerate(held):
        builder.at_most(f"room[{device}]", terms, 1.0)
        if is_rate:
            builder.at_most(f"device[{device}]", loads[device], -fixed_ns[device] / scale)
    if not is_rate:
        builder.at_most("request", sum_of_times, 0.0)
    return builder.finish(_NOTHING, scale), columns
