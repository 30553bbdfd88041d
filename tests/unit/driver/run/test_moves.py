"""Rows of states that go from one replica to another while both serve, and replicas that die."""

from __future__ import annotations

import os
import random
import signal
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.lane_states import copy_table, strips_of
from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.run import serving
from tessera.driver.run.moves import HandOverFault
from tessera.driver.run.runtime import Runtime
from tessera.ir.plan.hand_over import MovedSpan
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.fake_gpu_python import fake_gpu_python
from tests.helpers.handed_rows import LIMIT_S, ROWS, Sequences, hand_rows, roles_plan
from tests.helpers.host_runs import backends_of, hosts_file
from tests.helpers.share import share

PLACES = [("ab", "cd"), ("aa", "ba"), ("ab", "ba")]


@pytest.mark.parametrize("seed", share(range(3)))
def test_sequences_go_on_elsewhere(seed: int) -> None:
    with Runtime(roles_plan(PLACES[seed]), backend="cpu") as runtime:
        assert sum(hand_rows(runtime, 10 * seed + number) for number in range(3)) > 3


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda()
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    monkeypatch.setattr("tessera.backend.cuda.backend._LOOK_S", 1e-4)
    monkeypatch.setattr(serving, "CHILD_BOOT", "tests.helpers.boot_fake_cuda")
    return made


def test_gpus_of_one_process_copy_from_memory_to_memory(fake: FakeCuda) -> None:
    targets = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
    with Runtime(roles_plan(("ab", "ba")), backend="cuda", targets=targets) as runtime:
        before, launched = fake.copied_bytes, len(fake.launched)
        handle = runtime.move_rows(0, 2, [(0, 1), (3, 2)])
        assert handle.result(LIMIT_S).bytes == 4 * 8
        assert ("copy_ranges", 84) in fake.launched[launched:]
        assert fake.copied_bytes - before == 4 * 8
        assert sum(hand_rows(runtime, 5 + number) for number in range(2)) > 3


def test_a_table_of_copies_is_the_same_bytes() -> None:
    rng = random.Random(2)
    for _ in range(50):
        spans = [(rng.randrange(9), rng.randrange(9), rng.randint(1, 9000)) for _ in range(5)]
        rows = [(1 << 40, 1 << 41, spans[:2]), (5, 7, spans[2:])]
        wanted = [
            (source + a + at, target + b + at)
            for source, target, own in rows
            for a, b, size in own
            for at in range(size)
        ]
        table = copy_table(rows).tolist()
        assert [(a + n, b + n) for a, b, size in table for n in range(size)] == wanted
        assert max(size for _, _, size in table) <= 4096


def test_strips_are_the_same_bytes() -> None:
    rng = random.Random(1)
    for _ in range(300):
        spans: list[MovedSpan] = []
        here = there = 0
        while len(spans) < rng.randint(0, 12):
            size, gaps = rng.randint(1, 3), (rng.randint(0, 2), rng.randint(-9, 2))
            for _ in range(rng.randint(1, 5)):
                spans.append((here, there, size))
                here, there = here + size + gaps[0], there + size + gaps[1]
        strips = list(strips_of(spans))
        assert [span for strip in strips for span in strip] == spans
        for strip in strips:
            apart = {(b[0] - a[0], b[1] - a[1], b[2]) for a, b in pairwise(strip)}
            assert len(apart) <= 1
            assert all(min(x, y) >= size == strip[0][2] for x, y, size in apart)
    assert [len(s) for s in strips_of([(0, 4, 2), (3, 9, 2), (6, 14, 2), (9, 20, 2)])] == [3, 1]


@pytest.mark.slow
def test_processes_of_replicas_on_gpus(fake: FakeCuda) -> None:
    targets = {"a": "cuda:0", "b": "cuda:0"}
    plan = roles_plan(("aa", "bb"))
    with Runtime(plan, backend="cuda", targets=targets, isolated=True) as runtime:
        assert len(runtime.processes()) == 2
        assert hand_rows(runtime, 3, rounds=60) > 3
        os.kill(runtime.processes()[0], signal.SIGKILL)
        problem = runtime.move_rows(0, 2, [(0, 0)]).exception(LIMIT_S)
        assert isinstance(problem, HandOverFault)
        assert problem.replica == 0
        runtime.restart(0)
        assert hand_rows(runtime, 4) > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_over_hosts(tmp_path: Path, kind: str) -> None:
    python = "" if kind == "cpu" else f'\npython = "{fake_gpu_python(tmp_path)}"'
    rows = [
        f'name = "{name}"\ndevices = [{devices}]{python}'
        for name, devices in (("left", '"a", "c"'), ("right", '"b", "d"'))
    ]
    hosts = hosts_file(tmp_path, *rows, head='silent = "20s"\n')
    targets = None if kind == "cpu" else dict.fromkeys("abcd", "cuda:0")
    with Runtime(roles_plan(), hosts=hosts, backend=kind, targets=targets) as runtime:
        assert hand_rows(runtime, 3, rounds=40) > 2
        first, _ = backends_of(runtime)
        assert first._doors
        assert all(first._doors.values())
        os.kill(first._links["b"].process.pid, signal.SIGKILL)
        handles = [runtime.move_rows(0, 2, [(row, row)]) for row in range(ROWS)]
        for handle in handles:
            problem = handle.exception(LIMIT_S)
            assert problem is None or (isinstance(problem, HandOverFault) and problem.replica == 0)
        assert handles[-1].exception() is not None
        runtime.restart(0)
        assert hand_rows(runtime, 4) > 0


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
    """A runtime of which the process of a device is killed at a random moment."""

    def __init__(self, seed: int, hosts: KeptHosts | None = None) -> None:
        self.rng = random.Random(seed)
        self.runtime = Runtime(roles_plan(), backend="cpu", time_limit_s=20.0, hosts=hosts)
        self.known = Sequences(self.runtime, seed)
        for lane in (0, 1):
            self.known.begin(lane)
            self.known.begin(lane)
            self.known.step(lane)
        self.known.look()

    def kill(self, replica: int) -> None:
        backend = self.runtime._serving._dispatchers[replica].backend
        processes = getattr(backend, "_devices", None) or getattr(backend, "_links", {})
        device = self.rng.choice(list(processes.values()))
        os.kill(device.process.pid, signal.SIGKILL)


def step_twice(known: Sequences, lane: int) -> None:
    for _ in range(2):
        known.step(lane)
        known.look()


def try_death(seed: int, hosts: KeptHosts | None = None) -> bool:
    """Kill a device of one end while rows move; returns whether the move failed."""
    victim = Victim(seed, hosts)
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


@pytest.mark.slow
def test_100_deaths_during_moves_over_hosts(tmp_path: Path) -> None:
    rows = ('name = "left"\ndevices = ["a", "c"]', 'name = "right"\ndevices = ["b", "d"]')
    with KeptHosts(hosts_file(tmp_path, *rows, head='silent = "60s"\n')) as hosts:
        assert sum(try_death(100 + seed, hosts) for seed in range(100)) > 30
