"""How far libraries are from each other on one GPU, and whether bars between them hold.

    python -m benchmarks.prediction.libraries [--rows N] [-o FILE]   # needs the extra `tables`
    python -m benchmarks.prediction.libraries --fit             # and the constants of the package

For every GPU and family of operators with rows of vLLM, TensorRT-LLM and SGLang: the time by two
of them is judged by the third, in rotation. Times are at least that of the bytes from memory, as
in a plan: some tables were measured with them in L2. The spread is the slowest of the three over
the fastest, less one, on equal rows. The constants of the bar (`planning.prices.libraries`) come
from one half of the shapes, and the other half is judged. `blind` takes them from the two libraries
alone, as if nothing were known of the third. Where two libraries happen to run the same kernels on
a GPU, they say nothing of a third; so the wider of two bars counts, that of the two on this GPU and
that on GPUs of other architectures, where they may differ. `before` is the bar that rows had
without this.
`alike` is the part of the variance that two GPUs share; `ratio` says how often the bar of the
ratio of two GPUs holds. `--fit` takes all rows and writes `library_bars.json`.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import combinations
from math import log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import arguments, write
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.tables import has_tables, read_tables
from tessera.ir.plan.tables import LIBRARIES, Fixed, Sizes, TableKind
from tessera.planning.prices.carried import Kinship, kinship
from tessera.planning.prices.libraries import family, features, shared_part
from tessera.planning.prices.table_lookup import (
    NOISE,
    from_memory_ns,
    model_shape,
    operations_and_bytes,
)

TARGET = Path(__file__).parents[2] / "tessera" / "data" / "tables" / "library_bars.json"
PACKAGE = "aiconfigurator_core"
TYPES = ("bfloat16", "fp8", "w4a16_mxfp4")
EXPERT_TYPES = (*TYPES, "fp8_block", "int4_wo")
ROTATION = ((0, (1, 2)), (1, (0, 2)), (2, (0, 1)))
HELD, SEED = 0.9, 17
LEAST_ROWS = 1000  # with fewer, one constant for the family
LEAST = 0.005  # a smaller difference is as good as none
PAIR_TO_THIRD = (1.5 / 2) ** 0.5  # by independent errors

Floats = NDArray[np.float64]
Key = tuple[Fixed, Sizes]


class Cell:
    """One family on one GPU: logarithms of times by library, features, and half of the shapes."""

    def __init__(self, gpu: str, keys: list[Key], times: Floats, kind: TableKind) -> None:
        found = find_gpu(gpu)
        self.keys, self.times = keys, times
        self.features = np.array([features(found, kind, *key) for key in keys])
        if len(keys) < LEAST_ROWS:
            self.features = self.features[:, :1]
        shapes = {(fixed, model_shape(kind, sizes)) for fixed, sizes in keys}
        chosen = random.Random(SEED)
        half = {shape: chosen.random() < 0.5 for shape in sorted(shapes, key=str)}
        self.half = np.array([half[fixed, model_shape(kind, sizes)] for fixed, sizes in keys])

    def errors(self) -> list[Floats]:
        """How far each library is from the mean of the others."""
        if self.times.shape[1] == 2:
            return [PAIR_TO_THIRD * np.abs(self.times[:, 0] - self.times[:, 1])]
        return [np.abs(e) for e in self.signed()]

    def signed(self) -> list[Floats]:
        return [self.times[:, i] - self.times[:, list(o)].mean(axis=1) for i, o in ROTATION]

    def spread(self) -> float:
        """The slowest library over the fastest, less one; the median."""
        return float(np.median(np.expm1(np.ptp(self.times, axis=1))))


def fitted(rows: Floats, errors: Floats) -> Floats:
    """Factors of the features whose form is above nine in ten errors (quantile regression)."""
    wanted = np.log(np.maximum(errors, LEAST))
    few = np.eye(rows.shape[1]) * 1e-4 * len(rows)
    factors = np.linalg.solve(rows.T @ rows + few, rows.T @ wanted)
    for _ in range(30):
        off = wanted - rows @ factors
        weights = np.where(off > 0, HELD, 1 - HELD) / np.maximum(np.abs(off), 0.05)
        weighted = rows * weights[:, None]
        factors = np.linalg.solve(weighted.T @ rows + few, weighted.T @ wanted)
    factors[0] += np.quantile(wanted - rows @ factors, HELD)
    return factors


def bars(cell: Cell, errors: list[Floats], on: NDArray[np.bool_]) -> Floats:
    """Bars of all rows, by constants from the rows of one half."""
    on = on if on.sum() >= 50 else np.ones(len(on), bool)
    rows = np.concatenate([cell.features[on]] * len(errors))
    factors = fitted(rows, np.concatenate([e[on] for e in errors]))
    made = np.exp(rows @ factors)
    return np.clip(np.exp(cell.features @ factors), *np.quantile(made, (0.02, 0.98)))


def held_out(cell: Cell) -> Floats:
    """Bars by the other half of the shapes."""
    errors = cell.errors()
    return np.where(cell.half, bars(cell, errors, ~cell.half), bars(cell, errors, cell.half))


def blind_bars(cell: Cell, others: Sequence[Cell]) -> Floats:
    """Bars by two libraries alone for each third one, here and on GPUs of other architectures."""
    made = []
    for _, (first, second) in ROTATION:
        pairs = [PAIR_TO_THIRD * np.abs(c.times[:, first] - c.times[:, second]) for c in others]
        own = PAIR_TO_THIRD * np.abs(cell.times[:, first] - cell.times[:, second])
        bar = bars(cell, [own], np.ones(len(cell.half), bool))
        if others:
            rows = np.concatenate([c.features for c in others])
            factors = fitted(rows, np.concatenate(pairs))
            ends = np.quantile(np.exp(rows @ factors), (0.02, 0.98))
            bar = np.maximum(bar, np.clip(np.exp(cell.features @ factors), *ends))
        made.append(bar)
    return np.array(made)


def elsewhere(key: tuple[str, str], known: dict[tuple[str, str], Cell]) -> list[Cell]:
    """The cells of a family on GPUs of other architectures."""
    gpu, name = key
    width = known[key].features.shape[1]
    return [
        cell
        for (other, family_name), cell in known.items()
        if family_name == name and cell.features.shape[1] == width
        if kinship(find_gpu(gpu), find_gpu(other)) is not Kinship.ARCHITECTURE
    ]


def judged(cell: Cell, others: Sequence[Cell]) -> dict[str, object]:
    """How often bars hold, and how wide they are."""
    errors = cell.errors()
    apart, blind = held_out(cell), blind_bars(cell, others)
    each = {LIBRARIES[i]: round(float((errors[i] <= apart).mean()), 3) for i in range(3)}
    width, spread = float(np.median(np.expm1(apart))), cell.spread()
    return {
        "rows": len(cell.keys),
        "spread": round(spread, 4),
        "held": round(float(np.mean([e <= apart for e in errors])), 4),
        "half_width": round(width, 4),
        "half_width_over_spread": round(width / spread, 3),
        "held_by_library": each,
        "blind": round(float(np.mean([e <= b for e, b in zip(errors, blind, strict=True)])), 4),
        "blind_half_width": round(float(np.median(np.expm1(blind))), 4),
        "before": round(float(np.mean([e <= log(1 + NOISE) for e in errors])), 4),
    }


def cells(count: int) -> Iterator[tuple[str, TableKind, str, Cell, dict[str, str]]]:
    """Families on GPUs with rows of two libraries or three; a sample of equal rows."""
    for gpu in filter(has_tables, gpu_table()):
        for kind in TableKind:
            by_library: list[dict[Key, float]] = []
            versions: dict[str, str] = {}
            for library in LIBRARIES:
                newest: dict[Fixed, dict[Key, float]] = {}
                tables = [r for t in types_of(kind) for r in read_tables(gpu, kind, t, library)]
                for rows in sorted(tables, key=lambda r: number(r.version)):
                    times = zip(rows.sizes, rows.ns, strict=True)
                    newest[rows.fixed] = {(rows.fixed, sizes): ns for sizes, ns in times}
                    versions[library] = rows.version
                by_library.append({k: ns for one in newest.values() for k, ns in one.items()})
            read_tables.cache_clear()
            names = {family(kind, fixed) for one in by_library for fixed, _ in one}
            for name in sorted(names):
                own = [
                    {k: ns for k, ns in one.items() if family(kind, k[0]) == name}
                    for one in by_library
                ]
                own = [one for one in own if one]
                if len(own) < 2:
                    continue
                keys = sorted(set.intersection(*map(set, own)), key=str)
                keys = random.Random(SEED).sample(keys, min(count, len(keys)))
                if len(keys) < 200:
                    continue
                found = find_gpu(gpu)
                moved = [operations_and_bytes(kind, *key)[1] for key in keys]
                least = [[from_memory_ns(found, size)] for size in moved]
                times = np.log(np.maximum([[one[key] for one in own] for key in keys], least))
                yield gpu, kind, name, Cell(gpu, keys, times, kind), versions


def types_of(kind: TableKind) -> tuple[str, ...]:
    """The types that plans look up."""
    return EXPERT_TYPES if kind is TableKind.MOE else TYPES


def number(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text)))


def pairs(known: dict[tuple[str, str], Cell]) -> dict[str, dict[str, object]]:
    """Of two GPUs: the part of the variance that they share, and bars of their ratio."""
    result: dict[str, dict[str, object]] = {}
    for (first, name), (second, other) in combinations(sorted(known), 2):
        if name != other:
            continue
        a, b = known[first, name], known[second, name]
        at = {key: row for row, key in enumerate(b.keys)}
        both = [(row, at[key]) for row, key in enumerate(a.keys) if key in at]
        if len(both) < 200 or a.times.shape[1] + b.times.shape[1] < 6:
            continue
        here, there = np.array(both).T
        ones = np.concatenate([e[here] for e in a.signed()])
        twos = np.concatenate([e[there] for e in b.signed()])
        squares = float(np.sqrt((ones**2).mean() * (twos**2).mean()))
        kind, fixed = TableKind(name.split()[0]), a.keys[0][0]
        gpus = find_gpu(first), find_gpu(second)
        bar_a, bar_b = np.tile(held_out(a)[here], 3), np.tile(held_out(b)[there], 3)
        part = shared_part(kind, fixed, *gpus)
        bar = np.sqrt(bar_a**2 + bar_b**2 - 2 * part * bar_a * bar_b)
        result[f"{first} {second} {name}"] = {
            "rows": len(both),
            "alike": round(float((ones * twos).mean()) / squares, 3),
            "shared": part,
            "ratio": round(float((np.abs(ones - twos) <= bar).mean()), 3),
        }
    return result


def write_constants(known: dict[tuple[str, str], Cell], versions: dict[str, object]) -> None:
    """The constants of all rows, and for each family and kind the widest bar of any GPU."""
    made: dict[str, list[float]] = {}
    widest: dict[str, float] = {}
    for (gpu, name), cell in known.items():
        errors = cell.errors()
        rows = np.concatenate([cell.features] * len(errors))
        factors = fitted(rows, np.concatenate(errors))
        least, most = np.quantile(np.exp(rows @ factors), (0.02, 0.98))
        made[f"{gpu} {name}"] = [round(float(f), 4) for f in (*factors, least, most)]
        bar = float(np.quantile(np.concatenate(errors), HELD))
        for wide in {name, name.split()[0]}:
            widest[wide] = max(widest.get(wide, 0.0), bar)
    plain = {own: [round(log(bar), 4), LEAST, round(bar, 4)] for own, bar in widest.items()}
    document = {
        "made_by": "python -m benchmarks.prediction.libraries --fit",
        "from": f"{PACKAGE} {version(PACKAGE)}",
        "versions": versions,
        "bars": {**plain, **made},
    }
    text = json.dumps(document, indent=1)
    text = re.sub(r"\[\s+([^\]]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    TARGET.write_text(text + "\n", encoding="utf-8")


def mean_of(figures: Iterable[dict[str, object]], name: str) -> float:
    return round(float(np.mean([float(str(own[name])) for own in figures])), 3)


def main() -> None:
    parser = arguments(__doc__, "libraries.json")
    parser.add_argument("--rows", type=int, default=6000, help="of a family on a GPU, at most")
    parser.add_argument("--fit", action="store_true", help="also write the constants")
    given = parser.parse_args()
    known: dict[tuple[str, str], Cell] = {}
    versions: dict[str, object] = {}
    for gpu, kind, name, cell, of in cells(given.rows):
        known[gpu, name] = cell
        versions[f"{gpu} {kind.value}"] = ", ".join(f"{library} {v}" for library, v in of.items())
    if given.fit:
        write_constants(known, versions)
    three = {key: cell for key, cell in known.items() if cell.times.shape[1] == 3}
    each = {" ".join(key): judged(cell, elsewhere(key, three)) for key, cell in three.items()}
    for name, figures in each.items():
        print(name, json.dumps(figures))
    within = [0.88 <= float(str(f["held"])) <= 0.92 for f in each.values()]
    narrow = [float(str(f["half_width_over_spread"])) <= 1.5 for f in each.values()]
    summary = {
        "families_on_gpus": len(each),
        "held_88_to_92": sum(within),
        "half_width_up_to_1.5_spreads": sum(narrow),
        "both": sum(a and b for a, b in zip(within, narrow, strict=True)),
        "blind": mean_of(each.values(), "blind"),
        "blind_by_family": {
            name: mean_of((each[" ".join(key)] for key in three if key[1] == name), "blind")
            for name in sorted({name for _, name in three})
        },
    }
    print(json.dumps(summary))
    document = {
        "schema": "tessera-libraries-benchmark/1",
        "from": f"{PACKAGE} {version(PACKAGE)}",
        "versions": versions,
        "summary": summary,
        "families": each,
        "pairs": pairs(three),
    }
    write(document, given.output)


if __name__ == "__main__":
    main()
