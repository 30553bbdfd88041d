"""Weights whose contents decide what a launch touches, against the log of the CPU backend."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import tessera
from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.frontend.contents.known_contents import check_contents
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.traces import HEADER, dependences, trace

# y[i] = x[table[i + start]]; with `shift`, table[shift[i]] in place of that.
GATHER = """
.visible .entry gather(.param .u64 y, .param .u64 x, .param .u64 table, .param .u64 shift)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<12>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [table];
    ld.param.u64 %rd4, [shift];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %r1;
    mul.wide.u32 %rd5, %r1, 4;
    setp.eq.u64 %p1, %rd4, 0;
    @%p1 bra DIRECT;
    add.s64 %rd6, %rd4, %rd5;
    ld.global.u32 %r2, [%rd6];
    and.b32 %r2, %r2, 3;
DIRECT:
    mul.wide.u32 %rd7, %r2, TYPEBYTES;
    add.s64 %rd8, %rd3, %rd7;
    ld.global.TYPE %r3, [%rd8];
    mul.wide.s32 %rd9, %r3, 4;
    add.s64 %rd10, %rd2, %rd9;
    ld.global.u32 %r4, [%rd10];
    add.s64 %rd11, %rd1, %rd5;
    st.global.u32 [%rd11], %r4;
    ret;
}
"""
BUFFERS = """
buffer x bytes=4096 role=input
buffer y bytes=4096 role=output
buffer table bytes=64 role=ROLE
buffer shift bytes=64 role=input
"""


def program(
    shift: str = "u64:0", role: str = "weight", kind: str = "u32", at: str = ""
) -> ir.Program:
    width = {"u32": 4, "s32": 4, "u16": 2, "s16": 2, "u8": 1, "s8": 1}[kind]
    kernel = GATHER.replace("TYPEBYTES", str(width)).replace("TYPE", kind)
    args = f"[y, x+2048, table{at}, {shift}]"
    steps = f"launch m.gather grid=1,1,1 block=8,1,1 args={args}\n"
    return trace(BUFFERS.replace("ROLE", role), kernel, steps)


def knowing(given: ir.Program, content: bytes) -> ir.Program:
    known = ir.KnownContents(ir.BufferId(2), content, hashlib.sha256(content).hexdigest())
    return replace(given, known=(known,))


def reads(given: ir.Program) -> list[tuple[int, int]]:
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    found = [a for a in step.accesses if a.buffer == 0]
    from tessera.passes.byte_sets.regions import region_bytes

    return [
        tuple(map(int, p)) for p in intervals.union([region_bytes(a.region, 4096) for a in found])
    ]


def check(given: ir.Program, table: np.ndarray, shift: np.ndarray) -> None:
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    contents = {
        "x": np.zeros(4096, np.uint8),
        "table": table.view(np.uint8),
        "shift": shift.astype(np.uint32).view(np.uint8),
    }
    (record,) = run_program(given, contents).launches
    for found in compare(given, step, record.result.accesses):
        assert intervals.covers(found.may_read, found.read), found.buffer.name
        assert intervals.covers(found.may_write, found.written)
        assert intervals.covers(found.written, found.must_write)


TABLE = np.array([5, 5, 7, 9, 0, 1, 2, 3] + [100] * 8, np.uint32)


def test_without_contents_it_may_be_anywhere_and_they_are_wanted() -> None:
    given = program()
    found = AnalysisManager(given).get(AccessRegions)
    assert found.wanted == (2,)
    assert found.contents == ()
    assert reads(given) == [(0, 4096)]


def test_with_contents_it_is_exact_and_the_digest_is_kept() -> None:
    given = knowing(program(), TABLE.tobytes())
    places = sorted({2048 + 4 * int(v) for v in TABLE[:8]})
    wanted = intervals.pairs(intervals.from_pairs((p, p + 4) for p in places))
    assert reads(given) == list(wanted)
    found = dependences(given)
    assert [c.sha256 for c in found.graph.contents] == [hashlib.sha256(TABLE.tobytes()).hexdigest()]
    assert "TSR2013" in [d.code for d in found.diagnostics]
    check(given, TABLE, np.zeros(16))


@pytest.mark.parametrize("role", ["input", "state", "temp"])
def test_only_weights_may_decide(role: str) -> None:
    given = program(role=role)
    found = AnalysisManager(knowing(given, TABLE.tobytes())).get(AccessRegions)
    assert (found.wanted, found.contents) == ((), ())
    assert reads(knowing(given, TABLE.tobytes())) == [(0, 4096)]


def test_an_offset_into_the_table_counts() -> None:
    given = knowing(program(at="+32"), TABLE.tobytes())
    assert reads(given) == [(2448, 2452)]


def test_an_index_from_data_is_bounded_by_the_words_it_may_pick() -> None:
    given = knowing(program(shift="shift"), TABLE.tobytes())
    assert reads(given) == [(2048 + 20, 2048 + 40)]
    check(given, TABLE, np.array([3, 2, 1, 0] * 4))


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(["u32", "s32", "u16", "s16", "u8", "s8"]),
    arrays(np.uint8, 64),
    st.booleans(),
    st.sampled_from([0, 2, 4, 12]),
)
def test_any_table(kind: str, raw: np.ndarray, indirect: bool, start: int) -> None:
    """Whatever the words and their type: what is touched lies in the regions."""
    width = int(kind[1:]) // 8
    start = start // width * width
    words = raw.view(f"{'i' if kind[0] == 's' else 'u'}{width}").copy()
    words[:] = words % 512 - (256 if kind[0] == "s" else 0) if width > 1 else words
    at = f"+{start}" if start else ""
    given = knowing(program("shift" if indirect else "u64:0", kind=kind, at=at), words.tobytes())
    check(given, words, np.arange(16))


def test_the_words_of_pointers_are_no_contents() -> None:
    steps = (
        "pointers table @{0:x}\nlaunch m.gather grid=1,1,1 block=8,1,1 args=[y, x, table, u64:0]\n"
    )
    kernel = GATHER.replace("TYPEBYTES", "4").replace("TYPE", "u32")
    given = trace(BUFFERS.replace("ROLE", "weight"), kernel, steps)
    found = AnalysisManager(knowing(given, TABLE.tobytes())).get(AccessRegions)
    assert found.contents == ()


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    kernel = GATHER.replace("TYPEBYTES", "4").replace("TYPE", "u32")
    records = BUFFERS.replace("ROLE", "weight").strip().splitlines()
    text = "//! tessera.trace 1\n" + "".join(f"//! {r}\n" for r in records)
    text += f"//! resident data=c.npz\n//! module m\n{HEADER}{kernel}"
    text += "//! launch m.gather grid=1,1,1 block=8,1,1 args=[y, x, table, u64:0]\n"
    np.savez(tmp_path / "c.npz", table=TABLE, x=np.zeros(1024, np.float32))
    path = tmp_path / "t.ptx"
    path.write_text(text)
    return path


def test_analyze_looks_contents_up(trace_file: Path) -> None:
    report = tessera.analyze(trace_file)
    assert report.graph is not None
    (known,) = report.graph.contents
    assert known.buffer == 2
    regions = [a.region for a in report.graph.nodes[0].accesses if a.buffer == 0]
    assert "WholeBuffer" not in str(regions)


def test_other_contents_are_refused(trace_file: Path) -> None:
    report = tessera.analyze(trace_file)
    assert report.graph is not None
    with open_contents(report.program, trace_file.parent) as contents:
        check_contents(report.program, report.graph, contents)
    np.savez(trace_file.parent / "c.npz", table=TABLE + np.uint32(1))
    with (
        open_contents(report.program, trace_file.parent) as contents,
        pytest.raises(TesseraError, match=r"TSR2014.*`table` differs"),
    ):
        check_contents(report.program, report.graph, contents)


def test_a_missing_file_widens(trace_file: Path) -> None:
    (trace_file.parent / "c.npz").unlink()
    report = tessera.analyze(trace_file)
    assert report.graph is not None
    assert report.graph.contents == ()
