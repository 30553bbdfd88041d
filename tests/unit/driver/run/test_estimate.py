"""How long a rehearsal may take grows with what there is to do."""

from __future__ import annotations

import pytest

from tessera.driver.run.open_plan import open_plan
from tessera.driver.run.run_plan import cpu_seconds
from tessera.driver.run.schedule import schedule
from tests.helpers.naps import BUFFERS, SLEEP
from tests.helpers.plan_files import plan_of
from tests.helpers.traces import trace


def seconds(kernel: str, requests: int) -> float:
    steps = f"launch m.{kernel} grid=1,1,1 block=1,1,1 args=[y, x]"
    opened = open_plan(plan_of([trace(BUFFERS, SLEEP, steps)], [["a"]]))
    return cpu_seconds(opened, schedule(requests, [1.0], [(1.0, 1)]))


def test_loops_and_requests_count() -> None:
    once = seconds("stop", 1)
    assert seconds("stop", 10) == pytest.approx(10 * once)
    # `doze` goes round 50 times.
    assert seconds("doze", 1) > 4 * once
