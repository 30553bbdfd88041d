"""Large grids in pieces against every CTA by itself, and against the log of the CPU backend."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.access import AddressClass, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.footprint import footprint, machine
from tessera.passes.footprint.checkpoints import RunCheckpoint
from tessera.passes.footprint.footprint import Footprint
from tessera.passes.footprint.machine import SliceMachine
from tests.helpers.share import share
from tests.property.grid_strategies import grid_kernels, loop_kernel
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_soundness_generated import check_log, log_of, program_of

TRACES = Path(__file__).parents[2] / "examples" / "traces"
NEVER = 1 << 62
_SETTINGS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=settings.default.max_examples // 2,
)


def both_ways(program: ir.Program) -> list[tuple[Footprint, Footprint]]:
    """The footprints of launches with every CTA and every round by itself, and at once."""
    kept: list[tuple[Footprint, Footprint]] = []
    find = footprint.find_footprint

    def twice(*args: object) -> Footprint:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(machine, "MANY_ROUNDS_AT_ONCE", False)
            alone = find(*args, few_threads=NEVER)  # type: ignore[arg-type]
            # A run goes on wherever its CTAs are taken apart, if that is after a step.
            patch.setattr(machine, "MANY_ROUNDS_AT_ONCE", True)
            patch.setattr(machine, "BETWEEN", -NEVER)
            kept.append((alone, find(*args, few_threads=0)))  # type: ignore[arg-type]
        return alone

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "find_footprint", twice)
        AnalysisManager(program).get(AccessRegions)
    return kept


def in_pieces(program: ir.Program) -> StepAccesses:
    """The accesses of a launch that is followed in pieces, however small it is."""
    find = footprint.find_footprint
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "find_footprint", partial(find, few_threads=0))
        (step,) = AnalysisManager(program).get(AccessRegions).steps
    return step


def check_equal(alone: Footprint, pieces: Footprint) -> None:
    assert not alone.is_coarse
    assert not pieces.is_coarse
    assert [e.key for e in alone.entries] == [e.key for e in pieces.entries]
    for left, right in zip(alone.entries, pieces.entries, strict=True):
        assert np.array_equal(left.may, right.may), left.key
        assert np.array_equal(left.sure, right.sure), left.key
        assert (left.whole is None, left.exact) == (right.whole is None, right.exact), left.key
    assert alone.unresolved.keys() == pieces.unresolved.keys()
    assert (alone.nulls, alone.pins) == (pieces.nulls, pieces.pins)
    assert (alone.doubt, alone.asked) == (pieces.doubt, pieces.asked)


@_SETTINGS
@given(grid_kernels())
def test_pieces_touch_what_all_ctas_touch(kernel: Kernel) -> None:
    check_equal(*both_ways(program_of(kernel))[0])


def test_rounds_that_a_number_of_the_cta_says() -> None:
    for seed in share(range(120)):
        for alone, pieces in both_ways(program_of(loop_kernel(seed))):
            check_equal(alone, pieces)


ROUNDS_BY_BLOCK = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p;
    .reg .b32 %first, %more, %last, %at, %round;
    .reg .b64 %out, %offset, %to;
    ld.param.u64 %out, [out];
    mov.u32 %first, %ctaid.AXIS;
    mov.u32 %more, %ctaid.OTHER;
    min.u32 %last, %first, 60;
    mad.lo.s32 %at, %first, 24, %more;
    mov.u32 %round, 0;
LOOP:
    mul.wide.s32 %offset, %at, 4;
    add.s64 %to, %out, %offset;
    st.global.u32 [%to], %round;
    add.s32 %at, %at, 2;
    add.s32 %round, %round, 1;
    setp.lt.u32 %p, %round, %last;
    @%p bra LOOP;
    ret;
}
"""


@pytest.mark.parametrize("axes", ["xy", "xz", "yx", "yz", "zx", "zy"])
@pytest.mark.parametrize("others", [1, 3])
def test_every_block_has_its_own_number_of_rounds(axes: str, others: int) -> None:
    """Those of one block are not those of all, along whichever axis they are counted."""
    axis, other = axes
    counts = {"x": 2, "y": 2, "z": 2} | {axis: 64, other: others}
    grid = (counts["x"], counts["y"], counts["z"])
    text = ROUNDS_BY_BLOCK.replace("AXIS", axis).replace("OTHER", other)
    kernel = Kernel(text=text, grid=grid, block=(1, 1, 1), scalars=(0, 0), offset=0)
    alone, pieces = both_ways(program_of(kernel))[0]
    check_equal(alone, pieces)
    words = {
        24 * at + more + 2 * t
        for at in range(64)
        for more in range(others)
        for t in range(max(1, min(at, 60)))
    }
    (entry,) = pieces.entries
    assert intervals.union([entry.sure]).tolist() == runs_of(words)


def test_every_thread_of_several_rows_grows_by_its_own_step() -> None:
    """There are more steps along one axis than threads in a CTA."""
    body = """
    mul.lo.s32 %r5, %r3, %r3;
    mad.lo.s32 %r5, %r5, 1024, %r4;
    mov.u32 %r6, %ctaid.y;
    mul.lo.s32 %r20, %r5, %r6;
"""
    kernel = Kernel(HEAD + body + STORE, (3, 3, 1), (1024, 1, 1), (0, 0), 0)
    check_equal(*both_ways(program_of(kernel))[0])


def runs_of(words: set[int]) -> list[list[int]]:
    """The bytes of words, from where to where."""
    starts = sorted(word for word in words if word - 1 not in words)
    ends = sorted(word for word in words if word + 1 not in words)
    return [[4 * start, 4 * end + 4] for start, end in zip(starts, ends, strict=True)]


@pytest.mark.parametrize("model", share(["mamba", "mmdit", "moe"]))
def test_pieces_of_captured_launches_touch_what_all_ctas_touch(model: str) -> None:
    """As Triton writes them: every distinct launch of a captured step."""
    path = TRACES / f"{model}.ptx"
    program, _ = read_program(Source(path.name, path.read_text()))
    every = both_ways(program)
    assert len(every) > 20
    for pair in every:
        check_equal(*pair)


@_SETTINGS
@given(kernels(), st.sampled_from([(7, 3, 2), (12, 1, 1), (1, 5, 2)]))
def test_logged_bytes_of_any_kernel_are_in_the_regions(
    kernel: Kernel, grid: tuple[int, int, int]
) -> None:
    """Where data decides when a loop ends, what becomes unknown depends on which CTAs are followed
    together; so these are not compared with every CTA by itself."""
    larger = replace(kernel, grid=grid)
    program = program_of(larger)
    step = in_pieces(program)
    check_log(program, step, log_of(program, larger, "random"), "random")


@_SETTINGS
@given(grid_kernels(inside=True))
def test_logged_bytes_are_in_the_regions_of_pieces(kernel: Kernel) -> None:
    program = program_of(kernel)
    step = in_pieces(program)
    for contents in ("zeros", "random"):
        check_log(program, step, log_of(program, kernel, contents), contents)


# --- how much is followed -----------------------------------------------------------------------

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p<9>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [data];
    ld.param.u32 %r1, [a];
    ld.param.u32 %r2, [b];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %tid.x;
"""
STORE = """
    mul.wide.s32 %rd3, %r20, 4;
    add.s64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r4;
DONE:
    ret;
}
"""
TAIL = """
    mad.lo.s32 %r20, %r3, 32, %r4;
    setp.ge.u32 %p1, %r20, %r1;
    @%p1 bra DONE;
"""
# Tiles of 32 rows in groups of 8, b tiles to a row: rows of a grid of a by b tiles.
GROUPED = """
    shl.b32 %r5, %r2, 3;
    div.s32 %r6, %r3, %r5;
    shl.b32 %r7, %r6, 3;
    sub.s32 %r8, %r1, %r7;
    min.s32 %r8, %r8, 8;
    rem.s32 %r9, %r3, %r5;
    rem.s32 %r10, %r9, %r8;
    add.s32 %r10, %r10, %r7;
    div.s32 %r11, %r9, %r8;
    mad.lo.s32 %r12, %r10, %r2, %r11;
    mad.lo.s32 %r20, %r12, 32, %r4;
"""
# The heads of keys that a head of queries belongs to, by multiplication: x / 12288 / 3.
BY_MULTIPLYING = """
    mad.lo.s32 %r20, %r3, 32, %r4;
    mul.hi.s32 %r5, %r20, 715827883;
    shr.u32 %r6, %r5, 31;
    shr.s32 %r7, %r5, 11;
    add.s32 %r8, %r7, %r6;
    mul.lo.s32 %r9, %r8, 12288;
    sub.s32 %r9, %r20, %r9;
    mul.hi.u32 %r10, %r8, -1431655765;
    shr.u32 %r10, %r10, 1;
    mad.lo.s32 %r20, %r10, 12288, %r9;
"""


def launch(body: str, ctas: int, a: int, b: int) -> ir.Program:
    kernel = Kernel(HEAD + body + STORE, (ctas, 1, 1), (32, 1, 1), (a, b), 0)
    program = program_of(kernel)
    large = tuple(replace(buffer, bytes=1 << 31) for buffer in program.buffers)
    return replace(program, buffers=large)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many CTAs each run of the excerpt spelled out."""
    counted: list[int] = []
    start = SliceMachine.start

    def counting(run: SliceMachine, at: RunCheckpoint | None = None) -> None:
        counted.append(0 if run.piece is None else run.piece.listed)
        start(run, at)

    monkeypatch.setattr(SliceMachine, "start", counting)
    return counted


def written(program: ir.Program) -> list[tuple[str, Certainty, AddressClass]]:
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert step.diagnostics == ()
    return [(str(a.region), a.certainty, a.address) for a in step.accesses]


def whole(end: int) -> list[tuple[str, Certainty, AddressClass]]:
    region = f"Interval(start=0, end={end})"
    return [(region, Certainty.MUST, AddressClass.DIRECT)]


@pytest.mark.parametrize("ctas", [1 << 10, 1 << 16, 1 << 20])
def test_work_does_not_grow_with_the_grid(runs: list[int], ctas: int) -> None:
    assert written(launch(TAIL, ctas, 32 * ctas - 5, 0)) == whole(4 * (32 * ctas - 5))
    assert len(runs) <= 4
    assert max(runs) == 1


@pytest.mark.parametrize(("rows", "columns"), [(37, 50), (1003, 640), (4096, 256)])
def test_groups_of_tiles_are_followed(runs: list[int], rows: int, columns: int) -> None:
    ctas = rows * columns
    assert written(launch(GROUPED, ctas, rows, columns)) == whole(4 * 32 * ctas)
    assert len(runs) <= 12
    assert sum(runs) <= 40


@pytest.mark.parametrize("heads", [6, 96, 1536])
def test_division_by_multiplication_is_followed(runs: list[int], heads: int) -> None:
    ctas = heads * 12288 // 32
    assert written(launch(BY_MULTIPLYING, ctas, 0, 0)) == whole(4 * heads // 3 * 12288)
    assert sum(runs) <= 2000


# Rows of 16 elements as Triton turns them around, 2 ** 12 of them to a batch: quotients by powers
# of two of a number with a sign, and a mask that has bits only where the number may.
TURNED = """
    shl.b32 %r5, %r3, 5;
    or.b32 %r5, %r5, %r4;
    bfe.s32 %r6, %r3, 26, 1;
    shr.u32 %r7, %r6, 28;
    add.s32 %r8, %r5, %r7;
    shr.s32 %r9, %r8, 4;
    and.b32 %r10, %r8, -16;
    sub.s32 %r10, %r5, %r10;
    shr.u32 %r11, %r6, 20;
    add.s32 %r11, %r9, %r11;
    and.b32 %r12, %r11, 268431360;
    sub.s32 %r13, %r9, %r12;
    shl.b32 %r14, %r13, 4;
    shl.b32 %r15, %r12, 4;
    add.s32 %r15, %r15, %r14;
    add.s32 %r20, %r15, %r10;
"""


@pytest.mark.parametrize("ctas", [1 << 11, 1 << 16, 1 << 20])
def test_quotients_of_numbers_with_a_sign_are_followed(runs: list[int], ctas: int) -> None:
    assert written(launch(TURNED, ctas, 0, 0)) == whole(4 * 32 * ctas)
    assert sum(runs) <= 8


# A row of a table that memory names, which may count from its end; and where it is written to.
NAMED = """
    mul.wide.s32 %rd3, %r3, 8;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u64 %rd5, [%rd4];
    shr.u64 %rd6, %rd5, 57;
    and.b64 %rd6, %rd6, 64;
    add.s64 %rd5, %rd5, %rd6;
    and.b64 %rd5, %rd5, 63;
    cvt.u32.u64 %r5, %rd5;
    mad.lo.s32 %r6, %r3, 64, %r5;
    shr.s32 %r7, %r6, 6;
    mad.lo.s32 %r20, %r7, 32, %r4;
"""


@pytest.mark.parametrize("ctas", [1 << 11, 1 << 16, 1 << 20])
def test_numbers_from_memory_beside_that_of_the_block_are_followed(
    runs: list[int], ctas: int
) -> None:
    read, stored = written(launch(NAMED, ctas, 0, 0))
    assert read == (f"Interval(start=0, end={8 * ctas})", Certainty.MUST, AddressClass.DIRECT)
    assert stored[0] == f"Interval(start=0, end={4 * 32 * ctas})"
    assert sum(runs) <= 8


# x / 513 and the rest, by multiplication: nobody reads the high half but who moves it.
BY_AN_ODD_NUMBER = """
    mul.hi.u32 %r5, %r3, -8372255;
    shr.u32 %r6, %r5, 9;
    mul.lo.s32 %r7, %r6, 513;
    sub.s32 %r8, %r3, %r7;
    mad.lo.s32 %r9, %r6, 513, %r8;
    mad.lo.s32 %r20, %r9, 32, %r4;
"""


@pytest.mark.parametrize("rows", [10, 1000, 16384])
def test_division_by_an_odd_number_is_followed(runs: list[int], rows: int) -> None:
    ctas = 513 * rows
    assert written(launch(BY_AN_ODD_NUMBER, ctas, 0, 0)) == whole(4 * 32 * ctas)
    assert sum(runs) <= 4


def test_a_divisor_that_all_blocks_have_is_one_number(runs: list[int]) -> None:
    """Though some blocks are spelled out by then."""
    body = "    and.b32 %r5, %r3, 3;\n    mul.lo.s32 %r5, %r5, %r5;\n"  # spelled out
    body += "    shr.u32 %r6, %r5, 8;\n    add.s32 %r6, %r6, 8;\n"  # 8 in each of them
    body += "    rem.s32 %r7, %r3, %r6;\n    div.s32 %r8, %r3, %r6;\n"
    body += "    mad.lo.s32 %r9, %r8, 8, %r7;\n    mad.lo.s32 %r20, %r9, 32, %r4;\n"
    assert written(launch(body, 1 << 18, 0, 0)) == whole(4 * 32 << 18)
    assert sum(runs) <= 40


# A tile of 32 rows sees the keys of all rows up to its last: as many rounds as its number says.
CAUSAL = """
    add.s32 %r5, %r3, 1;
    mov.u32 %r6, 0;
    mov.u32 %r20, %r4;
ROUND:
    mul.wide.s32 %rd3, %r20, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    add.s32 %r8, %r6, 2;
    setp.ge.s32 %p2, %r8, %r5;
    shl.b32 %r9, %r8, 5;
    add.s32 %r9, %r9, %r4;
    mul.wide.s32 %rd5, %r9, 4;
    add.s64 %rd6, %rd2, %rd5;
    @!%p2 ld.global.u32 %r10, [%rd6];
    add.s32 %r20, %r20, 32;
    add.s32 %r6, %r6, 1;
    setp.lt.s32 %p1, %r6, %r5;
    @%p1 bra ROUND;
    mad.lo.s32 %r20, %r3, 32, %r4;
"""


@pytest.mark.parametrize("tiles", [64, 1024, 4096])
def test_rounds_of_causal_loops_are_followed_at_once(
    monkeypatch: pytest.MonkeyPatch, tiles: int
) -> None:
    """Blocks that are run do not grow with the rounds, which are as many as tiles."""
    blocks: list[int] = []
    run_block = SliceMachine.run_block

    def counting(run: SliceMachine, block: int, *rest: object) -> None:
        blocks.append(block)
        run_block(run, block, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(SliceMachine, "run_block", counting)
    program = launch(CAUSAL, tiles, 0, 0)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert step.diagnostics == ()
    ends = [4 * 32 * tiles] * 3
    starts = [0, 4 * 64, 0]
    assert [str(a.region) for a in step.accesses] == [
        f"Interval(start={start}, end={end})" for start, end in zip(starts, ends, strict=True)
    ]
    assert {a.certainty for a in step.accesses} == {Certainty.MUST}
    assert len(blocks) < 150


def test_what_cannot_be_followed_is_said_and_uncertain() -> None:
    """A place that depends on the square of the CTA's number has no piece of many CTAs."""
    square = "    mul.lo.s32 %r20, %r3, %r3;\n" * 2
    program = launch(square, 1 << 26, 0, 0)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert [d.code for d in step.diagnostics] == ["TSR2006"]
    assert {a.certainty for a in step.accesses} == {Certainty.MAY}


# --- where data decides ------------------------------------------------------------------------

CHOSEN = """
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.u32 %r6, [%rd2];
    setp.lt.u32 %p1, %r6, 5;
"""
BY_DATA = {
    "one of two buffers": f"{CHOSEN} selp.b64 %rd6, %rd4, %rd5, %p1;\n",
    "an assignment": f"{CHOSEN} mov.u64 %rd6, %rd4;\n @%p1 mov.u64 %rd6, %rd5;\n",
    "a branch, and a step": f"""{CHOSEN}
    mov.u64 %rd6, %rd4;
    @%p1 bra NEXT;
    mov.u64 %rd6, %rd5;
NEXT:
    add.s64 %rd6, %rd6, 8;
""",
    "a comparison of large numbers": """
    ld.global.s32 %r6, [%rd2];
    cvt.s64.s32 %rd3, %r6;
    cvt.u64.u32 %rd4, %r3;
    setp.le.u64 %p1, %rd3, %rd4;
    mul.wide.u32 %rd5, %r3, 4;
    add.s64 %rd6, %rd1, %rd5;
    @%p1 st.global.u32 [%rd6], %r4;
    @%p1 bra DONE;
    add.s64 %rd6, %rd6, 256;
""",
}


@pytest.mark.parametrize("body", BY_DATA.values(), ids=list(BY_DATA))
def test_what_data_decides_holds_for_all_ctas(body: str) -> None:
    end = "    st.global.u32 [%rd6], %r4;\nDONE:\n    ret;\n}\n"
    kernel = Kernel(HEAD + body + end, (40, 1, 1), (32, 1, 1), (0, 0), 0)
    program = program_of(kernel)
    step = in_pieces(program)
    for contents in ("zeros", "ones", "random"):
        check_log(program, step, log_of(program, kernel, contents), contents)
