"""Record what a GPU computes for every kernel case and probe.

Needs Python 3.12, NumPy and `cuda-bindings`; run from the repository's root:

    python tests/data/kernels/record_h200.py OUT_FOLDER [NAME...]

With names, only those items are recorded; what OUT_FOLDER holds of others stays.

Writes cases.npz and probes.npz (the bytes of every output buffer), recording.json (machine, a
digest of the inputs of each item, its status, and how it differs from the NumPy reference) and
prints a summary. Items run in a worker process; after a fault the worker is replaced, since a CUDA
context does not survive one, so that a fault costs one item only.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kernels.case import Case, Run, difference
from tests.kernels.cases import CASES
from tests.kernels.gpu import Gpu
from tests.kernels.probes import load_probes

PATIENCE_SECONDS = 90


def all_items() -> list[tuple[str, Case]]:
    """("case" or "probe", item), in a fixed order."""
    probes = [("probe", probe.case) for probe in load_probes()]
    return [("case", case) for case in CASES] + probes


def digest(run: Run) -> str:
    """A digest of all inputs."""
    sha = hashlib.sha256()
    for name in sorted(run.buffers):
        sha.update(name.encode() + np.ascontiguousarray(run.buffers[name]).tobytes())
    return sha.hexdigest()[:16]


def record(gpu: Gpu, kind: str, case: Case, folder: Path, number: int) -> dict[str, object]:
    """Run one item and save its outputs; return its row of the report."""
    run = case.make()
    results, printed = gpu.run(case, run, keep=kind == "probe")
    outputs = (
        {"out": results["out"]} if kind == "probe" else {name: results[name] for name in run.expect}
    )
    np.savez(folder / f"{number}.npz", **outputs)
    faults = {name: difference(results[name], want) for name, want in run.expect.items()}
    faults = {name: text for name, text in faults.items() if text}
    if run.printed is not None and printed != run.printed:
        faults["printed"] = f"{printed!r}, expected {run.printed!r}"
    return {"kind": kind, "inputs": digest(run), "status": "ok", "differs": faults}


def work(folder: Path, names: list[str]) -> None:
    """The worker: run items in order, one line of progress each; stop at the first fault."""
    module = os.environ.get("TESSERA_DRIVER_MODULE", "cuda.bindings.driver")
    gpu = Gpu(importlib.import_module(module))
    machine = gpu.start()
    (folder / "machine.json").write_text(json.dumps(machine))
    wanted = set(names)
    with (folder / "progress").open("a") as progress:
        for number, (kind, case) in enumerate(all_items()):
            if (wanted and case.name not in wanted) or done(folder, number):
                continue
            progress.write(f"{number}\n")
            progress.flush()
            try:
                row = record(gpu, kind, case, folder, number)
            except Exception as error:
                note = {"kind": kind, "status": f"{type(error).__name__}: {error}", "differs": {}}
                note["where"] = traceback.format_exc(limit=-2)
                (folder / f"{number}.json").write_text(json.dumps(note))
                sys.exit(3)
            (folder / f"{number}.json").write_text(json.dumps(row))


def done(folder: Path, number: int) -> bool:
    """Whether an item has its row already."""
    return (folder / f"{number}.json").exists()


def supervise(folder: Path, names: list[str]) -> None:
    """Start workers until every item has a row."""
    command = [sys.executable, __file__, "--work", str(folder), *names]
    while True:
        worker = subprocess.Popen(command)
        seen, since = -1, time.monotonic()
        while worker.poll() is None:
            time.sleep(0.1)
            size = (folder / "progress").stat().st_size if (folder / "progress").exists() else 0
            if size != seen:
                seen, since = size, time.monotonic()
            if time.monotonic() - since > PATIENCE_SECONDS:
                worker.kill()
                worker.wait()
        if worker.returncode == 0:
            return
        lines = (folder / "progress").read_text().split() if (folder / "progress").exists() else []
        if not lines:
            raise SystemExit("the worker could not start; see its output above")
        if not done(folder, int(lines[-1])):
            note = {"kind": "?", "status": f"worker ended with {worker.returncode}", "differs": {}}
            (folder / f"{lines[-1]}.json").write_text(json.dumps(note))


def collect(folder: Path, out: Path) -> None:
    """Join the rows and outputs."""
    arrays = {kind: earlier_arrays(out / f"{kind}s.npz") for kind in ("case", "probe")}
    report: dict[str, object] = {"machine": json.loads((folder / "machine.json").read_text())}
    rows = earlier_rows(out / "recording.json")
    for number, (kind, case) in enumerate(all_items()):
        if not done(folder, number):
            continue
        rows[case.name] = json.loads((folder / f"{number}.json").read_text())
        if (folder / f"{number}.npz").exists():
            with np.load(folder / f"{number}.npz") as saved:
                for name in saved.files:
                    key = case.name if kind == "probe" else f"{case.name}/{name}"
                    arrays[kind][key] = saved[name]
    report["items"] = rows
    for kind, table in arrays.items():
        np.savez_compressed(out / f"{kind}s.npz", **table)
    (out / "recording.json").write_text(json.dumps(report, indent=1) + "\n")
    summary(rows)


def earlier_arrays(path: Path) -> dict[str, np.ndarray]:
    """What an earlier run left, if there was one."""
    if not path.exists():
        return {}
    with np.load(path) as saved:
        return {name: saved[name] for name in saved.files}


def earlier_rows(path: Path) -> dict[str, object]:
    """The rows of an earlier run, if there was one."""
    return json.loads(path.read_text())["items"] if path.exists() else {}


def summary(rows: dict[str, object]) -> None:
    """What failed or differs, to standard output."""
    bad = {name: row for name, row in rows.items() if row["status"] != "ok" or row["differs"]}
    for name, row in bad.items():
        sys.stdout.write(f"{name}: {row['status']} {row['differs'] or ''}\n")
    sys.stdout.write(f"{len(rows)} items, {len(bad)} with findings\n")


def main() -> None:
    """Record into the folder given."""
    if sys.argv[1] == "--work":
        work(Path(sys.argv[2]), sys.argv[3:])
        return
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        supervise(Path(scratch), sys.argv[2:])
        collect(Path(scratch), out)


if __name__ == "__main__":
    main()
