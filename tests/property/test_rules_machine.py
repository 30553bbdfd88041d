"""Kernels from nvcc that ask something of the machine, call, print, allocate or hold pointers."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.diagnostics import Severity
from tessera.ir.graph.access import AccessKind, NeedKind
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.rule_cases import analyse, check, run_of, touched
from tests.kernels.case import Launch, Run

I32 = np.int32


def ints(count: int) -> np.ndarray:
    return np.arange(count, dtype=I32)


def only(run: Run) -> StepAccesses:
    return analyse("machine", run)[1][0]


def line_of(step: StepAccesses, code: str) -> str:
    """The PTX line that a finding of the step points at."""
    found = next(d for d in step.diagnostics if d.code == code)
    assert found.primary is not None
    return found.primary.span.source.line_text(found.primary.span.start).strip()


def kinds(step: StepAccesses) -> list[NeedKind]:
    return [need.kind for need in step.needs]


def test_a_barrier_over_the_grid() -> None:
    """The driver's memory for it is no buffer; what the kernel writes is still certain."""
    launch = Launch("grid_sync", 4, 32, ["out", "stage"], cooperative=True)
    run = run_of({"out": ints(128), "stage": ints(128)}, launch)
    program, (step,) = analyse("machine", run)
    assert not step.pins
    assert kinds(step) == [NeedKind.GRID, NeedKind.WAIT]
    assert "%envreg2" in line_of(step, "TSR2011")
    assert "ld.acquire.gpu" in line_of(step, "TSR2010")
    for name in ("out", "stage"):
        assert touched(program, step, name, AccessKind.WRITE, must=True) == [(0, 512)]
    assert touched(program, step, "stage", AccessKind.READ) == [(0, 512)]


def test_waiting_for_a_flag() -> None:
    run = run_of({"out": ints(64), "flag": ints(1)}, Launch("wait_flag", 2, 32, ["out", "flag"]))
    step = only(run)
    assert kinds(step) == [NeedKind.WAIT]
    assert line_of(step, "TSR2010").startswith("ld.volatile")
    check("machine", run)


def test_waiting_for_a_lock() -> None:
    run = run_of({"lock": ints(1), "sum": ints(1)}, Launch("take_lock", 2, 32, ["lock", "sum"]))
    step = only(run)
    assert kinds(step) == [NeedKind.WAIT]
    assert "atom" in line_of(step, "TSR2010")
    check("machine", run)


def test_retries_and_queues_are_no_waiting() -> None:
    buffers = {"out": np.zeros(1), "next": ints(1), "in": np.ones(9)}
    run = run_of(buffers, Launch("tile_queue", 2, 32, ["out", "next", "in", I32(9)]))
    assert only(run).needs == ()
    check("machine", run)


@pytest.mark.parametrize(("kernel", "register"), [("per_sm", "%smid"), ("stamp", "%clock64")])
def test_registers_that_the_machine_chooses(kernel: str, register: str) -> None:
    buffers = {"out": np.zeros(4096, np.int64)}
    run = run_of(buffers, Launch(kernel, 2, 32, ["out"]))
    step = only(run)
    assert kinds(step) == [NeedKind.MACHINE]
    assert register in line_of(step, "TSR2009")
    assert not step.pins
    check("machine", run)


def test_an_index_from_the_machine_may_be_anywhere() -> None:
    run = run_of({"counts": ints(256)}, Launch("per_sm", 2, 32, ["counts"]))
    program, (step,) = analyse("machine", run)
    assert touched(program, step, "counts", AccessKind.ATOMIC) == [(0, 1024)]
    assert {a.address.value for a in step.accesses} == {"indexed"}


def test_printing_touches_no_buffer() -> None:
    run = run_of({"in": ints(32)}, Launch("prints", 1, 32, ["in"]))
    program, (step,) = analyse("machine", run)
    assert not step.pins
    assert kinds(step) == [NeedKind.OUTPUT]
    assert line_of(step, "TSR2012").startswith("call")
    (finding,) = [d for d in step.diagnostics if d.code == "TSR2012"]
    assert finding.severity is Severity.NOTE
    assert touched(program, step, "in", AccessKind.READ) == [(0, 128)]
    assert not [a for a in step.accesses if a.kind.writes]
    check("machine", run)


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        ("prints_strings", "it prints strings through pointers"),
        ("allocates", "it allocates memory on the device by `malloc`"),
        ("frees", "it frees memory on the device by `free`"),
        ("walks", "it calls `_Z4walkPKii`, which calls itself"),
    ],
)
def test_calls_that_pin(kernel: str, reason: str) -> None:
    buffers = {"x": ints(64), "y": ints(64)}
    args = ["x", "y"] if kernel == "walks" else ["x"]
    step = only(run_of(buffers, Launch(kernel, 1, 8, args)))
    assert str(step.pins[0].reason).startswith(reason)
    assert line_of(step, "TSR2001").startswith("call")


@pytest.mark.parametrize(("kernel", "bounded"), [("walks", True), ("walks_pointers", False)])
def test_recursion_touches_what_it_is_given_unless_it_loads_pointers(
    kernel: str, bounded: bool
) -> None:
    buffers = {"out": ints(64), "tree": np.full(64, -1, I32), "other": ints(64)}
    run = run_of(buffers, Launch(kernel, 1, 8, ["out", "tree"]))
    program, (step,) = analyse("machine", run)
    assert step.pins
    names = {program.buffers[a.buffer].name for a in step.accesses}
    assert {"out", "tree"} <= names
    assert ("other" in names) is not bounded
    if bounded:
        check("machine", run)


@pytest.mark.parametrize(
    ("kernel", "args", "line", "reason"),
    [
        ("samples", ["x", np.uint64(1)], "tex.1d", "it accesses a texture"),
        ("paints", [np.uint64(1)], "sust", "it accesses a surface"),
    ],
)
def test_textures_and_surfaces_pin(kernel: str, args: list, line: str, reason: str) -> None:
    step = only(run_of({"x": ints(64)}, Launch(kernel, 1, 16, args)))
    assert [str(pin.reason) for pin in step.pins] == [reason]
    assert line_of(step, "TSR2001").startswith(line)


def test_clusters() -> None:
    run = run_of({"out": ints(128)}, Launch("in_clusters", 4, 32, ["out"]))
    program, (step,) = analyse("machine", run)
    assert set(kinds(step)) == {NeedKind.CLUSTER}
    assert str(step.needs[0].reason).startswith("the kernel asks for it by")
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == [(0, 512)]
    check("machine", run)


def test_the_rank_in_a_cluster_is_an_index_like_any_other() -> None:
    run = run_of({"out": ints(4)}, Launch("ranks", 6, 32, ["out"]))
    program, (step,) = analyse("machine", run)
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == [(0, 8)]
    check("machine", run)


def test_needs_are_told_once_for_a_kernel() -> None:
    launch = Launch("in_clusters", 4, 32, ["out"])
    _, steps = analyse("machine", run_of({"out": ints(128)}, launch, launch))
    assert [len(step.diagnostics) for step in steps] == [1, 0]
    assert steps[0].needs == steps[1].needs


@pytest.mark.parametrize("kernel", ["recursive", "dispatches"])
def test_calls_of_functions_that_touch_no_memory(kernel: str) -> None:
    """Recursion, and a call through a table of functions: results are unknown, and that is all."""
    run = run_of({"out": ints(32), "in": ints(32)}, Launch(kernel, 1, 32, ["out", "in"]))
    program, (step,) = analyse("machine", run)
    assert not step.pins
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == [(0, 128)]
    assert touched(program, step, "in", AccessKind.READ) == [(0, 128)]
    check("machine", run)


def follow(which: int) -> Launch:
    return Launch("follows", 1, 4, ["out", I32(which)])


@pytest.mark.parametrize(("which", "name", "start"), [(0, "m.table_a", 8), (1, "m.table_b", 0)])
def test_pointers_in_initialisers_are_followed(which: int, name: str, start: int) -> None:
    run = run_of({"out": ints(4)}, follow(which))
    program, (step,) = analyse("machine", run)
    assert not step.pins
    wanted = [(start, start + 16)]
    assert touched(program, step, name, AccessKind.READ) == wanted
    other, found = ("m.table_b", [(4, 8)]) if which == 0 else ("m.table_a", [])
    assert touched(program, step, other, AccessKind.READ) == found
    check("machine", run)


@pytest.mark.parametrize("first", [True, False])
def test_a_pointer_that_a_launch_may_move_is_none(first: bool) -> None:
    """Also where it is moved after the launch: variables keep their values for the next request."""
    move = Launch("moves_cursor", 1, 1, [I32(1)])
    launches = (move, follow(0)) if first else (follow(0), move)
    run = run_of({"out": ints(4)}, *launches)
    _, steps = analyse("machine", run)
    pinned = [step.name for step in steps if step.pins]
    assert pinned == ["m.follows"]
    assert "ld.global.u64" in str(steps[first].pins[0].reason)
    check("machine", run)
