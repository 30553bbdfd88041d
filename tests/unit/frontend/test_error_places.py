"""One token of a file is spoilt, each in turn: the first error is on its line, and comes once."""

from __future__ import annotations

import re

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.share import least

TEXT = """\
.version 8.0
.target sm_80
.address_size 64
.file 1 "a.cu"
.extern .shared .align 16 .b8 smem[];
.global .align 4 .u32 table[4] = {1, 2,
  3, 4};
.const .f32 scale = 0f3F800000;
.func (.param .b32 out) helper(
  .param .b32 a,
  .param .b64 b
)
{
  .reg .b32 %r<4>;
  ld.param.b32 %r1, [a];
  add.s32 %r2, %r1, 1;
  st.param.b32 [out], %r2;
  ret;
}
.visible .entry kernel(
  .param .u64 .ptr .global .align 16 p,
  .param .u32 n
)
.maxntid 128, 1, 1
.minnctapersm 2
{
  .reg .pred %p<3>;
  .reg .b32 %r<9>;
  .reg .f32 %f<9>;
  .reg .b64 %rd<9>;
  .loc 1 3 5
  ld.param.u64 %rd1, [p];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra $DONE;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.v2.f32 {%f1, %f2},
     [%rd3+8];
  fma.rn.f32 %f3, %f1, %f2, 0f40000000;
  {
    .param .b32 retval;
    .param .b32 pa;
    .param .b64 pb;
    st.param.b32 [pa], %r2;
    st.param.b64 [pb], %rd3;
    call.uni (retval), helper, (pa, pb);
    ld.param.b32 %r3, [retval];
  }
  @!%p1 st.global.f32 [%rd3], %f3;
$DONE:
  ret;
}
"""
TOKEN = re.compile(r'"[^"]*"|[.%$\w:]+|\S')
SYNTAX = {"TSR1001", "TSR1002", "TSR1003", "TSR1007", "TSR1025"}
# Where a brace is lost or a statement goes on for a line, another line is as good an answer.
ELSEWHERE = {
    ("{", 6),
    ("(", 9),
    ("{", 13),
    ("(", 20),
    ("1", 24),
    ("2", 25),
    ("{", 26),
    ("}", 39),
    (",", 39),
    ("{", 42),
    ("}", 50),
    ("$DONE:", 52),
    ("}", 54),
}


def errors(text: str) -> list[tuple[int, str]]:
    """Line and code of each error."""
    try:
        parse_module(text)
    except TesseraError as failure:
        spans = [(d.code, d.primary.span) for d in failure.diagnostics if d.primary]
        return [(span.source.position(span.start)[0], code) for code, span in spans]
    return []


@pytest.mark.parametrize("spoilt", ["", "{0} {0}", ";", "17", "}}", ".zzz"])
def test_the_line_of_a_spoilt_token(spoilt: str) -> None:
    checked = 0
    for match in [*TOKEN.finditer(TEXT)][:: least(1, 3)]:
        line = TEXT.count("\n", 0, match.start()) + 1
        new = spoilt.format(match[0])
        found = errors(TEXT[: match.start()] + new + TEXT[match.end() :])
        if not found or new == match[0] or (match[0], line) in ELSEWHERE:
            continue
        checked += 1
        # Where a token lacks, a line may only be wrong because of how the next one starts.
        last = match.end() == len(TEXT) or not TEXT[match.end() :].partition("\n")[0].strip()
        lines = {line, line + 1} if last or not spoilt else {line}
        assert found[0][0] in lines, (match[0], line, found)
        syntax = [place for place, code in found if code in SYNTAX]
        assert len(syntax) <= 2, (match[0], line, found)
    assert checked > least(180, 55)


def test_a_missing_header_is_reported_once() -> None:
    assert errors(TEXT.replace(".version 8.0", "")) == [(2, "TSR1002")]
    assert errors(TEXT.replace(".target sm_80", "")) == [(3, "TSR1002")]


def test_values_of_a_directive_are_blamed_where_they_stand() -> None:
    assert errors(TEXT.replace("128, 1, 1", "x, y")) == [(24, "TSR1001")]


@pytest.mark.parametrize("name", ["my.kernel", "a.b.c", "kernel.f32"])
def test_a_dot_in_a_function_name(name: str) -> None:
    line = TEXT.replace("kernel(", f"{name}(")
    assert errors(line) == [(20, "TSR1025")]
    assert errors(f".version 8.0\n.target sm_80\n.entry {name}()\n{{\n ret;\n}}\n")[0][0] == 3
