"""How the analysis grows: by counted work, not by the clock of a shared machine.

`benchmarks/analysis/analyze.py` measures seconds and memory at full size.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.access import Certainty
from tessera.ir.graph.graph import EdgeKind, KernelGraph
from tessera.ir.graph.print_graph import print_graph
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.dependences.last_touch import MOST_KEPT, LastTouch
from tessera.passes.footprint import footprint
from tests.helpers.operations import operations

PTX = """
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 px, .param .u64 py, .param .u32 pn, .param .f32 seed)
{
  .reg .b64 %x, %y, %o;
  .reg .b32 %i, %n, %v, %c;
  .reg .f32 %s;
  .reg .pred %p;
  ld.param.u64 %x, [px];
  ld.param.u64 %y, [py];
  ld.param.u32 %n, [pn];
  ld.param.f32 %s, [seed];
  mov.u32 %i, %tid.x;
  mov.u32 %c, %ctaid.x;
  mad.lo.u32 %i, %c, 64, %i;
  setp.ge.u32 %p, %i, %n;
  @%p ret;
  mul.wide.u32 %o, %i, 4;
  add.u64 %x, %x, %o;
  ld.global.u32 %v, [%x];
  cvt.rn.f32.u32 %s, %v;
  add.u64 %y, %y, %o;
  st.global.u32 [%y], %v;
  ret;
}
"""


def trace(launches: int, *, weights: bool = True) -> ir.Program:
    """A chain of copies, in turns between two activations, each with a weight of its own."""
    lines = ["//! tessera.trace 1"]
    lines += [f"//! buffer a{i} bytes=256 role=temp" for i in range(2)]
    if weights:
        lines += [f"//! buffer w{i} bytes=256 role=weight" for i in range(launches)]
    lines.append(PTX)
    for i in range(launches):
        source = f"w{i}" if weights and i % 2 else f"a{i % 2}"
        args = f"{source}, a{(i + 1) % 2}, u32:61, f32:{i}"
        lines.append(f"//! launch m.copy grid=1,1,1 block=64,1,1 smem=0 args=[{args}]")
    return read_program(Source("t.ptx", "\n".join(lines) + "\n"))[0]


def graph_of(program: ir.Program) -> KernelGraph:
    return AnalysisManager(program).get(Dependences).graph


def test_a_kernel_is_run_once_for_all_its_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other buffers and a parameter that no access hangs on make no new scene."""
    runs: list[object] = []
    find = footprint.find_footprint

    def counted(*args: object) -> object:
        runs.append(args)
        return find(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(footprint, "find_footprint", counted)
    steps = AnalysisManager(trace(60)).get(AccessRegions).steps
    assert len(runs) == 1
    assert all(len(step.accesses) == 2 for step in steps)
    regions = {id(access.region) for step in steps for access in step.accesses}
    # A temp and a weight are no equal sources, so there are two patterns of two accesses each.
    assert len(regions) == 4


def test_a_parameter_that_bounds_an_access_makes_a_scene() -> None:
    text = [*trace_lines(3), *trace_lines(5, first=False)]
    program = read_program(Source("t.ptx", "\n".join(text) + "\n"))[0]
    steps = AnalysisManager(program).get(AccessRegions).steps
    assert [str(step.accesses[1].region) for step in steps] == [
        "Interval(start=128, end=140)",
        "Interval(start=128, end=148)",
    ]


def trace_lines(count: int, *, first: bool = True) -> list[str]:
    head = ["//! tessera.trace 1", "//! buffer a bytes=256 role=state", PTX] if first else []
    args = f"args=[a, a+128, u32:{count}, f32:0]"
    return [*head, f"//! launch m.copy grid=1,1,1 block=64,1,1 smem=0 {args}"]


def test_launches_of_one_pattern_differ_in_buffers_only() -> None:
    program = trace(40)
    alone = [AnalysisManager(trace(40)).get(AccessRegions).steps[i] for i in (0, 1, 38, 39)]
    steps = AnalysisManager(program).get(AccessRegions).steps
    for one in alone:
        assert steps[one.id].accesses == one.accesses
    reads = [step.accesses[0].buffer for step in steps]
    assert [program.buffers[b].name for b in reads[:4]] == ["a0", "w1", "a0", "w3"]


def test_edges_grow_with_launches() -> None:
    counts = [len(graph_of(trace(n)).edges) for n in (50, 100, 200)]
    assert counts[1] - counts[0] == pytest.approx((counts[2] - counts[1]) / 2, abs=4)
    assert counts[2] <= 4.2 * counts[0]


def test_work_grows_with_launches() -> None:
    _print(trace(20))  # what is built once per process
    few, many = (operations(partial(_print, trace(launches))) for launches in (60, 240))
    assert many < 4.5 * few


def _print(program: ir.Program) -> None:
    print_graph(graph_of(program))


def test_writes_that_may_leave_bytes_alone_keep_edges_few() -> None:
    """Each names the last `MOST_KEPT` before it; older ones are reached through those."""
    known = LastTouch(64)
    whole = intervals.interval(0, 64)
    for number in range(200):
        for history, found in known.look_up(whole):
            assert len(history.writers) <= MOST_KEPT
            assert len(list(history.all_readers())) <= MOST_KEPT
            assert intervals.size(found) == 64
        known.add_read(whole, (number, 0))
        known.add_write(whole, (number, 1), certain=False)
    ((history, _),) = known.look_up(whole)
    assert history.writers[-1] == (199, 1)
    assert next(history.all_readers()) == (199, 0)


def test_histories_are_forgotten_once_nothing_has_them() -> None:
    known = LastTouch(1 << 20)
    for number in range(20_000):
        start = number % 16 * 64
        known.add_write(intervals.interval(start, start + 64), (number, 0), certain=True)
    (segment,) = known.segments
    assert len(segment.starts) <= 17
    assert len(segment.histories) < 2000


def test_a_map_of_many_ranges_is_cut_into_segments() -> None:
    """Against a byte-by-byte account, with accesses that cross segments."""
    size = 40_000
    known, writers = LastTouch(size), np.full(size, -1)
    for number in range(4500):
        start = number * 7919 % 39_990 // 2 * 2
        known.add_write(intervals.interval(start, start + 1), (number, 0), certain=True)
        writers[start] = number
    assert len(known.segments) > 1
    known.add_write(intervals.from_pairs([(5000, 9000), (20_000, 31_000)]), (5000, 0), certain=True)
    writers[5000:9000] = writers[20_000:31_000] = 5000
    known.add_read(intervals.interval(0, size), (5001, 0))
    found = np.full(size, -2)
    for history, where in known.look_up(intervals.interval(0, size)):
        assert list(history.all_readers()) == [(5001, 0)]
        for start, end in intervals.pairs(where):
            assert (found[start:end] == -2).all()
            found[start:end] = history.writers[0][0] if history.writers else -1
    assert (found == writers).all()
    some = known.look_up(intervals.from_pairs([(4990, 5010), (19_000, 19_001), (30_999, 31_002)]))
    assert sum(intervals.size(where) for _, where in some) == 24


def test_the_map_tells_bytes_apart() -> None:
    known = LastTouch(100)
    known.add_write(intervals.from_pairs([(0, 10), (20, 30)]), (0, 0), certain=True)
    known.add_write(intervals.interval(25, 50), (1, 0), certain=False)
    known.add_read(intervals.interval(0, 100), (2, 0))
    known.add_write(intervals.interval(5, 28), (3, 0), certain=True)
    found = {
        intervals.pairs(where): (history.writers, tuple(history.all_readers()))
        for history, where in known.look_up(intervals.interval(0, 100))
    }
    assert found == {
        ((0, 5),): (((0, 0),), ((2, 0),)),
        ((5, 28),): (((3, 0),), ()),
        ((28, 30),): (((0, 0), (1, 0)), ((2, 0),)),
        ((30, 50),): (((1, 0),), ((2, 0),)),
        ((50, 100),): ((), ((2, 0),)),
    }


LOOP = """
//! tessera.trace 1
//! buffer a bytes=256 role=state
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry forever(.param .u64 pa, .param .u32 pn)
{
  .reg .b64 %a, %o, %t;
  .reg .b32 %i, %n, %h, %m;
  .reg .pred %p;
  ld.param.u64 %a, [pa];
  ld.param.u32 %n, [pn];
  mov.u32 %i, 0;
  mov.u32 %h, 1;
L:
  mad.lo.u32 %h, %h, 1664525, 1013904223;
  and.b32 %m, %h, 12;
  cvt.u64.u32 %o, %m;
  add.u64 %t, %a, %o;
  st.global.u32 [%t], %i;
  add.u32 %i, %i, 1;
  setp.lt.u32 %p, %i, %n;
  @%p bra L;
  ret;
}
//! launch m.forever grid=1,1,1 block=32,1,1 smem=0 args=[a, u32:4000000000]
"""


def test_a_loop_without_end_is_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.passes.footprint.footprint.EXACT_BUDGET", 20_000_000)
    monkeypatch.setattr("tessera.passes.footprint.footprint.COARSE_BUDGET", 20_000_000)
    find = footprint.find_footprint
    monkeypatch.setattr(
        footprint, "find_footprint", lambda code, scene: find(code, scene, 20_000_000)
    )
    found = AnalysisManager(read_program(Source("t.ptx", LOOP.strip() + "\n"))[0]).get(Dependences)
    assert [d.code for d in found.diagnostics] == ["TSR2006"]
    (access,) = found.graph.nodes[0].accesses
    assert str(access.region) == "Interval(start=0, end=16)"


def test_a_long_loop_of_even_steps_is_followed() -> None:
    """Four thousand million rounds."""
    text = LOOP.strip().replace("mad.lo.u32 %h, %h, 1664525, 1013904223;", "mov.u32 %h, %tid.x;")
    found = AnalysisManager(read_program(Source("t.ptx", text + "\n"))[0]).get(Dependences)
    assert found.diagnostics == ()
    (access,) = found.graph.nodes[0].accesses
    assert str(access.region) == "Interval(start=0, end=16)"
    assert access.certainty is Certainty.MUST


def test_edge_kinds_of_a_chain() -> None:
    kinds = {edge.kind for edge in graph_of(trace(6, weights=False)).edges}
    assert kinds == {EdgeKind.RAW, EdgeKind.WAR, EdgeKind.WAW}
