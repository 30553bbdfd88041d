"""Matrix instructions on running lanes: registers to warps, rows to and from memory.

The arithmetic and the layouts of fragments are `numerics.matrix` and `numerics.wgmma`; this
file brings registers into (warps, 32), gathers what lies in memory, and spreads results.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.backend.cpu.access import blame
from tessera.backend.cpu.emit import Unsupported
from tessera.backend.cpu.lanes import WARP, Lanes
from tessera.backend.cpu.memory import Array
from tessera.backend.cpu.numerics import matrix
from tessera.backend.cpu.spaces import AddressFault, Gather, Scatter, check_aligned, gather_shared

_ROW = 16


@functools.cache
def _probe(
    static: tuple[str, ...], layouts: tuple[str, ...], satfinite: bool, op: str | None
) -> str:
    """Try a multiplication of zeros; gives what is wrong, or nothing."""
    width = np.uint64 if static[1] == "f64" else np.uint32
    zero = np.zeros((1, WARP), dtype=width)
    sizes = matrix.register_counts(static[0], *static[1:])
    parts = [[zero] * n for n in sizes]
    settings = {"alayout": layouts[0], "blayout": layouts[1], "satfinite": satfinite, "op": op}
    try:
        matrix.mma(*static, *parts, **settings)
    except NotImplementedError as reason:
        return str(reason)
    return ""


def check_mma(
    static: tuple[str, ...], layouts: Sequence[str], satfinite: bool, op: str | None
) -> None:
    """Refuse a form of `mma` that `numerics` does not have, before anything runs."""
    if not hasattr(matrix, "register_counts"):
        return
    reason = _probe(static, tuple(layouts), satfinite, op)
    if reason:
        raise Unsupported(reason)


def to_warps(cx: Lanes, values: Sequence[Array]) -> list[Array]:
    """Registers as (warps, 32)."""
    return [cx.to_warps(value) for value in values]


def mma(
    cx: Lanes,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    layouts: tuple[str, str],
    satfinite: bool,
    op: str | None,
) -> list[Array]:
    """mma.sync."""
    parts = (to_warps(cx, x) for x in (a, b, c))
    made = matrix.mma(
        *static, *parts, alayout=layouts[0], blayout=layouts[1], satfinite=satfinite, op=op
    )
    return [cx.from_warps(d) for d in made]


def mma_sparse(
    cx: Lanes,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    metadata: Array,
    selector: int,
    ordered: bool,
    satfinite: bool,
) -> list[Array]:
    """mma.sp.sync."""
    parts = (to_warps(cx, x) for x in (a, b, c))
    made = matrix.mma_sp(
        *static,
        *parts,
        cx.to_warps(metadata),
        selector,
        ordered=ordered,
        satfinite=satfinite,
    )
    return [cx.from_warps(d) for d in made]


# --- rows in memory ------------------------------------------------------------------------


def places_of(cx: Lanes) -> Array:
    """The flat place of each lane of (warps, 32) in the form of the running lanes."""
    numbers = np.arange(cx.shape[0] * cx.shape[1]).reshape(cx.shape)
    return cx.to_warps(numbers)


def ldmatrix(
    cx: Lanes, gather: Gather, site: int, addr: Array, count: int, trans: bool
) -> list[Array]:
    """ldmatrix: lane 8m+r names row r of matrix m, 16 bytes each."""
    rows = count * 8
    if gather is gather_shared and _is_simple(cx, addr):
        words = _simple_rows(cx, site, addr, rows)
    else:
        words = _gather_rows(cx, gather, site, addr, rows)
    raw = words.view(np.uint8).reshape(-1, rows, _ROW)
    return [cx.from_warps(d) for d in matrix.ldmatrix(raw, count, trans)]


def _is_simple(cx: Lanes, addr: Array) -> bool:
    """All lanes run, and every CTA uses the same offsets: the usual case."""
    if cx.kind != "full" or addr.shape[0] != 1 or addr.shape[1] != cx.shape[1]:
        return False
    threads = cx.shape[1]
    return bool(threads % WARP == 0 and cx.chunk.launch.cluster_size == 1)


def _simple_rows(cx: Lanes, site: int, addr: Array, rows: int) -> Array:
    chosen = np.ascontiguousarray(addr.reshape(-1, WARP)[:, :rows]).reshape(1, -1)
    try:
        return gather_shared(cx, site, chosen, _ROW, None)
    except AddressFault as fault:
        blame(cx, fault, addr, None)
        raise


def _gather_rows(cx: Lanes, gather: Gather, site: int, addr: Array, rows: int) -> Array:
    wide = cx.to_warps(addr)[:, :rows]
    who = places_of(cx)[:, :rows]
    active = cx.warp_active
    words = np.zeros(wide.shape, dtype=np.complex128)
    chosen = np.ones(wide.shape, dtype=np.bool_) if active is None else active[:, :rows]
    try:
        words[chosen] = gather(cx, site, wide[chosen], _ROW, who[chosen])
    except AddressFault as fault:
        blame(cx, fault, addr, cx.active)
        raise
    return words


def stmatrix(
    cx: Lanes, scatter: Scatter, site: int, addr: Array, values: Sequence[Array], trans: bool
) -> None:
    """stmatrix: the inverse of ldmatrix."""
    rows = 8 * len(values)
    raw = matrix.stmatrix(to_warps(cx, values), trans)
    words = np.ascontiguousarray(raw).view(np.complex128).reshape(-1, rows)
    wide = cx.to_warps(addr)[:, :rows]
    who = places_of(cx)[:, :rows]
    active = cx.warp_active
    chosen = np.ones(wide.shape, dtype=np.bool_) if active is None else active[:, :rows]
    try:
        scatter(cx, site, wide[chosen], _ROW, words[chosen], who[chosen])
    except AddressFault as fault:
        blame(cx, fault, addr, cx.active)
        raise


def movmatrix(cx: Lanes, value: Array) -> Array:
    """movmatrix: the transpose of a matrix held by a warp."""
    return cx.from_warps(matrix.movmatrix(np.ascontiguousarray(cx.to_warps(value))))


__all__ = ["Any", "check_aligned", "ldmatrix", "mma", "mma_sparse", "movmatrix", "stmatrix"]
