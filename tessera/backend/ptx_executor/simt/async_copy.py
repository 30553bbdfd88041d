"""Asynchronous copies, which complete when they are issued.

PTX guarantees the effect of a copy only after a wait, and allows an earlier effect. Groups and
waits therefore need no code, and a copy that signals an mbarrier completes its bytes at once.

Source: PTX ISA 9.0, sections 9.7.9.25.3 (cp.async) and 9.7.9.25.4 (bulk copies).
"""

from __future__ import annotations

import numpy as np

from tessera.backend.ptx_executor.memory.access import load, store
from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.global_access import gather_global
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, Array
from tessera.backend.ptx_executor.memory.spaces import RANK_SHIFT, SPACES, scatter_shared
from tessera.backend.ptx_executor.simt import mbarrier
from tessera.backend.ptx_executor.simt.atomics import step_of
from tessera.ir.ptx.types import type_width


def copy_small(
    cx: LaneSet,
    site: int,
    target: Array,
    source: Array,
    size: int,
    from_size: Array | None,
    ignore: Array | None,
    guard: Array | None,
) -> None:
    """cp.async of 4, 8 or 16 bytes; bytes past `from_size` are zero and are not read."""
    if from_size is None and ignore is None:
        words = load(cx, gather_global, site, source, size, guard)
        store(cx, scatter_shared, site, target, size, [words], guard)
        return
    given = np.full((1, 1), size, dtype=np.uint32) if from_size is None else from_size
    if ignore is not None:
        given = np.where(ignore, np.uint32(0), given)
    on = cx.enabled(guard)
    checked = given if on is None else np.where(on, given, np.uint32(0))
    if int(checked.max()) > size:
        most = int(checked.max())
        raise Fault("TSR5023", f"cp.async of {size} bytes from {most} bytes", site)
    whole = given == size
    reads = whole if guard is None else whole & guard
    words = load(cx, gather_global, site, source, size, reads)
    if not whole.all():
        words = _partial(cx, site, source, size, given, words, guard)
    store(cx, scatter_shared, site, target, size, [words], guard)


def _partial(
    cx: LaneSet,
    site: int,
    source: Array,
    size: int,
    given: Array,
    words: Array,
    guard: Array | None,
) -> Array:
    """The words of lanes that copy fewer bytes than they fill; the rest is zero."""
    some = (given > 0) & (given < size)
    if guard is not None:
        some = some & guard
    whole = np.broadcast_to(given == size, cx.shape)
    filled = np.array(np.broadcast_to(words, cx.shape), order="C")
    raw = filled.reshape(-1).view(np.uint8).reshape(-1, size)
    raw[~whole.reshape(-1)] = 0
    if some.any():
        flat_given = cx.flat(given)
        for byte in range(size):
            wanted = np.broadcast_to(some, cx.shape) & (flat_given.reshape(cx.shape) > byte)
            if wanted.any():
                step = source.dtype.type(byte)
                part = load(cx, gather_global, site, source + step, 1, wanted)
                chosen = wanted.reshape(-1)
                raw[chosen, byte] = cx.flat(part)[chosen]
    return filled


def copy_bulk(
    cx: LaneSet,
    site: int,
    spaces: tuple[str, str],
    target: Array,
    source: Array,
    size: Array,
    barrier: Array | None,
    ranks: Array | None,
    reduction: tuple[str, str] | None,
    guard: Array | None,
) -> None:
    """cp.async.bulk: each lane copies `size` bytes, a multiple of 16.

    With a `reduction` (an operation and a type), it is cp.reduce.async.bulk and combines elements.
    """
    lanes = cx.each(guard, target, source, size, barrier, ranks)
    for place, (to, start, count, bar, mask) in lanes:
        if reduction is None and (count % 16 or to % 16 or start % 16):
            raise Fault(
                "TSR5003", "bulk copy whose addresses or size are no multiples of 16", site, place
            )
        data = read_bytes(cx, site, spaces[1], start, count, place)
        for there, its_bar in spread(to, bar, None if ranks is None else mask):
            if reduction is None:
                write_bytes(cx, site, spaces[0], there, data, place)
            else:
                combine(cx, site, spaces[0], *reduction, there, data, place)
            if barrier is not None:
                complete(cx, site, its_bar, count, place)


def spread(target: int, barrier: int, mask: int | None) -> list[tuple[int, int]]:
    """The targets and barriers of a copy: one pair, or the same offsets in several CTAs."""
    if mask is None:
        return [(target, barrier)]
    low = (1 << RANK_SHIFT) - 1
    bases = ((rank + 1) << RANK_SHIFT for rank in range(16) if mask >> rank & 1)
    return [(base | target & low, base | barrier & low) for base in bases]


def complete(cx: LaneSet, site: int, barrier: int, count: int, place: int) -> None:
    """Signal an mbarrier that bytes have arrived."""
    mbarrier.change(cx, site, barrier, place, 0, -count)


def combine(
    cx: LaneSet, site: int, space: str, op: str, t: str, target: int, data: Array, place: int
) -> None:
    """Apply a reduction between memory and data, element by element."""
    width = type_width(t)
    step = step_of(op, t, False)
    with mbarrier.unordered(cx):
        there = read_bytes(cx, site, space, target, len(data), place)
        old = there.view(UNSIGNED[width])
        new = step(old, data.view(UNSIGNED[width]), None)
        write_bytes(cx, site, space, target, np.ascontiguousarray(new).view(np.uint8), place)


def word_width(*values: int) -> int:
    """The widest word, in bytes, whose width divides all values."""
    return next(w for w in (16, 8, 4, 2, 1) if all(v % w == 0 for v in values))


def read_bytes(cx: LaneSet, site: int, space: str, start: int, count: int, place: int) -> Array:
    """Read a run of bytes as one lane."""
    width = word_width(start, count)
    addresses = np.arange(start, start + count, width, dtype=np.uint64)
    if count == 0:
        return np.zeros(0, dtype=np.uint8)
    who = np.full(len(addresses), place)
    words = SPACES[space][0](cx, site, _offsets(space, addresses), width, who)
    return np.ascontiguousarray(words).view(np.uint8)


def write_bytes(cx: LaneSet, site: int, space: str, start: int, data: Array, place: int) -> None:
    """Store a run of bytes as one lane."""
    width = word_width(start, len(data))
    if len(data) == 0:
        return
    addresses = np.arange(start, start + len(data), width, dtype=np.uint64)
    who = np.full(len(addresses), place)
    words = data.view(np.complex128 if width == 16 else UNSIGNED[width])
    SPACES[space][1](cx, site, _offsets(space, addresses), width, words, who)


def _offsets(space: str, addresses: Array) -> Array:
    return mbarrier.shared_offset(addresses) if space == "shared" else addresses
