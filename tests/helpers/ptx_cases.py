"""PTX modules with one small kernel per case, and the inputs that they are run on."""

from __future__ import annotations

import random

import numpy as np

from tests.helpers.numerics_reference import random_bits

LANES = 1024


def inputs(kind: str, position: int, count: int = LANES) -> np.ndarray:
    """Bits for operand number `position` of the given kind: favours the awkward."""
    if kind in ("f16", "bf16", "f32", "f64"):
        return random_bits(kind, count, 100 + position)
    if kind in ("f16x2", "bf16x2"):
        low, high = (random_bits(kind[:-2], count, seed + position) for seed in (200, 300))
        return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)
    rng = random.Random(position)
    if kind == "nan64":
        choices = [0x7FF << 52, 0xFFF << 52, 0, 1 << 63, 0x3FF << 52, 0xBFF << 52]
        values = [
            rng.choice(
                [
                    (rng.getrandbits(1) << 63) | 0x7FF << 52 | (rng.getrandbits(52) or 1),
                    rng.choice(choices),
                ]
            )
            for _ in range(count)
        ]
        return np.array(values, np.uint64)
    if kind == "nan32":
        choices = [0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFF000, 0, 1 << 31]
        values = [
            rng.choice(
                [
                    (rng.getrandbits(1) << 31) | 0x7F800000 | (rng.getrandbits(23) or 1),
                    rng.choice(choices),
                ]
            )
            for _ in range(count)
        ]
        return np.array(values, np.uint32)
    if kind == "huge32":
        exponents = [0, 1, 2, 126, 127, 128, 251, 252, 253, 254]
        values = [
            rng.getrandbits(1) << 31 | rng.choice(exponents) << 23 | rng.getrandbits(23)
            for _ in range(count)
        ]
        return np.array(values, np.uint32)
    if kind == "angle":
        values = [
            rng.uniform(-6.28, 6.28) * 2.0 ** -rng.choice([0, 0, 0, 5, 20]) for _ in range(count)
        ]
        return np.array(values, np.float32).view(np.uint32)
    if kind == "small":
        raw = random_bits("f32", count, 400 + position)
        values = [rng.uniform(-1, 1) * 2.0 ** rng.randint(-18, 17) for _ in range(count)]
        raw[::2] = np.array(values, np.float32).view(np.uint32)[::2]
        return raw
    limit = {"shift": 40, "field": 80, "lane": 32}.get(kind)
    if limit is not None:
        return np.array([rng.randrange(limit) for _ in range(count)], np.uint32)
    if kind == "offset":
        return np.array([rng.randrange(-4, 5) for _ in range(count)], np.int32).view(np.uint32)
    if kind == "tiny":
        return np.array([rng.randrange(-300, 300) for _ in range(count)], np.int32).view(np.uint32)
    width = 32 if kind.endswith("x2") else max(int(kind[1:]), 16)
    edges = [0, 1, 2, (1 << width) - 1, 1 << (width - 1), (1 << (width - 1)) - 1, 7]
    values = [
        rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(width) >> rng.randrange(width)
        for _ in range(count)
    ]
    return np.array(values, f"uint{width}")


def width_of(kind: str) -> int:
    """Bits of an operand's register."""
    return inputs(kind, 0, 1).dtype.itemsize * 8


def module(bodies: list[tuple[str, tuple[str, ...], int]], target: str = "sm_90") -> str:
    """PTX with kernel k0, k1, ...: each applies a body to lane-indexed arrays."""
    parts = [f".version 8.4\n.target {target}\n.address_size 64\n"]
    for number, (body, kinds, width) in enumerate(bodies):
        names = "abc"[: len(kinds)]
        parameters = ", ".join(f".param .u64 p{name}" for name in (*names, "d"))
        lines = [
            f".visible .entry k{number}({parameters}) {{",
            "  .reg .b64 %p, %o, %i;",
            "  .reg .b32 %t, %u;",
        ]
        widths = {name: width_of(kind) for name, kind in zip(names, kinds, strict=True)} | {
            "d": width
        }
        lines += [f"  .reg .b{size} %{name};" for name, size in widths.items()]
        lines += [
            "  mov.u32 %t, %ctaid.x;",
            "  mov.u32 %u, %ntid.x;",
            "  mul.lo.u32 %t, %t, %u;",
            "  mov.u32 %u, %tid.x;",
            "  add.u32 %t, %t, %u;",
            "  cvt.u64.u32 %i, %t;",
        ]
        for name in names:
            size = widths[name]
            lines += [
                f"  mul.lo.u64 %o, %i, {size // 8};",
                f"  ld.param.u64 %p, [p{name}];",
                "  add.u64 %p, %p, %o;",
                f"  ld.global.b{size} %{name}, [%p];",
            ]
        lines += [
            f"  {body}",
            f"  mul.lo.u64 %o, %i, {width // 8};",
            "  ld.param.u64 %p, [pd];",
            "  add.u64 %p, %p, %o;",
            f"  st.global.b{width} [%p], %d;",
            "  ret;",
            "}",
        ]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
