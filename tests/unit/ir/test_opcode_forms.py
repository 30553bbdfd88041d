"""Forms that ptxas 13.4 takes and forms that it refuses, each by itself; versions and targets."""

from __future__ import annotations

import pytest

from tessera.diagnostics import Severity, Source, TesseraError
from tessera.frontend.ptx.read_ptx import load_module
from tests.helpers.each import each

REGISTERS = "".join(
    f".reg .{kind} %{kind}_<9>;\n"
    for kind in (
        "pred",
        "b8",
        "b16",
        "u16",
        "f16",
        "b32",
        "u32",
        "s32",
        "f32",
        "f16x2",
        "b64",
        "u64",
        "s64",
        "f64",
        "b128",
    )
)
VARIABLES = (
    ".extern .shared .align 16 .b8 sh[];\n.global .align 16 .b8 gl[64];\n"
    ".const .align 16 .b8 co[64];\n.func fn(.param .u32 a);\n"
)


def codes(line: str, version: str = "9.0", target: str = "sm_90a") -> list[str]:
    """The codes of the errors of a kernel with one instruction."""
    text = (
        f".version {version}\n.target {target}\n.address_size 64\n{VARIABLES}"
        f".entry k(.param .u64 p)\n{{\n.local .align 16 .b8 lo[64];\n{REGISTERS}{line}\n"
        "LAB:\nret;\n}\n"
    )
    try:
        _, found = load_module(Source("form.ptx", text))
    except TesseraError as failure:
        found = failure.diagnostics
    return [d.code for d in found if d.severity is Severity.ERROR]


def is_accepted(text: str) -> bool:
    """Whether a module is read without an error."""
    try:
        load_module(Source("module.ptx", text))
    except TesseraError:
        return False
    return True


ACCEPTED = """
sust.b.2d.b32.trap [%b64_1, {%b32_1,%b32_2}], %b32_1;
sust.b.2d.b32.trap [%b64_1, {%f32_1,%b32_2}], %b32_1;
suld.b.3d.b32.trap %b32_1, [%b64_1, {%b32_1,%b32_2,%b32_3,%b32_4}];
sured.b.add.1d.u32.trap [%b64_1, {%f16x2_1}], %u32_1;
add.f32 %b32_1, %f32_1, 0f3F800000;
add.s32 %u32_1, %b32_1, -5;
add.f32.rn %f32_1, %f32_1, %f32_1;
ld.u32.global %u32_1, [gl];
ld.global.u8 %u64_1, [gl];
ld.global.f32 %b64_1, [%b32_1];
ld.global.b8 %f64_1, [gl];
ld.global.v2.u32 {%u32_1, _}, [gl];
ld.global.u32 {%u32_1}, [gl];
ld.local.u32 %u32_1, [16];
ld.u32 %u32_1, [sh];
st.global.b32 [gl], 0f3F800000;
st.global.v2.u32 [gl], {1, %u32_1};
mov.b64 {%u32_1, %u32_2}, %f64_1;
mov.b64 %b64_1, {1, 2};
mov.u32 %u32_1, %tid.x;
mov.u16 %u16_1, %tid.x;
mov.u64 %u64_1, gl+4;
mov.u64 %u64_1, fn;
mov.pred %pred_1, 1;
and.pred %pred_1, %pred_2, !%pred_3;
and.b32 %f32_1, %f32_1, %s32_1;
setp.eq.and.b32 %pred_1|%pred_2, %b32_1, %f32_1, !%pred_3;
selp.b32 %f32_1, %b32_1, 0f3F800000, %pred_1;
cvt.u8.u64 %u32_1, %u64_1;
cvt.u64.u32 %u64_1, %tid.x;
cvt.rn.f16.s64 %b32_1, %s64_1;
cvt.f64.f32 %f64_1, %f32_1;
mul.wide.u16 %u32_1, %u16_1, 5;
shl.b64 %b64_1, %b64_1, %s32_1;
bfe.u64 %u64_1, %u64_2, %u32_1, 4;
popc.b64 %u32_1, %u64_1;
atom.u32.global.add %u32_1, [gl], %s32_1;
atom.global.cas.b32 %u32_1, [gl], %f32_1, %f32_2;
shfl.bfly.sync.b32 %f32_1, %f32_1, 1, 31, -1;
barrier.aligned.sync 0;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f32_1, %f32_2, %f32_3, %f32_4}, {%b32_1, %b32_2, %b32_3, %b32_4}, {%b32_5, %b32_6}, {%f32_1, %f32_2, %f32_3, %f32_4};
""".strip().splitlines()  # noqa: E501

REFUSED = """
TSR1028 sust.b.2d.b32.trap [%b64_1, {%b32_1}], %b32_1;
TSR1028 sust.b.1d.b32.trap [%b64_1, {%f32_1}], %b32_1;
TSR1028 suld.b.3d.b32.trap %b32_1, [%b64_1, {%b32_1,%b32_2}];
TSR1028 sured.b.add.2d.u32.trap [%b64_1, {%f32_1,%f32_2}], %u32_1;
TSR1027 and.f32 %f32_1, %f32_1, %f32_1;
TSR1027 mov.sat.u32 %u32_1, %u32_1;
TSR1027 ld.sat.global.u32 %u32_1, [gl];
TSR1027 st.const.u32 [co], %u32_1;
TSR1027 mul.u32.wide %u64_1, %u32_1, %u32_1;
TSR1027 add.rn.rz.f32 %f32_1, %f32_1, %f32_1;
TSR1027 add.ftz.ftz.f32 %f32_1, %f32_1, %f32_1;
TSR1027 fma.f32 %f32_1, %f32_1, %f32_1, %f32_1;
TSR1027 cvt.f32.f64 %f32_1, %f64_1;
TSR1027 cvt.rn.f64.f32 %f64_1, %f32_1;
TSR1027 ld.relaxed.global.u32 %u32_1, [gl];
TSR1027 ld.volatile.const.u32 %u32_1, [co];
TSR1027 exit.uni;
TSR1027 atom.global.exch.u32 %u32_1, [gl], 1;
TSR1027 shfl.sync.bfly.u32 %u32_1, %u32_1, 1, 31, -1;
TSR1027 mma.sync.m16n8k16.row.col.f32.f16.f16.f32 {%f32_1, %f32_2, %f32_3, %f32_4}, {%b32_1, %b32_2, %b32_3, %b32_4}, {%b32_5, %b32_6}, {%f32_1, %f32_2, %f32_3, %f32_4};
TSR1025 add.bogus.s32 %u32_1, %u32_1, %u32_1;
TSR1025 addq.s32 %u32_1, %u32_1, %u32_1;
TSR1028 add.s32 %u32_1, %u32_1, %f32_1;
TSR1028 add.s64 %u32_1, %u32_1, %u32_1;
TSR1028 add.s32 %u32_1, %u32_1, 1.5;
TSR1028 add.f32 %f32_1, %f32_1, 1;
TSR1028 add.u32 %u32_1, %u32_1, %tid.x;
TSR1028 add.u32 %u32_1, %u32_1, %pred_1;
TSR1028 @%u32_1 add.u32 %u32_1, %u32_1, 1;
TSR1028 mov.u64 %u64_1, %tid.x;
TSR1028 mov.u32 %u32_1, %tid;
TSR1028 mov.u32 %tid.x, 5;
TSR1028 mov.u64 %u64_1, LAB;
TSR1028 mov.b64 %b64_1, {%u32_1};
TSR1028 ld.global.u32 %u16_1, [gl];
TSR1028 ld.global.f32 %u32_1, [gl];
TSR1028 ld.global.u32 %u32_1, [%f32_1];
TSR1028 ld.global.u32 %u32_1, [sh];
TSR1028 ld.u32 %u32_1, [p];
TSR1028 ld.global.v2.u32 {%u32_1, %u64_1}, [gl];
TSR1028 ld.global.v4.u32 {%u32_1, %u32_2}, [gl];
TSR1028 st.param.u64 [p], %u64_1;
TSR1028 shl.b32 %b32_1, %b32_1, %b64_1;
TSR1028 cvta.to.global.u64 %u64_1, gl;
TSR1028 bra 5;
TSR1028 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f32_1, %f32_2, %f32_3}, {%b32_1, %b32_2, %b32_3, %b32_4}, {%b32_5, %b32_6}, {%f32_1, %f32_2, %f32_3, %f32_4};
TSR1024 call gl;
""".strip().splitlines()  # noqa: E501

# instruction, first version, first target (with a version that has it)
NEEDS = """
redux.sync.add.s32 %u32_1, %u32_1, -1; | 7.0 | sm_80
shfl.sync.bfly.b32 %b32_1, %b32_1, 1, 31, -1; | 6.0 | sm_30
add.bf16x2 %b32_1, %b32_1, %b32_1; | 7.8 | sm_90
lop3.b32 %b32_1, %b32_1, %b32_1, %b32_1, 1; | 4.3 | sm_50
cp.async.ca.shared.global [sh], [gl], 16; | 7.0 | sm_80
barrier.cluster.arrive; | 7.8 | sm_90
atom.global.add.f64 %f64_1, [gl], %f64_1; | 5.0 | sm_60
tanh.approx.f32 %f32_1, %f32_1; | 7.0 | sm_75
ld.global.nc.u32 %u32_1, [gl]; | 3.1 | sm_32
""".strip().splitlines()


@each(ACCEPTED)
def test_it_is_accepted(line: str) -> None:
    assert codes(line) == []


@each(REFUSED)
def test_it_is_refused(case: str) -> None:
    code, line = case.split(" ", 1)
    assert codes(line) == [code]


@each(NEEDS)
def test_versions_and_targets(row: str) -> None:
    line, version, target = (part.strip() for part in row.split("|"))
    assert "TSR1029" not in codes(line, "9.0", target)
    lower = {
        "sm_30": "sm_20",
        "sm_32": "sm_30",
        "sm_50": "sm_35",
        "sm_60": "sm_53",
        "sm_75": "sm_70",
        "sm_80": "sm_75",
        "sm_90": "sm_89",
    }[target]
    assert "TSR1029" in codes(line, "9.0", lower)
    assert "TSR1029" in codes(line, "3.0" if version == "3.1" else "4.2", target)


@pytest.mark.parametrize("line", ["ld.sat.global.u32 %u32_1, [gl];", "addq.s32 %u32_1, %u32_1, 1;"])
def test_a_newer_module_may_know_better(line: str) -> None:
    assert codes(line, "9.9") == []
    assert codes(line, "9.4") != []


@pytest.mark.parametrize(
    ("declaration", "is_right"),
    [
        (".global .align 3 .b32 x;", False),
        (".global .b32 x[2] = {1, 2, 3};", False),
        (".global .b32 x[2] = {1};", True),
        (".global .f32 x = 1;", False),
        (".global .b32 x = 1.0;", True),
        (".global .u32 x = 1.0;", False),
        (".global .b32 x[];", False),
        (".extern .global .b32 x[];", True),
        (".global .b32 x[] = {1, 2};", True),
        (".shared .u32 x = 5;", False),
        (".global .pred x;", False),
        (".global .v4 .f64 x;", False),
        (".global .bf16 x;", False),
        (".common .shared .u32 x;", False),
        (".entry f(.param .v2 .b32 a) { ret; }", False),
        (".entry f(.reg .b32 a) { ret; }", False),
        (".entry f(.param .b8 a[16]) { ret; }", True),
        (".entry f() .maxntid 1, 2, 3, 4 { ret; }", False),
        (".entry f() .maxntid 0 { ret; }", False),
        (".func f() .maxntid 32 { ret; }", False),
        (".func f() .noreturn { exit; }", True),
        (".func f(.param .u32 a); .func f(.param .u64 a) { ret; }", False),
        (".extern .global .u32 x; .visible .global .u32 x;", True),
        (".extern .global .u32 x; .visible .global .u64 x;", False),
    ],
)
def test_declarations(declaration: str, is_right: bool) -> None:
    text = f".version 8.0\n.target sm_90\n.address_size 64\n{declaration}\n"
    assert is_accepted(text) is is_right


@pytest.mark.parametrize(
    ("version", "target", "is_right"),
    [
        ("8.0", "sm_999", False),
        ("8.0", "sm_80a", False),
        ("7.0", "sm_90", False),
        ("8.0", "sm_90a, debug", True),
        ("8.0", "compute_80", True),
        ("8.0", "foo", False),
        ("8.0", "debug", False),
        ("3.3", "sm_30", False),
        ("9.9", "sm_999", True),
        ("1.0", "sm_10", True),
        ("9.4", "sm_107f", True),
    ],
)
def test_headers(version: str, target: str, is_right: bool) -> None:
    text = f".version {version}\n.target {target}\n"
    assert is_accepted(text) is is_right
