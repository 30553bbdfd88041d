"""`mma` on 16- and 32-bit floats with a cache of prepared fragments.

A kernel multiplies each fragment of A with several of B and vice versa. Registers are never changed
in place, so a fragment of the same arrays has the same values. The chunk keeps the elements and
exponents of the last few fragments, in the order that the sum needs. Only
`numerics.matrix.accumulate` decides how products are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.numerics.bits import aligned_copy
from tessera.backend.ptx_executor.numerics.formats import widen
from tessera.backend.ptx_executor.numerics.matrix import accumulate, elements
from tessera.backend.ptx_executor.numerics.matrix.cut_sum import (
    Factor,
    Rule,
    factor,
    sum_of_products,
)
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape

TYPES = frozenset({"f16", "bf16", "tf32"})

# Warps per step: a row of their products stays in the second-level cache.
_WARPS = 256
# The number of warps from which a loop over the warps is long enough.
_MANY = 96
_COLUMNS = 8
_KEPT = 24
_KEPT_SUMS = 64
Key = tuple[object, ...]


class Fragments:
    """The cached fragments of a chunk; an entry keeps its arrays alive, so their ids stay valid."""

    __slots__ = ("factors", "sums")

    def __init__(self) -> None:
        self.factors: dict[Key, tuple[object, list[Factor]]] = {}
        self.sums: dict[Key, tuple[object, Array]] = {}

    def clear(self) -> None:
        """Drop all fragments."""
        self.factors.clear()
        self.sums.clear()


def multiply(
    cx: LaneSet, static: tuple[str, ...], a: Sequence[Array], b: Sequence[Array], c: Sequence[Array]
) -> list[Array]:
    """The registers of D = A * B + C."""
    shape, dt, at, bt, ct = static
    rows, _, _ = parse_shape(shape)
    rule = accumulate.rule_for(at)
    left = _remembered(cx, ("a", shape, at), a, lambda r: _prepare_a(r, at, rows, rule))
    right = _remembered(cx, ("b", shape, bt), b, lambda r: _prepare_b(r, bt, rule))
    start = _accumulator(cx, ct, c, rows)
    warps = start.shape[-1]
    parts = []
    for number, first in enumerate(range(0, warps, _WARPS)):
        chunk = np.ascontiguousarray(start[..., first : first + _WARPS])
        if not _is_wide(chunk.shape[-1]):
            chunk = chunk.reshape(rows, -1)
        initial = np.ascontiguousarray(widen(ct, chunk))
        total = sum_of_products(dt, left[number], right[number], initial, rule)
        parts.append(total.reshape(rows, _COLUMNS, -1))
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    made = [cx.from_warps(d) for d in elements.registers_of(dt, whole, (warps, 32))]
    sums = cx.chunk.fragments.sums
    if len(sums) >= _KEPT_SUMS:
        del sums[next(iter(sums))]
    sums[(dt, rows, id(cx), *map(id, made))] = ((made, cx), whole)
    return made


def _accumulator(cx: LaneSet, t: str, registers: Sequence[Array], rows: int) -> Array:
    """The bits of C [row, column, warp]; usually only the next product reads an accumulator."""
    sums: dict[Key, tuple[object, Array]] = cx.chunk.fragments.sums
    kept = sums.pop((t, rows, id(cx), *map(id, registers)), None)
    if kept is not None:
        return kept[1]
    return elements.accumulator_of(t, [cx.to_warps(x) for x in registers], rows)


def _remembered(
    cx: LaneSet,
    kind: tuple[str, ...],
    registers: Sequence[Array],
    prepare: Callable[[list[Array]], list[Factor]],
) -> list[Factor]:
    """The prepared form of a fragment."""
    kept: dict[Key, tuple[object, list[Factor]]] = cx.chunk.fragments.factors
    key = (kind, id(cx), *map(id, registers))
    fragment = kept.get(key)
    if fragment is not None:
        return fragment[1]
    made = prepare([cx.to_warps(register) for register in registers])
    if len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[key] = ((tuple(registers), cx), made)
    return made


def _prepare_a(registers: list[Array], t: str, rows: int, rule: Rule) -> list[Factor]:
    """A as [k, row, 1, warp], or repeated for the columns as [k, row, column and warp]."""
    values = elements.matrix_a(t, registers, rows)
    depth = values.shape[0]

    def turn(part: Array) -> Array:
        if _is_wide(part.shape[-1]):
            return part[:, :, None]
        return part.repeat(_COLUMNS, axis=1).reshape(depth, rows, -1)

    return [factor(part, rule.lowest).spread(turn) for part in _steps(values)]


def _prepare_b(registers: list[Array], t: str, rule: Rule) -> list[Factor]:
    """B as [k, 1, column, warp] or [k, 1, column and warp]."""

    def turn(part: Array) -> Array:
        return part[:, None] if _is_wide(part.shape[-1]) else part.reshape(part.shape[0], 1, -1)

    steps = _steps(elements.matrix_b(t, registers))
    return [factor(part, rule.lowest).spread(turn) for part in steps]


def _is_wide(warps: int) -> bool:
    """Whether loops over the warps are long enough; if not, columns and warps share an axis."""
    return warps >= _MANY


def _steps(values: Array) -> list[Array]:
    if values.shape[-1] <= _WARPS:
        return [values]
    starts = range(0, values.shape[-1], _WARPS)
    return [aligned_copy(values[..., s : s + _WARPS]) for s in starts]
