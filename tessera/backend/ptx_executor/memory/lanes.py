"""Sets of lanes that run together, and the shapes of their register values.

A chunk is C CTAs of T threads. A register of the chunk is a 2D array of shape (C, T), or
(C, 1), (1, T) or (1, 1) where its value is the same along an axis. Broadcasting in NumPy thus keeps
values small that depend only on the CTA or only on the thread.

A `LaneSet` is a set of lanes of a chunk that is about to run a block. Inside the block, values
have the set's own `shape`, again with axes of length 1 where uniform:

    full      all lanes: (C, T), registers as they are
    product   some CTAs times some threads (whole CTAs, or the same warps of each): (C', T')
    masked    most lanes, no structure: (C, T) computed for all, `active` flags the lanes of the set
    listed    few lanes, no structure: (1, n)

`take` brings a register into that form, `put` writes a result back for these lanes only.
Warp-wide operations use `to_warps`: an array (warps, 32), with the participating lanes in
`warp_active`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.memory.memory import Array

WARP = 32
# An operation that combines the values of lanes, one by one or all at once.
COMBINE: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_MANY = 4096


class LaneSet:
    """A set of lanes with its form. `chunk` is the `Chunk` (see `chunk`) that they belong to."""

    __slots__ = (
        "_index",
        "_warps",
        "active",
        "chunk",
        "cols",
        "count",
        "kind",
        "listed_cols",
        "listed_rows",
        "mask",
        "rows",
        "shape",
        "whole_warps",
    )

    def __init__(self, chunk: Any, mask: Array | None) -> None:
        ctas, threads = chunk.ctas, chunk.threads
        self.chunk = chunk
        self.mask = mask
        self.active: Array | None = None
        self.rows: Array | None = None
        self.cols: Array | None = None
        self.listed_rows: Array | None = None
        self.listed_cols: Array | None = None
        self._index: Array | None = None
        self._warps: tuple[Array | None, Array | None, int] | None = None
        self.whole_warps: bool | None = None
        self.shape: tuple[int, int] = (ctas, threads)
        self.count = ctas * threads if mask is None else int(np.count_nonzero(mask))
        if mask is None or self.count == ctas * threads:
            self.mask = None
            self.kind = "full"
        else:
            self._choose_form(mask, ctas, threads)

    def _choose_form(self, mask: Array, ctas: int, threads: int) -> None:
        grid = mask.reshape(ctas, threads)
        row_set = grid.any(axis=1)
        col_set = grid.any(axis=0)
        row_count = int(np.count_nonzero(row_set))
        col_count = int(np.count_nonzero(col_set))
        if row_count * col_count == self.count:
            self.kind = "product"
            self.rows = None if row_count == ctas else np.flatnonzero(row_set)
            self.cols = None if col_count == threads else np.flatnonzero(col_set)
            self.shape = (row_count, col_count)
        elif self.count * 2 >= ctas * threads:
            self.kind = "masked"
            self.active = grid
        else:
            self.kind = "listed"
            index = np.flatnonzero(mask)
            self._index = index.reshape(1, -1)
            self.listed_rows, self.listed_cols = np.divmod(index, threads)
            self.shape = (1, self.count)

    # --- registers ---------------------------------------------------------------------

    def take(self, value: Array) -> Array:
        """A register of the chunk in the form of these lanes."""
        if value.size == 1 or self.kind in ("full", "masked"):
            return value
        if self.kind == "product":
            if self.rows is not None and value.shape[0] > 1:
                value = value[self.rows]
            if self.cols is not None and value.shape[1] > 1:
                value = value[:, self.cols]
            return value
        rows = self.listed_rows if value.shape[0] > 1 else 0
        cols = self.listed_cols if value.shape[1] > 1 else 0
        taken: Array = value[rows, cols]
        return taken.reshape(1, -1)

    def put(self, old: Array, new: Array, others_dead: bool) -> Array:
        """The register of the chunk after these lanes have set it to `new`."""
        if self.kind == "full":
            return new
        if new.size == 1 and (others_dead or (old.size == 1 and _same(old, new))):
            return new
        if self.kind == "masked":
            return new if others_dead else blend(self.active, new, old)
        if self.kind == "product":
            return self._put_product(old, new)
        chunk = self.chunk
        merged = _filled(old, (chunk.ctas, chunk.threads))
        merged.reshape(-1)[self.index.reshape(-1)] = np.broadcast_to(new, self.shape).reshape(-1)
        return merged

    def _put_product(self, old: Array, new: Array) -> Array:
        chunk = self.chunk
        height = max(old.shape[0], new.shape[0]) if self.rows is None else chunk.ctas
        width = max(old.shape[1], new.shape[1]) if self.cols is None else chunk.threads
        merged = _filled(old, (height, width))
        if self.cols is None:
            merged[self.rows] = new
        elif self.rows is None:
            merged[:, self.cols] = new
        else:
            merged[self.rows[:, None], self.cols] = new
        return merged

    @property
    def index(self) -> Array:
        """The flat lane numbers in the chunk, in the set's shape."""
        if self._index is None:
            chunk = self.chunk
            rows = np.arange(chunk.ctas) if self.rows is None else self.rows
            cols = np.arange(chunk.threads) if self.cols is None else self.cols
            self._index = rows[:, None] * chunk.threads + cols
        return self._index

    @property
    def row(self) -> Array:
        """The CTA of each lane inside the chunk: shape (C', 1), or (1, n) for listed lanes."""
        if self.listed_rows is not None:
            return self.listed_rows.reshape(1, -1)
        rows = np.arange(self.chunk.ctas) if self.rows is None else self.rows
        return rows[:, None]

    @property
    def col(self) -> Array:
        """The thread of each lane inside its CTA: shape (1, T'), or (1, n)."""
        if self.listed_cols is not None:
            return self.listed_cols.reshape(1, -1)
        cols = np.arange(self.chunk.threads) if self.cols is None else self.cols
        return cols[None, :]

    def flat(self, value: Array) -> Array:
        """A value of these lanes as one row, in lane order."""
        return np.broadcast_to(value, self.shape).reshape(-1)

    def chosen(self, on: Array | None) -> Array:
        """The flat indices of the lanes selected by flags; None selects all."""
        if on is None:
            return np.arange(self.shape[0] * self.shape[1])
        return np.flatnonzero(np.broadcast_to(on, self.shape))

    def each(
        self, guard: Array | None, *values: Array | None
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The running lanes in order: the flat index and the values of each (0 for None)."""
        rows = [None if value is None else self.flat(value) for value in values]
        for place in self.chosen(self.enabled(guard)).tolist():
            yield place, tuple(0 if row is None else int(row[place]) for row in rows)

    def flags(self) -> Array:
        """The set as flags over all lanes of the chunk."""
        if self.mask is None:
            return np.ones(self.chunk.ctas * self.chunk.threads, dtype=np.bool_)
        return self.mask

    def narrow(self, chosen: Array) -> Array:
        """Flags over all lanes of the chunk for those lanes of the set that are `chosen`."""
        wide = np.broadcast_to(chosen, self.shape)
        if self.kind == "full":
            return np.array(wide, dtype=np.bool_).reshape(-1)
        if self.kind == "masked":
            assert self.active is not None
            both: Array = np.logical_and(wide, self.active)
            return both.reshape(-1)
        flags = np.zeros(self.chunk.ctas * self.chunk.threads, dtype=np.bool_)
        flags[self.index.reshape(-1)] = wide.reshape(-1)
        return flags

    def enabled(self, guard: Array | None) -> Array | None:
        """The lanes that a guarded instruction runs on: None for all, else flags."""
        if guard is None:
            return self.active
        if guard.size == 1:
            if guard.item():
                return self.active
            return np.zeros((1, 1), dtype=np.bool_)
        if self.active is not None:
            return np.logical_and(guard, self.active)
        return None if guard.all() else guard

    # --- warps -------------------------------------------------------------------------

    def _layout(self) -> tuple[Array | None, Array | None, int]:
        """The index of each lane in (warps, 32), or None for a reshape; flags; number of warps."""
        if self._warps is None:
            self._warps = self._find_layout()
        return self._warps

    def _find_layout(self) -> tuple[Array | None, Array | None, int]:
        threads = self.chunk.threads
        if self.kind in ("full", "masked") and threads % WARP == 0:
            active = None if self.active is None else self.active.reshape(-1, WARP)
            return None, active, self.shape[0] * threads // WARP
        if self.kind == "product" and self._has_whole_warps():
            return None, None, self.shape[0] * self.shape[1] // WARP
        warps_per_cta = -(-threads // WARP)
        warp = self.row * warps_per_cta + self.col // WARP
        numbers, inverse = np.unique(np.broadcast_to(warp, self.shape), return_inverse=True)
        place = inverse.reshape(self.shape) * WARP + self.col % WARP
        flags = np.zeros(len(numbers) * WARP, dtype=np.bool_)
        taking_part = True if self.active is None else self.active.reshape(-1)
        flags[place.reshape(-1)] = taking_part
        return place, flags.reshape(-1, WARP), len(numbers)

    def _has_whole_warps(self) -> bool:
        cols = self.cols
        if cols is None:
            return bool(self.chunk.threads % WARP == 0)
        if len(cols) % WARP:
            return False
        by_warp = cols.reshape(-1, WARP)
        return bool((by_warp[:, 0] % WARP == 0).all() and (np.diff(by_warp) == 1).all())

    @property
    def warp_active(self) -> Array | None:
        """Flags (warps, 32) of the participating lanes, or None for all."""
        return self._layout()[1]

    @property
    def warp_count(self) -> int:
        """The number of warps with lanes in the set."""
        return self._layout()[2]

    def to_warps(self, value: Array) -> Array:
        """A value of these lanes as (warps, 32); other lanes hold unspecified values."""
        place, _, count = self._layout()
        wide = value if value.shape == self.shape else np.broadcast_to(value, self.shape)
        if place is None:
            return wide.reshape(count, WARP)
        spread = np.zeros(count * WARP, dtype=value.dtype)
        spread[place.reshape(-1)] = wide.reshape(-1)
        return spread.reshape(count, WARP)

    def from_warps(self, value: Array) -> Array:
        """The inverse of `to_warps`."""
        place = self._layout()[0]
        if place is None:
            return value.reshape(self.shape)
        return value.reshape(-1)[place.reshape(-1)].reshape(self.shape)


def blend(chosen: Array | None, new: Array, old: Array) -> Array:
    """`new` where chosen, else `old`."""
    if chosen is None:
        return new
    if chosen.size == 1:
        return new if chosen.item() else old
    if chosen.size < _MANY or new.dtype.kind == "c":
        return np.where(chosen, new, old)
    return _blend_bits(chosen, new, old)


def _blend_bits(chosen: Array, new: Array, old: Array) -> Array:
    """`blend` without a branch per element, which is slow for a mixed mask."""
    width = new.dtype.itemsize
    mask = chosen.view(np.int8).astype(f"i{width}")
    np.negative(mask, out=mask)
    kept = old.view(mask.dtype)
    picked: Array = kept ^ ((new.view(mask.dtype) ^ kept) & mask)
    return picked.view(new.dtype)


def _same(left: Array, right: Array) -> bool:
    return left.tobytes() == right.tobytes()


def _filled(value: Array, shape: tuple[int, int]) -> Array:
    filled = np.empty(shape, dtype=value.dtype)
    filled[...] = value
    return filled
