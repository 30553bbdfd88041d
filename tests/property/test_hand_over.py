"""Hand-overs of random replicas: what arrives, what does not travel, and mutants of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.plan.hand_over import HandOver, MovedSequence, RowPlace, StatePortion
from tessera.ir.plan.launch_program import DeviceProgram, Queue, Queued, Receive, Send, TransferId
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.checker.check_hand_over import HandOverChecker
from tessera.planning.lower import hand_over as maker
from tessera.planning.lower.hand_over import Current, HandOverMaker, held_states
from tessera.simulation.hand_over import hand_over_ns
from tessera.simulation.hardware import Hardware, Path
from tests.helpers.hand_overs import AXIS, ROWS, WIDTH, States, moved_sequences, programs, replica
from tests.helpers.served import graph_of
from tests.helpers.traces import trace

ROW = AXIS * WIDTH


class Case:
    """Two replicas, the traces, and the sequences that move."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.programs, self.graphs = programs(seed % 12)
        names = rng.choice((("ab", "cd"), ("a", "b"), ("ab", "bc"), ("a", "a"), ("abc", "d")))
        served = rng.choice((((0, 1), (0, 1)), ((0,), (0, 1)), ((0, 1), (1,)), ((0,), (1,))))
        self.replicas = [
            replica(rng, own, traces, self.programs)
            for own, traces in zip(names, served, strict=True)
        ]
        self.served = served
        self.moved = moved_sequences(rng)
        self.axis = rng.choice((0, AXIS, AXIS, AXIS + 1))

    def make(self) -> HandOver:
        return HandOverMaker(self.replicas, self.programs, self.graphs).make(
            0, 1, self.moved, self.axis
        )

    def try_to_make(self) -> HandOver | None:
        """None if the source lacks what the target reads."""
        try:
            return self.make()
        except TesseraError as problem:
            if problem.diagnostics[0].code == "TSR4020":
                return None
            raise

    def check(self, made: HandOver) -> list[str]:
        checker = HandOverChecker(self.replicas, self.programs, self.graphs)
        found = checker.check(made, self.moved, self.axis)
        return [diagnostic.code for diagnostic in found]

    def read_in_rows(self, traces: tuple[int, ...]) -> dict[str, set[int]]:
        """Bytes of a row that a request may read as it finds them, byte by byte."""
        reads: dict[str, set[int]] = {}
        for number in traces:
            program, over = self.programs[number], dict[str, set[int]]()
            for node in self.graphs[number].nodes:
                for access in node.accesses:
                    buffer = program.buffers[access.buffer]
                    if buffer.role is not ir.Role.STATE:
                        continue
                    touched = set[int]()
                    for start, end in intervals.pairs(region_bytes(access.region, buffer.bytes)):
                        touched |= set(range(start, end))
                    if access.kind.reads:
                        fresh = touched - over.get(buffer.name, set())
                        reads.setdefault(buffer.name, set()).update(at % ROW for at in fresh)
                    if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
                        over.setdefault(buffer.name, set()).update(touched)
        return reads

    def ends(self) -> Iterator[tuple[int, int, int]]:
        """Rows here and there, and how many bytes of each may travel."""
        for own in self.moved:
            for number, (here, there) in enumerate(
                zip(own.source.rows, own.target.rows, strict=True)
            ):
                count = ROW
                if self.axis == AXIS and own.tokens is not None:
                    count = min(max(own.tokens - number * AXIS, 0), AXIS) * WIDTH
                yield here, there, count

    def states(self, seed: int) -> tuple[States, States]:
        """Random bytes in the states of both replicas."""
        source, target = (
            States.random(own, self.programs, 9 * seed + number)
            for number, own in enumerate(self.replicas)
        )
        return source, target

    def wanted(
        self, source: States, target: States
    ) -> dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]:
        """What the copies of the target hold afterwards, and which of their bytes matter: those of
        other rows, and those that a step may read."""
        held = held_states(self.replicas[0], self.programs)
        there_held = held_states(self.replicas[1], self.programs)
        reads = self.read_in_rows((0, 1))
        found = {}
        for (device, name), copy in target.copies.items():
            now = intervals.pairs(there_held[name].current[device])
            current = {at for start, end in now for at in range(start, end)}
            wanted, matters = copy.copy(), np.ones(len(copy), dtype=bool)
            for here, there, count in self.ends():
                matters[there * ROW : there * ROW + ROW] = False
                for at in reads.get(name, set()) & set(range(count)) if name in held else ():
                    if there * ROW + at in current:
                        byte = _home_byte(source, held[name].current, name, here * ROW + at)
                        wanted[there * ROW + at] = byte
                        matters[there * ROW + at] = True
            found[device, name] = (wanted, matters)
        return found

    def differs(self, made: HandOver, seed: int, orders: int) -> str:
        """What goes wrong in some order of the operations, or nothing."""
        source, target = self.states(seed)
        wanted = self.wanted(source, target)
        for order in range(orders):
            after = States({key: copy.copy() for key, copy in target.copies.items()})
            problem = after.run(made, source, random.Random(order))
            if problem:
                return problem
            for key, (bytes_of, matters) in wanted.items():
                if (after.copies[key] != bytes_of)[matters].any():
                    return f"other bytes of {key}"
        return ""


SEEDS = 60


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_every_live_byte_arrives_and_no_other(first: int) -> None:
    seen = 0
    for seed in range(first, first + 20):
        case = Case(seed)
        if (made := case.try_to_make()) is None:
            assert set(case.served[1]) - set(case.served[0])
            continue
        assert case.check(made) == []
        seen += bool(made.transfers)
        source, target = case.states(seed)
        wanted = case.wanted(source, target)
        target.take(made, source)
        for (device, name), copy in target.copies.items():
            np.testing.assert_array_equal(copy, wanted[device, name][0], f"{seed} {device} {name}")
    assert seen > 5


def test_of_no_sequence_nothing_travels() -> None:
    seen = 0
    for seed in range(20):
        case = Case(seed)
        if case.try_to_make() is not None:
            case.moved = ()
            made = case.try_to_make()
            assert made is not None
            assert made.transfers == ()
            assert case.check(made) == []
            seen += 1
    assert seen > 5


def _home_byte(source: States, current: Current, name: str, at: int) -> int:
    for device, ranges in current.items():
        if any(start <= at < end for start, end in intervals.pairs(ranges)):
            return int(source.copies[device, name][at])
    raise AssertionError("a byte is nowhere")


def test_a_part_of_a_row_travels_whatever_rows_of_other_states_are() -> None:
    buffers = """
    buffer x bytes=64 role=output
    buffer j bytes=64 role=state dtype=u8 shape=4x2x8
    buffer k bytes=96 role=state dtype=u8 shape=4x4x6
    """
    program = trace(buffers, "", "memcpy x j+16 bytes=4\nmemcpy x k+24 bytes=5")
    case = Case(0)
    case.programs, case.graphs = (program,), (graph_of(program),)
    rng = random.Random(1)
    case.replicas = [replica(rng, device, (0,), case.programs) for device in "ab"]
    case.moved, case.axis = (MovedSequence(RowPlace(1), RowPlace(2)),), 0
    made = case.make()
    assert case.check(made) == []
    assert made.size == 4 + 5


def test_a_state_with_addresses_is_not_handed_over() -> None:
    case, codes, made = Case(0), [], None
    case.moved, case.axis = (MovedSequence(RowPlace(1), RowPlace(2)),), 0
    for table in ("", "pointers j @{16:x}\n"):
        buffers = (
            "buffer x bytes=64 role=output\nbuffer j bytes=64 role=state dtype=u8 shape=4x16\n"
        )
        program = trace(buffers + table, "", "memcpy x j+16 bytes=8")
        case.programs, case.graphs = (program,), (graph_of(program),)
        case.replicas = [replica(random.Random(1), device, (0,), case.programs) for device in "ab"]
        made = made or case.make()
        codes.append(case.check(made))
    assert codes[0] == []
    assert "TSR4011" in codes[1]


def test_mutants_are_refused() -> None:
    refused, kinds = 0, set[str]()
    for seed in range(3 * SEEDS):
        rng = random.Random(1000 + seed)
        case = Case(seed)
        made = case.try_to_make()
        if made is None or not made.transfers:
            continue
        kind, mutant = _mutant(rng, made)
        kinds.add(kind)
        codes = case.check(mutant)
        assert codes, (seed, kind)
        refused += 1
    assert refused > SEEDS
    assert len(kinds) == 9


def test_mutants_that_give_other_bytes_in_some_order_are_refused() -> None:
    different = accepted = 0
    for seed in range(SEEDS // 2):
        rng = random.Random(2000 + seed)
        case = Case(seed)
        made = case.try_to_make()
        if made is None or not made.transfers:
            continue
        assert case.differs(made, seed, 10) == ""
        for _ in range(3):
            kind, mutant = _mutant(rng, made)
            found = _differs(case, mutant, seed)
            different += bool(found)
            assert not found or case.check(mutant), (seed, kind, found)
            same = _the_same(rng, made)
            assert case.check(same) == [], seed
            assert case.differs(same, seed, 10) == "", seed
            accepted += 1
    assert different > SEEDS // 2
    assert accepted > SEEDS // 2


def _differs(case: Case, mutant: HandOver, seed: int) -> str:
    try:
        return case.differs(mutant, seed, 50)
    except KeyError:
        return "a transfer that is not there"


def _the_same(rng: random.Random, made: HandOver) -> HandOver:
    """Records in another order, other numbers, the same bytes in other spans."""
    numbers = {t.id: TransferId(2 * t.id + 1) for t in made.transfers}
    transfers = []
    for transfer in made.transfers:
        portions = []
        for portion in transfer.portions:
            spans = []
            for start, put, size in portion.spans:
                cut = rng.randrange(size) if rng.random() < 0.5 else 0
                spans += [(start, put, cut)] if cut else []
                spans.append((start + cut, put + cut, size - cut))
            portions.append(StatePortion(portion.state, tuple(rng.sample(spans, len(spans)))))
        transfers.append(replace(transfer, id=numbers[transfer.id], portions=tuple(portions)))
    programs = []
    for program in made.programs:
        operations = tuple(
            Queued(q.queue, type(q.operation)(numbers[q.operation.transfer]))
            for q in program.operations
            if isinstance(q.operation, Send | Receive)
        )
        programs.append(replace(program, operations=operations))
    return replace(
        made,
        transfers=tuple(rng.sample(transfers, len(transfers))),
        programs=tuple(rng.sample(programs, len(programs))),
    )


def _mutant(rng: random.Random, made: HandOver) -> tuple[str, HandOver]:
    number = rng.randrange(len(made.transfers))
    transfer = made.transfers[number]
    place = rng.randrange(len(transfer.portions))
    portion = transfer.portions[place]
    at = rng.randrange(len(portion.spans))
    start, put, size = portion.spans[at]
    kind = rng.choice(
        (
            "left out",
            "shorter",
            "from elsewhere",
            "to elsewhere",
            "twice",
            "not sent",
            "not received",
            "swapped",
            "also run",
        )
    )
    spans = list(portion.spans)
    match kind:
        case "left out":
            del spans[at]
        case "shorter":
            spans[at] = (start, put, size - 1)
        case "from elsewhere":
            spans[at] = (start + 1 if start == 0 else start - 1, put, size)
        case "to elsewhere":
            spans[at] = (start, put + ROW if put < ROW else put - ROW, size)
        case "twice":
            spans.append(spans[at])
        case _:
            return kind, replace(made, programs=tuple(_edited(made, kind, rng)))
    portions = [*transfer.portions]
    portions[place] = StatePortion(portion.state, tuple(span for span in spans if span[2]))
    transfers = [*made.transfers]
    transfers[number] = replace(transfer, portions=tuple(portions))
    return kind, replace(made, transfers=tuple(transfers))


def _edited(made: HandOver, kind: str, rng: random.Random) -> Iterator[DeviceProgram]:
    programs = list(made.programs)
    kinds = {"not sent": Send, "not received": Receive}
    number = rng.choice(
        [
            n
            for n, own in enumerate(programs)
            if any(isinstance(q.operation, kinds.get(kind, Send | Receive)) for q in own.operations)
        ]
    )
    operations = list(programs[number].operations)
    wanted = [
        n
        for n, own in enumerate(operations)
        if isinstance(own.operation, kinds.get(kind, Send | Receive))
    ]
    match kind:
        case "swapped":
            own = operations[wanted[0]]
            other = Queue.IN if own.queue is Queue.OUT else Queue.OUT
            operations[wanted[0]] = Queued(other, own.operation)
        case "also run":
            operations.append(operations[wanted[-1]])
        case _:
            del operations[wanted[0]]
    programs[number] = replace(programs[number], operations=tuple(operations))
    yield from programs


def test_large_states_travel_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [Case(seed) for seed in range(SEEDS)]
    for case in cases:
        if (whole := case.try_to_make()) is None:
            continue
        monkeypatch.setattr(maker, "MOST_BYTES", 50)
        made = case.make()
        monkeypatch.undo()
        assert case.check(made) == []
        assert max((transfer.size for transfer in made.transfers), default=0) <= 50
        assert made.size == whole.size


@pytest.mark.parametrize(
    ("moved", "words"),
    [
        (MovedSequence(RowPlace(ROWS), RowPlace(0)), f"not row {ROWS}"),
        (MovedSequence(RowPlace(0), RowPlace(-1)), "not row -1"),
        (MovedSequence(RowPlace(blocks=(1, 2)), RowPlace(blocks=(1,))), "more blocks at one end"),
        (MovedSequence(RowPlace(blocks=(1, 2)), RowPlace(blocks=(1, 1))), "have one row"),
    ],
)
def test_rows_that_are_not_there(moved: MovedSequence, words: str) -> None:
    case = Case(0)
    case.replicas[0] = case.replicas[1]
    with pytest.raises(TesseraError, match=words):
        HandOverMaker(case.replicas, case.programs, case.graphs).make(0, 1, [moved])
    case.moved = (moved,)
    empty = HandOver(source=0, target=1, transfers=(), programs=())
    found = case.check(empty)
    assert found
    assert not words.startswith("not row") or {*found} == {"TSR4001"}


def test_what_a_hand_over_takes() -> None:
    case = next(c for c in map(Case, range(99)) if c.replicas[0].devices == ("a",))
    case.replicas[1] = replace(case.replicas[0], devices=("b",))
    case.replicas[1] = replace(
        case.replicas[1],
        places=tuple(replace(place, device="b") for place in case.replicas[0].places),
        homes=tuple(replace(home, device="b") for home in case.replicas[0].homes),
    )
    made = HandOverMaker(case.replicas, case.programs, case.graphs).make(0, 1, case.moved)
    path = Path(bytes_per_second=1e9, latency_ns=500.0, shares=("wire",))
    direct = Hardware(paths={("a", "b"): path}, capacities={"wire": 1e9})
    assert hand_over_ns(made, direct) == pytest.approx(500 + made.size)
    through = Hardware(
        paths={("a", "host"): path, ("host", "b"): replace(path, shares=("other",))},
        capacities={"wire": 1e9, "other": 1e9},
    )
    assert hand_over_ns(made, through) == pytest.approx(1000 + 2 * made.size)
    here = replace(
        made, transfers=tuple(replace(own, target="a") for own in made.transfers), programs=()
    )
    stays = Hardware(paths={}, capacities={}, fill_ns_per_byte={"a": 0.5})
    assert hand_over_ns(here, stays) == pytest.approx(made.size)
