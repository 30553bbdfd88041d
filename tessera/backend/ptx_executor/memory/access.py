"""The loads and stores that generated code calls: guards, vectors, the lane that faulted.

`load` and `store` wrap a gather or a scatter of `spaces` for one instruction of the running
lanes. They skip lanes that a guard or the mask of active lanes turns off, assemble vectors, and
find the lane that used a bad address.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.global_access import check_aligned
from tessera.backend.ptx_executor.memory.lanes import LaneSet, blend
from tessera.backend.ptx_executor.memory.memory import UNSIGNED, WORDS, Array
from tessera.backend.ptx_executor.memory.spaces import Gather, Scatter


def load(
    cx: LaneSet,
    gather: Gather,
    site: int,
    addr: Array,
    width: int,
    guard: Array | None = None,
    old: Array | None = None,
) -> Array:
    """Load words of up to 16 bytes; lanes that `guard` turns off keep `old`."""
    on = cx.enabled(guard)
    try:
        if on is None:
            return gather(cx, site, addr, width, None)
        return _load_some(cx, gather, site, addr, width, on, old)
    except AddressFault as fault:
        blame(cx, fault, addr, on)
        raise


def _load_some(
    cx: LaneSet, gather: Gather, site: int, addr: Array, width: int, on: Array, old: Array | None
) -> Array:
    if not on.any():
        return np.zeros((1, 1), dtype=WORDS[width]) if old is None else old
    flags = np.broadcast_to(on, cx.shape)
    who = np.flatnonzero(flags)
    picked = cx.flat(addr)[who]
    values = gather(cx, site, picked, width, who)
    filled = np.zeros(cx.shape, dtype=WORDS[width])
    if old is not None:
        filled[...] = old
    filled.reshape(-1)[who] = values
    return filled


def load_vector(
    cx: LaneSet,
    gather: Gather,
    site: int,
    addr: Array,
    width: int,
    count: int,
    guard: Array | None = None,
    olds: Sequence[Array] = (),
) -> list[Array]:
    """Load `count` consecutive words of `width` bytes each; the whole vector is aligned.

    Lanes that `guard` turns off keep the values of `olds`.
    """
    parts = _load_parts(cx, gather, site, addr, width, count, guard)
    if guard is None or cx.enabled(guard) is None:
        return parts
    return [blend(guard, part, old) for part, old in zip(parts, olds, strict=True)]


def _load_parts(
    cx: LaneSet, gather: Gather, site: int, addr: Array, width: int, count: int, guard: Array | None
) -> list[Array]:
    total = width * count
    if total <= 16:
        return split_words(load(cx, gather, site, addr, total, guard), width, count)
    _check_vector(cx, site, addr, total, guard)
    parts: list[Array] = []
    for start in range(0, total, 16):
        words = load(cx, gather, site, addr + addr.dtype.type(start), 16, guard)
        parts.extend(split_words(words, width, 16 // width))
    return parts


def split_words(words: Array, width: int, count: int) -> list[Array]:
    """Words of `width * count` bytes as `count` arrays of words of `width` bytes."""
    if count == 1:
        return [words]
    parts = np.ascontiguousarray(words).view(UNSIGNED[width]).reshape(*words.shape, count)
    return [parts[..., i].copy() for i in range(count)]


def join_words(parts: Sequence[Array], width: int) -> Array:
    """The inverse of `split_words`: join the parts into one word."""
    if len(parts) == 1:
        return parts[0]
    shape = np.broadcast_shapes(*(part.shape for part in parts))
    joined = np.empty((*shape, len(parts)), dtype=UNSIGNED[width])
    for i, part in enumerate(parts):
        joined[..., i] = part
    result: Array = joined.view(WORDS[width * len(parts)]).reshape(shape)
    return result


def strong(cx: LaneSet, on: bool) -> None:
    """Begin or end a strong access, which orders threads and does not race with another."""
    watch = cx.chunk.launch.watch
    if watch is not None:
        watch.atomic = on
        if not on:
            watch.synchronised()


def store(
    cx: LaneSet,
    scatter: Scatter,
    site: int,
    addr: Array,
    width: int,
    parts: Sequence[Array],
    guard: Array | None = None,
) -> None:
    """Store one word, or the words of a vector, per lane."""
    per_word = 16 // width
    if len(parts) > per_word:
        _check_vector(cx, site, addr, width * len(parts), guard)
        for i in range(0, len(parts), per_word):
            moved = addr + addr.dtype.type(i * width)
            store(cx, scatter, site, moved, width, parts[i : i + per_word], guard)
        return
    words = join_words(parts, width)
    total = width * len(parts)
    on = cx.enabled(guard)
    try:
        if on is None:
            scatter(cx, site, addr, total, words, None)
            return
        if not on.any():
            return
        who = cx.chosen(on)
        picked = cx.flat(addr)[who]
        chosen = cx.flat(words)[who]
        scatter(cx, site, picked, total, chosen, who)
    except AddressFault as fault:
        blame(cx, fault, addr, on)
        raise


@contextmanager
def blaming(cx: LaneSet, addr: Array, on: Array | None) -> Iterator[None]:
    """A context for an access: a fault inside it names the lane, see `blame`."""
    try:
        yield
    except AddressFault as fault:
        blame(cx, fault, addr, on)
        raise


def _check_vector(cx: LaneSet, site: int, addr: Array, width: int, guard: Array | None) -> None:
    """Check a vector that takes several words, in the lanes that run."""
    on = cx.enabled(guard)
    with blaming(cx, addr, on):
        check_aligned(site, addr if on is None else cx.flat(addr)[cx.chosen(on)], width)


def blame(cx: LaneSet, fault: AddressFault, addr: Array, on: Array | None) -> None:
    """Record the first lane that used the bad address, with or without its window's base."""
    named = np.broadcast_to(addr, cx.shape)
    bad = (named == named.dtype.type(fault.address & ((1 << 8 * named.itemsize) - 1))) | (
        (named & named.dtype.type((1 << min(36, 8 * named.itemsize)) - 1)) == fault.address
    )
    if on is not None:
        bad = bad & on
    places = np.flatnonzero(bad)
    if len(places):
        fault.lane = int(places[0])
