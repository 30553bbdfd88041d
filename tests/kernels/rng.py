"""Seeded inputs that are the same bytes on every machine and every NumPy version.

In: a name. Out: arrays. The generator is splitmix64 over a counter, in integer arithmetic only;
floats are made from its bits by exact operations, so no mathematical library takes part.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from tests.kernels.formats import to_bf16, to_e4m3, to_e5m2

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)


class Rng:
    """A stream of random words, started from a name."""

    def __init__(self, name: str) -> None:
        digest = hashlib.sha256(name.encode()).digest()
        self.state = np.uint64(int.from_bytes(digest[:8], "little"))

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` 64-bit words."""
        with np.errstate(over="ignore"):
            steps = np.arange(1, count + 1, dtype=np.uint64) * GAMMA + self.state
            self.state = steps[-1] if count else self.state
            z = (steps ^ (steps >> np.uint64(30))) * MIX_1
            z = (z ^ (z >> np.uint64(27))) * MIX_2
        return z ^ (z >> np.uint64(31))

    def bits(self, dtype: type, *shape: int) -> NDArray:
        """Uniform random bits, viewed as `dtype`: for floats this includes NaN and subnormals."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        words = self.words(-(-size // 8))
        return words.view(np.uint8)[:size].copy().view(dtype).reshape(shape)

    def integers(self, low: int, high: int, *shape: int, dtype: type = np.int32) -> NDArray:
        """Integers in [low, high)."""
        span = np.uint64(high - low)
        values = (self.words(int(np.prod(shape))) % span).astype(np.int64) + low
        return values.astype(dtype).reshape(shape)

    def unit(self, *shape: int) -> NDArray[np.float64]:
        """Uniform in [0, 1) with 24 significant bits: exact in f32 and f64."""
        words = self.words(int(np.prod(shape))) >> np.uint64(40)
        return (words.astype(np.float64) * 2.0**-24).reshape(shape)

    def f32(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.float32]:
        """Uniform in [low, high)."""
        return (self.unit(*shape) * (high - low) + low).astype(np.float32)

    def f64(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.float64]:
        """Uniform in [low, high) with all bits of a double in use."""
        fine = self.unit(*shape) + self.unit(*shape) * 2.0**-24
        return fine * (high - low) + low

    def f16(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.float16]:
        """Uniform in [low, high), rounded to half precision."""
        return self.f32(*shape, low=low, high=high).astype(np.float16)

    def bf16(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.uint16]:
        """Uniform in [low, high), as bfloat16 bits."""
        return to_bf16(self.f32(*shape, low=low, high=high))

    def e4m3(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.uint8]:
        """Uniform in [low, high), as FP8 E4M3 bits."""
        return to_e4m3(self.f32(*shape, low=low, high=high))

    def e5m2(self, *shape: int, low: float = -1.0, high: float = 1.0) -> NDArray[np.uint8]:
        """Uniform in [low, high), as FP8 E5M2 bits."""
        return to_e5m2(self.f32(*shape, low=low, high=high))

    def permutation(self, count: int) -> NDArray[np.int32]:
        """A permutation of 0..count-1."""
        return np.argsort(self.words(count), kind="stable").astype(np.int32)
