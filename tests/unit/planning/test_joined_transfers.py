"""What a step is the first to need from one device is one transfer, and the checker proves it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import (
    HOST,
    LoweredReplica,
    Portion,
    Receive,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program.program import BufferId, LaunchId, Program
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower import moves
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.plan_edits import edits
from tests.helpers.plan_mutants import mutants
from tests.helpers.plan_races import races
from tests.helpers.portions import with_portion
from tests.unit.planning.test_lower_plan import ALL, before, case, program_of

ATTENTION = case(
    [("ix", 64), ("tq", 64), ("tk", 64), ("tv", 64), ("o", 64)],
    *([("r", "ix", ALL), ("m", f"t{name}", ALL)] for name in "qkv"),
    [("r", "tq", ALL), ("r", "tk", ALL), ("r", "tv", ALL), ("m", "o", ALL)],
)


def lower(one: tuple[Program, KernelGraph], where: str, **options: int) -> LoweredReplica:
    made = lower_replica([one[0]], [one[1]], [where], **{"slots": 2, "lanes": 2, **options})
    assert check_replica(made, [one[0]], [one[1]], [where]) == ()
    assert races(made, [one[0]], [one[1]]) == ""
    return made


def between(lowered: LoweredReplica) -> list[Transfer]:
    rows = lowered.traces[0].transfers
    assert all(len(t.portions) == 1 for t in rows if HOST in (t.source, t.target))
    return [t for t in rows if HOST not in (t.source, t.target)]


def buffers(transfer: Transfer) -> list[int]:
    return [int(portion.buffer) for portion in transfer.portions]


def test_three_products_that_one_step_reads_are_one_transfer() -> None:
    lowered = lower(ATTENTION, "AAAB")
    (sent,) = between(lowered)
    assert (sent.source, sent.target, sent.size) == ("A", "B", 192)
    assert sent.portions == tuple(Portion(BufferId(b), ((0, 64),)) for b in (1, 2, 3))
    assert all(before(program_of(lowered, "A"), Run(LaunchId(n)), Send(sent.id)) for n in range(3))
    assert before(program_of(lowered, "B"), Receive(sent.id), Run(LaunchId(3)))


def test_from_two_devices_they_are_two() -> None:
    assert sorted(map(buffers, between(lower(ATTENTION, "ACAB")))) == [[1, 3], [2]]


def test_what_is_large_goes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """It moves while the others are made. What is made last has nothing to wait for."""
    monkeypatch.setattr(moves, "LEAST_AHEAD", 100)
    assert list(map(buffers, between(lower(ATTENTION, "AAAB")))) == [[1], [2, 3]]
    monkeypatch.setattr(moves, "LEAST_AHEAD", 64)
    assert list(map(buffers, between(lower(ATTENTION, "AAAB")))) == [[1], [2], [3]]
    one_step = case(
        [("tq", 64), ("tk", 64), ("o", 64)],
        [("m", "tq", ALL), ("m", "tk", ALL)],
        [("r", "tq", ALL), ("r", "tk", ALL), ("m", "o", ALL)],
    )
    assert list(map(buffers, between(lower(one_step, "AB")))) == [[0, 1]]


def test_what_several_steps_of_a_device_wait_for_is_sent_once() -> None:
    one = case(
        [("t", 64), ("o0", 64), ("o1", 64), ("o2", 64)],
        [("m", "t", ALL)],
        *([("r", "t", ALL), ("m", f"o{n}", ALL)] for n in range(3)),
    )
    (sent,) = between(lower(one, "ABBB"))
    assert buffers(sent) == [0]
    assert [t.target for t in between(lower(one, "ABCB"))] == ["B", "C"]


def test_versions_of_one_buffer_are_one_portion() -> None:
    """Two steps make halves of a buffer; the second of them one of another buffer too."""
    low, high = Interval(0, 32), Interval(32, 64)
    one = case(
        [("t0", 64), ("t1", 64), ("o", 64)],
        [("m", "t0", low)],
        [("m", "t0", high), ("m", "t1", ALL)],
        [("r", "t0", ALL), ("r", "t1", ALL), ("m", "o", ALL)],
    )
    (sent,) = between(lower(one, "AAB"))
    assert sent.portions == (Portion(BufferId(0), ((0, 64),)), Portion(BufferId(1), ((0, 64),)))


def test_both_directions_of_an_exchange_are_independent() -> None:
    """Devices make halves of two buffers, and each needs all of both."""
    low, high = Interval(0, 32), Interval(32, 64)
    one = case(
        [("t0", 64), ("t1", 64), ("o0", 64), ("o1", 64)],
        [("m", "t0", low), ("m", "t1", low)],
        [("m", "t0", high), ("m", "t1", high)],
        [("r", "t0", ALL), ("r", "t1", ALL), ("m", "o0", ALL)],
        [("r", "t0", ALL), ("r", "t1", ALL), ("m", "o1", ALL)],
    )
    lowered = lower(one, "ABAB")
    first, second = sorted(between(lowered), key=lambda transfer: transfer.source)
    assert (first.source, first.target) == (second.target, second.source) == ("A", "B")
    assert buffers(first) == buffers(second) == [0, 1]
    assert not before(program_of(lowered, "A"), Receive(second.id), Send(first.id))
    assert not before(program_of(lowered, "B"), Receive(first.id), Send(second.id))


def test_states_go_home_together() -> None:
    one = case(
        [("s0", 64), ("s1", 64), ("o", 64)],
        [("m", "s0", ALL), ("m", "s1", ALL)],
        [("r", "s0", ALL), ("r", "s1", ALL), ("m", "o", ALL)],
    )
    other = case([("s0", 64), ("s1", 64)], [("a", "s0", ALL), ("a", "s1", ALL)])
    programs, graphs, places = zip(*((*one, "AA"), (*other, "B")), strict=True)
    lowered = lower_replica(programs, graphs, places, slots=1, lanes=1)
    assert check_replica(lowered, programs, graphs, places) == ()
    moved = [
        t for trace in lowered.traces for t in trace.transfers if HOST not in (t.source, t.target)
    ]
    assert moved
    assert all(buffers(transfer) == [0, 1] for transfer in moved)


def changed(lowered: LoweredReplica, transfer: Transfer) -> LoweredReplica:
    trace = lowered.traces[0]
    rows = tuple(transfer if t.id == transfer.id else t for t in trace.transfers)
    return replace(lowered, traces=(replace(trace, transfers=rows),))


def codes(lowered: LoweredReplica, one: tuple[Program, KernelGraph], where: str) -> set[str]:
    return {d.code for d in check_replica(lowered, [one[0]], [one[1]], [where])}


def test_changed_portions_are_refused() -> None:
    lowered = lower(ATTENTION, "AAAB")
    (sent,) = between(lowered)
    q, k, v = sent.portions
    half = Portion(k.buffer, ((0, 32),))
    swapped = with_portion(with_portion(sent, 1, half), 0, Portion(q.buffer, half.bytes))
    dropped = with_portion(sent, 1)
    assert codes(changed(lowered, dropped), ATTENTION, "AAAB") == {"TSR4004"}
    assert codes(changed(lowered, swapped), ATTENTION, "AAAB") == {"TSR4004"}
    shifted = with_portion(sent, 2, Portion(v.buffer, ((4, 64),)))
    assert codes(changed(lowered, shifted), ATTENTION, "AAAB") == {"TSR4004"}
    for wrong in (
        with_portion(sent, 0, k, q),
        with_portion(sent, 0, q, q),
        with_portion(sent, 0, Portion(q.buffer, ())),
        with_portion(sent, 0, Portion(BufferId(9), q.bytes)),
        replace(sent, portions=()),
    ):
        assert codes(changed(lowered, wrong), ATTENTION, "AAAB") == {"TSR4001"}


def test_a_portion_of_another_version_is_refused() -> None:
    """The second version of `t0` goes with `t1`. Sent earlier, with `t2`, it is the first one."""
    one = case(
        [("t0", 64), ("t1", 64), ("t2", 64), ("o", 64), ("o2", 64)],
        [("m", "t0", ALL), ("m", "t2", ALL)],
        [("r", "t2", ALL), ("m", "o2", ALL)],
        [("m", "t0", ALL), ("m", "t1", ALL)],
        [("r", "t0", ALL), ("r", "t1", ALL), ("m", "o", ALL)],
    )
    lowered = lower(one, "ABAB")
    early, late = between(lowered)
    assert (buffers(early), buffers(late)) == ([2], [0, 1])
    with_old = changed(lowered, with_portion(early, 0, late.portions[0], *early.portions))
    assert "TSR4004" in codes(changed(with_old, with_portion(late, 0)), one, "ABAB")


def test_buffers_of_a_transfer_share_no_memory() -> None:
    lowered = lower(ATTENTION, "AAAB")
    at = {(p.device, int(p.buffer)): p for p in lowered.places}
    over = replace(at["B", 2], offset=at["B", 1].offset)
    places = tuple(over if p == at["B", 2] else p for p in lowered.places)
    assert "TSR4005" in codes(replace(lowered, places=places), ATTENTION, "AAAB")


def test_every_mutant_of_joined_transfers_is_refused() -> None:
    lowered = lower(ATTENTION, "AAAB")
    every = [*mutants(lowered, [ATTENTION[0]]), *edits(lowered, [ATTENTION[0]])]
    kinds: Counter[str] = Counter()
    for what, mutant in every:
        kind = what.split()[0]
        if kind.endswith(("-transfer", "-portion")):
            assert codes(mutant, ATTENTION, "AAAB"), what
            kinds[kind] += 1
    assert kinds["drop-portion"] == 3
    assert min(kinds[k] for k in ("shift-transfer", "buffer-transfer", "turn-transfer")) > 1
