"""`mma` on 16- and 32-bit floats with the preparation of fragments remembered.

A kernel multiplies each fragment of A with several of B and the other way round. Registers are
never changed in place, so a fragment that is the same arrays has the same values: its elements
and exponents, in the order that the sum needs, are kept with the chunk for the last few
fragments. How products are summed is `numerics.matrix.accumulate` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tessera.backend.cpu.lanes import Lanes
from tessera.backend.cpu.memory import Array
from tessera.backend.cpu.numerics.formats import widen
from tessera.backend.cpu.numerics.matrix import accumulate, elements
from tessera.backend.cpu.numerics.matrix.mma import parse_shape

TYPES = frozenset({"f16", "bf16", "tf32"})

# Warps at a time: temporaries stay in the second-level cache.
_WARPS = 128
_COLUMNS = 8
_KEPT = 24


def multiply(
    cx: Lanes,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
) -> list[Array]:
    """The registers of D = A * B + C."""
    shape, dt, at, bt, ct = static
    rows, _, depth = parse_shape(shape)
    rule = accumulate.rule_for(at)
    left = _remembered(cx, ("a", shape, at), a, lambda r: _prepare_a(r, at, rows, rule))
    right = _remembered(cx, ("b", shape, bt), b, lambda r: _prepare_b(r, bt, depth, rule))
    start = elements.accumulator_of(ct, [cx.to_warps(x) for x in c], rows)
    warps = start.shape[-1]
    parts = []
    for number, first in enumerate(range(0, warps, _WARPS)):
        chunk = np.ascontiguousarray(start[..., first : first + _WARPS]).reshape(rows, -1)
        initial = np.ascontiguousarray(widen(ct, chunk))
        total = accumulate.sum_of_products(left[number], right[number], initial, rule)
        parts.append(accumulate.round_sum(dt, total, rule).reshape(rows, _COLUMNS, -1))
    whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
    made = elements.registers_of(dt, whole, (warps, 32))
    return [cx.from_warps(d) for d in made]


def _remembered(
    cx: Lanes,
    kind: tuple[str, ...],
    registers: Sequence[Array],
    prepare: Callable[[list[Array]], list[Any]],
) -> list[Any]:
    """The prepared form of a fragment; the entry holds the arrays, so that ids stay theirs."""
    kept: dict[Any, tuple[tuple[Array, ...], Lanes, list[Any]]] = cx.chunk.fragments
    key = (kind, id(cx), *map(id, registers))
    found = kept.get(key)
    if found is not None:
        return found[2]
    made = prepare([cx.to_warps(register) for register in registers])
    if len(kept) >= _KEPT:
        del kept[next(iter(kept))]
    kept[key] = (tuple(registers), cx, made)
    return made


def _prepare_a(registers: list[Array], t: str, rows: int, rule: accumulate.Rule) -> list[Any]:
    """A [k, row, warp], each row repeated for the columns, in steps of warps."""
    values = elements.matrix_a(t, registers, rows)
    depth = values.shape[0]

    def repeat(part: Array) -> Array:
        return part.repeat(_COLUMNS, axis=1).reshape(depth, rows, -1)

    return [accumulate.factor(part, rule.lowest).spread(repeat) for part in _steps(values)]


def _prepare_b(registers: list[Array], t: str, depth: int, rule: accumulate.Rule) -> list[Any]:
    values = elements.matrix_b(t, registers)
    return [
        accumulate.factor(part.reshape(values.shape[0], 1, -1), rule.lowest)
        for part in _steps(values)
    ]


def _steps(values: Array) -> list[Array]:
    starts = range(0, values.shape[-1], _WARPS)
    return [np.ascontiguousarray(values[..., s : s + _WARPS]) for s in starts]
