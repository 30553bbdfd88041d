"""What the host takes to hand requests over: its calls, and what they do to a plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.service import BackendOptions
from tessera.diagnostics import TesseraError
from tessera.driver.simulate.host_calls import host_calls
from tessera.driver.simulate.simulate import alone
from tessera.driver.simulate.steady import saturate
from tessera.frontend.machine.profile import parse_profile
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.launch_cases import random_launches
from tests.unit.backend.cuda.test_random_placements import SLICES, random_model

SHARES = [1.0]


@pytest.mark.parametrize("seed", range(6))
def test_calls_are_about_those_of_the_backend(seed: int) -> None:
    """The rule counts no tape: it is to be near, over what is split and what is not."""
    model = random_model(seed, traces=1)
    backend = CudaBackend(
        model, BackendOptions(targets=SLICES, timeline=False), driver=Driver(FakeCuda())
    )
    ready = next(iter(backend.replica.ready.values()))
    made = 1 if ready.graph is not None else len(ready.tape.calls)
    (lowered,) = model.lowered.traces
    assert abs(host_calls(lowered) - made) <= 0.3 * made + 20
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
