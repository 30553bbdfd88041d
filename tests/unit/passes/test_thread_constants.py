"""Numbers of a thread's values: two addresses have one number only if they are equal."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.kernel_code import KernelCode, prepare_kernel
from tessera.passes.kernel_facts.own_reads import ThreadConstants, loads_of

KERNEL = """.version 9.9
.target sm_90a
.address_size 64
.global .align 16 .b8 held[64];
.visible .entry k(.param .u64 y, .param .u64 x, .param .u32 n)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %d<40>;
    .reg .f64 %f<4>;
    .reg .v2 .b32 %w;
    ld.param.u64 %d1, [y];
    ld.param.u64 %d2, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %d3, %r2, 4;
    {body}
    ret;
}}
"""


def code_of(body: str) -> KernelCode:
    module = parse_module(KERNEL.format(body=body), "k.ptx")
    return prepare_kernel(module, module.definitions()["k"])


def numbers(body: str, *addresses: str) -> list[int | None]:
    """The numbers of the addresses of two stores behind a body."""
    stores = " ".join(f"st.global.u32 [{address}], %r2;" for address in addresses)
    code = code_of(f"{body} {stores}")
    constants = ThreadConstants(code)
    return [
        constants.address(step.instruction.operands[0], (block, step.index))
        for block, steps in enumerate(code.blocks)
        for step in steps
        if str(step.instruction.opcode) == "st.global.u32"
    ]


EIGHT = "".join(f"mov.u32 %r{5 + i}, %ctaid.{'xyz'[i]};" for i in range(3)) + "".join(
    f"mov.u32 %r{8 + i}, %n{'cta' if i < 3 else ''}{'id' if i < 3 else 'tid'}.{'xyz'[i % 3]};"
    for i in range(6)
)
WIDE = EIGHT + "".join(f"cvt.u64.u32 %d{20 + i}, %r{5 + i};" for i in range(9))


def summed(target: int, order: list[int]) -> str:
    """Lines that add the nine values of `WIDE` whose numbers are given."""
    start = f"mov.u64 %d{target}, %d{20 + order[0]};"
    steps = [f"%d{target}"]
    for place, number in enumerate(order[1:]):
        name = f"%d{target}{'abcdefghi'[place]}"
        start += f" .reg .b64 {name}; add.u64 {name}, {steps[-1]}, %d{20 + number};"
        steps.append(name)
    return start


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("", "%d1", "%d1"),
        ("", "%d1", "%d1+0"),
        ("add.u64 %d4, %d1, 8;", "%d4", "%d1+8"),
        ("add.u64 %d4, %d1, 8; sub.u64 %d5, %d4, 8;", "%d5", "%d1"),
        ("add.u64 %d4, %d1, %d3; sub.u64 %d5, %d4, %d3;", "%d5", "%d1"),
        ("add.u64 %d4, %d1, %d3; add.s64 %d5, %d3, %d1;", "%d4", "%d5"),
        ("add.u64 %d4, %d1, -4; sub.u64 %d5, %d1, 4;", "%d4", "%d5"),
        ("add.u64 %d4, %d1, %d1; add.u64 %d5, %d1, %d1;", "%d4", "%d5+0"),
        ("mov.u64 %d4, 4096; mov.u64 %d5, 4092; add.u64 %d6, %d5, 4;", "%d4", "%d6"),
        ("add.u64 %d4, %d1, 0x8000000000000000; add.u64 %d5, %d4, 0x8000000000000000;",
         "%d5", "%d1"),
        ("cvta.to.global.u64 %d4, %d1;", "%d4", "%d1"),
        ("cvta.global.u64 %d4, %d1;", "%d4", "%d1"),
        ("ld.param.u64 %d4, [y];", "%d4", "%d1"),
        ("mov.u32 %r4, %tid.x; mul.wide.u32 %d4, %r4, 4; add.u64 %d5, %d1, %d3;"
         "add.u64 %d6, %d1, %d4;", "%d5", "%d6"),
        (f"{WIDE} {summed(10, [*range(8)])} {summed(11, [*range(7, -1, -1)])}", "%d10g", "%d11g"),
        (f"{WIDE} {summed(10, [*range(9)])} add.u64 %d11, %d10g, %d28;", "%d10h", "%d11"),
    ],
)  # fmt: skip
def test_equal_addresses_have_one_number(body: str, first: str, second: str) -> None:
    one, other = numbers(body, first, second)
    assert one == other is not None


@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("", "%d1", "%d2"),
        ("", "%d1", "%d1+8"),
        ("", "%d1+1", "%d1"),
        ("", "%d1+4", "%d1+8"),
        ("", "%d1", "%d1+-1"),
        ("add.u64 %d4, %d1, %d1;", "%d4", "%d1"),
        ("add.u64 %d4, %d1, %d1; add.u64 %d5, %d4, %d1;", "%d4", "%d5"),
        ("add.u64 %d4, %d1, %d3;", "%d4", "%d1"),
        ("add.u64 %d4, %d1, %d3;", "%d4", "%d3"),
        ("sub.u64 %d4, %d1, %d3; add.u64 %d5, %d1, %d3;", "%d4", "%d5"),
        ("sub.u64 %d4, %d1, %d3; sub.u64 %d5, %d3, %d1;", "%d4", "%d5"),
        ("mov.u64 %d4, 4096; mov.u64 %d5, 4097;", "%d4", "%d5"),
        ("ld.param.u32 %r4, [y]; cvt.u64.u32 %d4, %r4;", "%d4", "%d1"),
        ("ld.param.s32 %r4, [n]; cvt.u64.u32 %d4, %r4; cvt.u64.u32 %d5, %r1;", "%d4", "%d5"),
        ("cvt.u64.u32 %d4, %r2; cvt.s64.s32 %d5, %r2;", "%d4", "%d5"),
        ("shl.b64 %d4, %d3, 1; shl.b64 %d5, %d3, 2;", "%d4", "%d5"),
        # Sums of 32 bits are told by how they are written.
        ("add.u32 %r4, %r2, 4; sub.u32 %r5, %r4, 4; cvt.u64.u32 %d4, %r5; cvt.u64.u32 %d5, %r2;",
         "%d4", "%d5"),
        ("cvta.shared.u64 %d4, %d1;", "%d4", "%d1"),
        ("cvta.to.shared.u64 %d4, %d1;", "%d4", "%d1"),
        # More than eight terms are told by how they are written, too.
        (f"{WIDE} {summed(10, [*range(9)])} {summed(11, [*range(8, -1, -1)])}", "%d10h", "%d11h"),
    ],
)  # fmt: skip
def test_other_addresses_have_other_numbers(body: str, first: str, second: str) -> None:
    one, other = numbers(body, first, second)
    assert one != other
    assert None not in (one, other)


@pytest.mark.parametrize(
    ("body", "address"),
    [
        ("ld.global.u64 %d4, [%d1];", "%d4"),
        ("ld.global.u64 %d4, [%d1];", "%d4+8"),
        ("ld.global.u64 %d4, [%d1]; add.u64 %d5, %d1, %d4;", "%d5"),
        ("mov.u64 %d4, %d1; add.u64 %d4, %d4, 4;", "%d4"),
        ("setp.eq.u32 %p1, %r2, 0; @%p1 mov.u64 %d4, %d1;", "%d4"),
        ("mov.u64 %d4, %clock64;", "%d4"),
        ("mov.u32 %r4, %smid; cvt.u64.u32 %d4, %r4;", "%d4"),
        ("mov.u64 %d4, %globaltimer;", "%d4"),
        ("mov.u64 %d4, held;", "%d4"),
        ("", "held"),
        ("mov.b64 %d4, {%r1, %r2};", "%d4"),
        ("mov.b64 {%r4, %r5}, %d1; cvt.u64.u32 %d4, %r4;", "%d4"),
        ("ld.param.v2.u32 %w, [x]; cvt.u64.u32 %d4, %w.x;", "%d4"),
        ("mov.b64 %f1, %d1; add.f64 %f2, %f1, %f1; mov.b64 %d4, %f2;", "%d4"),
        ("ld.param.u64 %d4, [n];", "%d4"),
        ("ld.param.u64 %d4, [x+4];", "%d4"),
        ("ld.param.u64 %d4, [x+(1/0)];", "%d4"),
        ("ld.global.u64 %d4, [%d1];", "%d4+(1/0)"),
        ("", "%d1+(1/0)"),
        ("ld.param.u64 %d4, [x+-4];", "%d4"),
        ("ld.param.v2.u32 {%r4, %r5}, [x]; cvt.u64.u32 %d4, %r4;", "%d4"),
        ("mov.u64 %d5, x; ld.param.u64 %d4, [%d5];", "%d4"),
        ("setp.eq.u32 %p1, %r2, 0; @%p1 bra OVER; mov.u64 %d4, %d1; OVER:", "%d4"),
    ],
)
def test_what_may_change_has_no_number(body: str, address: str) -> None:
    assert numbers(body, address) == [None]


@pytest.mark.parametrize(
    ("load", "first", "second", "has_number"),
    [("u32", "[y]", "[y+4]", True), ("u16", "[y+2]", "[y+6]", True), ("u8", "[n+3]", "[n]", True),
     ("u32", "[y]", "[y+5]", False), ("u8", "[n]", "[n+4]", False), ("u32", "[n]", "[n+1]", False)],
)  # fmt: skip
def test_a_place_inside_a_parameter(load: str, first: str, second: str, has_number: bool) -> None:
    lines = f"ld.param.{load} %r4, {first}; ld.param.{load} %r5, {second};"
    wide = "cvt.u64.u32 %d4, %r4; cvt.u64.u32 %d5, %r5;"
    one, other = numbers(lines + wide, "%d4", "%d5")
    assert one is not None
    assert one != other
    assert (other is not None) is has_number


def test_only_an_address_of_one_part_has_a_number() -> None:
    code = code_of("st.global.u32 [%d1], %r2;")
    constants = ThreadConstants(code)
    at = next((b, s.index) for b, steps in enumerate(code.blocks) for s in steps if s.effects[:1]
              and s.instruction.opcode.name == "st")  # fmt: skip
    name = ptx.Name("%d1")
    assert constants.address(ptx.Address((name,)), at) is not None
    assert constants.address(name, at) is None
    assert constants.address(ptx.Address((name, name)), at) is None
    assert constants.address(ptx.Address((ptx.Offset(name, ptx.Name("held")),)), at) is None


def test_an_instruction_does_not_come_before_itself() -> None:
    constants = ThreadConstants(code_of("bra NEXT; NEXT:"))
    assert constants.comes_first((0, 1), (0, 2))
    assert not constants.comes_first((0, 1), (0, 1))
    assert not constants.comes_first((0, 2), (0, 1))
    assert constants.comes_first((0, 9), (1, 0))
    assert not constants.comes_first((1, 0), (0, 9))


@pytest.mark.parametrize(
    ("body", "owns"),
    [
        ("st.global.u32 [%d1], %r2; ld.global.u32 %r3, [%d1];", [True]),
        ("st.global.u32 [%d1], %r2; ld.global.u64 %d4, [%d1];", [False]),
        ("st.global.u32 [%d1+4], %r2; ld.global.u32 %r3, [%d1];", [False]),
        ("st.global.u32 [%d1+4], %r2; ld.global.u32 %r3, [%d1+4];", [True]),
        ("atom.global.exch.b32 %r4, [%d1], %r2; ld.global.u32 %r3, [%d1];", [False, False]),
        ("red.global.add.u32 [%d1], %r2; ld.global.u32 %r3, [%d1];", [False, False]),
        ("st.global.u32 [%d1], %r2; atom.global.add.u32 %r3, [%d1], 1;", [False]),
        ("st.global.u32 [%d1], %r2; ld.global.nc.u32 %r3, [%d1];", [False]),
        ("ld.global.u32 %r4, [%d1]; ld.global.u32 %r3, [%d1];", [False, False]),
        ("st.global.u32 [%d1], %r2; ld.const.u32 %r3, [%d1];", [False]),
        # A form of a later version may read anything behind its operands.
        ("st.global.u32 [%d1], %r2; ld._odd.u32 %r3, [%d1];", [False, False]),
    ],
)
def test_loads_of_what_the_thread_has_stored(body: str, owns: list[bool]) -> None:
    loads = [load for load in loads_of(code_of(body)) if "param" not in load.text]
    assert [load.is_own for load in loads] == owns
