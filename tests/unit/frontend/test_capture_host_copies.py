"""Copies from the host while a call is captured; `meta` stands for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.trace.meta_trace import trace_fake
from tessera.frontend.capture.host_copies import HostCopies, made_on_host
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.operator_mode import operator_mode

pytestmark = pytest.mark.filterwarnings("ignore")


def copied(function: Callable[..., object]) -> HostCopies:
    """What a call copies from the host to the device `meta`."""
    copies = HostCopies()

    def call(mode: object, func: Any, args: Any, kwargs: Any) -> object:
        constant = copies.made_by(func, args, kwargs)
        return func(*copies.given_to(func, args), **kwargs) if constant is None else constant

    with made_on_host(), operator_mode(call, compiled=True), torch.no_grad():
        function(torch.empty(4, 8, device="meta"))
    return copies


@pytest.mark.parametrize(
    ("function", "held"),
    [
        (lambda x: x + torch.ones(8).to("meta", torch.float16), [[1.0] * 8]),
        (lambda x: x[torch.tensor([0, 2])], [[0, 2]]),
        (lambda x: x.copy_(torch.full((8,), 3.0)), [[3.0] * 8]),
        (lambda x: x * torch.tensor(2.0), []),
        (lambda x: torch.ones(4).to(torch.float64), []),
        (lambda x: torch.ones(4)[torch.tensor([1])], []),
    ],
)
def test_what_is_copied_is_kept_as_it_was(function: Callable[..., object], held: object) -> None:
    copies = copied(function)
    assert [tensor.tolist() for tensor in copies.held] == held
    assert all(tensor.device.type == "meta" for tensor in copies.constants)


def test_what_the_host_changes_later_is_not_what_was_copied() -> None:
    def step(x: Any) -> None:
        source = torch.zeros(2)
        x[0, :2].copy_(source)
        source += 1

    assert [tensor.tolist() for tensor in copied(step).held] == [[0.0, 0.0]]


def test_copies_are_made_when_the_capture_is_over() -> None:
    copies = HostCopies([torch.zeros(3)], [torch.arange(3.0)])
    copies.fill()
    assert copies.constants[0].tolist() == [0.0, 1.0, 2.0]


def traced(function: Callable[..., object]) -> Any:
    return trace_fake(lambda: (function, Inputs(plain=(torch.ones(4, 8).cuda(),))), fused=False)


def test_on_shapes_an_index_of_the_host_is_a_constant() -> None:
    program = traced(lambda x: x[torch.tensor([0, 2])]).trace.program
    assert [step.operator for step in program.steps] == ["aten::index.Tensor"]
    assert [b.role.value for b in program.buffers if b.name == "constant0"] == ["weight"]


def test_a_constant_that_is_changed_is_refused() -> None:
    with pytest.raises(TesseraError) as refused:
        traced(lambda x: x + torch.zeros(8).to("cuda").add_(x[0]))
    assert refused.value.diagnostics[0].code == "TSR6003"
    assert "`constant0`" in str(refused.value.diagnostics[0].headline)


def test_the_recorded_call_is_told_that_it_is_captured() -> None:
    told: list[bool] = []

    def step(x: Any) -> Any:
        told.append(torch.cuda.is_current_stream_capturing())
        return x + 1

    traced(step)
    assert told == [False, True]
