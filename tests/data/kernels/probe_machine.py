"""Probes that are not elementwise: matrix instructions and atomics.

A matrix probe runs one instruction per warp (or warpgroup) on registers that it loads as they are:
register `r` of thread `t` of case `i` is word `(i * threads + t) * registers + r` of its input.
So results are compared register by register, and no layout has to be known to record them.
An atomic probe applies one operation from one thread to one cell, for each input in turn.
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETERS = ".param .u64 in0, .param .u64 in1, .param .u64 in2,\n\t.param .u64 out, .param .u32 n"
FLOAT_CASES = 48
INTEGER_CASES = 16
ATOMIC_COUNT = 160


@dataclass(frozen=True, slots=True)
class Kernel:
    """A probe kernel with what is needed to run it and to find its results."""

    name: str
    text: str
    inputs: list[dict[str, object]]
    results: list[dict[str, object]]
    launch: dict[str, object]

    def entry(self, module: str) -> dict[str, object]:
        """The kernel's row in the index."""
        return {
            "module": module,
            "launch": self.launch,
            "inputs": self.inputs,
            "results": self.results,
        }


@dataclass(frozen=True, slots=True)
class Shape:
    """A matrix instruction: shape, types of D, A, B, C, registers of A, B and C."""

    text: str
    shape: str
    kinds: tuple[str, str, str]
    registers: tuple[int, int, int]

    @property
    def cases(self) -> int:
        """Fewer cases where every result is exact by definition."""
        return INTEGER_CASES if self.kinds[2] == "s32" else FLOAT_CASES


def shapes() -> list[Shape]:
    """Candidates; ptxas decides which exist for sm_90a."""
    found = []
    for kind in ("f16", "bf16"):
        for shape, registers in (("m16n8k8", (2, 1)), ("m16n8k16", (4, 2))):
            for acc, count in (("f32", 4), ("f16", 2)):
                text = f"{shape}.row.col.{acc}.{kind}.{kind}.{acc}"
                found.append(Shape(text, shape, (kind, kind, acc), (*registers, count)))
    for acc, count in (("f32", 8), ("f16", 4)):
        for layout in ("row.col", "col.row"):
            text = f"m8n8k4.{layout}.{acc}.f16.f16.{acc}"
            found.append(Shape(text, "m8n8k4", ("f16", "f16", acc), (2, 2, count)))
    for shape, registers in (("m16n8k4", (2, 1)), ("m16n8k8", (4, 2))):
        text = f"{shape}.row.col.f32.tf32.tf32.f32"
        found.append(Shape(text, shape, ("tf32", "tf32", "f32"), (*registers, 4)))
    for a in ("e4m3", "e5m2"):
        for b in ("e4m3", "e5m2"):
            for shape, registers in (("m16n8k16", (2, 1)), ("m16n8k32", (4, 2))):
                for acc, count in (("f32", 4), ("f16", 2)):
                    text = f"{shape}.row.col.{acc}.{a}.{b}.{acc}"
                    found.append(Shape(text, shape, (a, b, acc), (*registers, count)))
    double = {"m8n8k4": (1, 1, 2), "m16n8k4": (2, 1, 4), "m16n8k8": (4, 2, 4)}
    for shape, registers in (double | {"m16n8k16": (8, 4, 4)}).items():
        text = f"{shape}.row.col.f64.f64.f64.f64"
        found.append(Shape(text, shape, ("f64", "f64", "f64"), registers))
    return found + integer_shapes()


def integer_shapes() -> list[Shape]:
    """Integer and binary matrix instructions."""
    found = []
    words = {
        "8": (("m8n8k16", (1, 1, 2)), ("m16n8k16", (2, 1, 4)), ("m16n8k32", (4, 2, 4))),
        "4": (("m8n8k32", (1, 1, 2)), ("m16n8k32", (2, 1, 4)), ("m16n8k64", (4, 2, 4))),
    }
    for width, rows in words.items():
        for shape, registers in rows:
            for a, b in (("s", "s"), ("u", "u"), ("s", "u"), ("u", "s")):
                for sat in ("", ".satfinite"):
                    text = f"{shape}.row.col{sat}.s32.{a}{width}.{b}{width}.s32"
                    found.append(Shape(text, shape, ("b32", "b32", "s32"), registers))
    for shape, registers in (
        ("m8n8k128", (1, 1, 2)),
        ("m16n8k128", (2, 1, 4)),
        ("m16n8k256", (4, 2, 4)),
    ):
        for op in ("xor", "and"):
            text = f"{shape}.row.col.s32.b1.b1.s32.{op}.popc"
            found.append(Shape(text, shape, ("b32", "b32", "s32"), registers))
    return found


def register_list(name: str, count: int) -> str:
    """`{%a0, %a1}`."""
    return "{" + ", ".join(f"%{name}{i}" for i in range(count)) + "}"


def load_registers(name: str, count: int, parameter: str, kind: str, threads: int) -> list[str]:
    """Load the words of this thread; `kind` is the type of the registers."""
    size = int(kind[1:]) // 8
    lines = [f"\t.reg .{kind} %{name}<{count}>;", f"\tld.param.u64 %base, [{parameter}];"]
    lines.append(f"\tmad.lo.u32 %i, %case, {threads}, %t;")
    lines.append(f"\tmad.wide.u32 %at, %i, {count * size}, %base;")
    return lines + [f"\tld.global.{kind} %{name}{i}, [%at+{i * size}];" for i in range(count)]


def registers_of(kind: str) -> str:
    """The type of the registers that hold an accumulator of a kind."""
    return kind if kind in ("f32", "f64") else "b32"


def matrix_kernel(shape: Shape) -> Kernel:
    """One warp per case."""
    size = 8 if shape.kinds[2] == "f64" else 4
    name = "mma_" + shape.text.replace(".row.col", "").replace(".", "_")
    lines = [
        f".visible .entry {name}({PARAMETERS})",
        "{",
        "\t.reg .b32 %i, %t, %case; .reg .b64 %base, %at;",
        "\tmov.u32 %case, %ctaid.x; mov.u32 %t, %tid.x;",
    ]
    accumulator = registers_of(shape.kinds[2])
    operand = "f64" if accumulator == "f64" else "b32"
    for letter, count, at in zip("abc", shape.registers, range(3), strict=True):
        kind = accumulator if letter == "c" else operand
        lines += load_registers(letter, count, f"in{at}", kind, 32)
    a, b, c = (register_list(letter, n) for letter, n in zip("abc", shape.registers, strict=True))
    lines.append(f"\tmma.sync.aligned.{shape.text} {c}, {a}, {b}, {c};")
    lines += store_accumulators(shape.registers[2], size, 32)
    text = "\n".join([*lines, "\tret;\n}\n"])
    counts = [shape.cases * 32 * n for n in shape.registers]
    inputs: list[dict[str, object]] = [
        {"kind": f"matrix_{kind}", "count": n, "cases": shape.cases}
        for kind, n in zip(shape.kinds, counts, strict=True)
    ]
    kind = {"f16": "f16x2", "s32": "s32"}.get(shape.kinds[2], shape.kinds[2])
    results: list[dict[str, object]] = [
        {"text": f"mma.sync.aligned.{shape.text}", "kind": kind, "offset": 0, "count": counts[2]}
    ]
    return Kernel(
        name, text, inputs, results, {"threads": 32, "blocks": shape.cases, "n": shape.cases}
    )


def store_accumulators(count: int, size: int, threads: int) -> list[str]:
    """Store the words of this thread."""
    lines = ["\tld.param.u64 %base, [out];", f"\tmad.lo.u32 %i, %case, {threads}, %t;"]
    lines.append(f"\tmad.wide.u32 %at, %i, {count * size}, %base;")
    return lines + [f"\tst.global.b{8 * size} [%at+{i * size}], %c{i};" for i in range(count)]


WGMMA = (
    ("m64n8k16.f32.f16.f16", ("f16", "f16", "f32"), 4, "1, 1, 0"),
    ("m64n8k16.f16.f16.f16", ("f16", "f16", "f16"), 2, "1, 1, 0"),
    ("m64n8k16.f32.bf16.bf16", ("bf16", "bf16", "f32"), 4, "1, 1, 0"),
    ("m64n8k8.f32.tf32.tf32", ("tf32", "tf32", "f32"), 4, "1, 1"),
    ("m64n8k32.f32.e4m3.e4m3", ("e4m3", "e4m3", "f32"), 4, "1, 1"),
    ("m64n8k32.f32.e5m2.e4m3", ("e5m2", "e4m3", "f32"), 4, "1, 1"),
    ("m64n8k32.f16.e4m3.e4m3", ("e4m3", "e4m3", "f16"), 2, "1, 1"),
    ("m64n8k32.s32.s8.u8", ("b32", "b32", "s32"), 4, ""),
)


def warpgroup_kernel(text: str, kinds: tuple[str, str, str], count: int, tail: str) -> Kernel:
    """One warpgroup per case: A in registers, B in shared memory without swizzling."""
    name = "wgmma_" + text.replace(".", "_")
    cases = INTEGER_CASES if kinds[2] == "s32" else FLOAT_CASES // 2
    lines = [
        f".visible .entry {name}({PARAMETERS})",
        "{",
        "\t.shared .align 128 .b8 tile_" + name + "[256];",
        "\t.reg .b32 %i, %t, %case, %w; .reg .b64 %base, %at, %desc; .reg .pred %p;",
        "\tmov.u32 %case, %ctaid.x; mov.u32 %t, %tid.x;",
        *load_registers("a", 4, "in0", "b32", 128),
        *load_registers("c", count, "in2", registers_of(kinds[2]), 128),
        "\tsetp.ge.u32 %p, %t, 64;",
        "\t@%p bra SKIP;",
        "\tld.param.u64 %base, [in1]; mad.lo.u32 %i, %case, 64, %t;",
        "\tmad.wide.u32 %at, %i, 4, %base;",
        f"\tld.global.b32 %w, [%at]; mov.u32 %i, tile_{name}; mad.lo.u32 %i, %t, 4, %i;",
        "\tst.shared.b32 [%i], %w;",
        "SKIP:",
        "\tfence.proxy.async.shared::cta;",
        "\tbar.sync 0;",
        f"\tmov.u32 %i, tile_{name}; shr.u32 %i, %i, 4; and.b32 %i, %i, 16383;",
        "\tcvt.u64.u32 %desc, %i;",
        "\tor.b64 %desc, %desc, 0x0000001000080000;",
        "\tsetp.eq.u32 %p, 0, 0;",
        "\twgmma.fence.sync.aligned;",
        f"\twgmma.mma_async.sync.aligned.{text} {register_list('c', count)},",
        f"\t\t{register_list('a', 4)}, %desc, %p" + (f", {tail};" if tail else ";"),
        "\twgmma.commit_group.sync.aligned;",
        "\twgmma.wait_group.sync.aligned 0;",
        *store_accumulators(count, 4, 128),
        "\tret;\n}\n",
    ]
    counts = [cases * 128 * 4, cases * 64, cases * 128 * count]
    inputs: list[dict[str, object]] = [
        {"kind": f"matrix_{kind}", "count": n, "cases": cases}
        for kind, n in zip(kinds, counts, strict=True)
    ]
    kind = {"f16": "f16x2"}.get(kinds[2], kinds[2])
    results: list[dict[str, object]] = [
        {
            "text": f"wgmma.mma_async.sync.aligned.{text}",
            "kind": kind,
            "offset": 0,
            "count": counts[2],
        }
    ]
    launch: dict[str, object] = {"threads": 128, "blocks": cases, "n": cases}
    return Kernel(name, "\n".join(lines), inputs, results, launch)


ATOMICS = (
    ("f32", ("add.f32", "exch.b32")),
    ("f64", ("add.f64",)),
    ("f16", ("add.noftz.f16",)),
    ("bf16", ("add.noftz.bf16",)),
    ("f16x2", ("add.noftz.f16x2",)),
    ("bf16x2", ("add.noftz.bf16x2",)),
    ("u32", ("add.u32", "min.u32", "max.u32", "inc.u32", "dec.u32", "exch.b32", "cas.b32")),
    ("b32", ("and.b32", "or.b32", "xor.b32")),
    ("s32", ("add.s32", "min.s32", "max.s32")),
    ("u64", ("add.u64", "min.u64", "max.u64", "exch.b64", "cas.b64")),
    ("b64", ("and.b64", "or.b64", "xor.b64")),
    ("s64", ("min.s64", "max.s64")),
    ("u16", ("cas.b16",)),
)


def atomic_kernel(kind: str, operations: tuple[str, ...]) -> Kernel:
    """One thread; each operation runs over all inputs on one cell, in global and shared memory."""
    bits = {"f64": 64, "u64": 64, "s64": 64, "b64": 64, "f16": 16, "bf16": 16, "u16": 16}.get(
        kind, 32
    )
    size, name = bits // 8, f"atomic_{kind}"
    lines = [
        f".visible .entry {name}({PARAMETERS})",
        "{",
        f"\t.shared .align 8 .b8 cell_{name}[8];",
        "\t.reg .pred %p; .reg .b32 %i, %n; .reg .b64 %out, %x, %y, %z, %at, %cell, %px, %py;",
        f"\t.reg .b{bits} %a, %b, %old;",
        "\tld.param.u64 %x, [in0]; ld.param.u64 %y, [in1]; ld.param.u64 %z, [in2];",
        "\tld.param.u64 %out, [out]; ld.param.u32 %n, [n];",
    ]
    results: list[dict[str, object]] = []
    offset, label = 0, 0
    for space in ("global", "shared"):
        cell = "%cell" if space == "global" else f"cell_{name}"
        for operation in operations:
            second = ", %b" if operation.startswith("cas") else ""
            text = f"atom.{space}.{operation}"
            lines += [
                f"\tadd.u64 %cell, %out, {offset + size * ATOMIC_COUNT};",
                f"\tld.global.b{bits} %a, [%z]; st.{space}.b{bits} [{cell}], %a;",
                f"\tmov.u32 %i, 0; mov.u64 %px, %x; mov.u64 %py, %y; add.u64 %at, %out, {offset};",
                f"L{label}:",
                f"\tld.global.b{bits} %a, [%px]; ld.global.b{bits} %b, [%py];",
                f"\t{text} %old, [{cell}], %a{second};",
                f"\tst.global.b{bits} [%at], %old;",
                f"\tadd.u64 %px, %px, {size}; add.u64 %py, %py, {size}; add.u64 %at, %at, {size};",
                "\tadd.u32 %i, %i, 1; setp.lt.u32 %p, %i, %n;",
                f"\t@%p bra L{label};",
                f"\tld.{space}.b{bits} %old, [{cell}]; st.global.b{bits} [%cell], %old;",
            ]
            results.append(
                {"text": text, "kind": kind, "offset": offset, "count": ATOMIC_COUNT + 1}
            )
            offset += (size * (ATOMIC_COUNT + 1) + 7) // 8 * 8
            label += 1
    lines.append("\tret;\n}\n")
    counts = (ATOMIC_COUNT, ATOMIC_COUNT, 1)
    inputs: list[dict[str, object]] = [{"kind": f"finite_{kind}", "count": n} for n in counts]
    return Kernel(
        name, "\n".join(lines), inputs, results, {"threads": 1, "blocks": 1, "n": ATOMIC_COUNT}
    )


def machine_kernels() -> dict[str, list[Kernel]]:
    """Kernels by module; those that ptxas refuses are dropped by the caller."""
    return {
        "probe_mma": [matrix_kernel(shape) for shape in shapes()],
        "probe_wgmma": [warpgroup_kernel(*row) for row in WGMMA],
        "probe_atomic": [atomic_kernel(*row) for row in ATOMICS],
    }
