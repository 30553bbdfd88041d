"""Two captures of a call, held against each other buffer by buffer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tessera.frontend.capture.same_results import differing
from tessera.ir.program.data_type import DataType

torch = pytest.importorskip("torch", reason="torch is not installed")


def call(state: Any, made: Any, run: Any) -> Any:
    """A call over a state that both have, and a tensor of its own."""
    tensors = {"s": state, "t": made}
    kinds = {torch.float32: DataType.F32, torch.int32: DataType.S32}
    buffers = [
        SimpleNamespace(name=name, lasting=name == "s", dtype=kinds[tensor.dtype])
        for name, tensor in tensors.items()
    ]
    return SimpleNamespace(
        raw=SimpleNamespace(buffers=buffers),
        memory=SimpleNamespace(on_gpu=lambda b: tensors[b.name].view(torch.uint8)),
        replay=lambda: run(state, made),
    )


def grows(state: Any, made: Any, *, off: Any = 0) -> None:
    made.copy_(state * 3 + off)
    state += 1


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({}, None),
        ({"off": 1e-4}, None),
        ({"off": 2.0}, "t"),
        ({"off": float("nan")}, "t"),
        ({"off": torch.tensor([0.0, 0.0, float("inf"), 0.0])}, "t"),
    ],
)
def test_contents_are_compared_and_states_put_back(second: Any, said: str | None) -> None:
    state = torch.tensor([1.0, 2.0, 4.0, 8.0])
    calls = [
        call(state, torch.zeros(4), lambda s, t, m=more: grows(s, t, **m)) for more in ({}, second)
    ]
    assert differing(calls[0], calls[1], {"s", "t"}) == said
    assert state.tolist() == [1.0, 2.0, 4.0, 8.0]


def test_another_layout_and_other_integers_are_told() -> None:
    state = torch.tensor([1.0, 2.0, 4.0, 8.0])
    turned = call(state, torch.zeros(4), grows)
    other = call(state, torch.zeros(4), lambda s, t: t.copy_((s * 3).flip(0)))
    assert differing(turned, other, {"t"}) == "t"
    counts = [
        call(state, torch.zeros(4, dtype=torch.int32), lambda s, t, n=n: t.fill_(n)) for n in (1, 2)
    ]
    assert differing(counts[0], counts[1], {"t"}) == "t"
    assert differing(counts[0], counts[0], {"t"}) is None
