"""A trace of a few equal layers becomes the trace of all of them, or nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera.driver.trace.capture_trace import GraphNodes, Trace
from tessera.driver.trace.meta_trace import FakeTrace
from tessera.driver.trace.repeat_layers import is_same, with_more_layers
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.print_trace import print_program

SIZE = "bytes=64 dtype=f32 shape=16"
Scale = Callable[[int], float]


def text_of(layers: int, scale: Scale = lambda layer: 1.0) -> str:
    """A model in text: each layer adds what the first one reads, and writes its own state."""
    buffers = [f"buffer x {SIZE} role=input"]
    buffers += [f"buffer cache.{n}.keys {SIZE} role=state" for n in range(layers)]
    buffers += [
        f"buffer layers.{n}.{w}.weight {SIZE} role=weight" for n in range(layers) for w in "ab"
    ]
    buffers.append(f"buffer norm.weight {SIZE} role=weight")
    buffers += [f"buffer t{n} {SIZE} role=temp" for n in range(1 + 3 * layers)]
    buffers.append(f"buffer out {SIZE} role=output")
    steps = [_op("mul.Tensor", ["x", "x"], "t0")]
    last = "t0"
    for n in range(layers):
        first = 1 + 3 * n
        steps += [
            _op("mul.Tensor", [last, f"layers.{n}.a.weight"], f"t{first}"),
            _op("add.Tensor", [f"t{first}", "t0"], f"t{first + 1}", alpha=scale(n)),
            _op("add.Tensor", [f"t{first + 1}", f"cache.{n}.keys"], f"cache.{n}.keys"),
            _op("mul.Tensor", [f"t{first + 1}", f"layers.{n}.b.weight"], f"t{first + 2}"),
        ]
        last = f"t{first + 2}"
    steps.append(_op("mul.Tensor", [last, "norm.weight"], "out"))
    return "\n".join(f"//! {line}" for line in ["tessera.trace 1", *buffers, *steps]) + "\n"


def _op(name: str, reads: list[str], write: str, alpha: float | None = None) -> str:
    read = ", ".join(f"{own}:f32[16]" for own in reads)
    attributes = "{}" if alpha is None else f'{{"alpha": {alpha}}}'
    return f"op aten::{name} reads=[{read}] writes=[{write}:f32[16]] attrs={attributes}"


def fake(text: str) -> FakeTrace:
    """What a capture would give."""
    program = parse_trace(text)
    count = len(program.steps)
    nodes = GraphNodes(kernels=0, memsets=0, copies=0, others=count, in_calls=count, skipped=0)
    trace = Trace(program=program, contents={}, reference={}, diagnostics=(), nodes=nodes)
    return FakeTrace(trace=trace, patterns={"norm": count // 4})


def layers(number: int, scale: Scale = lambda layer: 1.0) -> FakeTrace:
    return fake(text_of(number, scale))


def test_more_layers_are_those_that_a_longer_model_has() -> None:
    made = with_more_layers(layers(2), layers(3), 8)
    assert made is not None
    assert print_program(made.trace.program) == print_program(parse_trace(text_of(10)))
    assert made.trace.nodes.others == 42
    assert made.patterns == {"norm": 10}


@pytest.mark.parametrize("more", [0, 1, 2])
def test_few_more_are_the_traces_themselves(more: int) -> None:
    made = with_more_layers(layers(2), layers(3), more)
    assert made is not None
    assert is_same(made, layers(2 + more))


def test_layers_that_count_themselves_are_not_repeated() -> None:
    def counted(layer: int) -> float:
        return layer + 1.0

    assert with_more_layers(layers(2, counted), layers(3, counted), 8) is None


def test_every_second_layer_is_seen_by_the_third_trace() -> None:
    def every_third(layer: int) -> float:
        return 2.0 if layer == 3 else 1.0

    made = with_more_layers(layers(2, every_third), layers(3, every_third), 2)
    assert made is not None
    assert not is_same(made, layers(4, every_third))


def test_another_model_is_no_longer_one() -> None:
    other = text_of(3).replace("add.Tensor", "sub.Tensor")
    assert with_more_layers(layers(2), fake(other), 8) is None
    renamed = text_of(3).replace("norm.weight", "norm.gain")
    assert with_more_layers(layers(2), fake(renamed), 8) is None
    assert with_more_layers(layers(3), layers(2), 8) is None
