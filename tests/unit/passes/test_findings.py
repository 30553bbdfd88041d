"""What the analysis reports, and where."""

from __future__ import annotations

from functools import partial

import pytest

from tessera.diagnostics import Diagnostic, Severity
from tessera.ir.program.program import Program
from tessera.passes.footprint import footprint
from tests.helpers.traces import COPY, dependences, trace

GATHER = """
.visible .entry gather(.param .u64 out, .param .u64 table, .param .u32 k)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [table];
    ld.param.u32 %r1, [k];
    mul.wide.u32 %rd2, %r1, 8;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u64 %rd4, [%rd3];
    ld.global.u32 %r2, [%rd4];
    ld.param.u64 %rd5, [out];
    st.global.u32 [%rd5], %r2;
    ret;
}
"""
BUFFERS = """
buffer x bytes=4096 role=input
buffer t bytes=4096 role=temp
buffer w bytes=4096 role=weight
buffer table bytes=64 role=input
buffer y bytes=4096 role=output
"""


def found(steps: str, kernels: str = COPY + GATHER) -> list[Diagnostic]:
    return list(dependences(program(steps, kernels)).diagnostics)


def program(steps: str, kernels: str = COPY + GATHER) -> Program:
    return trace(BUFFERS, kernels, steps)


def codes(steps: str, kernels: str = COPY + GATHER) -> list[str]:
    return [d.code for d in found(steps, kernels)]


def copy(out: str, source: str, count: int, blocks: int = 8) -> str:
    return f"launch m.copy grid={blocks},1,1 block=128,1,1 args=[{out}, {source}, u32:{count}]\n"


def gather(index: int) -> str:
    return f"launch m.gather grid=1,1,1 block=1,1,1 args=[y, table, u32:{index}]\n"


def test_nothing_to_say() -> None:
    assert codes(copy("t", "x", 1000) + copy("y", "t", 1000)) == []


def test_a_loaded_pointer_pins() -> None:
    (only,) = [d for d in found(gather(0)) if d.code == "TSR2001"]
    assert "loaded by `ld.global.u64`" in str(only.headline)
    assert only.primary is not None
    assert only.primary.span.source.line_text(only.primary.span.start).strip().startswith("ld.gl")


def test_a_declared_table_resolves_it() -> None:
    steps = "pointers table @{8:x+64}\n" + gather(1)
    assert codes(steps) == []
    node = dependences(program(steps)).graph.nodes[0]
    read = {int(a.buffer): a.region for a in node.accesses if a.kind.value == "read"}
    assert (read[0].start, read[0].end) == (64, 68)


def test_a_word_that_is_not_in_the_table_may_be_any_of_its_targets() -> None:
    node = dependences(program("pointers table @{8:x+64}\n" + gather(0))).graph.nodes[0]
    touched = {int(a.buffer): a.address.value for a in node.accesses}
    assert touched[0] == "pointer"


def test_overwriting_a_table() -> None:
    steps = "pointers table @{8:x+64}\n" + copy("table", "x", 3) + gather(1)
    assert codes(steps) == ["TSR2002", "TSR2001"]


def test_a_launch_that_overwrites_a_table_and_does_not_follow_it_touches_what_it_touches() -> None:
    """What one does that follows what it wrote: `tests/property/test_overwritten_words.py`."""
    steps = "pointers table @{8:x+64}\n" + copy("table", "x", 3)
    node = dependences(program(steps)).graph.nodes[0]
    assert {a.region.__class__.__name__ for a in node.accesses} == {"Interval"}
    assert [str(pin.reason) for pin in node.pins] == ["it may overwrite pointers in `table`"]


def test_writing_beside_a_table() -> None:
    steps = "pointers table @{8:x+64}\n" + copy("table", "x", 2) + gather(1)
    assert codes(steps) == []


def test_weights_are_not_written() -> None:
    (only,) = found(copy("w", "x", 1))
    assert (only.code, only.severity) == ("TSR2003", Severity.ERROR)
    assert only.primary is not None
    assert "st.global.f32" in only.primary.span.source.line_text(only.primary.span.start)


def test_past_the_buffer() -> None:
    (only,) = [d for d in found(copy("y", "x+3996", 50)) if d.code == "TSR2004"]
    assert "reaches outside `x`: bytes 3996 to 4196 of 4096" in str(only.headline)


def test_null_pointer() -> None:
    assert "TSR2005" in codes(copy("y", "u64:0", 50))


def test_unwritten_temp() -> None:
    assert codes(copy("y", "t", 1)) == ["TSR2007"]
    assert codes(copy("t", "x", 10) + copy("y", "t", 11)) == ["TSR2007"]
    (other,) = found(copy("y", "t", 1))
    (own,) = found(copy("t", "t", 1))  # it writes what it reads
    assert not other.notes
    assert "writes these bytes itself" in own.notes[0]


def test_race() -> None:
    on_two = copy("t", "x", 8).replace("\n", " stream=a\n") + copy("y", "t", 8)
    assert codes(on_two) == ["TSR2008"]
    ordered = (
        copy("t", "x", 8).replace("\n", " stream=a\n")
        + "event e stream=a\nwait e\n"
        + copy("y", "t", 8)
    )
    assert codes(ordered) == []


WALK = """
.visible .entry walk(.param .u64 out, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, 0;
LOOP:
    and.b32 %r0, %r2, 15;
    mul.wide.u32 %rd2, %r0, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    add.u32 %r2, %r2, 3;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra LOOP;
    ret;
}
"""


def test_a_loop_that_is_too_long_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    find = partial(footprint.find_footprint, exact_budget=footprint.EXACT_BUDGET // 50)
    monkeypatch.setattr(footprint, "find_footprint", find)
    steps = "launch m.walk grid=1,1,1 block=1,1,1 args=[y, u32:4000000000]\n"
    result = dependences(program(steps, WALK))
    assert [d.code for d in result.diagnostics] == ["TSR2006"]
    (access,) = result.graph.nodes[0].accesses
    assert (access.kind.value, access.certainty.value) == ("write", "may")
    assert (access.region.start, access.region.end) == (0, 64)


SCATTER = """
.visible .entry scatter(.param .u64 other, .param .u64 out, .param .u64 index)
{
    .reg .b32 %r;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [index];
    ld.global.u32 %r, [%rd1];
    mul.wide.s32 %rd2, %r, 1048576;
    ld.param.u64 %rd3, [out];
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r;
    ret;
}
"""


def test_an_index_with_a_long_stride_stays_with_its_base() -> None:
    """The interval of the index is longer than the space between two objects."""
    result = dependences(
        program("launch m.scatter grid=1,1,1 block=1,1,1 args=[t, y, x]\n", SCATTER)
    )
    assert result.diagnostics == ()
    buffers = result.graph.buffers
    written = [a for a in result.graph.nodes[0].accesses if a.kind.writes]
    assert [(buffers[a.buffer].name, a.address.value) for a in written] == [("y", "indexed")]
