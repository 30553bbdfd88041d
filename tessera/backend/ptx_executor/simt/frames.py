"""Copies between frames of a call, in the lanes' local memory."""

from __future__ import annotations

from tessera.backend.ptx_executor.memory.access import load, store
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.memory.spaces import gather_local, scatter_local


def copy_local(cx: LaneSet, site: int, target: Array, source: Array, size: int) -> None:
    """Copy `size` bytes, in words as wide as the size allows (frames are 16-byte aligned)."""
    done = 0
    while done < size:
        width = next(
            w for w in (8, 4, 2, 1) if w <= size - done and _aligned(target, source, done, w)
        )
        step = target.dtype.type(done)
        word = load(cx, gather_local, site, source + step, width)
        store(cx, scatter_local, site, target + step, width, [word])
        done += width


def _aligned(target: Array, source: Array, done: int, width: int) -> bool:
    first, second = int(target.reshape(-1)[0]), int(source.reshape(-1)[0])
    return (first + done) % width == 0 and (second + done) % width == 0
