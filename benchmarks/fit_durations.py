"""Refit the constants of the duration model to the rows of `benchmarks.h200_rows`, offline.

    python -m benchmarks.fit_durations ROWS.jsonl [--fit] [--folds family|rows] [-o results.json]

The work of every PTX row is counted from the case's trace, as planning does (kept beside the rows,
by the code and the sizes: `out/NAME.work.json`); library rows are calls with operations and bytes.
All bytes are cold: rows were measured so. Cross-validation: `family` leaves out whole families,
`rows` a fifth of the rows of each. Without `--fit` the constants as they are get judged.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.durations import PARTS, STEPS, errors, summary
from benchmarks.h200_cases import distinct_bytes, read_cases, trace_text
from benchmarks.h200_shapes import Case
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.passes.costs.device_model import (
    FITTED,
    CallWork,
    Constants,
    Traffic,
    call_ns,
    launch_ns,
)

FOLDS, ROUNDS = 5, 8
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
    work: LaunchWork | CallWork

    @property
    def kind(self) -> str:
        return f"{self.source} {self.family}"

    def model(self, gpu: Gpu, constants: Constants) -> float:
        if isinstance(self.work, LaunchWork):
            return launch_ns(self.work, self.traffic, gpu, self.sms, constants)
        return call_ns(self.work, self.traffic, gpu, self.sms, constants)


# --- read ------------------------------------------------------------------------------------


def load_rows(path: Path, jobs: int) -> list[Timed]:
    """All rows with a time; a case that cannot be counted is left out, and said."""
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
            work, moved = library_work(row)
        else:
            case = known[row["family"], row["name"]]
            kept = counted.get(f"{case.family} {case.name}")
            if kept is None:
                continue
            work = LaunchWork(**{**kept, "units": tuple((u, v) for u, v in kept["units"])})
            moved = float(distinct_bytes(case))
        about = (row["family"], row["source"], row["name"], row["sms"], row["ns"])
        found.append(Timed(*about, Traffic(cold=moved), work))
    return found


def count_all(
    path: Path,
    rows: Sequence[dict[str, Any]],
    known: dict[tuple[str, str], Case],
    codes: dict[str, str],
    jobs: int,
) -> dict[str, Any]:
    """The work of all cases that rows name; what was counted is kept."""
    keep = Path("out") / f"{path.name.partition('.')[0]}.work.json"
    counted: dict[str, Any] = json.loads(keep.read_text()) if keep.exists() else {}
    names = dict.fromkeys((r["family"], r["name"]) for r in rows if r["source"] == "ptx")
    todo = [known[name] for name in names if " ".join(name) not in counted and name in known]
    with ProcessPoolExecutor(jobs) as pool:
        works = pool.map(count_case, [(case, codes[case.code]) for case in todo], chunksize=4)
        for case, work in zip(todo, works, strict=True):
            counted[f"{case.family} {case.name}"] = work
    keep.write_text(json.dumps(counted) + "\n")
    return counted


def count_case(given: tuple[Case, str]) -> dict[str, Any] | None:
    """The work of a case as JSON data; None where it cannot be counted."""
    from tessera.driver.load import load
    from tessera.ir.program.program import Launch
    from tessera.passes.costs.count_work import count_work

    case, ptx = given
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.ptx"
        path.write_text(trace_text(case, ptx))
        program = load(path)
    (launch,) = program.work()
    assert isinstance(launch, Launch)
    work = count_work(program.modules[launch.module].variants[0].ptx, launch)
    return None if work is None else asdict(work)


def library_work(row: dict[str, Any]) -> tuple[CallWork, float]:
    """Operations and bytes of an operator."""
    shape, width = row["shape"], LIBRARY_WIDTH[row.get("kind", "bf16")]
    matrix = "bf16" if width == 2 else "tf32"
    match row["family"]:
        case "gemm":
            m, n, k = (shape[key] for key in "mnk")
            moved = width * (m * k + n * k + m * n)
            tiles = ceil(m / 128) * ceil(n / 128)
            return CallWork(operations=2.0 * m * n * k, unit=matrix, tiles=tiles), float(moved)
        case "prefill":
            heads, length = shape["batch"] * shape["heads"], shape["length"]
            pairs = length * length * (0.5 if shape["causal"] else 1.0)
            each = length * shape["width"] * 2
            moved = heads * each * 2 + heads // shape["group"] * each * 2
            tiles = heads * ceil(length / 128)
            operations = 4.0 * heads * pairs * shape["width"]
            return CallWork(operations=operations, unit="bf16", tiles=tiles), float(moved)
        case "decode":
            heads, context = shape["batch"] * shape["heads"], shape["context"]
            moved = heads * context * 128 * 2 * 2
            operations = 4.0 * heads * shape["group"] * context * 128
            tiles = heads * ceil(context / 512)
            return CallWork(operations=operations, unit="bf16", tiles=tiles), float(moved)
        case "convolution":
            pixels = shape["batch"] * shape["height"] * shape["width"]
            c, f = shape["channels"], shape["features"]
            moved = 2 * (pixels * (c + f) + 9 * c * f)
            tiles = ceil(pixels / 128) * ceil(f / 128)
            return CallWork(operations=18.0 * pixels * c * f, unit="bf16", tiles=tiles), float(
                moved
            )
        case family:
            elements = shape["rows"] * shape["width"]
            times = 3 if row["name"].startswith("add") else 2
            reduces = family in ("softmax", "norm", "scan")
            tiles = max(1.0, elements / 4096)
            operations = (10.0 if reduces or "gelu" in row["name"] else 1.0) * elements
            call = CallWork(operations=operations, tiles=tiles, reduces=reduces)
            return call, float(times * elements * width)


# --- fit -------------------------------------------------------------------------------------


def fit(rows: Sequence[Timed], gpu: Gpu, start: Constants) -> Constants:
    """Coordinate descent; every kind of row counts the same, however many there are."""
    counts: dict[str, int] = {}
    for row in rows:
        counts[row.kind] = counts.get(row.kind, 0) + 1

    def loss(constants: Constants) -> float:
        found = errors(list(rows), lambda row: row.model(gpu, constants))  # type: ignore[arg-type, attr-defined]
        weighed = zip(rows, found, strict=True)
        return sum((min(e, 1.0) ** 2 + 0.1 * e) / counts[row.kind] for row, e in weighed)

    best, least = start, loss(start)
    for _ in range(ROUNDS):
        before = least
        for name, value in asdict(best).items():
            for step in STEPS:
                trial = replace(best, **{name: value * step})
                if name in PARTS and getattr(trial, name) > 0.98:
                    continue
                if name == "sharpness" and not 1.0 <= trial.sharpness <= 20.0:
                    continue
                if (found := loss(trial)) < least - 1e-9:
                    best, least = trial, found
        if before - least < 1e-4:
            break
    return best


def judged(rows: Sequence[Timed], gpu: Gpu, constants: Constants) -> dict[str, Any]:
    """How far off, by kind and by device."""
    found = dict(
        zip(
            range(len(rows)),
            errors(list(rows), lambda row: row.model(gpu, constants)),  # type: ignore[arg-type, attr-defined]
            strict=True,
        )
    )
    groups: dict[str, list[float]] = {}
    for number, row in enumerate(rows):
        for name in ("all", f"{row.sms} SMs", row.source, row.kind):
            groups.setdefault(name, []).append(found[number])
    return {name: summary(one) for name, one in groups.items()}


def cross_validate(rows: Sequence[Timed], gpu: Gpu, folds: str) -> dict[str, Any]:
    """Rows predicted with constants that others were fitted to."""
    order = list(range(len(rows)))
    random.Random(1).shuffle(order)
    # A case is on whole GPU and slices: all of it goes together.
    names = list(dict.fromkeys(rows[n].name for n in order))
    families = list(dict.fromkeys(row.family for row in rows))
    groups = (
        [{n for n in order if rows[n].family == family} for family in families]
        if folds == "family"
        else [{n for n in order if rows[n].name in set(names[k::FOLDS])} for k in range(FOLDS)]
    )
    held: list[float] = []
    result: dict[str, Any] = {}
    for number, group in enumerate(groups):
        constants = fit([rows[n] for n in order if n not in group], gpu, FITTED)
        found = errors([rows[n] for n in group], lambda row: row.model(gpu, constants))  # type: ignore[arg-type, attr-defined, misc] # noqa: B023
        held += found
        name = families[number] if folds == "family" else f"fold {number}"
        result[name] = summary(found)
        print("held out", name, result[name], flush=True)
    return {"all": summary(held), **result}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path)
    parser.add_argument("--fit", action="store_true", help="fit, and print new constants")
    parser.add_argument("--folds", choices=("family", "rows"), help="cross-validate")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    gpu = machine_of("h200", "100Gb/s").cards[0].gpu
    rows = load_rows(options.rows, options.jobs)
    print(len(rows), "rows")
    document: dict[str, Any] = {
        "schema": "tessera-fit-durations/1",
        "rows": len(rows),
        "as_it_is": judged(rows, gpu, FITTED),
    }
    if options.fit:
        constants = fit(rows, gpu, FITTED)
        document["constants"] = asdict(constants)
        document["fitted"] = judged(rows, gpu, constants)
    if options.folds:
        document["held_out"] = cross_validate(rows, gpu, options.folds)
    print(json.dumps(document, indent=1))
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
