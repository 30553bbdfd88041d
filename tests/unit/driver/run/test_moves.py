"""Rows of states that go from one replica to another while both serve, and replicas that die."""

from __future__ import annotations

import os
import random
import signal
import threading

import numpy as np
import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError
from tessera.driver.run.moves import HandOverFault
from tessera.driver.run.runtime import Runtime
from tests.helpers.handed_rows import LIMIT_S, ROWS, Sequences, hand_rows, roles_plan
from tests.helpers.share import share

PLACES = [("ab", "cd"), ("aa", "ba"), ("ab", "ba")]


@pytest.mark.parametrize("seed", share(range(3)))
def test_sequences_go_on_elsewhere(seed: int) -> None:
    with Runtime(roles_plan(PLACES[seed]), backend="cpu") as runtime:
        assert sum(hand_rows(runtime, 10 * seed + number) for number in range(3)) > 3


def test_bad_moves() -> None:
    with Runtime(roles_plan(("a" * 2, "b" * 2)), backend="cpu") as runtime:
        for given, words in (
            ((0, 2, [(ROWS, 0)]), "has 4 rows, and not row 4"),
            ((0, 0, [(0, 1)]), "from one sequence to another"),
            ((0, 9, [(0, 1)]), "there is no sequence 9"),
            ((0, 2, [(0, 1), (1, 1)]), "two sequences have one row"),
            ((0, 2, [([0, 1], [2])]), "more blocks at one end"),
        ):
            with pytest.raises(TesseraError, match=words):
                runtime.move_rows(*given)
        with pytest.raises(TesseraError, match="2 numbers for 1 rows"):
            runtime.move_rows(0, 2, [(0, 1)], tokens=[1, 2])
        blocks = runtime.move_rows(0, 2, [([0, 3], [1, 2])])
        assert blocks.result(LIMIT_S).bytes == 2 * 2 * 8
    with pytest.raises(TesseraError, match="closed"):
        runtime.move_rows(0, 2, [(0, 1)]).result(LIMIT_S)


def test_a_canceled_move_moves_nothing() -> None:
    with Runtime(roles_plan(("a" * 2, "b" * 2)), backend="cpu") as runtime:
        known = Sequences(runtime, 1)
        known.begin(0)
        for _ in range(20):
            known.step(0)
        before = runtime.states(2)
        handle = runtime.move_rows(0, 2, [(row, row) for row in range(ROWS)])
        canceled = handle.cancel()
        known.step(2)
        known.look()
        if canceled:
            assert all(np.array_equal(before[n], s) for n, s in runtime.states(2).items())


class Victim:
    """A runtime of which a device process dies, stops, or is closed at a random moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.runtime = Runtime(roles_plan(), backend="cpu", time_limit_s=20.0)
        self.known = Sequences(self.runtime, seed)
        for lane in (0, 1):
            self.known.begin(lane)
            self.known.begin(lane)
            self.known.step(lane)
        self.known.look()

    def kill(self, replica: int) -> None:
        backend = self.runtime._serving._dispatchers[replica].backend
        device = self.rng.choice(list(backend._devices.values()))  # type: ignore[attr-defined]
        os.kill(device.process.pid, signal.SIGKILL)


def step_twice(known: Sequences, lane: int) -> None:
    for _ in range(2):
        known.step(lane)
        known.look()


def try_death(seed: int) -> bool:
    """Kill a device of one end while rows move; returns whether the move failed."""
    victim = Victim(seed)
    known, rng = victim.known, victim.rng
    lost = rng.randrange(2)
    with victim.runtime as runtime:
        timer = threading.Timer(rng.random() * 0.01, victim.kill, (lost,))
        timer.start()
        handles = [
            runtime.move_rows(lane, 2 + lane, [(row, row) for row in range(ROWS)])
            for lane in (0, 1)
            for _ in range(rng.randint(1, 4))
        ]
        failed = False
        for handle in handles:
            problem = handle.exception(LIMIT_S)
            if problem is not None:
                failed = True
                assert isinstance(problem, HandOverFault)
                assert problem.replica == lost
                assert any(
                    f"replica {lost} failed" in note for note in problem.diagnostics[0].notes
                )
        timer.join()
        # The other replica goes on, with what it had: tokens of its own sequences come out right.
        other = 0 if lost else 2
        known.rows = {lane: [None] * ROWS for lane in known.rows}
        known.begin(other)
        known.step(other)
        known.step(other)
        assert known.look() == 2
        with pytest.raises(ServiceFault):
            step_twice(known, 2 * lost)
        runtime.restart(2 * lost)
        known.checks.clear()
        known.rows = {lane: [None] * ROWS for lane in known.rows}
        for lane in (0, 1):
            known.begin(lane)
            known.step(lane)
        made = known.move(0, 2)
        assert made is not None
        made.result(LIMIT_S)
        known.step(2)
        known.look()
    return failed


@pytest.mark.parametrize("seed", share(range(3)))
def test_deaths_during_moves(seed: int) -> None:
    try_death(seed)


@pytest.mark.slow
def test_100_deaths_during_moves() -> None:
    assert sum(try_death(100 + seed) for seed in range(100)) > 30
