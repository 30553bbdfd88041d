"""The bytes of a tensor operand of a library call.

Source: the strides of `ir.program.program.Operand`.
"""

from __future__ import annotations

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.ir.program.program import Operand
from tessera.passes.byte_sets import intervals

_MOST = 1 << 20


def operand_bytes(operand: Operand) -> Ranges:
    """Runs of bytes; past a limit, everything from the first to the last."""
    if 0 in operand.shape:
        return intervals.EMPTY
    width = operand.dtype.bytes
    dimensions = sorted(
        (stride * width, count)
        for stride, count in zip(operand.element_strides(), operand.shape, strict=True)
        if stride and count > 1
    )
    starts = np.array([operand.pointer.offset], dtype=np.int64)
    run = width
    for stride, count in dimensions:
        if stride <= run and len(starts) == 1:
            run = stride * (count - 1) + run
            continue
        if len(starts) * count > _MOST:
            start = operand.pointer.offset
            return intervals.interval(start, start + operand.extent_bytes())
        steps = np.arange(count, dtype=np.int64) * stride
        starts = (starts[None, :] + steps[:, None]).ravel()
    return intervals.words(starts, run)
