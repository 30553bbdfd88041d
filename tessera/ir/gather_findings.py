"""Equal findings on many accesses or launches, reported once with a count.

In: findings in the order of the steps, each with its subject and the position of its step. Out: the
first of each kind, with a note that counts the others and names the first few lines. A faulty
kernel that is launched 20,000 times is reported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tessera.diagnostics import Diagnostic, Span

_LINES_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic; findings with the same code and the same `about` are of one kind."""

    diagnostic: Diagnostic
    about: tuple[str, ...]
    step: Span | None = None


@dataclass(slots=True)
class _FirstPlaces:
    """The number of distinct places, and the first few of them."""

    seen: set[tuple[int, int]] = field(default_factory=set)
    first: list[Span] = field(default_factory=list)

    def add(self, span: Span | None) -> None:
        if span is None or (key := (id(span.source), span.start)) in self.seen:
            return
        self.seen.add(key)
        if len(self.first) <= _LINES_SHOWN:
            self.first.append(span)

    def others(self, singular: str, plural: str) -> str | None:
        """The places after the first, as text: `2 more launches: lines 8 and 9`."""
        count = len(self.seen) - 1
        if count < 1:
            return None
        lines = [str(span.source.position(span.start)[0]) for span in self.first[1:]]
        shown = list(dict.fromkeys(lines))[:_LINES_SHOWN]
        if count > len(lines):
            where = f"lines {', '.join(shown)}, ..."
        elif len(shown) == 1:
            where = f"line {shown[0]}"
        else:
            where = f"lines {', '.join(shown[:-1])} and {shown[-1]}"
        return f"{count} more {singular if count == 1 else plural} ({where})"


@dataclass(slots=True)
class _FindingKind:
    """The first finding of a kind, and the places of all findings of the kind."""

    first: Diagnostic
    places: _FirstPlaces = field(default_factory=_FirstPlaces)
    steps: _FirstPlaces = field(default_factory=_FirstPlaces)

    def told(self) -> Diagnostic:
        """The first diagnostic, with a note on the others."""
        parts = [
            self.places.others("place", "places"),
            self.steps.others("step", "steps"),
        ]
        where = " and ".join(part for part in parts if part is not None)
        if not where:
            return self.first
        return replace(self.first, notes=(*self.first.notes, f"the same in {where}"))


def gather_findings(findings: Iterable[Finding]) -> Iterator[Diagnostic]:
    """One diagnostic for each kind, in the order in which the kinds appear."""
    kinds: dict[tuple[str, ...], _FindingKind] = {}
    for finding in findings:
        diagnostic = finding.diagnostic
        key = (diagnostic.code, *finding.about)
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _FindingKind(diagnostic)
        step = finding.step
        if diagnostic.primary is not None and diagnostic.primary.span != step:
            kind.places.add(diagnostic.primary.span)
        kind.steps.add(step)
    for kind in kinds.values():
        yield kind.told()
