"""Float formats that NumPy lacks, as bit patterns: bf16, tf32, FP8 E4M3 and E5M2.

Encoding rounds to nearest even; FP8 encoding saturates to the largest finite value, as
`cvt.rn.satfinite` does. Written apart from the backend's own numerics on purpose: a test that
shares the code it tests proves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_bf16(values: NDArray) -> NDArray[np.uint16]:
    """f32 values as bfloat16 bits, rounded to nearest even."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = (bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, 0x7FFF, rounded).astype(np.uint16)


def from_bf16(bits: NDArray) -> NDArray[np.float32]:
    """bfloat16 bits as f32 values."""
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)


def to_tf32(values: NDArray) -> NDArray[np.float32]:
    """f32 values with the mantissa cut to ten bits, as a tensor core reads them."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def fp8_table(exponent_bits: int, mantissa_bits: int, bias: int) -> NDArray[np.float32]:
    """The value of each of the 256 bit patterns."""
    codes = np.arange(256)
    exponent = (codes >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = codes & ((1 << mantissa_bits) - 1)
    fraction = mantissa / 2.0**mantissa_bits
    normal = (1 + fraction) * 2.0 ** (exponent - bias)
    values = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), normal)
    values = np.where(codes & 0x80, -values, values)
    if exponent_bits == 4:
        values[[0x7F, 0xFF]] = np.nan
    else:
        special = exponent == 31
        values[special] = np.where(
            mantissa[special] != 0, np.nan, np.copysign(np.inf, values)[special]
        )
    return values.astype(np.float32)


E4M3 = fp8_table(4, 3, 7)
E5M2 = fp8_table(5, 2, 15)


def encode_fp8(values: NDArray, table: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The nearest finite pattern of `table`; ties go to the even one."""
    finite = np.nonzero(np.isfinite(table[:128]))[0]
    grid = table[finite].astype(np.float64)
    size = np.minimum(np.abs(np.asarray(values, dtype=np.float64)), grid[-1])
    upper = np.clip(np.searchsorted(grid, size), 1, len(grid) - 1)
    below, above = size - grid[upper - 1], grid[upper] - size
    take_upper = (above < below) | ((above == below) & (upper % 2 == 0))
    code = np.where(take_upper, upper, upper - 1)
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def to_e4m3(values: NDArray) -> NDArray[np.uint8]:
    """Values as FP8 E4M3 bits."""
    return encode_fp8(values, E4M3)


def to_e5m2(values: NDArray) -> NDArray[np.uint8]:
    """Values as FP8 E5M2 bits."""
    return encode_fp8(values, E5M2)


def from_e4m3(bits: NDArray) -> NDArray[np.float32]:
    """FP8 E4M3 bits as f32 values."""
    return E4M3[bits]


def from_e5m2(bits: NDArray) -> NDArray[np.float32]:
    """FP8 E5M2 bits as f32 values."""
    return E5M2[bits]


DECODE = {"bf16": from_bf16, "e4m3": from_e4m3, "e5m2": from_e5m2}
