"""The proof of divided plans: each rule broken in one plan, and the finding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.plan.launch_program import Receive, Send
from tessera.ir.program import program as ir
from tessera.passes.checker.check_plan import check_plan
from tests.helpers.divided_plans import divided_plan, launch, planned_again, program_of

CUT = Division((Cut(step=0, axis="x", edges=(0, 3, 8)),))
MEMSET, MEMCPY = "memset h bytes=1024 value=0x07", "memcpy h x bytes=1024"


def refusals(program: ir.Program, division: Division, placed: str, arch: str = "sm_80") -> str:
    plan, divided, graph = divided_plan(program, division, placed, arch)
    return found(check_plan(plan, [divided], [graph]))


def found(diagnostics: tuple) -> str:
    return "\n".join(" ".join(map(str, (d.code, d.headline, *d.notes))) for d in diagnostics)


PLAIN = (launch("plain", "y", "x"),)
PLAINS = (launch("plain", "h", "x"), launch("plain", "y", "h"))
PRODUCT = "op aten::mm.out reads=[x:f32[16,16], s:f32[16,16]] writes=[y:f32[16,16]]"
BYTES = Division((Cut(step=0, axis="bytes", edges=(0, 7, 1024)),))


@pytest.mark.parametrize(
    ("steps", "division", "placed"),
    [
        (PLAIN, CUT, "ab"),
        (PLAIN, Division((replace(CUT.cuts[0], edges=(0, 2, 5, 8)),)), "aba"),
        ((launch("plain", "s", "s"),), CUT, "ab"),
        ((MEMSET, PLAINS[1]), BYTES, "abb"),
        ((MEMCPY, PLAINS[1]), BYTES, "aba"),
        (PLAINS, CUT, "aba"),
        ((PRODUCT,), Division((Cut(step=0, axis="columns", edges=(0, 4, 16)),)), "ab"),
        ((PRODUCT,), Division((Cut(step=0, axis="rows", edges=(0, 5, 16)),)), "ab"),
        ((PRODUCT,), Division((), (Twin(0, 2),)), "ab"),
        (PLAINS, Division((replace(CUT.cuts[0], step=1),), (Twin(0, 2),)), "abab"),
    ],
)
def test_divisions_that_are_right(steps: tuple[str, ...], division: Division, placed: str) -> None:
    assert refusals(program_of(*steps), division, placed) == ""


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (launch("same", "y", "x"), "TSR4019 two parts may write bytes 0:4 of `y`"),
        (launch("before", "s+4", "s+4", 4), "which another part of its step may write"),
        (f"{PLAIN[0]} cooperative=1", "its CTAs run at the same time: the launch is cooperative"),
        (launch("count", "y", "s"), "`atom.global.add.u32` is an atomic"),
        (launch("smid", "y", "x"), "depends on where and when it runs: the kernel reads `%smid`"),
        (launch("timed", "y", "x"), "depends on where and when it runs: the kernel reads `%clock`"),
        (launch("grid", "y", "x"), "TSR4019 step `#0 grid` is divided, and its code for `sm_80`"),
    ],
)
def test_steps_that_cannot_be_cut(step: str, why: str) -> None:
    step = step.replace("grid=4,1,1 block=64", "grid=4,1,1 block=32")
    cut = replace(CUT.cuts[0], edges=(0, 1, 4) if "grid=4" in step else (0, 3, 8))
    assert why in refusals(program_of(step), Division((cut,)), "ab")


SUMS = 'x:f32[16,16], s:s64[8,8], x+512:f32[8,8]] writes=[y:f32[16,16]] attrs={"dim":0}'


@pytest.mark.parametrize(
    "step",
    [
        *(launch(kernel, "y", "s") for kernel in ("count", "smid", "timed", "grid")),
        f"op aten::scatter_add reads=[{SUMS}",
        "op tessera::other reads=[x:f32[4]] writes=[y:f32[4]]",
    ],
)
def test_steps_that_cannot_have_twins(step: str) -> None:
    program = program_of(step)
    assert "TSR4019" in refusals(program, Division((), (Twin(0, 2),)), "ab")


def test_clusters_are_not_cut_apart() -> None:
    program = program_of(launch("pairs", "y", "x"), arches=("sm_90",))
    cut = replace(CUT.cuts[0], edges=(0, 4, 8))
    plan, divided, graph = divided_plan(program, Division((cut,)), "ab", "sm_90")
    assert "TSR4018" not in found(check_plan(plan, [divided], [graph]))
    assert "TSR4018 clusters of `#0 pairs` are cut apart at (3,)" in refusals(
        program, CUT, "ab", "sm_90"
    )


def parts_of_plain() -> tuple:
    program = program_of(*PLAIN)
    plan, divided, graph = divided_plan(program, CUT, "ab")
    return plan, divided, graph


def ctas(
    first: int, count: int, extent: int = 8, axis: int = 0
) -> Callable[[ir.Launch], ir.Launch]:
    def change(part: ir.Launch) -> ir.Launch:
        return replace(part, grid=(count, 1, 1), ctas=ir.CtaRange(axis, first, extent))

    return change


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (0, ctas(0, 4)),  # overlaps
        (1, ctas(4, 4)),  # misses a CTA
        (1, ctas(2, 5)),  # wrong base
        (1, ctas(3, 5, 9)),  # wrong extent
        (1, ctas(3, 5, 8, 1)),
        (0, lambda part: replace(part, ctas=None)),
        (0, lambda part: replace(part, arguments=part.arguments[::-1])),
        (0, lambda part: replace(part, kernel="before")),
        (0, lambda part: replace(part, block=(16, 1, 1))),
        (1, lambda part: replace(part, shared_bytes=16)),
        (1, lambda part: replace(part, stream="1")),
        (1, lambda part: replace(part, variants=(ir.LaunchVariant(arch="sm_80", grid=(4, 1, 1)),))),
    ],
)
def test_parts_that_are_not_their_range(
    number: int, change: Callable[[ir.Launch], ir.Launch]
) -> None:
    plan, divided, graph = parts_of_plain()
    steps = list(divided.steps)
    steps[number] = change(steps[number])
    assert "TSR4018" in found(check_plan(plan, [replace(divided, steps=tuple(steps))], [graph]))


@pytest.mark.parametrize(
    "division",
    [
        Division(),
        Division((Cut(step=0, axis="y", edges=(0, 3, 8)),)),
        Division((Cut(step=0, axis="x", edges=(0, 4, 8)),)),
        Division((Cut(step=0, axis="x", edges=(0, 3, 7)),)),
        Division((Cut(step=0, axis="x", edges=(0, 3, 3, 8)),)),
        Division((Cut(step=0, axis="xyz", edges=(0, 3, 8)),)),
        Division((Cut(step=1, axis="x", edges=(0, 3, 8)),)),
        Division((*CUT.cuts, *CUT.cuts)),
        Division((*CUT.cuts, replace(CUT.cuts[0], arch="sm_90"))),
        Division((replace(CUT.cuts[0], arch="sm_80"),)),
        Division(CUT.cuts, (Twin(0, 2),)),
        Division((), (Twin(0, 2),)),
        Division((), (Twin(0, 1),)),
    ],
)
def test_records_that_are_not_the_program(division: Division) -> None:
    plan, divided, graph = parts_of_plain()
    plan = replace(plan, traces=(replace(plan.traces[0], division=division),))
    assert "TSR4018" in found(check_plan(plan, [divided], [graph]))


def test_parts_that_leave_the_first_ctas_out() -> None:
    plan, divided, graph = parts_of_plain()
    cut = replace(CUT.cuts[0], edges=(1, 3, 8))
    plan = replace(plan, traces=(replace(plan.traces[0], division=Division((cut,))),))
    steps = (ctas(1, 2)(divided.steps[0]), *divided.steps[1:])
    assert "TSR4018" in found(check_plan(plan, [replace(divided, steps=steps)], [graph]))


@pytest.mark.parametrize("name", ["buffers", "modules"])
def test_a_divided_program_of_other_parts(name: str) -> None:
    plan, divided, graph = parts_of_plain()
    first, *others = getattr(divided, name)
    other = {name: (replace(first, name="other"), *others)}
    expected = f"TSR4018 the divided program has other {name}"
    assert expected in found(check_plan(plan, [replace(divided, **other)], [graph]))
    same = {name: (replace(first), *others)}
    assert found(check_plan(plan, [replace(divided, **same)], [graph])) == ""


def test_a_call_with_other_operands() -> None:
    cut = Cut(step=0, axis="columns", edges=(0, 4, 16))
    plan, divided, graph = divided_plan(program_of(PRODUCT), Division((cut,)), "ab")
    first, second = divided.steps
    moved = replace(second.reads[1], pointer=replace(second.reads[1].pointer, offset=32))
    wrong = replace(second, reads=(second.reads[0], moved))
    assert "TSR4018" in found(check_plan(plan, [replace(divided, steps=(first, wrong))], [graph]))


def test_a_divided_program_without_its_trace() -> None:
    plan, divided, graph = parts_of_plain()
    assert "TSR4018" in found(check_plan(plan, [replace(divided, whole=None)], [graph]))
    other = program_of(launch("plain", "y", "s"))
    assert "TSR4018" in found(check_plan(plan, [replace(divided, whole=other)], [graph]))
    for step, division in ((PLAIN[0], CUT), (PRODUCT, Division((), (Twin(0, 2),)))):
        plan, divided, graph = divided_plan(program_of(step), division, "ab")
        plan = replace(plan, traces=(replace(plan.traces[0], division=Division()),))
        assert "TSR4018 the trace has parts or twins of its own" in found(
            check_plan(plan, [replace(divided, whole=None)], [graph])
        )


def test_parts_of_other_code_write_the_same_bytes() -> None:
    step = launch("plain", "y", "x")
    program = program_of(step, "variant sm_90 grid=4,1,1 block=64,1,1", arches=("sm_80", "sm_90"))
    edges = (
        Cut(step=0, axis="x", edges=(0, 4, 8)),
        Cut(step=0, axis="x", edges=(0, 2, 4), arch="sm_90"),
    )
    assert refusals(program, Division(edges), "ab") == ""
    wrong = edges[0], replace(edges[1], edges=(0, 1, 4))
    assert "TSR4019 two parts may write bytes 256:512 of `y`" in refusals(
        program, Division(wrong), "ab"
    )
    for other in ((0, 2, 8), (0, 4), (0, 1, 2, 4)):
        plan, divided, graph = divided_plan(program, Division(edges), "ab")
        cuts = edges[0], replace(edges[1], edges=other)
        plan = replace(plan, traces=(replace(plan.traces[0], division=Division(cuts)),))
        assert "TSR4018" in found(check_plan(plan, [divided], [graph]))


TWINS = Division((), (Twin(0, 2),))


def test_twins() -> None:
    program = program_of(*PLAINS)
    plan, divided, graph = divided_plan(program, TWINS, "abb")
    assert found(check_plan(plan, [divided], [graph])) == ""
    for twins in ((), ((0, 1, 2),), ((1, 2),), ((0, 1), (0, 1))):
        assert "TSR4018" in found(check_plan(plan, [replace(divided, twins=twins)], [graph]))
    first, second, last = divided.steps
    for other in (
        replace(second, arguments=second.arguments[::-1]),
        replace(second, kernel="same"),
    ):
        changed = replace(divided, steps=(first, other, last))
        assert "TSR4018" in found(check_plan(plan, [changed], [graph]))


def test_twins_are_on_different_devices() -> None:
    assert "TSR4002" in refusals(program_of(*PLAINS), TWINS, "aab")


def test_an_exchange_that_is_missing() -> None:
    """Every transfer of a plan in parts is needed."""
    program = program_of(launch("plain", "h", "x"), launch("before", "y+4", "h+4", 4))
    program = replace(
        program, steps=(program.steps[0], replace(program.steps[1], block=(63, 1, 1)))
    )
    division = Division((CUT.cuts[0], Cut(step=1, axis="x", edges=(0, 2, 4))))
    plan, divided, graph = divided_plan(program, division, "abab")
    assert found(check_plan(plan, [divided], [graph])) == ""
    (replica,) = plan.replicas
    (trace,) = replica.lowered.traces
    between = [t.id for t in trace.transfers if {t.source, t.target} == {"a", "b"}]
    assert between
    for gone in between:
        programs = tuple(
            replace(
                own,
                operations=tuple(
                    queued
                    for queued in own.operations
                    if not isinstance(queued.operation, Send | Receive)
                    or queued.operation.transfer != gone
                ),
            )
            for own in trace.programs
        )
        transfers = tuple(t for t in trace.transfers if t.id != gone)
        lowered = replace(
            replica.lowered, traces=(replace(trace, programs=programs, transfers=transfers),)
        )
        changed = replace(plan, replicas=(replace(replica, lowered=lowered),))
        assert "TSR4" in found(check_plan(changed, [divided], [graph]))


def test_a_part_on_another_device_needs_other_transfers() -> None:
    program = program_of(*PLAINS)
    plan, divided, graph = divided_plan(program, CUT, "aba")
    other = planned_again(plan, divided, graph, CUT, "abb")
    mixed = replace(plan.replicas[0], traces=other.replicas[0].traces)
    assert "TSR4002" in found(check_plan(replace(plan, replicas=(mixed,)), [divided], [graph]))
