"""Kernels and sequences of generators, and launches of compiled kernels, on a GPU.

    python -m tests.gpu.check_generated prepare WORKS --launches FOLDER --seconds 600   # no GPU
    python -m tests.gpu.check_generated run WORKS OUT --seconds 80

FOLDER has what `tests/compiled` made. The first part packs all works into WORKS/works.xz, with
the regions of as many as can be analysed in that time; another call goes on. The second analyses
the others, and runs each with guards beside its buffers, two poisons, and pages that are not
mapped at one end of each buffer where the driver allows it (`tests.helpers.region_check`,
`cuda_machine`; `--stand-in`: the driver of the tests in its place, to try this). `--on-cpu`: in the
end, launches of compiled kernels run on the CPU backend too, with its log held against the regions.
Workers write a row as soon as it is there, OUT/rows.jsonl has them all in the end, and another
call goes on where the last one ended. After a fault, which a CUDA context does not survive, and
after `PATIENCE_SECONDS` without progress, a worker is replaced and the work at hand counts as
failed. OUT/generated_gpu.json has the counts, with the kernels that have each memory instruction.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from tests.gpu.check_regions import gpu_name
from tests.gpu.cuda_machine import CudaMachine, GuardedPages, take_gpu
from tests.helpers.region_check import Bytes, check, from_values, to_values
from tests.helpers.work_contents import bytes_for, numbers_for

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30
COUNTS = {
    "memory": 5660,
    "cluster": 1000,
    "tensor": 1100,
    "warpgroup": 300,
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
Row = dict[str, Any]


def families(text: str) -> set[str]:
    """The memory instructions of a PTX text: names with their spaces, without types and hints."""
    found = set()
    for name, modifiers in _MEMORY.findall(text):
        parts = [m.partition("::")[0] for m in modifiers.split(".")[1:]]
        found.add(".".join([name, *dict.fromkeys(p for p in parts if p in _PARTS)]))
    return found


def analysed(given: Row) -> Row:
    """What is known of a work without running it, for `from_values`."""
    from tests.compiled.check_launches import normalised, prepared
    from tests.helpers.generated_works import generated_work

    if given["kind"] == "launch":
        with _case(given) as case:
            work = prepared(case)[2]
    else:
        work = generated_work(given["kind"], given["seed"])
    return {
        "forms": [normalised(text) for text in work.texts],
        "families": sorted(set().union(*map(families, work.texts))),
        "work": to_values(work),
    }


@contextmanager
def _case(given: Row) -> Iterator[Any]:
    from tests.compiled.check_launches import case_of

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / given["launch"]["ptx"]
        path.write_text(given["text"])
        yield case_of(Path(folder), given["launch"])


def prepare(options: argparse.Namespace) -> None:
    """Analyse what is not analysed yet, and pack everything."""
    from tessera.diagnostics import TesseraError
    from tests.compiled.check_launches import read_rows

    options.works.mkdir(parents=True, exist_ok=True)
    kept, begun = options.works / "works.jsonl", time.monotonic()
    done = {row["name"]: row for row in _lines(kept)}
    every: list[Row] = [
        {"name": f"{kind} {seed}", "kind": kind, "seed": seed}
        for kind, count in COUNTS.items()
        for seed in range(options.first_seed, options.first_seed + count)
    ]
    for row in read_rows(options.launches) if options.launches else ():
        text = (options.launches / row["ptx"]).read_text()
        every.append({"name": row["name"], "kind": "launch", "launch": row, "text": text})
    random.Random(7).shuffle(every)  # any part of it has some of all
    for given in every:
        if given["name"] not in done and time.monotonic() - begun < options.seconds:
            try:
                found = analysed(given)
            except TesseraError as error:
                found = {"refused": str(error)[:300]}
            done[given["name"]] = found
            with kept.open("a") as file:
                file.write(_packed({"name": given["name"]} | found))
    text = "".join(_packed(given | done.get(given["name"], {})) for given in every)
    (options.works / "works.xz").write_bytes(lzma.compress(text.encode(), preset=9))
    size = (options.works / "works.xz").stat().st_size
    print(f"{len(every)} works, {len(done)} of them analysed, {size} bytes")


def _packed(row: Row) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def works_in(folder: Path) -> Iterator[Row]:
    """What `prepare` wrote."""
    for line in lzma.decompress((folder / "works.xz").read_bytes()).splitlines():
        yield json.loads(line)


def contents_of(row: Mapping[str, Any]) -> list[Bytes]:
    """What the buffers of a work hold at first."""
    names = [(f"{row['name']}/{name}", size) for name, size in row["work"]["buffers"]]
    if "launch" not in row:
        return [bytes_for(name, size) for name, size in names]
    given = row["launch"]["buffers"]
    return [numbers_for(name, *given[name.rpartition("/")[2]]).view(np.uint8) for name, _ in names]


class Worker:
    """One process with a context of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.pages: GuardedPages | None = None
        if options.stand_in:
            from tests.helpers.fake_cuda import FakeCuda

            self.driver = take_gpu(FakeCuda(memory=256 << 20))
        else:
            from cuda.bindings import driver

            self.driver = take_gpu(driver)
        try:
            self.pages = GuardedPages(self.driver)
        except Exception as error:
            print(f"no guard pages: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def run(self, given: Row) -> Row:
        """The row of one work."""
        if "work" not in given:
            given = given | analysed(given)
        found = self._checked(given)
        if any(one["wrong"] for one in found):  # a race shows as another result in another run
            again = [self._checked(given) for _ in range(3)]
            for place, one in enumerate(found):
                if not all(other[place]["wrong"] for other in again):
                    one["wrong"], one["unstable"] = [], True
        return {
            "forms": given["forms"],
            "families": given["families"],
            "launches": len(found),
            "pinned": sum(bool(one["pinned"]) for one in found),
            "unstable": sum(bool(one["unstable"]) for one in found),
            "pages": self.pages is not None,
            "wrong": [f"{one['step']}: {text}" for one in found for text in one["wrong"]],
        }

    def _checked(self, given: Row) -> list[Row]:
        work = from_values(given["work"], contents_of(given))
        with closing(CudaMachine(work, self.driver, self.pages)) as machine:
            return list(check(work, machine))


def work_through(options: argparse.Namespace) -> None:
    """The worker: its share of what has no row yet, kernels of one module together."""
    done = {row["name"] for row in _all_rows(options.out)}
    worker = Worker(options)
    rows = options.out / f"rows.{options.worker}.jsonl"
    share = [
        given
        for given in works_in(options.works)
        if zlib.crc32(given.get("text", given["name"]).encode()) % options.workers == options.worker
        and re.search(options.only, given["name"])
    ]
    tries = [(given["name"], given, worker.run) for given in share]
    launches = [given for given in share if given["kind"] == "launch"]
    tries += [(f"cpu {g['name']}", g, on_cpu) for g in launches if options.on_cpu]
    for name, given, attempt in tries:
        if "refused" in given or name in done:
            continue
        (options.out / f"begun.{options.worker}").write_text(name)
        row = {"name": name, "kind": name.split()[0] if attempt is on_cpu else given["kind"]}
        try:
            row |= attempt(given)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:300]
        with rows.open("a") as file:
            file.write(_packed(row))
        if "failed" in row and int(worker.driver.cuCtxSynchronize()[0]) != 0:
            sys.exit(1)  # the context is lost


def on_cpu(given: Row) -> Row:
    """The row of a launch on the CPU backend."""
    from tests.compiled.check_launches import prepared, problems

    with _case(given) as case:
        return problems(*prepared(case))


def _lines(path: Path) -> Iterator[Row]:
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):  # of a process that was killed
            yield json.loads(line)


def _all_rows(out: Path) -> Iterator[Row]:
    """The rows of this call and of those before it."""
    for path in sorted(out.glob("rows*.jsonl")):
        yield from _lines(path)


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
            elif status is not None or time.monotonic() - since > PATIENCE_SECONDS:
                process.kill()
                process.wait()
                _lost(out, number, "no progress" if status is None else f"status {status}")
                del running[number]
        time.sleep(0.1)
        if time.monotonic() - said > 10:
            said = time.monotonic()
            print(f"{said - begun:.0f} s, {sum(1 for _ in _all_rows(out))} works", flush=True)
    for process, _, _ in running.values():
        process.kill()
    for process, _, _ in running.values():
        process.wait()


def _start(options: argparse.Namespace, number: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.gpu.check_generated", "run"]
    command += [str(options.works), str(options.out)]
    command += ["--worker", str(number), "--workers", str(options.workers)]
    command += ["--stand-in"] if options.stand_in else []
    command += ["--only", options.only]
    command += ["--on-cpu"] if options.on_cpu else []
    # Each module is loaded by one worker; a cache would be one file that all of them lock.
    environment = os.environ | {"CUDA_CACHE_DISABLE": "1", "TESSERA_NO_CACHE": "1"}
    with (options.out / f"error.{number}").open("a") as file:
        return subprocess.Popen(command, cwd=ROOT, stderr=file, env=environment)


def _lost(out: Path, number: int, why: str) -> None:
    """A row for the work at which a worker ended, unless it wrote one itself."""
    begun = out / f"begun.{number}"
    name = begun.read_text() if begun.exists() else ""
    if not name or any(row["name"] == name for row in _all_rows(out)):
        return
    with (out / f"rows.{number}.jsonl").open("a") as file:
        file.write("\n" + _packed({"name": name, "failed": why}))


def report(works: Path, out: Path) -> Row:
    """The counts over all rows."""
    given = [*works_in(works)]
    rows = [*_all_rows(out)]
    ran = [row for row in rows if "launches" in row]
    on_the_cpu = [row for row in rows if row.get("kind") == "cpu" and "wrong" in row]
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
        "works_prepared": len(given),
        "works": len(ran),
        "by_kind": dict(sorted(Counter(row["kind"] for row in ran).items())),
        "launches": sum(row["launches"] for row in ran),
        "checked": sum(row["launches"] - row["pinned"] for row in ran),
        "pinned": sum(row["pinned"] for row in ran),
        "unstable": sum(row["unstable"] for row in ran),
        "with_guard_pages": sum(row["pages"] for row in ran),
        "distinct_kernels": len({form for row in ran for form in row["forms"]}),
        "sequences": sum(row["launches"] > 1 for row in ran),
        "compiled_kernels": len({f for r in ran if r["kind"] == "launch" for f in r["forms"]}),
        "compiled_launches_on_the_cpu_backend": len(on_the_cpu),
        "wrong": {row["name"]: row["wrong"] for row in rows if row.get("wrong")},
        "refused": {row["name"]: row["refused"] for row in given if "refused" in row},
        "failed": {row["name"]: row["failed"] for row in rows if "failed" in row},
        "kernels_by_instruction": {f: len(k) for f, k in sorted(kernels.items())},
        "below_20": {
            f: len(kernels.get(f, ())) for f in sorted(known) if len(kernels.get(f, ())) < 20
        },
    }


def main() -> None:
    """One of the parts, or one worker."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["prepare", "run"])
    parser.add_argument("works", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--launches", type=Path)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--worker", type=int)
    parser.add_argument("--stand-in", action="store_true")
    parser.add_argument("--on-cpu", action="store_true")
    parser.add_argument("--only", default="", help="works of which the name has this pattern")
    options = parser.parse_args()
    if options.part == "prepare":
        prepare(options)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    if options.worker is not None:
        work_through(options)
        return
    begun = time.monotonic()
    run(options)
    rows = list(_all_rows(options.out))
    errors = {p.name: p.read_text()[-300:] for p in sorted(options.out.glob("error.*"))}
    for path in options.out.glob("*.*"):
        if path.name.startswith(("rows.", "begun.", "error.")):
            path.unlink()
    text = "".join(map(_packed, rows))
    (options.out / "rows.jsonl").write_text(text)
    found = ({} if options.stand_in else gpu_name()) | report(options.works, options.out)
    found["seconds"] = round(time.monotonic() - begun, 1)
    (options.out / "generated_gpu.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1)[:7000])
    print({name: said for name, said in errors.items() if said})


if __name__ == "__main__":
    main()
