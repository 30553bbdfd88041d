"""Which of two ways to serve requests is better, where the bar of their ratio tells.

In: names with their `Doubt` against one of them. Out: lines of text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.ir.objectives import FigureUnit
from tessera.planning.promise.doubt import Doubt, Standing
from tessera.report.kernel_names import short_name

_FIGURES = {
    FigureUnit.RATE: "requests/s",
    FigureUnit.TIME: "latency",
    FigureUnit.USD: "cost",
}


def standings(
    rows: Iterable[tuple[str, Doubt | None]], other: str, unit: FigureUnit
) -> Iterator[str]:
    """How ways compare with another one; where that is not known, what to measure."""
    for name, against in rows:
        if against is None:
            continue
        said = _standing(against, other)
        yield f"  {name} against {other}: {change_words(against, unit)}: {said}"
        if against.standing is Standing.OPEN and against.causes:
            yield f"    to know, measure {causes_of(against)}: `tessc profile`"


def change_words(against: Doubt, unit: FigureUnit) -> str:
    """How the figure of a way differs from that of its rival, with the ends of the bar.

    A doubt has how many times as good the way is; times and costs change by the inverse of that.
    """
    gain, low, high = against.gain, against.low, against.high
    if unit is not FigureUnit.RATE:
        gain, high, low = (1.0 / (1.0 + end) - 1.0 for end in (gain, low, high))
    return f"{_FIGURES[unit]} {gain:+.1%}, {low:+.1%} to {high:+.1%} with the error bars"


def causes_of(against: Doubt) -> str:
    """The steps whose times decide, and where."""
    return ", ".join(f"{short_name(name)} on {device}" for name, device in against.causes)


def _standing(against: Doubt, other: str) -> str:
    if {f"{end:.1%}" for end in (against.gain, against.low, against.high)} == {"0.0%"}:
        return f"as good as {other}"
    match against.standing:
        case Standing.OPEN:
            return "the bars do not tell which is better"
        case Standing.AHEAD:
            return f"better than {other}"
        case Standing.BEHIND:
            return f"{other} is better"
