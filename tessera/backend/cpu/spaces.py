"""Checked gathers and scatters of words in each state space.

Every function takes the running lanes, the number of the instruction (`site`), addresses and
the width of a word (1 to 16 bytes), and, for `scatter`, the words. `who` is None when the
addresses are in the form of the lanes (uniform axes allowed), else the flat places of the
lanes that take part, and the addresses are a list. Each lane of a scatter stores in lane
order: where two lanes name one address, the later lane wins.

Generic addresses fall into windows below the first device's base: shared memory (with the
rank of another CTA of the cluster, plus one, from bit 24 on), local memory, parameters.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import bisect
from collections.abc import Callable

import numpy as np

from tessera.backend.cpu.access_log import Direction
from tessera.backend.cpu.faults import AddressFault
from tessera.backend.cpu.lanes import Lanes
from tessera.backend.cpu.memory import WORDS, AddressSpace, Array

WINDOW = 1 << 36
SHARED_BASE = 1 * WINDOW
LOCAL_BASE = 2 * WINDOW
PARAM_BASE = 3 * WINDOW
WINDOWS_END = 4 * WINDOW
RANK_SHIFT = 24

Gather = Callable[[Lanes, int, Array, int, "Array | None"], Array]
Scatter = Callable[[Lanes, int, Array, int, Array, "Array | None"], None]

_SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


# --- global --------------------------------------------------------------------------------


def gather_global(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of device memory."""
    launch = cx.chunk.launch
    space: AddressSpace = launch.space
    block = _find_block(space, addr, width, apart=False)
    if block is not None:
        if launch.watch is not None:
            launch.watch.read_global(cx, site, addr, width, who)
        _log_block(launch.log.reads, block, addr.shape, width)
        return _block_view(space.words[width], block, addr.shape).copy()
    index, run, owners = _resolve(space, site, addr, width)
    if launch.watch is not None:
        launch.watch.read_global(cx, site, addr, width, who)
    if run is not None:
        launch.log.reads.add_range(run * width, (run + addr.size) * width)
        return space.words[width][run : run + addr.size].reshape(addr.shape).copy()
    launch.log.reads.add_words(index, width, owners)
    return space.words[width].take(index, mode="wrap")


def scatter_global(
    cx: Lanes, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words to device memory."""
    launch = cx.chunk.launch
    space: AddressSpace = launch.space
    shape = np.broadcast_shapes(addr.shape, values.shape)
    block = _find_block(space, addr, width, apart=True) if shape == addr.shape else None
    if block is not None and not launch.has_read_only:
        if launch.watch is not None:
            launch.watch.write_global(cx, site, addr, width, values, who)
        _log_block(launch.log.writes, block, shape, width)
        _block_view(space.words[width], block, shape)[...] = values
        return
    index, run, owners = _resolve(space, site, addr, width)
    if launch.has_read_only:
        _check_writable(space, site, owners)
    if launch.watch is not None:
        launch.watch.write_global(cx, site, addr, width, values, who)
    if run is not None and shape == addr.shape:
        launch.log.writes.add_range(run * width, (run + addr.size) * width)
        space.words[width][run : run + addr.size].reshape(addr.shape)[...] = values
        return
    if run is not None:
        index = (addr - np.uint64(space.base)).view(np.int64) >> _SHIFT[width]
    launch.log.writes.add_words(index, width, owners)
    space.words[width][np.broadcast_to(index, shape)] = values


def _find_block(
    space: AddressSpace, addr: Array, width: int, *, apart: bool
) -> tuple[int, int, int] | None:
    """First word, words between rows and between columns, if addresses are such a grid.

    That is what `base + row * pitch + column * step` gives; it needs no gather. `apart` asks
    for rows that do not overlap. None means "not seen to be so", also for anything that has to
    be reported.
    """
    if addr.ndim != 2 or addr.shape[0] < 2 or addr.shape[1] < 2:
        return None
    height, length = addr.shape
    first = int(addr[0, 0])
    step = int(addr[0, 1]) - first
    pitch = int(addr[1, 0]) - first
    span = (length - 1) * step + width
    if step < width or pitch < (span if apart else 0) or (step | pitch | first) % width:
        return None
    end = first + (height - 1) * pitch + span
    if int(addr[-1, -1]) != end - width:
        return None
    place = bisect.bisect(space.starts, first) - 1
    if place < 0 or end > space.ends[place]:
        return None
    starts = addr[:, :1]
    columns = addr[:1] - starts[0]
    if not (starts[1:] - starts[:-1] == pitch).all():
        return None
    if not (columns[0, 1:] - columns[0, :-1] == step).all():
        return None
    if not (addr - starts == columns).all():
        return None
    return (first - space.base) // width, pitch // width, step // width


def _block_view(words: Array, block: tuple[int, int, int], shape: tuple[int, ...]) -> Array:
    """The words of a grid, in place."""
    start, pitch, step = block
    height, length = shape
    span = (length - 1) * step + 1
    if pitch >= span and start + height * pitch <= len(words):
        return words[start : start + height * pitch].reshape(height, pitch)[:, :span:step]
    size = words.itemsize
    return np.lib.stride_tricks.as_strided(words[start:], shape, (pitch * size, step * size))


def _log_block(
    direction: Direction, block: tuple[int, int, int], shape: tuple[int, ...], width: int
) -> None:
    start, pitch, step = block
    height, length = shape
    if step == 1 and pitch == length:
        direction.add_range(start * width, (start + height * length) * width)
    elif step == 1:
        direction.add_rows(start * width, pitch * width, height, length * width)
    else:
        direction.touch(start * width, width)
        _block_view(direction.map_for(width), block, shape)[...] = True


def _resolve(
    space: AddressSpace, site: int, addr: Array, width: int
) -> tuple[Array, int | None, tuple[int, ...]]:
    """Check addresses; give word indices, the first index if they are one run, and owners."""
    low = int(addr.min())
    high = int(addr.max())
    place = bisect.bisect(space.starts, low) - 1
    if place >= 0 and high + width <= space.ends[place]:
        owners: tuple[int, ...] = (space.starts[place],)
    else:
        owners = _check_all(space, site, addr, width)
    if width > 1:
        check_aligned(site, addr, width)
    if high - low == (addr.size - 1) * width and _is_run(addr, width):
        return addr, (low - space.base) // width, owners
    index = (addr - np.uint64(space.base)).view(np.int64) >> _SHIFT[width]
    return index, None, owners


def _is_run(addr: Array, width: int) -> bool:
    """Whether addresses go up by one word in lane order."""
    flat = addr.reshape(-1)
    if flat.size < 2:
        return True
    return bool((flat[1:] - flat[:-1] == width).all())


def check_aligned(site: int, addr: Array, width: int) -> None:
    """A word must lie at a multiple of its width."""
    if int(np.bitwise_or.reduce(addr, axis=None)) & (width - 1):
        bad = int(addr[(addr & addr.dtype.type(width - 1)) != 0].reshape(-1)[0])
        raise AddressFault("TSR5003", f"misaligned access of {width} bytes at 0x{bad:x}", site, bad)


def _check_all(space: AddressSpace, site: int, addr: Array, width: int) -> tuple[int, ...]:
    """The slow check: lanes may fall into several allocations, or outside all."""
    starts, ends = space.bounds()
    flat = addr.reshape(-1)
    if len(starts) == 0:
        raise _outside(space, site, int(flat[0]), width)
    place = np.searchsorted(starts, flat, side="right").astype(np.int64) - 1
    last = flat + np.uint64(width)
    good = (place >= 0) & (last <= ends[place]) & (last > flat)
    if not good.all():
        raise _outside(space, site, int(flat[np.flatnonzero(~good)[0]]), width)
    return tuple(int(starts[p]) for p in np.unique(place))


def _outside(space: AddressSpace, site: int, address: int, width: int) -> AddressFault:
    notes = space.describe(address)
    if "address space of device" in notes[0]:
        headline = f"access of {width} bytes through an address of another device: 0x{address:x}"
        return AddressFault("TSR5004", headline, site, address, *notes)
    headline = f"access of {width} bytes outside every allocation: 0x{address:x}"
    return AddressFault("TSR5002", headline, site, address, *notes)


def _check_writable(space: AddressSpace, site: int, owners: tuple[int, ...]) -> None:
    for owner in owners:
        allocation = space.find(owner)
        if allocation is not None and allocation.read_only:
            raise AddressFault(
                "TSR5017", f"write to constant memory `{allocation.name}`", site, owner
            )


# --- shared --------------------------------------------------------------------------------


def gather_shared(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of shared memory; a cluster address reaches the other CTAs of the cluster."""
    memory = cx.chunk.shared
    local, far = _check_shared(cx, site, addr, width)
    if cx.chunk.launch.watch is not None:
        cx.chunk.launch.watch.read_shared(cx, site, addr, width, who)
    index = local.astype(np.int64) >> _SHIFT[width]
    if who is None and not far and cx.kind == "full" and addr.shape[0] == 1:
        rows = memory.words[width].reshape(memory.rows, -1)
        return rows.take(index[0], axis=1, mode="wrap")
    index = index + _shared_rows(cx, addr, far, who) * (memory.row_bytes // width)
    return memory.words[width].take(index, mode="wrap")


def scatter_shared(
    cx: Lanes, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words to shared memory."""
    memory = cx.chunk.shared
    local, far = _check_shared(cx, site, addr, width)
    if cx.chunk.launch.watch is not None:
        cx.chunk.launch.watch.write_shared(cx, site, addr, width, values, who)
    index = local.astype(np.int64) >> _SHIFT[width]
    if who is None and not far and cx.kind == "full" and addr.shape[0] == 1:
        rows = memory.words[width].reshape(memory.rows, -1)
        rows[:, index[0]] = values
        return
    index = index + _shared_rows(cx, addr, far, who) * (memory.row_bytes // width)
    if who is None:
        index = np.broadcast_to(index, np.broadcast_shapes(index.shape, values.shape))
    memory.words[width][index] = values


def _check_shared(cx: Lanes, site: int, addr: Array, width: int) -> tuple[Array, bool]:
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
        raise AddressFault(
            "TSR5005",
            f"access of {width} bytes outside shared memory: offset 0x{address:x}",
            site,
            address,
            f"the CTA has {launch.shared_bytes} bytes of shared memory",
        )
    if far and int(addr.max()) >> RANK_SHIFT > launch.cluster_size:
        raise AddressFault("TSR5005", f"no such CTA in the cluster: address 0x{high:x}", site, high)
    if width > 1:
        check_aligned(site, addr, width)
    return offset, far


def _shared_rows(cx: Lanes, addr: Array, far: bool, who: Array | None) -> Array:
    """The row of each lane's address."""
    own = cx.row
    if who is not None:
        own = np.broadcast_to(own, cx.shape).reshape(-1)[who]
    if not far:
        return own
    size = cx.chunk.launch.cluster_size
    rank = (addr >> addr.dtype.type(RANK_SHIFT)).astype(np.int64)
    return np.where(rank == 0, own, own // size * size + rank - 1)


# --- local and parameters ------------------------------------------------------------------


def gather_local(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of the lanes' own memory."""
    return cx.chunk.local.words[width].take(_local_index(cx, site, addr, width, who), mode="wrap")


def scatter_local(
    cx: Lanes, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Store words to the lanes' own memory."""
    cx.chunk.local.words[width][_local_index(cx, site, addr, width, who)] = values


def _local_index(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    memory = cx.chunk.local
    high = int(addr.max())
    if high + width > memory.row_bytes:
        raise AddressFault(
            "TSR5005",
            f"access of {width} bytes outside local memory: offset 0x{high:x}",
            site,
            high,
            f"the thread has {memory.row_bytes} bytes of local memory",
        )
    if width > 1:
        check_aligned(site, addr, width)
    lane = cx.index if who is None else cx.index.reshape(-1)[who]
    index = addr.astype(np.int64) >> _SHIFT[width]
    return index + lane * (memory.row_bytes // width)


def gather_param(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words of the kernel's parameters."""
    block: Array = cx.chunk.launch.parameter_bytes
    high = int(addr.max())
    if high + width > cx.chunk.launch.parameter_size:
        raise AddressFault(
            "TSR5005", f"access outside the kernel's parameters: offset {high}", site, high
        )
    if width > 1:
        check_aligned(site, addr, width)
    return block.view(WORDS[width]).take(addr.astype(np.int64) >> _SHIFT[width])


def scatter_param(
    cx: Lanes, site: int, addr: Array, width: int, values: Array, who: Array | None
) -> None:
    """Kernel parameters cannot be written."""
    raise AddressFault("TSR5017", "write to a kernel parameter", site, int(addr.min()))


# --- generic -------------------------------------------------------------------------------

_WINDOWS: tuple[tuple[int, Gather, Scatter], ...] = (
    (SHARED_BASE, gather_shared, scatter_shared),
    (LOCAL_BASE, gather_local, scatter_local),
    (PARAM_BASE, gather_param, scatter_param),
)


def gather_generic(cx: Lanes, site: int, addr: Array, width: int, who: Array | None) -> Array:
    """Words at generic addresses; lanes may mean different spaces."""
    low, high = int(addr.min()), int(addr.max())
    if low >= WINDOWS_END:
        return gather_global(cx, site, addr, width, who)
    for base, gather, _ in _WINDOWS:
        if base <= low and high < base + WINDOW:
            return gather(cx, site, addr - np.uint64(base), width, who)
    flat = np.broadcast_to(addr, cx.shape).reshape(-1) if who is None else addr
    values = np.zeros(flat.shape, dtype=WORDS[width])
    for base, gather, _, chosen in _split_windows(flat):
        places = chosen if who is None else who[chosen]
        values[chosen] = gather(cx, site, flat[chosen] - np.uint64(base), width, places)
    return values.reshape(cx.shape if who is None else addr.shape)


def scatter_generic(
    cx: Lanes, site: int, addr: Array, width: int, values: Array, who: Array | None
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
    """The lanes of each window, then those of device memory (or of nothing: it will fault)."""
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
gather_const = gather_global
scatter_const = scatter_global

SPACES: dict[str, tuple[Gather, Scatter]] = {
    "global": (gather_global, scatter_global),
    "const": (gather_global, scatter_global),
    "shared": (gather_shared, scatter_shared),
    "local": (gather_local, scatter_local),
    "param": (gather_param, scatter_param),
    "generic": (gather_generic, scatter_generic),
}
