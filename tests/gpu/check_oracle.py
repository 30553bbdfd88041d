"""Oracle kernels on a GPU: bytes against the host's, and poison outside the regions.

In two parts, since a machine with a GPU need not have Tessera's packages:

    python -m tests.gpu.check_oracle prepare WORK CASES...   # analyse; needs Tessera, no GPU
    python -m tests.gpu.check_oracle run WORK OUT.json       # needs NumPy, cuda-bindings and a GPU

CASES are files of `python -m tests.oracle.record`; the recorded set is always taken along. After
a fault, which a CUDA context does not survive, the worker is replaced and the case is reported.
"""

from __future__ import annotations

import json
import lzma
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gpu.check_regions import gpu_name, watch_worker
from tests.oracle.on_machine import check_case, summary
from tests.oracle.recorded import RECORDED, Case, from_values, read, to_values


def prepare(work: Path, files: list[Path]) -> None:
    """Analyse all cases, and write them with their regions into one file."""
    from tests.oracle.check import analysed, stated_values

    cases = [case for file in (RECORDED, *files) for case in read(file)]
    regions = []
    for case in cases:
        _, stated, pinned = analysed(case)
        regions.append(stated_values(stated, pinned))
    raw = json.dumps({"cases": to_values(cases), "regions": regions}, separators=(",", ":"))
    work.parent.mkdir(parents=True, exist_ok=True)
    work.write_bytes(lzma.compress(raw.encode(), preset=6))
    sys.stdout.write(f"{len(cases)} cases, {work.stat().st_size} bytes\n")


def load(work: Path) -> Iterator[tuple[Case, dict[str, Any]]]:
    """What `prepare` wrote."""
    value = json.loads(lzma.decompress(work.read_bytes()))
    yield from zip(from_values(value["cases"]), value["regions"], strict=True)


def work_through(work: Path, lines: Path, first: int) -> None:
    """The worker: every case from `first` on, a line of JSON after each."""
    from cuda.bindings import driver

    from tests.gpu.cuda_machine import CudaMachine, take_gpu

    take_gpu(driver)
    for number, (case, regions) in enumerate(load(work)):
        if number < first:
            continue
        row = check_case(case, regions, lambda made: CudaMachine(made, driver))
        with lines.open("a") as file:
            file.write(json.dumps({"number": number, "row": row}) + "\n")


def run(work: Path) -> dict[str, Any]:
    """Run everything, replacing the worker where it stops; the report."""
    names = [case.id for case, _ in load(work)]
    rows: dict[int, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    first = 0
    with tempfile.TemporaryDirectory() as folder:
        lines, error = Path(folder) / "rows.jsonl", Path(folder) / "worker.txt"
        while first < len(names):
            part = ["tests.gpu.check_oracle", "worker", str(work), str(lines), str(first)]
            found = watch_worker(part, lines, error)
            rows = {value["number"]: value["row"] for value in found}
            missing = [i for i in range(first, len(names)) if i not in rows]
            if not missing:
                break
            said = error.read_text().strip().splitlines()
            failed[names[missing[0]]] = said[-1] if said else "no progress"
            first = missing[0] + 1
    return {**gpu_name(), **summary([rows[i] for i in sorted(rows)]), "failed": failed}


def main() -> None:
    """One of the parts."""
    part, work, *rest = sys.argv[1:]
    if part == "prepare":
        prepare(Path(work), [Path(name) for name in rest])
    elif part == "worker":
        work_through(Path(work), Path(rest[0]), int(rest[1]))
    else:
        text = json.dumps(run(Path(work)), indent=1) + "\n"
        Path(rest[0]).write_text(text)
        sys.stdout.write(text[:4000])


if __name__ == "__main__":
    main()
