"""Times between the rows of a table, with error bars.

In: `TableRows` and a `Gpu`. Out: an `Estimate` for sizes. Rows are a grid with holes. A lookup goes
down the axes one by one, and takes the nearest values below and above that lead to a row. It
interpolates the logarithm of the time over a roofline, along the logarithms of the sizes. The last
two axes are taken in either order, and the two answers are averaged by their reach. Beyond the grid
the last row's factor over the roofline is kept, with a wide bar; far beyond it there is no answer.

An error bar comes from leaving out whole shapes: each row around the sizes is looked up without the
rows of its shape, and the error there is taken as the error here.

The time over `roofline_ns` is interpolated rather than the time. So a size that doubles the bytes
doubles a time that is bound by bytes, and does not change one that is bound by the launch.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, log

from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import Fixed, Sizes, TableKind, TableRows

_LAUNCH_NS = 2000.0
_SHARPNESS = 4.0
# Axes in the order in which they are walked, with a weight: the last two in either order. Times
# are smoother along k, queries per key, and expert parts than along the axis before.
ORDERS = {
    TableKind.GEMM: (((0, 1, 2), 4.0), ((0, 2, 1), 1.0)),
    TableKind.CONTEXT: (((0, 1, 2, 3), 4.0), ((0, 1, 3, 2), 1.0)),
    TableKind.GENERATION: (((0, 1, 2, 3), 4.0), ((0, 1, 3, 2), 1.0)),
    TableKind.MOE: (((0, 1, 2), 4.0), ((0, 2, 1), 1.0)),
}
# The measurements repeated the same work, GEMMs with a few sets of weights in turn. Bytes up to the
# first fraction of L2 were cached; from the second fraction on they were not.
_IN_CACHE = {
    TableKind.GEMM: (0.15, 0.4),
    TableKind.CONTEXT: (0.4, 0.9),
    TableKind.GENERATION: (0.4, 0.9),
    TableKind.MOE: (0.4, 0.9),
}
_CACHE_SPEED = 2.0  # relative to memory
ELEMENT_BYTES = {
    "bfloat16": 2.0,
    "fp8": 1.0,
    "fp8_block": 1.0,
    "int4_wo": 0.53,
    "w4a16_mxfp4": 0.53,
}
UNITS = {
    "bfloat16": "bf16",
    "fp8": "fp8",
    "fp8_block": "fp8",
    "int4_wo": "bf16",
    "w4a16_mxfp4": "bf16",
}


def coordinates(kind: TableKind, sizes: Sizes) -> tuple[float, ...]:
    """Coordinates of a row: logarithms of its sizes; for attention, of queries per key instead."""
    if kind in (TableKind.CONTEXT, TableKind.GENERATION):
        batch, length, heads, kv_heads = sizes
        return log(batch), log(length), log(kv_heads), log(heads / kv_heads)
    return tuple(log(size) for size in sizes)


def model_shape(kind: TableKind, sizes: Sizes) -> Sizes:
    """The sizes that the model determines, not its requests: rows of one such shape are alike."""
    return sizes[1:] if kind in (TableKind.GEMM, TableKind.MOE) else sizes[2:]


def operations_and_bytes(kind: TableKind, fixed: Fixed, sizes: Sizes) -> tuple[float, float]:
    """Floating-point operations, and bytes that have to be moved at least once."""
    width = ELEMENT_BYTES.get(str(fixed[0]), 2.0)
    if kind is TableKind.GEMM:
        m, n, k = (float(size) for size in sizes)
        return 2 * m * n * k, width * (m * k + k * n) + 2 * m * n
    if kind is TableKind.MOE:
        return _expert_work(fixed, sizes, width)
    batch, length, heads, kv_heads = (float(size) for size in sizes)
    head_size, window = float(fixed[2]), float(fixed[3])
    cache_width = ELEMENT_BYTES.get(str(fixed[1]), 2.0)
    seen = min(length, window) if window else length
    if kind is TableKind.GENERATION:
        moved = cache_width * 2 * batch * seen * kv_heads * head_size
        return 4 * batch * heads * seen * head_size, moved + 4 * batch * heads * head_size
    pairs = length * seen - (seen * seen - seen) / 2
    moved = (2 * width * heads + 2 * cache_width * kv_heads) * batch * length * head_size
    return 4 * batch * heads * pairs * head_size, moved


def _expert_work(fixed: Fixed, sizes: Sizes, width: float) -> tuple[float, float]:
    tokens, tensor_parts, expert_parts = (float(size) for size in sizes)
    _, hidden, inter, topk, experts = (float(part) if i else 0.0 for i, part in enumerate(fixed))
    rows = tokens * topk / expert_parts
    used = min(experts / expert_parts, rows)
    matrix = 3 * hidden * inter / tensor_parts
    return 2 * rows * matrix, width * used * matrix + 2 * 2 * (tokens + rows) * hidden


def arithmetic_and_memory_ns(
    gpu: Gpu, kind: TableKind, fixed: Fixed, sizes: Sizes
) -> tuple[float, float]:
    """The times of the arithmetic and of the bytes at the rates of the data sheet."""
    operations, moved = operations_and_bytes(kind, fixed, sizes)
    unit = UNITS.get(str(fixed[0]), "bf16")
    rate = gpu.flops(unit) or gpu.flops("fp16") or 1e14
    low, high = (log(part) for part in _IN_CACHE[kind])
    missed = min(1.0, max(0.0, (log(moved / gpu.l2_bytes) - low) / (high - low)))
    bandwidth = gpu.memory_bandwidth * _CACHE_SPEED ** (1.0 - missed)
    return operations / rate * 1e9, moved / bandwidth * 1e9


_MEMORY_PART = 0.89  # fraction of a data sheet's bandwidth


def from_memory_ns(gpu: Gpu, moved: float) -> float:
    """The time of bytes that no cache holds."""
    return moved / (gpu.memory_bandwidth * _MEMORY_PART) * 1e9


def roofline_ns(gpu: Gpu, kind: TableKind, fixed: Fixed, sizes: Sizes) -> float:
    """A launch, and about the longer of arithmetic and memory at the rates of the data sheet."""
    parts = arithmetic_and_memory_ns(gpu, kind, fixed, sizes)
    together = float(sum(part**_SHARPNESS for part in parts) ** (1 / _SHARPNESS))
    return _LAUNCH_NS + together


NOISE = 0.03  # relative difference when a row is measured again
FARTHEST = log(4.0)  # beyond the grid; no answer there
_BEYOND = 10.0  # weight of a step beyond the grid relative to one inside it
_LEAST = 0.06  # minimum bar of an interpolated time
# A bar over the mean residual of the rows around: nine in ten hold
# (`benchmarks/prediction/tables.py`).
_SPREAD = {
    TableKind.GEMM: 2.2,
    TableKind.CONTEXT: 2.2,
    TableKind.GENERATION: 2.2,
    TableKind.MOE: 3.0,
}
# Fraction of the bars of two tables that remains in a ratio: part of the error is common to both.
_COMMON = {
    TableKind.GEMM: 0.85,
    TableKind.CONTEXT: 0.85,
    TableKind.GENERATION: 0.85,
    TableKind.MOE: 0.6,
}
_UNKNOWN = 0.25  # the residual if no rows determine it
_OUTSIDE = 0.5  # added to a bar for every factor of e beyond the grid


@dataclass(frozen=True, slots=True)
class Estimate:
    """A time, how far off it may be as a fraction, and how far beyond the grid (in log) it is.

    `between` is the part of the error's variance that is a difference between libraries.
    """

    ns: float
    error: float
    beyond: float = 0.0
    between: float = 0.0


@dataclass(frozen=True, slots=True)
class _Found:
    """The logarithm of a time over the roofline; `reach` is the distance of the rows.

    `rows` are the indices of the rows used.
    """

    value: float
    reach: float
    beyond: float
    rows: tuple[int, ...]


class _Branch:
    """Rows by the next axis: `keys` in order, with a branch or the index of a row for each."""

    __slots__ = ("below", "keys", "rows")

    def __init__(self) -> None:
        self.below: dict[float, _Branch] = {}
        self.rows: dict[float, int] = {}
        self.keys: list[float] = []

    def close(self) -> None:
        """Put the keys in order, here and below."""
        self.keys = sorted(self.below or self.rows)
        for node in self.below.values():
            node.close()


class TableIndex:
    """One table, ready for lookups."""

    def __init__(self, rows: TableRows, gpu: Gpu) -> None:
        self.rows, self.gpu = rows, gpu
        self._at = {sizes: row for row, sizes in enumerate(rows.sizes)}
        self._trees: list[tuple[float, tuple[int, ...], _Branch]] = []
        self._residuals: dict[tuple[int, tuple[Sizes, ...]], float | None] = {}
        self._known: dict[tuple[Sizes, Sizes | None], Estimate | None] = {}

    def find(self, sizes: Sizes, without: Sizes | None = None) -> Estimate | None:
        """The time for sizes; None far from all rows. `without` leaves out a shape's rows."""
        key = sizes, without
        if key not in self._known:  # equal layers ask again, on each GPU of a kind
            self._known[key] = self._estimate(sizes, without)
        return self._known[key]

    def _estimate(self, sizes: Sizes, without: Sizes | None) -> Estimate | None:
        row = self._at.get(sizes) if without is None else None
        if row is not None:
            return Estimate(self.rows.ns[row], NOISE)
        hidden = () if without is None else (without,)
        found = self._search(sizes, hidden)
        if found is None or found.beyond > FARTHEST:
            return None
        ns = exp(found.value) * roofline_ns(self.gpu, self.rows.kind, self.rows.fixed, sizes)
        return Estimate(ns, self._error(found, hidden), found.beyond)

    def _error(self, found: _Found, hidden: tuple[Sizes, ...]) -> float:
        seen = [self._residual(row, hidden) for row in found.rows]
        known = [residual for residual in seen if residual is not None]
        around = sum(known) / len(known) if known else _UNKNOWN
        return max(_LEAST, _SPREAD[self.rows.kind] * around) + _OUTSIDE * found.beyond

    def _over(self, row: int) -> float:
        """The logarithm of a row's time over the roofline."""
        kind, fixed, sizes = self.rows.kind, self.rows.fixed, self.rows.sizes[row]
        return log(self.rows.ns[row] / roofline_ns(self.gpu, kind, fixed, sizes))

    def _residual(self, row: int, hidden: tuple[Sizes, ...]) -> float | None:
        """Deviation of a row from the prediction by rows of other shapes, as a logarithm."""
        key = row, hidden
        if key not in self._residuals:
            sizes = self.rows.sizes[row]
            found = self._search(sizes, (*hidden, model_shape(self.rows.kind, sizes)))
            off = None if found is None or found.beyond else abs(found.value - self._over(row))
            self._residuals[key] = off
        return self._residuals[key]

    def _search(self, sizes: Sizes, hidden: tuple[Sizes, ...]) -> _Found | None:
        place = coordinates(self.rows.kind, sizes)
        if not self._trees:  # built once, and only if no row matches exactly
            places = [coordinates(self.rows.kind, sizes) for sizes in self.rows.sizes]
            self._trees = [(w, order, _tree(places, order)) for order, w in ORDERS[self.rows.kind]]
        answers: list[tuple[float, _Found]] = []
        for weight, order, tree in self._trees:
            found = self._down(tree, order, 0, place, hidden)
            if found is None or found.reach == 0.0:
                return found
            answers.append((weight / found.reach, found))
        total = sum(weight for weight, _ in answers)
        return _Found(
            sum(weight * found.value for weight, found in answers) / total,
            min(found.reach for _, found in answers),
            min(found.beyond for _, found in answers),
            tuple(dict.fromkeys(row for _, found in answers for row in found.rows)),
        )

    def _down(
        self,
        node: _Branch,
        order: tuple[int, ...],
        depth: int,
        place: tuple[float, ...],
        hidden: tuple[Sizes, ...],
    ) -> _Found | None:
        """The answer of the rows below a node."""
        wanted = place[order[depth]]
        keys = node.keys

        def under(key: float) -> _Found | None:
            if depth + 1 < len(order):
                return self._down(node.below[key], order, depth + 1, place, hidden)
            row = node.rows[key]
            if hidden and model_shape(self.rows.kind, self.rows.sizes[row]) in hidden:
                return None
            return _Found(self._over(row), 0.0, 0.0, (row,))

        at = bisect_left(keys, wanted)
        if at < len(keys) and keys[at] == wanted and (found := under(wanted)) is not None:
            return found
        above = at + (at < len(keys) and keys[at] == wanted)
        low = next(((k, f) for k in reversed(keys[:at]) if (f := under(k)) is not None), None)
        high = next(((k, f) for k in keys[above:] if (f := under(k)) is not None), None)
        if low is not None and high is not None:
            return _between(low, high, wanted)
        nearest = low or high
        if nearest is None:
            return None
        key, found = nearest
        far = abs(wanted - key)
        return _Found(
            found.value, found.reach + _BEYOND * far * (1 + far), found.beyond + far, found.rows
        )


def _between(low: tuple[float, _Found], high: tuple[float, _Found], wanted: float) -> _Found:
    (left, first), (right, second) = low, high
    part = (wanted - left) / (right - left)
    return _Found(
        (1 - part) * first.value + part * second.value,
        (wanted - left) * (right - wanted) + (1 - part) * first.reach + part * second.reach,
        (1 - part) * first.beyond + part * second.beyond,
        first.rows + second.rows,
    )


def _tree(places: list[tuple[float, ...]], order: tuple[int, ...]) -> _Branch:
    root = _Branch()
    for row, place in enumerate(places):
        node = root
        for axis in order[:-1]:
            node = node.below.setdefault(place[axis], _Branch())
        node.rows[place[order[-1]]] = row
    root.close()
    return root


def ratio(
    source: TableIndex, target: TableIndex, sizes: Sizes, without: Sizes | None = None
) -> Estimate | None:
    """The ratio of the target's time to the source's, as the `ns` of an estimate.

    Both sides are read from rows of the same sizes if possible, so that common effects (partial
    tiles) cancel.
    """
    here, there = source.find(sizes, without), target.find(sizes, without)
    if here is None or there is None:
        return None
    error = _COMMON[source.rows.kind] * (here.error**2 + there.error**2) ** 0.5
    return Estimate(there.ns / here.ns, error, max(here.beyond, there.beyond))
