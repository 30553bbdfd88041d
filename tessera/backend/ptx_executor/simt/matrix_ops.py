"""Matrix instructions on running lanes: registers to warps, rows to and from memory.

The arithmetic and the layouts of fragments are in `numerics.matrix`. This file reshapes registers
to (warps, 32), gathers operands from memory, and distributes results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tessera.backend.ptx_executor.memory.access import blaming
from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import WORDS, Array
from tessera.backend.ptx_executor.memory.spaces import Gather, Scatter, gather_shared
from tessera.backend.ptx_executor.numerics import matrix
from tessera.backend.ptx_executor.numerics.matrix import wgmma, wmma
from tessera.backend.ptx_executor.numerics.matrix.elements import element_bits
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape
from tessera.backend.ptx_executor.simt import fragments
from tessera.ir.ptx.types import type_bits

PRODUCTS: dict[str, Callable[..., Sequence[Array]]] = {
    "mma": matrix.mma,
    "mma.sp": matrix.mma_sp,
    "wmma": wmma.mma,
}
"""The arithmetic of each instruction on fragments."""

_ROW = 16
_GROUP = 128


def to_warps(cx: LaneSet, values: Sequence[Array]) -> list[Array]:
    """Registers as (warps, 32)."""
    return [np.ascontiguousarray(cx.to_warps(value)) for value in values]


def multiply(
    cx: LaneSet,
    name: str,
    static: tuple[str, ...],
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    metadata: Array | None = None,
    **settings: object,
) -> list[Array]:
    """The registers of D = A * B + C; `metadata` is a register that only `mma.sp` has."""
    is_plain = name == "mma" and static[2] in fragments.TYPES and static[3] == static[2]
    if is_plain and static[0] != "m8n8k4":
        return fragments.multiply(cx, static, a, b, c)
    operands: list[object] = [to_warps(cx, part) for part in (a, b, c)]
    if metadata is not None:
        operands.append(cx.to_warps(metadata))
    return [cx.from_warps(d) for d in PRODUCTS[name](*static, *operands, **settings)]


# --- rows and elements in memory -----------------------------------------------------------


def places_of(cx: LaneSet) -> Array:
    """The flat index, among the running lanes, of each lane of (warps, 32)."""
    numbers = np.arange(cx.shape[0] * cx.shape[1]).reshape(cx.shape)
    return cx.to_warps(numbers)


def _lanes_for(cx: LaneSet, where: Array) -> tuple[Array, Array]:
    """Flags of the active addresses [warp, lane, ...], and the flat indices of their lanes."""
    count, rest = where.shape[1], (1,) * (where.ndim - 2)
    who = places_of(cx)[:, :count].reshape(-1, count, *rest)
    active = cx.warp_active
    if active is None:
        chosen = np.ones(where.shape, dtype=np.bool_)
    else:
        chosen = np.array(np.broadcast_to(active[:, :count].reshape(who.shape), where.shape))
    return chosen, np.broadcast_to(who, where.shape)[chosen]


def _gather(cx: LaneSet, gather: Gather, site: int, addr: Array, where: Array, width: int) -> Array:
    """Words at addresses [warp, lane, ...] that are derived from the lanes' `addr`."""
    chosen, who = _lanes_for(cx, where)
    words = np.zeros(where.shape, dtype=WORDS[width])
    with blaming(cx, addr, cx.active):
        words[chosen] = gather(cx, site, where[chosen], width, who)
    return words


def _scatter(
    cx: LaneSet, scatter: Scatter, site: int, addr: Array, where: Array, width: int, words: Array
) -> None:
    chosen, who = _lanes_for(cx, where)
    with blaming(cx, addr, cx.active):
        scatter(cx, site, where[chosen], width, words[chosen], who)


def ldmatrix(
    cx: LaneSet, gather: Gather, site: int, addr: Array, count: int, trans: bool
) -> list[Array]:
    """ldmatrix: lane 8m+r names row r of matrix m, 16 bytes each."""
    rows = count * 8
    if gather is gather_shared and _is_simple(cx, addr):
        chosen = np.ascontiguousarray(addr.reshape(-1, WARP)[:, :rows]).reshape(1, -1)
        with blaming(cx, addr, None):
            words = gather_shared(cx, site, chosen, _ROW, None)
    else:
        words = _gather(cx, gather, site, addr, cx.to_warps(addr)[:, :rows], _ROW)
    raw = words.view(np.uint8).reshape(-1, rows, _ROW)
    return [cx.from_warps(d) for d in matrix.ldmatrix(raw, count, trans)]


def _is_simple(cx: LaneSet, addr: Array) -> bool:
    """Whether all lanes run and every CTA uses the same offsets, which is the usual case."""
    if cx.chunk.launch.watch is not None:
        return False
    if cx.kind != "full" or addr.shape[0] != 1 or addr.shape[1] != cx.shape[1]:
        return False
    threads = cx.shape[1]
    return bool(threads % WARP == 0 and cx.chunk.launch.cluster_size == 1)


def stmatrix(
    cx: LaneSet, scatter: Scatter, site: int, addr: Array, values: Sequence[Array], trans: bool
) -> None:
    """stmatrix: the inverse of ldmatrix."""
    rows = 8 * len(values)
    raw = matrix.stmatrix(to_warps(cx, values), trans)
    words = np.ascontiguousarray(raw).view(np.complex128).reshape(-1, rows)
    _scatter(cx, scatter, site, addr, cx.to_warps(addr)[:, :rows], _ROW, words)


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
    start = cx.to_warps(addr)[:, :, None]
    where = start + (places * type_bits(t) // 8).astype(addr.dtype)
    return where, wmma.item_bits(which, t) // 8


def wmma_load(
    cx: LaneSet, gather: Gather, site: int, addr: Array, stride: Array, *form: str
) -> list[Array]:
    """wmma.load: a fragment from a matrix in memory."""
    which, _, t, _ = form
    where, width = _element_addresses(cx, addr, stride, *form)
    items = _gather(cx, gather, site, addr, where, width)
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
    which, _, t, _ = form
    where, width = _element_addresses(cx, addr, stride, *form)
    items = wmma.unpack_items(which, t, to_warps(cx, values)).reshape(where.shape)
    _scatter(cx, scatter, site, addr, where, width, items)


# --- wgmma ---------------------------------------------------------------------------------


def wgmma_mma(
    cx: LaneSet,
    site: int,
    static: tuple[str, ...],
    d: Sequence[Array],
    a: Sequence[Array] | Array,
    b: Array,
    scale_d: Array | bool,
    transposes: tuple[int, int],
    **settings: object,
) -> list[Array]:
    """wgmma.mma_async, executed at once; the groups of four warps are complete."""
    shape, _, at, bt = static
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
    product: Callable[..., Sequence[Array]] = wgmma.mma
    made = product(*static, to_warps(cx, d), left, right, scale_d=keep, **settings)
    return [cx.from_warps(x.reshape(-1, WARP)) for x in made]


def _is_complete(cx: LaneSet) -> bool:
    """Whether every warp of the running lanes has all its lanes."""
    active = cx.warp_active
    return active is None or bool((active.any(axis=1) == active.all(axis=1)).all())


def operand_tile(
    cx: LaneSet, site: int, descriptor: Array, t: str, rows: int, k: int, mn_major: bool
) -> Array:
    """An operand in shared memory as element bits (groups, rows, k)."""
    simple = cx.kind in ("full", "product") and descriptor.shape[0] == 1
    simple = simple and cx.chunk.launch.watch is None and cx.shape[1] % _GROUP == 0
    if simple:
        by_group = np.broadcast_to(descriptor, (1, cx.shape[1])).reshape(-1, _GROUP)[:, 0]
    else:
        by_group = np.ascontiguousarray(cx.to_warps(descriptor).reshape(-1, _GROUP)[:, 0])
        if cx.warp_active is not None:
            by_group[~cx.warp_active.reshape(-1, _GROUP).all(axis=1)] = 0
    where = wgmma.chunk_addresses(by_group, rows, k, element_bits(t), mn_major=mn_major)
    addresses = where.reshape(-1).astype(np.uint32)
    if simple:
        words = gather_shared(cx, site, addresses[None], _ROW, None)
    else:
        who = np.repeat(places_of(cx).reshape(-1, _GROUP)[:, 0], where.shape[1])
        words = gather_shared(cx, site, addresses, _ROW, who)
    chunks = np.ascontiguousarray(words).view(np.uint8).reshape(-1, where.shape[1], _ROW)
    return wgmma.elements(t, chunks, rows, k, mn_major=mn_major)
