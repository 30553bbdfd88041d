"""Waiting for a GPU that may never come, by a host that may be busy elsewhere."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.backend.cuda.measure import stopwatch
from tessera.backend.cuda.measure.stopwatch import Stalled, Stopwatch


def watch_of(looks: list[bool], cost_s: float, monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """A watch whose looks at an event each take so long, by a clock of their own."""
    now = [0.0]

    def look(_: object) -> bool:
        now[0] += cost_s
        return looks.pop(0) if len(looks) > 1 else looks[0]

    driver: Any = SimpleNamespace(event=lambda timed: object(), is_done=look)
    clock = SimpleNamespace(perf_counter=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(stopwatch, "time", clock)
    return Stopwatch(driver, limit_s=0.2)


def test_a_host_that_was_away_has_not_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks of a second each: a process that did not get its processor, not a hang."""
    watch = watch_of([False, False, True], 1.0, monkeypatch)
    watch.wait(object())
    assert not watch.is_stuck


def test_what_never_ends_is_given_up_and_stays_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = watch_of([False], 1.0, monkeypatch)
    with pytest.raises(Stalled, match="has not ended after"):
        watch.wait(object())
    assert watch.is_stuck
