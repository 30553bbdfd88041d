"""The judge of plans on launch programs written by hand: each rule, and the pair that it names."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import Diagnostic
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import HOST, AreaKind, Home, LoweredReplica
from tessera.ir.plan.plan import Replica
from tessera.ir.program.program import BufferId, Program, Role
from tessera.passes.checker import check_plan, limits
from tessera.passes.checker.check_plan import check_replica
from tessera.passes.checker.findings import MOST, Findings
from tessera.passes.checker.layouts import check_layouts
from tests.helpers.launch_text import lowered
from tests.helpers.plan_cases import Effect, build

ALL = Interval(0, 64)
LOW, HIGH = Interval(0, 32), Interval(32, 64)


def judge(
    programs: Sequence[tuple[Program, KernelGraph]],
    replica: LoweredReplica,
    *placements: str,
    capacities: dict[str, int] | None = None,
) -> tuple[Diagnostic, ...]:
    """`placements` has a letter per step and a word per trace."""
    return check_replica(
        replica,
        [program for program, _ in programs],
        [graph for _, graph in programs],
        [tuple(word) for word in placements],
        capacities=capacities,
    )


def codes(found: Sequence[Diagnostic]) -> list[str]:
    return [one.code for one in found]


def said(found: Sequence[Diagnostic]) -> str:
    return "\n".join("\n".join((str(one.headline), *one.notes)) for one in found)


def changed(text: str, changes: Sequence[tuple[str, str]]) -> str:
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


# --- a temp that goes from a to b ------------------------------------------------------------

CHAIN = build(
    [("x", 64, Role.INPUT), ("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT), ("w", 64, Role.WEIGHT)],
    [
        [("x", "read", ALL), ("t", "must", ALL)],
        [("t", "read", ALL), ("w", "read", ALL), ("y", "must", ALL)],
    ],
)
CHAIN_TEXT = """
transfer 0 x host a 0:64
transfer 1 t a b 0:64
transfer 2 y b host 0:64
place x a 0
place t a 256
place t b 0
place y b 256
place w b 0
a in: receive 0; record 0
a compute: await 0; run 0; record 1
a out: await 1; send 1
b in: receive 1; record 0
b compute: await 0; run 1; record 1
b out: await 1; send 2
"""


def chain(*changes: tuple[str, str]) -> tuple[Diagnostic, ...]:
    text = changed(CHAIN_TEXT, changes)
    return judge([CHAIN], lowered([CHAIN[0]], text), "ab")


def test_a_right_program_is_proved() -> None:
    assert chain() == ()


def test_a_removed_wait_names_the_pair() -> None:
    (found,) = chain(("b compute: await 0; run 1", "b compute: run 1"))
    assert found.code == "TSR4005"
    assert "bytes 0:64 of `t` on `b`" in str(found.headline)
    assert "the receive of transfer 1 of `t` from `a` to `b`" in found.notes[0]
    assert "in queue" in found.notes[0]
    assert "step `#1 k1` (operation 2 of `b`, compute queue)" in found.notes[1]


def test_a_removed_wait_before_a_send() -> None:
    found = chain(("a out: await 1; send 1", "a out: send 1"))
    assert "TSR4006" in codes(found) or "TSR4005" in codes(found)
    assert "the send of transfer 1" in said(found)


def test_a_removed_transfer() -> None:
    found = chain(("transfer 1 t a b 0:64\n", ""), ("send 1", "record 7"), ("receive 1; ", ""))
    assert codes(found) == ["TSR4004"]
    assert "it needs what step `#0 k0` leaves" in said(found)
    assert "there is nothing" in said(found)


@pytest.mark.parametrize("ranges", ["0:63", "1:64", "0:32,33:64"])
def test_a_shortened_transfer(ranges: str) -> None:
    assert codes(chain(("transfer 1 t a b 0:64", f"transfer 1 t a b {ranges}"))) == ["TSR4004"]
    assert codes(chain(("transfer 2 y b host 0:64", f"transfer 2 y b host {ranges}"))) == [
        "TSR4007"
    ]


def test_a_swapped_order() -> None:
    found = chain(("await 1; send 2", "send 2; await 1"))
    assert codes(found)[0] in ("TSR4005", "TSR4006")


def test_a_wrong_device() -> None:
    text = CHAIN_TEXT.replace("run 1", "record 9").replace("run 0;", "run 0; run 1;")
    assert "TSR4002" in codes(judge([CHAIN], lowered([CHAIN[0]], text), "ab"))


def test_a_missing_place() -> None:
    assert codes(chain(("place w b 0\n", ""))) == ["TSR4009"]
    assert "TSR4009" in codes(chain(("place t b 0\n", "")))


def test_a_buffer_placed_over_another() -> None:
    found = chain(("place y b 256", "place y b 0"))
    assert "TSR4005" in codes(found)
    assert "`t` and `y` share memory on `b` while one operation uses both" in said(found)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("run 1", "run 7"), "TSR4001"),
        (("run 1", "run 0"), "TSR4002"),
        (("receive 0", "receive 5"), "TSR4001"),
        (("receive 0", "send 0"), "TSR4001"),
        (("a out: await 1; send 1", "a in: await 1; send 1"), "TSR4001"),
        (("transfer 0 x host a 0:64", "transfer 0 x host a 0:65"), "TSR4001"),
        (("transfer 0 x host a 0:64", "transfer 0 x host a 0:16,8:32"), "TSR4001"),
        (("transfer 0 x host a 0:64", "transfer 0 x host z 0:64"), "TSR4001"),
        (("transfer 0 x host a 0:64", "transfer 0 x a a 0:64"), "TSR4001"),
        (("transfer 0 x host a 0:64", "transfer 0 t host a 0:64"), "TSR4001"),
        (("transfer 2 y b host 0:64", "transfer 2 t b host 0:64"), "TSR4001"),
        (("transfer 1 t a b 0:64", "transfer 1 w a b 0:64"), "TSR4001"),
        (("transfer 1 t a b 0:64", "transfer 0 t a b 0:64"), "TSR4001"),
        (("b compute: await 0; run 1; record 1", "b compute: await 0; run 1"), "TSR4002"),
        (("await 1; send 2", "await 1"), "TSR4002"),
        (("b in: receive 1; record 0", "b in: record 0"), "TSR4002"),
        (("b in: receive 1; record 0", "b in: receive 1; record 0; record 0"), "TSR4002"),
        (("await 0; run 0", "await 0; fill x 0:64; run 0"), "TSR4001"),
        (("run 0; record 1", "run 0; record 1; free w"), "TSR4001"),
    ],
)
def test_programs_that_do_not_hold_together(change: tuple[str, str], code: str) -> None:
    found = chain(change)
    assert code in codes(found), said(found)


def test_a_wait_cycle_names_its_members() -> None:
    found = chain(
        ("b in: receive 1; record 0", "b in: await 1; receive 1; record 0"),
    )
    assert codes(found) == ["TSR4008"]
    assert "the wait for event 1 waits for the record of event 1 (operation 0 of `b`" in said(found)
    assert "the wait for event 0 waits for the record of event 0 (operation 3 of `b`" in said(found)


def test_a_wait_for_itself() -> None:
    found = chain(("b in: receive 1; record 0", "b in: await 0; receive 1; record 0"))
    assert codes(found) == ["TSR4008"]


@pytest.mark.parametrize("gate", [-1, 2, 10**9])
def test_a_gate_is_a_step(gate: int) -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    for step, expected in ((0, []), (1, []), (gate, ["TSR4001"])):
        trace = replace(replica.traces[0], gate=step)
        assert codes(judge([CHAIN], replace(replica, traces=(trace,)), "ab")) == expected


def test_memory_has_to_be_there() -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    assert judge([CHAIN], replica, "ab", capacities={"a": 512, "b": 768}) == ()
    found = judge([CHAIN], replica, "ab", capacities={"a": 511, "b": 768})
    assert codes(found) == ["TSR4009"]
    assert "512 bytes on `a`, which has 511" in said(found)


@pytest.mark.parametrize(
    "fault",
    [
        {"bytes": 256},
        {"bytes": -1},
        {"bytes": 1 << 70},
        {"count": 2},
        {"device": "z"},
        {"kind": AreaKind.LANE},
    ],
)
def test_areas_that_cannot_be(fault: dict[str, object]) -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    at = next(n for n, one in enumerate(replica.areas) if one.kind is AreaKind.SLOT)
    areas = list(replica.areas)
    areas[at] = replace(areas[at], **fault)  # type: ignore[arg-type]
    found = judge([CHAIN], replace(replica, areas=tuple(areas)), "ab")
    assert set(codes(found)) == {"TSR4009"}


@pytest.mark.parametrize(
    "fault",
    [
        {"offset": 4},
        {"offset": -256},
        {"offset": 1 << 40},
        {"kind": AreaKind.LANE},
        {"kind": AreaKind.WEIGHTS},
        {"device": "z"},
        {"trace": 3},
        {"buffer": BufferId(77)},
    ],
)
def test_places_that_cannot_be(fault: dict[str, object]) -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    places = (replace(replica.places[0], **fault), *replica.places[1:])  # type: ignore[arg-type]
    assert set(codes(judge([CHAIN], replace(replica, places=places), "ab"))) == {"TSR4009"}


# --- the example of the design: K, then V, through one buffer --------------------------------

TWICE = build(
    [("x", 64, Role.INPUT), ("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [
        [("x", "read", ALL), ("t", "must", ALL)],
        [("t", "read", ALL), ("y", "must", LOW)],
        [("x", "read", ALL), ("t", "must", ALL)],
        [("t", "read", ALL), ("y", "must", HIGH)],
    ],
)
TWICE_TEXT = """
transfer 0 x host a 0:64
transfer 1 t a b 0:64
transfer 2 t a b 0:64
transfer 3 y b host 0:64
place x a 0
place t a 256
place t b 0
place y b 256
a in: receive 0; record 0
a compute: await 0; run 0; record 1; await 2; run 2; record 3
a out: await 1; send 1; record 2; await 3; send 2
b in: receive 1; record 0; await 1; receive 2; record 2
b compute: await 0; run 1; record 1; await 2; run 3; record 3
b out: await 3; send 3
"""


def twice(*changes: tuple[str, str]) -> tuple[Diagnostic, ...]:
    text = changed(TWICE_TEXT, changes)
    return judge([TWICE], lowered([TWICE[0]], text), "abab")


def test_a_buffer_used_twice_is_proved() -> None:
    assert twice() == ()


def test_a_receive_that_may_land_before_the_last_reader() -> None:
    found = twice(("record 0; await 1; receive 2", "record 0; receive 2"))
    assert codes(found) == ["TSR4005"]
    assert "step `#1 k1`" in said(found)
    assert "the receive of transfer 2" in said(found)


def test_a_rewrite_while_the_old_bytes_are_being_sent() -> None:
    found = twice(("record 1; await 2; run 2", "record 1; run 2"))
    assert codes(found)[0] == "TSR4005"
    assert "the send of transfer 1" in said(found)


def test_the_two_receives_swapped() -> None:
    found = twice(
        ("receive 1; record 0; await 1; receive 2", "receive 2; record 0; await 1; receive 1")
    )
    assert found != ()


# --- what only some bytes need ---------------------------------------------------------------


def test_bytes_that_a_step_may_leave_alone_must_be_current() -> None:
    trace = build(
        [("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
        [[("t", "must", ALL)], [("t", "may", ALL)], [("t", "read", ALL), ("y", "must", ALL)]],
    )
    text = """
    transfer 0 t a b 0:64
    transfer 1 y b host 0:64
    place t a 0
    place t b 0
    place y b 256
    a compute: run 0; record 0
    a out: await 0; send 0
    b in: receive 0; record 0
    b compute: await 0; run 1; run 2; record 1
    b out: await 1; send 1
    """
    assert judge([trace], lowered([trace[0]], text), "abb") == ()
    text = text.replace("transfer 0 t a b 0:64", "transfer 0 t a b 0:60")
    found = judge([trace], lowered([trace[0]], text), "abb")
    assert codes(found) == ["TSR4004"]
    assert "step `#1 k1` uses bytes 60:64" in said(found)


def test_poison_has_to_be_filled_in() -> None:
    trace = build(
        [("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
        [[("t", "may", LOW)], [("t", "read", LOW), ("y", "must", ALL)]],
    )
    text = """
    transfer 0 y a host 0:64
    place t a 0
    place y a 256
    a compute: fill t 0:32; run 0; run 1; record 0
    a out: await 0; send 0
    """
    assert judge([trace], lowered([trace[0]], text), "aa") == ()
    for old, new in (("fill t 0:32; ", ""), ("fill t 0:32", "fill t 0:31")):
        found = judge([trace], lowered([trace[0]], text.replace(old, new)), "aa")
        assert codes(found) == ["TSR4004"]
    late = text.replace("fill t 0:32; run 0;", "run 0; fill t 0:32;")
    assert "TSR4006" in codes(judge([trace], lowered([trace[0]], late), "aa"))


HALVES = build(
    [("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [[("t", "must", LOW)], [("t", "must", HIGH)], [("t", "read", ALL), ("y", "must", ALL)]],
)
HALVES_TEXT = """
transfer 0 t a b 0:32
transfer 1 y b host 0:64
place t a 0
place t b 0
place y b 256
a compute: run 0; record 0
a out: await 0; send 0
b in: receive 0; record 0
b compute: run 1; await 0; run 2; record 1
b out: await 1; send 1
"""


def test_a_widened_transfer_is_caught() -> None:
    assert judge([HALVES], lowered([HALVES[0]], HALVES_TEXT), "abb") == ()
    for ranges in ("0:33", "0:64"):
        text = HALVES_TEXT.replace("transfer 0 t a b 0:32", f"transfer 0 t a b {ranges}")
        found = judge([HALVES], lowered([HALVES[0]], text), "abb")
        assert {"TSR4005", "TSR4006"} & set(codes(found)), said(found)


def test_a_transfer_that_brings_older_bytes_over_newer() -> None:
    trace = build(
        [("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
        [[("t", "must", ALL)], [("t", "must", HIGH)], [("t", "read", ALL), ("y", "must", ALL)]],
    )
    text = HALVES_TEXT.replace("b in: receive 0", "b in: await 5; receive 0").replace(
        "run 1; await 0", "run 1; record 5; await 0"
    )
    assert judge([trace], lowered([trace[0]], text), "abb") == ()
    wide = text.replace("transfer 0 t a b 0:32", "transfer 0 t a b 0:48")
    found = judge([trace], lowered([trace[0]], wide), "abb")
    assert codes(found)[0] == "TSR4006"
    assert "bytes 32:48 of `t` on `b` are overwritten by an older version" in said(found)


def test_bytes_that_nobody_needs() -> None:
    trace = build(
        [("x", 64, Role.INPUT), ("y", 64, Role.OUTPUT)],
        [[("x", "read", Interval(8, 16)), ("x", "read", Interval(24, 32)), ("y", "must", LOW)]],
    )
    text = """
    transfer 0 x host a {}
    transfer 1 y a host {}
    place x a 0
    place y a 256
    a in: receive 0; record 0
    a compute: await 0; run 0; record 1
    a out: await 1; send 1
    """
    for given, taken, expected in (
        ("8:16,24:32", "0:32", []),
        ("8:32", "0:32", ["TSR4014"]),  # a gap is filled
        ("7:16,24:32", "0:32", ["TSR4014"]),
        ("8:16,24:33", "0:32", ["TSR4014"]),
        ("8:16,24:32", "0:33", ["TSR4006"]),  # poison
    ):
        replica = lowered([trace[0]], text.format(given, taken))
        assert codes(judge([trace], replica, "a")) == expected


# --- reuse of memory -------------------------------------------------------------------------

REUSE = build(
    [("a0", 64, Role.TEMP), ("b0", 64, Role.TEMP), ("c0", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [
        [("a0", "must", ALL)],
        [("a0", "read", ALL), ("b0", "must", ALL)],
        [("b0", "read", ALL), ("c0", "must", ALL)],
        [("c0", "read", ALL), ("y", "must", ALL)],
    ],
)
REUSE_TEXT = """
transfer 0 y g host 0:64
place a0 g 0
place b0 g 256
place c0 g 0
place y g 512
g compute: run 0; run 1; free a0; run 2; run 3; record 0
g out: await 0; send 0
"""


def reuse(*changes: tuple[str, str]) -> list[str]:
    text = changed(REUSE_TEXT, changes)
    return codes(judge([REUSE], lowered([REUSE[0]], text), "gggg"))


def test_reuse_of_memory() -> None:
    assert reuse() == []
    # The order alone does not do: a buffer has its place until it is freed.
    assert reuse(("free a0; ", "")) == ["TSR4012"]
    assert sorted(reuse(("free a0", "free b0"))) == ["TSR4012", "TSR4012"]
    assert reuse(("run 0; run 1; free a0", "free a0; run 0; run 1")) == ["TSR4012"] * 3
    assert set(reuse(("run 1; free a0", "free c0; run 1; free a0"))) >= {"TSR4012", "TSR4004"}
    assert reuse(("run 3; record 0", "run 3; free b0; record 0")) == []  # early enough is fine
    assert "TSR4012" in reuse(("run 1; free a0", "run 1; free y; free a0"))
    assert reuse(("run 1; free a0", "free a0; run 1")) == ["TSR4012"]
    assert reuse(("free a0; run 2; run 3", "run 2; free a0; run 3")) == ["TSR4012", "TSR4004"]
    assert reuse(("run 1; free a0", "run 1; free a0; free a0")) == ["TSR4012"]
    assert "TSR4005" in reuse(("place b0 g 256", "place b0 g 0"))


APART = build(
    [("x", 64, Role.INPUT), ("a0", 512, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [
        [("x", "read", ALL), ("y", "must", LOW)],
        [("a0", "must", Interval(256, 512))],
        [("a0", "read", Interval(256, 512)), ("y", "must", HIGH)],
    ],
)
APART_TEXT = """
transfer 0 x host g 0:64
transfer 1 y g host 0:64
place x g 0
place a0 g 0
place y g 512
g in: receive 0; record 0
g compute: await 0; run 0; free x; run 1; run 2; record 1
g out: await 1; send 1
"""


def test_a_place_is_taken_as_a_whole() -> None:
    """`a0` never touches the bytes of `x`, and moves in only when `x` has moved out."""

    def found(*changes: tuple[str, str]) -> list[str]:
        replica = lowered([APART[0]], changed(APART_TEXT, changes))
        return codes(judge([APART], replica, "ggg"))

    assert found() == []
    assert found(("free x; ", "")) == ["TSR4012"]
    assert found(("free x; run 1", "run 1; free x")) == ["TSR4012"]
    # In another queue nothing says which comes first.
    elsewhere = ("g out: await 1", "g out: await 2; free x; await 1")
    assert found(("run 0; free x", "run 0; record 2"), elsewhere) in (["TSR4005"], ["TSR4012"])
    ordered = ("g out: await 1", "g out: await 2; free x; record 3; await 1")
    assert found(("run 0; free x", "run 0; record 2; await 3"), ordered) == []


SHARED = build(
    [("x", 64, Role.INPUT), ("a0", 768, Role.TEMP), ("y", 64, Role.OUTPUT)],
    [
        [("x", "read", ALL), ("y", "must", LOW)],
        [("a0", "must", Interval(256, 512))],
        [("a0", "must", Interval(512, 768))],
        [("a0", "read", Interval(256, 768)), ("y", "must", HIGH)],
    ],
)
SHARED_TEXT = """
transfer 0 x host g 0:64
transfer 1 a0 h g 256:512
transfer 2 y g host 0:64
place x g 0
place a0 g 0
place y g 768
place a0 h 0
h compute: run 1; record 0
h out: await 0; send 1
g in: receive 0; record 0; await 1; free x; receive 1; record 2
g compute: await 0; run 0; record 1; await 2; run 2; run 3; record 3
g out: await 3; send 2
"""


@pytest.mark.parametrize("late", ["run 2; await 2; run 3", "run 2; run 3; await 2"])
def test_whichever_operation_comes_first_finds_a_whole_place(late: str) -> None:
    """Bytes of `a0` come from `h` when `x` is freed; the step beside them waits for that too."""

    def found(*changes: tuple[str, str]) -> list[str]:
        replica = lowered([SHARED[0]], changed(SHARED_TEXT, changes))
        return codes(judge([SHARED], replica, "ghgg"))

    assert found() == []
    assert "TSR4012" in found(("await 2; run 2; run 3", late))


# --- state -----------------------------------------------------------------------------------

STATE = build(
    [("s", 64, Role.STATE), ("y", 64, Role.OUTPUT)],
    [[("s", "atomic", LOW)], [("s", "read", ALL), ("y", "must", ALL)]],
)
STATE_TEXT = """
transfer 0 s a b 0:32
transfer 1 s b a 0:32
transfer 2 y a host 0:64
place s a 0
place s b 0
place y a 0
home s a 0:32
a out: send 0; await 1; send 2
b in: receive 0; record 0
b compute: await 0; run 0; record 1
b out: await 1; send 1
a in: await 9; receive 1; record 0
a compute: await 0; run 1; record 1
"""
STATE_TEXT = STATE_TEXT.replace("a out: send 0; await 1", "a out: send 0; record 9; await 1")


def state(*changes: tuple[str, str]) -> tuple[Diagnostic, ...]:
    text = changed(STATE_TEXT, changes)
    return judge([STATE], lowered([STATE[0]], text, slots=2, lanes=3), "ba")


def test_state_comes_home() -> None:
    assert state() == ()


def test_state_has_to_come_home() -> None:
    found = state(("home s a 0:32", "home s a 0:32\nhome s b 0:32"))
    assert codes(found) == ["TSR4014"]  # it is at both, so b need not get it
    assert "`b` has already" in said(found)
    moved = state(("home s a 0:32", "home s b 0:32"))
    assert codes(moved)[0] == "TSR4006"  # a does not have what it sends


def test_bytes_with_a_home_are_nowhere_else() -> None:
    """Also those that no step writes: a backend gives a state to the homes of its bytes alone."""
    found = state(("home s a 0:32", "home s a 0:32\nhome s b 32:64"))
    assert codes(found) == ["TSR4004"]
    assert "step `#1 k1` uses bytes 32:64 of `s` that are not current on `a`" in said(found)
    assert state(("home s a 0:32", "home s a 0:64")) == ()


def test_the_state_that_is_left_behind() -> None:
    trace = build(STATE_BUFFERS, [[("s", "atomic", LOW)]])
    text = """
    transfer 0 s a b 0:32
    transfer 1 s b a 0:32
    place s a 0
    place s b 0
    home s a 0:32
    a out: send 0; record 9
    b in: receive 0; record 0
    b compute: await 0; run 0; record 1
    b out: await 1; send 1
    a in: await 9; receive 1
    """
    assert judge([trace], lowered([trace[0]], text), "b") == ()
    dropped = text.replace("transfer 1 s b a 0:32\n", "").replace("; send 1", "")
    dropped = dropped.replace("a in: await 9; receive 1", "a in: await 9")
    found = judge([trace], lowered([trace[0]], dropped), "b")
    assert codes(found) == ["TSR4007"]
    assert "`s` are not current at home on `a`" in said(found)
    assert "what step `#0 k0` leaves" in said(found)


STATE_BUFFERS = [("s", 64, Role.STATE)]


def test_homes_are_complete_and_agree() -> None:
    assert codes(state(("home s a 0:32", "home s a 0:31")))[0] == "TSR4007"
    one = build(STATE_BUFFERS, [[("s", "atomic", ALL)]])
    other = build(STATE_BUFFERS, [[("s", "must", LOW)]])
    first = "place s a 0\nhome s a 0:64\na compute: run 0"
    assert judge([one, other], lowered([one[0], other[0]], first, first), "a", "a") == ()
    for second in (
        "place s a 0\nhome s a 0:32\na compute: run 0",
        "place s a 256\nhome s a 0:64\na compute: run 0",
    ):
        found = judge([one, other], lowered([one[0], other[0]], first, second), "a", "a")
        assert found != ()
        assert set(codes(found)) <= {"TSR4013", "TSR4009", "TSR4007"}


@pytest.mark.parametrize("names", [(HOST,), (HOST, "a"), ("a", "a"), ("a", "b", "a")])
def test_devices_have_names_of_their_own(names: tuple[str, ...]) -> None:
    one = build([("s", 64, Role.STATE)], [[("s", "read", ALL)]])
    made = lowered([one[0]], "place s a 0\nhome s a 0:64\na compute: run 0")
    assert judge([one], made, "a") == ()
    assert "need names of their own" in said(judge([one], replace(made, devices=names), "a"))


def test_what_traces_share_is_alike() -> None:
    one = build(STATE_BUFFERS, [[("s", "read", ALL)]])
    for size, role in ((128, Role.STATE), (64, Role.WEIGHT)):
        other = build([("s", size, role)], [[("s", "read", LOW)]])
        texts = ("place s a 0\na compute: run 0", "place s b 0\nb compute: run 0")
        found = judge([one, other], lowered([one[0], other[0]], *texts), "a", "b")
        assert codes(found) == ["TSR4013"]


def test_homes_that_cannot_be() -> None:
    replica = lowered([STATE[0]], STATE_TEXT)
    for fault in (
        Home(trace=1, buffer=BufferId(0), device="a", bytes=((0, 1),)),
        Home(trace=0, buffer=BufferId(9), device="a", bytes=((0, 1),)),
        Home(trace=0, buffer=BufferId(1), device="a", bytes=((0, 1),)),
        Home(trace=0, buffer=BufferId(0), device="z", bytes=((0, 1),)),
        Home(trace=0, buffer=BufferId(0), device="b", bytes=((0, 99),)),
        Home(trace=0, buffer=BufferId(0), device="a", bytes=((40, 44),)),
    ):
        found = judge([STATE], replace(replica, homes=(*replica.homes, fault)), "ba")
        assert codes(found) == ["TSR4001"]


def test_states_do_not_share_bytes() -> None:
    buffers = [("s", 64, Role.STATE), ("r", 64, Role.STATE)]
    trace = build(buffers, [[("s", "atomic", ALL), ("r", "must", ALL)]])
    text = "place s a 0\nplace r a 0\nhome s a 0:64\nhome r a 0:64\na compute: run 0"
    found = judge([trace], lowered([trace[0]], text), "a")
    assert codes(found) == ["TSR4009"]


def test_a_variable_that_is_written_needs_one_slot() -> None:
    trace = build([("m.v", 64, Role.VARIABLE)], [[("m.v", "atomic", ALL)]])
    text = "place m.v a 0\nhome m.v a 0:64\na compute: run 0"
    assert judge([trace], lowered([trace[0]], text), "a") == ()
    found = judge([trace], lowered([trace[0]], text, slots=2), "a")
    assert codes(found) == ["TSR4013"]


def test_reading_a_variable_leaves_room_for_many_slots_and_lanes_but_not_none() -> None:
    trace = build(
        [("m.v", 64, Role.VARIABLE), ("y", 64, Role.OUTPUT)],
        [[("m.v", "read", ALL), ("y", "must", ALL)]],
    )
    text = """
transfer 0 y a host 0:64
place m.v a 0
place y a 0
home m.v a 0:64
a compute: run 0; record 0
a out: await 0; send 0
"""
    for slots, lanes in ((1, 1), (1 << 20, 1), (1, 1 << 20), (0, 1), (1, 0), (1, (1 << 20) + 1)):
        found = judge([trace], lowered([trace[0]], text, slots=slots, lanes=lanes), "a")
        wanted = [] if min(slots, lanes) and lanes <= 1 << 20 else ["TSR4013"]
        assert codes(found) == wanted, (slots, lanes)


def test_every_trace_has_variables_of_its_own() -> None:
    """Modules are loaded per trace, so variables of one name take memory twice."""
    trace = build([("m.v", 64, Role.VARIABLE)], [[("m.v", "read", ALL)]])
    text = "place m.v a {}\na compute: run 0"
    pair, programs = [trace, trace], [trace[0], trace[0]]
    replica = lowered(programs, text.format(0), text.format(64))
    for size, expected in ((128, []), (127, ["TSR4009"])):
        areas = tuple(replace(area, bytes=size) for area in replica.areas)
        assert codes(judge(pair, replace(replica, areas=areas), "a", "a")) == expected


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("w a 0", "w a 0", []),
        ("w a 0", "v a 256", []),
        ("w a 0", "v b 0", []),
        ("w a 0", "w a 256", ["64 bytes at 0, and 64 bytes at 256"]),
        ("w a 0", "v a 0", ["share bytes 0:64"]),
    ],
)
def test_policies_have_one_layout_of_weights(first: str, second: str, expected: list[str]) -> None:
    """One policy must not find its weights overwritten by those of another."""
    program, _ = build([("w", 64, Role.WEIGHT), ("v", 64, Role.WEIGHT)], [[("w", "read", ALL)]])
    for policies in (("fast", "wide"), ("", "")):
        replicas = [
            Replica(
                share=1.0,
                slots=1,
                lanes=1,
                policy=policy,
                traces=(),
                lowered=lowered([program], f"place {place}\na compute: run 0"),
            )
            for policy, place in zip(policies, (first, second), strict=True)
        ]
        findings = Findings()
        check_layouts(replicas, [program], findings)
        found = findings.result()
        wanted = expected if policies[0] else []  # replicas of one policy have areas of their own
        assert [one.code for one in found] == ["TSR4009"] * len(wanted)
        assert all(word in said(found) for word in wanted)


def test_policies_with_places_of_buffers_that_are_not_there() -> None:
    """Another stage reports them; the layouts of the rest are compared."""
    program, _ = build([("w", 64, Role.WEIGHT)], [[("w", "read", ALL)]])
    whole = lowered([program], "place w a 0\na compute: run 0")
    (place,) = whole.places
    replicas = [
        Replica(share=1.0, slots=1, lanes=1, policy=policy, traces=(), lowered=one)
        for policy, one in (
            ("fast", replace(whole, places=(replace(place, buffer=BufferId(1)),))),
            ("wide", replace(whole, places=(replace(place, trace=1), place))),
        )
    ]
    findings = Findings()
    check_layouts(replicas, [program], findings)
    assert findings.count == 0


# --- pins and pointers -----------------------------------------------------------------------


def pinned(pins: Sequence[int], steps: Sequence[Sequence[Effect]], devices: str) -> list[str]:
    """A chain through `t` with every transfer right, so that only pins can be at fault."""
    trace = build([("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)], steps, pinned=pins)
    text = """
    transfer 0 t a b 0:64
    transfer 1 y b host 0:64
    place t a 0
    place t b 0
    place y b 256
    a compute: run 0; record 0
    a out: await 0; send 0
    b in: receive 0; record 0
    b compute: await 0; run 1; record 1
    b out: await 1; send 1
    """
    return codes(judge([trace], lowered([trace[0]], text), devices))


def test_pinned_steps_stay_with_their_bytes() -> None:
    steps: list[list[Effect]] = [
        [("t", "must", ALL)],
        [("t", "read", ALL), ("y", "must", ALL)],
    ]
    assert pinned((), steps, "ab") == []
    assert pinned((0,), steps, "ab") == ["TSR4010"]
    assert pinned((1,), steps, "ab") == ["TSR4010"]


def test_pins_hold_from_request_to_request() -> None:
    buffers = [("s", 64, Role.STATE)]
    writer = build(buffers, [[("s", "must", ALL)]])
    reader = build(buffers, [[("s", "atomic", ALL)]], pinned=(0,))
    to = """
    transfer 0 s a b 0:64
    place s a 0
    place s b 0
    home s b 0:64
    a compute: run 0; record 0
    a out: await 0; send 0
    b in: receive 0
    """
    at = "place s b 0\nhome s b 0:64\nb compute: run 0"
    replica = lowered([writer[0], reader[0]], to, at)
    assert codes(judge([writer, reader], replica, "a", "b")) == ["TSR4010"]
    here = lowered([writer[0], reader[0]], at, at)
    assert judge([writer, reader], here, "b", "b") == ()


def test_addresses_stay_where_they_are() -> None:
    trace = build(
        [("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
        [[("t", "must", HIGH)], [("t", "read", ALL), ("y", "must", ALL)]],
        words={"t": {0: "y", 8: "y"}},
    )
    text = """
    transfer 0 t a b 32:64
    transfer 1 y b host 0:64
    place t a 0
    place t b 0
    place y b 256
    a compute: run 0; record 0
    a out: await 0; send 0
    b in: receive 0; record 0
    b compute: fill t 16:32; await 0; run 1; record 1
    b out: await 1; send 1
    """
    assert judge([trace], lowered([trace[0]], text), "ab") == ()
    for old, new in (("t a b 32:64", "t a b 8:64"), ("fill t 16:32", "fill t 15:32")):
        found = judge([trace], lowered([trace[0]], text.replace(old, new)), "ab")
        assert "TSR4011" in codes(found)


def test_a_table_keeps_its_place() -> None:
    trace = build(
        [("a0", 64, Role.TEMP), ("t", 64, Role.TEMP), ("y", 64, Role.OUTPUT)],
        [[("a0", "must", ALL)], [("t", "read", Interval(0, 8)), ("y", "must", ALL)]],
        words={"t": {0: "y"}},
    )
    text = """
    transfer 0 y g host 0:64
    place a0 g 512
    place t g 0
    place y g 256
    g compute: run 0; run 1; record 0
    g out: await 0; send 0
    """
    assert judge([trace], lowered([trace[0]], text), "gg") == ()
    found = judge([trace], lowered([trace[0]], text.replace("a0 g 512", "a0 g 0")), "gg")
    assert codes(found) == ["TSR4012", "TSR4004"]  # what was there first is gone
    last = text.replace("a0 g 512", "a0 g 0").replace("run 0; run 1", "run 1; free t; run 0")
    assert judge([trace], lowered([trace[0]], last), "gg") == ()


def test_a_state_whose_addresses_a_step_overwrites_is_for_one_request_at_a_time() -> None:
    buffers = [("s", 64, Role.STATE), ("w", 64, Role.WEIGHT)]
    words = {"s": {0: "w", 8: "w"}}
    writer = build(buffers, [[("s", "must", Interval(4, 8))]], words=words)
    reader = build(buffers, [[("s", "read", LOW)]], words=words)
    beside = build(buffers, [[("s", "must", HIGH)]], words=words)
    text = "place s g 0\nhome s g {}\ng compute: run 0"
    own, other = text.format("4:8"), text.format("32:64")
    assert judge([writer], lowered([writer[0]], own), "g") == ()
    found = judge([writer], lowered([writer[0]], own, slots=2), "g")
    assert codes(found) == ["TSR4011"]
    assert "bytes 4:8" in said(found)
    assert judge([beside], lowered([beside[0]], other, slots=2), "g") == ()
    both = lowered([writer[0], reader[0]], own, own)
    assert codes(judge([writer, reader], both, "g", "g")) == ["TSR4011"]
    fine = lowered([beside[0], reader[0]], other, other, slots=2)
    assert judge([beside, reader], fine, "g", "g") == ()


def test_a_weight_cannot_point_into_slots() -> None:
    trace = build(
        [("w", 64, Role.WEIGHT), ("y", 64, Role.OUTPUT)],
        [[("w", "read", ALL), ("y", "must", ALL)]],
        words={"w": {0: "y"}},
    )
    text = """
    transfer 0 y g host 0:64
    place w g 0
    place y g 0
    g compute: run 0; record 0
    g out: await 0; send 0
    """
    assert judge([trace], lowered([trace[0]], text), "g") == ()
    found = judge([trace], lowered([trace[0]], text, slots=2), "g")
    assert codes(found) == ["TSR4011"]
    replica = lowered([trace[0]], text.replace("place y g 0", "place y g 256"), slots=2)
    moved = tuple(
        replace(one, kind=AreaKind.SLOT) if one.kind is AreaKind.WEIGHTS else one
        for one in replica.places
    )
    assert judge([trace], replace(replica, places=moved), "g") == ()


TABLES = {
    role: build(
        [("p", 64, role), ("w", 64, Role.WEIGHT), ("y", 64, Role.OUTPUT)],
        [[("p", "read", LOW), ("w", "read", ALL), ("y", "must", ALL)]],
        words={"p": {0: "w", 8: "y"}},
    )
    for role in (Role.WEIGHT, Role.STATE)
}
TABLE_TEXT = """
transfer 0 y g host 0:64
place p g {p}
place w g 0
place y g 0
g compute: run 0; record 0
g out: await 0; send 0
"""


@pytest.mark.parametrize(("role", "at"), [(Role.WEIGHT, 256), (Role.STATE, 0)])
def test_traces_that_share_a_table_have_its_targets_in_one_place(role: Role, at: int) -> None:
    """A table that lasts is written once: for one trace it would hold the addresses of another."""
    trace, text = TABLES[role], TABLE_TEXT.format(p=at)
    pair, programs = [trace, trace], [trace[0], trace[0]]
    assert judge(pair, lowered(programs, text, text), "g", "g") == ()
    moved = text.replace("place y g 0", "place y g 256")
    found = judge(pair, lowered(programs, text, moved), "g", "g")
    # Every request writes the table of its lane, if that points into slots.
    assert codes(found) == (["TSR4011"] if role is Role.WEIGHT else [])
    idle = build(
        [("p", 64, role), ("w", 64, Role.WEIGHT), ("y", 64, Role.OUTPUT)],
        [[("y", "must", ALL)]],
        words={"p": {0: "w", 8: "y"}},
    )
    for without, expected in (("", []), ("place w g 0\n", ["TSR4011"])):
        second = text.replace(without, "") if without else text
        replica = lowered([trace[0], idle[0]], text, second)
        found = judge([trace, idle], replica, "g", "g")
        assert codes(found) == expected, said(found)
    assert "traces share `p` on `g`, which points to `w`" in said(found)


def test_weights_are_never_written() -> None:
    trace = build([("w", 64, Role.WEIGHT)], [[("w", "may", ALL)]])
    found = judge([trace], lowered([trace[0]], "place w a 0\na compute: run 0"), "a")
    assert codes(found) == ["TSR4005"]
    assert "a weight that all requests share" in said(found)


# --- form ------------------------------------------------------------------------------------


def test_findings_are_bounded() -> None:
    steps: list[list[Effect]] = [[("t", "read", ALL)] for _ in range(50)]
    trace = build([("t", 64, Role.TEMP)], steps)
    runs = "; ".join(f"run {n}" for n in range(50))
    found = judge([trace], lowered([trace[0]], f"place t a 0\na compute: {runs}"), "a" * 50)
    assert len(found) == 20
    assert {one.code for one in found} == {"TSR4004"}
    assert found[-1].notes[-1] == "30 more are not shown"
    # A second trace that makes no sense is not walked, however many faults are known by then.
    good = f"place t a 0\na compute: {runs}"
    bad = good.replace("run 7", "send 9").replace("run 8", "await 3")
    twice = lowered([trace[0], trace[0]], good, bad)
    assert len(judge([trace, trace], twice, "a" * 50, "a" * 50)) == 20


@pytest.mark.parametrize("limit", ["MOST_WORK", "MOST_ATOMS", "MOST_CLOCKS"])
def test_what_takes_too_much_is_refused(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lines may ask for more memory and time than there are."""
    monkeypatch.setattr(limits, limit, 3)
    assert codes(chain()) == ["TSR4015"]


def test_what_is_too_large_is_refused() -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    wide = replace(replica, devices=tuple(f"d{n}" for n in range(2000)))
    assert "TSR4015" in codes(judge([CHAIN], wide, "ab"))


def test_the_judge_shares_no_code_with_what_it_judges() -> None:
    folder = Path(check_plan.__file__).parent
    files = sorted(folder.glob("*.py"))
    assert folder / "check_plan.py" in files
    assert len(files) > 5
    for path in files:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                allowed = ("tessera.ir.", "tessera.diagnostics", "tessera.passes.checker")
                assert not name.startswith("tessera") or name.startswith(allowed), (path, name)


def test_an_output_that_is_sent_too_early() -> None:
    trace = build([("y", 64, Role.OUTPUT)], [[("y", "must", ALL)], [("y", "must", ALL)]])
    text = """
    transfer 0 y a host 0:64
    place y a 0
    a compute: run 0; record 1; run 1; record 2
    a out: await 2; send 0
    """
    assert judge([trace], lowered([trace[0]], text), "aa") == ()
    early = text.replace("record 1; run 1", "record 1; await 3; run 1")
    early = early.replace("await 2; send 0", "await 1; send 0; record 3")
    found = judge([trace], lowered([trace[0]], early), "aa")
    assert codes(found) == ["TSR4007"]
    assert "that are not the result" in said(found)


def test_a_weight_of_which_a_part_is_missing() -> None:
    replica = lowered([CHAIN[0]], CHAIN_TEXT)
    weight = next(place for place in replica.places if place.kind is AreaKind.WEIGHTS)
    for first, end in ((0, 63), (1, None), (0, 64)):
        part = replace(weight, first=first, end=end)
        places = tuple(part if place is weight else place for place in replica.places)
        found = judge([CHAIN], replace(replica, places=places), "ab")
        assert ("TSR4009" in codes(found)) == ((first, end) != (0, 64))


def test_findings_past_the_limit_are_counted() -> None:
    findings = Findings()
    for number in range(MOST + 3):
        findings.add("TSR4001", f"fault {number}", f"note {number}")
    found = findings.result()
    assert [str(one.headline) for one in found] == [f"fault {number}" for number in range(MOST)]
    assert [len(one.notes) for one in found] == [1] * (MOST - 1) + [2]
    assert findings.count == MOST + 3
