"""What the threads of a warp exchange: `shfl`, a value from another thread, and `elect.sync`.

`shfl` is exact where the value, the lane and the clamp are, and every thread of the CTA takes part;
else it gives an interval that holds the values of all threads of the CTA. Without `.sync`, and for
threads that take no part, the result is not defined.

`elect.sync` lets one thread of a warp go on, and it is not known which. No thread is sure to be
elected, but one thread of every warp is. So a value that depends on nothing but an election is kept
twice (`ElectedValue`): as an elected thread has it, and as another has it. A guard with such a
value leaves, besides the threads that may be there, those that surely are if they are elected
(`masks.Mask.elected`). If these are all threads of a warp, and all would access the same bytes,
then the access happens.

Source: PTX ISA 9.0, sections 9.7.9.5 and 9.7.9.6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Flags, Signed, Words
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, ElectedValue, Lanes
from tessera.passes.lane_values.masks import NONE, Mask


def shuffle(
    source: Lanes,
    lane: Lanes,
    clamp: Lanes,
    modes: tuple[str, ...],
    everybody: bool,
    threads: int,
) -> Lanes:
    """The value that each thread gets from `shfl`."""
    if source.low().shape[-1] == 1 and source.span is None and everybody:
        return source
    chosen = source_threads(lane, clamp, modes, everybody, threads)
    if source.span is not None or chosen is None:
        return _any_thread(source)
    wide = np.broadcast_to(source.low(), (*source.low().shape[:-1], threads))
    return Lanes(wide[..., chosen])


def source_threads(
    lane: Lanes, clamp: Lanes, modes: tuple[str, ...], everybody: bool, threads: int
) -> Signed | None:
    """The thread of the CTA that each thread reads; None if that is not known."""
    if not everybody or lane.span is not None or clamp.span is not None:
        return None
    if clamp.low().size != 1 or lane.low().size != lane.low().shape[-1]:
        return None
    chosen = _sources(lane.low(), int(clamp.low().flat[0]), modes, threads)
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


T = TypeVar("T", bound=np.generic)
_EVERYBODY = 0xFFFFFFFF
Results = tuple[Lanes, ...]


def elect(members: Lanes, sure: Flags, may: Flags, threads: int, election: int) -> Lanes:
    """Whether a thread is elected; a choice where whole warps surely come here."""
    elected = lanes.unknown(1, election)
    whole = members.span is None and bool((members.low() == U64(_EVERYBODY)).all())
    full = _by_warp(sure, threads).all(axis=-1) | ~_by_warp(may, threads).any(axis=-1)
    if whole and bool(full.all()):
        certain = np.ones((1, 1), dtype=U64)
        elected.choice = ElectedValue(
            election, certain, certain - certain, certain.astype(np.bool_)
        )
    return elected


def choose(evaluate: Callable[[Sequence[Lanes]], Results], values: Sequence[Lanes]) -> Results:
    """Results of an instruction, with their choices where all that is open is one election."""
    results = evaluate(values)
    choices = [v.choice for v in values if v.choice is not None]
    if len({c.election for c in choices}) != 1:
        return results
    hits = evaluate([Lanes(v.choice.hit if v.choice else v.low(), kind=v.kind) for v in values])
    misses = evaluate([Lanes(v.choice.miss if v.choice else v.low(), kind=v.kind) for v in values])
    if any(r.span is not None for r in (*hits, *misses)):
        return results
    valid = np.ones((1, 1), dtype=np.bool_)
    for value in values:
        valid = valid & (value.choice.valid if value.choice else lanes.spans(value) == U64(0))
    chosen: list[Lanes] = []
    for result, hit, miss in zip(results, hits, misses, strict=True):
        copy = lanes.copied(result)
        copy.choice = ElectedValue(choices[0].election, hit.low(), miss.low(), valid)
        chosen.append(copy)
    return tuple(chosen)


def merged_choice(strong: Flags, new: Lanes, old: Lanes) -> ElectedValue | None:
    """The choice of `new` in some threads; in the others `old` counts only where it is exact."""
    if new.choice is None:
        return None
    hit = np.where(strong, new.choice.hit, old.low())
    miss = np.where(strong, new.choice.miss, old.low())
    exact = lanes.spans(old) == U64(0)
    return ElectedValue(new.choice.election, hit, miss, np.where(strong, new.choice.valid, exact))


def elected_sides(
    mask: Mask, chosen: Flags, taken: Lanes, *, is_side: bool
) -> tuple[tuple[int, Flags], tuple[int, Flags]]:
    """The chosen threads that are on each side of a branch if the election that it depends on
    elects them; none if the branch is on a side of another one (`is_side`)."""
    choice = taken.choice
    if is_side or choice is None or mask.election not in (-1, choice.election):
        return (-1, NONE), (-1, NONE)
    before = (mask.sure if mask.election == -1 else mask.elected) & chosen & choice.valid
    hit = choice.hit.astype(np.bool_)
    return (choice.election, before & hit), (choice.election, before & ~hit)


def agreeing(elected: Flags, values: Sequence[Flags | Words], threads: int) -> Flags:
    """The threads of warps in which all threads are here if elected, with the same values."""
    shape = np.broadcast_shapes(elected.shape, (1, threads), *(v.shape for v in values))
    good = np.asarray(_by_warp(np.broadcast_to(elected, shape), threads).all(axis=-1))[..., None]
    for value in values:
        rows = _by_warp(np.broadcast_to(value, shape), threads)
        good = good & (rows == rows[..., :1]).all(axis=-1, keepdims=True)
    spread = np.repeat(good[..., 0], WARP, axis=-1)
    return spread[..., :threads]


def _by_warp(values: NDArray[T], threads: int) -> NDArray[T]:
    """With warps and lanes as axes in place of threads; missing lanes repeat the last thread."""
    shape = np.broadcast_shapes(values.shape, (1, threads))
    wide = np.broadcast_to(values, shape)
    places = np.minimum(np.arange(-(-threads // WARP) * WARP), threads - 1)
    return wide[..., places].reshape(*shape[:-1], -1, WARP)
