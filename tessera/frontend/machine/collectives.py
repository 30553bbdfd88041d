"""Measured times of sums over GPUs of one kind in one host (all-reduce), from the extra `tables`.

In: a kind of GPU, the number of GPUs, the number of 16-bit elements. Out: ns, interpolated linearly
between the two nearest rows; None if it was not measured. Source: `custom_allreduce_perf` of
`aiconfigurator_core`, whose `message_size` counts elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from math import isfinite
from pathlib import Path

from tessera.frontend.machine.tables import FRAMEWORK, extra_is_missing, system_of

_OTHER_PACKAGE = "aiconfigurator_core"
_FILE = "custom_allreduce_perf.parquet"
_GRAPH = "graph"  # the times inside CUDA graphs, if there are any


def all_reduce_ns(gpu: str, count: int, elements: float) -> float | None:
    """The time of a sum of `elements` elements over `count` GPUs."""
    points = _points(gpu, count)
    if not points:
        return None
    if elements <= points[0][0]:
        return points[0][1]
    for (low, first), (high, second) in pairwise(points):
        if low <= elements <= high:
            return first + (second - first) * (elements - low) / (high - low)
    size, ns = points[-1]
    return ns * elements / size


@cache
def _points(gpu: str, count: int) -> tuple[tuple[float, float], ...]:
    """Numbers of elements and times in ns, of the newest version."""
    system = system_of(gpu)
    spec = None if system is None or extra_is_missing() else find_spec(_OTHER_PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or ())
    files = sorted(
        (
            path
            for place in places
            for path in Path(place, "systems", "data", system or "", "comm", FRAMEWORK).glob(
                f"*/{_FILE}"
            )
        ),
        key=lambda path: [int(n) if n.isdigit() else 0 for n in path.parent.name.split(".")],
    )
    for path in reversed(files):
        if points := _read(path, count):
            return points
    return ()


def _read(path: Path, count: int) -> tuple[tuple[float, float], ...]:
    import pyarrow.parquet

    names = ("num_gpus", "message_size", "latency", "kernel_source")
    try:
        columns = pyarrow.parquet.read_table(path, columns=list(names)).to_pydict()
    except (OSError, ValueError):
        return ()
    rows = list(zip(*(columns[name] for name in names), strict=True))
    own = [row for row in rows if row[0] == count and isfinite(row[2]) and row[2] > 0]
    return _fastest([row for row in own if _GRAPH in str(row[3])] or own)


def _fastest(rows: Sequence[tuple[int, int, float, str]]) -> tuple[tuple[float, float], ...]:
    best: dict[float, float] = {}
    for _, size, latency, _ in rows:
        ns = latency * 1e6
        best[float(size)] = min(ns, best.get(float(size), ns))
    return tuple(sorted(best.items()))
