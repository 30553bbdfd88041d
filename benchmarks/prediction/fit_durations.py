"""The duration model against the rows of `h200_rows`; its constants fitted to them.

    python -m benchmarks.prediction.fit_durations ROWS [--fit] [--folds family rows] [-o FILE]

The work of every PTX row is counted from the case's trace, as planning does (kept in
`out/NAME.work.json`); library rows are calls with their sizes. Kernels of very many small CTAs come
from the profiles of `simulated_h200`. Rows were measured with sets of
buffers in turn: their bytes are in L2 as far as all sets fit there. Cross-validation: `family`
predicts the PTX rows of a family with constants fitted to the other families; `rows` predicts a
fifth of all cases (on all numbers of SMs) from the others, with the habits of libraries fitted
likewise. The roofline is max(bytes / bandwidth, operations / rate) of the data sheet. Without
`--fit` the constants as they are get judged.
"""

from __future__ import annotations

import json
import lzma
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import RESULTS, arguments, kept, write
from benchmarks.prediction.h200_cases import distinct_bytes, read_cases, trace_text
from benchmarks.prediction.h200_shapes import Case
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import FITTED, Constants, Traffic, launch_ns
from tessera.planning.prices.library_calls import (
    Attention,
    CallShape,
    Plain,
    Product,
    RowCall,
    RowKind,
)
from tessera.planning.prices.library_launches import USUAL, Habits, call_ns, launches

FOLDS, ROUNDS = 5, 12
BOUND = 0.15  # beyond that errors count about as they are
STEPS = (0.8, 0.93, 0.98, 1.02, 1.07, 1.25)
COPIES, COPYING = "copies of models", ("place_heads", "merge_heads", "rotate_prefill")
SET = ("memory", "matrix")  # not fitted: the sharpness of the model stands for the rest
HABITS = {  # the family whose rows decide
    "attention_instructions": "prefill",
    "few_loads": "decode",
    "second_loads": "decode",
    "norm_loads": "norm",
    "norm_barriers": "norm",
    "softmax_instructions": "softmax",
    "scan_instructions": "scan",
    "scan_barriers": "scan",
    "gather_loads": "gather",
    "plain_instructions": "elementwise",
}
LENGTHS = ((5e3, "to 5 us"), (5e4, "to 50 us"), (1e99, "longer"))
LIBRARY_WIDTH = {"bf16": 2, "fp32": 4}


@dataclass(frozen=True)
class Timed:
    """A measured row, and what was measured."""

    family: str
    source: str
    name: str
    sms: int
    ns: float
    traffic: Traffic
    work: LaunchWork | CallShape

    @property
    def kind(self) -> str:
        return f"{self.source} {self.family}"

    def off(self, gpu: Gpu, constants: Constants, habits: Habits) -> float:
        """The logarithm of the predicted over the measured time."""
        if isinstance(self.work, LaunchWork):
            ns = launch_ns(self.work, self.traffic, gpu, self.sms, constants)
        else:
            ns = call_ns(self.work, self.traffic, gpu, self.sms, constants, habits)
        return log(max(ns, 1.0) / self.ns)

    def roofline_off(self, gpu: Gpu) -> float:
        work = self.work if isinstance(self.work, LaunchWork) else next(launches(self.work))
        rates = [operations / (gpu.flops(unit) or 1e99) for unit, operations in work.units]
        share = self.sms / gpu.sms
        ns = max(self.traffic.warm / gpu.memory_bandwidth, *rates, 0.0) / share * 1e9
        return log(max(ns, 1.0) / self.ns)


# --- read ------------------------------------------------------------------------------------


def load_rows(path: Path, jobs: int) -> list[Timed]:
    """All rows with a time; cases that cannot be counted are left out and named."""
    data = path.read_bytes()
    text = (lzma.decompress(data) if path.suffix == ".xz" else data).decode()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if "error" not in row]
    cases, codes = read_cases()
    known = {(case.family, case.name): case for case in cases}
    counted = count_all(path, rows, known, codes, jobs)
    found = []
    for row in rows:
        if row["source"] == "library":
            work, moved = library_shape(row)
        else:
            case = known[row["family"], row["name"]]
            own = counted.get(f"{case.family} {case.name}")
            if own is None:
                continue
            work = LaunchWork(**{**own, "units": tuple((u, v) for u, v in own["units"])})
            moved = float(distinct_bytes(case))
        about = (row["family"], row["source"], row["name"], row["sms"], row["ns"])
        working = max(float(row["rotated_bytes"]), moved)
        found.append(Timed(*about, Traffic(warm=moved, working=working), work))
    return found + [
        Timed("copies", "ptx", row["name"], row["sms"], row["ns"], Traffic(**row["traffic"]), work)
        for row in counted[COPIES]
        for work in [
            LaunchWork(**{**row["work"], "units": tuple(map(tuple, row["work"]["units"]))})
        ]
    ]


def count_all(
    path: Path,
    rows: Sequence[dict[str, Any]],
    known: dict[tuple[str, str], Case],
    codes: dict[str, str],
    jobs: int,
) -> dict[str, Any]:
    """The work of all cases that rows name; what was counted is kept."""
    keep = Path("out") / f"{path.name.partition('.')[0]}.work.json"
    counted = kept(keep)
    names = dict.fromkeys((r["family"], r["name"]) for r in rows if r["source"] == "ptx")
    todo = [known[name] for name in names if " ".join(name) not in counted and name in known]
    with ProcessPoolExecutor(jobs) as pool:
        works = pool.map(count_case, [(case, codes[case.code]) for case in todo], chunksize=4)
        for case, work in zip(todo, works, strict=True):
            counted[f"{case.family} {case.name}"] = work
    if COPIES not in counted:
        counted[COPIES] = list(count_copies())
    keep.write_text(json.dumps(counted) + "\n")
    return counted


def count_case(given: tuple[Case, str]) -> dict[str, Any] | None:
    """The work of a case as JSON data; None if it cannot be counted."""
    from tessera.driver.load import load
    from tessera.ir.program.program import Launch
    from tessera.planning.prices.count_work import count_work

    case, ptx = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.ptx"
        path.write_text(trace_text(case, ptx))
        program = load(path)
    (launch,) = program.work()
    assert isinstance(launch, Launch)
    work = count_work(program.modules[launch.module].variants[0].ptx, launch)
    return None if work is None else asdict(work)


def count_copies() -> Iterator[dict[str, Any]]:
    """Kernels of very many small CTAs in the models that `simulated_h200` has profiled, as rows."""
    from benchmarks.prediction.h200_models import unpack
    from tessera.driver.traces import load_traces
    from tessera.planning.prices.estimate_costs import estimate_costs
    from tessera.planning.prices.step_bytes import distinct_bytes

    with tempfile.TemporaryDirectory() as folder:
        for model, path in unpack(Path(folder)).items():
            (trace,) = load_traces(str(path))
            costs = estimate_costs(trace.program, trace.graph, machine_of("h200", "100Gb/s"))
            packed = (RESULTS / "h200_profiles" / f"{model}.profile.json.xz").read_bytes()
            timed = json.loads(lzma.decompress(packed))["rows"]
            known = set()
            for step, node in zip(costs.steps, trace.graph.nodes, strict=True):
                warm, cold = (distinct_bytes(trace.graph, node, kept) for kept in (False, True))
                kernel = step.name.rpartition(".")[2]
                if kernel in COPYING and step.work and (kernel, warm) not in known:
                    known.add((kernel, warm))
                    traffic = {"warm": float(warm), "cold": float(cold)}
                    about = {"name": f"{model} {kernel} {warm}", "traffic": traffic}
                    for row in timed:
                        if row["step"] == int(step.step):
                            ns = (row["warm_ns"] + row["cold_ns"]) / 2
                            yield about | {"sms": row["sms"], "ns": ns, "work": asdict(step.work)}


def library_shape(row: dict[str, Any]) -> tuple[CallShape, float]:
    """What an operator computes, and its bytes."""
    shape, width = row["shape"], LIBRARY_WIDTH[row.get("kind", "bf16")]
    match row["family"]:
        case "gemm":
            m, n, k = (shape[key] for key in "mnk")
            unit = "bf16" if width == 2 else "tf32"
            moved = width * (m * k + n * k + m * n)
            return Product(m=m, n=n, k=k, unit=unit, width=width), float(moved)
        case "prefill":
            batch, heads, length = (shape[key] for key in ("batch", "heads", "length"))
            few, size = heads // shape["group"], shape["width"]
            sizes = {"batch": batch, "heads": heads, "kv_heads": few, "size": size}
            causal = bool(shape["causal"])
            call = Attention(**sizes, queries=length, keys=length, causal=causal)
            return call, 4.0 * batch * length * size * (heads + few)
        case "decode":
            batch, few, context = (shape[key] for key in ("batch", "heads", "context"))
            sizes = {"batch": batch, "heads": few * shape["group"], "kv_heads": few}
            call = Attention(**sizes, queries=1, keys=context, size=128, causal=False)
            return call, 4.0 * batch * few * context * 128
        case "convolution":
            pixels = shape["batch"] * shape["height"] * shape["width"]
            c, f = shape["channels"], shape["features"]
            return Product(m=pixels, n=f, k=9 * c), 2.0 * (pixels * (c + f) + 9 * c * f)
        case "elementwise":
            elements = float(shape["rows"] * shape["width"])
            moved = (3 if row["name"].startswith("add") else 2) * elements * width
            return Plain(
                elements, (10.0 if "gelu" in row["name"] else 1.0) * elements, moved
            ), moved
        case family:
            count, elements = shape["rows"], shape["width"]
            return RowCall(RowKind(family), count, elements, width), 2.0 * count * elements * width


# --- fit -------------------------------------------------------------------------------------


def descend(start: Any, names: Sequence[str], loss: Any) -> Any:
    """Coordinate descent over the given fields of a record."""
    best, least = start, loss(start)
    for _ in range(ROUNDS):
        before = least
        for name in names:
            for step in STEPS:
                trial = replace(best, **{name: getattr(best, name) * step})
                if (found := loss(trial)) < least - 1e-9:
                    best, least = trial, found
        if before - least < 1e-4:
            break
    return best


def bounded(off: float) -> float:
    """Squares of small errors, about the errors themselves beyond 15%."""
    return float((1 + (off / BOUND) ** 2) ** 0.5 - 1)


def fit(rows: Sequence[Timed], gpu: Gpu) -> tuple[Constants, Habits]:
    """Constants to launches, then habits to calls; every family counts the same."""
    ptx = [row for row in rows if isinstance(row.work, LaunchWork)]
    counts = Counter(row.family for row in ptx)

    def of_launches(constants: Constants) -> float:
        return sum(bounded(row.off(gpu, constants, USUAL)) / counts[row.family] for row in ptx)

    names = [name for name in asdict(FITTED) if name not in SET]
    constants = descend(FITTED, names, of_launches)
    habits = USUAL
    for family in dict.fromkeys(HABITS.values()):
        calls = [row for row in rows if row.kind == f"library {family}"]

        def of_calls(trial: Habits, calls: list[Timed] = calls) -> float:
            return sum(bounded(row.off(gpu, constants, trial)) for row in calls)

        habits = descend(habits, [name for name, of in HABITS.items() if of == family], of_calls)
    call_ns.cache_clear()
    return constants, habits


def summary(found: Sequence[float]) -> dict[str, float]:
    """How far off, from logarithms of ratios."""
    ordered = sorted(map(abs, found))
    return {
        "rows": len(ordered),
        "median_factor": round(exp(median(ordered)), 3),
        "p90_factor": round(exp(ordered[int(0.9 * (len(ordered) - 1))]), 3),
        "median_ratio": round(exp(median(found)), 3),
        "within_25_percent": round(sum(e < log(1.25) for e in ordered) / len(ordered), 3),
        "within_a_factor_of_2": round(sum(e < log(2) for e in ordered) / len(ordered), 3),
    }


def grouped(rows: Sequence[Timed], found: Sequence[float]) -> dict[str, Any]:
    """Summaries of all, by device, source, kind and length."""
    groups: dict[str, list[float]] = {}
    for row, off in zip(rows, found, strict=True):
        length = next(name for most, name in LENGTHS if row.ns < most)
        for name in ("all", f"{row.sms} SMs", row.source, row.kind, length):
            groups.setdefault(name, []).append(off)
    return {name: summary(one) for name, one in groups.items()}


def judged(rows: Sequence[Timed], gpu: Gpu, constants: Constants, habits: Habits) -> dict[str, Any]:
    return grouped(rows, [row.off(gpu, constants, habits) for row in rows])


def cross_validate(rows: Sequence[Timed], gpu: Gpu, folds: str) -> dict[str, Any]:
    """Rows predicted with constants that others were fitted to."""
    if folds == "family":
        rows = [row for row in rows if row.source == "ptx"]
        keys = [row.family for row in rows]
    else:  # a case is on the whole GPU and on slices: all of it goes together
        names = sorted({f"{row.kind} {row.name}" for row in rows})
        random.Random(1).shuffle(names)
        place = {name: str(number % FOLDS) for number, name in enumerate(names)}
        keys = [place[f"{row.kind} {row.name}"] for row in rows]
    held: dict[int, float] = {}
    for key in dict.fromkeys(keys):
        others = [row for row, other in zip(rows, keys, strict=True) if other != key]
        constants, habits = fit(others, gpu)
        for number, row in enumerate(rows):
            if keys[number] == key:
                held[number] = row.off(gpu, constants, habits)
        print("held out", folds, key, flush=True)
    return grouped(rows, [held[number] for number in range(len(rows))])


def main() -> None:
    parser = arguments(__doc__, "fit_durations.json")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit, and print new constants")
    parser.add_argument("--folds", choices=("family", "rows"), nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    gpu = machine_of("h200", "100Gb/s").cards[0].gpu
    rows = load_rows(options.rows, options.jobs)
    document = kept(options.output) | {
        "schema": "tessera-fit-durations/2",
        "rows": len(rows),
        "constants": {**asdict(FITTED), **asdict(USUAL)},
        "as_it_is": judged(rows, gpu, FITTED, USUAL),
        "roofline": summary([row.roofline_off(gpu) for row in rows]),
    }
    if options.fit:
        constants, habits = fit(rows, gpu)
        print(constants, habits)
        document["fitted"] = judged(rows, gpu, constants, habits)
    for folds in options.folds:
        document[f"held_out_by_{folds}"] = cross_validate(rows, gpu, folds)
    print(json.dumps(document, indent=1))
    write(document, options.output)


if __name__ == "__main__":
    main()
