"""Kernels around one memory instruction each, with random arithmetic before and after it.

In: a seed. Out: a PTX module whose kernel `k` reads `x` and writes `out`, of `SIZE` bytes each, and
the threads of its launch. The instructions are those that a GPU with sm_90a runs and that need no
texture, surface, multicast object, tensor map or cluster (`async_programs`); the tests of rows
(`tests/differential/test_memory_row_behaviour.py`) have a part of them. What is stored in the
end depends on what the instruction did.
"""

# ruff: noqa: E501

from __future__ import annotations

import random

from tests.differential.test_memory_row_behaviour import CASES, COPY_IN, FILL_SHARED, HEAD, WAIT

# fmt: off
SIZE = 4096
# Each thread has a place of its own; the first 2,048 bytes are left to the instruction.
_PLACE = "  mul.wide.u32 %b, %i, 4; add.s64 %b, %b, %out;"
_ATOMS = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
}
_REGISTERS = {"16": "%h", "32": "%r", "64": "%d"}
_SHARED = "  mul.wide.u32 %a, %i, 4; shl.b32 %r1, %i, 3; add.u32 %r1, %r1, %s; st.shared.b64 [%r1], %a;"
_ONE = "  setp.ne.u32 %p1, %i, 0;\n  @%p1 bra DONE;\n"
_BULK = _ONE + "  fence.proxy.async.shared::cta;\n"
_END = "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\nDONE:\n"


def bodies() -> list[tuple[str, int]]:
    """Every instruction in a body, with the threads that it needs (0: any)."""
    found = [(case.body.replace("ret;", "bra DONE;") + ("\nDONE:" if "ret;" in case.body else ""), case.threads) for case in CASES if "st.async" not in case.body]
    for operation, types in _ATOMS.items():
        for kind in types:
            register = {"u": "%r2", "s": "%r2", "b": "%r2", "f": "%f2"}[kind[0]]
            if kind.endswith("64"):
                register = "%a" if kind[0] != "f" else "%b"
            for name in ("atom", "red"):
                result = f"{register}, " if name == "atom" else ""
                for space, place, order in (("global", "%t", "relaxed.gpu"), ("shared", "%r1", "relaxed.cta"), ("", "%t", "acquire.gpu" if name == "atom" else "release.gpu")):
                    spaces = f".{space}" if space else ""
                    made = "  mov.u32 %r2, 3; mov.b32 %f2, 0f3F800000; cvt.u64.u32 %a, %i; mov.b64 %b, 0;"
                    made += _SHARED + "  and.b32 %r3, %i, 7; mul.wide.u32 %t, %r3, 8; add.s64 %t, %t, %out;"
                    made += f"  {name}.{order}{spaces}.{operation}.{kind} {result}[{place}], {register};"
                    found.append((made, 0))
    for kind, register in (("b32", "%r2"), ("b64", "%a")):
        for place, space in (("%t", "global"), ("%r1", "shared::cta")):
            head = _SHARED + "  mov.u32 %r2, 7; mul.wide.u32 %t, %i, 8; add.s64 %t, %t, %out;"
            found.append((f"{head}  atom.{space}.exch.{kind} {register}, [{place}], {register};", 0))
            found.append((f"{head}  atom.{space}.cas.{kind} {register}, [{place}], {register}, {register};", 0))
    found.append(("  mov.b16 %h1, 5; atom.global.cas.b16 %h0, [%out], %h1, %h1;", 1))
    for name, width in (("v2.f32", 8), ("v4.f32", 16)):
        values = ", ".join(f"%f{i}" for i in range(width // 4))
        sets = " ".join(f"mov.b32 %f{i}, 0f3F800000;" for i in range(4))
        place = f"mul.wide.u32 %t, %i, {width}; add.s64 %t, %t, %out;"
        found.append((f"  {sets} {place} red.relaxed.gpu.global.add.{name} [%t], {{{values}}};", 0))
        found.append((f"  {sets} {place} atom.relaxed.gpu.global.add.{name} {{{values}}}, [%t], {{{values}}};", 0))
    for store in ("volatile.global", "relaxed.gpu.global", "release.sys.global", "global.L1::no_allocate", "global.cs", "global.wt", "weak.global"):
        found.append((f"{_PLACE}  mul.lo.u32 %r2, %i, 77; st.{store}.b32 [%b], %r2;", 0))
    for load in ("volatile.global", "relaxed.gpu.global", "acquire.sys.global", "global.nc", "global.cv", "global.nc.L2::128B", "weak.global"):
        found.append((f"  mul.wide.u32 %t, %i, 4; add.s64 %t, %t, %x; ld.{load}.b32 %r2, [%t];", 0))
    for vector, count in (("v2", 2), ("v4", 4)):
        values = "{" + ", ".join(f"%r{i + 2}" for i in range(count)) + "}"
        place = f"mul.wide.u32 %t, %i, {4 * count};"
        fill = " ".join(f"mov.u32 %r{i + 2}, {i};" for i in range(count))
        found.append((f"  {place} add.s64 %a, %t, %x; add.s64 %t, %t, %out; {fill} ld.global.{vector}.b32 {values}, [%a]; st.global.{vector}.b32 [%t], {values};", 0))
        found.append((f"  shl.b32 %r1, %i, 4; add.u32 %r1, %r1, %s; {fill} st.shared.{vector}.b32 [%r1], {values}; ld.shared.{vector}.b32 {values}, [%r1];", 0))
        found.append((f"  {fill} st.local.{vector}.b32 [l], {values}; ld.local.{vector}.b32 {values}, [l];", 0))
        for space in (".global", ""):
            found.append((f"  {place} add.s64 %a, %t, %x; {fill} ldu{space}.{vector}.b32 {values}, [%a];", 0))
        found.append((f"  {fill} ld.const.{vector}.b32 {values}, [table];", 0))
    for hint in (
        "prefetch.global.L1 [%t]",
        "prefetch.global.L2 [%t]",
        "prefetchu.L1 [%t]",
        "prefetch.global.L2::evict_last [%t]",
        "prefetch.local.L1 [l]",
        "prefetch.local.L2 [l+8]",
        "applypriority.global.L2::evict_normal [%x], 128",
        "and.b64 %t, %t, 128; add.s64 %a, %x, %t; applypriority.global.L2::evict_normal [%a], 128",
        "cp.async.bulk.prefetch.L2.global [%x], 64",
        "and.b64 %t, %t, -16; cp.async.bulk.prefetch.L2.global [%t], 48",
    ):
        found.append((f"  mul.wide.u32 %t, %i, 4; add.s64 %t, %t, %x; {hint};", 0))
    zeros = " ".join(f"st.global.v4.b32 [%out+{at}], {{%r2, %r2, %r2, %r2}};" for at in range(0, 128, 16))
    found.append((f"  discard.global.L2 [%out], 128; mov.u32 %r2, 9; {zeros}", 1))
    mine = "mul.wide.u32 %t, %i, 128; add.s64 %t, %t, %out; mov.u32 %r2, 9;"
    found.append((f"  {mine} discard.global.L2 [%t], 128; {zeros.replace('%out', '%t')}", 7))
    for kind, register in (("u64", "%a"), ("b16", "%h0"), ("f32", "%f1"), ("b64", "%a")):
        found.append((f"  mul.wide.u32 %t, %i, 4; add.s64 %t, %t, %x; and.b64 %t, %t, -8; ldu.{kind} {register}, [%t];", 0))
        found.append((f"  ld.const.{kind} {register}, [table+8];", 0))
    for size, source in ((4, 4), (4, 1), (8, 5), (16, 16), (16, 3), (16, 0)):
        way = "cg" if size == 16 and source == 16 else "ca"
        waits = "cp.async.commit_group; cp.async.wait_group 0;" if source % 2 else "cp.async.wait_all;"
        found.append(
            (
                f"  mul.wide.u32 %t, %i, {size}; add.s64 %t, %t, %x; mul.lo.u32 %r1, %i, {size}; add.u32 %r1, %r1, %s; cp.async.{way}.shared.global [%r1], [%t], {size}, {source}; {waits} ld.shared.b32 %r2, [%r1];",
                0,
            )
        )
    arrive = "  mbarrier.init.shared.b64 [%m], 1;\n"
    for middle in (
        "mbarrier.arrive.shared.b64 %t, [%m];",
        "mbarrier.arrive.release.cta.shared::cta.b64 %t, [%m], 1;",
        "mbarrier.arrive_drop.shared.b64 %t, [%m];",
        "mbarrier.arrive_drop.expect_tx.shared.b64 %t, [%m], 16; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%m], 16;",
        "mbarrier.arrive_drop.expect_tx.release.cta.shared::cta.b64 %t, [%m], 0;",
        "mbarrier.arrive_drop.release.cta.shared::cta.b64 %t, [%m], 1;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%m], 16; mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%m], 16; mbarrier.arrive.shared.b64 %t, [%m];",
        "mbarrier.arrive.shared.b64 %t, [%m]; mbarrier.pending_count.b64 %r4, %t;",
        "cp.async.ca.shared.global [%s], [%x], 16; cp.async.mbarrier.arrive.noinc.shared.b64 [%m]; mov.b64 %t, 0;",
    ):
        for test in ("test_wait", "try_wait"):
            found.append(
                (
                    f"{arrive}  {middle}\nAGAIN:\n  mbarrier.{test}.parity.shared.b64 %p0, [%m], 0;\n  @!%p0 bra AGAIN;\n  mbarrier.inval.shared.b64 [%m]; selp.u32 %r2, 1, 0, %p0;",
                    1,
                )
            )
    for operation, kind in (
        ("add", "u32"),
        ("add", "s32"),
        ("add", "u64"),
        ("min", "u32"),
        ("max", "s32"),
        ("and", "b32"),
        ("or", "b32"),
        ("xor", "b32"),
        ("inc", "u32"),
        ("dec", "u32"),
    ):
        found.append((f"{FILL_SHARED}{_BULK}  cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation}.{kind} [%out+16], [%s], 32;\n{_END}", 32))
    for size in (16, 48, 128):
        found.append((f"{FILL_SHARED}{_BULK}  cp.async.bulk.global.shared::cta.bulk_group [%out+{size}], [%s], {size};\n{_END}", 32))
    found.append((f"{COPY_IN}{WAIT}  ld.shared.b32 %r2, [%s+8];", 1))
    fill = FILL_SHARED + "  shl.b32 %r3, %i, 4; and.b32 %r3, %r3, 127; add.u32 %r3, %r3, %s;"
    for shape, registers in (("x1", "{%r4}"), ("x2", "{%r4, %r5}"), ("x4", "{%r4, %r5, %r6, %r7}")):
        rows = fill.replace("127", {"x1": "127", "x2": "255", "x4": "511"}[shape])
        sets = " ".join(f"add.u32 %r{i}, %i, {i};" for i in range(4, 8))
        for trans in ("", ".trans"):
            found.append((f"{rows}  {sets} bar.sync 0; ldmatrix.sync.aligned.m8n8.{shape}{trans}.shared.b16 {registers}, [%r3]; mov.u32 %r2, %r4;", 32))
            found.append(
                (
                    f"{rows}  {sets} bar.sync 0; stmatrix.sync.aligned.m8n8.{shape}{trans}.shared.b16 [%r3], {registers}; bar.sync 0; shl.b32 %r1, %i, 2; add.u32 %r1, %r1, %s; ld.shared.b32 %r2, [%r1];",
                    32,
                )
            )
    eight = "{" + ", ".join(f"%f{i}" for i in range(8)) + "}"
    for layout in ("row", "col"):
        for stride in (16, 20):
            found.append(
                (
                    f"  mov.u32 %r1, {stride}; wmma.load.c.sync.aligned.{layout}.m16n16k16.global.f32 {eight}, [%x], %r1; wmma.store.d.sync.aligned.{layout}.m16n16k16.global.f32 [%out], {eight}, %r1;",
                    32,
                )
            )
        for space, place in (("", "%x"), (".shared", "%s")):
            fill = "  shl.b32 %r1, %i, 5; add.u32 %r1, %r1, %s; st.shared.v4.b32 [%r1], {%i, %i, %i, %i}; st.shared.v4.b32 [%r1+16], {%s, %i, %i, %i}; bar.sync 0;"
            found.append((f"{fill}  wmma.load.c.sync.aligned.{layout}.m16n16k16{space}.f32 {eight}, [{place}], 16; wmma.store.d.sync.aligned.{layout}.m16n16k16.global.f32 [%out], {eight}, 20;", 32))
    halves = "{" + ", ".join(f"%r{i}" for i in range(8)) + "}"
    for which in "ab":
        found.append((f"  wmma.load.{which}.sync.aligned.row.m16n16k16.global.f16 {halves}, [%x], 16; xor.b32 %r2, %r2, %r5;", 32))
        for shape in ("m16n16k16", "m32n8k16", "m8n32k16"):
            for space, place in (("", "%x"), (".shared", "%s")):
                found.append((f"{fill}  wmma.load.{which}.sync.aligned.row.{shape}{space}.f16 {halves}, [{place}], 16; xor.b32 %r2, %r2, %r5;", 32))
    return found


BODIES = bodies()


def memory_program(seed: int) -> tuple[str, int]:
    """The module of a seed, and the threads of its launch."""
    rng = random.Random(f"memory {seed}")
    body, threads = BODIES[seed % len(BODIES)]
    return module_around(rng, body), threads or rng.choice((1, 7, 32, 64))


def module_around(rng: random.Random, body: str, *, ctas: bool = False) -> str:
    """A body between random arithmetic; a word of each thread, of all `ctas`, ends in `out`."""
    before = [_arithmetic(rng, f"%z{i}", [f"%z{j}" for j in range(i)]) for i in range(1, rng.randint(4, 9))]
    last = len(before)
    after = [_arithmetic(rng, f"%z{i}", [f"%z{j}" for j in range(i)]) for i in range(last + 1, last + rng.randint(2, 5))]
    numbered = "mov.u32 %z30, %ctaid.x; mov.u32 %z29, %ntid.x; mad.lo.u32 %z30, %z30, %z29, %i;" if ctas else "mov.u32 %z30, %i;"
    return HEAD.format(
        target="sm_90a",
        body="\n".join(
            [
                "  .reg .b32 %z<32>, %q; .reg .b64 %e, %g; mov.u32 %z0, %tid.x; mov.u32 %r2, 0;",
                *before,
                body,
                *after,
                f"  xor.b32 %q, %z{last + len(after)}, %r2; {numbered}",
                "  mul.wide.u32 %e, %z30, 8; add.s64 %g, %e, %out;",
                "  add.s64 %e, %e, %x; ld.global.b32 %z31, [%e+2048]; add.u32 %q, %q, %z31;",
                f"  st.global.b32 [%g+{2048 + 4 * rng.randrange(2)}], %q;",
            ]
        ),
    )


def _arithmetic(rng: random.Random, result: str, known: list[str]) -> str:
    a = rng.choice(known[-3:])
    b = rng.choice([*known, str(rng.randrange(1, 99))])
    kind = rng.randrange(6)
    if kind == 0:
        return f"  mad.lo.s32 {result}, {a}, {b}, {rng.randrange(1, 99)};"
    if kind == 1:
        return f"  bfe.u32 {result}, {a}, {rng.randrange(8)}, {rng.randrange(1, 16)};"
    if kind == 2:
        return f"  setp.lt.s32 %p3, {a}, {b}; selp.b32 {result}, {a}, {b}, %p3;"
    return f"  {rng.choice(('add.s32', 'xor.b32', 'sub.s32', 'mul.lo.s32', 'min.u32', 'max.s32', 'shr.u32'))} {result}, {a}, {b};"
