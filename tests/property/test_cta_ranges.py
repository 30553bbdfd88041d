"""Parts of launches: ranges of CTAs against the same kernel with its numbers written into the text.

A part of a launch sees `%ctaid` from its first CTA on and `%nctaid` of the whole grid. The text
that says so with constants touches the same bytes, and what it touches on the CPU backend is among
them. All parts together touch what the whole launch touches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.graph.access import AccessKind, AddressClass, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.footprint import footprint
from tests.helpers.share import share
from tests.property.grid_strategies import grid_kernels
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_grid_pieces import in_pieces
from tests.property.test_soundness_generated import check_log, log_of, program_of

TRACES = Path(__file__).parents[2] / "examples" / "traces"
_SETTINGS = settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=settings.default.max_examples // 2,
)
Touched = dict[tuple[int, str], list[tuple[int, int]]]


def written_out(text: str, ctas: ir.CtaRange) -> str:
    """A module of one kernel that reads its own number and the extent as constants."""
    axis = "xyz"[ctas.axis]
    head = (
        "{ .reg .b32 %tsr_at, %tsr_of;"
        f" mov.u32 %tsr_at, %ctaid.{axis}; add.s32 %tsr_at, %tsr_at, {ctas.first};"
        f" mov.u32 %tsr_of, {ctas.extent};"
    )
    body = text.index("{", text.index(".entry"))
    rest = re.sub(rf"%ctaid\.{axis}\b", "%tsr_at", text[body + 1 :])
    return text[:body] + head + re.sub(rf"%nctaid\.{axis}\b", "%tsr_of", rest)


def part(launch: ir.Launch, axis: int, first: int, end: int) -> ir.Launch:
    x, y, z = (end - first if at == axis else size for at, size in enumerate(launch.grid))
    return replace(launch, grid=(x, y, z), ctas=ir.CtaRange(axis, first, launch.grid[axis]))


def touched(program: ir.Program, steps: Sequence[StepAccesses]) -> Touched:
    """The bytes that steps may read, may write and surely write."""
    found: dict[tuple[int, str], list] = {}
    for access in (access for step in steps for access in step.accesses):
        kinds = [access.kind.reads and "read", access.kind.writes and "write"]
        kinds.append(access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST and "!")
        for kind in filter(None, kinds):
            found.setdefault((int(access.buffer), str(kind)), []).append(access.region)
    return {
        key: list(intervals.pairs(regions_bytes(regions, program.buffers[key[0]].bytes)))
        for key, regions in found.items()
    }


@st.composite
def ranges(draw: st.DrawFn, grid: ir.Triple) -> tuple[int, int, int]:
    axis = draw(st.sampled_from([a for a in range(3) if grid[a] == max(grid)] + [0, 1, 2]))
    first = draw(st.integers(0, grid[axis] - 1))
    return axis, first, draw(st.integers(first + 1, grid[axis]))


def as_text(program: ir.Program, launch: ir.Launch) -> ir.Program:
    assert launch.ctas is not None
    text = written_out(program.modules[launch.module].variants[0].text, launch.ctas)
    variant = ir.ModuleVariant(arch="sm_80", text=text, ptx=parse_module(text, "part.ptx"))
    modules = tuple(replace(m, variants=(variant,)) for m in program.modules)
    return replace(program, modules=modules, steps=(replace(launch, ctas=None),))


@_SETTINGS
@given(grid_kernels(inside=True), st.data())
def test_a_range_touches_what_its_text_touches(kernel: Kernel, data: st.DataObject) -> None:
    program = program_of(kernel)
    launch = part(next(program.launches()), *data.draw(ranges(kernel.grid)))
    native, text = replace(program, steps=(launch,)), as_text(program, launch)
    step = in_pieces(native)
    assert touched(native, [step]) == touched(text, [in_pieces(text)])
    (alone,) = AnalysisManager(native).get(AccessRegions).steps
    assert touched(native, [alone]) == touched(native, [step])
    log = log_of(text, replace(kernel, grid=launch.grid), "random")
    check_log(native, step, log, "random")


@_SETTINGS
@given(kernels(), st.sampled_from([(7, 3, 2), (12, 1, 1), (1, 5, 2)]), st.data())
def test_bytes_of_a_range_of_any_kernel_are_in_its_regions(
    kernel: Kernel, grid: ir.Triple, data: st.DataObject
) -> None:
    kernel = replace(kernel, grid=grid)
    program = program_of(kernel)
    launch = part(next(program.launches()), *data.draw(ranges(grid)))
    native = replace(program, steps=(launch,))
    for contents in ("zeros", "random"):
        log = log_of(as_text(program, launch), replace(kernel, grid=launch.grid), contents)
        for step in (in_pieces(native), *AnalysisManager(native).get(AccessRegions).steps):
            check_log(native, step, log, contents)


@_SETTINGS
@given(grid_kernels(), st.data())
def test_all_ranges_touch_what_the_launch_touches(kernel: Kernel, data: st.DataObject) -> None:
    program = program_of(kernel)
    whole = next(program.launches())
    axis, first, end = data.draw(ranges(kernel.grid))
    edges = sorted({0, first, end, kernel.grid[axis]})
    parts = [replace(part(whole, axis, *pair), id=n) for n, pair in enumerate(pairwise(edges))]
    steps = AnalysisManager(replace(program, steps=tuple(parts))).get(AccessRegions).steps
    assert touched(program, steps) == touched(program, [in_pieces(program)])


@pytest.mark.parametrize("model", share(["mamba", "moe"]))
def test_parts_of_captured_launches(model: str) -> None:
    """As Triton writes them: both parts of every launch, along its longest axis."""
    path = TRACES / f"{model}.ptx"
    program, _ = read_program(Source(path.name, path.read_text()))
    program = replace(
        program,
        modules=tuple(replace(m, variants=(m.variant("sm_80"),)) for m in program.modules),
        steps=tuple(ir.for_arch(launch, "sm_80") for launch in program.launches()),
    )
    parts: list[ir.Launch] = []
    for launch in program.launches():
        axis = launch.grid.index(max(launch.grid))
        for first, end in pairwise(sorted({0, 3 * launch.grid[axis] // 8, launch.grid[axis]})):
            parts.append(replace(part(launch, axis, first, end), id=ir.LaunchId(len(parts))))
    one_kernel = [m.variants[0].text.count(".entry") == 1 for m in program.modules]
    parts = [p for p in parts if one_kernel[p.module]]
    native = replace(program, steps=tuple(parts))
    modules, steps = [], []
    known: dict[str, ir.ModuleId] = {}
    for at, launch in enumerate(parts):
        assert launch.ctas is not None
        old = program.modules[launch.module]
        text = written_out(
            re.sub(r"(?m)^\s*\.(loc|file).*$", "", old.variants[0].text), launch.ctas
        )
        text = text[: text.index(".section")] if ".section" in text else text
        if text not in known:
            known[text] = ir.ModuleId(len(modules))
            ptx = parse_module(text, f"part{at}.ptx")
            variant = ir.ModuleVariant(arch="sm_80", text=text, ptx=ptx)
            modules.append(ir.ProgramModule(known[text], f"part{at}", (variant,)))
        steps.append(replace(launch, module=known[text], ctas=None))
    as_texts = replace(program, modules=tuple(modules), steps=tuple(steps))
    found = AnalysisManager(native).get(AccessRegions).steps
    wanted = AnalysisManager(as_texts).get(AccessRegions).steps
    assert len(found) > 40
    for one, other in zip(found, wanted, strict=True):
        assert touched(native, [one]) == touched(as_texts, [other]), one.name
    whole = AnalysisManager(program).get(AccessRegions).steps
    for launch, step in zip(program.launches(), whole, strict=True):
        mine = [s for p, s in zip(parts, found, strict=True) if p.span == launch.span]
        if mine and all(a.address is AddressClass.DIRECT for a in step.accesses):
            assert touched(program, mine) == touched(program, [step]), step.name


GRID_STRIDE = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p;
    .reg .b32 %at, %step, %row;
    .reg .b64 %out, %offset, %to;
    ld.param.u64 %out, [out];
    mov.u32 %at, %ctaid.x;
    mov.u32 %step, %nctaid.x;
    mov.u32 %row, %ctaid.y;
    mad.lo.s32 %at, %row, 100, %at;
LOOP:
    mul.wide.s32 %offset, %at, 4;
    add.s64 %to, %out, %offset;
    st.global.u32 [%to], %step;
    add.s32 %at, %at, %step;
    setp.lt.u32 %p, %at, 200;
    @%p bra LOOP;
    ret;
}
"""


@pytest.mark.parametrize("budget", [footprint.EXACT_BUDGET, 0])
@pytest.mark.parametrize("pieces", [0, 1 << 62])
def test_a_range_walks_with_the_stride_of_the_whole_grid(budget: int, pieces: int) -> None:
    kernel = Kernel(text=GRID_STRIDE, grid=(10, 2, 1), block=(1, 1, 1), scalars=(0, 0), offset=0)
    program = program_of(kernel)
    launch = part(next(program.launches()), 0, 3, 5)
    find = partial(footprint.find_footprint, exact_budget=budget, few_threads=pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint, "find_footprint", find)
        (step,) = AnalysisManager(replace(program, steps=(launch,))).get(AccessRegions).steps
    words = [at for at in range(200) if at % 10 in (3, 4)]
    if budget:
        runs = [(4 * at, 4 * at + 8) for at in words[::2]]
        assert touched(program, [step]) == {(0, "write"): runs, (0, "!"): runs}
    log = log_of(as_text(program, launch), replace(kernel, grid=launch.grid), "zeros")
    check_log(program, step, log, "zeros")
