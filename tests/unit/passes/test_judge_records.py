"""What the judge says of records of a plan that cannot be: headers, homes, areas, landings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tessera.ir.graph.access import NeedKind
from tessera.ir.graph.graph import Node
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import Area, AreaKind, Home, Landing, LandingId, Place
from tessera.ir.plan.plan import PlacedStep, Plan
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program
from tessera.passes.checker.bytes import ranges_of
from tessera.passes.checker.check_plan import _check_replica, check_plan, check_replica
from tessera.passes.checker.expected import _hull
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.fits import _ARCH, _foreign, _too_large
from tessera.passes.checker.homes import _check_words, _home_fault
from tessera.passes.checker.landings import find_landings
from tessera.passes.checker.memory import _check_apart, _check_devices, _range_fault, check_capacity
from tessera.passes.checker.shape import bytes_fault
from tessera.passes.checker.tables import check_tables
from tests.helpers.launch_text import lowered
from tests.helpers.plan_cases import build
from tests.helpers.plan_files import _read, plan_of
from tests.helpers.traces import COPY, trace

BUFFERS = "buffer x bytes=256 role=input\nbuffer y bytes=256 role=output"
LAUNCH = "launch m.copy grid=1,1,1 block=64,1,1 args=[y, x, u32:64]"


def headlines(findings: Findings) -> list[str]:
    return [str(one.headline) for one in findings.result()]


# --- headers ---------------------------------------------------------------------------------


def of_replica(**fields: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(
        plan,
        replicas=(replace(plan.replicas[0], **fields),),  # type: ignore[arg-type]
    )


def of_lowered(**fields: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(
        plan,
        replicas=(
            replace(
                plan.replicas[0],
                lowered=replace(plan.replicas[0].lowered, **fields),  # type: ignore[arg-type]
            ),
        ),
    )


def of_trace(**fields: object) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        (placed,) = plan.replicas[0].traces
        return of_replica(traces=(replace(placed, **fields),))(plan)  # type: ignore[arg-type]

    return change


def of_steps(*numbers: int) -> Callable[[Plan], Plan]:
    def change(plan: Plan) -> Plan:
        (placed,) = plan.replicas[0].traces
        steps = zip(placed.steps * 2, numbers, strict=False)
        return of_trace(steps=tuple(replace(own, step=at) for own, at in steps))(plan)

    return change


def of_device(**fields: object) -> Callable[[Plan], Plan]:
    return lambda plan: replace(
        plan,
        devices=(replace(plan.devices[0], **fields),),  # type: ignore[arg-type]
    )


NOT_THERE = "a device of the plan is of card `z`, which is not there"


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda plan: plan, []),
        (of_device(card="z"), [NOT_THERE]),
        (of_device(name="z"), ["replica 0 is on `a`, which is no device"]),
        (
            of_replica(slots=3),
            ["replica 0 has 3 slots and 2 sequences, and programs for 2 and 2"],
        ),
        (
            of_replica(lanes=1),
            ["replica 0 has 2 slots and 1 sequences, and programs for 2 and 2"],
        ),
        (of_trace(trace=-1), ["replica 0 is for trace -1: there is none"]),
        (of_trace(trace=1), ["replica 0 is for trace 1: there is none"]),
        (
            lambda plan: of_replica(traces=plan.replicas[0].traces * 2)(plan),
            ["replica 0 has one trace twice"],
        ),
        (of_steps(1, 0), ["replica 0 does not place the steps of trace 0 in order"]),
        (of_steps(0, 2), ["replica 0 does not place the steps of trace 0 in order"]),
        (of_steps(0), ["trace 0 has 2 steps, and 1 are placed"]),
        (of_steps(0, 1, 2), ["trace 0 has 2 steps, and 3 are placed"]),
        (of_replica(traces=()), ["there are programs for traces [0], and steps for []"]),
        (
            of_lowered(traces=()),
            ["there are programs for traces [], and steps for [0]"],
        ),
        (
            lambda plan: replace(plan, traces=plan.traces * 2),
            ["the plan is for 2 traces and 1 are given"],
        ),
        (
            lambda plan: replace(plan, cards=(replace(plan.cards[0], used_bytes=1),)),
            ["the plan says that it takes 1 bytes of `a`, and takes 1024"],
        ),
    ],
)
def test_headers(change: Callable[[Plan], Plan], wanted: list[str]) -> None:
    program, graph = _read(print_of_two())
    plan = change(plan_of([program], [["a", "a"]]))
    found = check_plan(plan, [program], [graph])
    assert [str(one.headline) for one in found] == wanted
    assert {one.code for one in found} <= {"TSR4013"}


def print_of_two() -> str:
    return print_program(trace(BUFFERS, COPY, f"{LAUNCH}\n{LAUNCH}"))


def test_programs_for_a_trace_that_is_not_there() -> None:
    program, graph = _read(print_of_two())
    plan = plan_of([program], [["a", "a"]])
    (replica,) = plan.replicas
    (own,) = replica.lowered.traces
    for number in (-1, 1):
        findings = Findings()
        other = replace(replica.lowered, traces=(replace(own, trace=number),))
        _check_replica(other, [program], [graph], {number: ["a", "a"]}, findings)
        wanted = f"there are programs for trace {number}, which is not there"
        assert headlines(findings) == [wanted]


KIB = 1 << 10


@pytest.mark.parametrize(
    ("fields", "kinds", "arch", "why"),
    [
        ({"block": (1024, 1, 1)}, (), 80, ""),
        ({"block": (32, 32, 1)}, (), 80, ""),
        ({"block": (1025, 1, 1)}, (), 80, "it has 1025 threads per block"),
        ({"block": (32, 8, 5)}, (), 80, "it has 1280 threads per block"),
        ({"cluster": (1, 1, 1)}, (), 89, "it is launched in clusters"),
        ({"cluster": (1, 1, 1)}, (), 90, ""),
        ({}, (NeedKind.CLUSTER,), 89, "it is launched in clusters"),
        ({}, (NeedKind.CLUSTER,), 90, ""),
        ({"grid": (9, 1, 1)}, (), 80, ""),
        ({"grid": (65, 1, 1)}, (NeedKind.MACHINE,), 80, ""),
        ({"grid": (8, 8, 1)}, (NeedKind.GRID,), 80, ""),
        ({"grid": (65, 1, 1)}, (NeedKind.GRID,), 80, "its 65 blocks wait for each other, and at m"),
        ({"grid": (65, 1, 1)}, (NeedKind.WAIT,), 80, "its 65 blocks wait for each other, and at m"),
        ({"grid": (65, 1, 1), "cooperative": True}, (), 80, "its 65 blocks wait for each other"),
        ({"grid": (64, 1, 1), "cooperative": True}, (), 80, ""),
        ({"grid": (65, 1, 1), "cooperative": True}, (), 75, "its 65 blocks wait for each other"),
        ({"grid": (4, 1, 1), "cooperative": True, "block": (1024, 1, 1)}, (), 80, ""),
        ({"grid": (4, 1, 1), "cooperative": True, "block": (993, 1, 1)}, (), 80, ""),
        ({"grid": (5, 1, 1), "cooperative": True, "block": (993, 1, 1)}, (), 80, "its 5 blocks"),
        ({"grid": (6, 1, 1), "cooperative": True, "block": (672, 1, 1)}, (), 80, ""),
        ({"grid": (5, 1, 1), "cooperative": True, "block": (673, 1, 1)}, (), 80, "its 5 blocks"),
        ({"grid": (2, 1, 1), "cooperative": True, "shared_bytes": 163 * KIB}, (), 80, ""),
        ({"grid": (3, 1, 1), "cooperative": True, "shared_bytes": 83 * KIB}, (), 80, "its 3 bl"),
        ({"grid": (4, 1, 1), "cooperative": True, "shared_bytes": 82 * KIB}, (), 80, ""),
        ({"shared_bytes": 163 * KIB + 1}, (), 80, "it has 166913 bytes of shared memory per block"),
        ({"shared_bytes": 227 * KIB}, (), 99, ""),
        ({"shared_bytes": 227 * KIB + 1}, (), 99, "it has 232449 bytes of shared memory per block"),
    ],
)
def test_what_a_device_of_two_sms_can_run(
    fields: dict[str, object], kinds: tuple[NeedKind, ...], arch: int, why: str
) -> None:
    (own, _) = _read(print_of_two())[0].launches()
    node: Node = SimpleNamespace(needs=[SimpleNamespace(kind=kind) for kind in kinds])  # type: ignore[assignment]
    launch = replace(own, **{"block": (32, 1, 1), **fields})  # type: ignore[arg-type]
    found = _too_large(launch, node, arch, 2)
    assert found.startswith(why)
    assert bool(found) == bool(why)


@pytest.mark.parametrize(
    ("code", "here", "runs"),
    [
        ("sm_80", "sm_80", True),
        ("sm_80", "sm_89", True),
        ("sm_80", "sm_120", True),
        ("sm_89", "sm_80", False),
        ("sm_90a", "sm_90a", True),
        ("sm_90a", "sm_90", True),
        ("sm_90a", "sm_100", False),
        ("sm_90a", "sm_89", False),
        ("sm_100f", "sm_100", True),
        ("sm_100f", "sm_103", True),
        ("sm_100f", "sm_109", True),
        ("sm_100f", "sm_110", False),
        ("sm_103f", "sm_100", False),
        ("sm_103f", "sm_103", True),
        ("sm_103f", "sm_109", True),
        ("sm_103f", "sm_110", False),
        ("sm_103f", "sm_113", False),
        ("sm_100f", "sm_120", False),
        ("", "sm_80", True),
    ],
)
def test_code_for_an_architecture(code: str, here: str, runs: bool) -> None:
    step: PlacedStep = SimpleNamespace(arch=code)  # type: ignore[assignment]
    device = _ARCH.fullmatch(here)
    assert device is not None
    assert str(_foreign(step, device)) == ("" if runs else f"its code is for `{code}`")


# --- bytes, homes and areas ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranges", "fault"),
    [
        (((0, 8),), None),
        (((0, 4), (5, 8)), None),
        (((7, 8),), None),
        ((), "has no bytes of `k`"),
        (((0, 4), (4, 8)), "has bytes 4:8 of `k`, which are out of order or none"),
        (((0, 4), (3, 8)), "has bytes 3:8 of `k`, which are out of order or none"),
        (((4, 8), (0, 2)), "has bytes 0:2 of `k`, which are out of order or none"),
        (((-1, 8),), "has bytes -1:8 of `k`, which are out of order or none"),
        (((3, 3),), "has bytes 3:3 of `k`, which are out of order or none"),
        (((0, 2), (4, 4)), "has bytes 4:4 of `k`, which are out of order or none"),
        (((4, 3),), "has bytes 4:3 of `k`, which are out of order or none"),
        (((0, 9),), "has bytes up to 9 of `k`, which has 8"),
    ],
)
def test_bytes_in_order(ranges: tuple[tuple[int, int], ...], fault: str | None) -> None:
    assert bytes_fault(ranges, 8, "k") == fault


@pytest.mark.parametrize(
    ("ranges", "is_there"),
    [
        (((256, 1024),), True),
        (((255, 1024),), False),
        (((256, 1025),), False),
        (((0, 8),), False),
        (((256, 257),), True),
        (((1023, 1024),), True),
        (((256, 300), (400, 1024)), True),
        (((256, 300), (400, 1025)), False),
    ],
)
def test_homes_are_where_their_bytes_are(
    ranges: tuple[tuple[int, int], ...], is_there: bool
) -> None:
    program, _ = build([("s", 2048, ir.Role.STATE)], [])
    place = Place(
        trace=0,
        buffer=ir.BufferId(0),
        device="a",
        kind=AreaKind.LANE,
        offset=0,
        first=256,
        end=1024,
    )
    memory = SimpleNamespace(place=lambda *_: place)
    home = Home(trace=0, buffer=ir.BufferId(0), device="a", bytes=ranges)
    fault = _home_fault(home, {0: {}}, [program], memory)  # type: ignore[arg-type]
    outside = "is of bytes of `s` outside 256:1024, which is all that is there"
    assert fault == (None if is_there else outside)


@pytest.mark.parametrize(
    ("home", "fault"),
    [
        ((0, 0, "a", ((0, 8),)), None),
        ((1, 0, "a", ((0, 8),)), "is of a trace that is not there"),
        ((0, -1, "a", ((0, 8),)), "names buffer -1, which is not there"),
        ((0, 2, "a", ((0, 8),)), "names buffer 2, which is not there"),
        ((0, 1, "a", ((0, 8),)), "is of `t`, which does not outlive a request"),
        ((0, 0, "z", ((0, 8),)), "is of `s`, which has no place there"),
        ((0, 0, "b", ((0, 8),)), "is of `s`, which has another there"),
        ((0, 0, "a", ()), "has no bytes of `s`"),
        ((0, 0, "a", ((8, 4),)), "has bytes 8:4 of `s`, which are out of order or none"),
    ],
)
def test_homes_that_cannot_be(
    home: tuple[int, int, str, tuple[tuple[int, int], ...]], fault: str | None
) -> None:
    program, _ = build([("s", 64, ir.Role.STATE), ("t", 64, ir.Role.TEMP)], [])

    def made(trace: int, buffer: int, device: str, own: tuple[tuple[int, int], ...]) -> Home:
        return Home(trace=trace, buffer=ir.BufferId(buffer), device=device, bytes=own)

    place = Place(trace=0, buffer=ir.BufferId(0), device="a", kind=AreaKind.LANE, offset=0)
    memory = SimpleNamespace(place=lambda _, device, __: place if device in "ab" else None)
    known = {0: {0: [made(0, 0, "b", ((0, 4),))]}}
    assert _home_fault(made(*home), known, [program], memory) == fault  # type: ignore[arg-type]


def test_a_part_of_what_holds_addresses_or_is_pointed_to() -> None:
    program = pointing(p={0: "x"})
    for number, fault in ((0, True), (1, True), (2, False)):
        buffer = ir.BufferId(number)
        place = Place(trace=0, buffer=buffer, device="a", kind=AreaKind.LANE, offset=0, end=32)
        words = "is in part, and holds addresses or is pointed to from memory"
        assert _range_fault(place, 64, program) == (words if fault else None)


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        (("a", "b"), ""),
        (("a", "a"), "the devices of a replica need names of their own, not `host`"),
        (("a", "host"), "the devices of a replica need names of their own, not `host`"),
        (tuple(map(str, range(1024))), ""),
        (tuple(map(str, range(1025))), "a replica of 1025 devices is too large to be proved"),
    ],
)
def test_devices(devices: tuple[str, ...], wanted: str) -> None:
    findings = Findings()
    _check_devices(replace(lowered([]), devices=devices), findings)
    assert headlines(findings) == [wanted] * bool(wanted)


@pytest.mark.parametrize(
    ("first", "end", "kind", "fault"),
    [
        (0, None, AreaKind.SLOT, None),
        (0, 1, AreaKind.SLOT, None),
        (0, 1024, AreaKind.SLOT, None),
        (256, None, AreaKind.SLOT, None),
        (256, 512, AreaKind.SLOT, None),
        (0, 1025, AreaKind.SLOT, "holds bytes 0:1025 of 1024"),
        (-256, 512, AreaKind.SLOT, "holds bytes -256:512 of 1024"),
        (256, 256, AreaKind.SLOT, "holds bytes 256:256 of 1024"),
        (512, 256, AreaKind.SLOT, "holds bytes 512:256 of 1024"),
        (255, 512, AreaKind.SLOT, "holds bytes from 255, no multiple of 256"),
        (0, 512, AreaKind.MODULE, "is a variable, and a part of it is loaded"),
        (0, None, AreaKind.MODULE, None),
    ],
)
def test_places_of_a_part(first: int, end: int | None, kind: AreaKind, fault: str | None) -> None:
    program, _ = build([("s", 1024, ir.Role.STATE)], [])
    place = Place(
        trace=0, buffer=ir.BufferId(0), device="a", kind=kind, offset=0, first=first, end=end
    )
    assert _range_fault(place, 1024, program) == fault


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        ({"a": (0, 8), "b": (8, 16)}, []),
        ({"a": (0, 9), "b": (8, 16)}, ["`a` and `b` share bytes 8:9 of here"]),
        ({"b": (8, 16), "a": (0, 9)}, ["`a` and `b` share bytes 8:9 of here"]),
        ({"a": (0, 8), "b": (4, 4)}, []),
        ({"a": (0, 8), "b": (4, 4), "c": (4, 6)}, ["`a` and `c` share bytes 4:8 of here"]),
        ({"a": (0, 8), "b": (0, 8)}, ["`a` and `b` share bytes 0:8 of here"]),
    ],
)
def test_places_apart(named: dict[str, tuple[int, int]], wanted: list[str]) -> None:
    findings = Findings()
    _check_apart("here", named, findings)
    assert headlines(findings) == wanted


def test_what_the_areas_of_a_card_take() -> None:
    def area(device: str, size: int, count: int) -> Area:
        return Area(device=device, kind=AreaKind.SLOT, bytes=size, count=count)

    areas = [area("a", 100, 3), area("a", 0, 5), area("b", 7, 0), area("c", 1, 1), area("z", 9, 9)]
    cards = {"a": "one", "b": "one", "c": "two"}
    for room, wanted in ((300, []), (299, ["the plan needs 300 bytes on `one`, which has 299"])):
        findings = Findings()
        used = check_capacity(areas, cards, {"one": room, "two": 1, "three": 0}, findings)
        assert used == {"one": 300, "two": 1, "three": 0}
        assert headlines(findings) == wanted


@pytest.mark.parametrize(
    ("slots", "lanes", "is_right"),
    [
        (1, 1, True),
        (2, 1, True),
        (1, 2, True),
        (0, 1, False),
        (1, 0, False),
        (1 << 20, 1 << 20, True),
        ((1 << 20) + 1, 1, False),
        (1, (1 << 20) + 1, False),
    ],
)
def test_slots_and_sequences(slots: int, lanes: int, is_right: bool) -> None:
    replica = replace(lowered([], slots=1, lanes=1), slots=slots, lanes=lanes)
    findings = Findings()
    _check_devices(replica, findings)
    wanted = f"a replica cannot have {slots} slots and {lanes} sequences"
    assert headlines(findings) == [wanted] * (not is_right)


@pytest.mark.parametrize(
    ("source", "target", "size", "fault"),
    [
        ("a", "b", 1, ""),
        ("a", "b", 0, "landing 3 has 0 bytes"),
        ("a", "b", -1, "landing 3 has -1 bytes"),
        ("a", "a", 8, "landing 3 is for bytes from `a` to `a`"),
        ("a", "z", 8, "landing 3 is for bytes from `a` to `z`"),
        ("z", "b", 8, "landing 3 is for bytes from `z` to `b`"),
        ("host", "b", 8, "landing 3 is for bytes from `host` to `b`"),
    ],
)
def test_landings(source: str, target: str, size: int, fault: str) -> None:
    landing = Landing(id=LandingId(3), source=source, target=target, bytes=size)
    findings = Findings()
    found = find_landings([landing], ("a", "b"), findings)
    assert headlines(findings) == [fault] * bool(fault)
    assert list(found) == [3] * (not fault)
    if not fault:
        found = find_landings([landing, landing], ("a", "b"), findings)
        assert headlines(findings) == ["landing 3 is there twice"]
        assert found == {3: landing}


# --- pins ------------------------------------------------------------------------------------

ALL = Interval(0, 64)
PINNED_TEXT = """
transfer 0 t a b 0:64
transfer 1 y b host 0:64
place t a 0
place t b 0
place y b 256
a out: await 0; send 0
b out: await 2; send 1
"""


def pin_findings(
    effects: list[tuple[str, ...]], pinned: tuple[int, ...], devices: str, lines: str
) -> list[tuple[str, ...]]:
    """What is said of steps of which the last one reads `t` on b."""
    steps = [
        [(name, how, ALL) for name, how in zip(own[::2], own[1::2], strict=True)] for own in effects
    ]
    program, graph = build(
        [("t", 64, ir.Role.TEMP), ("y", 64, ir.Role.OUTPUT)], steps, pinned=pinned
    )
    replica = lowered([program], PINNED_TEXT + lines)
    found = check_replica(replica, [program], [graph], [tuple(devices)])
    return [(one.code, str(one.headline), *one.notes, str(one.hint)) for one in found]


def between(step: int, maker: int) -> list[tuple[str, ...]]:
    return [
        (
            "TSR4010",
            f"step `#{step} k{step}` on `b` may find in `t` what step `#{maker} k{maker}` on `a` "
            "left, and one of them is pinned",
            "it is pinned because it follows pointers",
            "both have to be on one device",
        )
    ]


def test_a_finding_names_the_step_on_another_device() -> None:
    """Step 0 writes on b, where the pinned step 2 is; what is there then is from a."""
    lines = """
    b compute: run 0; record 0; await 1; run 2; record 2
    a compute: run 1; record 0
    b in: await 0; receive 0; record 1
    """
    effects = [("t", "must"), ("t", "must"), ("t", "read", "y", "must")]
    assert pin_findings(effects, (2,), "bab", lines) == between(2, 1)


def test_a_finding_names_the_step_that_is_pinned() -> None:
    """Step 0 writes on a and is not pinned; step 1, which may write there too, is."""
    lines = """
    a compute: run 0; run 1; record 0
    b in: receive 0; record 0
    b compute: await 0; run 2; record 2
    """
    effects = [("t", "must"), ("t", "may"), ("t", "read", "y", "must")]
    assert pin_findings(effects, (1,), "aab", lines) == between(2, 1)
    assert pin_findings(effects, (0,), "aab", lines) == between(2, 0)
    assert pin_findings(effects, (2,), "aab", lines) == between(2, 0)
    assert pin_findings(effects, (), "aab", lines) == []


@pytest.mark.parametrize("count", [2, 62, 63, 64, 65])
def test_pins_of_many_devices(count: int) -> None:
    """Sets of devices are numbers with a bit for each."""
    program, graph = build(
        [("t", 64, ir.Role.TEMP), ("y", 64, ir.Role.OUTPUT)],
        [[("t", "must", ALL)], [("t", "read", ALL), ("y", "must", ALL)]],
        pinned=(1,),
    )
    last = f"d{count - 1}"
    text = f"""
    transfer 0 t a {last} 0:64
    transfer 1 y {last} host 0:64
    place t a 0
    place t {last} 0
    place y {last} 256
    a compute: run 0; record 0
    a out: await 0; send 0
    {last} in: receive 0; record 0
    {last} compute: await 0; run 1; record 1
    {last} out: await 1; send 1
    """
    replica = lowered([program], text)
    names = ("a", *(f"d{number}" for number in range(1, count)))
    replica = replace(replica, devices=names)
    found = check_replica(replica, [program], [graph], [("a", last)])
    assert [one.code for one in found] == ["TSR4010"]
    turned = replace(replica, devices=names[::-1])
    found = check_replica(turned, [program], [graph], [("a", last)])
    assert [one.code for one in found] == ["TSR4010"]


# --- addresses and weights -------------------------------------------------------------------

STATES = [("p", 64, ir.Role.STATE), ("x", 64, ir.Role.STATE), ("y", 64, ir.Role.STATE)]


def pointing(role: ir.Role = ir.Role.STATE, **words: dict[int, str]) -> ir.Program:
    return build([("p", 64, role), *STATES[1:]], [], words=words)[0]


@pytest.mark.parametrize(
    ("programs", "slots", "written", "wanted"),
    [
        ([pointing(p={8: "x"})], 1, (0, 64), []),
        ([pointing(p={8: "x"})], 2, (0, 64), ["bytes 8:16, and there are 2 slots"]),
        ([pointing(p={8: "x"})], 2, (12, 20), ["bytes 12:16, and there are 2 slots"]),
        ([pointing(p={8: "x"})], 2, (16, 64), []),
        ([pointing(p={8: "x"})], 2, (0, 8), []),
        ([pointing(ir.Role.WEIGHT, p={8: "x"})], 2, (0, 64), []),
        ([pointing(p={8: "x"}), build(STATES[1:], [])[0]], 1, (0, 64), []),
        (
            [pointing(p={8: "x"}), build(STATES[:1], [])[0]],
            1,
            (0, 64),
            ["bytes 8:16, and trace 1 has it too"],
        ),
        ([build(STATES[:1], [])[0], pointing(p={8: "x"})], 1, (0, 64), []),
        (
            [pointing(p={8: "x"}), pointing(p={8: "x"})],
            2,
            (0, 64),
            [
                "bytes 8:16, and there are 2 slots",
                "bytes 8:16, and trace 1 has it too",
                "bytes 8:16, and there are 2 slots",
            ],
        ),
    ],
)
def test_addresses_that_a_step_may_overwrite(
    programs: list[ir.Program], slots: int, written: tuple[int, int], wanted: list[str]
) -> None:
    replica = replace(lowered([]), slots=slots)
    findings = Findings()
    left = {(-1, "p"): ranges_of([written])}
    _check_words(replica, dict(enumerate(programs)), left, findings)
    what = "a step may overwrite addresses in the state `p`, "
    assert headlines(findings) == [what + one for one in wanted]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ({"p": {0: "x"}}, {"p": {0: "x"}}, []),
        (
            {"p": {0: "x"}},
            {"p": {0: "y"}},
            [
                "traces share `p` and put different addresses in it",
                "traces share `p` on `a`, which points to `y`, and do not have that in one place",
            ],
        ),
        ({"p": {0: "x"}}, {"p": {8: "x"}}, ["traces share `p` and put different addresses in it"]),
        ({"p": {0: "x"}}, {}, ["traces share `p` and put different addresses in it"]),
        ({}, {}, []),
    ],
)
def test_traces_share_tables(
    first: dict[str, dict[int, str]], second: dict[str, dict[int, str]], wanted: list[str]
) -> None:
    programs = [pointing(**first), pointing(**second)]
    places = {
        (trace, "a", number): Place(
            trace=trace,
            buffer=ir.BufferId(number),
            device="a",
            kind=AreaKind.LANE,
            offset=256 * number,
        )
        for trace in range(2)
        for number in range(3)
    }
    findings = Findings()
    check_tables(places, {}, programs, findings)
    assert headlines(findings) == wanted


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([], (0, 0)),
        ([(8, 16)], (8, 16)),
        ([(8, 16), (32, 40)], (8, 40)),
        ([(8, 16), (100, 120)], (8, 16)),
        ([(100, 120)], (0, 0)),
        ([(8, 100)], (8, 64)),
    ],
)
def test_what_a_step_touches_of_a_weight(
    spans: list[tuple[int, int]], wanted: tuple[int, int]
) -> None:
    weight = [("w", 64, ir.Role.WEIGHT)]
    _, graph = build(weight, [[("w", "read", Interval(*span)) for span in spans]])
    assert _hull(list(graph.nodes[0].accesses), 64) == wanted
