"""`bench_text`: send requests for text at given times to a running engine.

In: an engine and arrivals. Out: a `ServingReport` like that of `simulate_text`, so that the two can
be compared. Prompts are drawn from a seed; every answer has exactly as many tokens as its arrival
states, so no token ends it early.
"""

from __future__ import annotations

import json
import random
import threading
import time

from tessera.diagnostics import TesseraError
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.follow import Wanted, refusals
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.measures import AnswerEnd, Served, ServingReport
from tessera.driver.serve.options import ArrivingText
from tessera.ir.progress import OnProgress, counter
from tessera.ir.text_digest import text_digest

_LOOK_S = 0.05
_TOKENS = 64
"""Size of the vocabulary that prompts are drawn from if the steps do not state one."""


def bench_text(
    engine: Engine, name: str, arriving: ArrivingText, on_progress: OnProgress | None = None
) -> ServingReport:
    """Send every request at its time, and wait for all answers."""
    wanted = arriving.wanted(arriving.read())
    draw = random.Random(arriving.seed)
    vocabulary = engine.model.vocabulary or _TOKENS
    before, reused, preempted = dict(engine.steps_done), engine.reused_tokens, engine.preempted
    watch = QueueWatch(engine)
    sent: list[Generation | None] = []
    tell = counter(on_progress, "sending", "requests")
    origin_ns = time.monotonic_ns()
    with watch:
        for number, request in enumerate(wanted):
            left_s = request.at_ns / 1e9 - (time.monotonic_ns() - origin_ns) / 1e9
            if left_s > 0:
                time.sleep(left_s)
            tell(number, len(wanted))
            if not engine.sizes.holds(request.prompt, request.answer):
                sent.append(None)  # drawing its tokens would only take memory
                continue
            tokens = _drawn(request, arriving.seed, vocabulary, draw)
            sent.append(_send(engine, tokens, request))
        for answer in sent:
            if answer is not None:
                _wait(answer)
    steps = {trace: count - before[trace] for trace, count in engine.steps_done.items()}
    return ServingReport(
        name=name,
        source="measured",
        requests=[
            _served(request, answer, origin_ns)
            for request, answer in zip(wanted, sent, strict=True)
        ],
        waiting=[(at - origin_ns, count) for at, count in watch.moments],
        steps=steps,
        slo=arriving.slo,
        notes=(
            f"measured on the {engine.runtime.backend} backend, from within this process",
            *refusals(engine.sizes, wanted),
        ),
        switches=[(at - origin_ns, policy) for at, policy in engine.switches],
        reused=engine.reused_tokens - reused,
        preempted=engine.preempted - preempted,
        answers_digest=text_digest(json.dumps([answer and answer.tokens for answer in sent])),
    )


def _drawn(request: Wanted, seed: int, vocabulary: int, draw: random.Random) -> list[int]:
    """Random tokens for a prompt; equal pieces have equal tokens."""
    tokens: list[int] = []
    for piece in request.pieces:
        own = random.Random(f"{seed}/{piece}")
        tokens += [own.randrange(vocabulary) for _ in range(request.piece)]
    tokens += [draw.randrange(vocabulary) for _ in range(request.prompt - len(tokens))]
    return tokens[: request.prompt]


def _send(engine: Engine, tokens: list[int], request: Wanted) -> Generation | None:
    try:
        return engine.submit(tokens, max_tokens=request.answer, ignore_end=True)
    except TesseraError as problem:
        if problem.diagnostics[0].code in ("TSR5064", "TSR5065"):
            return None
        raise


def _wait(answer: Generation) -> None:
    try:
        answer.result()
    except TesseraError:
        if answer.ended is not AnswerEnd.FAULT:
            raise


def _served(request: Wanted, answer: Generation | None, origin_ns: int) -> Served:
    """The result of a request, timed from when it was due, even if it was sent late."""
    if answer is None:
        return Served(
            request.at_ns, request.prompt, request.answer, -1, request.at_ns, AnswerEnd.REFUSED
        )
    served = answer.served(origin_ns)
    served.came_ns = request.at_ns
    return served


class QueueWatch:
    """Samples the number of waiting prompts every 50 ms."""

    def __init__(self, engine: Engine) -> None:
        self.moments: list[tuple[int, int]] = []
        self._engine = engine
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> QueueWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            waiting = self._engine.waiting
            if not self.moments or self.moments[-1][1] != waiting:
                self.moments.append((time.monotonic_ns(), waiting))
