"""The figures of docs/concepts/switching.md, from what `benchmarks.serving.adaptation` has written.

    python -m benchmarks.serving.adaptation_page

Reads adaptation.json, adaptation_choice.json and adaptation_sweep.json of the results. Writes
the part of the page between its two marks, and docs/concepts/switching.svg: the mean and the 99th
percentile of the time of a request by the window and by the high mark, as shares of the best.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import log10
from typing import Any

from benchmarks.common import RESULTS, ROOT

PAGE = ROOT / "docs" / "concepts" / "switching.md"
BEGIN, END = (
    "<!-- figures: written by `python -m benchmarks.serving.adaptation_page` -->\n",
    "<!-- end",
)
WIDE, HIGH, EDGE = 300, 180, 44
COLOURS = ("#1f6fb4", "#c2571a")


def table(result: dict[str, Any]) -> list[str]:
    slo = result["slo"]
    lines = [
        "Simulated, both Azure traces of 2023 (AzurePublicDataset, CC-BY-4.0), an A100 and an L40S "
        "with step times of about an 8B model, at shares of the rate that the policy for "
        f"throughput reaches. Goodput counts requests with TTFT within {slo['ttft_s']:g} s and "
        f"TPOT within {slo['tpot_s'] * 1e3:g} ms. Factors above 1 are worse: against the better of "
        "the two policies alone (of each figure by itself), and against the oracle, which is the "
        "best of several rules that know all arrivals ([results]"
        "(../../benchmarks/results/adaptation.json), `python -m benchmarks.serving.adaptation`).",
        "",
        *chosen(result),
        "",
        "| trace, load | answered, switches | goodput/s | mean | p99 | against the better one | "
        "against the oracle |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, own in result["files"].items():
        for row in own["scales"]:
            made, factors = row["adaptive"], row["factors"]
            against = {
                which: ", ".join(
                    f"{factors[f'{key} against {which}']:.3f}"
                    for key in ("goodput_per_s", "mean_s", "p99_s")
                )
                for which in ("alone", "oracle")
            }
            lines.append(
                f"| {short(name)}, {row['scale']} "
                f"| {made['answered']:.0f}, {made['switches']:.0f} | {made['goodput_per_s']:.2f} "
                f"| {made['mean_s']:.1f} s | {made['p99_s']:.1f} s | {against['alone']} "
                f"| {against['oracle']} |"
            )
    rows = [(own["requests"], row) for own in result["files"].values() for row in own["scales"]]
    asked, answered = (
        sum(n for n, _ in rows),
        sum(int(row["adaptive"]["answered"]) for _, row in rows),
    )
    lines += ["", f"Of all {asked:,} requests that were switched, {answered:,} were answered."]
    return lines


def chosen(result: dict[str, Any]) -> list[str]:
    """How the rules were found that are judged here."""
    choice = json.loads((RESULTS / "adaptation_choice.json").read_text(encoding="utf-8"))["files"]
    parts = []
    for name, own in result["files"].items():
        (other,) = [row for key, row in choice.items() if key != name]
        rule = own["rule"]
        assert rule == other["choice"]["chosen"]
        parts.append(
            f"{short(name)} by a window of {rule['window_s']:g} s and marks of {rule['high']:g} "
            f"and {rule['low']:g}"
        )
    loads = other["choice"]["scales"]
    return [
        "The limits were set before any of these runs. No trace is judged by a rule that was "
        f"chosen on it: of {len(other['choice']['tried'])} windows and marks the best on the first "
        f"{other['requests']} requests of the other trace was taken, at loads of "
        f"{', '.join(map(str, loads))} ([results]"
        "(../../benchmarks/results/adaptation_choice.json)): "
        f"{', '.join(parts)}. That prompts with a row count against a tenth of the window was "
        "decided with the first 1500 requests of both traces in view, at those other loads.",
    ]


def short(name: str) -> str:
    return name.split(".")[0].removeprefix("azure_2023_")


def curve(points: Sequence[tuple[float, float]], left: int, colour: str, most: float) -> str:
    """A line over a logarithmic axis, from the smallest to the largest value."""
    low, high = log10(points[0][0]), log10(points[-1][0])
    places = [
        (
            left + EDGE + (log10(x) - low) / (high - low) * (WIDE - EDGE - 10),
            10 + (1 - (y - 1) / (most - 1)) * (HIGH - EDGE),
        )
        for x, y in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places
    )
    return f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.5"/>{dots}'


def drawing(sweep: dict[str, Any]) -> str:
    parts = []
    rows = [
        (name, rows)
        for name, own in sweep["files"].items()
        for key, rows in own.items()
        if key.startswith("sweep")
    ]
    for down, (name, listed) in enumerate(rows):
        for across, key in enumerate(("window_s", "high")):
            usual = sweep["rule"]["high" if key == "window_s" else "window_s"]
            other = "high" if key == "window_s" else "window_s"
            chosen = sorted((row for row in listed if row[other] == usual), key=lambda r: r[key])
            left, top = across * (WIDE + 10), down * (HIGH + 10)
            curves = []
            for figure in ("mean_s", "p99_s"):
                best = min(row[figure] for row in listed)
                curves.append([(row[key], row[figure] / best) for row in chosen])
            most = max(1.1, max(y for points in curves for _, y in points))
            body = "".join(
                curve(points, 0, colour, most)
                for points, colour in zip(curves, COLOURS, strict=True)
            )
            words = {"window_s": "window in seconds", "high": "high mark"}[key]
            ends = (chosen[0][key], chosen[-1][key])
            body += (
                f'<path d="M{EDGE} 10V{HIGH - EDGE + 10}H{WIDE - 10}" fill="none" stroke="#888"/>'
                f'<text x="4" y="16">{most:.2f}</text><text x="4" y="{HIGH - EDGE + 12}">1</text>'
                f'<text x="{EDGE}" y="{HIGH - 14}">{ends[0]:g}</text>'
                f'<text x="{WIDE - 30}" y="{HIGH - 14}">{ends[1]:g}</text>'
                f'<text x="{WIDE / 2 - 30}" y="{HIGH - 2}">{words}, {short(name)}</text>'
            )
            parts.append(f'<g transform="translate({left},{top})">{body}</g>')
    wide, high = 2 * WIDE + 10, len(rows) * (HIGH + 10) + 16
    legend = "".join(
        f'<text x="{EDGE + 80 * n}" y="{high - 4}" fill="{colour}">{word}</text>'
        for n, (word, colour) in enumerate(zip(("mean", "p99"), COLOURS, strict=True))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" '
        f'font-family="sans-serif" font-size="10">{"".join(parts)}{legend}</svg>\n'
    )


def main() -> None:
    result = json.loads((RESULTS / "adaptation.json").read_text(encoding="utf-8"))
    lines = table(result)
    swept = RESULTS / "adaptation_sweep.json"
    if swept.exists():
        sweep = json.loads(swept.read_text(encoding="utf-8"))
        (PAGE.parent / "switching.svg").write_text(drawing(sweep), encoding="utf-8")
        requests = next(iter(sweep["files"].values()))["requests"]
        lines += [
            "",
            "What the window and the high mark change, at a load of 0.6, as shares of the best, on "
            f"the first {requests} requests of each trace "
            "([results](../../benchmarks/results/adaptation_sweep.json)):",
            "",
            "![times of requests by window and mark](switching.svg)",
        ]
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest[rest.index(END) :]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + after, encoding="utf-8")


if __name__ == "__main__":
    main()
