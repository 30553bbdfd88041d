"""Plant single faults into valid PTX, have ptxas judge them, and see whether Tessera refuses them.

    python -m benchmarks.reading.verdicts plant FILE [--per-kind N] [--seed S] [DIR ...]
    python -m benchmarks.reading.verdicts check FILE [-o FILE] [--misses FILE] [DIR ...]
    python -m benchmarks.reading.verdicts record FILE [--per-kind N]

`plant` takes files of the packed corpus (and of folders, one subfolder a producer) that ptxas
accepts, plants one fault in each, and keeps it if ptxas then refuses the file. FILE holds one JSON
record a line: the file, the kind, the edit, the line of the fault and what ptxas says. `check`
needs no ptxas: it applies each edit and reads the result. A fault is found if Tessera's first
error is on the line of the fault, or on one that ptxas names. Same seed, same faults. `record`
keeps some of each kind, in small files of the packed corpus, for the tests, with how many are
found now.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, write
from tests.fuzz.faults.kinds import KINDS
from tests.fuzz.faults.record import FLOORS, RECORDED, Planted, apply, look
from tests.fuzz.faults.text import Text
from tests.helpers.corpus import extracted
from tests.helpers.ptxas import architecture, assemble, find_ptxas, ptxas_version

COMMANDS = ("plant", "check", "record")
LARGEST = 40_000
SMALL = 9_000
FEWEST_STATEMENTS = 8
TRIES = 12
FAST = ("-O0",)


def find_files(folders: Sequence[Path]) -> dict[str, list[tuple[str, Path]]]:
    """By producer, the name and path of each file of the folders that is small enough."""
    found: dict[str, list[tuple[str, Path]]] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.ptx")):
            if path.stat().st_size <= LARGEST:
                name = path.relative_to(folder).as_posix()
                found.setdefault(name.split("/")[0], []).append((name, path))
    return found


@functools.lru_cache(maxsize=512)
def load(path: Path) -> Text:
    """A file as text that faults can be planted in."""
    return Text(path.as_posix(), path.read_bytes().decode("utf-8", "surrogateescape"))


@functools.cache
def options_for(path: Path) -> tuple[str, ...] | None:
    """The options with which ptxas accepts the file as it is; None if it does not."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    for options in (FAST, (*FAST, "--compile-only"), (), ("--compile-only",)):
        if assemble(text, options).accepted:
            return options
    return None


def plant(
    kind: str, files: dict[str, list[tuple[str, Path]]], count: int, seed: int
) -> Iterator[Planted]:
    """Faults of one kind that ptxas refuses, in files of every producer by turns."""
    rng = random.Random(f"{seed} {kind}")
    seen: set[tuple[str, ...]] = set()
    producers = sorted(files)
    made = 0
    for attempt in range(count * TRIES):
        if made == count:
            return
        name, path = rng.choice(files[producers[attempt % len(producers)]])
        text = load(path)
        edit = KINDS[kind](text, rng) if len(text.statements) >= FEWEST_STATEMENTS else None
        if edit is None or (name, *edit.lines) in seen:
            continue
        seen.add((name, *edit.lines))
        options = options_for(path)
        changed = "\n".join(edit.apply(text.lines))
        target = architecture("\n".join(text.lines))
        verdict = None if options is None else assemble(changed, options, target=target)
        if verdict is None or verdict.accepted:
            continue
        said = verdict.complaints or ((0, verdict.output.strip()[:200]),)
        lines = tuple(sorted({line for line, _ in verdict.complaints}))[:20]
        yield Planted(name, kind, edit, lines, said[0][1][:160])
        made += 1


def plant_all(options: argparse.Namespace, folders: Sequence[Path]) -> int:
    """Write the faults of all kinds."""
    files = find_files(folders)
    with options.file.open("w") as out:
        out.write(
            json.dumps({"seed": options.seed, "ptxas": ptxas_version(find_ptxas() or "ptxas")})
            + "\n"
        )
        for kind in options.kinds or KINDS:
            started, made = time.monotonic(), 0
            for fault in plant(kind, files, options.per_kind, options.seed):
                out.write(json.dumps(fault.to_json()) + "\n")
                made += 1
            print(f"{kind}: {made} in {time.monotonic() - started:.0f} s", flush=True)
    return 0


def check_all(options: argparse.Namespace, folders: Sequence[Path]) -> int:
    """Report what Tessera makes of each recorded fault."""
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    kinds: dict[str, Counter[str]] = {}
    misses = []
    for row in rows[1:]:
        fault = Planted.from_json(row)
        if options.kinds and fault.kind not in options.kinds:
            continue
        path = next((f / fault.file for f in folders if (f / fault.file).exists()), None)
        if path is None:
            raise SystemExit(
                f"{fault.file} is in none of the folders; name the folder it came from"
            )
        seen = look(apply(path.read_bytes().decode("utf-8", "surrogateescape"), fault.edit))
        outcome = fault.outcome(seen)
        kinds.setdefault(fault.kind, Counter())[outcome] += 1
        if outcome != "right line":
            misses.append((fault, seen, outcome))
    report = summary(rows[0], kinds)
    if options.misses:
        options.misses.write_text("".join(describe(*miss) for miss in misses))
    write(report, options.output)
    for kind, row in sorted(report["kinds"].items(), key=lambda item: item[1]["share"]):
        counts = f"{row['planted']:4} {row['refused']:4} {row['right line']:4}"
        print(f"{row['share']:7.1%} {kind:26} {counts}")
    share, refused = report["share"], report["refused"]
    print(f"{share:.2%} of {report['planted']} on the right line, {refused} refused")
    return 0


def record(options: argparse.Namespace, folder: Path) -> int:
    """Keep a sample for the tests, and how many of each kind are found."""
    rows = [json.loads(line) for line in options.file.read_text().splitlines()]
    kept: dict[str, list[Planted]] = {}
    faults = [Planted.from_json(row) for row in rows[1:]]
    for fault in sorted(faults, key=lambda fault: (folder / fault.file).stat().st_size > SMALL):
        of_kind = kept.setdefault(fault.kind, [])
        if len(of_kind) < options.per_kind and (folder / fault.file).exists():
            of_kind.append(fault)
    floors = {}
    for kind, chosen in kept.items():
        seen = [look(apply((folder / fault.file).read_text(), fault.edit)) for fault in chosen]
        found = [fault.outcome(saw) for fault, saw in zip(chosen, seen, strict=True)]
        floors[kind] = found.count("right line")
    sample = [json.dumps(fault.to_json()) for chosen in kept.values() for fault in chosen]
    RECORDED.write_text("\n".join([json.dumps(rows[0]), *sample]) + "\n")
    FLOORS.write_text(json.dumps(floors, indent=1) + "\n")
    print(f"{len(sample)} faults of {len(kept)} kinds, {sum(floors.values())} found")
    return 0


def summary(header: dict[str, Any], kinds: dict[str, Counter[str]]) -> dict[str, Any]:
    """Counts by kind and in all."""
    table: dict[str, dict[str, Any]] = {}
    for kind, counts in kinds.items():
        planted, right = counts.total(), counts["right line"]
        table[kind] = {
            "planted": planted,
            "refused": planted - counts["accepted"],
            "right line": right,
            "share": round(right / planted, 4),
        }
    planted = sum(row["planted"] for row in table.values())
    right = sum(row["right line"] for row in table.values())
    refused = sum(row["refused"] for row in table.values())
    whole = {"planted": planted, "refused": refused, "right line": right}
    return {**header, **whole, "share": round(right / max(planted, 1), 4), "kinds": table}


def describe(fault: Planted, seen: tuple[int | None, str], outcome: str) -> str:
    """A miss in four short lines."""
    at = fault.edit.fault - fault.edit.at
    shown = fault.edit.lines[at] if at < len(fault.edit.lines) else "(line removed)"
    ours = f"{seen[0]}: {seen[1]}" if seen[0] is not None else seen[1] or "accepted"
    return (
        f"{fault.kind} [{outcome}] {fault.file}:{fault.edit.fault + 1}\n    {shown.strip()}\n"
        f"    ptxas {list(fault.ptxas_lines)}: {fault.said}\n    ours {ours}\n"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Plant or check."""
    parser = arguments(__doc__)
    parser.add_argument("what", choices=COMMANDS)
    parser.add_argument("file", type=Path, help="the recorded faults")
    parser.add_argument("folders", type=Path, nargs="*", help="more valid files, by producer")
    parser.add_argument("--per-kind", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="*", choices=sorted(KINDS))
    parser.add_argument("--misses", type=Path, help="where what was not found goes")
    options = parser.parse_args(words)
    folders = [extracted(), *options.folders]
    if options.what == "record":
        return record(options, extracted())
    return plant_all(options, folders) if options.what == "plant" else check_all(options, folders)
