"""States that a model replaces by new tensors stay where they are."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.inputs import Inputs, held_tensors


class Box:
    def __init__(self) -> None:
        self.rows = [torch.zeros(3)]


def model(function: Callable[[Any, Any], Any]) -> Any:
    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.plain, self.older = torch.zeros(3), torch.ones(3)
            self.box, self.seen = Box(), torch.zeros(0, 3)

        def forward(self, x: Any) -> Any:
            return function(self, x)

    return Model()


def tensors(held: Any) -> list[Any]:
    return [held.mean, held.plain, held.older, held.box.rows[0]]


def test_what_is_replaced_is_copied_into_what_was_there() -> None:
    def step(self: Any, x: Any) -> Any:
        self.mean = self.mean * 0.5 + x
        self.plain, self.older = self.older + x, self.plain
        self.box.rows[0] = self.box.rows[0] - x
        return self.plain * 2

    ours, theirs, x = model(step), model(step), torch.ones(3)
    before = tensors(ours)
    for _ in range(3):
        result = Inputs(plain=(x,)).call(ours)
        assert torch.equal(result, theirs(x))
    assert all(old is new for old, new in zip(before, tensors(ours), strict=True))
    assert all(map(torch.equal, tensors(ours), tensors(theirs)))


def test_tensors_without_memory_of_one_kind_are_left_alone() -> None:
    """Such as sparse ones, held or put in place of others."""

    def step(self: Any, x: Any) -> Any:
        self.plain, self.older = self.plain + x, self.older.to_sparse()
        return self.plain * 2, x.to_sparse()

    ours, x = model(step), torch.ones(3)
    ours.sparse = torch.eye(3).to_sparse()
    ours.register_buffer("rows", torch.eye(3).to_sparse())
    before = ours.plain
    result, _ = Inputs(plain=(x,), named={}).call(ours)
    assert torch.equal(result, torch.full((3,), 2.0))
    assert ours.plain is before
    assert torch.equal(before, x)
    assert ours.older.is_sparse


class Engine:
    """An object of somebody's own with a state; it is called, or a method of it is."""

    def __init__(self) -> None:
        self.held, self._rows, self.library = torch.zeros(3), [torch.zeros(3)], math

    def step(self, x: Any) -> Any:
        self.held = self.held + x
        self._rows[0] = self._rows[0] - x
        return self.held * 2

    __call__ = step


@pytest.mark.parametrize(
    "call",
    [
        lambda engine: engine,
        lambda engine: engine.step,
        lambda engine: functools.partial(engine.step),
        lambda engine: torch.compile(engine, backend="eager"),
        lambda engine: torch.compile(engine.step, backend="eager"),
    ],
)
def test_states_of_objects_that_are_no_modules_stay_too(call: Callable[[Any], Any]) -> None:
    ours, theirs, x = Engine(), Engine(), torch.ones(3)
    before = ours.held, ours._rows[0]
    for _ in range(2):
        assert torch.equal(Inputs(plain=(x,)).call(call(ours)), theirs(x))
    assert ours.held is before[0]
    assert ours._rows[0] is before[1]
    assert torch.equal(ours.held, theirs.held)
    assert {"held", "_rows"} == {name for name, _ in held_tensors(call(ours))}


def test_arguments_that_were_given_before_have_names() -> None:
    given = functools.partial(lambda a, x, b: a + x + b, torch.ones(2), b=torch.ones(2))
    assert [name for name, _ in held_tensors(given)] == ["given0", "b"]


def test_what_moves_from_place_to_place_is_read_first() -> None:
    def step(self: Any, x: Any) -> Any:
        self.plain, self.older = self.older, self.plain
        return self.plain + x

    ours = model(step)
    Inputs(plain=(torch.ones(3),)).call(ours)
    assert ours.plain.tolist() == [1, 1, 1]
    assert ours.older.tolist() == [0, 0, 0]


def test_an_argument_that_the_model_keeps_is_its_own() -> None:
    def step(self: Any, x: Any) -> Any:
        last = getattr(self, "last", x * 0)
        self.last = x
        return x - last

    ours, x = model(step), torch.ones(3)
    inputs = Inputs(named={"x": x})
    inputs.call(ours)
    held = ours.last
    assert held is not x
    x += 1
    assert inputs.call(ours, is_last=True).tolist() == [1, 1, 1]
    assert ours.last is held
    assert held.tolist() == [2, 2, 2]


def test_states_that_grow_and_results_that_are_replaced_are_refused() -> None:
    def grow(self: Any, x: Any) -> Any:
        self.seen = torch.cat([self.seen, x[None]])
        return self.seen.sum(0)

    def give(self: Any, x: Any) -> Any:
        old, self.plain = self.plain, self.plain + x
        return old

    inputs = Inputs(plain=(torch.ones(3),))
    growing = model(grow)
    inputs.call(growing)
    with pytest.raises(TesseraError, match=r"TSR6003.*`seen` of \[1, 3\]"):
        inputs.call(growing, is_last=True)
    with pytest.raises(TesseraError, match=r"TSR6003.*`plain`"):
        inputs.call(model(give))
