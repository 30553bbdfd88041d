"""Probes: single instructions over arrays of edge cases and random bits.

In: the index that `make_probes.py` wrote. Out: `Probe` records, their inputs (made anew from the
probe's name, the same bytes everywhere) and the places of results in the output buffer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import DATA, Case, Launch, Run
from tests.kernels.matrices import matrix_words
from tests.kernels.rng import Rng

U32 = np.uint32
DTYPES: dict[str, type] = {
    "u8": np.uint8,
    "s8": np.int8,
    "u16": np.uint16,
    "s16": np.int16,
    "b16": np.uint16,
    "u32": np.uint32,
    "s32": np.int32,
    "b32": np.uint32,
    "u64": np.uint64,
    "s64": np.int64,
    "b64": np.uint64,
    "f16": np.uint16,
    "bf16": np.uint16,
    "f32": np.uint32,
    "f64": np.uint64,
    "f16x2": np.uint32,
    "bf16x2": np.uint32,
    "fp8x2": np.uint16,
    "tf32": np.uint32,
}
# (exponent bits, mantissa bits)
FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
VALUES = (
    0.5,
    1.0,
    1.5,
    2.0,
    2.5,
    3.0,
    0.1,
    0.75,
    127.5,
    128.0,
    240.0,
    255.5,
    256.0,
    448.0,
    464.0,
    480.0,
    32767.5,
    32768.0,
    57344.0,
    61440.0,
    65504.0,
    65519.0,
    65520.0,
    65535.5,
    2147483648.0,
    4294967296.0,
    9.2233720368547758e18,
    1.8446744073709552e19,
    0.015625,
    0.0009765625,
    1e-6,
)
INTEGER_EDGES = (0, 1, 2, 3, 7, 31, 32, 63, 127, 128, 255, 256, 32767, 32768, 65535, 65536)


@dataclass(frozen=True, slots=True)
class Result:
    """One instruction of a probe kernel and where its results are in the output."""

    text: str
    kind: str
    offset: int
    count: int

    def view(self, out: NDArray[np.uint8]) -> NDArray:
        """The results, as unsigned or signed integers of the result's width."""
        dtype = np.dtype(DTYPES[self.kind])
        return out[self.offset : self.offset + self.count * dtype.itemsize].view(dtype)


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe kernel."""

    name: str
    module: str
    inputs: Sequence[dict[str, Any]]
    results: tuple[Result, ...]
    launch: dict[str, int]

    def build(self, rng: Rng) -> Run:
        """The inputs, drawn from a generator, and the launch."""
        arrays = [make_input(rng, entry, len(self.inputs)) for entry in self.inputs]
        arrays += [np.zeros(1, U32)] * (3 - len(arrays))
        last = self.results[-1]
        size = last.offset + last.count * np.dtype(DTYPES[last.kind]).itemsize
        buffers = {f"in{i}": array for i, array in enumerate(arrays)}
        buffers["out"] = np.zeros(-(-size // 16) * 16, np.uint8)
        blocks = self.launch.get("blocks", -(-self.launch["n"] // self.launch["threads"]))
        args = ["in0", "in1", "in2", "out", U32(self.launch["n"])]
        return Run(buffers, [Launch(self.name, blocks, self.launch["threads"], args)], {})

    @property
    def case(self) -> Case:
        """The probe as a case without expectations."""
        return Case(self.name, self.module, self.build)


def load_probes() -> tuple[Probe, ...]:
    """Every probe of the index."""
    index = json.loads((DATA / "probes.json").read_text())
    probes = []
    for name, entry in index.items():
        count = entry["launch"]["n"]
        results = tuple(Result(**({"count": count} | result)) for result in entry["results"])
        probes.append(Probe(name, entry["module"], entry["inputs"], results, entry["launch"]))
    return tuple(probes)


def make_input(rng: Rng, entry: dict[str, Any], inputs: int) -> NDArray:
    """One input array of a probe."""
    kind, count = entry["kind"], entry["count"]
    if kind.startswith("matrix_"):
        return matrix_words(rng, kind.removeprefix("matrix_"), count, entry["cases"])
    if kind.startswith("finite_"):
        return finite(rng, kind.removeprefix("finite_"), count)
    if kind in SPECIAL:
        return SPECIAL[kind](rng, count)
    if kind.endswith("x2"):
        half = {"fp8x2": "u8"}.get(kind, kind.removesuffix("x2"))
        pairs = scalars(rng, half, 2 * count, inputs)
        return pairs[np.argsort(rng.words(2 * count), kind="stable")].view(DTYPES[kind])
    return scalars(rng, kind, count, inputs)


def scalars(rng: Rng, kind: str, count: int, inputs: int) -> NDArray:
    """Edge cases first, then values of like magnitude, then random bits."""
    edges = float_edges(kind) if kind in FORMATS else integer_edges(kind)
    dtype = np.dtype(DTYPES[kind])
    if inputs == 1:
        first = edges[: count // 2]
    else:
        first = edges[rng.integers(0, len(edges), count // 2, dtype=np.int64)]
    rest = rng.bits(dtype.type, count - len(first))
    if kind in FORMATS:
        exponent_bits, mantissa_bits = FORMATS[kind]
        near = rest[: len(rest) // 2]
        bias = (1 << (exponent_bits - 1)) - 1
        exponent = rng.integers(bias - 6, bias + 7, len(near), dtype=dtype.type)
        keep = dtype.type(2 ** (8 * dtype.itemsize - 1) | (2**mantissa_bits - 1))
        near[:] = (near & keep) | (exponent << dtype.type(mantissa_bits))
    return np.concatenate([first, rest]).astype(dtype)


def float_edges(kind: str) -> NDArray:
    """Bit patterns of zeros, subnormals, limits, infinities, NaNs and well-known values."""
    exponent_bits, mantissa_bits = FORMATS[kind]
    top = (1 << exponent_bits) - 1
    smallest, infinity = 1 << mantissa_bits, top << mantissa_bits
    patterns = [0, 1, smallest - 1, smallest, smallest + 1, infinity - 1, infinity, infinity + 1]
    patterns += [infinity | smallest >> 1, infinity | (smallest - 1)]
    one = (top >> 1) << mantissa_bits
    patterns += [one - 1, one + 1, one | smallest >> 1]
    patterns += [encode(value, kind) for value in VALUES]
    sign = 1 << (exponent_bits + mantissa_bits)
    return np.array([p for pattern in patterns for p in (pattern, pattern | sign)], DTYPES[kind])


def encode(value: float, kind: str) -> int:
    """The bits of a value, cut to the format."""
    wide = {"f16": np.float16, "f64": np.float64}.get(kind, np.float32)
    with np.errstate(over="ignore"):
        bits = int.from_bytes(np.array(value).astype(wide).tobytes(), "little")
    return bits >> 16 if kind == "bf16" else bits


def integer_edges(kind: str) -> NDArray:
    """Small numbers and powers of two, and what is next to the limits."""
    dtype = np.dtype(DTYPES[kind])
    bits = 8 * dtype.itemsize
    values = (
        set(INTEGER_EDGES)
        | {2**k for k in range(0, bits, 5)}
        | {2**k - 1 for k in range(1, bits, 6)}
    )
    values |= {
        2 ** (bits - 1) - 1,
        2 ** (bits - 1),
        2**bits - 1,
        2**bits - 2,
        0x5A5A5A5A5A5A5A5A,
        0x0123456789ABCDEF,
    }
    unsigned = np.array(sorted({value % 2**bits for value in values}), np.uint64)
    return unsigned.astype(f"u{dtype.itemsize}").view(dtype)


def finite(rng: Rng, kind: str, count: int) -> NDArray:
    """Numbers for atomics: no NaN or infinity, so that a running sum stays telling."""
    base = kind.removesuffix("x2")
    per = 2 if kind.endswith("x2") else 1
    if base not in FORMATS:
        values = scalars(rng, base, count, 2)
        values[count // 2 :] %= DTYPES[base](50)
        return values
    exponent_bits, mantissa_bits = FORMATS[base]
    dtype = DTYPES[base]
    words = rng.bits(dtype, count * per)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = rng.integers(bias - 4, bias + 5, count * per, dtype=dtype)
    exponent[: count * per // 3] = rng.integers(0, 3, count * per // 3, dtype=dtype)
    keep = dtype(1 << (exponent_bits + mantissa_bits) | ((1 << mantissa_bits) - 1))
    values = (words & keep) | (exponent << dtype(mantissa_bits))
    return values.view(DTYPES[kind])


def shift(rng: Rng, count: int) -> NDArray:
    """Shift amounts and field positions: mostly in range, some far beyond."""
    values = rng.integers(0, 72, count, dtype=U32)
    values[::17] = rng.bits(U32, values[::17].size)
    return values


def clamp(rng: Rng, count: int) -> NDArray:
    """Third operands of shfl: segment mask and clamp, both random, with the usual ones."""
    values = rng.bits(U32, count) & U32(0x1F1F)
    usual = np.array([0x001F, 0x0000, 0x101F, 0x181F, 0x1C1F, 0x1E00, 0x1000], U32)
    values[: count // 2] = usual[np.arange(count // 2) // 32 % usual.size]
    return values


def flag(rng: Rng, count: int) -> NDArray:
    """Per warp: all equal, all zero, or mixed small values."""
    values = rng.integers(0, 5, count, dtype=U32)
    warp = np.arange(count) // 32
    values[warp % 4 == 0] = 3
    values[warp % 4 == 1] = 0
    return values


SPECIAL: dict[str, Callable[[Rng, int], NDArray]] = {
    "shift": shift,
    "clamp": clamp,
    "flag": flag,
    "selector": lambda rng, count: rng.bits(U32, count),
    "lane": lambda rng, count: rng.integers(0, 40, count, dtype=U32),
    "offset": lambda rng, count: rng.integers(-6, 7, count, dtype=np.int32),
}
