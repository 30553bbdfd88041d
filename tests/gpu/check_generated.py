"""Kernels and sequences of generators, and launches of compiled kernels, on a GPU.

    python -m tests.gpu.check_generated OUT --launches FOLDER --seconds 280 --workers 14

Needs Tessera, cuda-bindings and a GPU (`--on-cpu`: the CPU backend in its place, to try this).
FOLDER has what `tests/compiled` made. Every work is analysed and run with guards beside its
buffers and two poisons (`tests.helpers.region_check`); launches of FOLDER run on the CPU backend
too, with its log held against the regions, unless FOLDER/on_cpu.rows has them. Workers write a
row as soon as it is there, OUT/rows.jsonl has them all in the end, and another call goes on where
the last one ended. After a fault, which a CUDA context does not survive, and after
`PATIENCE_SECONDS` without progress, a worker is replaced and the work at hand counts as failed.
OUT/generated_gpu.json has the counts, with the kernels that have each memory instruction.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from tessera.backend.ptx_executor.device import Device
from tessera.diagnostics import TesseraError
from tests.compiled.check_launches import case_of, normalised, prepared, problems, read_rows
from tests.gpu.check_regions import gpu_name
from tests.helpers.generated_works import generated_work
from tests.helpers.region_check import Work, check
from tests.helpers.region_cpu import CpuMachine

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60
COUNTS = {
    "memory": 5020,
    "kernel": 3000,
    "rare": 1500,
    "grid": 1500,
    "pointers": 1000,
    "wild": 1300,
    "words": 400,
    "shared": 300,
}
_MEMORY = re.compile(
    r"\b(ldu?|st|atom|red|cp|ldmatrix|stmatrix|wmma|wgmma|mbarrier|prefetchu?|discard"
    r"|applypriority|tensormap|multimem|tcgen05|tex|tld4|suld|sust|sured|fabric"
    r"|clusterlaunchcontrol)((?:\.\w+(?:::\w+)*)+)\s"
)
_PARTS = {
    *("global", "shared", "local", "const", "param", "async", "bulk", "tensor", "reduce"),
    *("prefetch", "load", "store", "mma_async", "init", "inval", "arrive", "arrive_drop"),
    *("expect_tx", "complete_tx", "test_wait", "try_wait", "pending_count", "replace"),
    *("cp_fenceproxy", "ld_reduce", "st", "red", "ld", "mma", "cp", "shift", "alloc", "dealloc"),
}


def families(text: str) -> set[str]:
    """The memory instructions of a PTX text: names with their spaces, without types and hints."""
    found = set()
    for name, modifiers in _MEMORY.findall(text):
        parts = [m.partition("::")[0] for m in modifiers.split(".")[1:]]
        found.add(".".join([name, *dict.fromkeys(p for p in parts if p in _PARTS)]))
    return found


def items(folder: Path | None) -> list[tuple[str, Any]]:
    """Everything to try, in an order in which any part of it has some of all."""
    found: list[tuple[str, Any]] = [
        (kind, seed) for kind, count in COUNTS.items() for seed in range(count)
    ]
    found += [("launch", row) for row in read_rows(folder)] if folder else []
    random.Random(7).shuffle(found)
    return found


def name_of(kind: str, given: Any) -> str:
    return given["name"] if kind == "launch" else f"{kind} {given}"


class Worker:
    """One process with a context of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.driver: Any = None
        if not options.on_cpu:
            from cuda.bindings import driver

            driver.cuInit(0)
            device = driver.cuDeviceGet(0)[1]
            driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(device)[1])
            self.driver = driver
        self.known = set[str]()
        if options.launches and (rows := options.launches / "on_cpu.rows").exists():
            self.known = {json.loads(line)["name"] for line in rows.read_text().splitlines()}

    def run(self, kind: str, given: Any) -> dict[str, Any]:
        """The row of one work."""
        name = name_of(kind, given)
        row: dict[str, Any] = {"name": name, "kind": kind}
        if kind == "launch":
            made = prepared(case_of(self.options.launches, given))
            work = made[2]
            if name not in self.known:
                try:
                    row["cpu"] = problems(*made)["wrong"]
                except TesseraError as error:
                    row["cpu_stops"] = str(error)[:200]
        else:
            work = generated_work(kind, given)
        row["forms"] = [normalised(text) for text in work.texts]
        row["families"] = sorted(set().union(*map(families, work.texts)))
        rows = self._checked(work)
        if any(one["wrong"] for one in rows):  # a race shows as another result in another run
            again = [self._checked(work) for _ in range(3)]
            for place, one in enumerate(rows):
                if not all(other[place]["wrong"] for other in again):
                    one["wrong"], one["unstable"] = [], True
        row |= {
            "launches": len(rows),
            "pinned": sum(bool(one["pinned"]) for one in rows),
            "unstable": sum(bool(one["unstable"]) for one in rows),
            "wrong": [f"{one['step']}: {text}" for one in rows for text in one["wrong"]],
        }
        return row

    def _checked(self, work: Work) -> list[dict[str, Any]]:
        if self.options.on_cpu:
            with Device() as device:
                return list(check(work, CpuMachine(work, device)))
        from tests.gpu.cuda_machine import CudaMachine

        with closing(CudaMachine(work, self.driver)) as machine:
            return list(check(work, machine))


def work_through(options: argparse.Namespace) -> None:
    """The worker: its share of what has no row yet."""
    done = done_names(options.out)
    worker = Worker(options)
    rows = options.out / f"rows.{options.worker}.jsonl"
    for number, (kind, given) in enumerate(items(options.launches)):
        name = name_of(kind, given)
        if number % options.workers != options.worker or name in done:
            continue
        (options.out / f"begun.{options.worker}").write_text(name)
        fatal = False
        try:
            row = worker.run(kind, given)
        except TesseraError as error:
            row = {"name": name, "kind": kind, "refused": str(error)[:300]}
        except Exception as error:
            row = {"name": name, "kind": kind, "failed": f"{type(error).__name__}: {error}"[:300]}
            fatal = True
        with rows.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if fatal and not options.on_cpu:
            sys.exit(1)


def all_rows(out: Path) -> Iterator[dict[str, Any]]:
    """The rows of this call and of those before it."""
    for path in sorted(out.glob("rows*.jsonl")):
        for line in path.read_text().splitlines():
            with suppress(json.JSONDecodeError):  # a worker that was killed
                yield json.loads(line)


def done_names(out: Path) -> set[str]:
    return {row["name"] for row in all_rows(out)}


def run(options: argparse.Namespace) -> None:
    """All workers until everything is tried or the time is over."""
    out, begun = options.out, time.monotonic()
    ended = set[int]()
    running = dict[int, tuple[subprocess.Popen[bytes], int, float]]()
    said = begun
    while len(ended) < options.workers and time.monotonic() - begun < options.seconds:
        for number in range(options.workers):
            if number in ended:
                continue
            if number not in running:
                running[number] = _start(options, number), -1, time.monotonic()
            process, seen, since = running[number]
            rows = out / f"rows.{number}.jsonl"
            size = rows.stat().st_size if rows.exists() else 0
            if size != seen:
                running[number] = process, size, time.monotonic()
            if (status := process.poll()) == 0:
                ended.add(number)
            elif status is not None or time.monotonic() - since > PATIENCE_SECONDS * (
                8 if options.on_cpu else 1
            ):
                process.kill()
                process.wait()
                _lost(out, number, "no progress" if status is None else f"status {status}")
                del running[number]
        time.sleep(0.2)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{said - begun:.0f} s, {len(done_names(out))} works", flush=True)
    for process, _, _ in running.values():
        process.kill()
    for process, _, _ in running.values():
        process.wait()


def _start(options: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.gpu.check_generated", str(options.out)]
    command += ["--worker", str(number), "--workers", str(options.workers)]
    command += ["--launches", str(options.launches)] if options.launches else []
    command += ["--on-cpu"] if options.on_cpu else []
    with (options.out / f"error.{number}").open("w") as file:
        return subprocess.Popen(command, cwd=ROOT, stderr=file)


def _lost(out: Path, number: int, why: str) -> None:
    """A row for the work at which a worker ended, unless it wrote one itself."""
    begun = out / f"begun.{number}"
    name = begun.read_text() if begun.exists() else ""
    if not name or name in done_names(out):
        return
    with (out / f"rows.{number}.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"name": name, "kind": name.split()[0], "failed": why}) + "\n")


def report(out: Path) -> dict[str, Any]:
    """The counts over all rows."""
    rows = list(all_rows(out))
    ran = [row for row in rows if "forms" in row]
    by_kind = Counter(row["kind"] for row in ran)
    kernels: dict[str, set[str]] = {}
    for row in ran:
        for family in row["families"]:
            kernels.setdefault(family, set()).update(row["forms"][:1])
    forms = ROOT / "tests/data/opcodes/memory_forms.txt"
    known = {
        family
        for line in forms.read_text().splitlines()
        if not line.startswith("#")
        for family in families(line)
    }
    return {
        "works": len(ran),
        "by_kind": dict(sorted(by_kind.items())),
        "launches": sum(row["launches"] for row in ran),
        "checked": sum(row["launches"] - row["pinned"] for row in ran),
        "pinned": sum(row["pinned"] for row in ran),
        "unstable": sum(row["unstable"] for row in ran),
        "distinct_kernels": len({form for row in ran for form in row["forms"]}),
        "sequences": sum(row["launches"] > 1 for row in ran),
        "compiled_launches": by_kind["launch"],
        "compiled_on_cpu_too": sum("cpu" in row for row in ran),
        "cpu_stops": sorted({row["cpu_stops"] for row in ran if "cpu_stops" in row})[:20],
        "wrong": [row for row in ran if row["wrong"] or row.get("cpu")],
        "refused": [row for row in rows if "refused" in row][:50],
        "failed": [row for row in rows if "failed" in row],
        "kernels_by_instruction": {f: len(k) for f, k in sorted(kernels.items())},
        "below_20": {
            f: len(kernels.get(f, ())) for f in sorted(known) if len(kernels.get(f, ())) < 20
        },
    }


def main() -> None:
    """The whole, or one worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--launches", type=Path)
    parser.add_argument("--seconds", type=float, default=280)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--on-cpu", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        work_through(options)
        return
    run(options)
    rows = list(all_rows(options.out))
    for path in options.out.glob("*.*"):
        if path.name.startswith(("rows.", "begun.", "error.")):
            path.unlink()
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (options.out / "rows.jsonl").write_text(text)
    found = ({} if options.on_cpu else gpu_name()) | report(options.out)
    (options.out / "generated_gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1)[:9000])


if __name__ == "__main__":
    main()
