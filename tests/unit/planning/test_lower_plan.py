"""Launch programs: which bytes move, what waits for what, and where buffers lie."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.graph import GraphBuffer, KernelGraph, Node
from tessera.ir.graph.region import Affine, Descriptor, Dimension, Interval, Region
from tessera.ir.plan.launch_program import (
    HOST,
    AreaKind,
    Await,
    DeviceProgram,
    Fill,
    Free,
    LoweredReplica,
    Operation,
    Queue,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program.program import (
    Buffer,
    BufferId,
    LaunchId,
    Pointer,
    PointerTable,
    PointerWord,
    Program,
    Role,
)
from tessera.passes.byte_sets import intervals
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower.grains import BufferGrains
from tessera.planning.lower.lower_plan import Lowering, lower_replica
from tessera.planning.lower.moves import LEAST_AHEAD, _MoveWalk, _Ready
from tests.helpers.plan_cases import build

ROLES = {
    "i": Role.INPUT,
    "o": Role.OUTPUT,
    "w": Role.WEIGHT,
    "t": Role.TEMP,
    "s": Role.STATE,
    "v": Role.VARIABLE,
}
KINDS = {
    "r": (AccessKind.READ, Certainty.MUST),
    "m": (AccessKind.WRITE, Certainty.MUST),
    "w": (AccessKind.WRITE, Certainty.MAY),
    "a": (AccessKind.ATOMIC, Certainty.MAY),
}
Touch = tuple[str, str, Region]


def case(
    buffers: Sequence[tuple[str, int]], *steps: Sequence[Touch], words: Sequence[PointerTable] = ()
) -> tuple[Program, KernelGraph]:
    """A trace by hand: the first letter of a buffer's name is its role."""
    made = tuple(
        Buffer(id=BufferId(number), name=name, bytes=size, role=ROLES[name[0]])
        for number, (name, size) in enumerate(buffers)
    )
    ids = {buffer.name: buffer.id for buffer in made}
    nodes = tuple(
        Node(
            id=LaunchId(number),
            name=f"k{number}",
            accesses=tuple(
                Access(
                    buffer=ids[name],
                    kind=KINDS[kind][0],
                    certainty=KINDS[kind][1],
                    address=AddressClass.DIRECT,
                    region=region,
                )
                for kind, name, region in touches
            ),
        )
        for number, touches in enumerate(steps)
    )
    graph = KernelGraph(
        buffers=tuple(GraphBuffer(id=b.id, name=b.name, bytes=b.bytes, role=b.role) for b in made),
        nodes=nodes,
        edges=(),
    )
    return Program(buffers=made, pointer_tables=tuple(words)), graph


def lower(one: tuple[Program, KernelGraph], where: str, **options: int) -> LoweredReplica:
    return lower_replica([one[0]], [one[1]], [where], **{"slots": 2, "lanes": 2, **options})


def moves(lowered: LoweredReplica, trace: int = 0) -> list[tuple[int, str, str, object]]:
    return [
        (int(portion.buffer), t.source, t.target, portion.bytes)
        for t in lowered.traces[trace].transfers
        for portion in t.portions
    ]


def sent_of(lowered: LoweredReplica, buffer: int) -> Transfer:
    """The first transfer with bytes of a buffer."""
    rows = lowered.traces[0].transfers
    return next(t for t in rows if any(portion.buffer == buffer for portion in t.portions))


def program_of(lowered: LoweredReplica, device: str, trace: int = 0) -> DeviceProgram:
    return next(p for p in lowered.traces[trace].programs if p.device == device)


def before(program: DeviceProgram, first: Operation, second: Operation) -> bool:
    """Whether events and queue order put one operation of a device before another."""
    done: dict[object, set[Operation]] = {}
    queues: dict[Queue, set[Operation]] = {queue: set() for queue in Queue}
    for entry in program.operations:
        here = queues[entry.queue]
        if isinstance(entry.operation, Await):
            here |= done[entry.operation.event]
        elif isinstance(entry.operation, Record):
            done[entry.operation.event] = set(here)
        else:
            if entry.operation == second:
                return first in here
            here.add(entry.operation)
    raise AssertionError(f"{second} is not on {program.device}")


ALL = Interval(0, 64)


def test_one_device_moves_only_inputs_and_outputs() -> None:
    one = case(
        [("i", 64), ("t", 64), ("o", 64)],
        [("r", "i", ALL), ("m", "t", ALL)],
        [("r", "t", ALL), ("m", "o", ALL)],
    )
    lowered = lower(one, "AA")
    assert moves(lowered) == [(0, HOST, "A", ((0, 64),)), (2, "A", HOST, ((0, 64),))]


def test_a_version_goes_to_a_device_once() -> None:
    one = case(
        [("i", 64), ("t", 64), ("o", 64)],
        [("r", "i", ALL), ("m", "t", ALL)],
        [("r", "t", ALL)],
        [("r", "t", ALL), ("m", "o", ALL)],
    )
    assert moves(lower(one, "ABB")) == [
        (0, HOST, "A", ((0, 64),)),
        (1, "A", "B", ((0, 64),)),
        (2, "B", HOST, ((0, 64),)),
    ]


def test_only_the_bytes_read_move_and_strided_ones_stay_apart() -> None:
    rows = Affine((Descriptor(0, 8, (Dimension(16, 4),)),))
    one = case([("t", 64), ("o", 8)], [("m", "t", ALL)], [("r", "t", rows)])
    assert moves(lower(one, "AB")) == [(0, "A", "B", ((0, 8), (16, 24), (32, 40), (48, 56)))]


def test_a_write_that_may_leave_bytes_alone_needs_the_old_ones() -> None:
    one = case(
        [("t", 64), ("o", 64)],
        [("m", "t", ALL)],
        [("w", "t", Interval(0, 32))],
        [("r", "t", ALL), ("m", "o", ALL)],
    )
    assert moves(lower(one, "ABA"))[:2] == [(0, "A", "B", ((0, 32),)), (0, "B", "A", ((0, 32),))]


def test_a_certain_write_needs_nothing() -> None:
    one = case([("t", 64)], [("m", "t", ALL)], [("m", "t", ALL)])
    assert moves(lower(one, "AB")) == []


def test_the_second_version_lands_after_the_first_was_read() -> None:
    """The example of decision record 0005: K then V through one buffer."""
    one = case(
        [("t", 64), ("o", 64)],
        [("m", "t", ALL)],
        [("r", "t", ALL), ("m", "o", ALL)],
        [("m", "t", ALL)],
        [("r", "t", ALL), ("a", "o", ALL)],
    )
    lowered = lower(one, "ABAB")
    first, second, _ = lowered.traces[0].transfers
    reader, writer = program_of(lowered, "B"), program_of(lowered, "A")
    assert before(reader, Run(LaunchId(1)), Receive(second.id))
    assert before(reader, Receive(first.id), Run(LaunchId(1)))
    assert before(reader, Receive(second.id), Run(LaunchId(3)))
    assert before(writer, Send(first.id), Run(LaunchId(2)))
    assert before(writer, Run(LaunchId(2)), Send(second.id))


def test_buffers_that_do_not_live_together_share_bytes_and_are_freed_in_order() -> None:
    one = case(
        [("t0", 512), ("t1", 512), ("t2", 512), ("o", 512)],
        [("m", "t0", Interval(0, 512))],
        [("r", "t0", Interval(0, 512)), ("m", "t1", Interval(0, 512))],
        [("r", "t1", Interval(0, 512)), ("m", "t2", Interval(0, 512))],
        [("r", "t2", Interval(0, 512)), ("m", "o", Interval(0, 512))],
    )
    lowered = lower(one, "AAAA")
    (slot,) = (area for area in lowered.areas if area.kind is AreaKind.SLOT)
    assert (slot.bytes, slot.count) == (1024, 2)
    ops = [entry.operation for entry in program_of(lowered, "A").operations]
    assert ops.index(Run(LaunchId(1))) < ops.index(Free(BufferId(0))) < ops.index(Run(LaunchId(2)))


def test_reused_bytes_wait_for_the_send_of_the_old_ones() -> None:
    one = case(
        [("t0", 512), ("t1", 512), ("t2", 512), ("o", 512)],
        [("m", "t0", Interval(0, 512))],
        [("r", "t0", Interval(0, 512)), ("m", "o", Interval(0, 512))],
        [("m", "t1", Interval(0, 512))],
        [("r", "t1", Interval(0, 512)), ("m", "t2", Interval(0, 512))],
    )
    lowered = lower(one, "ABAA")
    sent = sent_of(lowered, 0)
    assert before(program_of(lowered, "A"), Send(sent.id), Run(LaunchId(2)))


def test_with_memory_left_nothing_waits_for_a_send_because_of_its_bytes() -> None:
    whole = Interval(0, 512)
    one = case(
        [("t0", 512), ("t1", 512), ("t2", 512), ("t3", 512), ("o", 512)],
        [("m", "t0", whole)],
        [("r", "t0", whole), ("m", "o", whole)],
        [("m", "t1", whole)],
        [("r", "t1", whole), ("m", "t2", whole)],
        [("r", "t2", whole), ("m", "t3", whole)],
    )
    programs, graphs, places = [one[0]], [one[1]], ["ABAAA"]
    lowered = lower_replica(programs, graphs, places, slots=2, lanes=2, roomy=["A"])
    program = program_of(lowered, "A")
    sent = sent_of(lowered, 0)
    assert not any(before(program, Send(sent.id), Run(LaunchId(step))) for step in (2, 3, 4))
    at = {int(p.buffer): p.offset for p in lowered.places if p.device == "A"}
    # What steps alone touch still shares bytes: nothing waits for that.
    assert at[1] == at[3]
    assert len({at[0], at[1], at[2]}) == 3


def test_with_memory_left_a_step_takes_over_what_was_received_and_read() -> None:
    whole = Interval(0, 512)
    one = case(
        [("i0", 512), ("t0", 512), ("i1", 512), ("o", 512)],
        [("r", "i0", whole), ("m", "t0", whole)],
        [("r", "t0", whole), ("m", "o", whole)],
        [("r", "i1", whole), ("m", "o", whole)],
    )
    lowered = lower_replica([one[0]], [one[1]], ["AAA"], slots=1, lanes=1, roomy=["A"])
    at = {int(p.buffer): p.offset for p in lowered.places}
    assert at[3] == at[0]
    assert len({at[1], at[2], at[3]}) == 3
    program = program_of(lowered, "A")
    # The second input need not wait for a step that is done with the first.
    late = sent_of(lowered, 2)
    assert not before(program, Run(LaunchId(0)), Receive(late.id))


def test_bytes_nobody_wrote_are_filled_not_sent() -> None:
    one = case([("t", 64), ("o", 64)], [("w", "t", ALL)], [("r", "t", ALL), ("m", "o", ALL)])
    lowered = lower(one, "AB")
    ops = [entry.operation for entry in program_of(lowered, "A").operations]
    assert ops[0] == Fill(BufferId(0), ((0, 64),))
    assert moves(lowered)[0] == (0, "A", "B", ((0, 64),))


def test_a_state_returns_to_its_home() -> None:
    """Step 1 on B writes last: B is home, and the next request's reader on A gets it from there."""
    one = case(
        [("s", 64), ("o", 64)], [("r", "s", ALL), ("m", "o", ALL)], [("a", "s", Interval(0, 16))]
    )
    lowered = lower(one, "AB")
    (home,) = lowered.homes
    assert (home.device, home.bytes) == ("B", ((0, 16),))
    assert moves(lowered)[0] == (0, "B", "A", ((0, 16),))
    kinds = {(area.device, area.kind, area.count) for area in lowered.areas}
    assert {("A", AreaKind.LANE, 2), ("B", AreaKind.LANE, 2)} <= kinds


def test_traces_of_a_mix_agree_on_homes_and_places() -> None:
    prefill = case([("s", 64), ("w", 64)], [("r", "w", ALL), ("m", "s", ALL)])
    decode = case(
        [("w", 64), ("o", 64), ("s", 64)],
        [("r", "w", ALL), ("a", "s", Interval(0, 8))],
        [("r", "s", ALL), ("m", "o", ALL)],
    )
    lowered = lower_replica(
        [prefill[0], decode[0]], [prefill[1], decode[1]], ["A", "BB"], slots=1, lanes=3
    )
    assert {(h.trace, int(h.buffer), h.device) for h in lowered.homes} == {(0, 0, "A"), (1, 2, "A")}
    assert set(moves(lowered, 1)) == {
        (2, "A", "B", ((0, 8),)),
        (2, "A", "B", ((8, 64),)),
        (2, "B", "A", ((0, 8),)),
        (1, "B", HOST, ((0, 64),)),
    }
    states = {(p.trace, p.device): p.offset for p in lowered.places if p.kind is AreaKind.LANE}
    assert states[0, "A"] == states[1, "A"]
    assert states[0, "B"] == states[1, "B"]


def test_pointer_words_never_move() -> None:
    words = PointerTable(BufferId(0), (PointerWord(8, Pointer(BufferId(1))),))
    one = case([("i", 64), ("t", 64)], [("r", "i", ALL)], words=[words])
    assert moves(lower(one, "A")) == [(0, HOST, "A", ((0, 8), (16, 64)))]


def test_a_written_variable_leaves_one_slot() -> None:
    one = case([("v.x", 4), ("o", 64)], [("a", "v.x", Interval(0, 4)), ("m", "o", ALL)])
    assert lower(one, "A", slots=4).slots == 1
    read = case([("v.x", 4), ("o", 64)], [("r", "v.x", Interval(0, 4)), ("m", "o", ALL)])
    assert lower(read, "A", slots=4).slots == 4


def test_what_a_later_stage_needs_does_not_stand_before_what_the_next_one_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three stages of 16 steps; `t0` is made first, and read by each stage."""
    buffers = [("t0", 64), *((f"t{step}", 64) for step in range(1, 48))]
    steps: list[list[Touch]] = [[("m", "t0", ALL)]]
    for step in range(1, 48):
        reads: list[Touch] = [("r", f"t{step - 1}", ALL)]
        reads += [("r", "t0", ALL)] if step % 16 == 0 else []
        steps.append([*reads, ("m", f"t{step}", ALL)])
    stages = case(buffers, *steps)
    lowered = lower(stages, "A" * 16 + "B" * 16 + "C" * 16)
    sent = [(buffer, source, target) for buffer, source, target, _ in moves(lowered)]
    assert sent == [(0, "A", "B"), (15, "A", "B"), (0, "A", "C"), (31, "B", "C")]
    # Runs that are too short to send in change nothing: as early as can be, what is large ahead.
    monkeypatch.setattr("tessera.planning.lower.moves.LEAST_AHEAD", 64)
    short = lower(stages, "A" * 16 + "B" * 15 + "A" + "C" * 16)
    assert [(b, s, t) for b, s, t, _ in moves(short)][:2] == [(0, "A", "B"), (0, "A", "C")]


def test_stages_that_read_and_write_what_they_share_are_proved() -> None:
    """Versions that are sent late: whoever overwrites them waits."""
    for seed in range(5):
        draw = random.Random(seed)
        names = [(f"t{number}", 64) for number in range(5)]
        steps = [[("m", name, ALL) for name, _ in names]]
        for _ in range(100):
            kinds = draw.choices("rrrrmw", k=3)
            touched = draw.sample([name for name, _ in names], k=3)
            steps.append([(kind, name, ALL) for kind, name in zip(kinds, touched, strict=True)])
        where = "".join(draw.choice("ABCD") * draw.choice((1, 5, 17, 30)) for _ in range(40))
        stages = case(names, *steps)
        lowered = lower(stages, where[: len(steps)])
        assert check_replica(lowered, [stages[0]], [stages[1]], [where[: len(steps)]]) == ()


def test_the_same_input_gives_the_same_records() -> None:
    one = case([("t", 64), ("o", 64)], [("m", "t", ALL)], [("r", "t", ALL), ("m", "o", ALL)])
    assert lower(one, "AB") == lower(one, "AB")


def test_nothing_shares_bytes_with_a_weight_that_points_into_slots() -> None:
    """Lowering keeps them apart, and the judge refuses a plan that does not."""
    words = PointerTable(BufferId(0), (PointerWord(8, Pointer(BufferId(1))),))
    one = case(
        [("w", 512), ("t", 512), ("i", 512), ("o", 64)],
        [("r", "w", Interval(0, 16)), ("m", "t", Interval(0, 512))],
        [("r", "i", Interval(0, 512)), ("r", "t", Interval(0, 64)), ("m", "o", ALL)],
        words=[words],
    )
    lowered = lower(one, "AA")
    assert check_replica(lowered, [one[0]], [one[1]], ["AA"]) == ()
    weight = next(place for place in lowered.places if place.buffer == 0)
    assert weight.kind is AreaKind.SLOT
    moved = tuple(
        replace(place, offset=weight.offset + 256) if place.buffer == 2 else place
        for place in lowered.places
    )
    (found, *_) = check_replica(replace(lowered, places=moved), [one[0]], [one[1]], ["AA"])
    assert found.code == "TSR4009"
    assert "shares bytes with the weight `w`" in str(found.headline)


def with_twins(
    one: tuple[Program, KernelGraph], *groups: Sequence[int]
) -> tuple[Program, KernelGraph]:
    twins = tuple(tuple(map(LaunchId, group)) for group in groups)
    return replace(one[0], twins=twins), replace(one[1], twins=twins)


def test_twins_write_one_version_that_each_of_their_devices_has() -> None:
    norm = [("r", "i", ALL), ("m", "t", ALL)]
    left = [("r", "t", ALL), ("m", "o", Interval(0, 32))]
    right = [("r", "t", ALL), ("m", "o", Interval(32, 64))]
    one = with_twins(case([("i", 64), ("t", 64), ("o", 64)], norm, norm, left, right), (0, 1))
    assert moves(lower(one, "ABAB")) == [
        (0, HOST, "A", ((0, 64),)),
        (0, HOST, "B", ((0, 64),)),
        (2, "A", HOST, ((0, 32),)),
        (2, "B", HOST, ((32, 64),)),
    ]
    # A third device gets the bytes from the first of the twins.
    assert (1, "A", "C", ((0, 64),)) in moves(lower(one, "ABCC"))


def test_twins_in_place_need_the_bytes_before_them_and_keep_their_states() -> None:
    add = [("r", "t", ALL), ("r", "s", ALL), ("m", "s", ALL), ("m", "t", ALL)]
    last = [("r", "s", ALL), ("m", "o", ALL)]
    one = case([("t", 64), ("s", 64), ("o", 64)], [("m", "t", ALL)], add, add, last)
    one = with_twins(one, (1, 2))
    lowered = lower(one, "ABAA")
    # `t` goes to the twin on B before any of them runs; the state stays on both devices.
    assert moves(lowered) == [(0, "A", "B", ((0, 64),)), (2, "A", HOST, ((0, 64),))]
    assert {home.device for home in lowered.homes} == {"A", "B"}
    assert check_replica(lowered, [one[0]], [one[1]], ["ABAA"]) == ()


def test_false_twins_are_refused() -> None:
    add = [("r", "t", ALL), ("m", "t", ALL)]
    one = case([("t", 64)], [("m", "t", ALL)], add, add, [("r", "t", ALL)])
    twins = with_twins(one, (1, 2))

    def codes(told: tuple[Program, KernelGraph], lowered: LoweredReplica, where: str) -> set[str]:
        return {d.code for d in check_replica(lowered, [told[0]], [told[1]], [where])}

    assert codes(twins, lower(twins, "AABB"), "AABB") == set()
    assert codes(one, lower(one, "AABB"), "AABB") == set()
    # Steps that are no twins with the transfers of twins, and the other way round.
    assert codes(one, lower(twins, "AABB"), "AABB") == {"TSR4004"}
    assert "TSR4004" in codes(twins, lower(one, "AABB"), "AABB")
    assert codes(twins, lower(twins, "AAAB"), "AAAB") == {"TSR4002"}


def test_bytes_of_the_host_are_those_of_one_device() -> None:
    """Two devices read the input, so it crosses the wire of the host twice; on one device, once."""
    all_bytes = Interval(0, 64)
    program, graph = build(
        [("x", 64, Role.INPUT), ("y", 64, Role.OUTPUT), ("z", 32, Role.OUTPUT)],
        [
            [("x", "read", all_bytes), ("y", "must", all_bytes)],
            [("x", "read", all_bytes), ("z", "must", Interval(0, 32))],
        ],
    )
    lowering = Lowering([program], [graph])
    lowering.lower([("a", "b")], slots=1, lanes=1)
    assert lowering.host_bytes() == ((64, 96),)


def test_one_byte_moves_as_many_do() -> None:
    byte = Interval(0, 1)
    one = case([("t", 1), ("o", 1)], [("m", "t", byte)], [("r", "t", byte), ("m", "o", byte)])
    assert moves(lower(one, "AB")) == [(0, "A", "B", ((0, 1),)), (1, "B", HOST, ((0, 1),))]


def test_an_access_that_is_outside_its_buffer_moves_nothing() -> None:
    """Of a state, of which a device has only the bytes that it touches; and of others."""
    part, outside = Interval(512, 1024), Interval(8192, 8200)
    for name in ("s", "w", "t"):
        one = case(
            [(name, 4096), ("o", 64)],
            [("r", name, outside), ("m", "o", ALL)],
            [("r", name, part), ("m", "o", ALL)],
            [("r", name, outside)],
        )
        lowered = lower(one, "AAB")
        assert moves(lowered)[-1:] == [(1, "A", HOST, ((0, 64),))]
        assert check_replica(lowered, [one[0]], [one[1]], ["AAB"]) == ()


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ((0, 8), 2), ((0, LEAST_AHEAD - 1), 2), ((0, LEAST_AHEAD), 1), ((LEAST_AHEAD, 8), 2),
        ((0, LEAST_AHEAD - 8, 7, 8, 9), 3), ((0, LEAST_AHEAD - 8, 8), 2), ((0,), 1),
    ],
)  # fmt: skip
def test_bytes_that_are_there_long_before_are_not_kept_waiting(
    sizes: Sequence[int], count: int
) -> None:
    """The first row is made last; few bytes of the others wait for it, wherever they lie."""
    far = 1 << 40
    grains = [BufferGrains(far + 2 * LEAST_AHEAD, [intervals.interval(far, far + max(size, 1))])
              for size in sizes]  # fmt: skip
    rows = [_Ready("A", -number, number, (0,)) for number in range(len(sizes))]
    walk: Any = SimpleNamespace(trace=SimpleNamespace(grains=grains))
    left = list(rows)
    assert _MoveWalk._together(walk, left) == rows[:count]
    assert left == rows[count:]
    alike = [_Ready("A", 5, number, (0,)) for number in range(len(sizes))]
    assert _MoveWalk._together(walk, list(alike)) == alike
