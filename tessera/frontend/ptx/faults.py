"""Collects the faults found while building, each with its place in the source.

Reductions build bare records, which have no positions. While a statement is being read token by
token, `note` remembers where each of its nodes began, so that a fault in one operand points at it.
"""

from __future__ import annotations

from tessera.diagnostics import Diagnostic, Source, Span, error


class Faults:
    """Diagnostics found so far, and the places of the nodes of the current statement."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.diagnostics: list[Diagnostic] = []
        self._places: dict[int, tuple[object, int, int, int]] = {}

    def note(self, node: object, start: int, end: int, depth: int = 0) -> None:
        """Remember where a node stands (and keep it alive, so that its id stays its own)."""
        self._places[id(node)] = (node, start, end, depth)

    def place(self, node: object) -> tuple[int, int] | None:
        """The place of a node of the current statement."""
        place = self._places.get(id(node))
        return None if place is None else place[1:3]

    def depth(self, node: object) -> int:
        """How many operators are nested in a node of the current statement."""
        place = self._places.get(id(node))
        return 0 if place is None else place[3]

    def forget_places(self) -> None:
        """Drop the places of the nodes of a finished statement."""
        self._places.clear()

    def add(
        self,
        code: str,
        headline: str,
        start: int,
        end: int,
        label: str = "",
        *,
        hint: str | None = None,
    ) -> None:
        """Report a fault at characters `start` to `end`."""
        span = Span(self.source, start, max(end, start + 1))
        self.diagnostics.append(error(code, headline, span, label, hint=hint))

    def add_at(
        self, code: str, headline: str, node: object, fallback: int, label: str = ""
    ) -> None:
        """Report a fault at a node of the current statement."""
        start, end = self.place(node) or (fallback, fallback + 1)
        self.add(code, headline, start, end, label)
