"""When the host looks whether a request is done: few looks, none of them late."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections import deque

import pytest

from tessera.backend.cuda.pace import AWAKE_NS, FAR_NS, Nap, Pace

OVERSLEEP_NS = 5_000


class Host:
    """A thread that waits for requests as the backend does, on a clock of its own.

    Naps end a little late, some of them early; `depth` requests are under way.
    """

    def __init__(self, depth: int = 1, *, is_alone: bool = False) -> None:
        self.pace, self.rng = Pace(is_alone=is_alone), random.Random(1)
        self.now = self.gpu_free = self.free = 1_000_000
        self.depth = depth
        self.queue: deque[tuple[int, int]] = deque()

    def follow(self, took_ns: int) -> tuple[int, int]:
        """One more request that takes so long; naps until the oldest is found, and how late."""
        while len(self.queue) < self.depth:
            self.gpu_free = max(self.gpu_free, self.now) + took_ns
            self.queue.append((self.now, self.gpu_free))
        begun, end = self.queue.popleft()
        start, looked, naps = max(begun, self.free), 0, 0
        while self.now < end:
            watched, before, looked = start + self.pace.aim_ns - AWAKE_NS, looked, self.now
            if before < watched <= self.now:
                self.now = min(max(end, self.now), self.now + AWAKE_NS)
                looked = min(self.now, end - 1)
                if self.now >= end:
                    continue
            late = self.rng.choice((-15_000, 0, OVERSLEEP_NS, 15_000))
            self.now = max(self.pace.next_look(start, self.now) + late, self.now + 5_000)
            naps += 1
        self.free = self.pace.learn(start, looked, self.now, queued=start > begun)
        return naps, self.now - end


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("took_ns", [30_000, 1_360_000, 8_600_000, 2_000_000_000])
@pytest.mark.parametrize("noise", [0.0, 0.005])
def test_requests_that_take_as_long_as_those_before(took_ns: int, noise: float, depth: int) -> None:
    rng, host = random.Random(1), Host(depth)
    for _ in range(60):
        host.follow(took_ns)
    found = [host.follow(round(took_ns * rng.uniform(1 - noise, 1 + noise))) for _ in range(300)]
    most = 12 if took_ns > 1e9 else 2 if noise else 1.15
    assert sum(naps for naps, _ in found) / len(found) < most
    mean = sum(late for _, late in found) / len(found)
    assert mean < 30_000 + took_ns / 1000 + 2 * took_ns * noise


def test_one_that_is_not_known_is_late_by_an_eighth_at_most() -> None:
    for took_ns in (50_000, 700_000, 9_000_000, 5_000_000_000):
        naps, late = Host().follow(took_ns)
        assert late <= max(30_000, took_ns / 7)
        assert naps < 120


def test_requests_alone_are_found_after_many_side_by_side() -> None:
    """Those before shared the GPU, and took many times as long."""
    host = Host(is_alone=True)
    for _ in range(30):
        host.follow(9_000_000)
    found = [host.follow(1_300_000) for _ in range(30)]
    assert found[0][1] < 8_000_000
    assert found[4][1] < 300_000
    assert statistics.fmean(late for _, late in found[5:]) < 40_000
    assert statistics.fmean(naps for naps, _ in found[5:]) < 4


def test_requests_alone_are_not_late_after_one_that_others_followed() -> None:
    host = Host(is_alone=True)
    for _ in range(10):
        host.follow(1_300_000)
    for _ in range(10):
        host.follow(5_200_000)
        assert host.follow(1_300_000)[1] < 1_300_000 / 2
        assert host.follow(1_300_000)[1] < 200_000


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize(("before", "after"), [(8_000_000, 1_000_000), (1_000_000, 8_000_000)])
def test_what_changes_is_learned(before: int, after: int, depth: int) -> None:
    """A request that ends earlier than expected is found late only a few times."""
    host = Host(depth)
    for _ in range(30):
        host.follow(before)
    late = [host.follow(after)[1] for _ in range(60)]
    assert statistics.median(late[-20:]) < 100_000


@pytest.mark.parametrize("depth", [1, 4])
def test_what_nobody_waits_for_teaches_nothing_wrong(depth: int) -> None:
    host = Host(depth)
    for _ in range(60):
        host.follow(1_000_000)
    for _ in range(100):
        host.now += 5_000_000 * depth  # busy with other things, so that all are done by now
        host.follow(1_000_000)
    assert 900_000 < host.pace.aim_ns < 1_100_000


def test_several_that_end_while_the_host_is_held_up() -> None:
    """They seem to have ended one right after the other; they take as long as before."""
    host = Host(4)
    for _ in range(60):
        host.follow(1_000_000)
    for _ in range(10):
        host.now += 3_500_000
        for _ in range(6):
            host.follow(1_000_000)
    assert 900_000 < host.pace.aim_ns < 1_100_000


def test_a_nap_can_be_cut_short() -> None:
    nap = Nap()
    begun = time.perf_counter_ns()
    threading.Timer(0.05, lambda: nap.end_by(begun + 1)).start()
    assert nap.sleep(begun, begun + 600_000_000_000) - begun < 300_000_000_000
    nap.until_ns = 0
    nap.end_by(begun)  # nobody sleeps
    now = time.perf_counter_ns()
    assert nap.sleep(now, now + 30_000_000) - now > 10_000_000
    threading.Timer(0.01, lambda: nap.end_by(now + 600_000_000_000)).start()
    now = time.perf_counter_ns()
    assert nap.sleep(now, now + 60_000_000) - now > 30_000_000  # it ends soon enough by itself


def test_what_comes_while_the_thread_looks_is_not_missed() -> None:
    nap = Nap()
    nap.until_ns = FAR_NS
    nap.end_by(time.perf_counter_ns())
    now = time.perf_counter_ns()
    assert nap.sleep(now, now + 600_000_000_000) - now < 300_000_000_000
