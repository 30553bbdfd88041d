"""mbarrier objects: 64-bit words in shared memory that count arrivals and bytes.

PTX leaves the word opaque. The layout here: bits 0-19 pending arrivals, 20-39 arrivals expected per
phase, 40-60 pending bytes plus 2^20, bit 62 the parity of the phase; an object is valid while
bit 61 is set and bit 63 is not, which neither zeros nor poison satisfy. A phase ends when no
arrivals and no bytes are pending; the count then starts again at the expected arrivals. A state
token is the word before the arrival.

Lanes act in lane order. Copies complete at once, so a lane only ever waits for other threads.

Source: PTX ISA 9.0, section 9.7.13.15 (mbarrier).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np

from tessera.backend.ptx_executor.memory.access import blaming
from tessera.backend.ptx_executor.memory.faults import AddressFault, Fault
from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.memory.spaces import (
    SHARED_BASE,
    WINDOWS_END,
    gather_shared,
    scatter_shared,
)

_COUNT = (1 << 20) - 1
_EXPECTED_SHIFT = 20
_BYTES_SHIFT = 40
_BYTES_BIAS = 1 << 20
_BYTES_MASK = (1 << 21) - 1
_PHASE = 1 << 62
_VALID = 1 << 61
_MARKS = 1 << 63 | _VALID


def pack(pending: int, expected: int, pending_bytes: int, phase: int) -> int:
    """The word of an object."""
    return (
        _VALID
        | (phase & 1) << 62
        | ((pending_bytes + _BYTES_BIAS) & _BYTES_MASK) << _BYTES_SHIFT
        | (expected & _COUNT) << _EXPECTED_SHIFT
        | pending & _COUNT
    )


def unpack(word: int, site: int) -> tuple[int, int, int, int]:
    """Pending arrivals, expected arrivals, pending bytes, phase."""
    if word & _MARKS != _VALID:
        raise Fault("TSR5023", "mbarrier used before `mbarrier.init`", site)
    pending_bytes = ((word >> _BYTES_SHIFT) & _BYTES_MASK) - _BYTES_BIAS
    expected = (word >> _EXPECTED_SHIFT) & _COUNT
    return word & _COUNT, expected, pending_bytes, int(bool(word & _PHASE))


def shared_offset(addr: Array) -> Array:
    """The shared-memory offsets of mbarriers, whose addresses may be generic."""
    if addr.dtype == np.uint64 and int(addr.max()) >= SHARED_BASE:
        high = int(addr.min())
        if high >= SHARED_BASE and int(addr.max()) < WINDOWS_END:
            return addr - np.uint64(SHARED_BASE)
    return addr


def offset_of(address: int) -> int:
    """`shared_offset` of one address."""
    return address - SHARED_BASE if SHARED_BASE <= address < WINDOWS_END else address


def read_word(cx: LaneSet, site: int, address: int, place: int) -> int:
    """The word at an address that a lane names."""
    at = np.array([offset_of(address)], dtype=np.uint64)
    try:
        with unordered(cx):
            return int(gather_shared(cx, site, at, 8, np.array([place]))[0])
    except AddressFault as fault:
        fault.lane = place
        raise


def write_word(cx: LaneSet, site: int, address: int, place: int, word: int) -> None:
    """Store the word at an address that a lane names."""
    at, value = (np.array([number], dtype=np.uint64) for number in (offset_of(address), word))
    with unordered(cx):
        scatter_shared(cx, site, at, 8, value, np.array([place]))


@contextlib.contextmanager
def unordered(cx: LaneSet) -> Iterator[None]:
    """A context for accesses that never race: those of atomics and mbarriers."""
    watch = cx.chunk.launch.watch
    if watch is None:
        yield
        return
    before, watch.atomic = watch.atomic, True
    try:
        yield
    finally:
        watch.atomic = before


def init(cx: LaneSet, site: int, addr: Array, count: Array, guard: Array | None) -> None:
    """mbarrier.init."""
    for place, (at, wanted) in cx.each(guard, addr, count):
        if not 1 <= wanted <= _COUNT:
            raise Fault("TSR5023", f"mbarrier count out of range: {wanted}", site, place)
        write_word(cx, site, at, place, pack(wanted, wanted, 0, 0))


def invalidate(cx: LaneSet, site: int, addr: Array, guard: Array | None) -> None:
    """mbarrier.inval."""
    for place, (at,) in cx.each(guard, addr):
        write_word(cx, site, at, place, 0)


def settle(pending: int, expected: int, pending_bytes: int, phase: int) -> int:
    """The word after a change; a complete phase is replaced by the next."""
    if pending == 0 and pending_bytes == 0:
        return pack(expected, expected, 0, phase ^ 1)
    return pack(pending, expected, pending_bytes, phase)


def change(
    cx: LaneSet, site: int, at: int, place: int, arrivals: int, more_bytes: int, drop: int = 0
) -> int:
    """Expect bytes (negative: bytes that arrived), then arrive; return the old word."""
    word = read_word(cx, site, at, place)
    pending, expected, pending_bytes, phase = unpack(word, site)
    if arrivals > pending:
        raise Fault(
            "TSR5023", f"mbarrier gets {arrivals} arrivals while {pending} are pending", site, place
        )
    new = settle(pending - arrivals, expected - drop, pending_bytes + more_bytes, phase)
    write_word(cx, site, at, place, new)
    return word


def arrive(
    cx: LaneSet,
    site: int,
    addr: Array,
    count: Array,
    expect: Array | None,
    drop: bool,
    guard: Array | None,
) -> Array:
    """mbarrier.arrive, with expected bytes or a permanent drop; return state tokens."""
    tokens = np.zeros(cx.shape, dtype=np.uint64)
    flat = tokens.reshape(-1)
    for place, (at, arrivals, more) in cx.each(guard, addr, count, expect):
        flat[place] = change(cx, site, at, place, arrivals, more, arrivals if drop else 0)
    return tokens


def expect_bytes(
    cx: LaneSet, site: int, addr: Array, size: Array, sign: int, guard: Array | None
) -> None:
    """mbarrier.expect_tx (+) and complete_tx (-)."""
    for place, (at, count) in cx.each(guard, addr, size):
        change(cx, site, at, place, 0, sign * count)


def test_wait(
    cx: LaneSet, site: int, addr: Array, state: Array, parity: bool, guard: Array | None
) -> Array:
    """mbarrier.test_wait and try_wait: whether the phase named by token or parity is over."""
    offset = shared_offset(addr)
    on = cx.enabled(guard)
    words = _load_words(cx, site, offset, on)
    valid = (words & np.uint64(_MARKS)) == np.uint64(_VALID)
    if on is not None:
        valid = valid | ~np.broadcast_to(on, cx.shape)
    if not valid.all():
        lane = int(np.flatnonzero(~np.broadcast_to(valid, cx.shape))[0])
        raise Fault("TSR5023", "mbarrier used before `mbarrier.init`", site, lane)
    phase = (words & np.uint64(_PHASE)) != 0
    asked = (state & state.dtype.type(1)) != 0 if parity else (state & np.uint64(_PHASE)) != 0
    over: Array = phase != asked
    if cx.chunk.launch.watch is not None and over.any():
        cx.chunk.epochs += 1
        cx.chunk.launch.watch.synchronised()
    return over


def _load_words(cx: LaneSet, site: int, offset: Array, on: Array | None) -> Array:
    with unordered(cx), blaming(cx, offset, on):
        if on is None:
            return gather_shared(cx, site, offset, 8, None)
        who = cx.chosen(on)
        words = np.zeros(cx.shape, dtype=np.uint64)
        if len(who):
            picked = cx.flat(offset)[who]
            words.reshape(-1)[who] = gather_shared(cx, site, picked, 8, who)
        return words


def pending_count(state: Array) -> Array:
    """mbarrier.pending_count of a state token."""
    pending: Array = (state & np.uint64(_COUNT)).astype(np.uint32)
    return pending
