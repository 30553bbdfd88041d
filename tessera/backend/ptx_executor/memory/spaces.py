"""Checked gathers and scatters of words in each state space.

Every function takes the running lanes, the number of the instruction (`site`), addresses and
the width of a word (1 to 16 bytes), and, for `scatter`, the words. `who` is None when the
addresses have the shape of the lanes (uniform axes allowed). Otherwise it holds the flat indices
of the participating lanes, and the addresses are a list. The lanes of a scatter store in lane
order: if two lanes name the same address, the later lane wins.

Generic addresses fall into windows below the first device's base: shared memory (with the
rank of another CTA of the cluster, plus one, from bit 24 on), local memory, parameters.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.global_access import (
    SHIFT,
    check_aligned,
    gather_global,
    scatter_global,
)
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, WORDS, Array

WINDOW = 1 << 36
SHARED_BASE = 1 * WINDOW
LOCAL_BASE = 2 * WINDOW
PARAM_BASE = 3 * WINDOW
WINDOWS_END = 4 * WINDOW
WINDOW_BASES = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}
RANK_SHIFT = 24

Gather = Callable[[LaneSet, int, Array, int, "Array | None"], Array]
Scatter = Callable[[LaneSet, int, Array, int, Array, "Array | None"], None]

# --- shared --------------------------------------------------------------------------------


def gather_shared(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of shared memory; a cluster address reaches the other CTAs of the cluster."""
    memory = cx.chunk.shared
    local, far = _check_shared(cx, site, addr, width)
    if cx.chunk.launch.watch is not None:
        cx.chunk.launch.watch.read_shared(cx, site, addr, width, who)
    index = local.astype(np.int64) >> SHIFT[width]
    if who is None and not far and cx.kind == "full" and addr.shape[0] == 1:
        rows = memory.words[width].reshape(memory.rows, -1)
        result: Array = rows.take(index[0], axis=1, mode="wrap")
        return result
    index = index + _shared_rows(cx, addr, far, who) * (memory.row_bytes // width)
    result = memory.words[width].take(index, mode="wrap")
    return result


def scatter_shared(
    cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words to shared memory."""
    memory = cx.chunk.shared
    local, far = _check_shared(cx, site, addr, width)
    if cx.chunk.launch.watch is not None:
        cx.chunk.launch.watch.write_shared(cx, site, addr, width, values, who)
    index = local.astype(np.int64) >> SHIFT[width]
    one_each = addr.shape[0] == 1 and addr.shape[-1] >= values.shape[-1]
    if who is None and not far and cx.kind == "full" and one_each:
        rows = memory.words[width].reshape(memory.rows, -1)
        rows[:, index[0]] = values
        return
    index = index + _shared_rows(cx, addr, far, who) * (memory.row_bytes // width)
    if who is None:
        index = np.broadcast_to(index, np.broadcast_shapes(index.shape, values.shape))
    memory.words[width][index] = values


def _check_shared(cx: LaneSet, site: int, addr: Array, width: int) -> tuple[Array, bool]:
    """Offsets inside a CTA's shared memory, and whether some lie in another CTA."""
    launch = cx.chunk.launch
    high = int(addr.max())
    far = high >> RANK_SHIFT != 0
    offset = addr & addr.dtype.type((1 << RANK_SHIFT) - 1) if far else addr
    top = int(offset.max()) if far else high
    if top + width > launch.shared_bytes:
        flat = offset.reshape(-1)
        bad = np.flatnonzero(flat.astype(np.int64) + width > launch.shared_bytes)[0]
        address = int(addr.reshape(-1)[bad])
        fault = AddressFault(
            "TSR5002",
            f"access of {width} bytes outside shared memory: offset 0x{address:x}",
            site,
            address,
            f"the CTA has {launch.shared_bytes} bytes of shared memory",
        )
        if launch.program.shared_dynamic and launch.dynamic_shared == 0:
            fault.hint = "the kernel has dynamic shared memory: pass its size with the launch"
        raise fault
    if far and int(addr.max()) >> RANK_SHIFT > launch.cluster_size:
        raise AddressFault("TSR5002", f"no such CTA in the cluster: address 0x{high:x}", site, high)
    check_aligned(site, addr, width)
    return offset, far


def _shared_rows(cx: LaneSet, addr: Array, far: bool, who: Array | None) -> Array:
    """The row of each lane's address."""
    own = cx.row
    if who is not None:
        own = cx.flat(own)[who]
    if not far:
        return own
    size = cx.chunk.launch.cluster_size
    rank = (addr >> addr.dtype.type(RANK_SHIFT)).astype(np.int64)
    return np.where(rank == 0, own, own // size * size + rank - 1)


# --- local and parameters ------------------------------------------------------------------


def gather_local(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of the lanes' own memory."""
    result: Array = cx.chunk.local.words[width].take(
        _local_index(cx, site, addr, width, who), mode="wrap"
    )
    return result


def scatter_local(
    cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words to the lanes' own memory."""
    cx.chunk.local.words[width][_local_index(cx, site, addr, width, who)] = values


def _local_index(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
    memory = cx.chunk.local
    high = int(addr.max())
    if high + width > memory.row_bytes:
        raise AddressFault(
            "TSR5002",
            f"access of {width} bytes outside local memory: offset 0x{high:x}",
            site,
            high,
            f"the thread has {memory.row_bytes} bytes of local memory",
        )
    check_aligned(site, addr, width)
    lane = cx.index if who is None else cx.index.reshape(-1)[who]
    index = addr.astype(np.int64) >> SHIFT[width]
    result: Array = index + lane * (memory.row_bytes // width)
    return result


def gather_param(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of the kernel's parameters."""
    block: Array = cx.chunk.launch.parameter_bytes
    high = int(addr.max())
    if high + width > cx.chunk.launch.program.parameter_size:
        raise AddressFault(
            "TSR5002", f"access outside the kernel's parameters: offset {high}", site, high
        )
    check_aligned(site, addr, width)
    result: Array = block.view(WORDS[width]).take(addr.astype(np.int64) >> SHIFT[width])
    return result


def scatter_param(
    cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Refuse the store: kernel parameters cannot be written."""
    raise AddressFault("TSR5017", "write to a kernel parameter", site, int(addr.min()))


# --- generic -------------------------------------------------------------------------------

_WINDOWS: tuple[tuple[int, Gather, Scatter], ...] = (
    (SHARED_BASE, gather_shared, scatter_shared),
    (LOCAL_BASE, gather_local, scatter_local),
    (PARAM_BASE, gather_param, scatter_param),
)


def gather_generic(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words at generic addresses; lanes may address different spaces."""
    low, high = int(addr.min()), int(addr.max())
    if low >= WINDOWS_END:
        return gather_global(cx, site, addr, width, who)
    for base, gather, _ in _WINDOWS:
        if base <= low and high < base + WINDOW:
            return gather(cx, site, addr - np.uint64(base), width, who)
    flat = cx.flat(addr) if who is None else addr
    values = np.zeros(flat.shape, dtype=WORDS[width])
    for base, gather, _, chosen in _split_windows(flat):
        places = chosen if who is None else who[chosen]
        values[chosen] = gather(cx, site, flat[chosen] - np.uint64(base), width, places)
    return values.reshape(cx.shape if who is None else addr.shape)


def scatter_generic(
    cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words at generic addresses."""
    low, high = int(addr.min()), int(addr.max())
    if low >= WINDOWS_END:
        scatter_global(cx, site, addr, width, values, who)
        return
    for base, _, scatter in _WINDOWS:
        if base <= low and high < base + WINDOW:
            scatter(cx, site, addr - np.uint64(base), width, values, who)
            return
    shape = cx.shape if who is None else addr.shape
    flat = np.broadcast_to(addr, shape).reshape(-1)
    words = np.broadcast_to(values, shape).reshape(-1)
    for base, _, scatter, chosen in _split_windows(flat):
        places = chosen if who is None else who[chosen]
        scatter(cx, site, flat[chosen] - np.uint64(base), width, words[chosen], places)


def _split_windows(flat: Array) -> list[tuple[int, Gather, Scatter, Array]]:
    """The lanes of each window, then the rest: device memory, or addresses that will fault."""
    parts: list[tuple[int, Gather, Scatter, Array]] = []
    rest = np.ones(flat.shape, dtype=np.bool_)
    for base, gather, scatter in _WINDOWS:
        inside = (flat >= np.uint64(base)) & (flat < np.uint64(base + WINDOW))
        rest &= ~inside
        if inside.any():
            parts.append((base, gather, scatter, np.flatnonzero(inside)))
    if rest.any():
        parts.append((0, gather_global, scatter_global, np.flatnonzero(rest)))
    return parts


# Constant variables are read-only allocations of device memory.
SPACES: dict[str, tuple[Gather, Scatter]] = {
    "global": (gather_global, scatter_global),
    "const": (gather_global, scatter_global),
    "shared": (gather_shared, scatter_shared),
    "local": (gather_local, scatter_local),
    "param": (gather_param, scatter_param),
    "generic": (gather_generic, scatter_generic),
}


# --- address arithmetic --------------------------------------------------------------------


def is_in_space(cx: LaneSet, space: str, address: Array, own: bool) -> Array:
    """isspacep: whether generic addresses fall into the window of a space."""
    if space == "const":
        starts = [a for a in cx.chunk.launch.space.table if a.read_only]
        inside = np.zeros(address.shape, dtype=np.bool_)
        for a in starts:
            inside |= (address >= np.uint64(a.address)) & (address < np.uint64(a.address + a.size))
        return inside
    if space == "global":
        return address >= np.uint64(WINDOWS_END)
    base = WINDOW_BASES[space]
    size = 1 << RANK_SHIFT if space == "shared" and own else WINDOW
    return (address >= np.uint64(base)) & (address < np.uint64(base + size))


def map_to_rank(address: Array, rank: Array, width: int, generic: bool) -> Array:
    """mapa: the address of the same shared variable in the CTA of that rank."""
    kind = UNSIGNED[width]
    base = kind(SHARED_BASE) if generic else kind(0)
    offset = (address - base) & kind((1 << RANK_SHIFT) - 1)
    result: Array = base + ((rank.astype(kind) + kind(1)) << kind(RANK_SHIFT)) + offset
    return result


def rank_of(cx: LaneSet, address: Array, generic: bool) -> Array:
    """getctarank: the rank of the CTA whose shared memory an address is in."""
    if generic:
        address = address - np.uint64(SHARED_BASE)
    code = (address >> address.dtype.type(RANK_SHIFT)).astype(np.uint32)
    own = cx.take(cx.chunk.special("%cluster_ctarank"))
    return np.where(code == 0, own, code - np.uint32(1)).astype(np.uint32)
