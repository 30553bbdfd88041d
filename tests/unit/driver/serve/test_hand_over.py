"""An engine whose replicas have roles: tokens equal a plain loop, whoever is handed over."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import error
from tessera.driver.serve import engine as engine_module
from tessera.driver.serve.engine import Engine
from tests.helpers.toy_runtime import CONTEXT, POISON, ToyRuntime, answer

LIMIT_S = 120
APART = ((0.0, 1.0), (1.0, 0.0))
MIXED = ((0.3, 0.9), (0.7, 0.1))
CASES: list[dict[str, Any]] = [
    {"roles": APART},
    {"roles": APART, "logits": False, "chains": True},
    {"roles": APART, "paged": True},
    {"roles": ((0.0, 0.5), (0.0, 0.5), (1.0, 0.0)), "rows": 2},
    {"roles": ((0.0, 1.0), (0.4, 0.0), (0.6, 0.0)), "paged": True, "rows": 2},
    {"roles": MIXED, "paged": True, "logits": False, "chains": True},
    {"roles": ((0.0, 0.7), (1.0, 0.3)), "rows": 2},
]
Open = Callable[..., Engine]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    monkeypatch.setattr(engine_module, "Runtime", ToyRuntime)
    monkeypatch.setattr(engine_module, "find_pays", lambda *_: None)
    engines: list[Engine] = []

    def make(**options: Any) -> Engine:
        declared = {"context": CONTEXT} | ({"block": 4} if options.get("paged") else {})
        engines.append(Engine("toy.tsp", steps=declared, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close(wait=False)


def serve_all(engine: Engine, seed: int, count: int = 40) -> int:
    """Answers of any length; every fifth is cancelled. Returns how many were whole."""
    draw = random.Random(seed)
    given = []
    for number in range(count):
        prompt = [draw.randrange(POISON) for _ in range(draw.randint(1, 12))]
        most = draw.randint(1, CONTEXT + 1 - len(prompt))
        given.append((prompt, most, engine.submit(prompt, max_tokens=most)))
        if number % 5 == 4:
            draw.choice(given)[2].cancel()
    whole = 0
    for prompt, most, own in given:
        tokens = own.result(LIMIT_S)
        assert tokens == answer(prompt, most)[: len(tokens)]
        assert own.ended in ("length", "cancelled")
        whole += own.ended == "length"
    return whole


def check_free(engine: Engine) -> None:
    """Nothing is left of any answer."""
    engine.close()
    assert not engine._scheduler.turns.moves
    for batch in engine._scheduler.batches:
        assert batch.used == 0
        assert batch.cache.room == engine.sizes.blocks


@pytest.mark.parametrize("options", CASES)
def test_tokens_are_those_of_a_plain_loop(opened: Open, options: dict[str, Any]) -> None:
    engine = opened(**options)
    assert serve_all(engine, 3) >= 30
    counts = engine.counts
    assert counts.hand_overs > 0
    assert counts.hand_over_bytes > 0
    decode, prefill = engine.runtime.traces.index("decode"), engine.runtime.traces.index("prefill")
    for name, sequence in engine.runtime.steps:  # type: ignore[attr-defined]
        assert options["roles"][sequence][decode if name == "decode" else prefill] > 0
    check_free(engine)


def test_an_answer_says_what_its_hand_over_took(opened: Open) -> None:
    engine = opened(roles=APART)
    given = engine.submit([1, 2, 3], max_tokens=5)
    given.result(LIMIT_S)
    served = given.served(0)
    assert served.hand_overs == 1
    assert served.handed_bytes == 3 * 8
    assert served.handed_ns > 0
    assert served.held_ns == 0  # prefill steps give the first token
    alone = engine.submit([1, 2, 3], max_tokens=1)
    alone.result(LIMIT_S)
    assert alone.served(0).hand_overs == 0  # its answer was whole before


def test_another_plan_takes_the_sequences_over(opened: Open) -> None:
    engine = opened(roles=APART)
    held = threading.Event()
    first: ToyRuntime = engine.runtime  # type: ignore[assignment]
    given = [engine.submit([n, n + 1], max_tokens=14) for n in range(3)]
    first.fragile = lambda what, _: what == "step" and held.wait(0.01) and None  # type: ignore
    while not all(own.tokens for own in given):
        pass
    engine.replace_plan("other")
    before = sum(len(own.tokens) for own in given)
    assert before < 3 * 14, "the plan before has not waited for their end"
    assert [own.result(LIMIT_S) for own in given] == [answer([n, n + 1], 14) for n in range(3)]
    assert first.closed
    check_free(engine)


# --- faults ---------------------------------------------------------------------------------------


class Dying:
    """Raises the fault of a dead process at random moments of hand-overs, so many times."""

    def __init__(self, seed: int, times: int) -> None:
        self.draw = random.Random(seed)
        self.left = times
        self.lock = threading.Lock()
        self.moments: list[str] = []

    def __call__(self, what: str, sequence: int) -> None:
        with self.lock:
            chance = 0.02 if what == "step" else 0.15
            if not self.left or self.draw.random() > chance:
                return
            self.left -= 1
            self.moments.append(what)
        fault = error("TSR5051", f"the process of sequence {sequence} was ended by signal 9")
        raise ServiceFault(fault, device=str(sequence))


@pytest.mark.parametrize("options", CASES)
def test_a_replica_that_dies_in_a_hand_over_loses_nothing(
    opened: Open, options: dict[str, Any]
) -> None:
    engine = opened(**options)
    dying = Dying(7, 6)
    engine.runtime.fragile = dying  # type: ignore[attr-defined]
    for seed in range(8):
        serve_all(engine, seed, count=20)
        if not dying.left:
            break
    assert len(dying.moments) == 6 >= engine.counts.restarts > 0
    assert {"take", "put"} & set(dying.moments)
    assert serve_all(engine, 50, count=10)
    check_free(engine)


def test_an_answer_in_whose_steps_replicas_die_again_and_again_ends(opened: Open) -> None:
    engine = opened(roles=APART)
    runtime: ToyRuntime = engine.runtime  # type: ignore[assignment]

    def die(what: str, sequence: int) -> None:
        if what == "step":
            raise ServiceFault(error("TSR5051", "the process ended"), device=str(sequence))

    runtime.fragile = die
    bad = engine.submit([1, 2], max_tokens=4)
    with pytest.raises(ServiceFault):
        bad.result(LIMIT_S)
    assert engine.counts.restarts == 3
    runtime.fragile = lambda *_: None
    assert engine.submit([1, 2], max_tokens=4).result(LIMIT_S) == answer([1, 2], 4)
