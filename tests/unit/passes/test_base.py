"""The manager of analyses: computed once, needs declared and enforced, cycles reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import pytest

from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisError, AnalysisManager, Facts
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tests.helpers.traces import COPY, trace


@dataclass(frozen=True)
class BusiestBuffer:
    """An analysis that this package does not know."""

    name: ClassVar[str] = "busiest-buffer"
    needs: ClassVar[tuple[type[Any], ...]] = (Dependences,)

    buffer: str

    @classmethod
    def compute(cls, program: Program, facts: Facts) -> Self:
        graph = facts.get(Dependences).graph
        counts = {b.name: sum(e.buffer == b.id for e in graph.edges) for b in graph.buffers}
        return cls(max(counts, key=lambda name: counts[name]))


@dataclass(frozen=True)
class Undeclared:
    name: ClassVar[str] = "undeclared"
    needs: ClassVar[tuple[type[Any], ...]] = ()

    @classmethod
    def compute(cls, program: Program, facts: Facts) -> Self:
        facts.get(Dependences)
        return cls()


@dataclass(frozen=True)
class First:
    name: ClassVar[str] = "first"
    needs: ClassVar[tuple[type[Any], ...]] = ()

    @classmethod
    def compute(cls, program: Program, facts: Facts) -> Self:
        return cls()


@dataclass(frozen=True)
class Second:
    name: ClassVar[str] = "second"
    needs: ClassVar[tuple[type[Any], ...]] = (First,)

    @classmethod
    def compute(cls, program: Program, facts: Facts) -> Self:
        return cls()


@pytest.fixture
def program() -> Program:
    return trace(
        "buffer x bytes=64 role=input\nbuffer t bytes=64 role=temp\nbuffer y bytes=64 role=output",
        COPY,
        "launch m.copy grid=1,1,1 block=32,1,1 args=[t, x, u32:16]\n"
        "launch m.copy grid=1,1,1 block=32,1,1 args=[y, t, u32:16]",
    )


def test_an_analysis_outside_the_package_uses_the_dependences(program: Program) -> None:
    assert AnalysisManager(program).get(BusiestBuffer).buffer == "t"


def test_each_analysis_is_computed_once_after_its_needs(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def watched(kind: type[Any]) -> classmethod[Any, Any, Any]:
        compute = kind.compute.__func__

        def noted(cls: type[Any], *arguments: Any) -> Any:
            result = compute(cls, *arguments)
            seen.append(cls.name)
            return result

        return classmethod(noted)

    for kind in (AccessRegions, Dependences, BusiestBuffer):
        monkeypatch.setattr(kind, "compute", watched(kind))
    manager = AnalysisManager(program)
    assert manager.get(BusiestBuffer) is manager.get(BusiestBuffer)
    manager.get(AccessRegions)
    assert seen == ["access-regions", "dependences", "busiest-buffer"]


def test_what_is_not_declared_is_refused(program: Program) -> None:
    with pytest.raises(AnalysisError, match="`undeclared` uses `dependences` without"):
        AnalysisManager(program).get(Undeclared)


def test_a_cycle_is_a_chain_of_names(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(First, "needs", (Second,))
    with pytest.raises(AnalysisError, match="second -> first -> second"):
        AnalysisManager(program).get(Second)
