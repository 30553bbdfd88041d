"""a * b + c in float64, block by block in reused memory, for the formats whose products it holds.

The product of two f32 (or shorter) values is exact in float64; the sum is rounded once, and the
caller's `finish` rounds it to the destination and looks after the lanes where two roundings could
differ from one.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.numerics.bits import BLOCK, Bits
from tessera.backend.ptx_executor.numerics.rounding import F64, odd_sum

F32 = NDArray[np.float32]
Operands = tuple[F32, F32, F32]


def fused(
    x: F32,
    y: F32,
    z: F32,
    finish: Callable[[F64, F64, Operands], Bits],
    dtype: np.dtype[np.unsignedinteger],
) -> Bits:
    """`finish(total, scratch, operands)` for each block of lanes, put together."""
    shape = np.broadcast_shapes(x.shape, y.shape, z.shape)
    flat = [
        part.reshape(-1) if part.size == 1 else np.broadcast_to(part, shape).reshape(-1)
        for part in (x, y, z)
    ]
    count = math.prod(shape)
    result = np.empty(count, dtype)
    size = min(count, BLOCK)
    total, scratch = np.empty(size), np.empty(size)
    for start in range(0, count, BLOCK):
        stop = min(start + BLOCK, count)
        a, b, c = (part if part.size == 1 else part[start:stop] for part in flat)
        p, q = total[: stop - start], scratch[: stop - start]
        np.copyto(p, a)
        np.copyto(q, b)
        np.multiply(p, q, out=p)
        np.copyto(q, c)
        np.add(p, q, out=p)
        result[start:stop] = finish(p, q, (a, b, c))
    return result.reshape(shape)


def exact_sum(operands: Operands, where: NDArray[np.intp], shape: tuple[int, ...]) -> F64:
    """The odd-rounded sum of some lanes of a block."""
    x, y, z = (np.broadcast_to(part, shape)[where].astype(np.float64) for part in operands)
    return odd_sum(x * y, z)
