"""Constant memory, module variables, vector accesses, byte kernels, cp.async."""

from __future__ import annotations

import numpy as np

from tests.kernels.case import Case, Expect, Launch, Run
from tests.kernels.rng import Rng

I32 = np.int32


def blur(rng: Rng) -> Run:
    n = 205
    x = rng.f32(n)
    padded = np.pad(x.astype(np.float64), 2, mode="edge")
    weights = [0.0625, 0.25, 0.375, 0.25, 0.0625]
    blurred = sum(w * padded[k : k + n] for k, w in enumerate(weights))
    i = np.arange(n)
    expected = blurred + np.array([[1, 2, 3, 4], [-1, -2, -3, -4]])[i & 1, i & 3]
    launch = Launch("blur", 4, 64, ["out", "x", I32(n)])
    buffers = {"out": np.zeros(n, np.float32), "x": x}
    return Run(buffers, [launch], {"out": Expect(expected, rtol=1e-6, atol=1e-6)})


def module_globals(rng: Rng) -> Run:
    """Module variables keep what one launch wrote for the next."""
    x = rng.f32(64)
    launches = [
        Launch("write_global", 1, 64, ["x"]),
        Launch("write_global", 1, 64, ["x"]),
        Launch("read_global", 1, 64, ["out", "count", "text"]),
    ]
    buffers = {
        "x": x,
        "out": np.zeros(64, np.float32),
        "count": np.zeros(2, I32),
        "text": np.zeros(8, np.uint8),
    }
    expected = {
        "out": (x * 2)[::-1].copy(),
        "count": np.array([43, ord("o") + ord("o")], I32),
        "text": np.frombuffer(b"tessera\0", np.uint8),
    }
    return Run(buffers, launches, expected)


def vectors(rng: Rng) -> Run:
    n = 70
    v, color, pair = rng.f32(n, 4), rng.bits(np.uint8, n, 4), rng.f64(n, 2)
    c, narrow = color.astype(np.float32), pair.astype(np.float32)
    columns = [v[:, 3] + c[:, 0], v[:, 2] * c[:, 1], narrow[:, 0] + c[:, 2], narrow[:, 1] - c[:, 3]]
    launch = Launch("vectors", 2, 64, ["out", "v", "color", "pair", I32(n)])
    buffers = {"out": np.zeros((n, 4), np.float32), "v": v, "color": color, "pair": pair}
    return Run(buffers, [launch], {"out": np.stack(columns, 1)})


def copy_bytes(rng: Rng) -> Run:
    x = rng.bits(np.uint8, 1003)
    launch = Launch("copy_bytes", 1, 64, ["out", "x", I32(1003)])
    return Run({"out": np.zeros_like(x), "x": x}, [launch], {"out": x})


def rgb_to_gray(rng: Rng) -> Run:
    rgb = rng.bits(np.uint8, 333, 3)
    gray = (rgb.astype(I32) @ np.array([77, 150, 29], I32) + 128) >> 8
    launch = Launch("rgb_to_gray", 3, 128, ["gray", "rgb", I32(333)])
    buffers = {"gray": np.zeros(333, np.uint8), "rgb": rgb}
    return Run(buffers, [launch], {"gray": gray.astype(np.uint8)})


def rgb_to_yuv(rng: Rng) -> Run:
    rgb = rng.bits(np.uint8, 200, 3)
    r, g, b = rgb.astype(np.float64).T
    y = 0.299 * r + 0.587 * g + 0.114 * b
    u = np.clip((b - y) * 0.00221 + 0.5, 0, 1) * 255
    v = np.clip((r - y) * 0.0028 + 0.5, 0, 1) * 255
    expected = np.rint(np.stack([y, u, v], 1))
    launch = Launch("rgb_to_yuv", 2, 128, ["yuv", "rgb", I32(200)])
    buffers = {"yuv": np.zeros((200, 3), np.uint8), "rgb": rgb}
    # f32 rounding may move a value across a tie.
    return Run(buffers, [launch], {"yuv": Expect(expected, atol=1)})


def lengths(rng: Rng) -> Run:
    words = [b"x" * int(k) for k in rng.integers(0, 40, 50)]
    pool = np.frombuffer(b"\0".join(words) + b"\0", np.uint8)
    sizes = np.array([len(word) for word in words], I32)
    starts = (np.cumsum(sizes + 1) - sizes - 1).astype(I32)
    launch = Launch("lengths", 1, 64, ["out", "pool", "starts", I32(50)])
    return Run({"out": np.zeros(50, I32), "pool": pool, "starts": starts}, [launch], {"out": sizes})


def upper_case(rng: Rng) -> Run:
    text = rng.bits(np.uint8, 300)
    low = (text >= ord("a")) & (text <= ord("z"))
    expected = np.where(low, text - 32, text).astype(np.uint8)
    launch = Launch("upper_case", 2, 192, ["text", I32(300)])
    return Run({"text": text}, [launch], {"text": expected})


def zero_fill(rng: Rng) -> Run:
    n = 197
    x = rng.bits(I32, n)
    expected = np.zeros(256, I32)
    expected[:n] = x
    launch = Launch("zero_fill", 1, 32, ["out", "x", I32(n)])
    # The copy addresses are rounded up to 16 bytes; one spare row keeps them inside the buffer.
    return Run({"out": np.full(256, 9, I32), "x": np.pad(x, (0, 59))}, [launch], {"out": expected})


def caches(rng: Rng) -> Run:
    n = 100
    x = rng.f32(n)
    expected = ((x + x[::-1]) + x) * np.float32(2)
    buffers = {"out": np.zeros(n, np.float32), "x": x, "bounce": np.zeros(n, np.float32)}
    launch = Launch("caches", 2, 64, ["out", "x", "bounce", I32(n)])
    return Run(buffers, [launch], {"out": expected})


BUILDERS = (
    blur,
    module_globals,
    vectors,
    copy_bytes,
    rgb_to_gray,
    rgb_to_yuv,
    lengths,
    upper_case,
    zero_fill,
    caches,
)
CASES = tuple(Case(build.__name__, "memory", build) for build in BUILDERS)
