"""Times of sums over GPUs of one kind in one host (all-reduce): measured, or by a model.

In: a kind of GPU, the number of GPUs, the number of 16-bit elements. Out: ns, interpolated linearly
between the two nearest rows of the extra `tables`; None if it was not measured. Source:
`custom_allreduce_perf` of `aiconfigurator_core`, whose `message_size` counts elements.

The model (`modelled_all_reduce`) has the two ways of kernels, and a ring above 8 MiB. Over NVLink
each GPU reads from all others at once: all of the sum (one shot), or its own part, which the others
then read (two shots). Over PCIe GPUs share what their host has, so that more GPUs have less of it.
Over a network it is a ring. The constants were chosen by looking at the rows of the extra;
`benchmarks/prediction/all_reduce.py` compares both and gives the errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from math import isfinite
from pathlib import Path

from tessera.frontend.machine.gpus import LinkKind, parse_link
from tessera.frontend.machine.tables import extra_is_missing, system_of
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import LIBRARIES

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


@dataclass(frozen=True, slots=True)
class SumTime:
    """The time of a sum. Nine of ten true times are within the factor `1 + error`, either way."""

    ns: float
    error: float


_USED = 0.65
"""Share of a link's bandwidth that sums use."""
_RING_BYTES = 8 << 20
_NVLINK_ERROR, _PCIE_ERROR, _NETWORK_ERROR = 0.55, 1.7, 2.0
"""By `benchmarks/results/all_reduce.json`; nothing was measured over networks."""


def host_link(gpu: Gpu) -> LinkKind:
    """The link between GPUs of one host: NVLink if there is one, or PCIe."""
    return parse_link("nvlink" if gpu.nvlink_bandwidth else "pcie")


def modelled_all_reduce(gpu: Gpu, link: LinkKind, count: int, elements: float) -> SumTime:
    """The time of a sum of `elements` elements of 16 bits over `count` GPUs."""
    size, rate, latency = 2.0 * elements, _USED * link.port(gpu) / 1e9, link.latency_ns
    ring = 2 * (count - 1) / count * size / rate
    if link.name == "nvlink":
        if size >= _RING_BYTES:
            return SumTime(12 * latency + ring, _NVLINK_ERROR)
        one_shot = 2.5 * latency + (count - 1) * size / rate
        return SumTime(min(one_shot, 5 * latency + ring), _NVLINK_ERROR)
    if link.name.startswith("pcie"):
        return SumTime(0.63 * count * latency + ring * count / 2, _PCIE_ERROR)
    return SumTime(2 * (count - 1) * latency + ring, _NETWORK_ERROR)


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
            for path in Path(place, "systems", "data", system or "", "comm", LIBRARIES[0]).glob(
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
