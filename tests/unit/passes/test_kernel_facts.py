"""Facts about kernels that hold for every launch: values, loops, accesses, indirection."""

from __future__ import annotations

import pytest

from tessera.ir.graph.access import AccessKind, AddressClass
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.indirect import IndirectAccesses
from tessera.passes.kernel_facts.kernel_codes import KernelCodes
from tessera.passes.kernel_facts.known_bits import KnownBits, constant_bits, result_bits
from tessera.passes.kernel_facts.loop_bounds import Decided, LoopBounds
from tessera.passes.kernel_facts.register_values import (
    KernelAccesses,
    Provenance,
    RegisterValue,
    RegisterValues,
)
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=4096 role=input
buffer y bytes=4096 role=output
buffer ids bytes=64 role=input
"""
BITS = """
.global .u32 counter;
.visible .entry bits(.param .u64 y, .param .u64 x) .reqntid 128
{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<10>;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 4;
    and.b32 %r3, %r1, 7;
    or.b32 %r4, %r2, %r3;
    shr.u32 %r5, %r1, 5;
    setp.ge.u32 %p1, %r1, 100;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd2, %rd1;
    mov.u32 %r6, 9;
    setp.lt.u32 %p2, %r1, 10;
    @%p2 add.u32 %r6, %r1, 20;
    st.global.u32 [%rd3], %r4;
    add.u32 %r8, %r4, %r5;
    add.u32 %r9, %r8, %r6;
    mul.wide.u32 %rd8, %r9, 4;
    add.s64 %rd9, %rd1, %rd8;
    st.global.u32 [%rd9], %r4;
    mov.u64 %rd4, counter;
    ld.global.u32 %r7, [%rd4];
    ld.param.u64 %rd5, [x];
    ld.global.u64 %rd6, [%rd5];
    add.s64 %rd7, %rd6, 8;
    st.global.u32 [%rd7], %r6;
    st.global.u32 [%rd4], %r5;
DONE:
    ret;
}
"""
LOOPS = """
.visible .entry loops(.param .u64 y, .param .u32 n)
{
    .reg .pred %p<6>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
CONSTANT:
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
    add.u32 %r3, %r3, 4;
    setp.lt.u32 %p1, %r3, 30;
    @%p1 bra CONSTANT;
    mov.u32 %r4, %r2;
STRIDED:
    setp.ge.u32 %p2, %r4, %r1;
    @%p2 bra AFTER;
    mov.u32 %r5, 0;
INNER:
    add.u32 %r5, %r5, 1;
    st.global.u32 [%rd1], %r5;
    setp.ne.u32 %p3, %r5, %r1;
    @%p3 bra INNER;
    add.u32 %r4, %r4, 32;
    bra STRIDED;
AFTER:
    ld.global.u32 %r6, [%rd1];
    mov.u32 %r7, 0;
DATA:
    add.u32 %r7, %r7, 1;
    st.global.u32 [%rd1+4], %r7;
    setp.lt.u32 %p4, %r7, %r6;
    @%p4 bra DATA;
    ret;
}
"""
OPTIONAL = """
.visible .entry gather(.param .u64 y, .param .u64 x, .param .u64 ids)
{
    .reg .pred %p<3>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [ids];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    mov.u32 %r2, %r1;
    setp.eq.u64 %p1, %rd3, 0;
    @%p1 bra PLAIN;
    add.s64 %rd5, %rd3, %rd4;
    ld.global.u32 %r2, [%rd5];
PLAIN:
    mul.wide.u32 %rd6, %r2, 4;
    add.s64 %rd7, %rd2, %rd6;
    ld.global.u32 %r3, [%rd7];
    add.s64 %rd8, %rd1, %rd4;
    st.global.u32 [%rd8], %r3;
    ret;
}
"""


def manager(kernel: str, steps: str = "") -> AnalysisManager:
    return AnalysisManager(trace(BUFFERS, kernel, steps))


def values(kernel: str, name: str) -> dict[str, RegisterValue]:
    """The last value of each register."""
    return {v.register: v for v in manager(kernel).get(RegisterValues).of("m", name)}


def test_ranges_and_bits() -> None:
    found = values(BITS, "bits")
    assert (found["%r1"].low, found["%r1"].high) == (0, 127)
    assert (found["%r2"].low, found["%r2"].high) == (0, 127 * 16)
    assert found["%r2"].bits.low_zeros == 4
    assert (found["%r3"].low, found["%r3"].high) == (0, 7)
    # tid*16 and tid%8 share no bit, so `or` is a sum and bit 3 is zero.
    assert found["%r4"].bits.mask & 0b1000 == 0b1000
    assert (found["%r5"].low, found["%r5"].high) == (0, 3)


def test_branches_and_guards_narrow() -> None:
    found = values(BITS, "bits")
    # Past the branch tid < 100; under the guard tid < 10.
    assert (found["%rd2"].low, found["%rd2"].high) == (0, 396)
    assert (found["%r6"].low, found["%r6"].high) == (9, 29)


def test_provenance() -> None:
    found = values(BITS, "bits")
    bases = {r: (found[r].base.provenance, found[r].base.name) for r in ("%rd3", "%rd4", "%rd7")}
    assert bases == {
        "%rd3": (Provenance.PARAMETER, "y"),
        "%rd4": (Provenance.VARIABLE, "counter"),
        "%rd7": (Provenance.LOADED, "%rd6"),
    }
    assert str(found["%rd3"].offset) == "4*tid.x"
    assert str(found["%rd7"].offset) == "8"
    assert found["%r5"].base.provenance is Provenance.INTEGER


def test_a_value_points_at_its_line() -> None:
    span = values(BITS, "bits")["%r4"].span
    assert span is not None
    assert span.source.line_text(span.start).strip() == "or.b32 %r4, %r2, %r3;"


def test_loops() -> None:
    found = manager(LOOPS).get(LoopBounds).of("m", "loops")
    by_count = {loop.rounds: loop for loop in found}
    assert by_count["8"].decided is Decided.CONSTANT
    strided = next(loop for loop in found if loop.rounds == "(n - tid.x)/32")
    assert strided.decided is Decided.LAUNCH
    inner = by_count["n"]
    assert inner.parent is not None
    assert found[inner.parent] == strided
    assert [loop.decided for loop in found].count(Decided.DATA) == 1


GUARDED = """
.visible .entry guarded(.param .u64 y) .reqntid 128
{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1|%p2, %r1, 8;
    @%p1 st.global.u32 [%rd1], %r1;
next:
    shl.b32 %r2, %r1, 2;
    cvt.u64.u32 %rd2, %r2;
    add.u64 %rd3, %rd1, %rd2;
    @%p2 st.global.u32 [%rd3], %r2;
    ret;
}
"""


def test_a_guard_at_the_end_of_a_block_is_no_branch() -> None:
    found = values(GUARDED, "guarded")
    assert (found["%r2"].low, found["%r2"].high) == (0, 4 * 127)


def test_the_second_result_of_a_test_is_the_opposite() -> None:
    first, second = manager(GUARDED).get(KernelAccesses).of("m", "guarded")
    assert (first.conditions, second.conditions) == (("tid.x < 8",), ("tid.x >= 8",))


def test_accesses_of_a_kernel() -> None:
    read, write = manager(COPY).get(KernelAccesses).of("m", "copy")
    assert (read.kind, write.kind) == (AccessKind.READ, AccessKind.WRITE)
    assert (read.base.name, write.base.name) == ("x", "out")
    assert str(write.offset) == "4*ctaid.x*ntid.x + 4*tid.x"
    assert write.width == 4
    assert write.conditions == ("ctaid.x*ntid.x + tid.x < n",)
    assert write.address is AddressClass.DIRECT


def test_classes_of_a_kernel() -> None:
    found = manager(BITS).get(KernelAccesses).of("m", "bits")
    classes = ["direct", "indexed", "direct", "direct", "pointer", "direct"]
    assert [a.address.value for a in found] == classes
    assert found[4].loads == ("%rd6",)


def test_a_launch_decides_what_is_indirect() -> None:
    launch = "launch m.gather grid=1,1,1 block=8,1,1 args=[y, x, {}]\n"
    found = manager(OPTIONAL, launch.format("u64:0") + launch.format("ids"))
    indirect = found.get(IndirectAccesses)
    assert {int(a.step) for a in indirect.accesses} == {1}
    assert {a.address for a in indirect.accesses} == {AddressClass.INDEXED}
    assert indirect.accesses[0].reason == "the address contains data"
    assert indirect.pinned == ()


def test_kernels_are_found_by_name() -> None:
    codes = manager(COPY).get(KernelCodes)
    assert codes.of("m", "copy").function.name == "copy"
    assert [str(k) for k in codes.codes] == ["m.copy@sm_80"]
    with pytest.raises(KeyError, match=r"m\.nothing"):
        codes.of("m", "nothing")


@pytest.mark.parametrize("name", ["and", "or", "xor", "add", "sub", "mul", "shl", "shr"])
def test_known_bits_hold(name: str) -> None:
    """Every pair of 3-bit numbers with every mask of known bits."""

    def concrete(a: int, b: int) -> int:
        table = {
            "and": a & b,
            "or": a | b,
            "xor": a ^ b,
            "add": a + b,
            "sub": a - b,
            "mul": a * b,
            "shl": a << b if b < 8 else 0,
            "shr": a >> b,
        }
        return table[name] & 0xFF

    for a in range(8):
        for b in range(8):
            for mask in (0x00, 0x05, 0xFD, 0xFF):
                left = KnownBits(mask, a & mask)
                right = (
                    constant_bits(b, 32) if name in {"shl", "shr"} else KnownBits(0xFB, b & 0xFB)
                )
                found = result_bits(name, [left, right], 8)
                assert concrete(a, b) & found.mask == found.value, (a, b, mask)


def test_the_regions_need_none_of_this() -> None:
    assert AccessRegions.needs == ()
