"""Addresses and conditions as people read them, one instruction at a time."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.passes.kernel_facts.describe_kernel import describe_kernel
from tessera.passes.kernel_facts.kernel_code import prepare_kernel

KERNEL = """.version 8.6
.target sm_90a
.address_size 64
.global .align 16 .b8 held[64];
.visible .entry k(.param .u64 y, .param .u64 n, .param .u32 m)
{{
    .reg .pred %p<6>;
    .reg .b16 %h<9>;
    .reg .b32 %r<9>;
    .reg .b64 %d<20>;
    ld.param.u64 %d1, [y];
    ld.param.u64 %d9, [n];
    ld.param.u32 %r1, [m];
    {body}
    st.global.u32 [%d3], %r1;
    ret;
}}
"""


def described(body: str, kernel: str = KERNEL) -> list[str]:
    module = parse_module(kernel.format(body=body), "k.ptx")
    code = prepare_kernel(module, module.definitions()["k"])
    return [line for line in describe_kernel(code) if line.startswith(("st.", "_"))]


SUM = "add.u64 %d3, %d1, %d2;"
NINE = " ".join(f"add.u64 %t{place + 1}, %t{place}, 1;" for place in range(60))


@pytest.mark.parametrize(
    ("lines", "address"),
    [
        ("add.u64 %d3, %d1, 8;", "y + 8"),
        ("sub.u64 %d3, %d1, %d2;", "- %d2? + y"),
        ("sub.u64 %d3, %d1, 8;", "y - 8"),
        (f"shl.b64 %d2, %d9, 0; {SUM}", "n + y"),
        (f"shl.b64 %d2, %d9, 1; {SUM}", "2*n + y"),
        (f"shl.b64 %d2, %d9, 63; {SUM}", "9223372036854775808*n + y"),
        (f"shl.b64 %d2, %d9, 64; {SUM}", "%d2? + y"),
        (f"shl.b64 %d2, %d9, -1; {SUM}", "%d2? + y"),
        (f"shl.b64 %d2, %d9, %r1; {SUM}", "%d2? + y"),
        (f"mul.lo.u64 %d2, %d9, 3; {SUM}", "3*n + y"),
        (f"mul.hi.u64 %d2, %d9, 3; {SUM}", "%d2? + y"),
        ("mad.lo.u64 %d3, %d9, 3, %d1;", "3*n + y"),
        ("mad.hi.u64 %d3, %d9, 3, %d1;", "%d3?"),
        (f"min.u64 %d2, %d9, 3; {SUM}", "min(n, 3) + y"),
        (f"max.u64 %d2, %d9, 3; {SUM}", "max(n, 3) + y"),
        (f"div.u64 %d2, %d9, 3; {SUM}", "(n / 3) + y"),
        (f"rem.u64 %d2, %d9, 3; {SUM}", "(n % 3) + y"),
        (f"and.b64 %d2, %d9, 3; {SUM}", "(n & 3) + y"),
        (f"or.b64 %d2, %d9, 3; {SUM}", "(n | 3) + y"),
        (f"xor.b64 %d2, %d9, 3; {SUM}", "(n ^ 3) + y"),
        (f"shr.u64 %d2, %d9, 3; {SUM}", "(n >> 3) + y"),
        (f"cvt.u64.u32 %d2, %r1; {SUM}", "m + y"),
        # Floats, other operations, two results, several writers, a guard.
        (f"add.f64 %d2, %d9, %d9; {SUM}", "%d2? + y"),
        (f"min.bf16x2 %r2, %r1, %r1; cvt.u64.u32 %d2, %r2; {SUM}", "%r2? + y"),
        (f"not.b64 %d2, %d9; {SUM}", "%d2? + y"),
        (f"mov.b64 %d2, {{%r1, %r1}}; {SUM}", "%d2? + y"),
        (f"elect.sync %r2|%p2, -1; cvt.u64.u32 %d2, %r2; {SUM}", "%r2? + y"),
        ("mov.u64 %d3, %d1; @%p1 add.u64 %d3, %d1, 8;", "%d3?"),
        ("@%p1 add.u64 %d3, %d1, 8;", "%d3?"),
        (f"ld.global.u64 %d2, [%d1]; {SUM}", "data.%d2? + y"),
        ("mov.u64 %d3, held;", "held"),
        ("mov.u64 %d3, 0;", "0"),
        # Computations of more than 60 steps are cut.
        (f".reg .b64 %t<70>; mov.u64 %t0, %d1; {NINE} mov.u64 %d3, %t58;", "y + 58"),
        (f".reg .b64 %t<70>; mov.u64 %t0, %d1; {NINE} mov.u64 %d3, %t59;", "%d1? + 59"),
    ],
)
def test_an_address(lines: str, address: str) -> None:
    assert described(lines) == [f"st.global.u32 [{address}]"]


@pytest.mark.parametrize(
    ("lines", "condition"),
    [
        ("setp.lt.u64 %p1, %d9, 7; @%p1 bra A; ret; A:", "n < 7"),
        ("setp.lt.u64 %p1, %d9, 7; @!%p1 bra A; ret; A:", "n >= 7"),
        ("setp.lt.u64 %p1, %d9, 7; @%p1 bra A; A:", ""),
        ("setp.lt.u64 %p1|%p2, %d9, 7; @%p2 bra A; ret; A:", "n >= 7"),
        ("setp.lt.u64 %p1|%p2, %d9, 7; @!%p2 bra A; ret; A:", "n < 7"),
        ("setp.lt.u64 %p1, %d9, 7; @%p1 bra A; ret; A: mov.u32 %r7, 5; B:", "n < 7"),
        ("setp.lt.u64 %p1, %d9, 7; @%p1 ret;", "n >= 7"),
        ("setp.lt.u64 %p1, %d9, 7; @%p1 exit;", "n >= 7"),
        ("setp.lt.u64 %p1, %d9, 7; @%p1 trap;", ""),
        ("setp.hs.u64 %p1, %d9, 7; @%p1 ret;", "n < 7"),
        ("setp.lt.f64 %p1, %d9, %d1; @%p1 ret;", "?"),
        ("setp.num.f64 %p1, %d9, %d1; @%p1 ret;", "?"),
        ("setp.lt.bf16 %p1, %h1, %h1; @%p1 ret;", "?"),
        ("setp.lt.and.u64 %p1, %d9, 7, %p2; @%p1 ret;", "?"),
        ("setp.lt.or.u64 %p1, %d9, 7, %p2; @%p1 ret;", "?"),
        ("setp.lt.xor.u64 %p1, %d9, 7, %p2; @%p1 ret;", "?"),
        ("setp.eq.u64 %p1, %d9, 7; @%p1 setp.eq.u64 %p1, %d9, 8; @%p1 ret;", "?"),
        ("and.pred %p1, %p2, %p2; @%p1 ret;", "?"),
    ],
)
def test_a_condition(lines: str, condition: str) -> None:
    behind = f" if {condition}" if condition else ""
    assert described(f"mov.u64 %d3, %d1; {lines}") == [f"st.global.u32 [y]{behind}"]


STORE, STEP = "st.global.u32 [%d3], %r1;", "add.u64 %d3, %d3, 8;"
AGAIN = "setp.lt.u64 %p1, %d3, 64; @%p1 bra B;"
COUNTED = ["8*i0 + y", "8*i0 + y + 8"]
STEPPED = ["8*i0 + y + 8", "8*i0 + y + 8"]
OPEN = ["%d3?", "%d3?"]


@pytest.mark.parametrize(
    ("first", "inside", "shown"),
    [
        ("mov.u64 %d3, %d1;", f"{STORE} {STEP}", COUNTED),
        ("mov.u64 %d3, %d1;", f"{STEP} {STORE}", STEPPED),
        ("mov.u64 %d3, %d1;", f"{STEP} @%p2 bra D; {STORE} D:", STEPPED),
        ("mov.u64 %d3, %d1;", f"{STORE} add.u64 %d3, %d3, %d9;", ["i0*n + y", "i0*n + n + y"]),
        ("mov.u64 %d3, %d1;", f"{STORE} mul.lo.u64 %d3, %d3, 2;", OPEN),
        ("mov.u64 %d3, %d1;", f"{STORE} not.b64 %d3, %d3;", OPEN),
        ("not.b64 %d3, %d1;", f"{STORE} {STEP}", OPEN),
        ("mov.u64 %d3, %d1;", f"{STORE} @%p2 {STEP}", OPEN),
        ("@%p2 mov.u64 %d3, %d1;", f"{STORE} {STEP}", OPEN),
        ("mov.u64 %d3, %d1;", f"{STORE} {STEP} {STEP}", OPEN),
        ("mov.u64 %d3, %d1; @%p3 mov.u64 %d3, %d9;", f"{STORE} {STEP}", OPEN),
    ],
)
def test_a_counter(first: str, inside: str, shown: list[str]) -> None:
    stored, bound = shown
    guard = " if ?" if "bra D" in inside else ""
    assert described(f"{first} B: {inside} {AGAIN}") == [
        f"st.global.u32 [{stored}]{guard}",
        f"st.global.u32 [%d3?] if {bound} >= 64",
    ]


@pytest.mark.parametrize(("length", "is_cut"), [(144, False), (145, True)])
def test_a_long_line_is_cut(length: int, is_cut: bool) -> None:
    name = "y" * length
    kernel = KERNEL.replace(".u64 y,", f".u64 {name},").replace("[y]", f"[{name}]")
    whole = f"st.global.u32 [{name}]"
    assert described("mov.u64 %d3, %d1;", kernel) == [whole[:157] + "..." if is_cut else whole]


def test_what_an_unknown_instruction_may_access_is_open() -> None:
    found = described("mov.u64 %d3, %d1; _odd.b64 %d1, [%d9];")
    assert found[:2] == ["_odd.b64 [?]", "_odd.b64 [n]"]
