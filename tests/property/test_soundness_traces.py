"""Whole traces: what the launches touch on the CPU backend, against regions and edges."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.driver.analyses import remembering
from tessera.frontend.contents.open_contents import open_contents
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.arrays import Ranges as Array
from tessera.ir.graph.access import AddressClass
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tests.helpers.access_oracle import Comparison, compare

TRACES = Path(__file__).parents[2] / "examples" / "traces"
FILLED = (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)
Touched = dict[str, tuple[Array, Array]]


# Launches whose addresses go through shared memory: all that is direct is exact.
THROUGH_SHARED = {"llama_prefill.ptx": (3, 5, 20, 22), "vision_language.ptx": (14, 22)}


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("mlp.ptx", None),
        ("dit.ptx", "sm_80"),
        ("llama_prefill.ptx", "sm_80"),
        pytest.param("vision_language.ptx", "sm_80", marks=pytest.mark.slow),
        *(pytest.param(name, "sm_90a", marks=pytest.mark.slow) for name in THROUGH_SHARED),
    ],
)
def test_logs_are_inside_regions_and_conflicts_are_ordered(name: str, arch: str | None) -> None:
    program = read_trace(TRACES / name)
    with open_contents(program, TRACES, seed=0) as contents:
        given = {b.name: contents.read(b) for b in program.buffers if b.role in FILLED}
    result = run_program(program, given, arch=arch)
    manager = AnalysisManager(program)
    steps = manager.get(AccessRegions).steps
    assert not any(step.pins for step in steps)
    touched: dict[int, Touched] = {}
    for record in result.launches:
        log = record.result.accesses
        for found in compare(program, steps[record.id], log):
            where = f"{steps[record.id].name}, {found.buffer.name}"
            assert intervals.covers(found.may_read, found.read), where
            assert intervals.covers(found.may_write, found.written), where
            assert intervals.covers(found.written, found.must_write), where
            if record.id in THROUGH_SHARED.get(name, ()):
                assert_exact(found)
        touched[record.id] = {
            entry.buffer: (intervals.from_pairs(entry.reads), intervals.from_pairs(entry.writes))
            for entry in log
        }
    order = networkx.transitive_closure_dag(networkx.DiGraph(_forward(manager)))
    for second, later in touched.items():
        for first, earlier in touched.items():
            if first < second and _conflict(earlier, later):
                assert order.has_edge(first, second), (first, second)


def assert_exact(found: Comparison) -> None:
    """Bytes are those that were touched, and writes certain, where no index is data."""
    if any(a.address is not AddressClass.DIRECT for a in found.accesses):
        return
    assert intervals.pairs(found.may_read) == intervals.pairs(found.read), found.buffer.name
    assert intervals.pairs(found.must_write) == intervals.pairs(found.written), found.buffer.name


# The other models; those above are not pinned either.
@pytest.mark.parametrize("name", ["llama_decode", "llama_decode_library", "mamba", "mmdit", "moe"])
def test_no_launch_of_the_models_is_pinned(name: str) -> None:
    steps = remembering(read_trace(TRACES / f"{name}.ptx")).get(AccessRegions).steps
    assert [(step.id, step.pins) for step in steps if step.pins] == []


def _forward(manager: AnalysisManager) -> list[tuple[int, int]]:
    graph = manager.get(Dependences).graph
    return [(int(e.source), int(e.target)) for e in graph.edges if not e.carried]


def _conflict(earlier: Touched, later: Touched) -> bool:
    for buffer, (reads, writes) in later.items():
        if buffer not in earlier:
            continue
        old_reads, old_writes = earlier[buffer]
        pairs = ((old_writes, reads), (old_reads, writes), (old_writes, writes))
        if any(len(intervals.intersect(a, b)) for a, b in pairs):
            return True
    return False
