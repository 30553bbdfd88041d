"""Gains of cells of the paper's figures, and the tables of all of them: `figures show` calls this.

In: rows of `paper.json`. Out: gains, and a file of tables.

Longer than 400 lines because the file is one text, a section after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

NOISE = 0.05
ENOUGH = 0.9
_LOST = {
    "caches": "caches",
    "link": "the link",
    "transfers": "transfers",
    "short": "short requests",
    "memory": "memory",
}
USUAL = "100Gb/s"
LINKS = ("25Gb/s", USUAL, "400Gb/s")
COARSE = ("dp", "phase", "attention", "layers", "tensor")
_FEW_ROWS = 0.5
Row = Mapping[str, Any]


def figure(row: Row, name: str, link: str = USUAL) -> float | None:
    """A period of a cell; `queued` is the better of the two orders."""
    own = row[link]
    if name == "bound":
        return float(row["bound"])
    if name == "queued":
        both = [own[key] for key in ("by_age", "by_arrival") if key in own]
        return min(both) if both else None
    value = own.get(name)
    return None if value is None else float(value)


def gain(row: Row, over: str, of: str = "kernel", link: str = USUAL) -> float | None:
    """How many times as many requests one split serves as another; None if one is missing."""
    ours, theirs = figure(row, of, link), figure(row, over, link)
    return None if ours is None or theirs is None else theirs / ours


def best_coarse(row: Row, link: str = USUAL) -> str | None:
    """The best of the splits that people make without a search."""
    known = {n: v for n in COARSE if (v := figure(row, n, link)) is not None}
    return min(known, key=lambda name: known[name]) if known else None


def over_best(row: Row, of: str = "kernel", link: str = USUAL) -> float | None:
    """Over the best coarse split."""
    name = best_coarse(row, link)
    return None if name is None else gain(row, name, of, link)


def shown(value: float | None) -> str:
    """A gain as the page has it: nothing below the error of the times."""
    if value is None:
        return "-"
    return "none" if abs(value - 1) < NOISE else f"{value:.2f}"


def eaten(row: Row) -> str:
    """What keeps kernel level from nine tenths of its bound; empty where nothing does."""
    if not falls_short(row):
        return ""
    if "losses" in row:
        most = max(row["losses"], key=lambda name: row["losses"][name])
        words = f"{_LOST[most]} ({row['losses'][most] - 1:.0%})"
        room = row[USUAL]["lanes"][1]
        return f"{words}: room for {room} under way" if most == "memory" else words
    own = row[USUAL]
    if max(own["busy"]) < 0.98:
        return f"memory holds {own['lanes'][1]} batches under way"
    return "the link" if own["busy"][2] > 0.98 else "transfers"


def is_judged(row: Row) -> bool:
    """Whether its bound over the best coarse split is above the error of times."""
    bound = over_best(row, "bound")
    return bound is not None and bound > 1 + NOISE and over_best(row) is not None


def of_bound(row: Row) -> float:
    """The part of its bound that kernel level reaches."""
    part = gain(row, "bound")
    assert part is not None
    return part


def falls_short(row: Row) -> bool:
    """Whether it is judged, and reaches less than nine tenths of its bound."""
    return is_judged(row) and of_bound(row) < ENOUGH


def nine_tenths(rows: Mapping[str, Row]) -> dict[str, object]:
    """How many cells reach nine tenths of their bound; the part that each of the others does."""
    judged = {name: row for name, row in rows.items() if is_judged(row)}
    below = {name: round(of_bound(row), 3) for name, row in judged.items() if falls_short(row)}
    return {"judged": len(judged), "reached": len(judged) - len(below), "below": below}


def is_measured(row: Row) -> bool:
    """Whether tables have most of the time on both GPUs."""
    return all(own.get("table", 0.0) >= _FEW_ROWS for own in row["sources"])


def write_tables(data: Row, missing: Sequence[str], path: Path) -> None:
    """All cells, and what lies between them and their bounds."""
    rows: list[Row] = list(data["cells"].values())
    single = [row for row in rows if row["count"] == 1]
    lines = [_HEAD]
    for pair in dict.fromkeys(str(row["pair"]) for row in single):
        own = [row for row in single if row["pair"] == pair]
        lines += ["", f"## {title_of(pair)}", "", *_table(own)]
    lines += ["", "## What eats the bound", "", *_lost(rows)]
    if any("planned" in row[USUAL] for row in single):
        lines += ["", "## Planner and simulator", "", *_planned(single)]
    lines += ["", "## No replica on one GPU: Llama-3-70B", "", *_large(rows)]
    lines += ["", "## Links", "", *_links(single)]
    lines += ["", "## Without overlap, another order, weights once", "", *_ablations(single)]
    if missing:
        lines += ["", f"Cells that the script has and that were not reached: {', '.join(missing)}."]
    path.write_text("\n".join(lines) + "\n")


_HEAD = """# The paper's figures: all cells

`python -m benchmarks.paper.figures show` writes this file from `paper.json`; [the page](../../docs/concepts/paper.md) has the pictures, and what they mean.

Figures are requests per second of the split by kernels over those of another way to use the same GPUs. `queued` is the same split when requests wait for one another, with as many batches under way as memory holds, at most 8, in the better of two orders. `bound` is what kernel level would reach over the best coarse split if transfers, gaps and memory cost nothing. `from tables` is the share of the time on each GPU that comes from tables; the rest is carried over by a ratio or comes from the model of data sheets. A star marks models of which tables have less than half. Differences below 5% are within the error of looked-up times, and are printed as none."""  # noqa: E501


def where(row: Row) -> str:
    """The cell in words."""
    sides = f" {row['count']}+{row['count']}" if row["count"] > 1 else ""
    return f"{row['model']} on {title_of(row['pair'])}{sides}, batch {row['batch']}, {mix_of(row)}"


def mix_of(row: Row) -> str:
    """Tokens of prompt and answer."""
    return f"{row['mix'][0]}/{row['mix'][1]}" if row["mix"][0] else "images"


def title_of(pair: str) -> str:
    """A pair of GPUs."""
    return " + ".join(name.upper() for name in pair.split(","))


def per_dollar(row: Row) -> float | None:
    """Requests per dollar over two of the first GPU."""
    two, prices = gain(row, "two_first"), row["usd_per_hour"]
    return None if two is None or None in prices else two * 2 * prices[0] / sum(prices)


def _order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda r: (r["model"], r["count"], r["mix"], r["batch"]))


def _from_tables(row: Row) -> str:
    star = "" if is_measured(row) else " *"
    return " ".join(f"{own.get('table', 0.0):.0%}" for own in row["sources"]) + star


def _cells(row: Row) -> list[str]:
    bound = over_best(row, "bound")
    return [
        *(shown(gain(row, name)) for name in COARSE[:4]),
        shown(over_best(row)),
        shown(over_best(row, "queued")),
        "-" if bound is None else f"{bound:.2f}",
        eaten(row),
        shown(gain(row, "two_first")),
        shown(per_dollar(row)),
        _from_tables(row),
    ]


_COLUMNS = (
    "over data parallel",
    "over phase",
    "over attention/FFN",
    "over layers",
    "over the best",
    "queued, over the best",
    "bound",
    "what eats it",
    "over two of the first",
    "per dollar, over two of the first",
    "from tables",
)


def _lines(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    made = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return [*made, *("| " + " | ".join(cells) + " |" for cells in rows)]


def _table(rows: Sequence[Row]) -> list[str]:
    lines = _lines(
        ("model, lengths", "batch", *_COLUMNS),
        (
            [f"{row['model']}, {mix_of(row)}", str(row["batch"]), *_cells(row)]
            for row in _order(rows)
        ),
    )
    return [
        *lines,
        "",
        "A dash: the way does not fit the memory of these GPUs, or there is no such way.",
    ]


def _lost(rows: Sequence[Row]) -> list[str]:
    """The cells that miss nine tenths of their bound, and what lies between, one by one."""
    short = sorted((row for row in rows if falls_short(row)), key=of_bound)
    if not short:
        return ["Every cell whose bound is above 1.05 reaches 90% of it."]
    return [
        "Cells whose bound over the best coarse split is above 1.05 and that reach less than 90% "
        "of it. Each thing in turn is taken from the bound to the split, and the column says by "
        "how much it makes the time between requests longer. Caches: the steps that use a cache "
        "of a request are on one GPU. Link: bytes over 100 Gb/s. Transfers: what GPUs spend on "
        "each. Short: of nearly equal splits the one in which a request alone takes less. Memory: "
        "fewer batches under way than that takes. Nothing is lost by rounding to whole kernels: "
        "each request has a placement of its own, so a kernel may run on either GPU for any share "
        "of them.",
        "",
        *_lines(
            ("GPUs, model, lengths", "batch", "bound", "reached", *_LOST, "batches under way"),
            (
                [
                    f"{title_of(row['pair'])}, {row['model']}, {mix_of(row)}",
                    str(row["batch"]),
                    f"{over_best(row, 'bound'):.2f}",
                    f"{of_bound(row):.0%}",
                    *(f"{row['losses'][name] - 1:.1%}" if "losses" in row else "-"
                      for name in _LOST),
                    str(row[USUAL]["lanes"][1]),
                ]
                for row in short
            ),
        ),
    ]  # fmt: skip


def _planned(rows: Sequence[Row]) -> list[str]:
    """Plans of `tessc plan`, simulated, beside the linear program."""
    tried = [row for row in rows if "plan" in row[USUAL]]
    made = [row for row in tried if "planned" in row[USUAL]]
    parts = sorted(_of(row, "kernel") for row in made)
    ahead = [_of(row, best_coarse(row) or "kernel") for row in made]
    splits = [row for row in made if _split_ns(row) is not None]
    reached = sorted(_split_of(row) for row in splits)
    ample = [row for row in splits if _split_of(row) >= ENOUGH]
    scarce = [row for row in splits if _split_of(row) < ENOUGH]
    judged = [row for row in made if _bound_over(row) > 1 + NOISE]
    enough = [row for row in judged if row["bound"] / _better_ns(row) >= ENOUGH]
    short = [row for row in judged if row not in enough]

    lines = _lines(
        ("GPUs, model, lengths", "batch", "over kernel level", "over the best coarse split",
         "its best split, over kernel level", "over its own other ways", "plan", "slots", "busy"),
        (
            [
                f"{title_of(row['pair'])}, {row['model']}, {mix_of(row)}",
                str(row["batch"]),
                f"{_of(row, 'kernel'):.2f}",
                f"{_of(row, best_coarse(row) or 'kernel'):.2f}",
                "-" if _split_ns(row) is None else f"{_split_of(row):.2f}",
                _over_others(row),
                row[USUAL]["plan"]["strategy"],
                " + ".join(map(str, row[USUAL]["plan"]["slots"])),
                " ".join(f"{share:.0%}" for share in row[USUAL]["plan"]["busy"].values()),
            ]
            for row in _order(made)
        ),
    )  # fmt: skip
    return [
        "`python -m benchmarks.paper.figures plans` makes the plan of `tessc plan` (gap 1%) for "
        f"the same steps of {len(made)} cells, all layers, prefill and decode in the proportion of "
        "the lengths, and simulates it. Its times are those of the cells; what it has besides: "
        "memory for all that steps hand to one another, one placement for all requests (data "
        "parallel plans have one for each GPU), steps that wait for one another, slots within "
        "memory, and a split only where it gains more than its error bar.",
        "",
        f"Requests per second of these plans over kernel level: {median(parts):.2f} in the median, "
        f"{parts[0]:.2f} at worst, {parts[-1]:.2f} at best. Within 10% of kernel level: "
        f"{sum(part >= ENOUGH for part in parts)} of {len(parts)}. Over the best coarse split of "
        f"the linear program, for which nothing waits: {min(ahead):.2f} to {max(ahead):.2f}, above "
        f"1.05 in {sum(g >= 1 + NOISE for g in ahead)}. So the figures of kernel level on this "
        "page are what could be reached at best, not what `tessc plan` gives.",
        "",
        "A plan is never slower than what `tessc plan` has without a search; a split that is "
        "faster by less than its error bar is listed and not taken. The best split that it lists, "
        f"simulated too, reaches {median(reached):.2f} of kernel level in the median, "
        f"{reached[0]:.2f} at worst, {reached[-1]:.2f} at best; in {len(ample)} of {len(splits)} "
        f"cells 90% or more. In the others ({len(scarce)}) requests wait for one another: a "
        "prefill step holds a GPU for long while the other has nothing to do, and memory bounds "
        "how many batches are under way. Kernel level has no such waiting.",
        "",
        f"Of the {len(judged)} planned cells whose bound is above 1.05, the better of plan and "
        f"best split reaches 90% of the bound in {len(enough)}. Of the others, what kernel level "
        "loses itself is [above](#what-eats-the-bound); the rest is that splits wait, so that data "
        "parallelism is the best there: " + ("; ".join(map(_eaten, short)) or "none") + ".",
        "",
        *lines,
        *(
            f"\n{where(row)}: no plan, {row[USUAL]['plan']['none']}."
            for row in tried
            if "none" in row[USUAL]["plan"]
        ),
    ]


def _of(row: Row, over: str) -> float:
    """Requests per second of the plan over those of another way."""
    times = gain(row, over, "planned")
    assert times is not None
    return times


_SPLITS = ("kernel", "layers", "phase", "attention")


def _split_ns(row: Row) -> float | None:
    """The period of the planner's best split, simulated."""
    plan = row[USUAL]["plan"]
    ways = {**plan["others"], plan["strategy"]: row[USUAL]["planned"]}
    return min((ways[name] for name in _SPLITS if name in ways), default=None)


def _split_of(row: Row) -> float:
    """Requests per second of the planner's best split over kernel level."""
    ns = _split_ns(row)
    assert ns is not None
    return float(row[USUAL]["kernel"] / ns)


def _better_ns(row: Row) -> float:
    """The period of the plan or of its best split, the shorter."""
    return min(row[USUAL]["planned"], _split_ns(row) or row[USUAL]["planned"])


def _bound_over(row: Row) -> float:
    best = best_coarse(row)
    return float(row[USUAL][best] / row["bound"]) if best else 1.0


def _eaten(row: Row) -> str:
    """What a cell reaches of its bound, and what the linear program does."""
    kernel = row["bound"] / row[USUAL]["kernel"]
    reached = row["bound"] / _better_ns(row)
    return f"{where(row)}, {reached:.3f} (kernel level {kernel:.3f})"


def _over_others(row: Row) -> str:
    others = row[USUAL]["plan"]["others"]
    if not others:
        return "-"
    name = min(others, key=lambda other: others[other])
    return f"{others[name] / row[USUAL]['planned']:.2f} ({name})"


def _large(rows: Sequence[Row]) -> list[str]:
    many = [row for row in rows if row["count"] > 1]
    if not many:
        return ["No such cell was reached."]
    lines = _lines(
        ("GPUs, lengths", "batch", "over tensor", *_COLUMNS),
        (
            [
                f"{row['count']}+{row['count']} {title_of(row['pair'])}, {mix_of(row)}",
                str(row["batch"]),
                shown(gain(row, "tensor")),
                *_cells(row),
            ]
            for row in sorted(many, key=lambda r: (r["pair"], r["count"], r["mix"], r["batch"]))
        ),
    )
    return [
        "A side is a host with four GPUs of a kind, or two such hosts, that hold the layers in "
        "turn; a link goes from host to host. Data parallel is a pipeline on each side. Tensor "
        "parallel: every product cut over the GPUs of a side, by the tables' sums, requests dealt "
        "to both sides; missing where tables lack the sums.",
        "",
        *lines,
    ]


def _links(rows: Sequence[Row]) -> list[str]:
    usual = [row for row in rows if row["mix"] == [1020, 129]]
    made = [
        [
            f"{title_of(row['pair'])}, {row['model']}",
            str(row["batch"]),
            *(shown(over_best(row, link=link)) for link in LINKS),
        ]
        for row in _order(usual)
    ]
    some = [row for row in made if set(row[2:]) - {"none", "-"}]
    return [
        "Over the best coarse split with the same link. "
        f"The other {len(made) - len(some)} of {len(made)} cells have no gain with any.",
        "",
        *_lines(("GPUs, model", "batch", *LINKS), some),
    ]


_ABLATIONS = {
    "kernel_alone": "one batch at a time",
    "by_age": "oldest first",
    "by_arrival": "first come, first served",
    "once": "weights once",
}


def _ablations(rows: Sequence[Row]) -> list[str]:
    usual = [row for row in rows if row["mix"] == [1020, 129] and "by_age" in row[USUAL]]
    lines = []
    for of, name in _ABLATIONS.items():
        gains = sorted(g for row in usual if (g := gain(row, "kernel", of)) is not None)
        ends = (gains[0], median(gains), gains[-1])
        lines.append([name, str(len(gains)), *(f"{g:.2f}" for g in ends)])
    return [
        "Requests per second over those of the split by kernels: 1.00 loses nothing. `oldest "
        "first` is the paper's order by age. `weights once` is what the search of `tessc plan` "
        "finds with one placement for all requests and three batches under way, where weights are "
        "on one GPU unless steps of both use them; the split by kernels has all of them on both "
        "(the paper's stated limit).",
        "",
        *_lines(("", "cells", "worst", "median", "best"), lines),
    ]
