"""`wgmma` instructions to record on a GPU: operands in shared memory, one warpgroup."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tessera.backend.ptx_executor.numerics.matrix import wgmma

IMAGE = 32768
START_B = 16384
WIDTH = {0: 16, 1: 128, 2: 64, 3: 32}


@dataclass(frozen=True, slots=True)
class GroupCase:
    """One shape, types, swizzle mode and majorness of both operands."""

    n: int
    dt: str
    t: str
    mode: int = 1
    mn_major: bool = False
    offset: int = 0
    from_registers: bool = False
    spread: int = 2

    @property
    def name(self) -> str:
        source = ".ra" if self.from_registers else ""
        major = ".mn" if self.mn_major else ""
        memory = f"sw{self.mode}{major}{source}+{self.offset}"
        return f"wgmma.n{self.n}.{self.dt}.{self.t}.{memory}~{self.spread}"

    @property
    def k(self) -> int:
        return {"f16": 16, "bf16": 16, "tf32": 8}.get(self.t, 32)

    @property
    def size(self) -> int:
        """Bits per element."""
        return {"f16": 16, "bf16": 16, "tf32": 32}.get(self.t, 8)

    @property
    def registers(self) -> int:
        return self.n // 4 if self.dt == "f16" else self.n // 2

    def descriptor(self, start: int, rows: int) -> int:
        """Canonical layout of `rows` rows, at `start` bytes from the base."""
        width = WIDTH[self.mode]
        if self.mn_major:
            blocks = rows * 2 // width
            if self.mode == 0:
                leading, stride = 128 * blocks, 128
            else:
                leading, stride = 16 * width, 8 * width
        elif self.mode == 0:
            leading, stride = 128, 256
        else:
            leading, stride = 16, 8 * width
        return (
            (start + self.offset) >> 4
            | (leading >> 4) << 16
            | (stride >> 4) << 32
            | self.mode << 62
        )

    @property
    def instruction(self) -> str:
        d = ", ".join(f"%d{i}" for i in range(self.registers))
        a = "{%a0, %a1, %a2, %a3}" if self.from_registers else "%da"
        types = f"m64n{self.n}k{self.k}.{self.dt}.{self.t}.{self.t}"
        scales = "" if self.dt == "s32" else ", 1, 1"
        major = int(self.mn_major)
        if self.size == 16:
            scales += f", {major}" if self.from_registers else f", {major}, {major}"
        return f"wgmma.mma_async.sync.aligned.{types} {{{d}}}, {a}, %db, %ps{scales};"

    def image(self) -> np.ndarray:
        """Shared memory full of finite elements."""
        rng = np.random.default_rng(sum(map(ord, self.name)))
        count = IMAGE * 8 // self.size
        if self.t in ("e4m3", "e5m2", "s8", "u8"):
            raw = rng.integers(0, 256, count).astype(np.uint8)
            limit = {"e4m3": 0x7E, "e5m2": 0x7B}.get(self.t, 0x7F)
            return np.minimum(raw & 0x7F, limit).astype(np.uint8) | (raw & np.uint8(0x80))
        values = rng.standard_normal(count) * 2.0 ** rng.integers(
            -self.spread, self.spread + 1, count
        )
        if self.t == "f16":
            return values.astype(np.float16).view(np.uint8)
        raw = values.astype(np.float32).view(np.uint32)
        return (
            raw.view(np.uint8) if self.t == "tf32" else (raw >> 16).astype(np.uint16).view(np.uint8)
        )

    def addresses(self, base: int, rows: int, start: int) -> np.ndarray:
        """Offsets of an operand's chunks in the image, when that lies at `base`."""
        descriptor = np.array([self.descriptor(start, rows) + (base >> 4)], np.uint64)
        where = wgmma.chunk_addresses(descriptor, rows, self.k, self.size, mn_major=self.mn_major)
        return (where[..., None] - base + np.arange(16)) % IMAGE

    def used_image(self, base: int) -> np.ndarray:
        """The image with every byte that no operand touches set to zero."""
        image = np.zeros(IMAGE, np.uint8)
        for rows, start in ((64, 0), (self.n, START_B)):
            used = self.addresses(base, rows, start)
            image[used] = self.image()[used]
        return image

    def registers_in(self) -> tuple[np.ndarray, np.ndarray]:
        """A in registers [4, 128] and D [registers, 128]."""
        rng = np.random.default_rng(7)
        a = np.frombuffer(self.image().tobytes()[: 4 * 128 * 4], np.uint32).reshape(4, 128)
        values = rng.standard_normal((self.registers, 128)).astype(np.float32)
        if self.dt == "f16":
            halves = values.astype(np.float16).view(np.uint16).astype(np.uint32)
            return a, halves | halves << np.uint32(16)
        return a, values.view(np.uint32)


def cases() -> list[GroupCase]:
    """What is recorded."""
    out = [GroupCase(16, "f32", "bf16", mode) for mode in range(4)]
    out += [GroupCase(64, "f32", "bf16", mode, mn_major=True) for mode in range(4)]
    out += [GroupCase(16, "f32", "bf16", 1, offset=32), GroupCase(16, "f32", "bf16", 2, offset=32)]
    out += [GroupCase(8, "f32", "bf16", 1, from_registers=True)]
    out += [GroupCase(8, "f32", t, spread=s) for t in ("f16", "bf16", "tf32") for s in (0, 4, 8)]
    out += [GroupCase(8, "f16", "f16", spread=s) for s in (0, 3)]
    out += [GroupCase(8, "f32", t) for t in ("e4m3", "e5m2")]
    out += [GroupCase(8, "f16", "e4m3"), GroupCase(16, "s32", "s8"), GroupCase(16, "s32", "u8", 2)]
    return out


def group_module(all_cases: list[GroupCase]) -> str:
    """PTX with kernel k0, k1, ...; output is D [register][lane] and then the shared base."""
    parts = [
        ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 smem[];\n"
    ]
    names = ("pimage", "pa", "pc", "pd", "pda", "pdb")
    parameters = ", ".join(f".param .u64 {name}" for name in names)
    for number, case in enumerate(all_cases):
        lines = [
            f".visible .entry k{number}({parameters}) {{",
            "  .reg .b64 %p, %o, %da, %db, %base;",
            "  .reg .b32 %t, %i, %s, %x, %w;",
            "  .reg .pred %ps, %q;",
            f"  .reg .b32 %d<{case.registers}>;",
            "  .reg .b32 %a<4>;",
            "  mov.u32 %t, %tid.x;",
            "  mov.u32 %s, smem;",
            "  ld.param.u64 %p, [pimage];",
            "  mov.u32 %i, %t;",
            f"L{number}:",
            "  mul.wide.u32 %o, %i, 4;",
            "  add.u64 %o, %o, %p;",
            "  ld.global.b32 %x, [%o];",
            "  mad.lo.u32 %w, %i, 4, %s;",
            "  st.shared.b32 [%w], %x;",
            "  add.u32 %i, %i, 128;",
            f"  setp.lt.u32 %q, %i, {IMAGE // 4};",
            f"  @%q bra L{number};",
            "  fence.proxy.async;",
            "  bar.sync 0;",
            "  shr.u32 %x, %s, 4;",
            "  cvt.u64.u32 %base, %x;",
            "  ld.param.u64 %da, [pda];",
            "  add.u64 %da, %da, %base;",
            "  ld.param.u64 %db, [pdb];",
            "  add.u64 %db, %db, %base;",
            "  mul.wide.u32 %o, %t, 4;",
            "  ld.param.u64 %p, [pa];",
            "  add.u64 %p, %p, %o;",
        ]
        lines += [f"  ld.global.b32 %a{i}, [%p+{512 * i}];" for i in range(4)]
        lines += ["  ld.param.u64 %p, [pc];", "  add.u64 %p, %p, %o;"]
        lines += [f"  ld.global.b32 %d{i}, [%p+{512 * i}];" for i in range(case.registers)]
        lines += [
            "  setp.eq.u32 %ps, 0, 0;",
            "  wgmma.fence.sync.aligned;",
            f"  {case.instruction}",
            "  wgmma.commit_group.sync.aligned;",
            "  wgmma.wait_group.sync.aligned 0;",
            "  ld.param.u64 %p, [pd];",
            "  add.u64 %p, %p, %o;",
        ]
        lines += [f"  st.global.b32 [%p+{512 * i}], %d{i};" for i in range(case.registers)]
        lines += [f"  st.global.b32 [%p+{512 * case.registers}], %s;", "  ret;", "}"]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
