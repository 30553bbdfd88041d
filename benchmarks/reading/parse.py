"""How fast is PTX read, against ptxas on the same files, the same core, the same run.

    python -m benchmarks.reading.parse [--quick] [--large FOLDER] [--repeats N] [-o FILE]

Measures, per file of the corpus, a parse (no cache on disk) to the verified module, whose bodies
become records when they are asked for; the same with every body asked for (`build`); and `ptxas
-O3`. The three take turns, file by file. The first turn of each is kept apart (`first_cpu_s`) and
counts in nothing else: it compiles expressions and brings files into memory. `--large` adds files
above 1 MB, which nvcc makes of `benchmarks/kernels/large.cu`. Totals by producer and by size.
Prints tables, writes JSON. Everything runs on one core: the process pins itself, and ptxas inherits
that. Both clock and CPU time are kept: on a shared machine only the second says much.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.common import KERNELS, arguments, write
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.corpus import extracted, manifest
from tests.helpers.ptxas import find_ptxas

LARGE = KERNELS / "large.cu"
DEBUG_TARGET = re.compile(r"^\.target.*\bdebug\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Time:
    """Seconds by the clock, and seconds that a core spent on this process or its children."""

    wall: float
    cpu: float


def timed(action: Callable[[], object]) -> Time:
    """What one call took; garbage of earlier ones is collected before."""
    gc.collect()
    wall, cpu = time.perf_counter(), cpu_seconds()
    action()
    return Time(time.perf_counter() - wall, cpu_seconds() - cpu)


def in_turns(
    actions: Mapping[str, Callable[[], object]], repeats: int
) -> dict[str, dict[str, float]]:
    """What each action took, by `summary`; one call of each in every turn, and one turn first."""
    turns = [{name: timed(action) for name, action in actions.items()} for _ in range(repeats + 1)]
    return {name: summary([turn[name] for turn in turns]) for name in actions}


def cpu_seconds() -> float:
    """The processor time of this process and of those that it has waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def summary(times: Sequence[Time]) -> dict[str, float]:
    """Median and spread of all calls but the first, which stands apart."""
    first, *others = times
    walls, cpus = [one.wall for one in others], [one.cpu for one in others]
    return {
        "wall_s": round(statistics.median(walls), 6),
        "wall_min_s": round(min(walls), 6),
        "wall_max_s": round(max(walls), 6),
        "cpu_s": round(statistics.median(cpus), 6),
        "first_cpu_s": round(first.cpu, 6),
    }


def ptxas_command(text: str, entry: dict[str, Any], scratch: Path) -> list[str] | None:
    """`ptxas -O3` (-O0 where the target says `debug`) of a text, or None where it is absent.

    ptxas 13.0 for Arm never ends if the last line is a comment and no new line follows it.
    """
    executable = find_ptxas()
    if executable is None:
        return None
    given = scratch / "given.ptx"
    given.write_bytes(text.encode() + b"\n")
    level = [] if DEBUG_TARGET.search(text) else ["-O3"]
    options = [*level, "-arch", entry["arch"], *entry["ptxas_options"]]
    return [executable, *options, "-o", str(scratch / "out.cubin"), str(given)]


def build_all(text: str) -> None:
    """Parse, and ask for every body."""
    for function in parse_module(text, "benchmark.ptx").functions():
        len(function.body or ())


def measure_files(
    folder: Path, entries: Sequence[dict[str, Any]], repeats: int
) -> list[dict[str, Any]]:
    """One row per file: bytes, our seconds, ptxas's seconds."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, entry in enumerate(entries, 1):
            rows.append(measure_file(folder / entry["file"], entry, repeats, Path(scratch)))
            print(f"\r{number}/{len(entries)} {entry['file']:60.60}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return rows


def measure_file(path: Path, entry: dict[str, Any], repeats: int, scratch: Path) -> dict[str, Any]:
    """The row of one file."""
    text = path.read_bytes().decode()
    row: dict[str, Any] = {"file": entry["file"], "producer": entry["producer"]}
    row["bytes"] = len(text.encode())
    actions: dict[str, Callable[[], object]] = {
        "parse": lambda: parse_module(text, "benchmark.ptx"),
        "build": lambda: build_all(text),
    }
    command = ptxas_command(text, entry, scratch)
    if command is not None:
        actions["ptxas"] = lambda: subprocess.run(command, check=True, capture_output=True)
    row |= in_turns(actions, repeats)
    if command is not None:
        row["ratio"] = round(row["ptxas"]["wall_s"] / row["parse"]["wall_s"], 2)
        row["cpu_ratio"] = round(row["ptxas"]["cpu_s"] / row["parse"]["cpu_s"], 2)
    return row


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sums of medians over some rows, rates and ratios, by the clock and by CPU time."""
    size = sum(row["bytes"] for row in rows)
    ours = {clock: sum(row["parse"][clock] for row in rows) for clock in ("wall_s", "cpu_s")}
    found: dict[str, Any] = {"files": len(rows), "bytes": size}
    found["parse"] = {clock: round(seconds, 3) for clock, seconds in ours.items()}
    found["mb_per_s"] = round(size / ours["wall_s"] / 1e6, 3)
    found["mb_per_cpu_s"] = round(size / ours["cpu_s"] / 1e6, 3)
    built = sum(row["build"]["cpu_s"] for row in rows)
    found["build_mb_per_cpu_s"] = round(size / built / 1e6, 3)
    if all("ptxas" in row for row in rows):
        theirs = {clock: sum(row["ptxas"][clock] for row in rows) for clock in ours}
        found["ptxas"] = {clock: round(seconds, 3) for clock, seconds in theirs.items()}
        found["total_ratio"] = round(theirs["wall_s"] / ours["wall_s"], 2)
        found["total_cpu_ratio"] = round(theirs["cpu_s"] / ours["cpu_s"], 2)
        for key in ("ratio", "cpu_ratio"):
            found[f"median_file_{key}"] = round(statistics.median(row[key] for row in rows), 2)
            found[f"least_file_{key}"] = min(row[key] for row in rows)
            found[f"geometric_mean_{key}"] = round(
                statistics.geometric_mean(row[key] for row in rows), 2
            )
        found["geometric_mean_build_cpu_ratio"] = round(
            statistics.geometric_mean(
                row["ptxas"]["cpu_s"] / row["build"]["cpu_s"] for row in rows
            ),
            2,
        )
    return found


CLASSES = (
    ("below 50 KB", 0, 50_000),
    ("50 to 200 KB", 50_000, 200_000),
    ("200 KB to 1 MB", 200_000, 1_000_000),
    ("above 1 MB", 1_000_000, 1 << 60),
)


def by_size(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Totals of each class of sizes, and in it the geometric mean of each producer."""
    found = {}
    for name, least, most in CLASSES:
        chosen = [row for row in rows if least <= row["bytes"] < most]
        if not chosen:
            continue
        producers = {
            producer: totals([row for row in chosen if row["producer"] == producer])
            for producer in sorted({row["producer"] for row in chosen})
        }
        means = {p: t.get("geometric_mean_cpu_ratio") for p, t in producers.items()}
        found[name] = totals(chosen) | {"producers": means}
    return found


def large_files(folder: Path) -> list[dict[str, Any]]:
    """Files above 1 MB, made by nvcc."""
    entries = []
    for name, arch, flags in (
        ("cub_sm_80", "sm_80", []),
        ("cub_sm_90", "sm_90", []),
        ("cub_lineinfo", "sm_80", ["-lineinfo", "-DMANY"]),
    ):
        path = folder / f"{name}.ptx"
        command = ["nvcc", "-arch", arch, "-ptx", *flags, "-o", str(path), str(LARGE)]
        if not path.exists():
            subprocess.run(command, check=True, capture_output=True)
        entries.append(
            {"file": path.name, "producer": "nvcc-13.0 large", "arch": arch, "ptxas_options": []}
        )
    return entries


def quick_subset(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every tenth file of each producer."""
    by_producer: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        by_producer[entry["producer"]].append(entry)
    return [entry for group in by_producer.values() for entry in group[::10]]


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    command = [find_ptxas() or "ptxas", "--version"]
    version = subprocess.run(command, capture_output=True, text=True).stdout
    return common.machine() | {"cores_used": 1, "ptxas": version.strip().splitlines()[-2:]}


def print_table(total: dict[str, Any], producers: dict[str, dict[str, Any]]) -> None:
    """The rates by producer and in total; CPU time, since other work shares the machine."""
    print(f"{'producer':18} {'files':>5} {'MB':>7} {'MB/s':>6} {'ptxas/parse':>12} {'median':>7}")
    for name, row in [*producers.items(), ("total", total)]:
        ratio, middle = row.get("total_cpu_ratio", "-"), row.get("median_file_cpu_ratio", "-")
        line = f"{name:18} {row['files']:5} {row['bytes'] / 1e6:7.2f} {row['mb_per_cpu_s']:6.2f}"
        print(f"{line} {ratio:>12} {middle:>7}")
    print(f"by the clock: {total['mb_per_s']} MB/s, ptxas/parse {total.get('total_ratio', '-')}")


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = arguments(__doc__, "parse.json")
    parser.add_argument("--quick", action="store_true", help="a tenth of the files")
    parser.add_argument(
        "--large", type=Path, metavar="FOLDER", help="also files above 1 MB, made in this folder"
    )
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(words)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    folder = extracted()
    entries: list[dict[str, Any]] = list(manifest(folder))
    if options.quick:
        entries = quick_subset(entries)
    rows = measure_files(folder, entries, options.repeats)
    if options.large:
        options.large.mkdir(parents=True, exist_ok=True)
        rows += measure_files(options.large, large_files(options.large), options.repeats)
    names = sorted({row["producer"] for row in rows})
    producers = {name: totals([row for row in rows if row["producer"] == name]) for name in names}
    outcome = {"machine": machine(), "repeats": options.repeats, "total": totals(rows)}
    outcome |= {"sizes": by_size(rows), "producers": producers}
    print_table(outcome["total"], producers)
    for name, row in outcome["sizes"].items():
        mean = row.get("geometric_mean_cpu_ratio")
        print(f"{name}: {row['files']} files, ptxas/parse {mean}, {row['producers']}")
    write(outcome | {"files": rows}, options.output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
