"""Hold the regions of the analysis against a GPU: kernels of the tests, layers and traces.

In two parts, since a machine with a GPU need not have Tessera's packages:

    python -m tests.gpu.check_regions prepare FOLDER      # analyse; needs Tessera, no GPU
    python -m tests.gpu.check_regions run FOLDER OUT      # needs NumPy, cuda-bindings and a GPU

The second writes OUT/regions_gpu.json: the GPU, one row per launch with what is wrong (see
`tests.helpers.region_check`), and totals. Works run in a worker process; after a fault, which a
CUDA context does not survive, or after `PATIENCE_SECONDS` without progress, it is replaced and the
work at hand is reported as failed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.region_check import Work, check, from_values, to_values

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 40
LARGEST_BYTES = 24 << 20


def prepare(folder: Path) -> None:
    """Analyse every kernel case, layer and example trace."""
    from tests.helpers.region_work import case_work, trace_work
    from tests.kernels.cases import CASES
    from tests.kernels.layers import LAYERS

    traces = sorted((ROOT / "examples" / "traces").glob("*.ptx"))
    works = [case_work(case) for case in (*CASES, *LAYERS)]
    works += [trace_work(path) for path in traces]
    folder.mkdir(parents=True, exist_ok=True)
    kept = [w for w in works if sum(size for _, size in w.buffers) <= LARGEST_BYTES and w.steps]
    values = [to_values(work) for work in kept]
    (folder / "works.json").write_text(json.dumps(values))
    arrays = {f"{i}.{j}": c for i, w in enumerate(kept) for j, c in enumerate(w.contents)}
    np.savez_compressed(folder / "contents.npz", **arrays)
    sys.stdout.write(f"{len(kept)} of {len(works)} works\n")


def load(folder: Path) -> list[Work]:
    """What `prepare` wrote."""
    values = json.loads((folder / "works.json").read_text())
    with np.load(folder / "contents.npz", allow_pickle=False) as arrays:
        return [
            from_values(value, [arrays[f"{i}.{j}"] for j in range(len(value["buffers"]))])
            for i, value in enumerate(values)
        ]


def work_through(folder: Path, out: Path, first: int) -> None:
    """The worker: every work from `first` on, a line of JSON after each."""
    from cuda.bindings import driver

    from tests.gpu.cuda_machine import CudaMachine, take_gpu

    take_gpu(driver)
    for number, work in enumerate(load(folder)):
        if number < first:
            continue
        machine = CudaMachine(work, driver)
        rows = list(check(work, machine))
        machine.close()
        with (out / "rows.jsonl").open("a") as file:
            file.write(json.dumps({"number": number, "rows": rows}) + "\n")


def gpu_name() -> dict[str, Any]:
    """The GPU and the driver."""
    from cuda.bindings import driver

    driver.cuInit(0)
    name = driver.cuDeviceGetName(128, driver.cuDeviceGet(0)[1])[1]
    return {
        "gpu": name.split(b"\0")[0].decode(),
        "cuda_driver": int(driver.cuDriverGetVersion()[1]),
    }


def run(folder: Path, out: Path) -> dict[str, Any]:
    """Run everything, replacing the worker where it stops; the report."""
    out.mkdir(parents=True, exist_ok=True)
    names = [value["name"] for value in json.loads((folder / "works.json").read_text())]
    done: dict[int, list[dict[str, Any]]] = {}
    failed: dict[str, str] = {}
    first = 0
    while first < len(names):
        done |= _one_worker(folder, out, first, error := out / "worker.txt")
        missing = [i for i in range(len(names)) if i not in done and names[i] not in failed]
        if not missing:
            break
        lines = error.read_text().strip().splitlines()
        failed[names[missing[0]]] = lines[-1] if lines else "no progress"
        first = missing[0] + 1
    return _report(done, failed)


def _one_worker(
    folder: Path, out: Path, first: int, error: Path
) -> dict[int, list[dict[str, Any]]]:
    part = ["tests.gpu.check_regions", "worker", str(folder), str(out), str(first)]
    found = watch_worker(part, out / "rows.jsonl", error)
    return {value["number"]: value["rows"] for value in found}


def watch_worker(part: list[str], lines: Path, error: Path) -> list[dict[str, Any]]:
    """Run a module as a worker until it ends or gets nowhere; all the lines that it wrote."""
    with error.open("w") as file:
        process = subprocess.Popen([sys.executable, "-m", *part], cwd=ROOT, stderr=file)
        seen, since = -1, time.monotonic()
        while process.poll() is None:
            time.sleep(0.1)
            size = lines.stat().st_size if lines.exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            if time.monotonic() - since > PATIENCE_SECONDS:
                process.kill()
                process.wait()
    found = lines.read_text().splitlines() if lines.exists() else []
    return [json.loads(line) for line in found]


def _report(done: dict[int, list[dict[str, Any]]], failed: dict[str, str]) -> dict[str, Any]:
    rows = [row for number in sorted(done) for row in done[number]]
    checked = [row for row in rows if not row["pinned"]]
    return {
        **gpu_name(),
        "works": len(done),
        "launches": len(rows),
        "checked": len(checked),
        "not_checked": sorted({f"{row['work']}.{row['kernel']}" for row in rows if row["pinned"]}),
        "unstable": sorted({f"{r['work']}.{r['kernel']}" for r in checked if r["unstable"]}),
        "wrong": [row for row in checked if row["wrong"]],
        "failed": failed,
    }


def main() -> None:
    """One of the parts."""
    part, folder, *rest = sys.argv[1:]
    if part == "prepare":
        prepare(Path(folder))
    elif part == "worker":
        work_through(Path(folder), Path(rest[0]), int(rest[1]))
    else:
        report = run(Path(folder), Path(rest[0]))
        (Path(rest[0]) / "regions_gpu.json").write_text(json.dumps(report, indent=1) + "\n")
        sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
