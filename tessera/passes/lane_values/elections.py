"""`elect.sync`: one thread of a warp goes on, and it is not known which.

Nobody is sure to be elected, but somebody of every warp is. So a value that hangs on nothing but an
election is kept twice (`lane_values.ElectedValue`): as an elected thread has it, and as another has
it. A guard with such a value leaves, besides the threads that may be there, those that surely are
if they are elected (`masks.Mask.elected`). If these are all threads of a warp, and all would access
the same bytes, then the access happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Flags, Words
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, ElectedValue, Lanes
from tessera.passes.lane_values.masks import NONE, Mask

T = TypeVar("T", bound=np.generic)
_EVERYBODY = 0xFFFFFFFF
Results = tuple[Lanes, ...]


def elect(members: Lanes, sure: Flags, may: Flags, threads: int, election: int) -> Lanes:
    """Whether a thread is elected; a choice where whole warps surely come here."""
    elected = lanes.unknown(1, election)
    whole = members.span is None and bool((members.lo == U64(_EVERYBODY)).all())
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
    if not choices or len({c.election for c in choices}) != 1:
        return results
    hits = evaluate([Lanes(v.choice.hit if v.choice else v.lo, kind=v.kind) for v in values])
    misses = evaluate([Lanes(v.choice.miss if v.choice else v.lo, kind=v.kind) for v in values])
    if any(r.span is not None for r in (*hits, *misses)):
        return results
    valid = np.ones((1, 1), dtype=np.bool_)
    for value in values:
        valid = valid & (value.choice.valid if value.choice else lanes.spans(value) == U64(0))
    chosen: list[Lanes] = []
    for result, hit, miss in zip(results, hits, misses, strict=True):
        copy = lanes.copied(result)
        copy.choice = ElectedValue(choices[0].election, hit.lo, miss.lo, valid)
        chosen.append(copy)
    return tuple(chosen)


def merged_choice(strong: Flags, new: Lanes, old: Lanes) -> ElectedValue | None:
    """The choice of `new` in some threads; in the others `old` counts only where it is exact."""
    if new.choice is None:
        return None
    hit = np.where(strong, new.choice.hit, old.lo)
    miss = np.where(strong, new.choice.miss, old.lo)
    exact = lanes.spans(old) == U64(0)
    return ElectedValue(new.choice.election, hit, miss, np.where(strong, new.choice.valid, exact))


def elected_sides(
    mask: Mask, chosen: Flags, taken: Lanes, *, is_side: bool
) -> tuple[tuple[int, Flags], tuple[int, Flags]]:
    """Who of the chosen is on each side of a branch if an election that it hangs on elects them;
    nobody where the branch is on a side of another one (`is_side`)."""
    choice = taken.choice
    if is_side or choice is None or mask.election not in (-1, choice.election):
        return (-1, NONE), (-1, NONE)
    before = (mask.sure if mask.election == -1 else mask.elected) & chosen & choice.valid
    hit = choice.hit.astype(np.bool_)
    return (choice.election, before & hit), (choice.election, before & ~hit)


def agreeing(elected: Flags, values: Sequence[Flags | Words], threads: int) -> Flags:
    """The threads of warps all of which would go on, with the same values."""
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
