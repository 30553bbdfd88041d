"""One kind of picture for all figures of the paper's page: rows of dots on an axis, as SVG.

In: rows with dots, and marks of what the paper published. Out: the text of an SVG that is readable
on a light and on a dark page. A hollow dot is not from measured rows on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from statistics import median

COLOURS = ("#3f7fd1", "#e07b39", "#2f9e77", "#b565b0", "#a68a1f", "#7d8794")
_LIGHT = "text #1f2328 .m #59636e .bg #ffffff .paper #c1121f"
_DARK = "text #e6edf3 .m #9da7b3 .bg #0d1117 .paper #ff7b83"
_LINES = (".grid #d9dee4 .one #59636e .mid #1f2328", ".grid #2b323b .one #9da7b3 .mid #e6edf3")


def _rules(words: str, what: str) -> str:
    parts = words.split()
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return " ".join(f"{name} {{ {what}: {colour} }}" for name, colour in pairs)


_STYLE = (
    "<style>text { font: 13px system-ui, sans-serif } .h { font-weight: 600 } "
    f".mid {{ stroke-width: 2 }} {_rules(_LIGHT, 'fill')} {_rules(_LINES[0], 'stroke')}\n"
    "@media (prefers-color-scheme: dark) { "
    f"{_rules(_DARK, 'fill')} {_rules(_LINES[1], 'stroke')} }}</style>"
)
_WIDTH, _LEFT, _RIGHT, _ROW = 860, 250, 24, 24


@dataclass(frozen=True, slots=True)
class Dot:
    """A value; `kind` is its place in the legend."""

    value: float
    kind: int = 0
    hollow: bool = False
    title: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A row of dots. `paper` has values that the paper published; `middle`: mark the median."""

    label: str
    dots: Sequence[Dot] = ()
    paper: Mapping[float, str] | None = None
    middle: bool = True
    bar: tuple[float, float] | None = None


def strips(
    title: str,
    rows: Sequence[Strip],
    ticks: Sequence[float],
    legend: Sequence[str] = (),
    *,
    log: bool = False,
    unit: str = "times",
) -> str:
    """The picture. A row without dots is a heading. Values beyond the ticks stand at the edge."""
    low, high = ticks[0], ticks[-1]

    def x(value: float) -> float:
        value = min(max(value, low), high)
        part = log10(value / low) / log10(high / low) if log else (value - low) / (high - low)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    top = 52 + 22 * bool(legend)
    height = top + _ROW * len(rows) + 14
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">',
        f"<title>{escape(title)}</title>{_STYLE}",
        '<rect class="bg" width="100%" height="100%"/>',
        f'<text class="h" x="12" y="22">{escape(title)}</text>',
    ]
    at = 12.0
    if any(row.paper for row in rows):
        legend = (*legend, "the paper")
    for kind, name in enumerate(legend):
        mark = _diamond(at + 6, 40) if name == "the paper" else _dot(at + 6, 40, Dot(0, kind))
        made.append(f'{mark}<text class="m" x="{at + 16:.0f}" y="44">{escape(name)}</text>')
        at += 36 + 7.4 * len(name)
    for tick in ticks:
        style = "one" if tick == 1 else "grid"
        made.append(
            f'<line class="{style}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{top}" '
            f'y2="{height - 14}"/><text class="m" x="{x(tick):.1f}" y="{top - 6}" '
            f'text-anchor="middle">{tick:,.10g}</text>'
        )
    made.append(f'<text class="m" x="12" y="{top - 6}">{escape(unit)}</text>')
    for number, row in enumerate(rows):
        y = top + _ROW * (number + 0.5)
        style = "" if row.dots else ' class="h"'
        made.append(f'<text{style} x="12" y="{y + 4:.1f}">{escape(row.label)}</text>')
        if row.bar is not None:
            ends = f'x1="{x(row.bar[0]):.1f}" x2="{x(row.bar[1]):.1f}"'
            made.append(f'<line class="one" {ends} y1="{y:.1f}" y2="{y:.1f}"/>')
        made += [_dot(x(dot.value), y, dot) for dot in row.dots]
        if row.middle and len(row.dots) > 2:
            mid = x(median(dot.value for dot in row.dots))
            made.append(
                f'<line class="mid" x1="{mid:.1f}" x2="{mid:.1f}" y1="{y - 9:.1f}" '
                f'y2="{y + 9:.1f}"/>'
            )
        for value, said in (row.paper or {}).items():
            made.append(_diamond(x(value), y, f"the paper: {said}"))
    return "\n".join([*made, "</svg>", ""])


def _dot(x: float, y: float, dot: Dot) -> str:
    colour = COLOURS[dot.kind % len(COLOURS)]
    fill = (
        'fill="none" stroke-width="1.6"' if dot.hollow else f'fill="{colour}" fill-opacity="0.75"'
    )
    said = f"<title>{escape(dot.title)}</title>" if dot.title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" stroke="{colour}" {fill}>{said}</circle>'


def _diamond(x: float, y: float, said: str = "") -> str:
    path = f"M{x:.1f} {y - 7:.1f} l6 7 l-6 7 l-6 -7 z"
    return f'<path class="paper" d="{path}"><title>{escape(said)}</title></path>'
