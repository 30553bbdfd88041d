"""Optional checks of a launch: reads of bytes never written, and races between threads.

Uninitialised reads: a flag per byte of device and shared memory says whether the byte has been
written. Bytes that the host copies in count as written; those of `Device.empty` do not.

Races: for each byte, the last writer and the last reader are kept with the time of their access.
Two accesses of different threads, at least one of them a write, race unless something orders them.
To avoid false reports, ordering is generous: lanes of one warp are ordered; threads of one CTA are
ordered by any barrier or completed mbarrier wait of the CTA in between; all threads are ordered by
any atomic, strong access or poll in between, by any thread. Lanes of one store that write the same
value to an address do not race. Every reported race is real; some races are missed. Atomics, strong
accesses and operations on mbarriers do not race.

The checks slow a run down several times and are off by default.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import AddressSpace, Array, reserve

_NOBODY = -1
_SEVERAL = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """The checks that a device makes."""

    uninitialised: bool = False
    races: bool = False


class Shadow:
    """Flags of the bytes of a device's memory that have been written."""

    def __init__(self, space: AddressSpace) -> None:
        self.space = space
        self.flags = np.frombuffer(reserve(space.capacity), dtype=np.bool_)

    def written(self, address: int, size: int) -> None:
        """Mark bytes that the host has written."""
        start = address - self.space.base
        self.flags[start : start + size] = True

    def forget(self, address: int, size: int) -> None:
        """Mark bytes as uninitialised."""
        start = address - self.space.base
        self.flags[start : start + size] = False


class AccessHistory:
    """The last writer and reader of each byte of a memory range, with their times."""

    def __init__(self, size: int) -> None:
        self.thread = {kind: np.full(size, _NOBODY, dtype=np.int64) for kind in "wr"}
        self.local_time = {kind: np.zeros(size, dtype=np.int64) for kind in "wr"}
        self.global_time = {kind: np.zeros(size, dtype=np.int64) for kind in "wr"}


class LaunchWatch:
    """The checks of one launch."""

    def __init__(self, checks: Checks, shadow: Shadow | None, threads: int) -> None:
        self.checks = checks
        self.shadow = shadow
        self.threads = threads
        self.warps = -(-threads // WARP)
        self.now = 0
        self.histories: dict[int, AccessHistory] = {}
        self.atomic = False

    # --- hooks -------------------------------------------------------------------------

    def read_global(
        self, cx: LaneSet, site: int, addr: Array, width: int, who: Array | None
    ) -> None:
        """Check a load from device memory, before it happens."""
        if self.shadow is not None:
            offset = (addr - np.uint64(self.shadow.space.base)).astype(np.int64)
            self._need(self.shadow.flags, offset, addr, width, site, "device memory")
        if self.checks.races:
            self._race_global(cx, site, addr, width, who, "r")

    def write_global(
        self, cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
    ) -> None:
        """Check a store to device memory, before it happens."""
        if self.shadow is not None:
            offset = (addr - np.uint64(self.shadow.space.base)).astype(np.int64)
            self.shadow.flags[_bytes(offset, width)] = True
        if self.checks.races:
            self._race_global(cx, site, addr, width, who, "w", values)

    def read_shared(
        self, cx: LaneSet, site: int, addr: Array, width: int, who: Array | None
    ) -> None:
        """Check a load from shared memory, before it happens."""
        places = _shared_places(cx, addr, who)
        if self.checks.uninitialised:
            flags = cx.chunk.shared_flags()
            self._need(
                flags, places, np.broadcast_to(addr, places.shape), width, site, "shared memory"
            )
        if self.checks.races:
            self._race(cx, self._shared(cx), site, addr, places, width, who, "r")

    def write_shared(
        self, cx: LaneSet, site: int, addr: Array, width: int, values: Array, who: Array | None
    ) -> None:
        """Check a store to shared memory, before it happens."""
        places = _shared_places(cx, addr, who)
        if self.checks.uninitialised:
            cx.chunk.shared_flags()[_bytes(places, width)] = True
        if self.checks.races:
            self._race(cx, self._shared(cx), site, addr, places, width, who, "w", values)

    def synchronised(self) -> None:
        """Note an event that may order threads of different CTAs."""
        self.now += 1

    # --- uninitialised reads -------------------------------------------------------------

    def _need(
        self, flags: Array, places: Array, addr: Array, width: int, site: int, where: str
    ) -> None:
        good = flags[_bytes(places, width)].all(axis=-1)
        if not good.all():
            bad = int(addr.reshape(-1)[np.flatnonzero(~good.reshape(-1))[0]])
            raise AddressFault(
                "TSR5015", f"read of {width} bytes of {where} never written: 0x{bad:x}", site, bad
            )

    # --- races ---------------------------------------------------------------------------

    def _shared(self, cx: LaneSet) -> AccessHistory:
        """The history of a chunk's shared memory, which ends with the chunk."""
        if cx.chunk.shared_history is None:
            cx.chunk.shared_history = AccessHistory(cx.chunk.shared.bytes.size)
        history: AccessHistory = cx.chunk.shared_history
        return history

    def _history(self, key: int, size: int) -> AccessHistory:
        history = self.histories.get(key)
        if history is None:
            history = self.histories[key] = AccessHistory(size)
        return history

    def _race_global(
        self,
        cx: LaneSet,
        site: int,
        addr: Array,
        width: int,
        who: Array | None,
        kind: str,
        values: Array | None = None,
    ) -> None:
        space: AddressSpace = cx.chunk.launch.space
        starts, _ = space.bounds()
        flat = addr.reshape(-1)
        owner = np.searchsorted(starts, flat, side="right") - 1
        for number in np.unique(owner):
            allocation = space.table[int(number)]
            history = self._history(allocation.address, allocation.size)
            chosen = owner == number
            places = (addr - np.uint64(allocation.address)).astype(np.int64)
            self._race(cx, history, site, addr, places, width, who, kind, values, chosen)

    def _race(
        self,
        cx: LaneSet,
        history: AccessHistory,
        site: int,
        addr: Array,
        places: Array,
        width: int,
        who: Array | None,
        kind: str,
        values: Array | None = None,
        chosen: Array | None = None,
    ) -> None:
        if self.atomic:
            return
        shape = cx.shape if who is None else places.shape
        stored = None if values is None else np.broadcast_to(values, shape).reshape(-1)
        wide = np.broadcast_to(places, shape).reshape(-1)
        shown = np.broadcast_to(addr, shape).reshape(-1)
        threads, times = self._who(cx, who)
        if chosen is not None:
            keep = np.broadcast_to(chosen.reshape(places.shape), shape).reshape(-1)
            wide, shown, threads, times = wide[keep], shown[keep], threads[keep], times[keep]
            stored = None if stored is None else stored[keep]
        for byte in range(width):
            at = wide + byte
            self._judge(history, site, shown, at, threads, times, "w")
            if stored is not None:
                self._judge(history, site, shown, at, threads, times, "r")
                self._judge_together(site, shown, at, threads, stored)
            self._remember(history, kind, at, threads, times)

    def _who(self, cx: LaneSet, who: Array | None) -> tuple[Array, Array]:
        """The numbers of threads in the grid, and the times of their CTAs."""
        rows = cx.flat(cx.row)
        cols = cx.flat(cx.col)
        if who is not None:
            rows, cols = rows[who], cols[who]
        ctas = cx.chunk.cta_ids[rows].astype(np.int64)
        return ctas * self.warps * WARP + cols, cx.chunk.epochs[rows]

    def _judge(
        self,
        history: AccessHistory,
        site: int,
        shown: Array,
        at: Array,
        threads: Array,
        times: Array,
        kind: str,
    ) -> None:
        before = history.thread[kind][at]
        same_cta = before // (self.warps * WARP) == threads // (self.warps * WARP)
        same_warp = before // WARP == threads // WARP
        local = history.local_time[kind][at] == times
        recent = history.global_time[kind][at] == self.now
        bad = (before >= 0) & ~same_warp & recent & (local | ~same_cta)
        bad |= (before == _SEVERAL) & local & recent
        if bad.any():
            first = int(np.flatnonzero(bad)[0])
            self._accuse(site, int(shown[first]), int(before[first]), kind)

    def _judge_together(
        self, site: int, shown: Array, at: Array, threads: Array, stored: Array
    ) -> None:
        """Report two lanes of one store that write different values to the same byte."""
        order = np.argsort(at, kind="stable")
        same = at[order][1:] == at[order][:-1]
        raw = np.ascontiguousarray(stored).view(np.uint8).reshape(len(stored), -1)[order]
        same &= (raw[1:] != raw[:-1]).any(axis=1)
        other = threads[order][1:] // WARP != threads[order][:-1] // WARP
        clash = np.flatnonzero(same & other)
        if len(clash):
            first = int(order[clash[0]])
            self._accuse(site, int(shown[first]), int(threads[first]), "w")

    def _remember(
        self, history: AccessHistory, kind: str, at: Array, threads: Array, times: Array
    ) -> None:
        if kind == "r":
            before = history.thread["r"][at]
            fresh = history.global_time["r"][at] == self.now
            fresh &= history.local_time["r"][at] == times
            other = (before >= 0) & (before // WARP != threads // WARP)
            threads = np.where(fresh & (other | (before == _SEVERAL)), _SEVERAL, threads)
        history.thread[kind][at] = threads
        if kind == "r":
            kept = history.thread["r"][at]
            history.thread["r"][at[kept // WARP != threads // WARP]] = _SEVERAL
        history.local_time[kind][at] = times
        history.global_time[kind][at] = self.now

    def _accuse(self, site: int, address: int, other: int, kind: str) -> None:
        what = "written" if kind == "w" else "read"
        who = "several threads"
        if other >= 0:
            cta, thread = divmod(other, self.warps * WARP)
            who = f"thread {thread} of CTA {cta} (both counted linearly)"
        raise AddressFault(
            "TSR5016",
            f"race: 0x{address:x} is also {what} by another thread, and nothing orders the two",
            site,
            address,
            f"the other access is by {who}",
        )


def _bytes(places: Array, width: int) -> Array:
    return places[..., None] + np.arange(width)


def _shared_places(cx: LaneSet, addr: Array, who: Array | None) -> Array:
    """Offsets in the chunk's shared memory (the CTA's own part only)."""
    rows = cx.row if who is None else cx.flat(cx.row)[who]
    places: Array = addr.astype(np.int64) % (1 << 24) + rows * cx.chunk.shared.row_bytes
    return places
