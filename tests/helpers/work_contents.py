"""What is in the buffers of a work at first, made from names; needs NumPy only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.compiled.launch_files import BYTES
from tests.helpers.region_check import Bytes


def bytes_for(name: str, size: int) -> Bytes:
    """Random bytes, or small words, which come to more places."""
    rng = np.random.default_rng([*name.encode()])
    if rng.random() < 0.5:
        return rng.integers(0, 256, size, np.uint8)
    words = rng.integers(0, 9, -(-size // 4), np.uint32)
    return words.view(np.uint8)[:size].copy()


def numbers_for(name: str, kind: str, count: int, given: Sequence[float] | None) -> NDArray:
    """Numbers that are given, or small ones of the type."""
    if given is not None:
        types = {"i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8}
        return np.array(given, {"fp32": np.float32, "fp64": np.float64}.get(kind) or types[kind])
    raw = hashlib.shake_128(name.encode()).digest(count)
    small = np.frombuffer(raw, np.uint8).astype(np.int64)
    match kind:
        case "fp64" | "fp32" | "fp16":
            return ((small - 128) / 32).astype({"fp64": "f8", "fp32": "f4", "fp16": "f2"}[kind])
        case "bf16":
            bits = ((small - 128) / 32).astype(np.float32).view(np.uint32)
            return (bits >> 16).astype(np.uint16)
        case "fp8e4nv" | "fp8e5":
            return (small & 0xB7).astype(np.uint8)
    width = BYTES[kind]
    signed = (small - 128) if kind[0] == "i" else small
    return signed.astype(f"{'i' if kind[0] == 'i' else 'u'}{width}")
