"""Divided programs: parts are all of their step, in order; what means nothing is refused."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics import TesseraError
from tessera.ir.plan.division import Cut, Division, StepPart, Twin, parts_of
from tessera.ir.program import program as ir
from tessera.passes.division.divide import divide
from tests.property.strategies import programs


def axes_of(work: ir.Work, arch: str) -> dict[str, tuple[int, int]]:
    match work:
        case ir.Launch():
            launch = ir.for_arch(work, arch)
            cluster = launch.cluster or (1, 1, 1)
            return {"xyz"[a]: (launch.grid[a], cluster[a]) for a in range(3)}
        case ir.Memset():
            return {"bytes": (work.bytes, work.element_bytes)}
        case ir.Memcpy():
            return {"bytes": (work.bytes, 1)}
        case ir.LibraryCall():
            return {}


@st.composite
def cuts(draw: st.DrawFn, work: ir.Work, arch: str, count: int = 0) -> Cut | None:
    """A cut of a step for an architecture, in `count` parts (0: in any number)."""
    axes = [
        (axis, extent, multiple)
        for axis, (extent, multiple) in axes_of(work, arch).items()
        if extent // multiple >= max(2, count)
    ]
    if not axes:
        return None
    axis, extent, multiple = draw(st.sampled_from(axes))
    many = count or draw(st.integers(2, min(4, extent // multiple)))
    inner = st.integers(1, extent // multiple - 1)
    edges = draw(st.lists(inner, min_size=many - 1, max_size=many - 1, unique=True))
    inside = sorted(edge * multiple for edge in edges)
    return Cut(step=work.id, axis=axis, edges=(0, *inside, extent), arch=arch)


@st.composite
def divisions(draw: st.DrawFn, program: ir.Program) -> Division:
    made: list[Cut] = []
    twins: list[Twin] = []
    for work in program.work():
        choice = draw(st.sampled_from(["whole", "cut", "cut", "twin"]))
        if choice == "twin":
            twins.append(Twin(work.id, draw(st.integers(2, 3))))
        if choice != "cut" or (first := draw(cuts(work, ""))) is None:
            continue
        own = [first]
        for variant in work.variants if isinstance(work, ir.Launch) else ():
            if ir.for_arch(work, variant.arch).grid != work.grid or draw(st.booleans()):
                own.append(draw(cuts(work, variant.arch, first.count)))
        if None not in own:
            made += sorted(own, key=lambda cut: cut.arch)
    return Division(tuple(made), tuple(twins))


@st.composite
def divided_programs(draw: st.DrawFn) -> tuple[ir.Program, Division]:
    program = draw(programs().filter(lambda p: any(True for _ in p.work())))
    return program, draw(divisions(program))


def whole_again(parts: list[ir.Work], mine: list[StepPart], arch: str) -> ir.Work:
    """The parts joined end to end; fails where one does not begin at the end of another."""
    first = parts[0]
    if mine[0].is_twin or len(parts) == 1:
        assert all(replace(part, id=first.id) == first for part in parts)
        return first
    at = 0
    for part, stated in zip(parts, mine, strict=True):
        found = stated.range_on(arch)
        assert found is not None
        axis, begin, end, extent = found
        assert begin == at
        if isinstance(part, ir.Launch):
            own, number = ir.for_arch(part, arch), "xyz".index(axis)
            assert own.ctas == ir.CtaRange(number, begin, extent)
            assert own.grid[number] == end - begin
        elif isinstance(part, ir.Memset | ir.Memcpy):
            assert part.bytes == end - begin
            assert part.target.offset == first.target.offset + begin
            if isinstance(part, ir.Memcpy):
                assert part.source.offset == first.source.offset + begin
        at = end
    assert at == extent
    if isinstance(first, ir.Launch):
        own = ir.for_arch(first, arch)
        x, y, z = (extent if a == number else size for a, size in enumerate(own.grid))
        return replace(own, grid=(x, y, z), ctas=None)
    return replace(first, bytes=extent)


@given(divided_programs())
def test_parts_are_all_of_their_step_in_order(case: tuple[ir.Program, Division]) -> None:
    program, division = case
    made = divide(program, division)
    work, parts = list(made.work()), parts_of(len(list(program.work())), division)
    assert [step.id for step in work] == [part.step for part in parts] == list(range(len(work)))
    assert [s for s in made.steps if isinstance(s, ir.Event | ir.Wait)] == [
        s for s in program.steps if isinstance(s, ir.Event | ir.Wait)
    ]
    groups: dict[int, list[StepPart]] = defaultdict(list)
    for part in parts:
        groups[part.origin].append(part)
    for origin in program.work():
        mine = groups[origin.id]
        assert [part.index for part in mine] == list(range(division.counts().get(origin.id, 1)))
        steps = [work[part.step] for part in mine]
        archs = [v.arch for v in origin.variants] if isinstance(origin, ir.Launch) else []
        for arch in ("", *archs):
            expected = ir.for_arch(origin, arch) if isinstance(origin, ir.Launch) else origin
            joined = whole_again(steps, mine, arch)
            if isinstance(joined, ir.Launch):
                joined = ir.for_arch(joined, arch)
            assert replace(joined, id=origin.id) == expected
    assert [list(group) for group in made.twins] == [
        [part.step for part in mine] for mine in groups.values() if mine[0].is_twin
    ]
    assert replace(made, steps=program.steps, twins=()) == program


def edits(program: ir.Program, division: Division) -> dict[str, Division]:
    """Divisions that mean nothing, each wrong in one way."""
    count = len(list(program.work()))
    found = {
        "the trace has": Division((), (Twin(count, 2),)),
        "twins are at least 2": Division((), (Twin(0, 1),)),
        "twins twice": Division((), (Twin(0, 2), Twin(0, 3))),
    }
    if not division.cuts:
        return found
    cut = division.cuts[0]
    others = tuple(one for one in division.cuts if one is not cut)

    def with_cut(**changes: object) -> Division:
        return Division((replace(cut, **changes), *others), division.twins)

    found |= {
        "no axis": with_cut(axis="heads"),
        "its parts go to": with_cut(edges=(*cut.edges[:-1], cut.edges[-1] + 1)),
        "begins at 1, not at 0": with_cut(edges=(1, *cut.edges[1:])),
        "comes after": with_cut(edges=(*cut.edges[:-1], cut.edges[-2], cut.edges[-1])),
        "at least two parts": with_cut(edges=(0, cut.edges[-1])),
        "cut twice": Division((cut, *division.cuts), division.twins),
        "cut and has twins": Division(division.cuts, (*division.twins, Twin(cut.step, 2))),
        "not for the launch itself": with_cut(arch="sm_10"),
        "no code for": Division((cut, replace(cut, arch="sm_10"), *others), division.twins),
    }
    if len(division.cuts) > 1 and division.cuts[1].arch and len(cut.edges) > 3:
        found["otherwise"] = with_cut(edges=(0, *cut.edges[2:]))
    return found


@given(divided_programs())
def test_a_division_that_means_nothing_is_refused(case: tuple[ir.Program, Division]) -> None:
    for words, wrong in edits(*case).items():
        with pytest.raises(TesseraError, match=f"TSR3029.*{words}"):
            divide(case[0], wrong)


def test_an_edge_inside_a_cluster_names_the_nearest_that_is_not() -> None:
    launch = ir.Launch(
        id=ir.LaunchId(0),
        module=ir.ModuleId(0),
        kernel="k",
        grid=(128, 1, 1),
        block=(32, 1, 1),
        arguments=(),
        cluster=(2, 1, 1),
    )
    program = ir.Program(modules=(ir.ProgramModule(ir.ModuleId(0), "m", ()),), steps=(launch,))
    with pytest.raises(TesseraError, match="not a multiple of 2") as failure:
        divide(program, Division((Cut(step=0, axis="x", edges=(0, 95, 128)),)))
    assert failure.value.diagnostics[0].hint == "the nearest legal edge is 96"
    parts = list(divide(program, Division((Cut(step=0, axis="x", edges=(0, 96, 128)),))).launches())
    assert [part.grid for part in parts] == [(96, 1, 1), (32, 1, 1)]
    words = [str(part.words()) for part in parts_of(1, Division((), (Twin(0, 2),)))]
    assert words == [" [twin 1 of 2]", " [twin 2 of 2]"]
