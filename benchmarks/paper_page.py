"""The page of the paper's figures, and its plots as SVG: `benchmarks.paper show` calls this."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

NOISE = 0.05
COARSE = ("dp", "phase", "attention", "layers")
_NAMES = {
    "dp": "data parallel",
    "phase": "phase",
    "attention": "attention/FFN",
    "layers": "layers",
    "two_first": "two of the first",
}
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee")
Row = Mapping[str, object]


def gain(row: Row, over: str, of: str = "kernel") -> float | None:
    """How many times as many requests one split serves as another; None where one is missing."""
    ours, theirs = row.get(of), row.get(over)
    if not isinstance(ours, float) or not isinstance(theirs, float):
        return None
    return theirs / ours


def best_coarse(row: Row) -> tuple[str, float] | None:
    """The best of the splits that people make without a search."""
    known = [(name, row[name]) for name in COARSE if isinstance(row.get(name), float)]
    return min(known, key=lambda pair: pair[1]) if known else None  # type: ignore[arg-type, return-value]


def shown(value: float | None) -> str:
    """A gain as the page has it: nothing below the error of the times."""
    if value is None:
        return "-"
    return "none" if abs(value - 1) < NOISE else f"{value:.2f}"


def write_page(
    data: Mapping[str, object],
    missing: Sequence[str],
    not_covered: Sequence[str],
    page: Path,
    plots: Path,
) -> None:
    """The page and a plot for each pair."""
    rows: dict[str, Row] = data["cells"]  # type: ignore[assignment]
    folder = plots / "images"
    folder.mkdir(exist_ok=True, parents=True)
    count = len(rows) + len(missing)
    lines = [_HEAD, "", f"{len(rows)} of the {count} cells of the script are computed so far.", ""]
    lines += _summary(list(rows.values()))
    for pair in dict.fromkeys(str(row["pair"]) for row in rows.values()):
        own = [row for row in rows.values() if row["pair"] == pair]
        image = folder / f"paper-{pair.replace(',', '-')}.svg"
        image.write_text(_plot(pair, own))
        lines += ["", f"## {_title(pair)}", ""]
        lines += [f"![kernel level over coarse splits, {_title(pair)}](images/{image.name})", ""]
        lines += _table(own)
    lines += ["", "## Links", "", *_links(list(rows.values()))]
    lines += ["", "## What is not here", ""]
    lines += [f"- {line}" for line in not_covered]
    if missing:
        lines.append(
            f"- {len(missing)} cells that the script has and that were not reached: "
            + _grouped(missing)
        )
    page.write_text("\n".join(lines) + "\n")


_HEAD = "\n".join(
    (
        "# The paper's figures",
        "",
        "`python -m benchmarks.paper run` makes these figures from "
        "[measured tables](planning.md#tables), the planner's search and the rules by which steps "
        "and transfers take time; `show` writes this page (`benchmarks/results/paper.json`). "
        "Nothing here ran on these GPUs.",
        "",
        "A cell is a pair of GPUs, a model, a batch and a mix of lengths (tokens of prompt and "
        "answer); prompts are read in fours, over a link of 100 Gb/s unless said. Figures are "
        "requests per second of the split by kernels over those of another way to use the same "
        "two GPUs, in the steady state, within their memory. Differences below 5% are within the "
        "error of looked-up times, and are printed as none. `bound` is what kernel level would "
        "reach over the best coarse split if transfers, gaps and memory cost nothing. `tables` is "
        "the share of the time on each GPU that comes from tables; the rest is the model with "
        "data sheets.",
    )
)


def _summary(rows: Sequence[Row]) -> list[str]:
    """Where the published gain is met, and where not."""
    phase = [(g, row) for row in rows if (g := gain(row, "phase")) is not None]
    best = [
        (pair[1] / row["kernel"], row)  # type: ignore[operator]
        for row in rows
        if isinstance(row.get("kernel"), float) and (pair := best_coarse(row)) is not None
    ]
    if not phase or not best:
        return ["No cell has all that is compared."]
    top, where = max(phase, key=lambda item: item[0])
    mean = sum(g for g, _ in phase) / len(phase)
    gained = [g for g, _ in best if g - 1 >= NOISE]
    most, at = max(best, key=lambda item: item[0])
    near = [(g, _bound_gain(row)) for g, row in best]
    reached = [g >= 0.9 * b for g, b in near if b is not None and b > 1.05]
    two = [g for row in rows if (g := gain(row, "two_first")) is not None]
    lines = [
        "The paper publishes up to 2.3 times the throughput of prefill/decode splits, 1.5 in the "
        f"mean. Here: up to {top:.2f} ({_where(where)}), {mean:.2f} in the mean of {len(phase)} "
        "cells.",
        f"Over the best coarse split, data parallel among them, there is a gain of more than 5% "
        f"in {len(gained)} of {len(best)} cells, at most {most:.2f} ({_where(at)}). Data "
        "parallelism explains most of the gain over phase splits.",
        f"Of {len(reached)} cells whose bound is above 1.05, {sum(reached)} reach 90% of it.",
    ]
    if two:
        lines.append(
            f"Against two of the first GPU of the pair: {min(two):.2f} to {max(two):.2f} times "
            "the requests, before prices."
        )
    return lines


def _bound_gain(row: Row) -> float | None:
    pair = best_coarse(row)
    bound = row.get("bound")
    return None if pair is None or not isinstance(bound, float) else pair[1] / bound


def _where(row: Row) -> str:
    mix: list[int] = row["mix"]  # type: ignore[assignment]
    return (
        f"{row['model']} on {_title(str(row['pair']))}, batch {row['batch']}, "
        f"{mix[0]}/{mix[1]}, {row['link']}"
    )


def _title(pair: str) -> str:
    return " + ".join(name.upper() for name in pair.split(","))


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [
        "| model, lengths | batch | over data parallel | over phase | over attention/FFN "
        "| over layers | over the best | bound | without overlap | over two of the first "
        "| per dollar, over two of the first | tables |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    usual = [row for row in rows if row["link"] == "100Gb/s"]
    order = sorted(usual, key=lambda r: (str(r["model"]), str(r["mix"]), int(str(r["batch"]))))
    for row in order:
        mix: list[int] = row["mix"]  # type: ignore[assignment]
        pair = best_coarse(row)
        over = None if pair is None else gain(row, pair[0])
        bound = _bound_gain(row)
        two = gain(row, "two_first")
        prices: list[float] = row["usd_per_hour"]  # type: ignore[assignment]
        per = None
        if two is not None and None not in prices:
            per = two * 2 * prices[0] / sum(prices)
        alone = None if pair is None else gain(row, pair[0], of="kernel_alone")
        shares: list[float] = row["table_share"]  # type: ignore[assignment]
        cells = [
            f"{row['model']}, {mix[0]}/{mix[1]}",
            str(row["batch"]),
            *(shown(gain(row, name)) for name in COARSE),
            shown(over),
            "-" if bound is None else f"{bound:.2f}",
            shown(alone),
            shown(two),
            shown(per),
            " ".join(f"{share:.0%}" for share in shares),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "A dash: the way does not fit the memory of the two GPUs, so there is nothing to compare.",
    ]
    return lines


def _links(rows: Sequence[Row]) -> list[str]:
    """Kernel level by link, over the same at 100 Gb/s."""
    by: dict[tuple[str, str, int, str], dict[str, Row]] = {}
    for row in rows:
        key = str(row["pair"]), str(row["model"]), int(str(row["batch"])), str(row["mix"])
        by.setdefault(key, {})[str(row["link"])] = row
    lines = ["| pair, model, batch | 25 Gb/s over 100 | 400 Gb/s over 100 |", "|---|---|---|"]
    for (pair, model, batch, _), links in by.items():
        base = links.get("100Gb/s", {}).get("kernel")
        if len(links) < 2 or not isinstance(base, float):
            continue
        values = []
        for name in ("25Gb/s", "400Gb/s"):
            other = links.get(name, {}).get("kernel")
            values.append(f"{base / other:.3f}" if isinstance(other, float) else "-")
        lines.append(f"| {_title(pair)}, {model}, {batch} | {' | '.join(values)} |")
    return lines if len(lines) > 2 else ["No cell with another link was reached."]


def _grouped(names: Sequence[str]) -> str:
    counts: dict[str, int] = {}
    for name in names:
        _, model, *rest = name.split(" ")
        key = f"{model}, {' '.join(rest[1:])}"
        counts[key] = counts.get(key, 0) + 1
    return "; ".join(f"{key} ({count})" for key, count in counts.items())


def _plot(pair: str, rows: Sequence[Row]) -> str:
    """Gains by batch at 100 Gb/s, a line per baseline, for each model."""
    usual = [r for r in rows if r["link"] == "100Gb/s" and r["mix"] == [1020, 129]]
    models = list(dict.fromkeys(str(row["model"]) for row in usual))
    width, height, left, top = 330, 260, 46, 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * max(len(models), 1) + 150}" '
        f'height="{height + 60}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    names = (*COARSE, "two_first")
    for number, model in enumerate(models):
        own = sorted((r for r in usual if r["model"] == model), key=lambda r: int(str(r["batch"])))
        x0 = number * width + left
        parts.append(f'<text x="{x0}" y="20">{model} on {_title(pair)}, 1020/129</text>')
        parts += _axes(x0, top, width - 70, height - 40, [str(r["batch"]) for r in own])
        for name, colour in zip(names, _COLOURS, strict=True):
            points = []
            for at, row in enumerate(own):
                value = gain(row, name)
                if value is not None:
                    x = x0 + (at + 0.5) * (width - 70) / max(len(own), 1)
                    points.append((x, _y(value, top, height - 40)))
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}"/>')
            parts += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points
            ]
    x = width * max(len(models), 1) + 10
    for at, (name, colour) in enumerate(zip(names, _COLOURS, strict=True)):
        y = top + 14 + 18 * at
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}">over {_NAMES[name]}</text>')
    return "\n".join([*parts, "</svg>", ""])


_LOW, _HIGH = 0.6, 2.4


def _y(value: float, top: float, height: float) -> float:
    part = (min(max(value, _LOW), _HIGH) - _LOW) / (_HIGH - _LOW)
    return top + height * (1 - part)


def _axes(x0: float, top: float, width: float, height: float, labels: Sequence[str]) -> list[str]:
    parts = []
    for tick in (0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.2):
        y = _y(tick, top, height)
        colour = "#888" if tick == 1.0 else "#ddd"
        parts.append(
            f'<line x1="{x0}" y1="{y:.1f}" x2="{x0 + width}" y2="{y:.1f}" stroke="{colour}"/>'
        )
        parts.append(f'<text x="{x0 - 28}" y="{y + 4:.1f}">{tick:.1f}</text>')
    for at, label in enumerate(labels):
        x = x0 + (at + 0.5) * width / max(len(labels), 1)
        parts.append(f'<text x="{x - 8:.1f}" y="{top + height + 18}">{label}</text>')
    parts.append(f'<text x="{x0 + width / 2 - 20}" y="{top + height + 36}">batch</text>')
    return parts
