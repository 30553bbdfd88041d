"""The bytes of boxes of a tensor that a tensor map describes.

In: a `TensorMap`, and per box the first element and the end along every axis (axis 0 is the
fastest). Out: intervals of offsets from the tensor's address. A box is clipped to the tensor, as
the hardware does: what lies outside is neither read nor written.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from math import prod

import numpy as np

from tessera.ir.tensor_map import TensorMap
from tessera.passes import intervals
from tessera.passes.lanes import Array

_MOST_ROWS = 1 << 20


def box_bytes(found: TensorMap, starts: Array, ends: Array) -> Array | None:
    """The bytes of boxes; None where they have too many rows to list.

    `starts` and `ends` have one row per box and one column per axis.
    """
    dims = np.array(found.dims, dtype=np.int64)
    low, high = np.clip(starts, 0, dims), np.clip(ends, 0, dims)
    some = (low < high).all(axis=1)
    both = np.unique(np.concatenate([low[some], high[some]], axis=1), axis=0)
    low, high = both[:, : len(dims)], both[:, len(dims) :]
    if len(low) == 0:
        return intervals.EMPTY
    counts = (high - low).max(axis=0)
    if len(low) * prod(int(count) for count in counts[1:]) > _MOST_ROWS:
        return None
    width = found.element_bytes
    rows = low[:, 0] * width
    lengths = (high[:, 0] - low[:, 0]) * width
    for axis in range(1, len(dims)):
        index = low[:, axis, None] + np.arange(counts[axis])
        inside = index < high[:, axis, None]
        boxes = np.nonzero(inside)[0]
        rows = rows[boxes] + index[inside] * found.strides[axis - 1]
        lengths, low, high = lengths[boxes], low[boxes], high[boxes]
    return intervals.union([np.stack([rows, rows + lengths], axis=1)])


def tensor_bytes(found: TensorMap) -> Array:
    """Every byte of the tensor; with too many rows, everything from the first to the last."""
    everything = np.array([found.dims], dtype=np.int64)
    rows = box_bytes(found, np.zeros_like(everything), everything)
    if rows is not None:
        return rows
    reach = found.dims[0] * found.element_bytes
    reach += sum((d - 1) * s for d, s in zip(found.dims[1:], found.strides, strict=True))
    return intervals.interval(0, reach)
