"""Plans of the example steps whose replicas have roles, and their answers; replicas that die."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from unittest import mock

from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.hand_overs import HandOvers
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.plan import Plan
from tests.helpers.corpus import ROOT
from tests.helpers.plan_files import plan_with_roles
from tests.helpers.tiny_model import tiny_answer

TRACES = ROOT / "examples" / "traces"
ANSWERS: dict[str, list[dict[str, list[int]]]] = json.loads(
    (TRACES / "generated.json").read_text("utf-8")
)
APART = ((1.0, 0.0), (0.0, 1.0))
LIMIT_S = 300.0


def role_plan(
    name: str,
    shares: Sequence[Sequence[float]] = APART,
    *,
    lanes: int = 1,
    hosts: Mapping[str, str] | None = None,
) -> Plan:
    """The steps of an example, each replica on a device of its own with shares of prefill and
    decode."""
    paths = [TRACES / f"{name}_steps_{kind}.ptx" for kind in ("prefill", "decode")]
    programs = [parse_trace(path.read_text("utf-8"), path.name) for path in paths]
    placements = [
        [
            [device] * len(list(program.work())) if share > 0 else None
            for program, share in zip(programs, own, strict=True)
        ]
        for device, own in zip("abcd", shares, strict=False)
    ]
    plan = plan_with_roles(programs, placements, shares, lanes=lanes, hosts=hosts)
    named = zip(plan.traces, paths, strict=True)
    return replace(
        plan, traces=tuple(replace(t, name=path.stem, folder=str(TRACES)) for t, path in named)
    )


Cases = Callable[[random.Random], tuple[list[int], list[int]]]
"""Draws a prompt and its answer."""


def example_cases(name: str) -> Cases:
    """Prompts of an example, with the answers of another program."""

    def draw_case(draw: random.Random) -> tuple[list[int], list[int]]:
        case = draw.choice(ANSWERS[name])
        return case["prompt"], case["answer"][: draw.randint(1, len(case["answer"]))]

    return draw_case


def tiny_cases(draw: random.Random) -> tuple[list[int], list[int]]:
    """Prompts for the tiny model, with the answers of a plain loop."""
    prompt = [draw.randrange(47) for _ in range(draw.randint(1, 9))]
    return prompt, tiny_answer(prompt, draw.randint(1, 9))


def serve_answers(engine: Engine, cases: Cases, seed: int, count: int) -> int:
    """Prompts that join, leave and are cancelled: tokens are what they should be.

    Returns how many were answered to their end.
    """
    draw = random.Random(seed)
    asked: list[tuple[Generation, list[int]]] = []
    for number in range(count):
        prompt, expected = cases(draw)
        asked.append((engine.submit(prompt, max_tokens=len(expected)), expected))
        if number % 5 == 4:
            draw.choice(asked)[0].cancel()
    whole = 0
    for given, expected in asked:
        tokens = given.result(LIMIT_S)
        assert given.ended in ("length", "cancelled")
        assert tokens == (expected if given.ended == "length" else expected[: len(tokens)])
        whole += given.ended == "length"
    return whole


def processes_of(runtime: Runtime, sequence: int) -> list[int]:
    """The processes of the devices of a sequence's replica."""
    replica, _ = runtime._serving.sequences[sequence]
    backend: Any = runtime._serving._dispatchers[replica].backend
    if hasattr(backend, "_links"):
        return [link.process.pid for link in backend._links.values()]
    return [device.process.pid for device in backend._devices.values()]


@contextmanager
def deaths_in_hand_overs(
    engine: Engine, seed: int, chance: float, most: int
) -> Iterator[list[int]]:
    """Kill one of the two replicas of some hand-overs, at random moments of them."""
    draw = random.Random(seed)
    killed: list[int] = []
    begin = HandOvers.begin

    def begin_and_kill(self: HandOvers, moves: Any, sizes: Any) -> None:
        if draw.random() < chance and len(killed) < most:
            victim = draw.choice((moves[0].source, moves[0].target))
            killed.append(victim)
            pids = processes_of(engine.runtime, victim)
            delay_s = draw.choice((0.0, 0.0, 0.0005, 0.001, 0.002, 0.004))
            if delay_s:
                timer = threading.Timer(delay_s, _kill, (pids,))
                timer.daemon = True
                timer.start()
            elif draw.random() < 0.5:
                _kill(pids)
            else:
                threading.Thread(target=_kill, args=(pids,), daemon=True).start()
        begin(self, moves, sizes)

    with mock.patch.object(HandOvers, "begin", begin_and_kill):
        yield killed


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def check_nothing_left(engine: Engine) -> None:
    """After the engine is closed, no row and no block belongs to anyone."""
    engine.close()
    assert not engine._scheduler.turns.moves
    for batch in engine._scheduler.batches:
        assert (batch.used, batch.cache.room) == (0, engine.sizes.blocks)
