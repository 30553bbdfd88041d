"""Checked gathers and scatters of words in device memory.

Lanes usually name a grid of addresses (`base + row * pitch + column * step`, where rows are
CTAs and columns threads) or one run of words. Such accesses need no gather and are logged as
ranges. An access outside every allocation, or a misaligned one, is an error that names the address.
See `spaces` for the meaning of the parameters.
"""

from __future__ import annotations

import bisect

import numpy as np

from tessera.backend.ptx_executor.memory.access_log import Direction
from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import AddressSpace, Array

SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4}


def gather_global(cx: LaneSet, site: int, addr: Array, width: int, who: Array | None) -> Array:
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
    cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
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
        index = (addr - np.uint64(space.base)).view(np.int64) >> SHIFT[width]
    launch.log.writes.add_words(index, width, owners)
    space.words[width][np.broadcast_to(index, shape)] = values


def _find_block(
    space: AddressSpace, addr: Array, width: int, *, apart: bool
) -> tuple[int, int, int] | None:
    """The first word, and the words between rows and between columns, if addresses form a grid.

    A grid is `base + row * pitch + column * step`; it needs no gather. `apart` requires rows that
    do not overlap. None means that no grid was recognised, which includes every access that has to
    be reported as an error.
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
    """Check addresses; return word indices, the first index if they form one run, and owners."""
    low = int(addr.min())
    high = int(addr.max())
    place = bisect.bisect(space.starts, low) - 1
    if place >= 0 and high + width <= space.ends[place]:
        owners: tuple[int, ...] = (space.starts[place],)
    else:
        owners = _check_all(space, site, addr, width)
    check_aligned(site, addr, width)
    if high - low == (addr.size - 1) * width and _is_run(addr, width):
        return addr, (low - space.base) // width, owners
    index = (addr - np.uint64(space.base)).view(np.int64) >> SHIFT[width]
    return index, None, owners


def _is_run(addr: Array, width: int) -> bool:
    """Whether addresses increase by one word per lane."""
    flat = addr.reshape(-1)
    if flat.size < 2:
        return True
    return bool((flat[1:] - flat[:-1] == width).all())


def _check_all(space: AddressSpace, site: int, addr: Array, width: int) -> tuple[int, ...]:
    """The slow check, for lanes in several allocations or outside all of them."""
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
    if space.other_owner(address) is not None:
        headline = f"access of {width} bytes through an address of another device: 0x{address:x}"
        return AddressFault("TSR5002", headline, site, address, *notes)
    headline = f"access of {width} bytes outside every allocation: 0x{address:x}"
    return AddressFault("TSR5002", headline, site, address, *notes)


def _check_writable(space: AddressSpace, site: int, owners: tuple[int, ...]) -> None:
    for owner in owners:
        allocation = space.find(owner)
        if allocation is not None and allocation.read_only:
            raise AddressFault(
                "TSR5017", f"write to constant memory `{allocation.name}`", site, owner
            )


def check_aligned(site: int, addr: Array, width: int) -> None:
    """Refuse a word whose address is not a multiple of its width."""
    if int(np.bitwise_or.reduce(addr, axis=None)) & (width - 1):
        bad = int(addr[(addr & addr.dtype.type(width - 1)) != 0].reshape(-1)[0])
        raise AddressFault("TSR5003", f"misaligned access of {width} bytes at 0x{bad:x}", site, bad)
