"""The model of durations without tables against the tables of three engines, and its bars.

    python -m benchmarks.prediction.model_bars [--rows N] [-o FILE]   # needs the extra `tables`
    python -m benchmarks.prediction.model_bars --fit        # and the constants of the bars
    python -m benchmarks.prediction.model_bars --habits     # prints constants of the model, fitted

Rows of vLLM, TensorRT-LLM and SGLang on eight GPUs, by family of calls. A row of attention includes
the write to the cache, a row of products in fp8 that its first matrix is narrowed. Rows of experts
are those that one GPU has all of; with several, tables have the busiest one. Times are at least
that of the bytes from memory, as in a plan. `bias` is the median of the model's time over the
measured one, `median` and `p90` how far off it is. Bars are judged on rows that they were not
fitted to: `held_gpu` leaves out each GPU in turn, `held_library` each engine, `held_shape` one half
of the shapes. With `--habits` the constants of `Habits` that engines decide are fitted as well,
from a start that knows none of them; with each GPU left out, too, and judged on its rows (`alone`).
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import arguments, kept, write
from benchmarks.prediction.libraries import (
    HELD,
    PACKAGE,
    Floats,
    fitted,
    number,
    types_of,
    version,
)
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.frontend.machine.tables import has_tables, read_tables
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import LIBRARIES, Fixed, Sizes, TableKind
from tessera.planning.prices.carried import row_call
from tessera.planning.prices.device_model import Traffic
from tessera.planning.prices.library_calls import CallShape
from tessera.planning.prices.library_launches import USUAL, Habits, call_ns
from tessera.planning.prices.model_bars import bar_features, call_family, model_bar
from tessera.planning.prices.table_lookup import (
    from_memory_ns,
    model_shape,
    operations_and_bytes,
)

TARGET = Path(__file__).parents[2] / "tessera" / "data" / "tables" / "model_bars.json"
SEED, BOUND = 17, 0.15
HABITS = {  # the family whose rows decide, and a start that knows nothing
    "generation": ("few_loads", "second_loads", "put_loads"),
    "context": ("engine_matrix", "put_moves", "prompt_loads"),
    "gemm fp8": ("narrow_loads", "narrow_row_loads"),
    "moe w4a16_mxfp4": ("widened_matrix",),
}
START = {"engine_matrix": 1.0, "put_moves": 2.0, "widened_matrix": 1.0}
LOADS, STEPS, ROUNDS, FEW, MOST = 20.0, (0.5, 0.8, 0.93, 1.07, 1.25, 2.0), 8, 12, 150


@dataclass(frozen=True)
class Row:
    """A measured row."""

    family: str
    gpu: Gpu
    library: str
    shape: tuple[Fixed, Sizes]
    call: CallShape
    moved: float
    ns: float

    def predicted(self, habits: Habits = USUAL) -> float:
        return call_ns(self.call, Traffic(cold=self.moved), self.gpu, self.gpu.sms, habits=habits)


def tables(
    gpu: Gpu, kind: TableKind, dtype: str, library: str
) -> Iterator[tuple[Fixed, dict[Sizes, float]]]:
    """The newest version's rows that plans look up: caches of sixteen bits, no window, one GPU."""
    newest: dict[Fixed, dict[Sizes, float]] = {}
    read = read_tables(gpu.key, kind, dtype, library)
    for rows in sorted(read, key=lambda table: number(table.version)):
        attends = kind in (TableKind.CONTEXT, TableKind.GENERATION)
        if attends and (rows.fixed[:2] != ("bfloat16", "bfloat16") or rows.fixed[3]):
            continue
        own = zip(rows.sizes, rows.ns, strict=True)
        newest[rows.fixed] = {s: ns for s, ns in own if kind is not TableKind.MOE or s[2] == 1}
    yield from newest.items()


def draw(count: int) -> list[Row]:
    """Rows of each family on each GPU by each engine, as many of each."""
    chosen, rows = random.Random(SEED), []
    for key, gpu in gpu_table().items():
        if not has_tables(key):
            continue
        for kind in TableKind:
            for dtype in types_of(kind):
                for library in LIBRARIES:
                    every = [
                        (fixed, sizes, ns)
                        for fixed, own in tables(gpu, kind, dtype, library)
                        for sizes, ns in own.items()
                    ]
                    for fixed, sizes, ns in chosen.sample(every, min(count, len(every))):
                        moved = operations_and_bytes(kind, fixed, sizes)[1]
                        call = row_call(kind, fixed, sizes)
                        family = call_family(call)
                        assert family is not None
                        least = from_memory_ns(gpu, moved)
                        shape = (kind.value, *fixed), model_shape(kind, sizes)
                        rows.append(Row(family, gpu, library, shape, call, moved, max(ns, least)))
            read_tables.cache_clear()
    return rows


# --- bars --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """Rows of one family: logarithms of the model's time over the measured one, features."""

    rows: list[Row]
    off: Floats
    features: Floats

    @classmethod
    def of(cls, rows: list[Row]) -> Judged:
        times = [row.predicted() for row in rows]
        off = [log(ns / row.ns) for row, ns in zip(rows, times, strict=True)]
        both = zip(rows, times, strict=True)
        return cls(
            rows,
            np.array(off),
            np.array([bar_features(r.call, r.moved, t, r.gpu) for r, t in both]),
        )

    def bars(self, on: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Bars of all rows by constants from some, and the constants."""
        factors = fitted(self.features[on], np.abs(self.off[on]))
        least, most = np.quantile(np.exp(self.features[on] @ factors), (0.02, 0.98))
        constants = np.array([*factors, least, most])
        return np.clip(np.exp(self.features @ factors), least, most), constants

    def held(self, group: Callable[[Row], object]) -> tuple[NDArray[np.bool_], dict[str, float]]:
        """Which bars hold, by constants from the rows of all other groups; the share of each."""
        of = np.array([str(group(row)) for row in self.rows])
        ok = np.zeros(len(of), bool)
        each = {}
        for name in sorted(set(of)):
            own = of == name
            ok[own] = (np.abs(self.off) <= self.bars(~own)[0])[own]
            each[name] = round(float(ok[own].mean()), 3)
        return ok, each

    def figures(self) -> dict[str, object]:
        whole = self.bars(np.ones(len(self.rows), bool))[0]
        result: dict[str, object] = {
            "rows": len(self.rows),
            "bias": round(exp(float(np.median(self.off))) - 1, 3),
            "median": round(exp(float(np.median(np.abs(self.off)))) - 1, 3),
            "p90": round(exp(float(np.quantile(np.abs(self.off), 0.9))) - 1, 3),
            "half_width": round(float(np.median(np.expm1(whole))), 3),
        }
        halves = {row.shape[1]: i % 2 for i, row in enumerate(sorted(self.rows, key=str))}
        groups: dict[str, Callable[[Row], object]] = {
            "held_gpu": lambda row: row.gpu.key,
            "held_library": lambda row: row.library,
            "held_shape": lambda row: halves[row.shape[1]],
        }
        for name, group in groups.items():
            ok, each = self.held(group)
            result[name] = round(float(ok.mean()), 3)
            if name != "held_shape":
                result[name.replace("held", "by")] = each
        now = [
            abs(off) <= (model_bar(row.call, row.moved, row.predicted(), row.gpu) or 0.0)
            for row, off in zip(self.rows, self.off, strict=True)
        ]
        result["held_now"] = round(float(np.mean(now)), 3)
        h200 = [ok for ok, row in zip(now, self.rows, strict=True) if row.gpu.key == "h200"]
        result["held_now_h200"] = round(float(np.mean(h200)), 3)
        return result


# --- habits ------------------------------------------------------------------------------------


def fit_habits(rows: list[Row], names: tuple[str, ...]) -> Habits:
    """Constants by coordinate descent, from a start that knows none of them."""

    def loss(habits: Habits) -> float:
        off = np.array([log(row.predicted(habits) / row.ns) for row in rows])
        call_ns.cache_clear()
        return float(np.mean(np.sqrt(1 + (off / BOUND) ** 2)))

    best = replace(USUAL, **{name: START.get(name, LOADS) for name in names})
    least = loss(best)
    for _ in range(ROUNDS):
        before = least
        for name in names:
            for step in STEPS:
                trial = replace(best, **{name: getattr(best, name) * step})
                if (found := loss(trial)) < least:
                    best, least = trial, found
        if before - least < 1e-3:
            break
    return best


def habits_of(rows: list[Row]) -> dict[str, object]:
    """The constants that engines decide, and how far off rows of GPUs are that are left out."""
    result: dict[str, object] = {}
    for family, names in HABITS.items():
        own = [row for row in rows if row.family == family][:MOST]
        made = fit_habits(own, names)
        alone: dict[str, object] = {}
        for key in sorted({row.gpu.key for row in own}):
            habits = fit_habits([row for row in own if row.gpu.key != key], names)
            off = np.array([log(r.predicted(habits) / r.ns) for r in own if r.gpu.key == key])
            alone[key] = {
                "bias": round(exp(float(np.median(off))) - 1, 3),
                "median": round(exp(float(np.median(np.abs(off)))) - 1, 3),
            }
        fitted_to = {name: round(getattr(made, name), 3) for name in names}
        print(family, json.dumps(fitted_to), json.dumps(alone), flush=True)
        result[family] = {"fitted": fitted_to, "alone": alone}
    return result


def main() -> None:
    parser = arguments(__doc__, "model_bars.json")
    parser.add_argument("--rows", type=int, default=120, help="of a family, a GPU and an engine")
    parser.add_argument("--fit", action="store_true", help="also write the constants of bars")
    parser.add_argument("--habits", action="store_true", help="also fit constants of the model")
    given = parser.parse_args()
    rows = draw(given.rows)
    families = {
        name: Judged.of([row for row in rows if row.family == name])
        for name in sorted({row.family for row in rows})
    }
    if given.fit:
        made = {
            name: [round(float(x), 4) for x in one.bars(np.ones(len(one.rows), bool))[1]]
            for name, one in families.items()
        }
        command = "python -m benchmarks.prediction.model_bars --fit"
        about = {"made_by": command, "from": f"{PACKAGE} {version(PACKAGE)}", "bars": made}
        text = json.dumps(about, indent=1)
        text = re.sub(r"\[\s+([^\]]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
        TARGET.write_text(text + "\n", encoding="utf-8")
    figures = {name: one.figures() for name, one in families.items()}
    for name, own in figures.items():
        print(name, json.dumps(own))
    document: dict[str, object] = {
        "schema": "tessera-model-bars-benchmark/1",
        "from": f"{PACKAGE} {version(PACKAGE)}",
        "target": HELD,
        "families": figures,
    }
    if habits := kept(given.output).get("habits"):
        document["habits"] = habits
    if given.habits:
        document["habits"] = habits_of(
            random.Random(SEED).sample(rows, len(rows) * FEW // given.rows)
        )
    write(document, given.output)


if __name__ == "__main__":
    main()
