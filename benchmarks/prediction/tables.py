"""How good the tables of measured kernel times are where they have no row.

    python -m benchmarks.prediction.tables [--every N] [-o FILE]

Leaves out whole shapes (a GEMM's n and k, the heads of an attention, the parts of an MoE), looks
their rows up from the others, and compares: how far off, whether the bar holds, how wide it is
(from end to end), and whether the faster of two GPUs is right where they differ by more than 10%.
With the extra `tables` also for the GPUs of that package, and the ratio: an H200's own row carried
to another GPU whose rows of that shape are left out. `--every N` takes every Nth shape, more
of them where there are few.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.common import arguments, kept, write
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.tables import extra_is_missing, read_tables
from tessera.ir.plan.tables import Sizes, TableKind
from tessera.planning.prices.table_lookup import TableIndex, model_shape, ratio

PAIRS = [
    ("a100", "l40s", "0.14.0"),
    ("h100", "rtx-pro-6000", "0.24.0"),
    ("h200", "h100", "0.24.0"),
    ("b200", "h100", "0.24.0"),
]
CARRIED = ["h100", "b200", "rtx-pro-6000"]


@dataclass
class Tally:
    """Rows that were left out: how far off, whether in the bar, how wide the bar."""

    off: list[float] = field(default_factory=list)
    held: int = 0
    width: list[float] = field(default_factory=list)

    def add(self, truth: float, ns: float, error: float) -> None:
        off = abs(truth / ns - 1)
        self.off.append(abs(ns / truth - 1))
        self.held += off <= error
        self.width.append(2 * error)

    def extend(self, other: Tally) -> None:
        self.off += other.off
        self.held += other.held
        self.width += other.width

    def figures(self) -> dict[str, float]:
        count = len(self.off)
        return {
            "rows": count,
            "median": round(at(self.off, 0.5), 4),
            "p90": round(at(self.off, 0.9), 4),
            "bars_hold": round(self.held / max(count, 1), 4),
            "bar_width_median": round(at(self.width, 0.5), 4),
        }


def at(values: list[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else 0.0


def indexes(gpu: str, version: str, kind: TableKind) -> Iterator[TableIndex]:
    """The tables of 16-bit types, which all GPUs have."""
    found = find_gpu(gpu)
    for rows in read_tables(found.key, kind):
        if rows.version == version and "fp8" not in rows.fixed:
            yield TableIndex(rows, found)


def left_out(index: TableIndex, every: int) -> Iterator[tuple[Sizes, float, Sizes]]:
    """Rows of every Nth shape or more, with their time and shape."""
    kind = index.rows.kind
    shapes = sorted({model_shape(kind, sizes) for sizes in index.rows.sizes})
    chosen = set(shapes[:: min(every, max(1, len(shapes) // 16))])
    for sizes, ns in zip(index.rows.sizes, index.rows.ns, strict=True):
        if (shape := model_shape(kind, sizes)) in chosen:
            yield sizes, ns, shape


def judge_pair(first: str, second: str, version: str, every: int) -> dict[str, object]:
    """All kinds of work on two GPUs."""
    result: dict[str, object] = {"version": version}
    whole = Tally()
    right_of_all, judged_of_all = 0, 0
    for kind in TableKind:
        tallies = {first: Tally(), second: Tally()}
        right = judged = 0
        beyond = Tally()
        others = {index.rows.fixed: index for index in indexes(second, version, kind)}
        for index in indexes(first, version, kind):
            other = others.get(index.rows.fixed)
            if other is None:
                continue
            times = dict(zip(other.rows.sizes, other.rows.ns, strict=True))
            for sizes, ns, shape in left_out(index, every):
                if sizes not in times:
                    continue
                here, there = index.find(sizes, shape), other.find(sizes, shape)
                if here is None or there is None:
                    continue
                if here.beyond or there.beyond:
                    beyond.add(ns, here.ns, here.error)
                    beyond.add(times[sizes], there.ns, there.error)
                    continue
                tallies[first].add(ns, here.ns, here.error)
                tallies[second].add(times[sizes], there.ns, there.error)
                if max(ns, times[sizes]) > 1.1 * min(ns, times[sizes]):
                    judged += 1
                    right += (ns < times[sizes]) == (here.ns < there.ns)
        for tally in tallies.values():
            whole.extend(tally)
        right_of_all, judged_of_all = right_of_all + right, judged_of_all + judged
        result[kind.value] = {
            **{gpu: tally.figures() for gpu, tally in tallies.items()},
            "faster_right": round(right / max(judged, 1), 4),
            "judged": judged,
            "beyond": beyond.figures(),
        }
    result["all"] = {
        **whole.figures(),
        "faster_right": round(right_of_all / max(judged_of_all, 1), 4),
    }
    return result


def judge_ratio(target: str, every: int) -> dict[str, object]:
    """An H200's own time, carried to a GPU whose rows of that shape are left out."""
    result: dict[str, object] = {}
    whole = Tally()
    for kind in TableKind:
        tally = Tally()
        targets = {index.rows.fixed: index for index in indexes(target, "0.24.0", kind)}
        for index in indexes("h200", "0.24.0", kind):
            other = targets.get(index.rows.fixed)
            if other is None:
                continue
            times = dict(zip(other.rows.sizes, other.rows.ns, strict=True))
            for sizes, ns, shape in left_out(index, every):
                found = ratio(index, other, sizes, shape) if sizes in times else None
                if found is not None and not found.beyond:
                    tally.add(times[sizes], ns * found.ns, found.error)
        result[kind.value] = tally.figures()
        whole.extend(tally)
    result["all"] = whole.figures()
    return result


def main() -> None:
    parser = arguments(__doc__, "tables.json")
    parser.add_argument("--every", type=int, default=1)
    given = parser.parse_args()
    data = kept(given.output)
    for first, second, version in PAIRS if not extra_is_missing() else PAIRS[:1]:
        every = given.every if version == "0.14.0" else 7 * given.every
        data[f"{first}/{second}"] = judge_pair(first, second, version, every)
        print(f"{first}/{second}", json.dumps(data[f"{first}/{second}"]["all"]))
        write(data, given.output)
    for target in CARRIED if not extra_is_missing() else []:
        data[f"ratio h200/{target}"] = judge_ratio(target, 7 * given.every)
        print(f"ratio {target}", json.dumps(data[f"ratio h200/{target}"]["all"]))
        write(data, given.output)


if __name__ == "__main__":
    main()
