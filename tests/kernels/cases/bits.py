"""Integer division, wide arithmetic and bit manipulation."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Case, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def divide32(rng: Rng) -> Run:
    n = 300
    a, b = rng.bits(I32, n), rng.bits(I32, n) >> rng.integers(0, 31, n)
    b[b == 0] = 3
    a[:2], b[:2] = [-(2**31), 7], [1, -1]
    q = np.array([math.trunc(x / y) for x, y in zip(a.tolist(), b.tolist(), strict=True)], I32)
    ua, ub = a.view(np.uint32), b.view(np.uint32)
    expected = {"q": q, "r": (a - q * b).astype(I32), "uq": ua // ub, "ur": ua % ub}
    buffers = {name: np.zeros_like(value) for name, value in expected.items()} | {"a": a, "b": b}
    launch = Launch("divide32", 3, 128, ["q", "r", "uq", "ur", "a", "b", I32(n)])
    return Run(buffers, [launch], expected)


def divide64(rng: Rng) -> Run:
    n = 200
    a = rng.bits(np.int64, n)
    b = rng.bits(np.int64, n) >> rng.integers(0, 63, n, dtype=np.int64)
    b[b == 0] = 5
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    q = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    expected = {"q": np.array(q, np.int64), "ur": a.view(np.uint64) % b.view(np.uint64)}
    buffers = {"q": np.zeros(n, np.int64), "ur": np.zeros(n, np.uint64), "a": a, "b": b}
    return Run(buffers, [Launch("divide64", 2, 128, ["q", "ur", "a", "b", I32(n)])], expected)


def divide_constant(rng: Rng) -> Run:
    n = 300
    a = rng.bits(np.uint32, n)
    values = []
    for u, s in zip(a.tolist(), a.view(I32).tolist(), strict=True):
        tens = int(s / 10)
        rest = s - int(s / 3) * 3
        values.append((u // 7 + u % 1000 + tens + rest) % 2**32)
    launch = Launch("divide_constant", 3, 128, ["out", "a", I32(n)])
    return Run(
        {"out": np.zeros(n, np.uint32), "a": a}, [launch], {"out": np.array(values, np.uint32)}
    )


def wide(rng: Rng) -> Run:
    n = 100
    a, b = rng.bits(np.uint64, n), rng.bits(np.uint64, n)
    values = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        product = (x * y + x) % 2**128
        values += [product % 2**64, product >> 64]
    launch = Launch("wide", 1, 128, ["out", "a", "b", I32(n)])
    buffers = {"out": np.zeros(2 * n, np.uint64), "a": a, "b": b}
    return Run(buffers, [launch], {"out": np.array(values, np.uint64)})


def bit_counts(value: int, width: int) -> list[int]:
    """clz, popc, brev and ffs of a word."""
    first = (value & -value).bit_length()
    reverse = int(f"{value:0{width}b}"[::-1], 2)
    return [width - value.bit_length(), value.bit_count(), reverse, first]


def counts(rng: Rng) -> Run:
    n = 90
    a = rng.bits(np.uint64, n) >> rng.integers(0, 64, n, dtype=np.uint64)
    a[:3] = [0, 2**32, 2**64 - 1]
    rows = []
    for value in a.tolist():
        high = bit_counts(value, 64)
        high[2] >>= 32
        rows.append(bit_counts(value % 2**32, 32) + high)
    expected = np.array(rows, np.int64).astype(np.uint32).view(I32)
    launch = Launch("counts", 1, 96, ["out", "a", I32(n)])
    return Run({"out": np.zeros((n, 8), I32), "a": a}, [launch], {"out": expected})


def lanes(value: int, width: int, signed: bool) -> list[int]:
    """The fields of a 32-bit word."""
    fields = [(value >> at) % 2**width for at in range(0, 32, width)]
    return [f - 2**width if signed and f >> (width - 1) else f for f in fields]


def join(fields: list[int], width: int) -> int:
    return sum(field % 2**width << (width * i) for i, field in enumerate(fields))


def signed(value: int, width: int = 32) -> int:
    return value - 2**width if value >> (width - 1) else value


def mixed(x: int, y: int, z: int) -> list[int]:
    """The twelve results of the kernel `mixes`."""
    pair = y << 32 | x
    eight = lanes(x, 8, False) + lanes(y, 8, False)
    sx, sy = signed(x), signed(y)
    dot_s = sum(a * b for a, b in zip(lanes(x, 8, True), lanes(y, 8, True), strict=True))
    dot_u = sum(a * b for a, b in zip(lanes(x, 8, False), lanes(y, 8, False), strict=True))
    halves, bytes_ = lanes(x, 16, True), lanes(y, 8, True)
    add4 = join([a + b for a, b in zip(eight[:4], eight[4:], strict=True)], 8)
    y2, z2, x2 = lanes(y, 16, False), lanes(z, 16, False), lanes(x, 16, False)
    absdiff = join([abs(a - b) for a, b in zip(y2, z2, strict=True)], 16)
    max4 = join([max(a, b) for a, b in zip(lanes(x, 8, True), lanes(z, 8, True), strict=True)], 8)
    greater = join([0xFFFF if a > b else 0 for a, b in zip(x2, y2, strict=True)], 16)
    m24 = signed(x % 2**24, 24) * signed(y % 2**24, 24) + (y % 2**24) * (z % 2**24)
    results = [
        (pair << (z & 31)) >> 32,
        pair >> min(z, 32),
        join([eight[(z >> (4 * i)) & 7] for i in range(4)], 8),
        dot_s + z,
        dot_u + z,
        halves[0] * bytes_[0] + halves[1] * bytes_[1] + z,
        (x * y >> 32) + (sx * sy >> 32),
        abs(x - y) + z + abs(sx - sy) + z,
        add4 ^ absdiff,
        ((x + y) >> 1) + ((sx + sy + 1) >> 1),
        m24,
        max4 + greater,
    ]
    return [result % 2**32 for result in results]


def mixes(rng: Rng) -> Run:
    n = 70
    a, b, c = (rng.bits(np.uint32, n) for _ in range(3))
    c[::3] &= 63
    # A selector with its top bits set replicates signs; `__byte_perm` takes only three bits.
    rows = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    expected = np.array([mixed(*row) for row in rows], np.uint32)
    launch = Launch("mixes", 2, 64, ["out", "a", "b", "c", I32(n)])
    buffers = {"out": np.zeros((n, 12), np.uint32), "a": a, "b": b, "c": c}
    return Run(buffers, [launch], {"out": expected})


def gcd_lcm(rng: Rng) -> Run:
    n = 130
    a, b = rng.integers(0, 5000, n, dtype=np.uint32), rng.integers(0, 700, n, dtype=np.uint32)
    pairs = zip(a.tolist(), b.tolist(), strict=True)
    expected = np.array([math.lcm(x, y) if x or y else 0 for x, y in pairs], np.uint64)
    launch = Launch("gcd_lcm", 2, 96, ["out", "a", "b", I32(n)])
    return Run({"out": np.zeros(n, np.uint64), "a": a, "b": b}, [launch], {"out": expected})


def murmur_hash(text: NDArray[np.uint8]) -> int:
    mask = 2**32 - 1
    h, body = 0x9747B28C, len(text) & ~3
    for k in range(0, body, 4):
        w = int.from_bytes(text[k : k + 4].tobytes(), "little") * 0xCC9E2D51 & mask
        w = (w << 15 | w >> 17) & mask
        h ^= w * 0x1B873593 & mask
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    for byte in text[body:].tolist():
        h = (h ^ byte) * 16777619 & mask
    return h ^ len(text)


def murmur(rng: Rng) -> Run:
    n = 60
    text = rng.bits(np.uint8, 1000)
    offsets = np.sort(rng.integers(0, 1000, n + 1))
    pieces = [text[offsets[i] : offsets[i + 1]] for i in range(n)]
    expected = np.array([murmur_hash(piece) for piece in pieces], np.uint32)
    launch = Launch("murmur", 1, 64, ["out", "text", "offsets", I32(n)])
    buffers = {"out": np.zeros(n, np.uint32), "text": text, "offsets": offsets}
    return Run(buffers, [launch], {"out": expected})


BUILDERS = (divide32, divide64, divide_constant, wide, counts, mixes, gcd_lcm, murmur)
CASES = tuple(Case(build.__name__, "bits", build) for build in BUILDERS)
