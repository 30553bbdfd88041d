"""Chooses the generated cases that notice most changes of the code that soundness depends on.

`look -o LOG` draws changes (`tests/helpers/code_changes.py`) and looks for a case of
`tests/helpers/said.py` of which something else is said with each: first among the cases that were
chosen for other changes, then among those of a pool in which the change makes a difference. LOG has
a row for each change, with the case that notices it, and a second run goes on where the first
ended. `write LOG` puts the chosen cases into `tests/data/said.json`, for `test_said.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.helpers.code_changes import (
    ROOT,
    Mutant,
    apply_change,
    differing,
    draw,
    key_of,
    watch_changes,
)
from tests.helpers.said import SAID, digest
from tests.sabotage import forget, fork_each, read_rows

POOL = {"code": 4000, "soup": 4000, "sequence": 5000, "values": 5000, "runs": 4000, "plans": 800}
OTHERS = 1000  # of each other kind
SLOW = 1.0  # seconds of processor time from which on a case is not in the pool
TRIED_SECONDS = 2.5  # that a change gets, at most
NOTICED, SAME, GONE = 1, 0, 2
MOST_TRIED = 400

FILE = ROOT / "tests/data/said.json"
PART = 20  # cases of a test

Case = tuple[str, int]
Array = NDArray[np.bool_]


def pool() -> list[Case]:
    """The cases to choose from, in random order."""
    cases = [(kind, seed) for kind in SAID for seed in range(POOL.get(kind, OTHERS))]
    random.Random(0).shuffle(cases)
    return cases


def look_at(cases: list[Case], changes: list[Mutant], path: Path, until: float) -> None:
    """Writes for each case its time, its digest, and which changes make a difference in it."""
    numbers = {key_of(change): number for number, change in enumerate(changes)}
    noted = differing()
    rows, bits = [], []
    for case in cases:
        if time.monotonic() > until:
            break
        noted.clear()
        begin = time.process_time()
        told = digest(*case)
        used = time.process_time() - begin
        found = np.zeros(len(changes), dtype=np.bool_)
        found[[numbers[key] for key in noted]] = True
        rows.append([*case, used, told])
        bits.append(np.packbits(found))
    path.write_text(json.dumps(rows), "utf-8")
    np.save(path.with_suffix(".npy"), np.array(bits))


def watched(
    changes: list[Mutant], jobs: int, seconds: float, work: Path
) -> tuple[list[list[Any]], Array]:
    """For as much of the pool as is done in that time: what `look_at` writes, quick cases first,
    and a row of them for each change."""
    cases, until = pool(), time.monotonic() + seconds
    paths = [work / f"{job}.pool" for job in range(jobs)]

    def all_watched() -> None:
        watch_changes(changes)
        forget()
        each = (lambda j=j: look_at(cases[j::jobs], changes, paths[j], until) for j in range(jobs))
        fork_each(each, lambda *_: None, jobs)

    fork_each(iter([all_watched]), lambda *_: None)
    rows = [row for path in paths for row in json.loads(path.read_text("utf-8"))]
    packed = np.concatenate([np.load(path.with_suffix(".npy")) for path in paths])
    order = [n for n in np.argsort([row[2] for row in rows]) if rows[n][2] < SLOW]
    differs = np.unpackbits(packed[order], axis=1, count=len(changes)).astype(np.bool_)
    return [rows[number] for number in order], np.ascontiguousarray(differs.T)


def try_change(change: Mutant, cases: list[tuple[Case, str]], note: Path) -> None:
    """Ends the process: says whether something else is said of a case, and writes of which."""
    Path("/proc/self/oom_score_adj").write_text("1000")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    if not apply_change(change):
        os._exit(GONE)
    forget()
    for case, told in cases:
        used = time.process_time()
        if used > TRIED_SECONDS:
            os._exit(SAME)
        # A case that takes this much longer is in a loop: the change is noticed.
        limit = int(used + 10)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
        signal.alarm(60)
        note.write_text(json.dumps(case), "utf-8")
        try:
            same = digest(*case) == told
        except Exception:
            same = False
        if not same:
            os._exit(NOTICED)
    os._exit(SAME)


def look(changes: list[Mutant], log: Path, jobs: int, looking: float, until: float) -> None:
    """Looks for a case for each change, and writes a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows, differs = watched(changes, jobs, looking, work)
        print(f"{len(rows)} cases, {sum(r[2] for r in rows):.0f} s", flush=True)
        places = {(row[0], row[1]): number for number, row in enumerate(rows)}
        known = read_rows(log)
        done = {key_of(row) for row in known}
        chosen = Counter(places.get(tuple(row["case"]), 0) for row in known if row.get("case"))
        todo = [n for n, change in enumerate(changes) if key_of(change) not in done]

        def candidates(number: int) -> list[tuple[Case, str]]:
            again = [n for n, _ in chosen.most_common() if differs[number, n]]
            others = np.flatnonzero(differs[number])[:MOST_TRIED].tolist()
            each = (rows[n] for n in dict.fromkeys([*again, *others]))
            return [((kind, seed), told) for kind, seed, _, told in each]

        def works() -> Iterator[Callable[[], None]]:
            for number in todo:
                if time.monotonic() > until:
                    return
                given, note = candidates(number), work / str(number)
                yield lambda c=changes[number], g=given, n=note: try_change(c, g, n)

        def ended(place: int, status: int) -> None:
            number = todo[place]
            result = {SAME << 8: "survived", GONE << 8: "gone"}.get(status, "killed")
            if not (work / str(number)).exists() and result == "killed":
                result = "gone"
            row = changes[number] | {"result": result, "cases": int(differs[number].sum())}
            if result == "killed":
                row["case"] = json.loads((work / str(number)).read_text("utf-8"))
                chosen[places[tuple(row["case"])]] += 1
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            if place % 200 == 0:
                print(f"{place} of {len(todo)}, {len(chosen)} cases", flush=True)

        forget()
        fork_each(works(), ended, jobs)


def write(rows: list[Mutant]) -> None:
    """Puts the chosen cases into the file of digests, in parts, as they are said now."""
    seeds: dict[str, set[int]] = {kind: set() for kind in SAID}
    for row in rows:
        if row.get("case"):
            seeds[row["case"][0]].add(row["case"][1])
    lines = []
    for kind, chosen in seeds.items():
        ordered = sorted(chosen)
        for first in range(0, len(ordered), PART):
            told = [f"{seed} {digest(kind, seed)}" for seed in ordered[first : first + PART]]
            lines.append(f"{json.dumps(f'{kind} {first // PART}')}: {json.dumps(told)}")
        print(kind, len(ordered))
    FILE.write_text("{\n" + ",\n".join(sorted(lines)) + "\n}\n", "utf-8")


def main() -> None:
    """Runs one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("look", "write"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--looking", type=float, default=1e9, help="seconds for the pool")
    parser.add_argument("--seconds", type=float, default=1e9, help="try no change after this")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    if options.command == "write":
        write(read_rows(options.file))
    else:
        until = time.monotonic() + options.seconds
        changes = draw(options.count, options.seed)
        look(changes, options.output, options.jobs, options.looking, until)


if __name__ == "__main__":
    main()
