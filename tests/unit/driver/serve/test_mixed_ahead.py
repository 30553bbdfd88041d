"""Mixed steps handed over ahead: tokens are those of a plain loop, whoever joins, stops and leaves.

The toy's steps wait until they are let go, so that the engine is always ahead of them.
"""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import error
from tests.helpers.toy_runtime import CONTEXT, POISON, answer
from tests.unit.driver.serve.test_engine import AHEAD, Open, opened

__all__ = ["opened"]


@pytest.mark.parametrize("seed", range(6))
def test_tokens_are_the_same_ahead_and_not(opened: Open, seed: int) -> None:
    """Prompts that begin alike, a cache that is too small for all rows, stops and cancellations."""
    draw = random.Random(seed)
    begun = [draw.randrange(POISON) for _ in range(9)]
    rows = draw.randint(1, 4)
    options = {**AHEAD, "rows": rows, "mixed": (rows, rows + draw.randint(1, 9))}
    engine = opened(**options, look_ahead=seed != 5)
    runtime: Any = engine.runtime
    asked = []
    for _ in range(50):
        own = [draw.randrange(POISON) for _ in range(draw.randint(1, 4))]
        prompt = begun[: draw.randint(0, 9)] + own
        count = draw.randint(1, CONTEXT + 1 - len(prompt))
        whole = answer(prompt, count)
        stop = draw.choice(whole) if draw.random() < 0.3 else None
        wanted = whole if stop is None else whole[: whole.index(stop)]
        given = engine.submit(prompt, max_tokens=count, stop=[] if stop is None else [stop])
        asked.append((given, wanted))
        if draw.random() < 0.15:
            draw.choice(asked)[0].cancel()
    for given, wanted in asked:
        tokens = given.result(300)
        assert tokens == wanted[: len(tokens)]
        assert given.ended == "cancelled" or tokens == wanted
    assert engine.reused_tokens > 0
    assert engine.blocks == (0, 8)
    assert runtime.chained == engine.steps_ahead
    assert (runtime.chained > 0) == (seed != 5)


def test_the_device_never_waits_for_the_host(opened: Open) -> None:
    """While a step runs, the next one is queued: prompts that came before it began are in it."""
    engine = opened(**AHEAD, mixed=(3, 8))
    runtime: Any = engine.runtime
    go = threading.Semaphore(0)
    runtime.fragile = lambda *_: go.acquire()
    wanted = [([n, n + 1, n + 2, 5, 7, 9], 6 - n) for n in range(3)]
    asked = [engine.submit(prompt, max_tokens=count) for prompt, count in wanted]
    until = time.monotonic() + 300
    while runtime.most_under_way < 2 and time.monotonic() < until:
        time.sleep(0.001)  # the first step waits meanwhile, and the next one is handed over
    while not all(given.done() for given in asked):
        go.release()
    assert [given.result(300) for given in asked] == [answer(p, c) for p, c in wanted]
    steps = sum(engine.steps_done.values())
    assert engine.steps_ahead >= steps - 2
    assert runtime.most_under_way == 2


CODES = ("TSR5051", "TSR5072", "TSR5052")
"""A process was killed, a host is cut off, a device is frozen."""


def survive(opened: Open, seed: int, faults: int, often: float = 0.04) -> int:
    """Faults at random steps: all answers have their tokens, though blocks were being written.

    Returns how many ended because the same step of theirs faulted three times, by chance.
    """
    draw = random.Random(seed)
    rows = draw.randint(1, 4)
    options = {**AHEAD, "rows": rows, "mixed": (rows, rows + draw.randint(1, 9))}
    engine = opened(**{**options, "batches": 1 + seed % 2})
    runtime: Any = engine.runtime
    left = [faults]

    def fragile(what: str, sequence: int) -> None:
        if left[0] and draw.random() < often:
            left[0] -= 1
            raise ServiceFault(error(draw.choice(CODES), "it is gone"), device=str(sequence))

    runtime.fragile = fragile
    begun = [draw.randrange(POISON) for _ in range(9)]
    lost = 0
    while left[0]:
        asked = []
        for _ in range(12):
            prompt = [*begun[: draw.randint(0, 9)], draw.randrange(POISON)]
            count = draw.randint(1, CONTEXT + 1 - len(prompt))
            asked.append((engine.submit(prompt, max_tokens=count), answer(prompt, count)))
        for given, wanted in asked:
            try:
                assert given.result(300) == wanted
            except ServiceFault:
                assert given.strikes > 2
                lost += 1
    assert engine.counts.restarts > faults / 3  # steps of one group may fault together
    assert engine.blocks[0] == 0
    return lost


@pytest.mark.parametrize("seed", range(4))
def test_no_answer_is_lost(opened: Open, seed: int) -> None:
    assert survive(opened, seed, 12) <= 1


@pytest.mark.slow
def test_no_answer_is_lost_in_1000_faults(opened: Open) -> None:
    assert sum(survive(opened, seed, 20, 0.01) for seed in range(50)) <= 3
