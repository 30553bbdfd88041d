"""What a text report says against itself: sentences compared with the tables beside them.

In: the text of `tessc plan`, `fleet`, `diff` or `simulate`, as for a file. Out: a name for each
contradiction. Figures are read from the text alone, so a fault of the words and one of the records
are found alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

Rows = dict[str, list[str]]
UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
PER_CENT = r"([+-]?[\d.]+)%"
BAR = rf"{PER_CENT}, {PER_CENT} to {PER_CENT} with the error bars"
OPEN = "do not tell"
DRAWS = "in nine of ten draws"
REPLICA = r"^  (?:\d+ )?replicas?(?:, each)?(?: for \S+)?: (.*)\n((?:    .*\n)+)"


def number(text: str) -> float:
    """The first number of a text, a time in nanoseconds."""
    made = re.search(r"(-?[\d.]+)(?: (ns|us|ms|s)\b)?", text)
    return float(made[1]) * UNITS[made[2] or "ns"] if made else 0.0


def tables(text: str, title: str) -> Iterator[Rows]:
    """The tables with a column of that title: cells by the first cell of each row."""
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if title not in re.split(r"  +", line.strip()):
            continue
        rows: Rows = {}
        for row in lines[at + 1 :]:
            cells = re.split(r"  +", row.strip())
            if not row.startswith("  ") or len(cells) < 3:
                break
            rows[cells[0]] = cells
        yield rows


def near(first: float, second: float, part: float = 0.006, least: float = 0.0) -> bool:
    """Whether figures are equal as far as they are printed."""
    return abs(first - second) <= max(part * max(abs(first), abs(second)), least)


def told(low: float, gain: float, high: float) -> str:
    """What a bar tells of a way against another, where more is better."""
    if gain == low == high == 0:
        return "same"
    return "ahead" if min(low, gain) > 0 else "behind" if max(high, gain) < 0 else "open"


def against_of(text: str) -> Iterator[tuple[str, str, float, str, str]]:
    """Lines `NAME against OTHER: FIGURE BAR: WORDS`: the change of the figure, what its bar tells,
    and the words."""
    pattern = rf"^  (.+?) against (.+?)(?:, which .+?)?: (requests/s|latency|cost) {BAR}([:;] .+)$"
    for name, other, figure, *bar, said in re.findall(pattern, text, re.MULTILINE):
        gain, low, high = map(float, bar)
        better = (low, gain, high) if figure == "requests/s" else (-high, -gain, -low)
        yield name.strip("`"), other.strip("`"), gain / 100, told(*better), said


def of_standings(text: str, rows: Rows, own: float, column: int, other: str) -> Iterator[str]:
    """Lines under a table: their figures are those of the rows, their words those of the bar."""
    for name, against, change, tells, said in against_of(text):
        if against != other:
            continue
        if name in rows and not near(number(rows[name][column]), own * (1 + change), least=0.01):
            yield f"figure of {name}"
        wanted = {
            "ahead": f"better than {other}",
            "behind": f"{other} is better",
            "same": f"as good as {other}",
            "open": OPEN,
        }[tells]
        if wanted not in said:
            yield f"standing of {name}"


# --- plan ----------------------------------------------------------------------------------------


def of_plan(text: str) -> Iterator[str]:
    """Contradictions of a report of `tessc plan`."""
    head = re.search(r"^plan: (.*)$", text, re.MULTILINE)
    named = re.search(r"strategy `(.+?)`, for (\S+)$", text, re.MULTILINE)
    line = re.search(
        r"^  ([\d.]+) (?:requests|steps)/s, latency ([\d.]+ \w+) alone.*? and "
        r"([\d.]+ \w+) in the median at that rate, \$([\d.]+) per",
        text,
        re.MULTILINE,
    )
    assert head, text
    assert named, text
    assert line, text
    rows, *others = tables(text, "usd per million")
    own = next(cells for name, cells in rows.items() if name.endswith("(this plan)"))
    rate, latency, loaded, usd = map(number, line.groups())
    for what, cell, value in zip(
        ("rate", "latency", "loaded", "cost"), own[1:5], (rate, latency, loaded, usd), strict=True
    ):
        if number(cell) != value:
            yield f"{what} of the plan"
    if own[0] != f"{named[1]} (this plan)":
        yield "name of the plan"
    bar = re.search(rf"^  (?:latency )?(.* to .*?)(?: \S+/s| per million \S+)? {DRAWS}", text, re.M)
    if bar and bar[1] != own[-1]:
        yield "bar of the plan"
    yield from _of_headline(head[1], text)
    yield from _of_doubt(text, head[1], named[1], rows)
    yield from _of_better(text, named[2], rows, own)
    for name, cells in next(tables(text, "fastest"), {}).items():
        yield from _of_fastest(name, cells)
    limit = re.search(r"^bottleneck: .+, ([\d.]+ \w+) per", text, re.MULTILINE)
    if limit and rate and number(limit[1]) > 1.01 * 1e9 / rate:
        yield "bottleneck"
    column = {"latency": 2, "cost": 4}.get(named[2], 1)
    for table in others:
        yield from of_standings(text, table, number(own[column]), column, "this plan")


def _of_headline(head: str, text: str) -> Iterator[str]:
    """What to do, beside what the replicas are."""
    listed = re.findall(REPLICA, text, re.MULTILINE)
    groups = [
        (said, [row for row in body.splitlines() if re.match(r"    [^:]+: \d+ step", row)])
        for said, body in listed
    ]
    split = any(len(rows) > 1 for _, rows in groups)
    if split != ("split" in head.split(";")[0].split(", and leave")[0]):
        yield "split"
    if split and ("does not pay" in head or "whether splitting" in head):
        yield "split that does not pay"
    if ("as asked for" in head) != ("no search chose it" in text):
        yield "asked for"
    shares = set(re.findall(r"([\d.]+%) of", " ".join(said for said, _ in groups)))
    if not set(re.findall(r"[\d.]+%", head)) <= shares:
        yield "shares"
    used = " ".join(row.split(":")[0] for _, rows in groups for row in rows)
    idle = re.search(r"leave (\S+) idle", head)
    if idle and idle[1] in used:
        yield "idle"
    for device in re.findall(r"\b\w+-\d+\b", head.split(", and leave")[0]):
        if device not in used and " to " not in used:
            yield "device"


def _of_doubt(text: str, head: str, strategy: str, rows: Rows) -> Iterator[str]:
    """Contradictions between the split, its rival, the sentence about them and the choice."""
    for split, rival, change, tells, said in against_of(text):
        if "of the draws" not in said:
            continue
        figures = {name.removesuffix(" (this plan)"): number(row[1]) for name, row in rows.items()}
        if {split, rival} <= set(figures) and not near(
            figures[split], figures[rival] * (1 + change)
        ):
            yield "figure of the split"
        after = text.split("of the draws\n")[1].splitlines()[0]
        wins = float(re.findall(r"(\d+)% $", said.split("of the draws")[0])[0])
        sure = wins >= 90 and change > 0
        wanted = f"`{split}` is better" if sure else f"`{rival}` is better"
        if (wanted if sure or tells == "behind" else OPEN) not in after:
            yield "the sentence about the split"
        taken = re.search(r"`([^`]+)` is taken", after)
        if not taken or taken[1] != strategy:
            yield "what is taken"
        if "as asked for" not in after and taken and taken[1] != (split if sure else rival):
            yield "what is taken against the bars"
        is_open = not sure and "as asked for" not in head
        if is_open and ("does not pay" in head) != (tells == "behind"):
            yield "whether splitting pays"


def _of_better(text: str, objective: str, rows: Rows, own: list[str]) -> Iterator[str]:
    """Rows that are better than the plan are named, and only those."""
    lines = text.split("every launch program")[0].splitlines()
    column = {"latency": 2, "cost": 4}.get(objective, 1)
    for name, cells in rows.items():
        value, mine = number(cells[column]), number(own[column])
        better = value > mine if column == 1 else value < mine
        best = all(
            (number(row[column]) <= value) if column == 1 else (number(row[column]) >= value)
            for row in rows.values()
        )
        is_named = any(f"`{name}`" in line for line in lines)
        if better and best and not near(value, mine, 0.001) and not is_named:
            yield f"better row {name}"
    pattern = r"`(.+?)` has .*? by the figures: \D*([\d.]+(?: \w+)?).*?\(" + PER_CENT
    for name, figure, change in re.findall(pattern, text):
        at = 1 if f"{figure}/s" in text and "/s (" in text.split(figure)[1][:14] else column
        at = 4 if f"${figure.split()[0]}" in text else at
        if name not in rows or number(rows[name][at]) != number(figure):
            yield f"figure of better row {name}"
            continue
        mine, value = number(own[at]), number(figure)
        if not near(value, mine * (1 + float(change) / 100), least=0.0001):
            yield f"change of better row {name}"
        if (value <= mine) if at == 1 else (value >= mine):
            yield f"better row {name} that is not"


def _of_fastest(name: str, cells: list[str]) -> Iterator[str]:
    times = [number(cell) for cell in cells[2:] if re.search(r"\d \ws? within|\d ns within", cell)]
    said = next((cell for cell in cells if "times as fast" in cell or cell.startswith("alike")), "")
    if not said or not times:
        return
    ratio = max(times) / min(times)
    stated = number(said.partition(" ")[2]) if "times" in said else 1.0
    if not near(ratio, stated, 0.02):
        yield f"how many times as fast {name} is"


# --- fleet, diff, simulate -----------------------------------------------------------------------


def of_fleet(text: str) -> Iterator[str]:
    """Contradictions of a report of `tessc fleet`."""
    head = re.search(r"^answer: (.*)$", text, re.MULTILINE)
    assert head, text
    demand = re.match(r"requests: ([\d.]+)/s", text)
    if "there is no demand" in head[1]:
        if "beside it" in text or (demand and float(demand[1])):
            yield "no demand"
        return
    listed = re.findall(r"(\d+) (\w+)", head[1].split(", and ")[0])
    taken = {kind: int(n) for n, kind in listed}
    units = re.split(r"\n\n", text)[1].splitlines()[1:]
    counted: dict[str, int] = {}
    for unit in units:
        count, gpus = re.split(r"  +", unit.strip())[:2]
        for part in gpus.split("+"):
            times, _, kind = part.rpartition("x") if re.match(r"\d+x", part) else ("1", "", part)
            counted[kind] = counted.get(kind, 0) + int(count) * int(times)
    if taken != counted:
        yield "GPUs of the answer"
    totals = re.split(r"\n\n", text)[2]
    listed = re.findall(r"(\d+) (\w+)", totals.split(":")[0].split(", $")[0])
    if taken != {kind: int(n) for n, kind in listed}:
        yield "GPUs of the totals"
    used = [re.split(r"  +", unit.strip())[2] for unit in units]
    alone = all(words == "single" for words in used)
    if alone != ("do not split" in head[1]):
        yield "do not split"
    roles = any(re.search(r"prompts|answers", words) for words in used)
    if roles != ("prompts" in head[1]):
        yield "roles"
    rows = next(tables(text, "nine in ten"))
    own = next(cells for name, cells in rows.items() if name.startswith("the answer"))
    column = 3 if demand else 1
    gained = rf"^  (requests/s|cost) {PER_CENT} against `(.+?)`"
    for figure, change, name in re.findall(gained, text, re.MULTILINE):
        if (figure == "cost") != bool(demand):
            yield "figure of the answer"
        base = number(rows[name][column]) if name in rows else 0.0
        if not near(number(own[column]), base * (1 + float(change) / 100), 0.01):
            yield "gain of the answer"
    for name in re.findall(r"`(.+?)` .*within the error of the times", text):
        if re.search(rf"^  {name} against .*: better than the answer$", text, re.MULTILINE):
            yield "an error that the bar excludes"
    barred = rf"{gained}, {PER_CENT} to {PER_CENT} with the error bars(.*)$"
    for figure, change, _, *bar, said in re.findall(barred, text, re.MULTILINE):
        gain, low, high = map(float, (change, *bar))
        better = (low, gain, high) if figure == "requests/s" else (-high, -gain, -low)
        if (told(*better) == "open") != (OPEN in said):
            yield "bar of the answer"
    rate = re.search(r"it serves \S+ requests/s, (\S+) to (\S+) with the error bars(.*)", text)
    assert rate
    if f"{rate[1]} to {rate[2]}" != own[2]:
        yield "bar of the rate"
    is_short = demand is not None and float(rate[1]) < float(demand[1])
    if ("less than the demand" in rate[3]) != is_short:
        yield "whether the demand is served"
    yield from of_standings(text, rows, number(own[column]), column, "the answer")


def of_diff(text: str) -> Iterator[str]:
    """Contradictions of a report of `tessc diff`."""
    if "the plans are equal" in text:
        if "answer:" in text:
            yield "equal plans"
        return
    rows = next(tables(text, "change"))
    answer = re.search(r"^answer: take (the first|the second|either), for (\S+): (.*)$", text, re.M)
    if answer is None:
        return
    name = {"latency": "latency alone", "cost": "cost per request"}.get(answer[2], "rate")
    first, second = number(rows[name][1].lstrip("$")), number(rows[name][2].lstrip("$"))
    best = "the first" if (first > second) == (name == "rate") else "the second"
    if answer[1] != (best if first != second else "either"):
        yield "which plan to take"
    if not answer[3].startswith(("both have " * (first == second)) + name):
        yield "figure that decides"
    stated = [float(value) for value in re.findall(r"[\d.]+(?= )", answer[3])]
    shown = {float(re.findall(r"[\d.]+", cell)[0]) for cell in rows[name][1:3]}
    if set(stated) - {0.0} != shown - {0.0}:
        yield "figures of the plans"


def of_simulation(text: str) -> Iterator[str]:
    """Contradictions of a report of `tessc simulate`."""
    answer = re.search(r"^answer: (.*)$", text, re.MULTILINE)
    assert answer, text
    full = re.search(r"throughput +(\S+ requests/s|no rate)", text)
    asked = re.search(r"asked for +([\d.]+) requests/s, ([\d.]+)% of", text)
    served = re.search(r"^  served +([\d.]+) requests/s", text, re.MULTILINE)
    assert full
    if asked:
        if ("keeps up" in answer[1]) != (float(asked[2]) <= 100) or f"{asked[2]}%" not in answer[1]:
            yield "whether it keeps up"
        if served and float(served[1]) > 1.001 * float(asked[1]):
            yield "more served than asked for"
        return
    if "at once" in answer[1]:
        return
    if not answer[1].startswith(full[1]):
        yield "rate of the answer"
    off = re.search(r"^  rate .*? ([+-][\d.]+)%$", text, re.MULTILINE)
    if off and float(off[1]) != 0:
        way = "more" if float(off[1]) > 0 else "less"
        if f"{abs(float(off[1])):.2f}% {way} than" not in answer[1]:
            yield "what the plan says"
    elif off and "as the plan says" not in answer[1]:
        yield "what the plan says"


CHECKS: dict[str, Callable[[str], Iterator[str]]] = {
    "plan": of_plan,
    "fleet": of_fleet,
    "diff": of_diff,
    "simulate": of_simulation,
}
