"""The judge of parts and twins, on programs written by hand: each rule and the words of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from tessera.ir.graph.access import Pin, PinKind
from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.checker.division import (
    _OF_A_DEVICE,
    _UNSAFE,
    _check_code,
    check_division,
)
from tessera.passes.checker.division_calls import _is_attribute, _is_range, call_fault, may_vary
from tessera.passes.checker.findings import Findings
from tessera.passes.division.cut_calls import part_of_call
from tessera.passes.division.divide import divide
from tessera.wording import Wording
from tests.helpers.divided_plans import launch, program_of
from tests.helpers.served import graph_of
from tests.unit.passes.test_cut_calls import read

STEPS = (
    "event begin stream=1",
    launch("plain", "h", "x"),
    "wait begin stream=2",
    "memset s bytes=1024 value=0x0102 element_bytes=2",
    "memcpy s+8 h+4 bytes=16",
    launch("plain", "y", "h"),
)


PLAIN = (launch("plain", "y", "x"),)


def said(
    program: ir.Program,
    division: Division,
    change: Callable[[ir.Program], ir.Program] = lambda divided: divided,
    made: Division | None = None,
) -> list[str]:
    """What is said of a program that is divided by `made`, then changed, as if by `division`."""
    divided = change(divide(program, division if made is None else made))
    findings = Findings()
    check_division(divided, graph_of(divided), division, findings)
    return [" ".join(map(str, (d.code, d.headline, *d.notes))) for d in findings.result()]


def cut(step: int, axis: str, *edges: int, arch: str = "") -> Cut:
    return Cut(step=step, axis=axis, edges=edges, arch=arch)


def changed(*numbers: int, **fields: object) -> Callable[[ir.Program], ir.Program]:
    """Changes fields of some of the steps."""

    def change(divided: ir.Program) -> ir.Program:
        steps = [
            replace(step, **fields) if number in numbers else step  # type: ignore[arg-type]
            for number, step in enumerate(divided.steps)
        ]
        return replace(divided, steps=tuple(steps))

    return change


def swapped(first: int, second: int) -> Callable[[ir.Program], ir.Program]:
    def change(divided: ir.Program) -> ir.Program:
        steps = list(divided.steps)
        steps[first], steps[second] = steps[second], steps[first]
        return replace(divided, steps=tuple(steps))

    return change


def without(number: int) -> Callable[[ir.Program], ir.Program]:
    return lambda divided: replace(
        divided, steps=(*divided.steps[:number], *divided.steps[number + 1 :])
    )


HALVES = Division((cut(0, "x", 0, 3, 8),))
BYTES = Division((cut(1, "bytes", 0, 98, 1024),))
COPY = Division((cut(2, "bytes", 0, 5, 16),))
TWINS = Division((), (Twin(3, 2),))
MOVED = "TSR4018 an event or a wait is not where it was"


@pytest.mark.parametrize("division", [Division(), HALVES, BYTES, COPY, TWINS])
def test_divisions_beside_events(division: Division) -> None:
    assert said(program_of(*STEPS), division) == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (changed(0, stream="3"), [MOVED]),
        (without(0), [MOVED]),
        (swapped(2, 3), ["TSR4018 step `#0 plain` should be 2 steps from #0 on"]),
        (changed(3, event="other"), [MOVED]),
        (without(6), ["TSR4018 step `#3 plain` should be 1 steps from #4 on"]),
        (without(5), ["TSR4018 step `#2 memcpy` should be 1 steps from #3 on"]),
        (
            lambda divided: replace(
                divided, steps=(*divided.steps, replace(divided.steps[-1], id=ir.LaunchId(5)))
            ),
            ["TSR4018 the divided program has more steps than its trace"],
        ),
        (changed(1, id=ir.LaunchId(1)), ["TSR4018 step `#0 plain` should be 2 steps from #0 on"]),
        (changed(2, id=ir.LaunchId(0)), ["TSR4018 step `#0 plain` should be 2 steps from #0 on"]),
        (
            changed(6, kernel="same"),
            ["TSR4018 step `#4 same` is not step `#3 plain` of the trace"],
        ),
        (
            lambda divided: replace(divided, twins=((3, 4),)),
            ["TSR4018 the twins are ((3, 4),), and should be ()"],
        ),
        (
            lambda divided: replace(divided, buffers=divided.buffers[:-1]),
            ["TSR4018 the divided program has other buffers"],
        ),
        (
            lambda divided: replace(divided, modules=divided.modules * 2),
            ["TSR4018 the divided program has other modules"],
        ),
        (
            lambda divided: replace(
                divided,
                pointer_tables=(ir.PointerTable(buffer=ir.BufferId(0), words=()),),
            ),
            ["TSR4018 the divided program has other pointer tables"],
        ),
    ],
)
def test_steps_that_are_not_those_of_the_trace(
    change: Callable[[ir.Program], ir.Program], wanted: list[str]
) -> None:
    program = program_of(*STEPS)
    divided = change(divide(program, HALVES))
    findings = Findings()
    check_division(divided, graph_of(divide(program, HALVES)), HALVES, findings)
    assert [f"{d.code} {d.headline}" for d in findings.result()] == wanted


def test_programs_that_say_that_they_are_divided_and_are_not() -> None:
    program = program_of(*STEPS)
    findings = Findings()
    check_division(program, graph_of(program), Division(), findings)
    assert findings.count == 0
    check_division(program, graph_of(program), HALVES, findings)
    assert str(findings.result()[0].headline) == "step `#0 plain` should be 2 steps from #0 on"
    other = program_of(*STEPS[:3], STEPS[4], STEPS[3], STEPS[5])
    lies = replace(other, whole=program)
    findings = Findings()
    check_division(lies, graph_of(other), Division(), findings)
    assert str(findings.result()[0].headline) == "step `#1 memset` should be 1 steps from #1 on"
    # Parts and twins without records of them.
    for division in (HALVES, TWINS):
        findings = Findings()
        divided = replace(divide(program, division), whole=None)
        check_division(divided, graph_of(divided), Division(), findings)
        assert str(findings.result()[0].headline) == "the trace has parts or twins of its own"


@pytest.mark.parametrize(
    ("division", "made", "wanted"),
    [
        (Division((*HALVES.cuts, *HALVES.cuts)), HALVES, ["step #0 is cut twice, or not there"]),
        (Division((*HALVES.cuts, cut(4, "x", 0, 1, 2))), HALVES, ["step #4 is cut twice, or not"]),
        (Division(HALVES.cuts, (Twin(0, 2),)), HALVES, ["step #0 is divided twice, or not there"]),
        (Division((), (Twin(3, 2), Twin(3, 2))), TWINS, ["step #3 is divided twice, or not there"]),
        (Division((), (Twin(3, 2), Twin(4, 2))), TWINS, ["step #4 is divided twice, or not there"]),
        (Division((), (Twin(0, 1),)), Division(), ["step #0 has 1 twins"]),
        (
            Division((cut(0, "x", 0, 8, arch="sm_80"),)),
            Division(),
            [
                "step #0 is cut for some architectures and not for the others",
                "the parts of `#0 plain` have the edges (0, 8)",
            ],
        ),
        (
            Division((cut(0, "x", 0, 3, 8, arch="sm_80"),)),
            Division(),
            [
                "step #0 is cut for some architectures and not for the others",
                "1 parts of `#0 plain` begin at (0, 3)",
            ],
        ),
        (
            Division((*HALVES.cuts, cut(0, "x", 0, 3, 8, arch="sm_75"))),
            HALVES,
            ["step `#0 plain` is cut for `sm_75`, for which there is no code"],
        ),
        (
            Division((*HALVES.cuts, cut(0, "x", 0, 8, arch="sm_80"))),
            HALVES,
            ["2 parts of `#0 plain` begin at (0,)"],
        ),
        (Division((cut(0, "x", 1, 3, 8),)), HALVES, ["2 parts of `#0 plain` begin at (1, 3)"]),
        (
            Division((cut(0, "x", 0, 0, 8),)),
            HALVES,
            ["the parts of `#0 plain` have the edges (0, 0, 8)"],
        ),
        (
            Division((cut(0, "x", 0, 9, 8),)),
            HALVES,
            ["the parts of `#0 plain` have the edges (0, 9, 8)"],
        ),
        (
            Division((cut(0, "x", 0, 3, 7),)),
            HALVES,
            ["the parts of `#0 plain` for `sm_80` end at 7 of `x`, and its grid is (8, 1, 1)"],
        ),
        (
            Division((cut(0, "xy", 0, 3, 8),)),
            HALVES,
            ["the parts of `#0 plain` for `sm_80` end at 8 of `xy`, and its grid is (8, 1, 1)"],
        ),
        (
            Division((cut(0, "", 0, 3, 8),)),
            HALVES,
            ["the parts of `#0 plain` for `sm_80` end at 8 of ``, and its grid is (8, 1, 1)"],
        ),
        (
            Division((cut(0, "w", 0, 3, 8),)),
            HALVES,
            ["the parts of `#0 plain` for `sm_80` end at 8 of `w`, and its grid is (8, 1, 1)"],
        ),
        (
            Division((cut(0, "x", 0, 4, 8),)),
            HALVES,
            [
                "step `#0 plain` for `sm_80` is not CTAs 0 to 4 of 8 along `x` of step `#0 plain`",
                "step `#1 plain` for `sm_80` is not CTAs 4 to 8 of 8 along `x` of step `#0 plain`",
            ],
        ),
        (
            Division((cut(1, "rows", 0, 98, 1024),)),
            BYTES,
            ["the parts of `#1 memset` end at (0, 98, 1024) of `rows`"],
        ),
        (
            Division((cut(1, "bytes", 0, 98, 1022),)),
            BYTES,
            ["the parts of `#1 memset` end at (0, 98, 1022) of `bytes`"],
        ),
        (
            Division((cut(1, "bytes", 0, 97, 1024),)),
            BYTES,
            ["the parts of `#1 memset` end at (0, 97, 1024) of `bytes`"],
        ),
        (
            Division((cut(1, "bytes", 0, 96, 1024),)),
            BYTES,
            [
                "step `#1 memset` is not bytes 0:96 of `#1 memset`",
                "step `#2 memset` is not bytes 96:1024 of `#1 memset`",
            ],
        ),
        (
            Division((cut(2, "bytes", 0, 6, 16),)),
            COPY,
            [
                "step `#2 memcpy` is not bytes 0:6 of `#2 memcpy`",
                "step `#3 memcpy` is not bytes 6:16 of `#2 memcpy`",
            ],
        ),
    ],
)
def test_records_of_another_division(division: Division, made: Division, wanted: list[str]) -> None:
    found = said(program_of(*STEPS), division, made=made)
    assert [one[: len("TSR4018 ") + len(w)] for one, w in zip(found, wanted, strict=False)] == [
        f"TSR4018 {each}" for each in wanted
    ]
    more = ("Twin(4", "cut(4")
    assert (
        len(found) == len(wanted) or any(name in str(division) for name in more) or (division.twins)
    )


@pytest.mark.parametrize(
    ("made", "change", "wanted"),
    [
        (COPY, {"source": ir.Pointer(ir.BufferId(1), 10)}, "#3 memcpy` is not bytes 5:16"),
        (COPY, {"target": ir.Pointer(ir.BufferId(3), 12)}, "#3 memcpy` is not bytes 5:16"),
        (COPY, {"bytes": 10}, "#3 memcpy` is not bytes 5:16"),
    ],
)
def test_a_part_of_other_bytes(made: Division, change: dict[str, object], wanted: str) -> None:
    assert said(program_of(*STEPS), made, changed(5, **change)) == [
        f"TSR4018 step `{wanted} of `#2 memcpy`"
    ]


def test_clusters() -> None:
    program = program_of(launch("pairs", "y", "x"), arches=("sm_90",))
    said_of = "TSR4018 clusters of `#0 pairs` are cut apart at (3,) "
    assert said(program, HALVES) == [f"{said_of}clusters: (2, 1, 1)"]
    assert said(program, Division((cut(0, "x", 0, 4, 8),))) == []
    own = program_of(launch("plain", "y", "x") + " cluster=4,1,1", arches=("sm_90",))
    assert said(own, Division((cut(0, "x", 0, 4, 8),))) == []
    fours = Division((cut(0, "x", 0, 2, 8),)), Division((cut(0, "x", 0, 4, 8),))
    assert said(own, *fours[:1], made=fours[1])[0].endswith("(2,) clusters: (4, 1, 1)")


def test_clusters_of_unknown_size() -> None:
    program = program_of(launch("pairs", "y", "x"), arches=("sm_90",))
    divided = divide(program, Division((cut(0, "x", 0, 4, 8),)))
    (module,) = program.modules
    (variant,) = module.variants
    items = tuple(
        replace(item, directives=(ptx.Directive("explicitcluster"),))
        if isinstance(item, ptx.Function) and item.name == "pairs"
        else item
        for item in variant.ptx.items
    )
    other = replace(variant, ptx=replace(variant.ptx, items=items))
    modules = (replace(module, variants=(other,)),)
    whole = replace(program, modules=modules)
    findings = Findings()
    division = Division((cut(0, "x", 0, 4, 8),))
    check_division(
        replace(divided, modules=modules, whole=whole), graph_of(divided), division, findings
    )
    (found,) = findings.result()
    assert str(found.headline) == "clusters of `#0 pairs` are cut apart at (4,)"
    assert found.notes == ("its clusters are of unknown size",)


def test_an_axis_that_no_grid_has() -> None:
    program = program_of("launch m.plain grid=1,1,4 block=64,1,1 args=[y, x]")
    deep = Division((cut(0, "z", 0, 1, 4),))
    assert said(program, Division((cut(0, "w", 0, 1, 4),)), made=deep) == [
        "TSR4018 the parts of `#0 plain` for `sm_80` end at 4 of `w`, and its grid is (1, 1, 4)"
    ]


def test_a_graph_of_another_program_is_left_to_others() -> None:
    findings = Findings()
    check_division(
        divide(program_of(*STEPS), HALVES), graph_of(program_of(*PLAIN)), HALVES, findings
    )
    assert findings.count == 0


def test_twins_may_run_at_the_same_time_as_their_ctas() -> None:
    """What joins the CTAs of a step does not tell twins apart; what they read of a machine does."""
    together = program_of(f"{launch('plain', 'y', 'x')} cooperative=1")
    assert said(together, Division((), (Twin(0, 2),))) == []
    apart = (
        "TSR4019 step #0 `m.plain` and the other parts of its step cannot run apart its CTAs run"
    )
    assert said(together, HALVES)[0].startswith(apart)
    timed = program_of(launch("timed", "y", "x"))
    found = said(timed, Division((), (Twin(0, 2),)))
    alone = "TSR4019 step #{} `m.timed` may give other bytes than its twins what it does depends on"
    for number in (0, 1):
        assert found[number].startswith(alone.format(number))
    assert found[2:] == [
        "TSR4019 step `#0 timed` is divided, and its code for `sm_80` uses `%clock`"
    ]


@pytest.mark.parametrize(
    ("name", "is_cut", "has_twins"),
    [
        ("%tid", True, True),
        ("%ctaid", True, True),
        ("%smid", False, False),
        ("%clock64", False, False),
        ("%pm3", False, False),
        ("%gridid", False, False),
        ("%current_graph_exec", False, False),
        ("clusterlaunchcontrol", False, False),
        ("%envreg7", False, False),
        ("%perctamemory_size", False, False),
        ("%total_smem_size", True, False),
        ("%reserved_smem_offset_0", True, False),
        ("%aggr_smem_size", True, False),
    ],
)
def test_what_the_code_of_parts_and_twins_may_name(
    name: str, is_cut: bool, has_twins: bool
) -> None:
    (own,) = program_of(*PLAIN).launches()
    for unsafe, allowed in ((_UNSAFE, is_cut), ((*_UNSAFE, *_OF_A_DEVICE), has_twins)):
        findings = Findings()
        _check_code({"sm_80": {"mov"}, "sm_90": {"mov", name}}, own, unsafe, findings)
        assert [str(one.headline) for one in findings.result()] == [
            f"step `#0 plain` is divided, and its code for `sm_90` uses `{name}`"
        ] * (not allowed)


def test_pinned_steps_are_not_divided() -> None:
    program = program_of(*PLAIN)
    divided = divide(program, HALVES)
    graph = graph_of(divided)
    pin = Pin(kind=PinKind.MEMORY, reason=Wording("a reason"))
    first, second = graph.nodes
    pinned = replace(graph, nodes=(first, replace(second, pins=(pin,))))
    findings = Findings()
    check_division(divided, pinned, HALVES, findings)
    (found,) = findings.result()
    assert "and the other parts of its step cannot run apart" in str(found.headline)
    assert found.notes == ("it is pinned: a reason",)


# --- library calls -------------------------------------------------------------------------------

MM = "aten::mm reads=[x:f32[4,8], w:f32[8,16]] writes=[y:f32[4,16]]"
CONV = (
    "aten::convolution reads=[x:f32[1,6,5], w:f32[12,2,3]] writes=[y:f32[1,12,3]] "
    'attrs={"groups":3,"bias":null}'
)
REPEAT = 'aten::repeat reads=[x:f32[1,4]] writes=[y:f32[6,4]] attrs={"repeats":[6,1]}'
NORM = (
    "aten::native_group_norm reads=[x:f32[2,6,3]] writes=[y:f32[2,6,3], z:f32[2,3], "
    'z+64:f32[2,3]] attrs={"N":2,"C":6,"HxW":3,"group":3,"eps":0.1,"weight":null,"bias":null}'
)
FLASH = (
    "aten::_scaled_dot_product_flash_attention reads=[x:bf16[2,8,16,32], s:bf16[2,8,16,32], "
    "t:bf16[2,8,16,32]] writes=[y:bf16[2,8,16,32], z:f32[2,8,16], y+100000:u64[2], z+10000:u64[], "
    "y+200000:bf16[0]]"
)


def fault(
    record: str,
    axis: str,
    *edges: int,
    change: Callable[[ir.LibraryCall], ir.LibraryCall] | None = None,
    at: int = 1,
) -> str:
    """What is said of a call in parts, of which one is changed."""
    call = read(record)
    parts = [part_of_call(call, axis, first, end) for first, end in pairwise(edges)]
    if change is not None:
        parts[at] = change(parts[at])
    return str(call_fault(call, parts, cut(0, axis, *edges)))


@pytest.mark.parametrize(
    ("record", "axis", "edges"),
    [
        (MM, "columns", (0, 4, 16)),
        (MM, "rows", (0, 1, 4)),
        (CONV, "channels", (0, 4, 12)),
        (REPEAT, "d0", (0, 1, 3, 6)),
        (REPEAT, "d1", (0, 1, 4)),
        (NORM, "batch", (0, 1, 2)),
        (NORM, "channels", (0, 2, 6)),
        (FLASH, "heads", (0, 3, 8)),
    ],
)
def test_parts_of_calls(record: str, axis: str, edges: tuple[int, ...]) -> None:
    assert fault(record, axis, *edges) == ""
    call = read(record)
    parts = [part_of_call(call, axis, first, end) for first, end in pairwise(edges)]
    for wrong in (parts[::-1], [parts[0], *parts[:-1]], [call] * len(parts)):
        assert call_fault(call, wrong, cut(0, axis, *edges))


@pytest.mark.parametrize(
    ("record", "axis", "edges", "wanted"),
    [
        (CONV, "d2", (0, 1, 3), "`d2` is kept whole: windows along it overlap"),
        (CONV, "channels", (0, 2, 12), "`channels` has 3 pieces, and edges at (0, 2, 12)"),
        (CONV, "channels", (0, 2, 4), "`channels` has 3 pieces, and edges at (0, 2, 4)"),
        (CONV, "channels", (0, 1, 3), "`channels` is 12 long, and the parts end at 3"),
        (MM, "columns", (0, 2, 16), "`columns` has 4 pieces, and edges at (0, 2, 16)"),
        (MM, "rows", (0, 1, 5), "`rows` is 4 long, and the parts end at 5"),
        (MM, "depth", (0, 1, 4), "`depth` is no dimension of every result"),
        (MM, "", (0, 1, 4), "`` is no dimension of every result"),
        (
            "tessera::paged_attention reads=[x:bf16[2,8,1,4], s:bf16[9,4,2,4], t:bf16[9,4,2,4], "
            "i:s64[2,5]] writes=[y:bf16[2,8,1,4]]",
            "",
            (0, 2, 4),
            "`` is no dimension of every result",
        ),
        (
            "aten::mm reads=[x:f32[3,8], w:f32[8,0]] writes=[y:f32[3,0]]",
            "columns",
            (0, 2, 4),
            "`columns` has 0 pieces, and edges at (0, 2, 4)",
        ),
        (
            "aten::mm reads=[x:f32[3,8], w:f32[8,0]] writes=[y:f32[3,0]]",
            "rows",
            (0, 1, 3),
            "`rows` is no dimension of every result",
        ),
    ],
)
def test_cuts_that_are_no_dimension(
    record: str, axis: str, edges: tuple[int, ...], wanted: str
) -> None:
    assert str(call_fault(read(record), (), cut(0, axis, *edges))) == wanted


def test_a_call_that_is_none() -> None:
    call = read(MM)
    wrong = replace(call, reads=(call.reads[0], moved(call.reads[1], shape=(9, 16))))
    found = str(call_fault(wrong, (), cut(0, "rows", 0, 1, 4)))
    assert "dimension 1 of `self` [4,8] is not dimension 0 of `mat2` [9,16]" in found


def moved(operand: ir.Operand, count: int = 0, **fields: object) -> ir.Operand:
    pointer = replace(operand.pointer, offset=operand.pointer.offset + count)
    return replace(operand, pointer=pointer, **fields)  # type: ignore[arg-type]


OTHER = "another range of an operand of `{}` in the part from {} to {}"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda part: replace(part, operator="aten::mul"), "another operator"),
        (lambda part: replace(part, stream="7"), "another operator"),
        (lambda part: replace(part, reads=part.reads[:1]), "more or fewer operands"),
        (lambda part: replace(part, reads=(*part.reads, part.reads[0])), "more or fewer operands"),
        (lambda part: replace(part, writes=()), "more or fewer operands"),
        (lambda part: replace(part, writes=part.writes * 2), "more or fewer operands"),
        (lambda part: replace(part, attributes=(("x", 1),)), "other attributes"),
        (lambda part: replace(part, reads=(part.reads[0], moved(part.reads[1], 4))), "range"),
        (lambda part: replace(part, reads=(moved(part.reads[0], 4), part.reads[1])), "range"),
        (lambda part: replace(part, writes=(moved(part.writes[0], 4),)), "range"),
        (lambda part: replace(part, writes=(moved(part.writes[0], shape=(4, 11)),)), "range"),
        (lambda part: replace(part, writes=(moved(part.writes[0], shape=(3, 12)),)), "range"),
        (
            lambda part: replace(part, writes=(moved(part.writes[0], dtype=ir.DataType("s32")),)),
            "range",
        ),
        (lambda part: replace(part, writes=(moved(part.writes[0], strides=(12, 1)),)), "range"),
        (
            lambda part: replace(
                part, writes=(replace(part.writes[0], pointer=ir.Pointer(ir.BufferId(0), 16)),)
            ),
            "range",
        ),
    ],
)
def test_a_part_of_a_call_that_is_another_one(
    change: Callable[[ir.LibraryCall], ir.LibraryCall], wanted: str
) -> None:
    words = f"{wanted} in the part from 4 to 16"
    if wanted == "range":
        words = OTHER.format("aten::mm", 4, 16)
    assert fault(MM, "columns", 0, 4, 16, change=change) == words


def attribute(name: str, value: object) -> Callable[[ir.LibraryCall], ir.LibraryCall]:
    def change(part: ir.LibraryCall) -> ir.LibraryCall:
        listed = tuple((own, value if own == name else was) for own, was in part.attributes)
        return replace(part, attributes=listed)  # type: ignore[arg-type]

    return change


@pytest.mark.parametrize(
    ("record", "axis", "edges", "name", "value", "is_right"),
    [
        (CONV, "channels", (0, 4, 12), "groups", 2, True),
        (CONV, "channels", (0, 4, 12), "groups", 3, False),
        (CONV, "channels", (0, 4, 12), "groups", 1, False),
        (CONV, "channels", (0, 4, 12), "groups", None, False),
        (NORM, "batch", (0, 1, 2), "N", 1, True),
        (NORM, "batch", (0, 1, 2), "C", 3, False),
        (NORM, "batch", (0, 1, 2), "HxW", True, False),
        (NORM, "channels", (0, 2, 6), "C", 4, True),
        (NORM, "channels", (0, 2, 6), "N", 1, False),
        (REPEAT, "d0", (0, 2, 6), "repeats", (4, 1), True),
        (REPEAT, "d0", (0, 2, 6), "repeats", (6, 1), False),
        (REPEAT, "d0", (0, 2, 6), "repeats", (4, 2), False),
        (REPEAT, "d0", (0, 2, 6), "repeats", (4,), False),
        (REPEAT, "d0", (0, 2, 6), "repeats", 4, False),
        (REPEAT, "d1", (0, 1, 4), "repeats", (6, 1), True),
        (REPEAT, "d1", (0, 1, 4), "repeats", (4, 1), False),
    ],
)
def test_attributes_count_what_a_part_has(
    record: str, axis: str, edges: tuple[int, ...], name: str, value: object, is_right: bool
) -> None:
    found = fault(record, axis, *edges, change=attribute(name, value))
    words = f"another attribute `{name}` in the part from {edges[1]} to {edges[2]}"
    assert found == ("" if is_right else words)


@pytest.mark.parametrize(
    ("value", "own", "places", "is_right"),
    [
        (6, 2, [None], True),
        (6, 3, [None], False),
        (True, 1, [], False),
        (1, True, [], False),
        (6, 6, [], True),
        (6, 2, [], False),
        ((6, 5), (2, 5), [0], True),
        ((5, 6), (5, 2), [1], True),
        ((6, 6), (2, 2), [0, 1], True),
        ((6, 6), (2, 6), [1], False),
        ((6, 5), (2, 5, 5), [0], False),
        ((6, 5), (2,), [0], False),
        ((6, 5), 2, [0], False),
        (6, (2, 5), [0], False),
        (6.0, 2, [None], False),
        (6, 2.0, [None], False),
        ("6", "2", [None], False),
        (None, None, [None], False),
    ],
)
def test_attributes_in_proportion(
    value: ir.AttributeValue, own: ir.AttributeValue, places: list[int | None], is_right: bool
) -> None:
    """The part has two of six."""
    assert _is_attribute(value, own, places, (3, 5, 6)) is is_right


@pytest.mark.parametrize(
    ("names", "bounds", "offset", "shape", "is_right"),
    [
        (("", "d"), (2, 5, 6), 8, (4, 3), True),
        (("", "d"), (0, 2, 6), 0, (4, 2), True),
        (("d", ""), (3, 6, 12), 24, (1, 6), True),
        # Not in proportion, though rounded down they would be.
        (("d", ""), (3, 5, 6), 48, (1, 6), False),
        (("d", ""), (2, 6, 12), 0, (1, 6), False),
        (("d", ""), (3, 8, 12), 24, (1, 6), False),
        (("d", ""), (2, 5, 12), 0, (1, 6), False),
        (("", ""), (2, 5, 6), 0, (4, 6), True),
        (("", ""), (2, 5, 6), 8, (4, 6), False),
        (("", ""), (2, 5, 6), 0, (4, 3), False),
        (("d", "d"), (0, 1, 2), 0, (2, 3), False),
        (("d",), (0, 1, 2), 0, (2, 6), False),
        (("", "d", ""), (2, 5, 6), 8, (4, 3), False),
    ],
)
def test_ranges_of_an_operand(
    names: tuple[str, ...],
    bounds: tuple[int, int, int],
    offset: int,
    shape: tuple[int, ...],
    is_right: bool,
) -> None:
    whole = read("aten::relu reads=[x:f32[4,6]] writes=[y:f32[4,6]]").reads[0]
    own = moved(whole, offset, shape=shape, strides=(6, 1))
    assert _is_range(whole, own, names, "d", bounds) is is_right


@pytest.mark.parametrize(
    ("record", "varies"),
    [
        (MM, False),
        ('aten::cumsum reads=[x:f32[4]] writes=[y:f32[4]] attrs={"dim":0}', True),
        ("tessera::other reads=[x:f32[4]] writes=[y:f32[4]]", True),
        (
            "aten::index_put_ reads=[s:f32[4], i:s64[2], x:f32[2]] writes=[s:f32[4]] "
            'attrs={"indices_at":[0],"accumulate":true}',
            True,
        ),
        (
            "aten::index_put_ reads=[s:f32[4], i:s64[2], x:f32[2]] writes=[s:f32[4]] "
            'attrs={"indices_at":[0],"accumulate":false}',
            False,
        ),
    ],
)
def test_calls_that_may_give_other_bytes_each_time(record: str, varies: bool) -> None:
    call = read(record)
    assert may_vary(call) is varies
    assert may_vary(replace(call, operator="aten::no_such_operator"))
