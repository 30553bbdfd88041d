"""What a kernel may do with an address of shared memory before made-up addresses could show."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.passes.kernel_facts.kernel_code import prepare_kernel
from tessera.passes.kernel_facts.shared_use import BASE, SPACING, SharedUse, SharedVariable

# What %r3 loads is an index of global memory, so that shared memory matters.
KERNEL = """.version 8.6
.target sm_90a
.address_size 64
{module}
.visible .entry k(.param .u64 y, .param .u32 n)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %d<20>;
    .reg .f32 %f<4>;
    .shared .align 16 .b8 sh[512];
    .shared .align 4 .b8 small[64];
    .shared .align 1 .b8 bytes[64];
    .local .align 16 .b8 own[64];
    ld.param.u64 %d1, [y];
    ld.param.u32 %r9, [n];
    mov.u32 %r1, sh;
    mov.u64 %d2, sh;
    mov.u32 %r8, %tid.x;
    setp.eq.u32 %p1, %r8, 3;
    {body}
    ld.shared.u32 %r3, [sh+4];
    mul.wide.u32 %d3, %r3, 4;
    add.s64 %d4, %d1, %d3;
    st.global.u32 [%d4], %r8;
    ret;
}}
"""


def used(body: str, module: str = "") -> tuple[SharedUse, list[str]]:
    parsed = parse_module(KERNEL.format(body=body, module=module), "k.ptx")
    code = prepare_kernel(parsed, parsed.definitions()["k"])
    assert code.shared is not None
    return code.shared, [str(i.opcode) for i in code.flat.instructions]


@pytest.mark.parametrize(
    "line",
    [
        "mov.b32 %r2, %r1;",
        "cvta.shared.u64 %d5, %d2; st.u32 [%d5], %r8;",
        "selp.b32 %r2, %r1, 64, %p1;",
        "selp.b32 %r2, 64, %r1, %p1;",
        "cvt.u64.u32 %d5, %r1; cvt.u32.u64 %r2, %d5;",
        "cvt.s64.s32 %d5, %r1; cvt.u32.s64 %r2, %d5;",
        "add.u32 %r2, %r1, %r8;",
        "add.u32 %r2, %r8, %r1;",
        "add.u64 %d5, %d2, 8; cvt.u32.u64 %r2, %d5;",
        "sub.u32 %r2, %r1, %r8;",
        "mad.lo.u32 %r2, %r8, 4, %r1;",
        "or.b32 %r2, %r1, 15;",
        "xor.b32 %r2, %r1, 8;",
        "and.b32 %r2, %r1, -16;",
        "and.b32 %r2, %r1, 0xFFFFFFF0;",
        "and.b64 %d5, %d2, -16; cvt.u32.u64 %r2, %d5;",
        "and.b64 %d5, %d2, 0xFFFFFFFFFFFFFFF0; cvt.u32.u64 %r2, %d5;",
        "mov.u32 %r4, small; or.b32 %r2, %r4, 3;",
        "add.u32 %r4, %r1, 4; or.b32 %r2, %r4, 8;",
        # No addresses.
        "mul.lo.u32 %r4, %r8, 4; and.b32 %r4, %r4, 60; add.u32 %r2, %r1, %r4;",
        # What the excerpt does not need may be anything.
        "mov.b32 %r2, %r1; mul.lo.u32 %r7, %r1, 3;",
        "mov.b32 %r2, %r1; setp.eq.u32 %p3, %r1, 3;",
        "mov.b32 %r2, %r1; st.global.u32 [%d1], %r1;",
        "mov.b32 %r2, %r1; st.shared.u32 [sh+32], %r1;",
        "mov.b32 %r2, %r1; st.shared::cta.u32 [sh+32], %r1;",
    ],
)
def test_sums_and_copies_of_shared_addresses_are_plain(line: str) -> None:
    assert used(f"{line} st.shared.u32 [%r2], %r8;")[0].is_plain


@pytest.mark.parametrize(
    "line",
    [
        "mul.lo.u32 %r2, %r1, 1;",
        "shl.b32 %r2, %r1, 0;",
        "min.u32 %r2, %r1, %r8;",
        "not.b32 %r2, %r1;",
        "cvt.u16.u32 %h1, %r1; cvt.u32.u16 %r2, %h1;",
        "mov.b32 %f1, %r1; cvt.f64.f32 %fd, %f1; mov.b64 %d5, %fd; cvt.u32.u64 %r2, %d5;",
        "cvt.rn.f32.u32 %f1, %r1; mov.b32 %r2, %f1;",
        "cvt.u32.u8 %r2, %r1;",
        "mov.b64 {%r2, %r7}, %d2;",
        "mov.b64 %d5, {%r1, %r8}; cvt.u32.u64 %r2, %d5;",
        "add.u32 %r2, %r1, %r1;",
        "add.cc.u32 %r2, %r1, %r8;",
        "add.sat.s32 %r2, %r1, %r8;",
        "sub.u32 %r2, %r8, %r1;",
        "sub.u32 %r2, %r1, %r1;",
        "sub.cc.u32 %r2, %r1, %r8;",
        "sub.sat.s32 %r2, %r1, %r8;",
        "mad.lo.u32 %r2, %r1, 1, %r8;",
        "mad.lo.u32 %r2, %r8, %r1, %r8;",
        "mad.lo.u32 %r2, %r1, 1, %r1;",
        "mad.hi.u32 %r2, %r8, 4, %r1;",
        "mad.lo.cc.u32 %r2, %r8, 4, %r1;",
        "or.b32 %r2, %r1, 16;",
        "or.b32 %r2, %r1, %r8;",
        "or.b32 %r2, %r8, %r1;",
        "or.b32 %r2, 8, %r1;",
        "or.b32 %r2, %r1, -1;",
        "xor.b32 %r2, %r1, 0x80000000;",
        "xor.b64 %d5, %d2, 0x8000000000000000; cvt.u32.u64 %r2, %d5;",
        "xor.b64 %d5, %d2, 0x100000000; cvt.u32.u64 %r2, %d5;",
        "and.b32 %r2, %r1, 15;",
        "and.b32 %r2, %r1, -17;",
        "and.b32 %r2, %r1, 0x7FFFFFF0;",
        "and.b64 %d5, %d2, 0xFFFFFFF0; cvt.u32.u64 %r2, %d5;",
        "mov.u32 %r4, small; or.b32 %r2, %r4, 4;",
        "mov.u32 %r4, bytes; or.b32 %r2, %r4, 1;",
        # Of two alignments the lower counts, in whatever order they come.
        "mov.u32 %r4, small; selp.b32 %r5, %r1, %r4, %p1; or.b32 %r2, %r5, 8;",
        "mov.u32 %r4, small; selp.b32 %r5, %r4, %r1, %p1; or.b32 %r2, %r5, 8;",
        "mov.u32 %r5, %r1; @%p1 mov.u32 %r5, small; or.b32 %r2, %r5, 8;",
        "mov.u32 %r5, small; @%p1 mov.u32 %r5, %r1; or.b32 %r2, %r5, 8;",
        # A branch and the address of another access tell what the address is.
        "mov.b32 %r2, %r1; setp.eq.u32 %p2, %r1, 64; @%p2 bra DONE; DONE:",
        "mov.b32 %r2, %r1; mul.wide.u32 %d6, %r1, 4; add.u64 %d7, %d1, %d6; st.u32 [%d7], 0;",
        # Local and generic memory may give it back.
        "mov.b32 %r2, %r1; st.local.u32 [own], %r1;",
        "mov.b32 %r2, %r1; st.u32 [%d1], %r1;",
    ],
)
def test_other_results_of_shared_addresses_are_not(line: str) -> None:
    body = f".reg .b16 %h<2>; .reg .f64 %fd; {line} st.shared.u32 [%r2], %r8;"
    assert not used(body)[0].is_plain


@pytest.mark.parametrize(
    ("stored", "is_opaque"),
    [
        ("st.shared.u32 [sh+8], %r1;", True),
        ("st.shared.u32 [sh+8], %r8;", False),
        ("st.shared.u32 [%r1], %r8;", False),
        ("add.u32 %r2, %r1, 4; st.shared.u32 [sh+8], %r2;", True),
        ("st.shared.u64 [sh+8], %d2;", True),
    ],
)
def test_stores_of_addresses_are_opaque(stored: str, is_opaque: bool) -> None:
    use, opcodes = used(stored)
    stores = {n for n, opcode in enumerate(opcodes) if opcode.startswith("st.shared")}
    assert use.opaque == (stores if is_opaque else set())
    assert use.is_plain


def test_variables_have_places_of_their_own() -> None:
    use, _ = used("", ".extern .shared .align 16 .b8 open[];\n.shared .b64 all[4];")
    assert use.variables == {
        "open": SharedVariable(BASE, None),
        "all": SharedVariable(BASE + 2 * SPACING, 32),
        "sh": SharedVariable(BASE + 3 * SPACING, 512),
        "small": SharedVariable(BASE + 4 * SPACING, 64),
        "bytes": SharedVariable(BASE + 5 * SPACING, 64),
    }
    assert use.is_plain
    assert not use.has_addresses


@pytest.mark.parametrize(("count", "is_plain"), [(61, True), (62, False)])
def test_at_most_64_variables_have_places(count: int, is_plain: bool) -> None:
    more = " ".join(f".shared .b32 more{number};" for number in range(count))
    assert used("", more)[0].is_plain is is_plain


def test_a_variable_of_a_function_that_is_inlined_is_under_another_name() -> None:
    function = ".func f() { .shared .b32 mine; st.shared.u32 [mine], 1; ret; }"
    assert used("", function)[0].is_plain
    assert not used("call f;", function)[0].is_plain


NEED = "mul.wide.u32 %d6, %r5, 4; add.u64 %d7, %d1, %d6; st.global.u32 [%d7], %r8;"


@pytest.mark.parametrize(
    ("body", "loads"),
    [
        (f"ld.shared.u32 %r5, [sh]; {NEED}", 2),
        ("ld.shared.u32 %r5, [sh]; st.global.u32 [%d1], %r5;", 1),
        (f"ld.global.u32 %r5, [%d1]; {NEED}", 1),
        (f"ld.u32 %r5, [%d1]; {NEED}", 1),
        (f"cvta.to.shared.u64 %d9, %d2; ld.u32 %r5, [%d1]; {NEED}", 1),
        (f"cvta.global.u64 %d9, %d1; ld.u32 %r5, [%d1]; {NEED}", 1),
        (f"cvta.shared.u64 %d9, %d2; ld.u32 %r5, [%d9]; {NEED}", 2),
        (f"cvta.shared.u64 %d9, %d2; ld.local.u32 %r5, [own]; {NEED}", 1),
        (f"mapa.u64 %d9, %d1, 0; ld.u32 %r5, [%d9]; {NEED}", 1),
        (f"mapa.shared::cluster.u32 %r7, %r1, 0; ld.u32 %r5, [%d1]; {NEED}", 2),
        (f"atom.shared.add.u32 %r5, [sh], 1; {NEED}", 1),
        ("ld.shared.v2.u32 {%r5, %r6}, [sh]; " + NEED.replace("%r5", "%r6"), 2),
    ],
)
def test_loads_that_may_be_from_shared_memory(body: str, loads: int) -> None:
    use, opcodes = used(body)
    assert len(use.loads) == loads
    assert {opcodes[n].partition(".")[0] for n in use.loads} == {"ld"}
    assert not use.has_addresses


def test_loads_of_eight_bytes_may_give_addresses() -> None:
    body = "ld.shared.u64 %d5, [sh]; st.global.u32 [%d5], %r8;"
    assert used(body)[0].has_addresses
