"""What the host takes to hand requests over: its calls, and what they do to a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.service import BackendOptions
from tessera.diagnostics import TesseraError
from tessera.driver.profile.profile_trace import busy_times
from tessera.frontend.machine.profile import parse_profile
from tessera.ir.plan.launch_program import meets_often
from tessera.simulation.host_calls import CALLS_OF_REQUEST, host_bytes, host_calls
from tessera.simulation.simulate import alone
from tessera.simulation.steady import saturate
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.launch_cases import random_launches
from tests.helpers.share import share
from tests.unit.backend.cuda.test_random_placements import SLICES, random_model

SHARES = [1.0]


@pytest.mark.parametrize("seed", share(range(6)))
def test_calls_are_about_those_of_the_backend(seed: int) -> None:
    """The rule counts no tape: it is to be near, over what is split and what is not."""
    model = random_model(seed, traces=1)
    backend = CudaBackend(
        model, BackendOptions(targets=SLICES, timeline=False), driver=Driver(FakeCuda())
    )
    ready = next(iter(backend.replica.ready.values()))
    made = len(ready.tape.calls)
    (lowered,) = model.lowered.traces
    is_one_graph = meets_often(lowered, model.lowered.slots)
    assert is_one_graph is (ready.graph is not None)
    if not is_one_graph:
        assert abs(host_calls(lowered) - CALLS_OF_REQUEST - made) <= 0.3 * made + 20
    backend.close()


def test_no_period_is_shorter_than_handing_over() -> None:
    case = random_launches(7)
    (first, *_), slow = case.plan.replicas, replace(case.hardware, host_call_ns=1e6)
    calls = [host_calls(trace) for trace in first.lowered.traces]
    shares = [trace.share for trace in case.plan.traces]
    mean = sum(s * c for s, c in zip(shares, calls, strict=True)) / sum(shares)
    plain = saturate([first], shares, replace(case.hardware, host_call_ns=0.0))
    handed = saturate([first], shares, slow)
    assert handed.period_ns == pytest.approx(first.share * mean * 1e6, rel=0.01)
    assert plain.period_ns < handed.period_ns
    assert alone([first], shares, slow) == pytest.approx(mean * 1e6, rel=0.01)


@pytest.mark.parametrize("given", ["-1", '"a"', "1e300", "true"])
def test_a_profile_with_a_time_that_no_call_takes(given: str) -> None:
    text = '{"schema": "tessera-profile/1", "program": "x", "rows": [], "machine": {"host_call_ns":'
    with pytest.raises(TesseraError, match="host_call_ns"):
        parse_profile(f"{text} {given}}}}}")
    assert parse_profile(f"{text} 2000.0}}}}").host_call_ns == 2000.0


def test_bytes_of_inputs_and_outputs_take_the_host_time() -> None:
    case = random_launches(2)
    (first, *_), shares = case.plan.replicas, [trace.share for trace in case.plan.traces]
    slow = replace(case.hardware, host_call_ns=1e-6, host_byte_ns=1e6)
    copied = [host_bytes(trace) for trace in first.lowered.traces]
    mean = sum(s * c for s, c in zip(shares, copied, strict=True)) / sum(shares)
    assert mean > 0
    handed = saturate([first], shares, slow)
    assert handed.period_ns == pytest.approx(first.share * mean * 1e6, rel=0.01)


class FakeBench:
    """A device on which so many requests take this long."""

    def __init__(self, times: dict[int, float | None]) -> None:
        self.times = times

    def together(self, _entry: object, _ordinal: int, slots: int) -> float | None:
        return self.times[slots]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({1: 100.0, 2: 90.0}, 90.0),
        ({1: 100.0, 2: 55.0, 4: 40.0}, 40.0),
        ({1: 100.0, 2: 55.0, 4: 30.0, 8: 20.0}, 20.0),
        ({1: 100.0, 2: 55.0, 4: None, 8: None}, 55.0),
        ({1: 100.0, 2: None}, None),
        ({1: None, 2: None}, None),
    ],
)
def test_requests_together_fill_the_device(
    times: dict[int, float | None], expected: float | None
) -> None:
    """Twice as many are tried while two were nearly as fast as one."""
    found = busy_times(FakeBench(times), None, 0)  # type: ignore[arg-type]
    assert found == {"steady_ns": times[1], "together_ns": expected}
