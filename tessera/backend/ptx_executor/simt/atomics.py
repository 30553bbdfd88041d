"""Atomic operations in a fixed order: lane by lane.

Within one instruction the lanes of the running group act in lane order (CTA by CTA, thread
by thread), so floating-point sums are the same on every run. Lanes that name different
addresses are independent and execute at once. If addresses repeat, a stable sort orders the lanes
by address. Long runs go through a running `accumulate`, which applies the operation strictly one
by one; the rest is done in rounds, first lanes first.

Source: PTX ISA 9.0, sections 9.7.13.5 (atom) and 9.7.13.6 (red).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.memory.access import blame
from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.lanes import COMBINE, LaneSet
from tessera.backend.ptx_executor.memory.memory import WORDS, Array
from tessera.backend.ptx_executor.memory.spaces import (
    SPACES,
    Gather,
    Scatter,
    _check_shared,
    _shared_rows,
    _split_windows,
)
from tessera.backend.ptx_executor.numerics import floats

Step = Callable[[Array, Array, "Array | None"], Array]

_LONG_RUN = 24


def step_of(op: str, t: str, ftz: bool) -> Step:
    """One step of the operation: the new word from the old word and the operands, as raw bits."""
    width = int(t[1:]) // 8 if t[0] in "usb" and t[1:].isdigit() else 0
    signed = t[0] == "s"
    if op == "cas":
        return _swap_where_equal
    if op == "exch":
        return lambda old, b, c: np.broadcast_to(b, old.shape)
    if op == "inc":
        return lambda old, b, c: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
    if op == "dec":
        unit = np.uint32(1)
        return lambda old, b, c: np.where((old == 0) | (old > b), b, old - unit)
    if op in ("and", "or", "xor"):
        return lambda old, b, c: COMBINE[op](old, b)
    if op == "add":
        if width:
            return lambda old, b, c: old + b
        return lambda old, b, c: (
            floats.add(t, old, b, ftz=ftz) if t == "f32" else floats.add(t, old, b)
        )
    if op in ("min", "max"):
        if width:
            picked = COMBINE[op]
            view = np.dtype(f"{'i' if signed else 'u'}{width}")
            return lambda old, b, c: picked(old.view(view), b.view(view)).view(old.dtype)
        chosen = floats.min if op == "min" else floats.max
        return lambda old, b, c: chosen(t, old, b)
    raise NotImplementedError(f"atomic `{op}`")


def _swap_where_equal(old: Array, b: Array, c: Array | None) -> Array:
    assert c is not None
    if old.dtype.kind == "c":
        pairs = [np.ascontiguousarray(x).view(np.uint64).reshape(-1, 2) for x in (old, b)]
        return np.where((pairs[0] == pairs[1]).all(axis=1), c, old)
    return np.where(old == b, c, old)


class Atomic:
    """An atomic instruction, prepared once when it is compiled."""

    def __init__(self, space: str, op: str, t: str, width: int) -> None:
        self.space = space
        self.op = op
        self.width = width
        # Device memory flushes subnormal f32 sums, shared memory keeps them (PTX ISA, atom).
        self.steps = {flush: step_of(op, t, flush) for flush in (False, True)}
        self.scan = COMBINE.get(op)
        self.view: np.dtype[np.number] | None = None
        if self.scan is not None and t in _SCAN_TYPES:
            self.view = np.dtype(_SCAN_TYPES[t])
            if op in ("min", "max") and t[0] == "f":
                self.scan = None

    def run(
        self,
        cx: LaneSet,
        site: int,
        addr: Array,
        b: Array,
        c: Array | None = None,
        guard: Array | None = None,
    ) -> Array:
        """Execute the instruction for the running lanes; return the old words."""
        on = cx.enabled(guard)
        who = cx.chosen(on)
        result = np.zeros(cx.shape, dtype=WORDS[self.width])
        if len(who) == 0:
            return result
        watch = cx.chunk.launch.watch
        if watch is not None:
            watch.atomic = True
        try:
            flat = cx.flat(addr)[who]
            operands = [None if x is None else cx.flat(x)[who] for x in (b, c)]
            assert operands[0] is not None
            words = self._dispatch(cx, site, flat, operands[0], operands[1], who)
        except AddressFault as fault:
            blame(cx, fault, addr, on)
            raise
        finally:
            if watch is not None:
                watch.atomic = False
                watch.synchronised()
        result.reshape(-1)[who] = words
        return result

    def _dispatch(
        self, cx: LaneSet, site: int, addr: Array, b: Array, c: Array | None, who: Array
    ) -> Array:
        if self.space != "generic":
            return self._in_space(cx, self.space, site, addr, b, c, who)
        words = np.zeros(addr.shape, dtype=WORDS[self.width])
        for base, gather, _, chosen in _split_windows(addr):
            space = next(name for name, pair in SPACES.items() if pair[0] is gather)
            part = addr[chosen] - np.uint64(base)
            other = None if c is None else c[chosen]
            words[chosen] = self._in_space(cx, space, site, part, b[chosen], other, who[chosen])
        return words

    def _in_space(
        self, cx: LaneSet, space: str, site: int, addr: Array, b: Array, c: Array | None, who: Array
    ) -> Array:
        gather, scatter = SPACES[space]
        key = addr
        if space == "shared":
            offset, far = _check_shared(cx, site, addr, self.width)
            key = offset.astype(np.int64) + (_shared_rows(cx, addr, far, who) << 32)
        elif space == "local":
            key = addr.astype(np.int64) + (cx.index.reshape(-1)[who] << 32)
        step = self.steps[space in ("global", "const")]
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = ordered[1:] != ordered[:-1]
        if first.all():
            before = gather(cx, site, addr, self.width, who)
            scatter(cx, site, addr, self.width, step(before, b, c), who)
            return before
        return self._repeated(
            cx, site, (gather, scatter), step, (addr, b, c, who), order, np.flatnonzero(first)
        )

    def _repeated(
        self,
        cx: LaneSet,
        site: int,
        access: tuple[Gather, Scatter],
        step: Step,
        lanes: tuple[Array, Array, Array | None, Array],
        order: Array,
        starts: Array,
    ) -> Array:
        """Execute several lanes per address, sorted; `starts` is the first lane of each address."""
        addr, b, c, who = (None if x is None else x[order] for x in lanes)
        assert addr is not None
        assert b is not None
        assert who is not None
        gather, scatter = access
        counts = np.diff(np.append(starts, len(order)))
        present = gather(cx, site, addr[starts], self.width, who[starts])
        before = np.zeros(len(order), dtype=present.dtype)
        pending = np.ones(len(starts), dtype=np.bool_)
        for run in np.flatnonzero(counts > _LONG_RUN):
            span = slice(starts[run], starts[run] + counts[run])
            seen = self._one_by_one(present[run : run + 1], b[span], None if c is None else c[span])
            if seen is not None:
                before[span], present[run] = seen[:-1], seen[-1]
                pending[run] = False
        left = np.flatnonzero(pending)
        rank = 0
        while len(left):
            place = starts[left] + rank
            before[place] = present[left]
            present[left] = step(present[left], b[place], None if c is None else c[place])
            rank += 1
            left = left[counts[left] > rank]
        scatter(cx, site, addr[starts], self.width, present, who[starts])
        result = np.empty_like(before)
        result[order] = before
        return result

    def _one_by_one(self, old: Array, b: Array, c: Array | None) -> Array | None:
        """The old word of each lane of a run, then the last word; None if only rounds are exact."""
        if self.op == "exch":
            return np.concatenate([old, b])
        if self.op == "cas" and c is not None and old.dtype.kind != "c":
            return _compare_and_swap(old, b, c)
        if self.scan is None or self.view is None:
            return None
        values = np.concatenate([old, b]).view(self.view)
        running: Array = self.scan.accumulate(values, dtype=self.view)
        if self.view.kind == "f" and not _plain_floats(values, running):
            return None
        return running.view(old.dtype)


_SCAN_TYPES = {
    "u32": "u4",
    "s32": "i4",
    "b32": "u4",
    "u64": "u8",
    "s64": "i8",
    "b64": "u8",
    "f32": "f4",
    "f64": "f8",
}


def _plain_floats(values: Array, running: Array) -> bool:
    """Whether there is no NaN, and no value that flushing subnormals would change."""
    tiny = np.finfo(values.dtype).tiny
    for part in (values, running):
        size = np.abs(part)
        if not (np.isfinite(size) & ((size >= tiny) | (size == 0))).all():
            return False
    return True


def _compare_and_swap(old: Array, b: Array, c: Array) -> Array:
    current = old[0]
    seen = np.empty(len(b) + 1, dtype=old.dtype)
    for i in range(len(b)):
        seen[i] = current
        if current == b[i]:
            current = c[i]
    seen[-1] = current
    return seen
