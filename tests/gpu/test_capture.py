"""Capture on a real GPU: every node is in the trace, and what cannot be captured says why."""

from __future__ import annotations

import pytest

from tessera.diagnostics import TesseraError
from tessera.ir.program import LibraryCall, Role
from tessera.tracing import TraceOptions, trace

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)


def test_a_compiled_function_becomes_launches() -> None:
    weight = torch.randn(64, 64, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) + 1

    found = trace(step, torch.randn(32, 64, device="cuda"))
    roles = [buffer.role for buffer in found.program.declared_buffers()]
    assert roles.count(Role.INPUT) == 1
    assert roles.count(Role.WEIGHT) == 1
    assert roles.count(Role.OUTPUT) == 1
    assert not any(isinstance(step, LibraryCall) for step in found.program.steps)


def test_a_tensor_written_in_place_is_state() -> None:
    total = torch.zeros(64, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return total * 2

    found = trace(step, torch.randn(64, device="cuda"), options=TraceOptions(route="eager"))
    states = [b for b in found.program.declared_buffers() if b.role is Role.STATE]
    assert len(states) == 1


def test_a_model_that_waits_for_the_gpu_is_refused() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item())

    with pytest.raises(TesseraError) as caught:
        trace(step, torch.ones(8, device="cuda"), options=TraceOptions(route="as-is"))
    assert caught.value.diagnostics[0].code == "TSR6003"
