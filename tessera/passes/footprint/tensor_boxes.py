"""The bytes of boxes of a tensor that a tensor map describes.

In: a `TensorMap`, and per box the first element and the end along every axis (axis 0 is the
fastest). Out: intervals of offsets from the tensor's address. A box is clipped to the tensor, as
the hardware does: what lies outside is neither read nor written.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

import numpy as np

from tessera.ir.arrays import Offsets, Ranges
from tessera.ir.program.tensor_map import TensorMap
from tessera.passes.byte_sets import intervals

_MOST_ROWS = 1 << 20


def box_bytes(tensor_map: TensorMap, starts: Offsets, ends: Offsets) -> Ranges | None:
    """The bytes of boxes; None where they have too many rows to list.

    `starts` and `ends` have one row per box and one column per axis.
    """
    dims = np.array(tensor_map.dims, dtype=np.int64)
    low, high = np.clip(starts, 0, dims), np.clip(ends, 0, dims)
    some = (low < high).all(axis=1)
    low, high = low[some], high[some]
    if len(low) == 0:
        return intervals.EMPTY
    # In a loop the same boxes come again, moved: what they are made of is worked out once.
    base = low.min(axis=0)
    steps = (tensor_map.element_bytes, *tensor_map.strides)
    rows = _rows(steps, (low - base).tobytes(), (high - low).tobytes())
    return None if rows is None else intervals.shift(rows, int((base * np.array(steps)).sum()))


@lru_cache(maxsize=256)
def _rows(steps: tuple[int, ...], first: bytes, size: bytes) -> Ranges | None:
    """The bytes of boxes, given by the bytes of their first elements and of their sizes."""
    axes = len(steps)
    table = np.concatenate(
        [np.frombuffer(part, dtype=np.int64).reshape(-1, axes) for part in (first, size)], axis=1
    )
    table = np.unique(table, axis=0)
    low, counts = table[:, :axes], table[:, axes:]
    most = counts.max(axis=0)
    if len(low) * prod(int(count) for count in most[1:]) > _MOST_ROWS:
        return None
    rows, lengths = low[:, 0] * steps[0], counts[:, 0] * steps[0]
    for axis in range(1, axes):
        index = np.broadcast_to(np.arange(most[axis]), (len(low), int(most[axis])))
        inside = index < counts[:, axis, None]
        boxes = np.nonzero(inside)[0]
        rows = rows[boxes] + (low[boxes, axis] + index[inside]) * steps[axis]
        lengths, low, counts = lengths[boxes], low[boxes], counts[boxes]
    return intervals.union([np.stack([rows, rows + lengths], axis=1)])


def tensor_bytes(tensor_map: TensorMap) -> Ranges:
    """Every byte of the tensor; with too many rows, everything from the first to the last."""
    everything = np.array([tensor_map.dims], dtype=np.int64)
    rows = box_bytes(tensor_map, np.zeros_like(everything), everything)
    if rows is not None:
        return rows
    reach = tensor_map.dims[0] * tensor_map.element_bytes
    reach += sum((d - 1) * s for d, s in zip(tensor_map.dims[1:], tensor_map.strides, strict=True))
    return intervals.interval(0, reach)
