"""Time per token while prompts come in: prefill and decode on slices, and on the whole GPU.

For `benchmarks.serving.h200`. The same requests at the same times, served three ways by plain loops
over `tessera.Runtime`, so that nothing but the devices differs:

- whole: one GPU. After each decode step of all rows comes one chunk of the first prompt in line.
  Both are handed over before the one before has ended: the GPU does not wait for the host.
- slices: prompts on one slice, decode steps on the other, at the same time. The cache of a prompt
  is copied to the other slice's replica, on the stream of its decode steps, before it decodes.

Tokens per second are those that were asked for, so they are equal. `tpot` is the time per token of
a request after its first, `gap` the time between any two tokens that follow each other.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(slots=True)
class Asked:
    """A request on its way."""

    at_s: float
    row: int = -1
    filled: int = 0
    tokens: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes: tokens of prompts and answers, rows of a decode step, chunk of a prefill step."""

    prompt: int
    answer: int
    rows: int
    vocabulary: int


class Steps:
    """Steps of one sequence of a runtime."""

    def __init__(self, runtime: Any, sequence: int, shape: Shape) -> None:
        self.runtime = runtime
        self.sequence = sequence
        self.shape = shape
        draw = np.random.default_rng(0)
        self._words = draw.integers(0, shape.vocabulary, 4096)
        self._tokens = np.zeros((shape.rows, 1), np.int64)

    def decode(self, rows: dict[int, Asked]) -> Any:
        """All rows, each at its place; those that are not there write where they may."""
        places = np.zeros(self.shape.rows, np.int64)
        for row, asked in rows.items():
            places[row] = self.shape.prompt + len(asked.tokens) - 1
        given = {"tokens": self._tokens, "positions": places}
        return self.runtime.submit(given, sequence=self.sequence, trace="decode")

    def take(self, handle: Any) -> None:
        """The tokens of a decode step go into the next."""
        result = handle.result()
        (name,) = result
        self._tokens = np.array(result[name]).reshape(-1, 1)

    def prefill(self, asked: Asked, trace: str, chunk: int) -> Any:
        """The next chunk of a prompt."""
        count = min(chunk, self.shape.prompt - asked.filled)
        words = np.zeros((1, chunk), np.int64)
        words[0, :count] = self._words[asked.filled : asked.filled + count]
        given = {
            "tokens": words,
            "positions": np.array([asked.filled]),
            "rows": np.array([asked.row]),
            "lengths": np.array([count]),
        }
        asked.filled += count
        return self.runtime.submit(given, sequence=self.sequence, trace=trace)

    def time_decode(self, count: int) -> float:
        """Seconds of a decode step, back to back."""
        rows = {row: Asked(0.0, row, tokens=[0.0]) for row in range(self.shape.rows)}
        return timed(lambda: self.decode(rows), count)

    def time_prefill(self, trace: str, chunk: int, count: int) -> float:
        """Seconds of a prefill step, back to back."""
        return timed(lambda: self.prefill(Asked(0.0, 0), trace, chunk), count)


def timed(submit: Callable[[], Any], count: int) -> float:
    submit().result()
    begun = time.perf_counter()
    pending: deque[Any] = deque()
    for _ in range(count):
        pending.append(submit())
        if len(pending) > 1:
            pending.popleft().result()
    while pending:
        pending.popleft().result()
    return (time.perf_counter() - begun) / count


def arrivals(rate: float, seconds: float, seed: int = 0) -> list[float]:
    """Times at which requests come, at random."""
    draw = random.Random(seed)
    times, at = [], 0.0
    while (at := at + draw.expovariate(rate)) < seconds:
        times.append(at)
    return times


class Line:
    """Requests that have come, and rows that are free."""

    def __init__(self, times: Sequence[float], rows: int) -> None:
        self.coming = deque(Asked(at) for at in times)
        self.free = list(range(rows))
        self.left = len(times)
        self.begun = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self.begun

    def next(self) -> Asked | None:
        """The first that has come, if there is a row for it."""
        if not self.coming or not self.free or self.coming[0].at_s > self.now():
            return None
        asked = self.coming.popleft()
        asked.row = heapq.heappop(self.free)
        return asked

    def ended(self, rows: dict[int, Asked], answer: int) -> None:
        """Every row has a token more; rows that have all are free again."""
        now = self.now()
        for row, asked in list(rows.items()):
            asked.tokens.append(now)
            if len(asked.tokens) >= answer:
                del rows[row]
                heapq.heappush(self.free, row)
                self.left -= 1

    def rest(self) -> None:
        """Nothing is under way: until the next one comes."""
        if self.coming:
            time.sleep(min(max(self.coming[0].at_s - self.now(), 0.0), 0.002))


def serve_whole(
    steps: Steps, times: Sequence[float], trace: str, chunk: int, limit_s: float
) -> list[Asked]:
    """A chunk after each decode step, where a prompt is there."""
    line, shape = Line(times, steps.shape.rows), steps.shape
    served = list(line.coming)
    filling: Asked | None = None
    joining: list[Asked] = []
    rows: dict[int, Asked] = {}
    decoding = taking = filled = None
    while line.left and line.now() < limit_s:
        if decoding is not None:
            steps.take(decoding)
            line.ended(taking or {}, shape.answer)
            for row in [row for row in rows if row not in (taking or {})]:
                del rows[row]
            decoding = None
        for asked in joining:
            rows[asked.row] = asked
        joining.clear()
        if rows:
            decoding, taking = steps.decode(rows), dict(rows)
        if filled is not None and filling is not None:
            filled.result()
            filled = None
            if filling.filled >= shape.prompt:
                filling.tokens.append(line.now())
                joining.append(filling)
                filling = None
        filling = filling or line.next()
        if filling is not None:
            filled = steps.prefill(filling, trace, chunk)
        if decoding is None and filled is None and not joining:
            line.rest()
    return served


def serve_slices(
    prompts: Steps,
    answers: Steps,
    times: Sequence[float],
    trace: str,
    chunk: int,
    move: Callable[[int], None],
    limit_s: float,
) -> list[Asked]:
    """Two threads: one fills, one decodes."""
    shape = answers.shape
    line = Line(times, shape.rows)
    served = list(line.coming)
    ready: deque[Asked] = deque()
    failed: list[BaseException] = []
    over = threading.Event()

    def fill() -> None:
        try:
            while not over.is_set() and line.coming:
                asked = line.next()
                if asked is None:
                    line.rest()
                    continue
                pending: deque[Any] = deque()
                while asked.filled < shape.prompt:
                    pending.append(prompts.prefill(asked, trace, chunk))
                    if len(pending) > 2:
                        pending.popleft().result()
                while pending:
                    pending.popleft().result()
                asked.tokens.append(line.now())
                ready.append(asked)
        except BaseException as problem:
            failed.append(problem)
            over.set()

    thread = threading.Thread(target=fill)
    thread.start()
    rows: dict[int, Asked] = {}
    try:
        while line.left and not over.is_set() and line.now() < limit_s:
            while ready:
                asked = ready.popleft()
                move(asked.row)
                rows[asked.row] = asked
            if rows:
                steps = answers.decode(rows)
                answers.take(steps)
                line.ended(rows, shape.answer)
            else:
                time.sleep(0.0002)
    finally:
        over.set()
        thread.join()
    if failed:
        raise failed[0]
    return served


def figures(served: Iterable[Asked], shape: Shape, seconds: float) -> dict[str, Any]:
    """Of requests that came after the first fifth and have ended."""
    requests = list(served)
    whole = [r for r in requests if len(r.tokens) == shape.answer]
    counted = [r for r in whole if r.at_s > seconds / 5]
    tpot = sorted((r.tokens[-1] - r.tokens[0]) / (shape.answer - 1) for r in counted)
    gaps = sorted(b - a for r in counted for a, b in zip(r.tokens, r.tokens[1:], strict=False))
    first = sorted(r.tokens[0] - r.at_s for r in counted)
    last = max((r.tokens[-1] for r in whole), default=seconds)
    named = {"tpot": tpot, "gap": gaps, "ttft": first}
    return {
        "requests": len(requests),
        "whole": len(whole),
        "tokens_per_s": round(len(whole) * (shape.prompt + shape.answer) / last, 1),
        **{
            f"{name}_{label}_ms": round(values[int(share * (len(values) - 1))] * 1e3, 3)
            for name, values in named.items()
            if values
            for label, share in (("p50", 0.5), ("p99", 0.99))
        },
    }


def mover(runtime: Any, shape: Shape) -> Callable[[int], None]:
    """Copies a row of all states from the first replica to the second."""
    backends = [runtime._serving._dispatchers[number].backend for number in (0, 1)]
    if not hasattr(backends[0], "replica"):

        def by_host(row: int) -> None:
            held = runtime.states(0)
            runtime.set_states({k: v[row] for k, v in held.items()}, 1, rows=row)

        return by_host
    trace = list(runtime.traces).index("decode")
    program = runtime.programs[trace]
    copies = []
    for buffer in program.buffers:
        if buffer.role.value != "state":
            continue
        addresses = [
            backend.replica.memory.address(
                trace, next(iter(backend.replica.devices)), buffer.id, 0, 0
            )
            for backend in backends
        ]
        tokens = buffer.shape[1]
        stride = buffer.bytes // buffer.shape[0]
        copies.append((*addresses, stride, stride * shape.prompt // tokens))
    answers = backends[1]
    root = answers.replica.roots[0]

    def by_device(row: int) -> None:
        with answers.driver.using(root.context):
            for source, target, stride, size in copies:
                at = row * stride
                answers.driver.call("cuMemcpyAsync", target + at, source + at, size, root.stream)

    return by_device
