"""When the host looks whether a request is done: few looks, none of them late."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest

from tessera.backend.cuda.pace import Nap, Pace

OVERSLEEP_NS = 5_000


def follow(pace: Pace, took_ns: int) -> tuple[int, int]:
    """A request that somebody waits for from its start: how many naps, and how late it is found."""
    start = looked = now = 1_000_000
    for naps in itertools.count():
        if now >= start + took_ns:
            pace.learn(start, looked, now)
            return naps, now - start - took_ns
        looked = now
        now = pace.next_look(start, now) + OVERSLEEP_NS
    raise AssertionError


@pytest.mark.parametrize("took_ns", [30_000, 1_360_000, 8_600_000, 2_000_000_000])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_requests_that_take_as_long_as_those_before(took_ns: int, noise: float) -> None:
    rng, pace = random.Random(1), Pace()
    for _ in range(20):
        follow(pace, took_ns)
    found = [follow(pace, round(took_ns * rng.uniform(1 - noise, 1 + noise))) for _ in range(200)]
    assert sum(naps for naps, _ in found) / len(found) < (1.5 if not noise else 4)
    mean = sum(late for _, late in found) / len(found)
    assert mean < 40_000 + took_ns * noise


def test_one_that_is_not_known_is_late_by_an_eighth_at_most() -> None:
    for took_ns in (50_000, 700_000, 9_000_000, 5_000_000_000):
        naps, late = follow(Pace(), took_ns)
        assert late <= max(30_000, took_ns / 7)
        assert naps < 120


@pytest.mark.parametrize(("before", "after"), [(8_000_000, 1_000_000), (1_000_000, 8_000_000)])
def test_what_changes_is_learned(before: int, after: int) -> None:
    """A request that ends earlier than expected is found late only a few times."""
    pace = Pace()
    for _ in range(30):
        follow(pace, before)
    late = [follow(pace, after)[1] for _ in range(40)]
    assert all(one < 100_000 for one in late[-10:])


def test_who_comes_late_learns_nothing_wrong() -> None:
    pace = Pace()
    for _ in range(30):
        follow(pace, 1_000_000)
    known = pace.aim_ns
    pace.learn(start_ns=10, looked_ns=0, found_ns=50_000_000)  # nobody had looked at it
    assert pace.aim_ns == known


def test_a_nap_can_be_cut_short() -> None:
    nap = Nap()
    begun = time.perf_counter_ns()
    threading.Timer(0.05, lambda: nap.end_by(begun + 1)).start()
    assert nap.until(begun, begun + 5_000_000_000) - begun < 2_000_000_000
    nap.end_by(begun)  # nobody sleeps
    now = time.perf_counter_ns()
    assert nap.until(now, now + 30_000_000) - now > 10_000_000
    threading.Timer(0.01, lambda: nap.end_by(now + 10_000_000_000)).start()
    now = time.perf_counter_ns()
    assert nap.until(now, now + 60_000_000) - now > 30_000_000  # it ends soon enough by itself
