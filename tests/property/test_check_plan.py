"""What lowering makes is accepted and right; every change that matters is refused.

There are two oracles. `tests.helpers.plan_simulator` runs programs on made-up bytes in random
orders; `tests.helpers.plan_races` finds by brute force whether anything in them is unordered. The
judge may accept a changed program only if both find nothing: where no two operations that conflict
are unordered, all orders give the same bytes, and one order that gives those of one device decides.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tessera.ir.graph.access import AccessKind, Certainty, Pin
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.program.program import Role
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower import puts
from tessera.planning.lower.lower_plan import lower_replica
from tessera.wording import Wording
from tests.helpers.plan_cases import Case, random_case, with_twins
from tests.helpers.plan_edits import edits
from tests.helpers.plan_mutants import mutants
from tests.helpers.plan_races import races
from tests.helpers.plan_simulator import differs
from tests.helpers.regions import region_intervals
from tests.helpers.share import least, share

# Changes that no run can survive, whatever the program.
NEVER = frozenset(
    [
        "drop-run",
        "double-run",
        "drop-send",
        "drop-receive",
        "double-send",
        "double-receive",
        "drop-put",
        "drop-awaitput",
        "drop-credit",
        "double-put",
        "double-awaitput",
        "double-credit",
        "number-put",
        "number-awaitput",
        "number-credit",
        "drop-landing",
        "change-landing",
        "other-send",
        "other-receive",
        "other-put",
        "other-awaitput",
        "drop-record",
        "double-record",
        "double-free",
        "drop-transfer",
        "shorten-transfer",
        "widen-transfer",
        "drop-home",
        "shorten-home",
        "target-transfer",
        "drop-area",
        "change-area",
        "kind-place",
        "device-place",
        "move-run",
        "slots",
        "drop-fill",
        "shorten-fill",
        "number-run",
        "number-send",
        "number-receive",
        "number-record",
        "number-trace",
        "number-transfer",
        "number-slots",
        "number-lanes",
        "exchange-steps",
        "move-step",
        "shift-transfer",
        "buffer-transfer",
        "from-transfer",
        "to-transfer",
        "reverse-transfer",
        "empty-transfer",
        "unlist-transfer",
        "double-transfer",
        "again-transfer",
        "drop-portion",
        "swap-transfer",
        "turn-transfer",
        "shift-home",
        "empty-home",
        "double-home",
        "double-place",
        "double-area",
        "kind-area",
        "device-area",
        "count-area",
        "drop-trace",
        "double-trace",
        "double-program",
        "drop-device",
        "double-device",
        "host-device",
        "unaligned-place",
        "unaligned-moved",
        "empty-place",
        "empty-moved",
        "shorter-place",
    ]
)


def lower(case: Case, seed: int, *, hosts: int = 1) -> LoweredReplica:
    rng = random.Random(seed)
    devices = sorted({device for part in case.placements for device in part})
    return lower_replica(
        case.programs,
        case.graphs,
        case.placements,
        slots=rng.choice([1, 2, 3]),
        lanes=rng.choice([1, 2]),
        roomy=[device for part in case.placements for device in part if rng.random() < 0.3],
        hosts={device: str(at % hosts) for at, device in enumerate(devices)},
    )


def check_lowering(
    seed: int,
    runs: int,
    *,
    tables: bool = False,
    hosts: int = 1,
    twins: bool = False,
    wide: bool = False,
) -> int:
    """Check one case; returns how many places hold a part of their buffer."""
    case = random_case(seed, tables=tables, wide=wide)
    case = with_twins(case, seed) if twins else case
    replica = lower(case, seed, hosts=hosts)
    assert check_replica(replica, case.programs, case.graphs, case.placements) == ()
    assert races(replica, case.programs, case.graphs) == ""
    assert differs(replica, case.programs, case.graphs, runs) == ""
    return sum((place.first, place.end) != (0, None) for place in replica.places)


def check_mutants(
    seed: int,
    runs: int,
    *,
    most: int = 10**9,
    tables: bool = False,
    hosts: int = 1,
    twins: bool = False,
    wide: bool = False,
) -> None:
    """Every single change of one case is refused, or changes nothing."""
    case = random_case(seed, most_steps=5, tables=tables, wide=wide)
    case = with_twins(case, seed) if twins else case
    replica = lower(case, seed, hosts=hosts)
    every = [*mutants(replica, case.programs), *edits(replica, case.programs)]
    for what, mutant in share(random.Random(seed).sample(every, min(most, len(every)))):
        if check_replica(mutant, case.programs, case.graphs, case.placements):
            continue
        kind = what.split()[0]
        # Bytes that all twins leave may have fewer homes than devices.
        assert kind not in NEVER or (twins and kind.endswith("-home")), (seed, what)
        assert races(mutant, case.programs, case.graphs) == "", (seed, what)
        assert differs(mutant, case.programs, case.graphs, runs, replica) == "", (seed, what)


@pytest.mark.parametrize("seed", share(range(1000, 1030)))
def test_what_lowering_makes_is_accepted_and_right(seed: int) -> None:
    check_lowering(seed, runs=10)


@pytest.mark.parametrize("seed", [2002, 2003, 2004, 2006, 2009, 2010, 2017, 2021])
def test_every_change_that_matters_is_refused(seed: int) -> None:
    check_mutants(seed, runs=10, most=150)


def test_places_of_a_part_of_a_buffer_are_accepted_and_right() -> None:
    parts = [check_lowering(seed, runs=10, wide=True) for seed in share(range(8000, 8025))]
    assert sum(map(bool, parts)) > least(10, 0)


@pytest.mark.parametrize("seed", [8002, 8004, 8007])
def test_every_change_to_parts_of_buffers_that_matters_is_refused(seed: int) -> None:
    check_mutants(seed, runs=10, most=150, wide=True)


@pytest.mark.parametrize("seed", range(3000, 3010))
def test_puts_between_hosts_are_accepted_and_right(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puts, "LANDINGS", 1 + seed % 2)  # so that few transfers share them
    check_lowering(seed, runs=15, hosts=2 + seed % 2)


@pytest.mark.parametrize("seed", [2002, 2003, 2010, 2021])
def test_every_change_to_puts_that_matters_is_refused(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(puts, "LANDINGS", 1)
    check_mutants(seed, runs=10, most=100, hosts=3)


@pytest.mark.parametrize("seed", share(range(6000, 6015)))
def test_tables_of_pointers(seed: int) -> None:
    check_lowering(seed, runs=10, tables=True)


@pytest.mark.parametrize("seed", [7001, 7005])
def test_every_change_to_tables_that_matters_is_refused(seed: int) -> None:
    check_mutants(seed, runs=10, most=120, tables=True)


@pytest.mark.parametrize("seed", share(range(8000, 8025)))
def test_twins_are_accepted_and_right(seed: int) -> None:
    check_lowering(seed, runs=10, tables=seed % 4 == 0, hosts=1 + seed % 2, twins=True)


@pytest.mark.parametrize("seed", [8100, 8102, 8103, 8104])
def test_every_change_to_twins_that_matters_is_refused(seed: int) -> None:
    check_mutants(seed, runs=10, most=120, twins=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9000, 9060))
def test_twins_at_length(seed: int) -> None:
    check_lowering(seed, runs=40, tables=seed % 3 == 0, twins=True)
    check_mutants(seed, runs=15, most=1000, tables=seed % 3 == 0, twins=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3000, 3400))
def test_what_lowering_makes_is_accepted_and_right_at_length(seed: int) -> None:
    check_lowering(seed, runs=40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4000, 4060))
def test_every_change_that_matters_is_refused_at_length(seed: int) -> None:
    check_mutants(seed, runs=15, most=2000, tables=seed % 3 == 0, wide=seed % 3 == 1)


def test_the_oracle_sees_what_the_judge_refuses() -> None:
    """A removed wait, transfer or fill often shows in the bytes: the oracles are not blind."""
    seen: Counter[str] = Counter()
    unordered = removed = 0
    for seed in range(2000, 2012):
        case = random_case(seed, most_steps=5)
        replica = lower(case, seed)
        for what, mutant in mutants(replica, case.programs):
            kind = what.split()[0]
            if kind in ("drop-await", "drop-transfer", "drop-fill") and seen[kind] < 6:
                seen[kind] += bool(differs(mutant, case.programs, case.graphs, 10))
            if kind == "drop-await":
                unordered += bool(races(mutant, case.programs, case.graphs))
                removed += 1
    assert min(seen[kind] for kind in ("drop-await", "drop-transfer", "drop-fill")) == 6
    assert unordered == removed > 20  # lowering has no wait that another one implies


# --- pins, against sets of makers per byte ---------------------------------------------------

Makers = dict[tuple[object, int], frozenset[tuple[int, int]]]


def spans(node: Node, graph: KernelGraph, buffer: int, how: str) -> set[int]:
    found: set[int] = set()
    for access in node.accesses:
        certain = access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST
        wanted = {"read": access.kind.reads, "may": access.kind.writes, "must": certain}[how]
        if access.buffer == buffer and wanted:
            for start, end in region_intervals(access.region, graph.buffers[buffer].bytes):
                found |= set(range(start, min(end, graph.buffers[buffer].bytes)))
    return found


def is_split(case: Case) -> bool:
    """Whether some run of two requests hands bytes between a pinned step and another device."""
    numbers = range(len(case.graphs))
    return any(_split_in(case, order) for order in itertools.product(numbers, repeat=2))


def _split_in(case: Case, order: tuple[int, ...]) -> bool:
    kept: Makers = {}
    for trace in order:
        graph, placement = case.graphs[trace], case.placements[trace]
        makers = {
            key: value for key, value in kept.items() if key[0] in _lasting(graph, trace).values()
        }
        names = {int(b.id): _lasting(graph, trace).get(int(b.id), int(b.id)) for b in graph.buffers}
        for node in graph.nodes:
            for buffer in {int(a.buffer) for a in node.accesses}:
                needed = spans(node, graph, buffer, "read") | (
                    spans(node, graph, buffer, "may") - spans(node, graph, buffer, "must")
                )
                for at in needed:
                    for other, step in makers.get((names[buffer], at), frozenset()):
                        pinned = node.pins or case.graphs[other].nodes[step].pins
                        if pinned and case.placements[other][step] != placement[node.id]:
                            return True
            for buffer in {int(a.buffer) for a in node.accesses}:
                certain = spans(node, graph, buffer, "must")
                for at in spans(node, graph, buffer, "may"):
                    key = (names[buffer], at)
                    old = frozenset() if at in certain else makers.get(key, frozenset())
                    makers[key] = old | {(trace, int(node.id))}
        kept.update(makers)
    return False


def _lasting(graph: KernelGraph, trace: int) -> dict[int, object]:
    found: dict[int, object] = {}
    for one in graph.buffers:
        if one.role is Role.STATE:
            found[int(one.id)] = one.name
        elif one.role is Role.VARIABLE:
            found[int(one.id)] = (trace, one.name)
    return found


def with_pins(case: Case, rng: random.Random) -> Case:
    def pinned(graph: KernelGraph) -> Iterator[Node]:
        for node in graph.nodes:
            pins = (Pin(Wording("it follows pointers")),) if rng.random() < 0.25 else ()
            yield replace(node, pins=pins)

    graphs = tuple(replace(graph, nodes=tuple(pinned(graph))) for graph in case.graphs)
    return replace(case, graphs=graphs)


def test_pins_are_judged_as_by_sets_of_makers() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in share(range(5000, 5100)):
        case = with_pins(random_case(seed, most_steps=5), random.Random(seed))
        replica = lower(case, seed)
        found = check_replica(replica, case.programs, case.graphs, case.placements)
        assert {one.code for one in found} <= {"TSR4010"}
        assert bool(found) == is_split(case), seed
        verdicts[bool(found)] += 1
    assert min(verdicts[True], verdicts[False]) > least(5, 0)
