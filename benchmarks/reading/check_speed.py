"""How fast is PTX read and checked, against ptxas where it only reads and checks.

    python -m benchmarks.reading.check_speed [--repeats N] [--every N] [-o FILE]

`ptxas -arch compute_XX` reads and checks a module and generates no code. Both read the same files
of the corpus, in turns, on one core; what counts is processor time. The time of an empty module
(the header of the same file) is measured in the same turns and taken off on both sides: for ptxas
that is its start, for Tessera what a call costs. Files below 5 KB take eight times as many turns,
as the start of ptxas varies by more than they take. Every body is checked. `first` is the first
time that this process sees a file, when it knows the statements of the files before; `again` the
median of the later times. What a process loads once, for the first file that needs it (Lark, the
table of its parser, expressions), is in neither: `once_s` has it, as the start of ptxas has its own
tables. Totals by size and by producer, and the growth of time and memory up to 20 MB. Right after
another process, a call waits for memory as long as it computes; so the files below 5 KB are also
read one after another (`in passes`), all by Tessera, then all by ptxas, in turns. Where the start
of ptxas varies by more than it takes to read them, as on a busy machine, there is no ratio.

It also applies the recorded single faults (`tests/fuzz/faults`), which a full run of ptxas refuses,
and counts how many `-arch compute_XX` refuses: those that it accepts need code generation.
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import json
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, write
from benchmarks.reading.parse import cpu_seconds, machine, timed
from tessera.frontend.ptx.read_ptx import parse_module
from tests.fuzz.faults.record import RECORDED, Planted, apply
from tests.helpers.corpus import extracted, manifest
from tests.helpers.ptxas import architecture, find_ptxas, raised

CLASSES = (
    ("below 5 KB", 0, 5_000),
    ("5 to 50 KB", 5_000, 50_000),
    ("50 to 200 KB", 50_000, 200_000),
    ("200 KB to 1 MB", 200_000, 1_000_000),
    ("above 1 MB", 1_000_000, 1 << 60),
)
SMALL_TURNS = 8
LEAST_FILES = 10
SIZES_MB = (5, 10, 20)
HEAD = (
    ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 global_smem[];\n"
)
REGISTER = re.compile(r"%(rd|rs|r|fd|f|p)(?=[\d<])")
ENTRY = re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE)
UNUSUAL = """.version 8.0
.target sm_90
.global .u32 pairs[2][1] = {{1}, {1 + 1}};
.func .attribute(.unified(1, 2)) f() { ret; }
.visible .entry k() { .reg .b32 %r<2>; { .reg .b32 %r1; mov.u32 %r1, ~1; } { L: ret; } L: ret; }
"""
"""What loads all that the reader loads when it is first needed."""
HEADER = re.compile(r".*?\.target[^\n]*\n(?:\s*\.address_size[^\n]*\n)?", re.DOTALL)


def checker(text: str, options: Sequence[str], folder: Path, name: str) -> Callable[[], Any]:
    """A call of ptxas that reads and checks a text."""
    executable = find_ptxas() or "ptxas"
    path = folder / f"{name}.ptx"
    path.write_bytes(text.encode("utf-8", "surrogateescape") + b"\n")
    target = raised(architecture(text), executable).replace("sm_", "compute_")
    command = [executable, *options, "-arch", target, "-o", str(folder / "out"), str(path)]
    return lambda: subprocess.run(command, check=False, capture_output=True)


def took(action: Callable[[], Any]) -> float:
    """The processor time of a call and of the processes that it starts."""
    before = cpu_seconds()
    action()
    return cpu_seconds() - before


def measure_files(
    files: Sequence[tuple[str, dict[str, Any]]], repeats: int, folder: Path
) -> list[dict[str, Any]]:
    """The seconds of each file, and of its header alone; every turn is a pass over all of them."""
    actions: list[dict[str, Callable[[], Any]]] = []
    for number, (text, entry) in enumerate(files):
        header = HEADER.match(text)
        empty = header[0] if header else ".version 8.0\n.target sm_80\n"
        options = entry["ptxas_options"]
        actions.append(
            {
                "ours": functools.partial(parse_module, text),
                "ptxas": checker(text, options, folder, f"given{number}"),
                "ours_empty": functools.partial(parse_module, empty),
                "ptxas_empty": checker(empty, options, folder, f"empty{number}"),
            }
        )
    gc.collect()
    turns = [
        {name: [took(action[name]) for action in actions] for name in actions[0]}
        for _ in range(repeats)
    ]
    rows = []
    for number, (text, entry) in enumerate(files):
        row: dict[str, Any] = {name: entry[name] for name in ("file", "producer")}
        row["bytes"] = len(text.encode())
        for name in actions[0]:
            row[name] = round(statistics.median(turn[name][number] for turn in turns[1:]), 6)
        row["first"] = round(turns[0]["ours"][number], 6)
        rows.append(row)
    return rows


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rates and ratios of some files, without what an empty module takes."""
    size = sum(row["bytes"] for row in rows) / 1e6
    theirs = sum(row["ptxas"] - row["ptxas_empty"] for row in rows)
    again = sum(row["ours"] - row["ours_empty"] for row in rows)
    first = sum(row["first"] - row["ours_empty"] for row in rows)
    return {
        "files": len(rows),
        "mb": round(size, 3),
        "ptxas_s": round(theirs, 4),
        "first_s": round(first, 4),
        "again_s": round(again, 4),
        "ptxas_mb_per_s": round(size / theirs, 2) if theirs > 0 else None,
        "first_mb_per_s": round(size / first, 2),
        "again_mb_per_s": round(size / again, 2),
        "ratio_first": round(theirs / first, 2) if theirs > 0 else None,
        "ratio_again": round(theirs / again, 2) if theirs > 0 else None,
        "ratio_with_start": round(sum(row["ptxas"] for row in rows) / (again or 1e-9), 1),
    }


def by_group(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Totals of each class of sizes, and of each producer with enough files."""
    groups = {name: [r for r in rows if low <= r["bytes"] < high] for name, low, high in CLASSES}
    producers: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        producers[row["producer"]].append(row)
    for name in sorted(producers):
        if len(producers[name]) >= LEAST_FILES:
            groups[name] = producers[name]
    return {name: totals(chosen) for name, chosen in groups.items() if chosen}


def judge_faults(folder: Path) -> dict[str, Any]:
    """How many of the recorded faults ptxas refuses that generates no code."""
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines()[1:]]
    refused: Counter[str] = Counter()
    accepted: dict[str, list[str]] = {}
    for row in rows:
        fault = Planted.from_json(row)
        text = apply((extracted() / fault.file).read_bytes().decode(), fault.edit)
        options = next(e["ptxas_options"] for e in manifest(extracted()) if e["file"] == fault.file)
        if checker(text, options, folder, "fault")().returncode:
            refused[fault.kind] += 1
        else:
            accepted.setdefault(fault.kind, []).append(fault.said)
    only = {kind: Counter(said) for kind, said in sorted(accepted.items())}
    return {
        "faults": len(rows),
        "refused_without_code": refused.total(),
        "refused_only_with_code": only,
    }


# --- growth --------------------------------------------------------------------------------------


def synthetic_text(texts: Sequence[str], size: int) -> str:
    """About `size` bytes of distinct kernels: real ones in turn, each under a name of its own.

    From the second round on, registers get new names too: no line of one round is one of another,
    so that nothing is gained by recognising text that was read before.
    """
    parts, length = [HEAD], len(HEAD)
    for number, text in enumerate(itertools.cycle(texts)):
        start = ENTRY.search(text)
        if start is None:
            continue
        name = re.compile(rf"\b{start.group(1)}(?=\(|_param_)")
        part = name.sub(f"kernel_{number}", text[start.start() :]).rstrip() + "\n"
        part = REGISTER.sub(rf"%\1{'x' * (number // len(texts))}", part)
        parts.append(part)
        length += len(part)
        if length >= size:
            break
    return "".join(parts)


def single_entry_texts(folder: Path, entries: Sequence[dict[str, Any]]) -> list[str]:
    """Triton kernels: one entry, no module variables, sections left off."""
    chosen = []
    for entry in entries:
        text = (folder / entry["file"]).read_bytes().decode()
        if not entry["producer"].startswith("triton") or text.count(".entry") != 1:
            continue
        if entry["arch"] not in ("sm_80", "sm_89", "sm_90", "sm_90a"):
            continue
        start = ENTRY.search(text)
        if start is None or ".global" in text[: start.start()] or ".func" in text[: start.start()]:
            continue
        chosen.append(re.split(r"^\s*\.file", strip_debug(text), flags=re.MULTILINE)[0])
    return chosen


def measure_growth(folder: Path, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds and peak memory at three sizes, each in a fresh process."""
    texts = single_entry_texts(folder, entries)
    rows = []
    for megabytes in SIZES_MB:
        text = synthetic_text(texts, megabytes * 1_000_000)
        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch, "large.ptx")
            path.write_text(text)
            command = [
                sys.executable,
                "-m",
                "benchmarks.reading.check_speed",
                "--measure-one",
                str(path),
            ]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(
            {"bytes": len(text), "kernels": text.count(".entry"), **json.loads(done.stdout)}
        )
    return rows


def measure_one(path: Path) -> dict[str, Any]:
    """Parse one file in this process and say what it took; for `measure_growth`."""
    text = path.read_text()
    parse_module(HEAD, "warm.ptx")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = timed(lambda: parse_module(text, "large.ptx"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "wall_s": round(seconds.wall, 3),
        "cpu_s": round(seconds.cpu, 3),
        "mb_per_s": round(len(text) / seconds.wall / 1e6, 3),
        "mb_per_cpu_s": round(len(text) / seconds.cpu / 1e6, 3),
        "peak_mb": round(peak / 1024),
        "peak_before_mb": round(before / 1024),
    }


def strip_debug(text: str) -> str:
    """The text without `.loc` lines and debug sections, which follow all functions."""
    text = re.sub(r"^[ \t]*\.loc[ \t].*\n", "", text, flags=re.MULTILINE)
    return re.split(r"^[ \t]*\.section", text, flags=re.MULTILINE)[0]


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    parser = arguments(__doc__, "check_speed.json")
    parser.add_argument("--repeats", type=int, default=4, help="the first of them stands apart")
    parser.add_argument("--every", type=int, default=1, help="only every so many files")
    parser.add_argument("--measure-one", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.measure_one:
        print(json.dumps(measure_one(options.measure_one)))
        return 0
    folder = extracted()
    entries = manifest(folder)[:: options.every]
    random.Random(1).shuffle(entries)  # files of one producer are alike
    started = time.monotonic()
    gc.freeze()
    with tempfile.TemporaryDirectory() as scratch:
        parse_module(".version 8.0\n.target sm_80\n.visible .entry k() { ret; }\n")
        once = took(lambda: parse_module(UNUSUAL))
        rows, small = [], []
        for number, entry in enumerate(entries, 1):
            text = (folder / entry["file"]).read_bytes().decode()
            is_small = len(text) < CLASSES[0][2]
            small += [(text, entry)] * is_small
            turns = options.repeats * (SMALL_TURNS if is_small else 1)
            rows += measure_files([(text, entry)], turns, Path(scratch))
            if number % 50 == 0:
                print(f"{number} files, {time.monotonic() - started:.0f} s", file=sys.stderr)
        passes = measure_files(small, options.repeats * SMALL_TURNS, Path(scratch))
        faults = judge_faults(Path(scratch))
    groups = {**by_group(rows), "below 5 KB, in passes": totals(passes)}
    for name, row in groups.items():
        rates = (row[f"{what}_mb_per_s"] for what in ("ptxas", "first", "again"))
        print(f"{name:16} {row['files']:4}", *(f"{rate or 0:7.2f}" for rate in rates), end=" ")
        first, again = (row[f"ratio_{what}"] or 0 for what in ("first", "again"))
        print(f"MB/s  ptxas/first {first:6.2f}, again {again:6.2f}")
    print(f"{faults['refused_without_code']} of {faults['faults']} faults need no code generation")
    growth = [] if options.every > 1 else measure_growth(folder, manifest(folder))
    result = {**machine(), "repeats": options.repeats, "once_s": round(once, 4)}
    result |= {"groups": groups, "faults": faults}
    write({**result, "growth": growth, "files": rows}, options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
