"""Operands of matrix probes: cases that tell how a tensor core rounds and adds.

Each case draws its elements from one of eight families, so that a difference found in one
family says what kind of sum is treated differently.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.kernels.formats import to_e4m3, to_e5m2
from tests.kernels.rng import Rng

# (exponent bits, mantissa bits, dtype)
LAYOUTS: dict[str, tuple[int, int, type]] = {
    "f16": (5, 10, np.uint16),
    "bf16": (8, 7, np.uint16),
    "tf32": (8, 23, np.uint32),
    "f32": (8, 23, np.uint32),
    "f64": (11, 52, np.uint64),
    "e4m3": (4, 3, np.uint8),
    "e5m2": (5, 2, np.uint8),
}
FAMILIES = 8


def matrix_words(rng: Rng, kind: str, words: int, cases: int) -> NDArray:
    """`words` 32-bit words (64-bit for f64), case after case."""
    if kind in ("b32", "s32"):
        values = rng.bits(np.uint32, words)
        if kind == "s32":
            values[words // 2 :] = rng.integers(-9999, 9999, words - words // 2).view(np.uint32)
        return values
    _, _, dtype = LAYOUTS[kind]
    per_word = max(1, 4 // np.dtype(dtype).itemsize)
    per_case = words * per_word // cases
    rows = [family(rng, kind, case % FAMILIES, per_case) for case in range(cases)]
    flat = np.concatenate(rows).astype(dtype)
    return flat if kind == "f64" else flat.view(np.uint32)


def family(rng: Rng, kind: str, number: int, count: int) -> NDArray:
    """Bit patterns of one case."""
    exponent_bits, mantissa_bits, dtype = LAYOUTS[kind]
    bias = (1 << (exponent_bits - 1)) - 1
    top = (1 << exponent_bits) - 2
    if number == 0:
        return ordinary(rng, kind, count)
    if number == 1:
        return assemble(rng, kind, rng.integers(1, top, count, dtype=np.int64))
    if number == 2:
        return assemble(rng, kind, rng.integers(bias - 3, bias + 4, count, dtype=np.int64))
    if number == 3:
        powers = assemble(
            rng, kind, rng.integers(max(1, bias - 12), min(top, bias + 12), count, dtype=np.int64)
        )
        return powers & dtype(~((1 << mantissa_bits) - 1) % 2 ** (8 * np.dtype(dtype).itemsize))
    if number == 4:
        return assemble(rng, kind, rng.integers(0, 3, count, dtype=np.int64))
    if number == 5:
        return small_integers(rng, kind, count)
    if number == 6:
        return rng.bits(dtype, count)
    sparse = assemble(
        rng, kind, rng.integers(max(1, bias - 14), min(top, bias + 14), count, dtype=np.int64)
    )
    return np.where(rng.integers(0, 4, count) == 0, sparse, dtype(0))


def assemble(rng: Rng, kind: str, exponent: NDArray) -> NDArray:
    """Random signs and mantissas with the given exponent fields."""
    exponent_bits, mantissa_bits, dtype = LAYOUTS[kind]
    bits = rng.bits(dtype, exponent.size)
    keep = dtype(1 << (exponent_bits + mantissa_bits) | ((1 << mantissa_bits) - 1))
    return (bits & keep) | (exponent.astype(dtype) << dtype(mantissa_bits))


def ordinary(rng: Rng, kind: str, count: int) -> NDArray:
    """Uniform in [-1, 1)."""
    return to_bits(rng.f32(count), kind)


def small_integers(rng: Rng, kind: str, count: int) -> NDArray:
    """Integers whose products and sums are exact."""
    return to_bits(rng.integers(-8, 9, count).astype(np.float32), kind)


def to_bits(values: NDArray[np.float32], kind: str) -> NDArray:
    """f32 values as bit patterns of a kind, cut or rounded."""
    if kind == "f64":
        return values.astype(np.float64).view(np.uint64)
    if kind == "f16":
        return values.astype(np.float16).view(np.uint16)
    if kind == "bf16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if kind in ("e4m3", "e5m2"):
        return (to_e4m3 if kind == "e4m3" else to_e5m2)(values)
    return values.view(np.uint32)
