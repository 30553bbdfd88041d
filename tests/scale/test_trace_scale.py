"""Reading, printing and analysing traces takes operations linear in their records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tessera.frontend.graph.tsg import parse_graph
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.print_graph import print_graph
from tessera.ir.program.print_trace import print_program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.kernel_facts.summarise_program import summarise_program
from tests.helpers.operations import growth

pytestmark = pytest.mark.slow
MOST = 13.0
HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
BODY = """(.param .u64 x, .param .u64 y)
{
  .reg .b64 %x, %y, %o;
  .reg .b32 %i, %v;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %o, %i, 4;
  add.u64 %x, %x, %o;
  add.u64 %y, %y, %o;
  ld.global.u32 %v, [%x];
  st.global.u32 [%y], %v;
  ret;
}
"""


def kernel(name: str) -> str:
    return f".visible .entry {name}{BODY}"


def buffer(name: str) -> str:
    return f"//! buffer {name} bytes=256 role=temp\n"


def launch(module: str, name: str, first: str, second: str) -> str:
    return f"//! launch {module}.{name} grid=1,1,1 block=64,1,1 args=[{first}, {second}]\n"


def chain(n: int) -> str:
    """A buffer and a launch for each step."""
    return (
        "".join(buffer(f"b{i}") for i in range(n + 1))
        + f"//! module m\n{HEAD}{kernel('k')}"
        + "".join(launch("m", "k", f"b{i}", f"b{i + 1}") for i in range(n))
    )


def in_turns(n: int) -> str:
    """Many launches on two buffers."""
    return (
        buffer("a")
        + buffer("b")
        + f"//! module m\n{HEAD}{kernel('k')}"
        + "".join(launch("m", "k", *("ab" if i % 2 else "ba")) for i in range(n))
    )


def readers(n: int) -> str:
    """Many launches that read what one has written."""
    return (
        buffer("a")
        + buffer("b")
        + "".join(buffer(f"c{i}") for i in range(n))
        + f"//! module m\n{HEAD}{kernel('k')}"
        + launch("m", "k", "a", "b")
        + "".join(launch("m", "k", "b", f"c{i}") for i in range(n))
    )


def modules(n: int) -> str:
    """A module for each launch."""
    return (
        buffer("a")
        + buffer("b")
        + "".join(f"//! module m{i}\n{HEAD}{kernel(f'k{i}')}" for i in range(n))
        + "".join(launch(f"m{i}", f"k{i}", "a", "b") for i in range(n))
    )


def kernels(n: int) -> str:
    """A module of many kernels, each launched once."""
    return (
        buffer("a")
        + buffer("b")
        + f"//! module m\n{HEAD}"
        + "".join(kernel(f"k{i}") for i in range(n))
        + "".join(launch("m", f"k{i}", "a", "b") for i in range(n))
    )


TRACES: dict[str, Callable[[int], str]] = {
    one.__name__: one for one in (chain, in_turns, readers, modules, kernels)
}


def text_of(shape: str, size: int) -> str:
    return "//! tessera.trace 1\n" + TRACES[shape](size)


@pytest.mark.parametrize("shape", TRACES)
def test_reading_and_printing_a_trace_are_linear(shape: str) -> None:
    def make(size: int) -> Callable[[], object]:
        text = text_of(shape, size)
        return lambda: print_program(parse_trace(text))

    assert max(growth(make, 20)) < MOST


@pytest.mark.parametrize("shape", TRACES)
def test_the_analysis_of_a_trace_is_linear(shape: str) -> None:
    def make(size: int) -> Callable[[], object]:
        program = parse_trace(text_of(shape, size))
        return lambda: (AnalysisManager(program).get(Dependences), summarise_program(program))

    assert max(growth(make, 20)) < MOST


@pytest.mark.parametrize("shape", ["chain", "in_turns", "readers"])
def test_kernel_graphs_are_printed_and_read_in_linear_time(shape: str) -> None:
    def make(size: int) -> Callable[[], object]:
        program = parse_trace(text_of(shape, size))
        graph = AnalysisManager(program).get(Dependences).graph
        return lambda: parse_graph(print_graph(graph))

    assert max(growth(make, 20)) < MOST
