"""The period of a simulation is that of many requests, however their pattern repeats."""

from __future__ import annotations

import pytest

from benchmarks.simulated_cpu import case_of, model_of_case, replica_of, simulated_ns
from tessera.driver.simulate.events import EventLoop
from tessera.driver.simulate.hardware import process_hardware
from tessera.driver.simulate.intake import SimulatedReplica
from tessera.driver.simulate.known_work import work_of
from tessera.driver.simulate.turns import always

MANY = 400


# Mixes whose traces repeat after 8, 16 and 20 requests.
@pytest.mark.parametrize("number", [9, 24, 39])
def test_the_period_is_that_of_many_requests(number: int) -> None:
    case = case_of(number, 1)
    lowered = model_of_case(case).lowered
    hardware = process_hardware(lowered.devices, case.bytes_per_s)
    (work,) = work_of([replica_of(case, lowered)], hardware)
    replica = SimulatedReplica(
        work=work,
        slots=lowered.slots,
        sequences=lowered.lanes,
        depth=1,
        coming=always(case.shares, lowered.lanes),
    )
    loop = EventLoop([replica], hardware.capacities)
    loop.run([MANY])
    ends = loop.ends_of(0)
    period = (ends[MANY - 1] - ends[MANY // 4 - 1]) / (MANY - MANY // 4)
    assert simulated_ns(case)[0] == pytest.approx(period, rel=0.005)
