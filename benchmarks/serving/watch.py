"""What an engine did while it served: its steps, and what its thread was busy with.

Used by `benchmarks.serving.h200` to say where simulated and real times part. It puts itself between
the engine's thread and its own methods, so it is for benchmarks only.
`series` has every step and every request, `summary` what is worth a line.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

from tessera.driver.serve.batches import StepWork
from tessera.driver.serve.engine import Engine

BUSY = ("_begin", "_begin_ahead", "_end_step", "_admit", "_tell_news", "_drop_late", "_finish")
LONG_NS = 2_000_000
"""Calls and collections that take longer are listed one by one."""


class Watched:
    """Steps of an engine by when they began and ended; long calls; collections of garbage."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Any = engine
        self._begun: dict[int, tuple[int, StepWork, int]] = {}
        self._collected_ns = 0
        self.clear()
        for name in BUSY:
            setattr(engine, name, self._timed(name, getattr(engine, name)))
        begin, end = self._engine._watch_begin, self._engine._end_step

        def watch_begin(group: Any, number: int, work: StepWork) -> None:
            self._begun[number] = time.monotonic_ns(), work, len(self._engine._scheduler.line)
            begin(group, number, work)

        def end_step(started: int, number: int, *rest: Any) -> None:
            self._end(number)
            end(started, number, *rest)

        self._engine._watch_begin, self._engine._end_step = watch_begin, end_step
        gc.callbacks.append(self._collect)

    def clear(self) -> None:
        """Begin anew."""
        self.steps: list[tuple[int, int, str, int, int, int]] = []
        self.long: list[tuple[int, str, int]] = []
        self.busy_ns: dict[str, int] = {}
        self.origin_ns = time.monotonic_ns()

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any) -> Any:
            begun = time.monotonic_ns()
            try:
                return call(*given)
            finally:
                self._note(name, begun)

        return timed

    def _note(self, name: str, begun: int) -> None:
        took = time.monotonic_ns() - begun
        self.busy_ns[name] = self.busy_ns.get(name, 0) + took
        if took > LONG_NS:
            self.long.append((begun, name, took))

    def _collect(self, phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            self._collected_ns = time.monotonic_ns()
        else:
            self._note(f"collection {told['generation']}", self._collected_ns)

    def _end(self, number: int) -> None:
        if number in self._begun:
            begun, work, waiting = self._begun.pop(number)
            kind = "decode" if work.is_decode else "prefill"
            self.steps.append((begun, time.monotonic_ns(), kind, work.rows, number, waiting))

    def series(self, **told: Any) -> dict[str, Any]:
        """All of it, in microseconds after the start, with the requests of reports by name."""
        return {
            "steps: begun, ended, kind, rows, batch, waiting": [
                (self._us(begun), self._us(ended), *rest) for begun, ended, *rest in self.steps
            ],
            "long": [(self._us(at), name, took // 1000) for at, name, took in self.long],
            "requests: came, seated, begun, first, ended, policy": {
                name: [
                    [
                        *(round(ns / 1e3) for ns in (s.came_ns, s.seated_ns, s.begun_ns)),
                        *(round(ns / 1e3) for ns in (s.first_ns, s.ended_ns)),
                        s.policy,
                    ]
                    for s in report.whole
                ]
                for name, report in told.items()
            },
        }

    def _us(self, at: int) -> int:
        return (at - self.origin_ns) // 1000

    def summary(self) -> dict[str, Any]:
        """Steps by kind and second, the longest, what the thread did, in milliseconds."""
        kinds: dict[str, dict[str, Any]] = {}
        first = min((begun for begun, *_ in self.steps), default=0)
        for kind in ("prefill", "decode"):
            own = [(begun, ended - begun) for begun, ended, name, *_ in self.steps if name == kind]
            seconds: dict[int, list[int]] = {}
            for begun, took in own:
                seconds.setdefault((begun - first) // 1_000_000_000, []).append(took)
            kinds[kind] = {
                "steps": len(own),
                "by_second_p50_max": {
                    second: [round(statistics.median(held) / 1e6, 2), round(max(held) / 1e6, 2)]
                    for second, held in sorted(seconds.items())
                },
            }
        longest = sorted(self.steps, key=lambda step: step[0] - step[1])[:8]
        return kinds | {
            "longest": [
                [round((begun - first) / 1e6), round((ended - begun) / 1e6, 2), *rest]
                for begun, ended, *rest in longest
            ],
            "busy_ms": {name: round(ns / 1e6, 1) for name, ns in sorted(self.busy_ns.items())},
            "long": [
                [round((at - first) / 1e6), name, round(took / 1e6, 2)]
                for at, name, took in sorted(self.long, key=lambda own: -own[2])[:12]
            ],
        }
