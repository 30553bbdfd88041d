"""Figures and timelines from events made up here."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tessera.backend.service import Completion, TimelineEvent
from tessera.driver.run.outcome import Outcome, overlap, percentiles, spans_by_device, total
from tessera.driver.timeline import timeline_json
from tessera.ir.plan.launch_program import HOST, Queue


def event(device: str, queue: Queue, start: int, end: int, **more: Any) -> TimelineEvent:
    given = {"slot": 0, "request": 0, "name": "op", **more}
    return TimelineEvent(device=device, queue=queue, start_ns=start, end_ns=end, **given)


EVENTS = (
    event("a", Queue.COMPUTE, 0, 100, step=0),
    event("a", Queue.COMPUTE, 100, 200, step=1),
    event("b", Queue.COMPUTE, 150, 400, step=2),
    event("a", Queue.IN, 0, 10, bytes=7, peer=HOST),
    event("a", Queue.OUT, 50, 150, bytes=64, peer="b"),
    event("b", Queue.IN, 100, 200, bytes=64, peer="a"),
    event("b", Queue.OUT, 400, 410, bytes=5, peer=HOST),
)


def outcome(events: tuple[TimelineEvent, ...]) -> Outcome:
    replica = SimpleNamespace(lowered=SimpleNamespace(devices=("a", "b"), traces=(), lanes=1))
    done = Completion(request=0, outputs={}, started_ns=0, ended_ns=1_000_000_000, events=events)
    opened = cast(Any, SimpleNamespace(replicas=(replica,)))
    return Outcome(opened=opened, backend="cpu", turns=(), done={0: done}, states=None, seconds=1.0)


def test_figures() -> None:
    figures = outcome(EVENTS).figures()
    assert figures.busy == {"a": 200 / 410, "b": 250 / 410}
    assert (figures.bytes_between, figures.bytes_from_host, figures.bytes_to_host) == (64, 7, 5)
    # `a` computes all of 50 to 150, `b` only from 150 on: half of its 100 ns are hidden.
    assert figures.transfer_ns == 200
    assert figures.hidden == pytest.approx(0.75)
    assert (figures.seconds, figures.requests_per_s) == (1.0, 1.0)


def test_time_between_batches_is_the_command_s() -> None:
    """Requests 0 and 1, then 2 and 3 a second later: 200 in a second, not four."""
    one = outcome(EVENTS)
    spans = {0: (0, 5), 1: (1, 10), 2: (1010, 1015), 3: (1011, 1020)}
    done = {
        number: Completion(
            request=number,
            outputs={},
            started_ns=start * 10**6,
            ended_ns=end * 10**6,
            events=(event("a", Queue.COMPUTE, start * 10**6, end * 10**6),),
        )
        for number, (start, end) in spans.items()
    }
    figures = replace(one, done=done, begins=(0, 2), command_s=1.0).figures()
    assert figures.seconds == pytest.approx(0.02)
    assert figures.requests_per_s == pytest.approx(200)
    assert figures.busy["a"] == pytest.approx(1.0)
    assert replace(one, done=done).figures().seconds == pytest.approx(1.02)


def test_without_transfers_nothing_is_hidden() -> None:
    assert outcome(EVENTS[:3]).figures().hidden is None


def test_percentiles_are_by_nearest_rank() -> None:
    assert percentiles(range(1, 101)) == {"p50": 50, "p90": 90, "p99": 99, "max": 100}
    assert percentiles([7]) == {"p50": 7, "p90": 7, "p99": 7, "max": 7}
    assert percentiles([]) == {}


def test_spans() -> None:
    spans = spans_by_device([event("a", Queue.IN, 5, 9), event("a", Queue.IN, 0, 6)])
    assert spans == {"a": [(0, 9)]}
    assert overlap([(0, 4), (6, 9)], [(3, 7), (8, 20)]) == [(3, 4), (6, 7), (8, 9)]
    assert total([(3, 4), (6, 8)]) == 3


def test_a_timeline_has_a_row_per_device_and_queue() -> None:
    crossing = event("a", Queue.OUT, 140, 160, bytes=1, peer="b")
    rows = json.loads(timeline_json((*EVENTS, crossing), ["a", "b"]))["traceEvents"]
    named = {
        (row["pid"], row["tid"]): row["args"]["name"]
        for row in rows
        if row["name"] == "thread_name"
    }
    processes = {r["pid"]: r["args"]["name"] for r in rows if r["name"] == "process_name"}
    found = sorted((processes[pid], name) for (pid, _), name in named.items())
    assert found == [
        ("a", "compute"),
        ("a", "in"),
        ("a", "out"),
        ("a", "out (2)"),
        ("b", "compute"),
        ("b", "in"),
        ("b", "out"),
    ]
    slices = [row for row in rows if row["ph"] == "X"]
    assert len(slices) == 8
    by_row: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for row in sorted(slices, key=lambda one: one["ts"]):
        by_row.setdefault((row["pid"], row["tid"]), []).append((row["ts"], row["ts"] + row["dur"]))
    for spans in by_row.values():
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
