"""`shfl` over `Lanes`: a value from another thread of the warp.

Exact where the value, the lane and the clamp are, and every thread of the CTA takes part; else an
interval that holds the values of all threads of the CTA. Without `.sync`, and for threads that
take no part, the result is not defined.

Source: PTX ISA 9.0, sections 9.7.9.5 and 9.7.9.6.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Signed, Words
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import Lanes


def shuffle(
    source: Lanes,
    lane: Lanes,
    clamp: Lanes,
    modes: tuple[str, ...],
    everybody: bool,
    threads: int,
) -> Lanes:
    """What each thread gets."""
    if source.lo.shape[-1] == 1 and source.span is None and everybody:
        return source
    chosen = source_threads(lane, clamp, modes, everybody, threads)
    if source.span is not None or chosen is None:
        return _any_thread(source)
    wide = np.broadcast_to(source.lo, (*source.lo.shape[:-1], threads))
    return Lanes(wide[..., chosen])


def source_threads(
    lane: Lanes, clamp: Lanes, modes: tuple[str, ...], everybody: bool, threads: int
) -> Signed | None:
    """The thread of the CTA that each thread reads; None where that is not known."""
    if not everybody or lane.span is not None or clamp.span is not None:
        return None
    if clamp.lo.size != 1 or lane.lo.size != lane.lo.shape[-1]:
        return None
    chosen = _sources(lane.lo, int(clamp.lo.flat[0]), modes, threads)
    return None if (chosen >= threads).any() else chosen[0]


def _sources(lane: Words, clamp: int, modes: tuple[str, ...], threads: int) -> Signed:
    """The thread that each thread reads, as the ISA's pseudo code has it."""
    thread = np.arange(threads, dtype=np.int64)
    own = thread % WARP
    wanted = np.broadcast_to((lane.astype(np.int64) & 0x1F).reshape(1, -1), (1, threads))
    bound, segment = clamp & 0x1F, (clamp >> 8) & 0x1F
    most = (own & segment) | (bound & ~segment)
    least = own & segment
    if "up" in modes:
        lane_read, valid = own - wanted, own - wanted >= most
    elif "down" in modes:
        lane_read, valid = own + wanted, own + wanted <= most
    elif "bfly" in modes:
        lane_read, valid = own ^ wanted, (own ^ wanted) <= most
    else:
        lane_read = least | (wanted & ~segment)
        valid = lane_read <= most
    return thread - own + np.where(valid, lane_read, own)


def _any_thread(source: Lanes) -> Lanes:
    """An interval that holds every thread's value; unknown where none is shorter."""
    low, high = lanes.unsigned_bounds(source, 32)
    return lanes.from_bounds(
        low.min(axis=-1, keepdims=True), high.max(axis=-1, keepdims=True), 32, source.why
    )
