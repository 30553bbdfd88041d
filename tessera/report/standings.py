"""Which of two ways to serve requests is better, where the bar of their ratio tells.

In: names with their `Doubt` against one of them. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.planning.promise.doubt import Doubt, Standing


def standings(rows: Iterable[tuple[str, Doubt | None]], other: str) -> Iterator[str]:
    """How ways compare with another one; where that is not known, what to measure."""
    for name, against in rows:
        if against is None:
            continue
        ratio = f"{against.gain:+.1%}, {against.low:+.1%} to {against.high:+.1%}"
        yield f"  {name}: {ratio} with the error bars, {standing_words(against, other)}"
        if against.standing is Standing.OPEN and against.causes:
            yield f"    {to_measure(against)}"


def standing_words(against: Doubt, other: str) -> str:
    """Whether a way is ahead of the other one or behind it."""
    if against.standing is Standing.OPEN:
        return "the error bars do not tell which is better"
    return f"{against.standing.value} {'of ' * (against.standing is Standing.AHEAD)}{other}"


def to_measure(against: Doubt) -> str:
    """What would tell which is better."""
    listed = ", ".join(f"{name} on {device}" for name, device in against.causes)
    return f"to know, measure {listed}: `tessc profile`"
