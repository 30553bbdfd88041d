"""Matrix instructions to record on a GPU: one warp each, registers in and out of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WARPS = 24


@dataclass(frozen=True, slots=True)
class MatrixCase:
    """`mma.sync` of a shape and types; counts of registers follow from them."""

    shape: str
    dt: str
    at: str
    bt: str
    ct: str
    suffix: str = ""
    layouts: tuple[str, str] = ("row", "col")
    selector: int | None = None

    @property
    def name(self) -> str:
        sparse = "" if self.selector is None else f".sp{self.selector}"
        layouts = ".".join(self.layouts)
        types = f"{self.dt}.{self.at}.{self.bt}.{self.ct}"
        return f"mma{sparse}.{self.shape}.{layouts}.{types}{self.suffix}"

    @property
    def registers(self) -> tuple[int, int, int, int]:
        """Registers of A, B, C, D per lane."""
        if self.shape == "m8n8k4" and self.at == "f16":
            return 2, 2, 8 if self.ct == "f32" else 4, 8 if self.dt == "f32" else 4
        m, rest = self.shape[1:].split("n")
        n, k = (int(x) for x in rest.split("k"))
        size = element_size(self.at)
        width = 64 if size == 64 else 32
        a = int(m) * k * size // (32 * width) // (1 if self.selector is None else 2)
        b = n * k * size // (32 * width)
        c, d = (
            int(m) * n * (16 if t == "f16" else width) // (32 * width) for t in (self.ct, self.dt)
        )
        return a, b, c, d

    @property
    def width(self) -> int:
        """Bits per register."""
        return 64 if self.at == "f64" else 32

    @property
    def instruction(self) -> str:
        a, b, c, d = self.registers
        lists = [
            "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"
            for name, count in (("d", d), ("a", a), ("b", b), ("c", c))
        ]
        layouts = ".".join(self.layouts)
        if self.selector is not None:
            types = f"{self.shape}.{layouts}.{self.dt}.{self.at}.{self.bt}.{self.ct}"
            return f"mma.sp.sync.aligned.{types} {', '.join(lists)}, %m, {self.selector};"
        extra = f".{self.suffix.lstrip('.')}" if self.suffix else ""
        types = f"{self.shape}.{layouts}.{self.dt}.{self.at}.{self.bt}.{self.ct}"
        return f"mma.sync.aligned.{types}{extra} {', '.join(lists)};"


def element_size(t: str) -> int:
    """Bits of an element."""
    return {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "e4m3": 8, "e5m2": 8}.get(t) or int(t[1:])


def cases() -> list[MatrixCase]:
    """What is recorded."""
    out = []
    for shape in ("m16n8k16", "m16n8k8"):
        out += [MatrixCase(shape, "f32", t, t, "f32") for t in ("f16", "bf16")]
        out.append(MatrixCase(shape, "f16", "f16", "f16", "f16"))
    out += [MatrixCase(s, "f32", "tf32", "tf32", "f32") for s in ("m16n8k4", "m16n8k8")]
    out += [
        MatrixCase(s, "f64", "f64", "f64", "f64")
        for s in ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16")
    ]
    for shape in ("m8n8k16", "m16n8k16", "m16n8k32"):
        out.append(MatrixCase(shape, "s32", "s8", "u8", "s32"))
    for shape in ("m8n8k32", "m16n8k32", "m16n8k64"):
        out.append(MatrixCase(shape, "s32", "u4", "s4", "s32"))
    for shape in ("m8n8k128", "m16n8k128", "m16n8k256"):
        out += [MatrixCase(shape, "s32", "b1", "b1", "s32", f".{op}.popc") for op in ("xor", "and")]
    out += [
        MatrixCase("m16n8k32", "f32", a, b, "f32") for a, b in (("e4m3", "e4m3"), ("e5m2", "e4m3"))
    ]
    for layouts in (("row", "col"), ("col", "row"), ("row", "row"), ("col", "col")):
        out.append(MatrixCase("m8n8k4", "f32", "f16", "f16", "f32", layouts=layouts))
    out.append(MatrixCase("m8n8k4", "f16", "f16", "f16", "f16"))
    for shape, t, selectors in (
        ("m16n8k16", "f16", (0, 1, 2, 3)),
        ("m16n8k32", "f16", (0, 1)),
        ("m16n8k32", "bf16", (1,)),
        ("m16n8k8", "tf32", (0, 1, 2, 3)),
        ("m16n8k16", "tf32", (0, 1)),
    ):
        out += [MatrixCase(shape, "f32", t, t, "f32", selector=s) for s in selectors]
    for shape, t, selectors in (
        ("m16n8k32", "s8", (0, 1)),
        ("m16n8k64", "s8", (0,)),
        ("m16n8k64", "s4", (0, 1)),
        ("m16n8k128", "u4", (0,)),
    ):
        out += [MatrixCase(shape, "s32", t, t, "s32", selector=s) for s in selectors]
    return out


FLAVOURS = {20: "zeros", 21: "subnormals", 22: "huge", 23: "specials", 24: "signed zeros"}


def _flavour(t: str, values: np.ndarray, rng: np.random.Generator, kind: int) -> np.ndarray:
    """Awkward values: many zeros, subnormals of the type, near overflow, infinities and NaNs."""
    values = rng.standard_normal(values.shape)
    pick = rng.integers(0, 8, values.shape)
    exponent = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126}.get(t, -1022)
    top = {"f16": 13, "bf16": 63, "tf32": 63, "f32": 126}.get(t, 500)
    if kind == 20:
        values *= 2.0 ** rng.integers(exponent // 2, top, values.shape)
        return np.where(pick < 6, 0.0, values)
    if kind == 21:
        low = values * 2.0 ** (exponent + rng.integers(-6, 2, values.shape))
        scale = 2.0 ** rng.integers(-3, 4, values.shape) if t == "f16" else 1.0
        return np.where(pick < 4, low, values * scale)
    if kind == 22:
        return values * 2.0 ** rng.integers(top - 2, top + 2, values.shape)
    if kind == 23:
        values = np.where(
            pick == 0, np.where(rng.integers(0, 2, values.shape), np.inf, -np.inf), values
        )
        return np.where((pick == 1) & (rng.integers(0, 8, values.shape) == 0), np.nan, values)
    return np.where(pick < 5, 0.0, -0.0) * np.sign(values)


def operand(t: str, registers: int, seed: int, spread: int) -> np.ndarray:
    """Random registers [register, warp, lane]; floats with exponents within `spread` of zero."""
    rng = np.random.default_rng(seed)
    shape = (registers, WARPS, 32)
    if t in ("s32", "s8", "u8", "s4", "u4", "b1"):
        return rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    reach = min(spread, 8)
    values = rng.standard_normal((*shape, 4)) * 2.0 ** rng.integers(-reach, reach + 1, (*shape, 4))
    if spread >= 20:
        values = _flavour(t, values, rng, spread)
    if t == "f64":
        return values[..., 0].copy().view(np.uint64)
    single = values.astype(np.float32).view(np.uint32)
    if t in ("f32", "tf32"):
        return single[..., 0].copy()
    if t == "bf16":
        return (single[..., 0] >> 16) | (single[..., 1] & np.uint32(0xFFFF0000))
    if t == "f16":
        halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
        return halves[..., 0] | halves[..., 1] << np.uint32(16)
    # f8: any finite byte
    raw = rng.integers(0, 256, (*shape, 4)).astype(np.uint8)
    limit = 0x7E if t == "e4m3" else 0x7B
    raw = np.minimum(raw & 0x7F, limit) | (raw & 0x80)
    return np.ascontiguousarray(raw.astype(np.uint8)).view(np.uint32)[..., 0]


def metadata(case: MatrixCase, seed: int) -> np.ndarray:
    """Valid sparsity metadata [warp, lane]: increasing pairs of positions in each group."""
    rng = np.random.default_rng(seed)
    if case.at == "tf32":
        # One of two elements: 0b1110 selects the second, 0b0100 the first.
        choices = np.array([0b0100, 0b1110])
    else:
        choices = np.array([i | j << 2 for i in range(4) for j in range(i + 1, 4)])
    fields = choices[rng.integers(0, len(choices), (WARPS, 32, 8))].astype(np.uint32)
    return (fields << (np.uint32(4) * np.arange(8, dtype=np.uint32))).sum(-1).astype(np.uint32)


def case_inputs(case: MatrixCase, spread: int) -> dict[str, np.ndarray]:
    """Registers of A, B, C and, for sparse cases, metadata."""
    a, b, c, _ = case.registers
    seed = sum(map(ord, case.name)) + spread
    result = {
        "a": operand(case.at, a, seed, spread),
        "b": operand(case.bt, b, seed + 1, spread),
        "c": operand(case.ct, c, seed + 2, spread),
    }
    if case.selector is not None:
        result["m"] = metadata(case, seed + 3)[None]
    return result


def matrix_module(all_cases: list[MatrixCase]) -> str:
    """PTX with kernel k0, k1, ...; registers are read from [register][warp][lane] arrays."""
    parts = [".version 8.4\n.target sm_90a\n.address_size 64\n"]
    parameters = ", ".join(f".param .u64 p{name}" for name in "abcmd")
    for number, case in enumerate(all_cases):
        counts = dict(zip("abcd", case.registers, strict=True))
        size, width = case.width // 8, case.width
        lines = [
            f".visible .entry k{number}({parameters}) {{",
            "  .reg .b64 %p, %o;",
            "  .reg .b32 %m, %t, %u;",
        ]
        for name, count in counts.items():
            lines.append(f"  .reg .b{width} %{name}<{count}>;")
        lines += [
            "  mov.u32 %t, %ctaid.x;",
            "  mov.u32 %u, %tid.x;",
            "  mad.lo.u32 %t, %t, 32, %u;",
            "  mul.wide.u32 %o, %t, 4;",
            "  ld.param.u64 %p, [pm];",
            "  add.u64 %p, %p, %o;",
            "  ld.global.b32 %m, [%p];",
            f"  mul.wide.u32 %o, %t, {size};",
        ]
        for name in "abc":
            lines += [f"  ld.param.u64 %p, [p{name}];", "  add.u64 %p, %p, %o;"]
            lines += [
                f"  ld.global.b{width} %{name}{i}, [%p+{i * WARPS * 32 * size}];"
                for i in range(counts[name])
            ]
        lines += [f"  {case.instruction}", "  ld.param.u64 %p, [pd];", "  add.u64 %p, %p, %o;"]
        lines += [
            f"  st.global.b{width} [%p+{i * WARPS * 32 * size}], %d{i};" for i in range(counts["d"])
        ]
        parts.append("\n".join([*lines, "  ret;", "}"]) + "\n")
    return "\n".join(parts)
