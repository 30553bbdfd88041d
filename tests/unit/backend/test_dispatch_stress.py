"""The host loop under many threads that do everything at once: nobody hangs, nothing is lost."""

from __future__ import annotations

import concurrent.futures
import logging
import random
import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import pytest

from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError, error
from tests.unit.backend.test_dispatch import Patient, Scripted

ENDS = ("drained", "at once", "fault", "by a callback")
PATIENCE_S = 300


class Crowd:
    """Threads that use one dispatcher, and one that ends requests in a random order."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seed = seed
        self.lanes = self.rng.randint(1, 6)
        kind = self.rng.choice([Patient, Patient, Scripted])
        self.backend = kind(self.rng.randint(1, 3))
        self.dispatcher = Dispatcher(
            self.backend, slots=self.rng.randint(1, 4), lanes=self.lanes, limit_s=PATIENCE_S
        )
        self.futures: list[RequestHandle[Any]] = []
        self.surprises: list[BaseException] = []
        self.over = threading.Event()

    def use(self, number: int) -> None:
        own = random.Random(1000 * self.seed + number)
        try:
            for _ in range(30):
                lane = own.randrange(self.lanes)
                future = self.dispatcher.submit({}, trace=0, lane=lane)
                self.futures.append(future)
                self.treat(future, own, lane)
        except TesseraError:
            return  # the end has come
        except BaseException as problem:
            self.surprises.append(problem)

    def treat(self, future: RequestHandle[Any], own: random.Random, lane: int) -> None:
        """One of the things that can be done with a future, or nothing."""
        others = own.sample(self.futures, min(3, len(self.futures)))
        try:
            match own.randrange(14):
                case 0 | 1 | 2:
                    future.result(PATIENCE_S)
                case 3:
                    future.result(own.random() * 1e-3)
                case 4 | 5:
                    future.cancel()
                case 6:
                    future.add_done_callback(lambda _: 1 / 0)
                case 7:
                    concurrent.futures.wait([future.future()], PATIENCE_S)
                case 8:
                    made = [one.future() for one in (future, *others)]
                    list(concurrent.futures.as_completed(made, PATIENCE_S))
                case 9:
                    future.done()
                case 10:
                    self.dispatcher.read_states(lane)
                case 11:
                    future.exception(PATIENCE_S)
        except (CancelledError, TimeoutError):
            return

    def work(self) -> None:
        own = random.Random(self.seed)
        while not self.over.is_set():
            if not self.backend.finish_one(own):
                time.sleep(2e-4)
            elif own.random() < 0.1:
                time.sleep(own.random() * 1e-3)

    def end(self, threads: list[threading.Thread], how: str) -> None:
        if how == "drained":
            for thread in threads:
                thread.join(PATIENCE_S)
        elif how == "fault":
            self.backend.refuse = ServiceFault(error("TSR5107", "no"))
        elif how == "by a callback":
            try:
                last = self.dispatcher.submit({}, trace=0, lane=0)
            except TesseraError:
                return
            last.add_done_callback(lambda _: self.dispatcher.close(wait=False))
        closer = threading.Thread(
            target=lambda: self.dispatcher.close(wait=how == "drained"), daemon=True
        )
        closer.start()
        for thread in (closer, *threads):
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), (self.seed, how)


def play(seed: int, how: str) -> None:
    crowd = Crowd(seed)
    threads = [
        threading.Thread(target=crowd.use, args=(number,), daemon=True)
        for number in range(crowd.rng.randint(1, 5))
    ]
    worker = threading.Thread(target=crowd.work, daemon=True)
    for thread in (worker, *threads):
        thread.start()
    try:
        time.sleep(crowd.rng.random() * 0.02)
        crowd.end(threads, how)
    finally:
        crowd.over.set()
    worker.join(PATIENCE_S)
    assert not crowd.surprises
    assert not crowd.backend.wrong
    assert crowd.backend.closed
    assert all(future.done() for future in crowd.futures)
    for lane in range(crowd.lanes):
        numbers = [one.number for one in crowd.backend.begun if one.lane == lane]
        assert numbers == sorted(numbers)
    if how == "drained":
        assert all(one.cancelled() or one.result(0) for one in crowd.futures)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callbacks that fail are logged."""
    monkeypatch.setattr(logging.getLogger("tessera.requests"), "disabled", True)


@pytest.mark.parametrize("how", ENDS)
def test_a_crowd(how: str) -> None:
    for seed in range(8):
        play(seed, how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("seed", range(100, 500, 50))
def test_many_crowds(seed: int, how: str) -> None:
    for number in range(seed, seed + 50):
        play(number, how)
