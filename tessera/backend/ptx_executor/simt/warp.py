"""Collective operations of a warp: shuffles, votes, matches, reductions.

Values have the shape of the running lanes and are viewed as (warps, 32). Only running lanes take
part. The scheduler ensures that the lanes of a member mask are running or have exited.

Source: PTX ISA 9.0, sections 9.7.9 (shfl.sync), 9.7.13 (vote, match, activemask, redux, elect).
"""

from __future__ import annotations

import functools

import numpy as np

from tessera.backend.ptx_executor.memory.lanes import COMBINE, WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import Array

_LANE = np.arange(WARP, dtype=np.int64)
_BIT = np.uint32(1) << np.arange(WARP, dtype=np.uint32)


def shfl(cx: LaneSet, mode: str, value: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """shfl.sync: the value of another lane, and whether that lane was in range."""
    wide = cx.to_warps(value)
    if b.size == 1 and c.size == 1:
        source, good = _fixed_sources(mode, int(b.item()) & 31, int(c.item()) & 0x1F1F)
        moved = wide.take(source, axis=1)
        if good is _ALL_GOOD:
            return cx.from_warps(moved), _TRUE
        flags = np.ascontiguousarray(np.broadcast_to(good, moved.shape))
        return cx.from_warps(moved), cx.from_warps(flags)
    sources, goods = _sources(mode, cx.to_warps(b), cx.to_warps(c))
    moved = np.take_along_axis(wide, sources, axis=1)
    return cx.from_warps(moved), cx.from_warps(goods)


_ALL_GOOD = np.ones(WARP, dtype=np.bool_)
_TRUE = np.ones((1, 1), dtype=np.bool_)


@functools.lru_cache(maxsize=4096)
def _fixed_sources(mode: str, b: int, c: int) -> tuple[Array, Array]:
    sources, good = _sources(
        mode, np.full((1, 1), b, dtype=np.uint32), np.full((1, 1), c, dtype=np.uint32)
    )
    return sources[0], _ALL_GOOD if good.all() else good[0]


def _sources(mode: str, b: Array, c: Array) -> tuple[Array, Array]:
    """The source lane of each lane, and whether it is inside the segment."""
    distance = (b & np.uint32(31)).astype(np.int64)
    clamp = (c & np.uint32(31)).astype(np.int64)
    segment = ((c >> np.uint32(8)) & np.uint32(31)).astype(np.int64)
    lowest = _LANE & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        source = _LANE - distance
        good = source >= highest
    else:
        if mode == "down":
            source = _LANE + distance
        elif mode == "bfly":
            source = _LANE ^ distance
        else:
            source = lowest | (distance & ~segment)
        good = source <= highest
    return np.where(good, source, _LANE), good


def ballot_of(flags: Array) -> Array:
    """Flags (warps, 32) as one 32-bit mask per warp, shape (warps, 1)."""
    return np.packbits(flags, axis=1, bitorder="little").view(np.uint32)


def running(cx: LaneSet) -> Array:
    """The mask of running lanes of each warp, shape (warps, 1)."""
    active = cx.warp_active
    if active is None:
        return np.full((cx.warp_count, 1), 0xFFFFFFFF, dtype=np.uint32)
    return ballot_of(active)


def activemask(cx: LaneSet) -> Array:
    """activemask: the mask of the lanes of the warp that run together."""
    if cx.warp_active is None:
        return np.full((1, 1), 0xFFFFFFFF, dtype=np.uint32)
    return cx.from_warps(np.broadcast_to(running(cx), (cx.warp_count, WARP)))


def vote(cx: LaneSet, mode: str, predicate: Array, mask: Array) -> Array:
    """vote.sync: all, any, uni (bool) or ballot (mask) over the named lanes."""
    if predicate.size == 1 and mask.size == 1 and cx.warp_active is None:
        return _uniform_vote(mode, bool(predicate.item()), int(mask.item()))
    flags = cx.to_warps(predicate)
    if cx.warp_active is not None:
        flags = flags & cx.warp_active
    members = cx.to_warps(mask) if mask.size > 1 else mask
    ballot = ballot_of(np.ascontiguousarray(flags)) & members
    present = running(cx) & members
    result: Array
    if mode == "ballot":
        result = ballot
    elif mode == "any":
        result = ballot != 0
    elif mode == "all":
        result = ballot == present
    else:
        result = (ballot == 0) | (ballot == present)
    return cx.from_warps(np.ascontiguousarray(np.broadcast_to(result, (cx.warp_count, WARP))))


def _uniform_vote(mode: str, predicate: bool, mask: int) -> Array:
    if mode == "ballot":
        return np.array([[mask if predicate else 0]], dtype=np.uint32)
    return np.array([[predicate or mode == "uni"]])


def match_any(cx: LaneSet, value: Array, mask: Array) -> Array:
    """match.any: the mask of the lanes that hold the same value."""
    wide = cx.to_warps(value)
    same = wide[:, :, None] == wide[:, None, :]
    if cx.warp_active is not None:
        same = same & cx.warp_active[:, None, :]
    matching = np.packbits(same, axis=2, bitorder="little").view(np.uint32)[:, :, 0]
    return cx.from_warps(matching & cx.to_warps(np.broadcast_to(mask, cx.shape)))


def match_all(cx: LaneSet, value: Array, mask: Array) -> tuple[Array, Array]:
    """match.all: the member mask and true if all named lanes hold the same value, else zero."""
    members = cx.to_warps(np.broadcast_to(mask, cx.shape)) & running(cx)
    matching = cx.to_warps(match_any(cx, value, mask))
    every = matching & members == members
    result = np.where(every, cx.to_warps(np.broadcast_to(mask, cx.shape)), np.uint32(0))
    return cx.from_warps(result), cx.from_warps(every)


def redux(cx: LaneSet, op: str, value: Array, mask: Array) -> Array:
    """redux.sync on integers of any signedness: one result for the named lanes."""
    function = COMBINE[op]
    wide = cx.to_warps(value)
    active = cx.warp_active
    if active is None and mask.size == 1 and int(mask.item()) == 0xFFFFFFFF:
        result = function.reduce(wide, axis=1, keepdims=True, dtype=wide.dtype)
        return cx.from_warps(np.ascontiguousarray(np.broadcast_to(result, wide.shape)))
    members = cx.to_warps(np.broadcast_to(mask, cx.shape)) & running(cx)
    chosen = (members[:, :, None] & _BIT) != 0
    filled = np.where(chosen, wide[:, None, :], _identity(op, wide.dtype))
    return cx.from_warps(function.reduce(filled, axis=2, dtype=wide.dtype))


def _identity(op: str, dtype: np.dtype[np.integer]) -> np.integer:
    info = np.iinfo(dtype)
    if op == "min":
        return dtype.type(info.max)
    if op == "max":
        return dtype.type(info.min)
    return dtype.type(-1 if info.min < 0 else info.max) if op == "and" else dtype.type(0)


def redux_float(
    cx: LaneSet, op: str, value: Array, mask: Array, nan: bool, absolute: bool
) -> Array:
    """redux.sync.min/max.f32."""
    wide = cx.to_warps(value).view(np.float32)
    if absolute:
        wide = np.abs(wide)
    members = cx.to_warps(np.broadcast_to(mask, cx.shape)) & running(cx)
    chosen = (members[:, :, None] & _BIT) != 0
    empty = np.float32(np.inf if op == "min" else -np.inf)
    filled = np.where(chosen, wide[:, None, :], empty if nan else np.float32(np.nan))
    if nan:
        result = np.minimum.reduce(filled, axis=2) if op == "min" else filled.max(axis=2)
    else:
        result = (np.fmin if op == "min" else np.fmax).reduce(filled, axis=2)
    bits = np.where(np.isnan(result), np.uint32(0x7FFFFFFF), result.view(np.uint32))
    return cx.from_warps(bits)


def elect(cx: LaneSet, mask: Array) -> tuple[Array, Array]:
    """elect.sync: the lowest named lane, and whether this lane is it."""
    members = cx.to_warps(np.broadcast_to(mask, cx.shape)) & running(cx)
    lowest = members & (~members + np.uint32(1))
    leader = (np.frexp(lowest.astype(np.float64))[1] - 1).astype(np.uint32)
    return cx.from_warps(leader), cx.from_warps(leader == _LANE.astype(np.uint32))
