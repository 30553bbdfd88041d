"""What a call may return, by every route without a GPU: numbers without axes, empty tensors,
inputs, weights, views of one another, the same tensor twice, all of it nested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.driver.run.tolerance import distance
from tessera.driver.trace.capture_trace import Trace, write_trace
from tessera.driver.trace.meta_trace import trace_fake
from tessera.driver.trace.no_gpu_trace import NoGpuOptions, trace_no_gpu
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.machine.gpu_table import find_gpu
from tests.helpers.returned import every_form

pytestmark = pytest.mark.filterwarnings("ignore")
Made = tuple[Callable[..., object], Inputs]


def traced(make: Callable[[], Made], route: str) -> Trace:
    if route == "meta":
        return trace_fake(make, fused=False).trace
    pytest.importorskip("triton", reason="triton is not installed")
    found = trace_no_gpu(make, NoGpuOptions(gpus=(find_gpu("a100"),), route=route))
    assert not found.problem
    return found.trace


def outputs(found: Trace) -> list[str]:
    buffers = found.program.declared_buffers()
    return [buffer.name for buffer in buffers if buffer.role.value == "output"]


def forms() -> Made:
    torch.manual_seed(0)
    made, inputs = every_form()
    return made.cuda(), Inputs(named={name: tensor.cuda() for name, tensor in inputs.items()})


@pytest.mark.parametrize("route", ["meta", "eager", "ptx"])
def test_results_of_every_form_are_outputs_once(route: str, tmp_path: Path) -> None:
    found = traced(forms, route)
    # `out1` is `out` again, the next three are views of it, `out5` is empty; from `out6` to `out8`
    # they were there before.
    assert outputs(found) == ["out", *(f"out{n}" for n in range(9, 15))]
    if route == "meta":
        return
    write_trace(found, tmp_path / "step.ptx")
    kept = run_trace(tmp_path / "step.ptx", RunOptions()).kept()
    assert {buffer.name for buffer, _ in kept} == found.reference.keys() == {*outputs(found)}
    for buffer, data in kept:
        given = (found.reference[buffer.name], np.asarray(data))
        apart = distance(buffer.dtype, *(part.reshape(-1).view(np.uint8) for part in given))
        assert apart.is_within, (buffer.name, apart.text())


@pytest.mark.parametrize(
    "returned", [lambda y: 3, lambda y: y[:0], lambda y: (part for part in y), lambda y: None]
)
def test_a_call_that_returns_nothing_is_said(returned: Callable[[Any], object]) -> None:
    def make() -> Made:
        return (lambda x: returned(x + 1)), Inputs(plain=(torch.ones(2, 4).cuda(),))

    assert [said.code for said in traced(make, "meta").diagnostics] == ["TSR6018"]


def test_a_call_that_changes_a_state_returns_something() -> None:
    def step(x: Any) -> None:
        x.add_(1)

    found = traced(lambda: (step, Inputs(plain=(torch.ones(2, 4).cuda(),))), "meta")
    assert not found.diagnostics


@pytest.mark.parametrize("route", ["meta", "eager"])
def test_a_result_whose_memory_does_not_hold_it_is_refused(route: str) -> None:
    def make() -> Made:
        given = torch.ones(4, dtype=torch.complex64).cuda()
        return (lambda x: (x * 2).conj()), Inputs(plain=(given,))

    with pytest.raises(TesseraError, match="the result `out` is conjugated") as refused:
        traced(make, route)
    assert refused.value.diagnostics[0].code == "TSR6002"
