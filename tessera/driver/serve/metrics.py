"""Counts and times of a server, in the text format that Prometheus reads.

In: answers that have ended. Out: text. A scrape changes nothing.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sized

from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation

_TIMES_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class TimeHistogram:
    """Counts times within each limit, in seconds."""

    def __init__(self, name: str, words: str) -> None:
        self.name = name
        self.words = words
        self._counts = [0] * (len(_TIMES_S) + 1)
        self._sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one time."""
        self._counts[bisect.bisect_left(_TIMES_S, seconds)] += 1
        self._sum += seconds

    def lines(self) -> Iterator[str]:
        """The lines of the histogram: every limit counts all times within it."""
        yield f"# HELP {self.name} {self.words}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for limit, count in zip((*map(str, _TIMES_S), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{limit}"}} {total}'
        yield f"{self.name}_sum {self._sum}"
        yield f"{self.name}_count {total}"


class Metrics:
    """Counters and histograms of a server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: dict[str, int] = {}
        self._refused: dict[int, int] = {}
        self._dropped: dict[str, int] = {}
        self.connections: Sized = ()
        """The open connections, once a server is attached."""
        self._prompt_tokens = 0
        self._answer_tokens = 0
        self._ttft = TimeHistogram("tessera_ttft_seconds", "Time to the first token.")
        self._tpot = TimeHistogram("tessera_tpot_seconds", "Time per token after the first.")
        self._whole = TimeHistogram("tessera_request_seconds", "Time to the last token.")

    def end(self, answer: Generation) -> None:
        """Count an answer that has ended."""
        served = answer.served(0)
        with self._lock:
            self._ended[served.ended] = self._ended.get(served.ended, 0) + 1
            self._prompt_tokens += served.prompt
            self._answer_tokens += served.answer
            if not served.is_whole:
                return
            self._ttft.add((served.first_ns - served.came_ns) / 1e9)
            self._whole.add((served.ended_ns - served.came_ns) / 1e9)
            if served.answer > 1:
                self._tpot.add((served.ended_ns - served.first_ns) / 1e9 / (served.answer - 1))

    def refuse(self, status: int) -> None:
        """Count a request that was answered with an error."""
        with self._lock:
            self._refused[status] = self._refused.get(status, 0) + 1

    def drop(self, why: str) -> None:
        """Count a connection that was closed, or whose request was refused, by a limit."""
        with self._lock:
            self._dropped[why] = self._dropped.get(why, 0) + 1

    def text(self, engine: Engine) -> str:
        """The response to a scrape."""
        used, blocks = engine.blocks
        with self._lock:
            lines = [
                *_counter("tessera_answers_total", "Answers by their end.", "ended", self._ended),
                *_counter("tessera_refused_total", "Requests by status.", "status", self._refused),
                *_counter("tessera_dropped_total", "Connections dropped.", "why", self._dropped),
                *_plain("gauge", "tessera_connections", len(self.connections)),
                *_counter(
                    "tessera_steps_total",
                    "Steps by trace.",
                    "trace",
                    dict(engine.steps_done),
                ),
                *_plain("counter", "tessera_prompt_tokens_total", self._prompt_tokens),
                *_plain("counter", "tessera_answer_tokens_total", self._answer_tokens),
                *_plain("counter", "tessera_steps_ahead_total", engine.steps_ahead),
                *_plain("counter", "tessera_restarts_total", engine.counts.restarts),
                *_plain("counter", "tessera_switches_total", len(engine.switches)),
                *_plain("counter", "tessera_hand_overs_total", engine.counts.hand_overs),
                *_plain("counter", "tessera_hand_over_bytes_total", engine.counts.hand_over_bytes),
                *_plain(
                    "counter", "tessera_hand_over_seconds_total", engine.counts.hand_over_ns / 1e9
                ),
                *_plain("counter", "tessera_drifts_total", len(engine.counts.drifts)),
                *_plain("gauge", "tessera_waiting", engine.waiting),
                *_plain("gauge", "tessera_running", engine.running),
                *_plain("gauge", "tessera_kv_blocks_used", used),
                *_plain("gauge", "tessera_kv_blocks", blocks),
                *_plain("counter", "tessera_reused_tokens_total", engine.reused_tokens),
                *_plain("counter", "tessera_preempted_total", engine.preempted),
                *_plain("gauge", "tessera_ready", int(not engine.unready)),
                *self._ttft.lines(),
                *self._tpot.lines(),
                *self._whole.lines(),
            ]
        return "\n".join(lines) + "\n"


def _counter(
    name: str, words: str, label: str, counts: dict[str, int] | dict[int, int]
) -> list[str]:
    rows = [
        f'{name}{{{label}="{_escaped(str(key))}"}} {count}' for key, count in sorted(counts.items())
    ]
    return [f"# HELP {name} {words}", f"# TYPE {name} counter", *rows]


def _escaped(text: str) -> str:
    """A text as the value of a label, escaped: names of traces may hold any character."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _plain(kind: str, name: str, value: float) -> list[str]:
    return [f"# TYPE {name} {kind}", f"{name} {value}"]
