"""The page of the paper's figures, pictures first: `figures show` calls this.

In: `paper.json`, `paper_kernels.json`, `paper_clusters.json` in the folder of results. Out:
`paper.md` and its pictures. Every number on the page comes from these files, except those that the
paper published.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.paper.gains import (
    LINKS,
    NOISE,
    Row,
    best_coarse,
    gain,
    is_measured,
    over_best,
    per_dollar,
    title_of,
    where,
)
from benchmarks.paper.pictures import Dot, Strip, strips

_PAIRS = ("a100,l40s", "h100,rtx-pro-6000", "b200,h100")
_PER_DOLLAR = {"a100,l40s": 1.5, "h100,rtx-pro-6000": 1.6, "b200,h100": 1.01}
_TOP = "h100,rtx-pro-6000"
_KERNELS = {
    "tessera::experts": "experts",
    "tessera::merged_linear": "q, k, v",
    "aten::linear": "other products",
    "aten::scaled_dot_product_attention": "attention",
}
_FORMS = {"phase": "phase", "data parallel": "data parallel", "layers": "layers"}
_GAINS = (0.6, 0.8, 1, 1.2, 1.4, 1.6, 1.8, 2, 2.2, 2.4)


def write_page(data: Row, docs: Path) -> None:
    """The page and its pictures."""
    kernels = json.loads((RESULTS / "paper_kernels.json").read_text("utf-8"))
    clusters = json.loads((RESULTS / "paper_clusters.json").read_text("utf-8"))["clusters"]
    rows: list[Row] = list(data["cells"].values())
    single = [row for row in rows if row["count"] == 1]
    pictures = {
        "kernels": _times(kernels),
        "ratios": _ratios(kernels),
        "throughput": _throughput(rows),
        "dollar": _dollars(rows),
        "clusters": _clusters(clusters),
        "overlap": _overlap(single),
        "links": _links(rows),
    }
    folder = docs / "images"
    for old in folder.glob("paper-*.svg"):
        old.unlink()
    for name, picture in pictures.items():
        (folder / f"paper-{name}.svg").write_text(picture)
    (docs / "paper.md").write_text(_page(rows, kernels, clusters))


# --- pictures ------------------------------------------------------------------------------------


def _times(data: Mapping[str, Any]) -> str:
    rows = []
    for step, kernels in data["steps"].items():
        if step in ("llama-8b-decode-b1", "llama-8b-prefill-1024"):
            continue
        rows.append(Strip(label=step))
        for name, words in _KERNELS.items():
            times = kernels.get(name)
            if times:
                dots = [
                    Dot(own[0], kind, own[1] != "table", f"{gpu}: {own[0]:,.0f} us, {own[1]}")
                    for kind, (gpu, own) in enumerate(times.items())
                ]
                rows.append(Strip(label=f"  {words}", dots=dots, middle=False))
    ticks = (100, 300, 1000, 3000, 10_000, 40_000)
    title = "Time of the kernels of a step on five GPUs"
    return strips(title, rows, ticks, data["gpus"], log=True, unit="us, all layers")


def _ratios(data: Mapping[str, Any]) -> str:
    rows = []
    for name, words in _KERNELS.items():
        for step, kernels in data["steps"].items():
            if not step.startswith("gpt-oss"):
                continue
            dots = [
                Dot(ratio, kind, not measured, f"{title_of(pair)}: {ratio:.2f}")
                for kind, pair in enumerate(_PAIRS)
                for ratio, measured in [_ratio(kernels[name], pair)]
            ]
            label = f"{words}, {step.removeprefix('gpt-oss-20b-')}"
            rows.append(Strip(label=label, dots=dots, middle=False))
    title = "GPT-oss 20B: time on the second GPU over time on the first"
    legend = [title_of(pair) for pair in _PAIRS]
    ticks = (0.3, 0.5, 0.7, 1, 1.5, 2, 3)
    return strips(title, rows, ticks, legend, log=True, unit="below 1: the second is faster")


def _ratio(times: Mapping[str, Sequence[Any]], pair: str) -> tuple[float, bool]:
    first, second = (times[gpu] for gpu in pair.split(","))
    return second[0] / first[0], first[1] == second[1] == "table"


def _models(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["model"]) for row in rows))


def _of_pair(
    rows: Sequence[Row], pair: str, over: str, link: str = "100Gb/s"
) -> list[tuple[float, Row]]:
    own = (row for row in rows if row["pair"] == pair)
    return [(times, row) for row in own if (times := gain(row, over, link=link)) is not None]


def _dots(gains: Sequence[tuple[float, Row]], models: Sequence[str]) -> list[Dot]:
    return [
        Dot(times, models.index(row["model"]), not is_measured(row), f"{times:.2f}: {where(row)}")
        for times, row in gains
    ]


def _throughput(rows: Sequence[Row]) -> str:
    models = _models(rows)
    made = []
    means = {"phase": 1.5, "attention": 1.35}
    for over, words in (
        ("phase", "prompts and answers apart (phase)"),
        ("attention", "attention and FFN apart"),
        ("layers", "layers in turn"),
        ("dp", "a copy on each GPU (data parallel)"),
    ):
        made.append(Strip(label=f"over {words}"))
        for pair in _PAIRS:
            dots = _dots(_of_pair(rows, pair, over), models)
            paper = {means[over]: "mean of all pairs"} if over in means else {}
            if over == "phase" and pair == _TOP:
                paper |= {2.3: "GPT-oss 20B, at most"}
            made.append(Strip(label=f"  {title_of(pair)}", dots=dots, paper=paper))
    title = "Requests per second of the best split by kernels, over"
    return strips(title, made, _GAINS, models)


def _dollars(rows: Sequence[Row]) -> str:
    models = _models(rows)
    made = []
    for pair in _PAIRS:
        own = [row for row in rows if row["pair"] == pair]
        known = [(times, row) for row in own if (times := per_dollar(row)) is not None]
        paper = {_PER_DOLLAR[pair]: "performance per dollar"}
        made.append(Strip(label=title_of(pair), dots=_dots(known, models), paper=paper))
    title = "Requests per dollar of the best split by kernels, over two of the first GPU"
    return strips(title, made, _GAINS, models)


def _clusters(clusters: Mapping[str, Any]) -> str:
    """The answer of `tessc fleet` and today's forms over the phase split."""
    made = []
    model = ""
    for name, row in clusters.items():
        if name.partition(" ")[0] != model:
            model = name.partition(" ")[0]
            made.append(Strip(label=model))
        own = row.get("rows", {})
        base = own.get("phase", {}).get("requests_per_s")
        if base:
            dots = [
                Dot(
                    known["requests_per_s"] / base,
                    kind,
                    title=f"{form}: {known['requests_per_s']:.2f}/s",
                )
                for kind, form in enumerate(("this mix", "data parallel", "layers", "tensor"))
                if (known := own.get(form)) and known["requests_per_s"]
            ]
            dots.reverse()  # the answer is drawn over what equals it
            bar = own["this mix"]["bar_requests_per_s"]
            ends = (bar[0] / base, bar[1] / base) if bar else None
            label = f"  {name.partition(' ')[2].replace(',', ' + ')}"
            made.append(Strip(label=label, dots=dots, middle=False, bar=ends))
    title = "Clusters of 2 to 16 GPUs: requests per second over prompts and answers apart (phase)"
    legend = (
        "the answer of tessc fleet, with its bar",
        "data parallel",
        "layers",
        "tensor parallel",
    )
    return strips(title, made, (0.4, 0.6, 0.8, 1, 1.2, 1.4, 1.6), legend)


_ORDERS = {
    "kernel_alone": "one batch at a time",
    "by_arrival": "first come, first served",
    "by_age": "oldest first",
}


def _overlap(rows: Sequence[Row]) -> str:
    models = _models(rows)
    made = []
    for of, words in _ORDERS.items():
        known = [(g, row) for row in rows if (g := gain(row, "kernel", of)) is not None]
        paper = {0.966: "pipelining with priorities, of the optimum"} if of == "by_age" else None
        made.append(Strip(label=words, dots=_dots(known, models), paper=paper))
    title = "Requests per second over those of the split if nothing waits"
    return strips(title, made, (0.2, 0.4, 0.6, 0.8, 1, 1.2), models)


def _slower(rows: Sequence[Row], link: str) -> list[tuple[float, Row]]:
    known = (row for row in rows if "kernel" in row[LINKS[-1]] and "kernel" in row[link])
    return [(row[LINKS[-1]]["kernel"] / row[link]["kernel"], row) for row in known]


def _links(rows: Sequence[Row]) -> str:
    models = _models(rows)
    made = []
    for link in LINKS[:-1]:
        paper = {0.94: "25 against 200 Gb/s: at least"} if link == LINKS[0] else None
        made.append(Strip(label=link, dots=_dots(_slower(rows, link), models), paper=paper))
    title = f"Requests per second over those with links of {LINKS[-1]}"
    return strips(title, made, (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1), models)


# --- text ----------------------------------------------------------------------------------------


def _page(rows: Sequence[Row], kernels: Mapping[str, Any], clusters: Mapping[str, Any]) -> str:
    parts = [
        _INTRO,
        *_claims(rows),
        *_speeds(kernels),
        *_against(rows),
        *_cost(rows),
        *_sizes(clusters),
        *_order(rows),
        _REST,
    ]
    return "\n\n".join(parts) + "\n"


_INTRO = """# The paper's figures, and ours

[Tessera: Unlocking Heterogeneous GPUs through Kernel-Granularity Disaggregation](https://arxiv.org/abs/2604.10180) is the paper that this compiler follows. It was evaluated on five kinds of GPUs. There were no such GPUs here: our figures are computed from [measured tables](planning.md#tables) of kernels on the same GPUs and from the rules by which steps and transfers take time. Nothing on this page ran on them. A red diamond is what the paper published, as far as we know it: its abstract, and summaries by others.

A cell is a pair of GPUs, a model, a batch and a mix of lengths (tokens of prompt and answer), over a link of 100 Gb/s. *Kernel level* is the best that any split by kernels can do with these times, links and memory: weights on both sides, and a placement for each request, found by a linear program. `tessc plan` has one placement for all requests. A dot is a cell, hollow where tables have less than half of the time on a GPU; the line is the median. Below 5% is within the error of the times. All cells are in `benchmarks/results/paper.json`."""  # noqa: E501


def _claims(rows: Sequence[Row]) -> Iterator[str]:
    yield "## The two claims"
    rows = [row for row in rows if is_measured(row)]
    phase = [(g, row) for row in rows if (g := gain(row, "phase")) is not None]
    top, at = max(phase, key=lambda item: item[0])
    near = [row for g, row in phase if g >= 2]
    copies = [g for row in near if (g := gain(row, "dp")) is not None]
    best = [(g, row) for row in rows if (g := over_best(row)) is not None]
    most, there = max(best, key=lambda item: item[0])
    yield (
        "**2.3 times the throughput** (1.5 in the mean): over splits of prompts and answers on the "
        "same GPUs. The paper's cell is GPT-oss 20B on H100 + RTX PRO 6000. Ours: at most "
        f"{top:.2f} ({where(at)}), {mean(g for g, _ in phase):.2f} in the mean of {len(phase)} "
        f"cells that tables cover, 1.5 or more in {sum(g >= 1.5 for g, _ in phase)}, 2 or more in "
        f"{len(near)}"
        + (f" ({'; '.join(map(where, near))})" if near else "")
        + ". "
        + (
            f"There a copy on each GPU has most of it: {min(copies):.2f} to {max(copies):.2f} "
            "is what is left over that. "
            if copies
            else ""
        )
        + f"Over the best coarse split of a cell at most {most:.2f} is left ({where(there)}), "
        f"more than 5% in {sum(g > 1 + NOISE for g, _ in best)} of {len(best)} cells."
    )
    per = [(g, row) for row in rows if (g := per_dollar(row)) is not None]
    value, cell = max(per, key=lambda item: item[0])
    yield (
        "**1.6 times the requests per dollar**: the paper's abstract sets it against existing "
        "splits. On the same GPUs the price is the same, so that ratio is that of the throughput, "
        "above. Against two of the better GPU instead, which is what one would buy otherwise, "
        f"ours is at most {value:.2f} ({where(cell)}), {median(g for g, _ in per):.2f} in the "
        f"median of {len(per)} cells."
    )
    yield _command("figures run", "both; `figures show` writes this page")


def _command(words: str, what: str) -> str:
    return f"`python -m benchmarks.paper.{words}` makes {what}."


def _picture(name: str, words: str) -> str:
    return f"![{words}](images/paper-{name}.svg)"


def _speeds(data: Mapping[str, Any]) -> Iterator[str]:
    yield "## Kernels differ in which GPU they like (figures 2 and 3)"
    yield _picture("kernels", "time of kernels of a step on five GPUs")
    yield _picture("ratios", "ratio of times on two GPUs, by kernel of GPT-oss")
    spans = []
    for pair in _PAIRS:
        ratios = [
            _ratio(kernels[name], pair)[0]
            for step, kernels in data["steps"].items()
            if step.startswith("gpt-oss")
            for name in _KERNELS
        ]
        spans.append(f"{title_of(pair)} {min(ratios):.2f} to {max(ratios):.2f}")
    yield (
        "Kernel level gains where the ratios of kernels differ, whatever their mean is. For "
        f"GPT-oss 20B they span: {'; '.join(spans)}. At batch 1 the experts are the kernel that "
        "is faster on the cheaper GPU of H100 + RTX PRO 6000, and that is the cell of the claim. "
        "It is a difference of software: the table of the H100 has Triton's experts there, that "
        "of the RTX PRO 6000 Marlin's. Where one GPU is ahead by the same ratio in everything "
        "(B200 + H100), a split has nothing to sort."
    )
    yield (
        "What differs: ours are kernels of vLLM by tables, with the shapes of our traces; a "
        "hollow dot was measured on another GPU or comes from data sheets. "
        + _command("kernels", "it")
    )


def _against(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Throughput over coarser splits (figure 6)"
    yield _picture("throughput", "requests per second over coarse splits, by pair of GPUs")
    behind = [g for row in rows if (g := over_best(row)) is not None and g <= 1 - NOISE]
    winners = [name for row in rows if (name := best_coarse(row))]
    over = {name: [g for row in rows if (g := gain(row, name))] for name in ("phase", "attention")}
    yield (
        f"The mean over phase splits is {mean(over['phase']):.2f} (the paper: 1.5), the median "
        f"over attention/FFN splits {median(over['attention']):.2f} (the paper's mean: 1.35). What "
        "the paper does not have beside them is a copy on each GPU: it uses both fully wherever "
        "the model "
        "fits, and a phase split does so only if the work of the phases happens to divide as the "
        f"speeds do. Data parallel is the best coarse split in {winners.count('dp')} of "
        f"{len(winners)} cells. In {len(behind)} cells kernel level is behind the best coarse "
        "split: with all weights on both GPUs, the paper's stated limit, little memory is left "
        "for batches under way. " + _command("figures run", "it")
    )


def _cost(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Cost"
    yield _picture("dollar", "requests per dollar over two of the first GPU")
    per = {
        pair: [g for row in rows if row["pair"] == pair and (g := per_dollar(row)) is not None]
        for pair in _PAIRS
    }
    listed = "; ".join(
        f"{title_of(pair)} {min(own):.2f} to {max(own):.2f}" for pair, own in per.items() if own
    )
    yield (
        f"Ours: {listed}. The prices are those of our table of GPUs (`tessc gpus`), which differ "
        "from the paper's; so does the baseline, if the paper's is a split. "
        + _command("figures run", "it")
    )


def _sizes(clusters: Mapping[str, Any]) -> Iterator[str]:
    yield "## Clusters of up to 16 GPUs (figure 8)"
    yield _picture("clusters", "clusters of 2 to 16 GPUs, over the phase split")
    known = {name: row["rows"] for name, row in clusters.items() if "rows" in row}
    ahead = []
    for name, rows in known.items():
        usual = [
            own["requests_per_s"]
            for form, own in rows.items()
            if form in ("data parallel", "phase", "layers", "tensor") and own["requests_per_s"]
        ]
        ahead.append((rows["this mix"]["requests_per_s"] / max(usual), name))
    least, most = min(ahead), max(ahead)
    yield (
        "`tessc fleet` chooses the units and their roles itself, for prompts of 1024 and answers "
        "of 256 tokens; where phase pools have as many GPUs as they need, they are much better "
        "than one GPU for each phase, and less is left to gain. Its answer is "
        f"{least[0]:.2f} ({least[1]}) to {most[0]:.2f} ({most[1]}) times the best of data "
        "parallel, phase, layers and tensor parallel (below 1: the answer is the simplest mix "
        "within 5% of the best). A copy of the 70B model takes several GPUs. The search of `tessc "
        "fleet` does not split 70B by kernels. " + _command("clusters", "it")
    )


def _order(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Overlap, order and links (figures 10 and 11)"
    yield _picture("overlap", "without overlap, and two orders of requests")
    yield _picture("links", "slower links")
    single = [row for row in rows if row["count"] == 1]
    by = {of: [g for row in single if (g := gain(row, "kernel", of))] for of in _ORDERS}
    slow = [g for g, _ in _slower(rows, LINKS[0])]
    yield (
        "One batch at a time reaches "
        f"{median(by['kernel_alone']):.0%} of the split with batches that overlap, in the median "
        f"of {len(by['kernel_alone'])} cells. When requests wait for one another, the paper's "
        f"order by age reaches {median(by['by_age']):.1%} of it (the paper: 96.6% of the optimum), "
        f"first come, first served {median(by['by_arrival']):.1%}; the worst cells have long "
        "prefill steps and memory for few batches. Links of 25 in place of 400 Gb/s cost "
        f"{1 - median(slow):.1%} in the median and more than 6% in "
        f"{sum(g < 0.94 for g in slow)} of {len(slow)} cells (the paper: below 6% from 200 to 25 "
        "Gb/s): each link has splits of its own here. We know the paper's two figures by summaries "
        "only, and not which of them has which of these. " + _command("figures run", "both")
    )


_REST = """## What is not here

- Runs on such pairs of GPUs. Llama-3-70B on 1+1 GPUs: it fits no pair.
- Attention sinks of GPT-oss, and sliding windows of its prefill steps. Scans of Mamba2 are priced by their bytes, which is too little for prefill.
- Batches of several sizes at a time, and prompts that differ in length.
- The paper's switching between policies is on a [page of its own](switching.md), and what plans of `tessc plan` bring in 40 cells on [another](gain.md)."""  # noqa: E501
