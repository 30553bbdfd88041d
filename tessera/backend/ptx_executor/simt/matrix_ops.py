"""Matrix instructions on running lanes: registers to warps, rows to and from memory.

The arithmetic and the layouts of fragments are `numerics.matrix` and `numerics.wgmma`; this
file brings registers into (warps, 32), gathers what lies in memory, and spreads results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from tessera.backend.ptx_executor.emit.kinds import Unsupported
from tessera.backend.ptx_executor.memory.access import blame
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, Array
from tessera.backend.ptx_executor.memory.spaces import Gather, Scatter, gather_shared
from tessera.backend.ptx_executor.numerics import matrix, quiet, wgmma
from tessera.backend.ptx_executor.numerics.matrix import wmma
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape
from tessera.backend.ptx_executor.simt import fragments
from tessera.backend.ptx_executor.simt.faults import AddressFault, Fault
from tessera.backend.ptx_executor.simt.lanes import WARP, LaneSet

_ROW = 16


# The NumPy types of the registers of each fragment.
Kinds = tuple[tuple[str, ...], ...]

_MMA: Callable[..., Sequence[Array]] = matrix.mma
_MMA_SPARSE: Callable[..., Sequence[Array]] = matrix.mma_sp
_WMMA: Callable[..., Sequence[Array]] = wmma.mma


def try_on_zeros(
    function: Callable[..., object], static: tuple[str, ...], parts: Kinds, **rest: object
) -> None:
    """Refuse a form that `numerics` does not have, before anything runs."""
    zeros = [[np.zeros((1, WARP), dtype=kind) for kind in part] for part in parts]
    try:
        with quiet():
            function(*static, *zeros, **rest)
    except NotImplementedError as reason:
        raise Unsupported(str(reason)) from None
    except (ValueError, IndexError, KeyError, TypeError) as reason:
        raise Unsupported(f"operands that do not fit the shape ({reason})") from None


@functools.cache
def check_mma(
    static: tuple[str, ...],
    parts: Kinds,
    layouts: tuple[str, ...],
    satfinite: bool,
    op: str | None,
) -> None:
    """Whether `mma` has this form."""
    settings = {"alayout": layouts[0], "blayout": layouts[1], "satfinite": satfinite, "op": op}
    try_on_zeros(_MMA, static, parts, **settings)


def check_wmma(static: tuple[str, ...], parts: Kinds, satfinite: bool, op: str | None) -> None:
    """Whether `wmma.mma` has this form."""
    try_on_zeros(_WMMA, static, parts, satfinite=satfinite, op=op)


def check_sparse(static: tuple[str, ...], parts: Kinds, selector: int) -> None:
    """Whether `mma.sp` has this form."""
    metadata = np.full((1, WARP), 0x44444444, dtype=np.uint32)

    def with_metadata(*given: object) -> object:
        return _MMA_SPARSE(*given, metadata, selector)

    try_on_zeros(with_metadata, static, parts)


@functools.cache
def check_wgmma(
    static: tuple[str, ...], registers: int, a_registers: int | None, satfinite: bool
) -> None:
    """Whether `wgmma` has this form; `a_registers` is None for A in shared memory."""
    shape, dt, at, bt = static
    if at not in _ELEMENT_BITS or bt not in _ELEMENT_BITS:
        raise Unsupported(f"wgmma on .{at} and .{bt}")
    _, n, k = parse_shape(shape)
    lane = np.zeros((4, WARP), dtype=np.uint32)
    kind = {1: np.uint32, 8: np.uint8, 16: np.uint16, 32: np.uint32}[_ELEMENT_BITS[at]]
    depth = k // 32 if at == "b1" else k
    left: Array | list[Array] = np.zeros((1, 64, depth), dtype=kind)
    if a_registers is not None:
        left = [lane] * a_registers
    right = np.zeros((1, n, depth), dtype=kind)
    try:
        with quiet():
            wgmma.mma(shape, dt, at, bt, [lane] * registers, left, right, satfinite=satfinite)
    except NotImplementedError as reason:
        raise Unsupported(str(reason)) from None
    except (ValueError, IndexError, KeyError, TypeError) as reason:
        raise Unsupported(f"operands that do not fit the shape ({reason})") from None


def to_warps(cx: LaneSet, values: Sequence[Array]) -> list[Array]:
    """Registers as (warps, 32)."""
    return [np.ascontiguousarray(cx.to_warps(value)) for value in values]


def mma(
    cx: LaneSet,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    layouts: tuple[str, str],
    satfinite: bool,
    op: str | None,
) -> list[Array]:
    """mma.sync."""
    if static[2] in fragments.TYPES and static[3] == static[2] and static[0] != "m8n8k4":
        return fragments.multiply(cx, static, a, b, c)
    parts = (to_warps(cx, x) for x in (a, b, c))
    made = _MMA(*static, *parts, alayout=layouts[0], blayout=layouts[1], satfinite=satfinite, op=op)
    return [cx.from_warps(d) for d in made]


def mma_sparse(
    cx: LaneSet,
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
    made = _MMA_SPARSE(
        *static,
        *parts,
        cx.to_warps(metadata),
        selector,
        ordered=ordered,
        satfinite=satfinite,
    )
    return [cx.from_warps(d) for d in made]


# --- rows in memory ------------------------------------------------------------------------


def places_of(cx: LaneSet) -> Array:
    """The flat place of each lane of (warps, 32) in the form of the running lanes."""
    numbers = np.arange(cx.shape[0] * cx.shape[1]).reshape(cx.shape)
    return cx.to_warps(numbers)


def ldmatrix(
    cx: LaneSet, gather: Gather, site: int, addr: Array, count: int, trans: bool
) -> list[Array]:
    """ldmatrix: lane 8m+r names row r of matrix m, 16 bytes each."""
    rows = count * 8
    if gather is gather_shared and _is_simple(cx, addr):
        words = _simple_rows(cx, site, addr, rows)
    else:
        words = _gather_rows(cx, gather, site, addr, rows)
    raw = words.view(np.uint8).reshape(-1, rows, _ROW)
    return [cx.from_warps(d) for d in matrix.ldmatrix(raw, count, trans)]


def _is_simple(cx: LaneSet, addr: Array) -> bool:
    """All lanes run, and every CTA uses the same offsets: the usual case."""
    if cx.chunk.launch.watch is not None:
        return False
    if cx.kind != "full" or addr.shape[0] != 1 or addr.shape[1] != cx.shape[1]:
        return False
    threads = cx.shape[1]
    return bool(threads % WARP == 0 and cx.chunk.launch.cluster_size == 1)


def _simple_rows(cx: LaneSet, site: int, addr: Array, rows: int) -> Array:
    chosen = np.ascontiguousarray(addr.reshape(-1, WARP)[:, :rows]).reshape(1, -1)
    try:
        return gather_shared(cx, site, chosen, _ROW, None)
    except AddressFault as fault:
        blame(cx, fault, addr, None)
        raise


def _gather_rows(cx: LaneSet, gather: Gather, site: int, addr: Array, rows: int) -> Array:
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
    cx: LaneSet, scatter: Scatter, site: int, addr: Array, values: Sequence[Array], trans: bool
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


def movmatrix(cx: LaneSet, value: Array) -> Array:
    """movmatrix: the transpose of a matrix held by a warp."""
    return cx.from_warps(matrix.movmatrix(np.ascontiguousarray(cx.to_warps(value))))


# --- wmma ----------------------------------------------------------------------------------


def _element_addresses(
    cx: LaneSet, addr: Array, stride: Array, which: str, shape: str, t: str, layout: str
) -> tuple[Array, int]:
    """The address of every element of a fragment, (warps, 32, elements), and its width."""
    rows, columns = wmma.positions(which, shape, t)
    if layout == "col":
        rows, columns = columns, rows
    step = cx.to_warps(stride).astype(np.int64)[:, :, None]
    places = rows.astype(np.int64) * step + columns
    width = wmma.item_bits(which, t) // 8
    size = matrix_element_bits(which, t)
    start = cx.to_warps(addr)[:, :, None]
    return start + (places * size // 8).astype(addr.dtype), width


def matrix_element_bits(which: str, t: str) -> int:
    """Bits of one element in memory."""
    sizes = {"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16}
    return sizes.get(t, {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}.get(t, 32))


def wmma_load(
    cx: LaneSet, gather: Gather, site: int, addr: Array, stride: Array, *form: str
) -> list[Array]:
    """wmma.load: a fragment from a matrix in memory."""
    which, shape, t, layout = form
    where, width = _element_addresses(cx, addr, stride, which, shape, t, layout)
    who = np.broadcast_to(places_of(cx)[:, :, None], where.shape)
    chosen = _chosen(cx, where)
    items = np.zeros(where.shape, dtype=UNSIGNED[width])
    try:
        items[chosen] = gather(cx, site, where[chosen], width, who[chosen])
    except AddressFault as fault:
        blame(cx, fault, addr, cx.active)
        raise
    return [cx.from_warps(d) for d in wmma.pack(which, t, items)]


def wmma_store(
    cx: LaneSet,
    scatter: Scatter,
    site: int,
    addr: Array,
    stride: Array,
    values: Sequence[Array],
    *form: str,
) -> None:
    """wmma.store: a fragment to a matrix in memory."""
    which, shape, t, layout = form
    where, width = _element_addresses(cx, addr, stride, which, shape, t, layout)
    who = np.broadcast_to(places_of(cx)[:, :, None], where.shape)
    items = wmma.unpack_items(which, t, to_warps(cx, values))
    chosen = _chosen(cx, where)
    try:
        scatter(cx, site, where[chosen], width, items.reshape(where.shape)[chosen], who[chosen])
    except AddressFault as fault:
        blame(cx, fault, addr, cx.active)
        raise


def _chosen(cx: LaneSet, where: Array) -> Array:
    active = cx.warp_active
    if active is None:
        return np.ones(where.shape, dtype=np.bool_)
    return np.array(np.broadcast_to(active[:, :, None], where.shape))


def wmma_mma(
    cx: LaneSet,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    layouts: tuple[str, str],
    satfinite: bool,
    op: str | None,
) -> list[Array]:
    """wmma.mma; the layouts only matter where fragments are loaded."""
    parts = (to_warps(cx, x) for x in (a, b, c))
    made = _WMMA(*static, *parts, satfinite=satfinite, op=op)
    return [cx.from_warps(d) for d in made]


# --- wgmma ---------------------------------------------------------------------------------

_GROUP = 128
_ELEMENT_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "b1": 1}


def wgmma_mma(
    cx: LaneSet,
    site: int,
    static: tuple[str, ...],
    d: Sequence[Array],
    a: Sequence[Array] | Array,
    b: Array,
    scale_d: Array | bool,
    scales: tuple[int, int],
    transposes: tuple[int, int],
    satfinite: bool,
    op: str | None,
) -> list[Array]:
    """wgmma.mma_async, done at once; the groups of four warps are complete."""
    shape, dt, at, bt = static
    _, n, k = parse_shape(shape)
    if cx.warp_count % 4 or not _is_complete(cx):
        raise Fault("TSR5023", "wgmma needs complete groups of four warps", site)
    left: Array | list[Array]
    if isinstance(a, np.ndarray):
        left = operand_tile(cx, site, a, at, 64, k, bool(transposes[0]))
    else:
        left = to_warps(cx, a)
    right = operand_tile(cx, site, b, bt, n, k, bool(transposes[1]))
    keep: Array | bool = scale_d
    if isinstance(scale_d, np.ndarray):
        is_uniform = scale_d.size == 1
        keep = bool(scale_d.item()) if is_uniform else cx.to_warps(scale_d).reshape(-1)
    made = wgmma.mma(
        shape,
        dt,
        at,
        bt,
        to_warps(cx, d),
        left,
        right,
        scale_d=keep,
        scale_a=scales[0],
        scale_b=scales[1],
        satfinite=satfinite,
        op=op or "and",
    )
    return [cx.from_warps(x.reshape(-1, WARP)) for x in made]


def _is_complete(cx: LaneSet) -> bool:
    """Whether no warp of the running lanes has only some of its lanes."""
    active = cx.warp_active
    return active is None or bool((active.any(axis=1) == active.all(axis=1)).all())


def operand_tile(
    cx: LaneSet, site: int, descriptor: Array, t: str, rows: int, k: int, mn_major: bool
) -> Array:
    """An operand in shared memory as element bits (groups, rows, k)."""
    simple = cx.kind in ("full", "product") and descriptor.shape[0] == 1
    simple = simple and cx.chunk.launch.watch is None
    if simple and cx.shape[1] % _GROUP == 0:
        by_group = np.broadcast_to(descriptor, (1, cx.shape[1])).reshape(-1, _GROUP)[:, 0]
        where = wgmma.chunk_addresses(by_group, rows, k, _ELEMENT_BITS[t], mn_major=mn_major)
        flat = where.reshape(1, -1).astype(np.uint32)
        words = gather_shared(cx, site, flat, _ROW, None)
    else:
        by_group = np.ascontiguousarray(cx.to_warps(descriptor).reshape(-1, _GROUP)[:, 0])
        if cx.warp_active is not None:
            by_group[~cx.warp_active.reshape(-1, _GROUP).all(axis=1)] = 0
        where = wgmma.chunk_addresses(by_group, rows, k, _ELEMENT_BITS[t], mn_major=mn_major)
        first = places_of(cx).reshape(-1, _GROUP)[:, 0]
        who = np.repeat(first, where.shape[1])
        words = gather_shared(cx, site, where.reshape(-1).astype(np.uint32), _ROW, who)
    chunks = np.ascontiguousarray(words).view(np.uint8).reshape(-1, where.shape[1], _ROW)
    return wgmma.elements(t, chunks, rows, k, mn_major=mn_major)
