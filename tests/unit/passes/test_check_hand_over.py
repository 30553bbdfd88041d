"""The judge of hand-overs on records written by hand: each rule from both sides, and its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tessera.ir.plan.hand_over import (
    HandOver,
    MovedSequence,
    MovedSpan,
    RowPlace,
    StatePortion,
    StateTransfer,
)
from tessera.ir.plan.launch_program import (
    AreaKind,
    DeviceEventId,
    DeviceProgram,
    Home,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Place,
    Queue,
    Queued,
    Receive,
    Record,
    Send,
    TransferId,
)
from tessera.ir.program import program as ir
from tessera.passes.checker.check_hand_over import HandOverChecker
from tests.helpers.served import graph_of
from tests.helpers.traces import trace

Bytes = tuple[tuple[int, int], ...]
Given = tuple[str, str, dict[str, tuple[MovedSpan, ...]]]
ROW = 32  # 4 rows of 4 tokens of 8 bytes each
STATE = f"bytes={4 * ROW} role=state dtype=u8 shape=4x4x8"


def program(steps: str = "memcpy x k+8 bytes=4", *more: str) -> ir.Program:
    """A trace of which, unless it says otherwise, bytes 8:12 of a row are read."""
    return trace(
        "\n".join(("buffer x bytes=64 role=output", f"buffer k {STATE}", *more)), "", steps
    )


class Pair:
    """Two replicas: how much each device holds of each state; those of the target are c and d."""

    def __init__(
        self,
        *programs: ir.Program,
        source: dict[str, Bytes] | None = None,
        target: dict[str, Bytes] | None = None,
        served: tuple[tuple[int, ...], tuple[int, ...]] = ((0,), (0,)),
        end: int | None = None,
    ) -> None:
        self.programs = programs or (program(),)
        self.graphs = tuple(map(graph_of, self.programs))
        self.replicas = (
            self.replica(source or {"a": ((0, 128),)}, served[0], end),
            self.replica(target or {"c": ((0, 128),)}, served[1], None),
        )

    def replica(
        self, homes: dict[str, Bytes], served: tuple[int, ...], end: int | None
    ) -> LoweredReplica:
        states = [
            (number, buffer.id)
            for number in served
            for buffer in self.programs[number].buffers
            if buffer.role is ir.Role.STATE
        ]
        return LoweredReplica(
            devices=tuple(homes),
            slots=1,
            lanes=1,
            areas=(),
            places=tuple(
                Place(
                    trace=number,
                    buffer=buffer,
                    device=device,
                    kind=AreaKind.LANE,
                    offset=0,
                    end=end,
                )
                for number, buffer in states
                for device in homes
            ),
            homes=tuple(
                Home(trace=number, buffer=buffer, device=device, bytes=own)
                for number, buffer in states
                for device, own in homes.items()
                if own
            ),
            traces=tuple(LoweredTrace(trace=n, transfers=(), programs=()) for n in served),
        )

    def say(
        self,
        *given: Given,
        moved: Sequence[MovedSequence] = (MovedSequence(RowPlace(1), RowPlace(2)),),
        axis: int = 0,
        made: HandOver | None = None,
    ) -> list[str]:
        """The findings about a hand-over of row 1 to row 2, unless they are other ones."""
        checker = HandOverChecker(self.replicas, self.programs, self.graphs)
        found = checker.check(made or hand_over(*given), moved, axis)
        assert checker.check(made or hand_over(*given), moved, axis) == found
        return [f"{one.code} {one.headline}" for one in found]


def hand_over(*given: Given) -> HandOver:
    """Transfers, sent on the out queues of a and b, and received on the in queues of c and d."""
    transfers = tuple(
        StateTransfer(
            id=TransferId(number),
            source=source,
            target=target,
            portions=tuple(StatePortion(state, spans) for state, spans in states.items()),
        )
        for number, (source, target, states) in enumerate(given)
    )
    sent = ((t.source, Queued(Queue.OUT, Send(t.id))) for t in transfers)
    received = ((t.target, Queued(Queue.IN, Receive(t.id))) for t in transfers)
    queues: dict[str, list[Queued]] = {}
    for device, queued in (*sent, *received):
        queues.setdefault(device, []).append(queued)
    programs = tuple(
        DeviceProgram(device=device, operations=tuple(own)) for device, own in queues.items()
    )
    return HandOver(source=0, target=1, transfers=transfers, programs=programs)


def k(*spans: MovedSpan, source: str = "a", target: str = "c") -> Given:
    return source, target, {"k": spans}


RIGHT = k((ROW + 8, 2 * ROW + 8, 4))
ASTRAY = "TSR4006 transfer 0 puts bytes {} of `k` where they do not belong on `{}`"
LOST = "TSR4004 transfer 0 reads bytes {} of `k` on `{}`, which does not have them"
IDLE = "TSR4014 bytes {} of `k` travel, and no step reads them"
MISSING = "TSR4007 bytes {} of `k` do not arrive on `{}`"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((RIGHT,), []),
        ((k((40, 72, 1), (41, 73, 3)),), []),
        ((k((41, 73, 3), (40, 72, 1)),), []),
        ((k((40, 72, 1)), k((41, 73, 3))), []),
        ((), [MISSING.format("72:76", "c")]),
        ((k(),), [MISSING.format("72:76", "c")]),
        ((k((40, 72, 3)),), [MISSING.format("75:76", "c")]),
        ((k((41, 73, 3)),), [MISSING.format("72:73", "c")]),
        ((k((39, 71, 5)),), [IDLE.format("71:72")]),
        ((k((40, 72, 5)),), [IDLE.format("76:77")]),
        ((k((32, 64, 32)),), [IDLE.format("64:72, 76:96")]),
        ((k((40, 72, 4), (40, 72, 4)),), ["TSR4006 bytes of `k` arrive more than once on `c`"]),
        ((RIGHT, k((40, 72, 1))), ["TSR4006 bytes of `k` arrive more than once on `c`"]),
        # From elsewhere, and to elsewhere: the same place in a row that moves, and no other.
        ((k((8, 72, 4)),), [ASTRAY.format("72:76", "c"), MISSING.format("72:76", "c")]),
        ((k((39, 72, 4)),), [ASTRAY.format("72:76", "c"), MISSING.format("72:76", "c")]),
        ((k((40, 73, 4)),), [ASTRAY.format("73:77", "c"), MISSING.format("72:76", "c")]),
        ((k((40, 40, 4)),), [ASTRAY.format("40:44", "c"), MISSING.format("72:76", "c")]),
        ((k((40, 72, 32)),), [ASTRAY.format("72:104", "c"), MISSING.format("72:76", "c")]),
        (
            (k((31, 63, 13)),),
            [ASTRAY.format("63:76", "c"), MISSING.format("72:76", "c")],
        ),
        # Outside of the states, and no bytes at all.
        (
            (k((40, 126, 4)),),
            [ASTRAY.format("128:130", "c"), MISSING.format("72:76", "c")],
        ),
        (
            (k((126, 72, 4)),),
            [
                LOST.format("128:130", "a"),
                ASTRAY.format("72:76", "c"),
                MISSING.format("72:76", "c"),
            ],
        ),
        ((k((40, 72, 4), (44, 76, 0)),), [LOST.format("", "a")]),
    ],
)
def test_bytes_of_one_state(given: tuple[Given, ...], wanted: list[str]) -> None:
    assert Pair().say(*given) == wanted


ROWS_OF_TWO = (MovedSequence(RowPlace(blocks=(1, 2)), RowPlace(blocks=(2, 3))),)


def test_a_span_that_goes_over_rows() -> None:
    pair, both = Pair(program("memcpy x k bytes=32")), ROWS_OF_TWO
    assert pair.say(k((32, 64, 64)), moved=both) == []
    assert pair.say(k((40, 72, 56), (32, 64, 8)), moved=both) == []
    turned = (MovedSequence(RowPlace(blocks=(1, 2)), RowPlace(blocks=(3, 2))),)
    assert pair.say(k((32, 96, 32), (64, 64, 32)), moved=turned) == []
    assert pair.say(k((32, 64, 64)), moved=turned)[0] == ASTRAY.format("64:128", "c")
    # The second of two rows that follow one another here comes from elsewhere.
    apart = (MovedSequence(RowPlace(blocks=(0, 2)), RowPlace(blocks=(2, 3))),)
    assert pair.say(k((0, 64, 32), (64, 96, 32)), moved=apart) == []
    assert pair.say(k((0, 64, 64)), moved=apart)[0] == ASTRAY.format("64:128", "c")
    assert pair.say(k((32, 64, 33)), moved=both[:0])[0] == ASTRAY.format("64:97", "c")


@pytest.mark.parametrize(
    ("tokens", "axis", "ends"),
    [
        (None, 4, (32, 32)),
        (0, 4, (0, 0)),
        (1, 4, (8, 0)),
        (4, 4, (32, 0)),
        (5, 4, (32, 8)),
        (8, 4, (32, 32)),
        (9, 4, (32, 32)),
        (1, 0, (32, 32)),
        (1, 5, (32, 32)),
        (1, 8, (32, 32)),
    ],
)
def test_only_bytes_of_tokens_travel(tokens: int | None, axis: int, ends: tuple[int, int]) -> None:
    pair = Pair(program("memcpy x k bytes=32"))
    moved = (replace(ROWS_OF_TWO[0], tokens=tokens),)
    spans = [(32 * n + 32, 32 * n + 64, end) for n, end in enumerate(ends) if end]
    assert pair.say(k(*spans), moved=moved, axis=axis) == []
    for n, end in enumerate(ends):
        others = [span for span in spans if span[1] != 32 * n + 64]
        if end:
            less = pair.say(k(*others, (32 * n + 32, 32 * n + 64, end - 1)), moved=moved, axis=axis)
            assert less == [MISSING.format(f"{32 * n + 63 + end}:{32 * n + 64 + end}", "c")]
        if end < 32:
            more = pair.say(k(*others, (32 * n + 32, 32 * n + 64, end + 1)), moved=moved, axis=axis)
            assert more[0].startswith("TSR4006")


def whole(size: int) -> dict[str, dict[str, Bytes]]:
    return {"source": {"a": ((0, size),)}, "target": {"c": ((0, size),)}}


def test_tokens_count_only_in_states_with_an_axis_of_them() -> None:
    flat = shaped("4", 4, "memcpy x k bytes=1")
    moved = (MovedSequence(RowPlace(1), RowPlace(2), tokens=0),)
    assert Pair(flat, **whole(4)).say(k((1, 2, 1)), moved=moved, axis=4) == []
    plain = shaped("4x2", 8, "memcpy x k bytes=2")
    assert Pair(plain, **whole(8)).say(moved=moved, axis=2) == []
    assert Pair(plain, **whole(8)).say(moved=moved, axis=1) == [MISSING.format("4:6", "c")]
    one = shaped("4x1x2", 8, "memcpy x k bytes=2")
    assert Pair(one, **whole(8)).say(moved=moved, axis=1) == []
    assert Pair(program()).say(RIGHT, moved=moved, axis=0) == []


def test_bytes_arrive_on_every_device_that_has_them_and_from_one_that_does() -> None:
    pair = Pair(
        source={"a": ((0, 42),), "b": ((42, 128),)},
        target={"c": ((0, 74),), "d": ((73, 128),)},
    )
    parts = [
        k((40, 72, 2), target="c"),
        k((41, 73, 1), target="d"),
        k((42, 74, 2), source="b", target="d"),
    ]
    assert pair.say(*parts) == []
    for left_out, missing in enumerate(("72:74` c", "73:74` d", "74:76` d")):
        given = [part for n, part in enumerate(parts) if n != left_out]
        ranges, _, device = missing.partition("` ")
        assert pair.say(*given) == [MISSING.format(ranges, device)]
    wrong = k((42, 74, 2), source="a", target="d")
    assert pair.say(wrong, *parts[:2]) == [LOST.format("42:44", "a")]
    past = k((40, 72, 2), (42, 74, 1), target="c")
    assert ASTRAY.format("74:75", "c") in pair.say(past, *parts[1:])


def test_a_device_without_the_state() -> None:
    pair = Pair(program(), source={"a": ((0, 128),), "b": ()}, target={"c": ((0, 128),), "d": ()})
    found = ASTRAY.format("72:76", "d").replace("transfer 0", "transfer 1")
    assert pair.say(RIGHT, k((40, 72, 4), target="d")) == [found]
    places = tuple(place for place in pair.replicas[1].places if place.device != "d")
    pair.replicas = (pair.replicas[0], replace(pair.replicas[1], places=places))
    assert pair.say(RIGHT, k((40, 72, 4), target="d")) == [found]
    assert pair.say(RIGHT, k(target="d")) == []
    assert pair.say(k((40, 72, 4), source="b")) == [LOST.format("40:44", "b")]


def test_what_the_target_needs_and_the_source_lacks() -> None:
    """A byte that no device of the source has is missed if a step of the target may read it, and
    not if only a step of another replica may."""
    other = program("memcpy x k+16 bytes=4")
    pair = Pair(program(), other, source={"a": ()}, end=44)
    assert pair.say(RIGHT) == []
    assert Pair(program(), other).say(RIGHT) == [MISSING.format("80:84", "c")]
    assert Pair(program(), other).say(k((40, 72, 4), (48, 80, 4))) == []
    pair = Pair(program(), other, source={"a": ()}, end=48, served=((0,), (1,)))
    assert pair.say(RIGHT) == [MISSING.format("80:84", "c")]
    assert pair.say(k((40, 72, 4), (48, 80, 4))) == [LOST.format("48:52", "a")]
    # All that comes along is missed where it is, though bytes of another row are not owed.
    moved = (MovedSequence(RowPlace(0), RowPlace(3)), MovedSequence(RowPlace(1), RowPlace(2)))
    assert pair.say(k((8, 104, 4), (16, 112, 4), (40, 72, 4)), moved=moved) == [
        MISSING.format("80:84", "c")
    ]
    assert pair.say(k((40, 72, 4)), moved=moved) == [
        MISSING.format("104:108, 112:116", "c"),
        MISSING.format("80:84", "c"),
    ]


def test_a_state_that_the_source_does_not_have() -> None:
    bare = trace("buffer x bytes=64 role=output", "", "memset x bytes=4 value=0x00")
    more = program("memcpy x k+8 bytes=4\nmemcpy x v+8 bytes=4", f"buffer v {STATE}")
    unread = program("memcpy x k+8 bytes=4", f"buffer v {STATE}")
    none = ["TSR4007 `v` does not come along: the source has no such state"]
    assert Pair(program(), more, served=((0,), (1,))).say(RIGHT) == none
    assert Pair(program(), unread, served=((0,), (1,))).say(RIGHT) == []
    # It is read by a trace of neither replica.
    assert Pair(program(), more, unread, served=((0,), (2,))).say(RIGHT) == []
    for served in (((0,), (1,)), ((1,), (0,))):
        found = Pair(program(), more, served=served).say(("a", "c", {"v": ((40, 72, 4),)}))
        assert found == ["TSR4001 `v` is no state of both replicas"]
    found = Pair().say(("a", "c", {"w": (), "v": ()}))
    assert found == [f"TSR4001 `{name}` is no state of both replicas" for name in "vw"]
    assert Pair(bare, program(), served=((1,), (0,))).say() == []


def test_addresses_are_not_handed_over() -> None:
    words = trace(
        f"buffer x bytes=64 role=output\nbuffer k {STATE}\nbuffer v {STATE}\npointers v @{{16:x}}",
        "",
        "memcpy x k+8 bytes=4\nmemcpy x v+8 bytes=4",
    )
    both: Given = ("a", "c", {"k": ((40, 72, 4),), "v": ((40, 72, 4),)})
    assert Pair(words).say(both) == ["TSR4011 `v` holds addresses, and is handed over"]
    assert Pair(words).say(RIGHT) == [MISSING.replace("`k`", "`v`").format("72:76", "c")]


def shaped(
    shape: str, size: int, steps: str = "memcpy x k+8 bytes=4", dtype: str = "u8"
) -> ir.Program:
    own = f" dtype={dtype} shape={shape}" if shape else ""
    state = f"buffer k bytes={size} role=state{own}"
    return trace(f"buffer x bytes=64 role=output\n{state}", "", steps)


@pytest.mark.parametrize(
    ("here", "there", "is_alike"),
    [
        (("4x4x8", 128), ("2x4x8", 64), True),
        (("2x4x8", 64), ("4x4x8", 128), True),
        (("4x32", 128), ("4x4x8", 128), False),
        (("4x4x8", 128), ("4x8x4", 128), False),
        (("64", 64), ("128", 128), True),
        (("", 128), ("4x4x8", 128), False),
        (("4x4x8", 128), ("", 128), False),
        (("", 128), ("", 128), False),
        (("4", 4), ("", 1), False),
        (("4", 4), ("", 4), False),
    ],
)
def test_rows_of_two_forms(here: tuple[str, int], there: tuple[str, int], is_alike: bool) -> None:
    moved = (MovedSequence(RowPlace(1), RowPlace(0)),)
    for steps in ("memcpy x k bytes=1", "memset k bytes=1 value=0x00"):
        programs = [shaped(*form, steps) for form in (here, there)]
        pair = Pair(
            *programs,
            source={"a": ((0, here[1]),)},
            target={"c": ((0, there[1]),)},
            served=((0,), (1,)),
        )
        found = pair.say(moved=moved)
        if is_alike or steps.startswith("memset"):
            assert [one[:7] for one in found] == ["TSR4007"] * steps.startswith("memcpy")
        else:
            shapes = [program.buffers[1].shape or () for program in programs]
            assert found == [f"TSR4013 rows of `k` differ: {shapes[0]} and {shapes[1]}"]
        # What no step reads does not travel either, and never to places past the end.
        for span in ((0, 0, 1), (0, 4096, 8)):
            assert pair.say(k(span), moved=moved)


def test_rows_of_other_elements() -> None:
    words = shaped("4x2", 32, "memcpy x k bytes=1", "f32")
    bytes_ = shaped("4x2", 8, "memcpy x k bytes=1")
    for programs, sizes in (((words, bytes_), (32, 8)), ((bytes_, words), (8, 32))):
        pair = Pair(
            *programs,
            source={"a": ((0, sizes[0]),)},
            target={"c": ((0, sizes[1]),)},
            served=((0,), (1,)),
        )
        assert pair.say() == ["TSR4013 rows of `k` differ: (4, 2) and (4, 2)"]


@pytest.mark.parametrize(
    ("here", "there", "is_there"),
    [(0, 0, 1), (3, 1, 1), (4, 1, 0), (3, 2, 0), (-1, 0, 0), (0, -1, 0)],
)
def test_rows_that_are_there(here: int, there: int, is_there: int) -> None:
    programs = shaped("4x4x8", 128), shaped("2x4x8", 64)
    pair = Pair(*programs, target={"c": ((0, 64),)}, served=((0,), (1,)))
    span = 32 * here + 8, 32 * there + 8, 4
    found = pair.say(k(span), moved=(MovedSequence(RowPlace(here), RowPlace(there)),))
    assert found == ["TSR4001 `k` has 4 and 2 rows, and not all of these"] * (not is_there)


def test_states_that_are_alike_are_judged_once() -> None:
    more = [f"buffer {name} {STATE}" for name in "vw"]
    three = program("\n".join(f"memcpy x {name}+8 bytes=4" for name in "kvw"), *more)
    found = Pair(three).say()
    assert found == [MISSING.format("72:76", "c")]
    found = Pair(three).say(("a", "c", {"k": ((40, 72, 4),)}))
    assert found == [MISSING.replace("`k`", "`v`").format("72:76", "c")]
    found = Pair(three).say(("a", "c", {"k": ((40, 72, 4),), "w": ((40, 72, 3),)}))
    assert found == [
        MISSING.replace("`k`", "`v`").format("72:76", "c"),
        MISSING.replace("`k`", "`w`").format("75:76", "c"),
    ]
    # From another device, and to another one: not alike, and each is judged.
    pair = Pair(three, source={"a": ((0, 128),), "b": ()}, target={"c": ((0, 128),), "d": ()})
    spans = ((40, 72, 4),)
    found = pair.say(("a", "c", {"k": spans, "v": spans}), ("b", "c", {"w": spans}))
    assert found == ["TSR4004 transfer 1 reads bytes 40:44 of `w` on `b`, which does not have them"]
    found = pair.say(("a", "c", {"k": spans, "v": spans}), ("a", "d", {"w": spans}))
    assert [one[:7] for one in found] == ["TSR4006", "TSR4007"]


@pytest.mark.parametrize(
    ("source", "target"), [(-1, 1), (0, -1), (2, 1), (0, 2), (1, 1), (0, 0), (1, 0)]
)
def test_replicas_that_are_there(source: int, target: int) -> None:
    pair = Pair(target={"a": ((0, 128),)})
    made = replace(hand_over(k((40, 72, 4), target="a")), source=source, target=target)
    missing = [f"TSR4001 there is no replica {source} or {target}"]
    assert pair.say(made=made) == missing * (not {source, target} <= {0, 1})


def test_a_graph_for_every_trace() -> None:
    pair = Pair()
    with pytest.raises(ValueError, match="shorter"):
        HandOverChecker(pair.replicas, pair.programs, ())


# --- operations and owners -----------------------------------------------------------------------


def moved_rows(*rows: tuple[tuple[int, ...], tuple[int, ...]]) -> tuple[MovedSequence, ...]:
    return tuple(MovedSequence(RowPlace(blocks=a), RowPlace(blocks=b)) for a, b in rows)


@pytest.mark.parametrize(
    ("moved", "wanted"),
    [
        (moved_rows(((1,), (1,)), ((2,), (2,))), []),
        (moved_rows(((1,), (1,)), ((1,), (2,))), ["2 sequences have row 1 of the source"]),
        (moved_rows(((1,), (3,)), ((2,), (3,))), ["2 sequences have row 3 of the target"]),
        (moved_rows(((1, 2), (3, 3))), ["2 sequences have row 3 of the target"]),
        (moved_rows(((1, 2), (3,))), ["a sequence has more blocks at one end of a hand-over"]),
        (moved_rows(((1,), (2, 3))), ["a sequence has more blocks at one end of a hand-over"]),
        (
            moved_rows(*3 * [((0,), (1,))]),
            ["3 sequences have row 0 of the source", "3 sequences have row 1 of the target"],
        ),
    ],
)
def test_every_row_has_one_owner(moved: tuple[MovedSequence, ...], wanted: list[str]) -> None:
    found = Pair(program("memset k bytes=128 value=0x00")).say(moved=moved)
    assert found == [f"TSR4013 {one}" for one in wanted]


def queues(*rows: str) -> tuple[DeviceProgram, ...]:
    """Programs from lines such as `a out: send 0, receive 1`; a device has a program per line."""
    kinds = {"send": Send, "receive": Receive}
    programs = []
    for row in rows:
        head, _, listed = row.partition(": ")
        device, queue = head.split()
        operations = []
        for each in listed.split(", "):
            kind, number = each.split()
            operation: Operation = Record(DeviceEventId(int(number)))
            if kind in kinds:
                operation = kinds[kind](TransferId(int(number)))
            operations.append(Queued(Queue(queue), operation))
        programs.append(DeviceProgram(device=device, operations=tuple(operations)))
    return tuple(programs)


TWO = (k((40, 72, 2)), k((42, 74, 2)))
SENT, RECEIVED = "a out: send 0, send 1", "c in: receive 0, receive 1"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ((SENT, RECEIVED), []),
        ((RECEIVED, SENT), []),
        (("a out: send 0", "a out: send 1", RECEIVED), []),
        (("a out: send 1, send 0", "c in: receive 1, receive 0"), []),
        ((SENT, "c in: receive 1, receive 0"), ["TSR4008 the programs of a hand-over wait for"]),
        ((SENT, "c in: receive 0"), ["TSR4002 transfer 1 has 0 of 1 receive on `c`"]),
        (("a out: send 0", RECEIVED), ["TSR4002 transfer 1 has 0 of 1 send on `a`"]),
        (
            ("a out: send 0, send 1, send 1", RECEIVED),
            ["TSR4002 transfer 1 has 2 of 1 send on `a`"],
        ),
        (
            (SENT, "c in: receive 1, receive 0, receive 1"),
            ["TSR4002 transfer 1 has 2 of 1 receive on `c`"],
        ),
        (
            (SENT, "c in: receive 0, receive 1, receive 2"),
            ["TSR4002 transfer 2 has 1 of 0 receive on `c`"],
        ),
        (
            ("a out: send 0", "c out: send 1", RECEIVED),
            [
                "TSR4002 transfer 1 has 1 of 0 send on `c`",
                "TSR4002 transfer 1 has 0 of 1 send on `a`",
            ],
        ),
        (
            (SENT, RECEIVED, "a compute: record 0"),
            ["TSR4002 a hand-over does not record on the compute queue"],
        ),
        (
            ("a in: send 0", "a out: send 1", RECEIVED),
            [
                "TSR4002 a hand-over does not send on the in queue",
                "TSR4002 transfer 0 has 0 of 1 send on `a`",
            ],
        ),
        (
            (SENT, "c out: receive 0", "c in: receive 1"),
            [
                "TSR4002 a hand-over does not receive on the out queue",
                "TSR4002 transfer 0 has 0 of 1 receive on `c`",
            ],
        ),
        # Without what a program leaves out, they would wait for each other as well.
        (("a out: send 1, send 0", "c in: receive 0"), ["TSR4002 transfer 1 has 0 of 1 receive"]),
    ],
)
def test_every_transfer_is_sent_and_received_once(rows: Sequence[str], wanted: list[str]) -> None:
    found = Pair().say(made=replace(hand_over(*TWO), programs=queues(*rows)))
    assert len(found) == len(wanted)
    for one, words in zip(found, wanted, strict=True):
        assert one.startswith(words)


def test_transfers_have_numbers_and_ends_of_their_own() -> None:
    made = hand_over(*TWO)
    first, second = made.transfers
    twice = replace(made, transfers=(first, replace(second, id=first.id)))
    found = Pair().say(made=twice)
    assert found[0] == "TSR4013 2 transfers of a hand-over have the number 0"
    assert all(one.startswith("TSR4002 transfer 1 ") for one in found[1:])
    for where in ("source", "target"):
        found = Pair().say(made=replace(made, transfers=(first, replace(second, **{where: "e"}))))
        assert found[0] == "TSR4001 transfer 1 names `e`, which is not there"
    found = Pair().say(k((40, 72, 4), source="c", target="a"))
    assert found == [f"TSR4001 transfer 0 names `{one}`, which is not there" for one in "ca"]


@pytest.mark.parametrize(
    ("rows", "ends"),
    [
        ((), True),
        (("a out: send 0", "b in: receive 0"), True),
        (("a out: send 0, send 1", "b in: receive 0", "c in: receive 1"), True),
        (("a out: send 0", "b out: send 1", "c in: receive 1, receive 0"), True),
        (("a out: send 0", "a in: receive 1", "b out: send 1", "b in: receive 0"), True),
        # In a circle of three, each queue begins with what another one comes to later.
        (
            (
                "a out: send 0, send 1",
                "b in: receive 1, receive 2",
                "c out: send 2, send 3",
                "d in: receive 3, receive 0",
            ),
            False,
        ),
        (("a out: send 0, send 1", "b in: receive 0", "c out: send 2", "d in: receive 1"), False),
    ],
)
def test_programs_that_end(rows: Sequence[str], ends: bool) -> None:
    homes = dict.fromkeys("abcd", ((0, 128),))
    pair = Pair(program("memset k bytes=128 value=0x00"), source=homes, target=homes)
    pairs: dict[int, dict[str, str]] = {}
    for row in queues(*rows):
        for queued in row.operations:
            assert isinstance(queued.operation, Send | Receive)
            side = "source" if isinstance(queued.operation, Send) else "target"
            pairs.setdefault(queued.operation.transfer, {})[side] = row.device
    transfers = tuple(
        StateTransfer(id=TransferId(n), portions=(), **{"source": "a", "target": "a", **ends_of})
        for n, ends_of in pairs.items()
    )
    made = HandOver(source=0, target=1, transfers=transfers, programs=queues(*rows))
    found = pair.say(made=made)
    incomplete = any(len(own) < 2 for own in pairs.values())
    assert bool(found) == (not ends)
    if not ends:
        code = "TSR4002" if incomplete else "TSR4008"
        assert found[0].startswith(code)
