"""Analyses and the manager that computes each of them once.

An analysis is an immutable fact about one program; its type is its own cache key. It declares
the analyses that it needs, and can look up only those. To add an analysis outside this package,
write the class and ask for it: `AnalysisManager(program).get(MyAnalysis)`. There is no table to
register it in.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, Self, TypeVar, cast

from tessera.ir.program.program import Program


class Store(Protocol):
    """Storage that outlives the process. An entry may be lost, but never has a wrong value."""

    def find(self, name: str) -> object:
        """The values kept under a name, or None."""
        ...

    def keep(self, name: str, values: object) -> None:
        """Put values under a name."""
        ...


class Facts(Protocol):
    """The analyses that `compute` may look up: those that it declared as needs.

    `store` has results of earlier analyses of the same kernels, for what takes long.
    """

    @property
    def store(self) -> Store | None:
        """Where results are kept, if anywhere."""
        ...

    def get(self, key: type[A]) -> A:
        """The result of an analysis."""
        ...


class Analysis(Protocol):
    """An immutable fact about one program."""

    name: ClassVar[str]
    needs: ClassVar[tuple[type[Analysis], ...]]

    @classmethod
    def compute(cls, program: Program, facts: Facts) -> Self:
        """Compute the fact: deterministic, without settings, clocks or files."""
        ...


A = TypeVar("A", bound=Analysis)


class AnalysisError(Exception):
    """An analysis is wired wrongly: its needs form a cycle, or it uses an undeclared analysis."""


class AnalysisManager:
    """Computes analyses of one program on demand; `store` keeps results of its kernels."""

    def __init__(self, program: Program, store: Store | None = None) -> None:
        self.program = program
        self.store = store
        self._results: dict[type[Analysis], Analysis] = {}
        self._active: list[type[Analysis]] = []

    def provide(self, result: A) -> None:
        """Use a result that was computed elsewhere, such as one from a cache."""
        self._results[type(result)] = result

    def get(self, key: type[A]) -> A:
        """The result of an analysis, computed on the first call."""
        result = self._results.get(key)
        if result is None:
            result = self._results[key] = self._compute(key)
        return cast(A, result)

    def _compute(self, key: type[A]) -> A:
        if key in self._active:
            chain: list[type[Analysis]] = [*self._active[self._active.index(key) :], key]
            raise AnalysisError("analyses need each other: " + " -> ".join(a.name for a in chain))
        self._active.append(key)
        try:
            for need in key.needs:
                self.get(need)
            return key.compute(self.program, _DeclaredFacts(self, key))
        finally:
            self._active.pop()


class _DeclaredFacts:
    """The facts that one analysis may see."""

    def __init__(self, manager: AnalysisManager, owner: type[Analysis]) -> None:
        self._manager = manager
        self._owner = owner
        self.store = manager.store

    def get(self, key: type[A]) -> A:
        if key not in self._owner.needs:
            raise AnalysisError(
                f"analysis `{self._owner.name}` uses `{key.name}` without declaring it in `needs`"
            )
        return self._manager.get(key)
