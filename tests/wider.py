"""Does a change of the analysis only ever make it say more? Measured, for survivors of sabotage.

`python -m tests.wider -o RESULTS` tries the changes of `tests/sabotage.py` that `survivors.txt`
calls wider. It analyses the example traces (the captured models, the zoo, among them), the kernel
cases and generated kernels once as the code is, and notes for which of them each change makes a
difference (`tests/helpers/code_changes.py`); these are analysed again with the change. It passes if
no read or written byte leaves the regions, no further byte is surely written, no pin goes, and
every edge that goes has a path in its place. Of lowering, random plans are made with the change
instead, and the judge of plans, which shares no code with it, has to prove all of them. What it
finds is written as soon as it is there; a second run goes on where the first ended.
`python -m tests.sabotage show` counts what passed, and made a difference for one at least, as
accepted.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.checker.check_plan import check_replica
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tests import sabotage
from tests.helpers import code_changes
from tests.helpers.case_program import case_program
from tests.helpers.generated_works import KINDS
from tests.helpers.plan_changes import crowded_plan, random_plan
from tests.kernels.cases import CASES
from tests.kernels.layers import LAYERS

ANALYSIS = ("kernel_facts", "lane_values", "footprint", "dependences", "byte_sets")
PLANS = {"random": random_plan, "crowded": crowded_plan}
Said = tuple[dict[tuple[int, int, str], Any], set[tuple[int, int]], set[int]]


def programs(kernels: int) -> Iterator[tuple[str, Callable[[], Program]]]:
    """What makes them: generated ones first, as many of each kind."""
    for number in range(kernels):
        kind, seed = [*KINDS][number % len(KINDS)], number // len(KINDS)
        yield f"{kind} {seed}", partial(_generated, kind, seed)
    for case in (*CASES, *LAYERS):
        yield case.name, partial(_made, case)
    for path in sorted((sabotage.ROOT / "examples/traces").glob("*.ptx")):
        yield path.name, partial(read_trace, path)


def _generated(kind: str, seed: int) -> Program:
    return KINDS[kind](seed)[0]


def _made(case: Any) -> Program:
    return case_program(case, case.make())


def said(program: Program) -> Said:
    """The bytes of each step, buffer and kind of access; the edges; and the steps with pins."""
    manager = AnalysisManager(program)
    parts: dict[tuple[int, int, str], list[Any]] = defaultdict(list)
    steps = manager.get(AccessRegions).steps
    for number, step in enumerate(steps):
        for access in step.accesses:
            ranges = region_bytes(access.region, program.buffers[access.buffer].bytes)
            kinds = [
                k
                for k, is_so in (("read", access.kind.reads), ("may", access.kind.writes))
                if is_so
            ]
            if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
                kinds.append("must")
            for kind in kinds:
                parts[number, int(access.buffer), kind].append(ranges)
    edges = {
        (int(e.source), int(e.target))
        for e in manager.get(Dependences).graph.edges
        if not e.carried
    }
    pins = {number for number, step in enumerate(steps) if step.pins}
    return {key: intervals.union(ranges) for key, ranges in parts.items()}, edges, pins


def less(before: Said, after: Said) -> str:
    """What the second says less, or the first less surely; empty if nothing."""
    for key in before[0].keys() | after[0].keys():
        old, new = (given[0].get(key, intervals.EMPTY) for given in (before, after))
        wide, narrow = (new, old) if key[2] != "must" else (old, new)
        if key[0] not in after[2] and not intervals.covers(wide, narrow):
            return f"step {key[0]}, buffer {key[1]}, {key[2]}"
    if gone := before[2] - after[2]:
        return f"pins of steps {sorted(gone)}"
    following = defaultdict(set)
    for source, target in after[1]:
        following[source].add(target)
    for source, target in sorted(before[1] - after[1]):
        reached, pending = set[int](), [source]
        while pending:
            more = following[pending.pop()] - reached
            reached |= more
            pending += more
        if target not in reached:
            return f"the edge from step {source} to step {target}"
    return ""


Found = dict[str, tuple[Any, set[tuple[object, ...]]]]


Made = tuple[str, Callable[[], Any]]


def _watched(todo: list[dict[str, Any]], made: list[Made], folder: Path, jobs: int) -> Found:
    """What is found of each program or plan, and the changes that make a difference to it."""

    def watch(part: int) -> None:
        code_changes.watch_changes(todo)
        noted, found = code_changes.differing(), {}
        for name, make in made[part::jobs]:
            sabotage.forget()
            noted.clear()
            found[name] = make(), {*noted}
        (folder / str(part)).write_bytes(pickle.dumps(found))

    _all_of((partial(watch, part) for part in range(jobs)), jobs)
    found: Found = {}
    for part in range(jobs):
        found |= pickle.loads((folder / str(part)).read_bytes())
    return found


def _all_of(works: Iterator[Callable[[], None]], jobs: int) -> None:
    def ended(_number: int, status: int) -> None:
        if status:
            raise SystemExit("this program has a fault, see above")

    sabotage.fork_each(works, ended, jobs)


def _try_plans(change: dict[str, Any], found: Found, output: Path) -> None:
    def tried(name: str) -> tuple[str, bool]:
        kind, seed = name.split()
        case, replica = PLANS[kind](int(seed))
        refused = check_replica(replica, case.programs, case.graphs, case.placements)
        return " ".join(one.code for one in refused), replica != found[name][0]

    _note(change, found, tried, output)


def _try(
    change: dict[str, Any], given: dict[str, Callable[[], Program]], found: Found, output: Path
) -> None:
    def tried(name: str) -> tuple[str, bool]:
        sabotage.forget()
        after = said(given[name]())
        return less(found[name][0], after), bool(less(after, found[name][0]))

    _note(change, found, tried, output)


def _note(
    change: dict[str, Any], found: Found, tried: Callable[[str], tuple[str, bool]], output: Path
) -> None:
    """Makes a change, and writes what is less then, or for how many there is more."""
    code_changes.apply_change(change)
    differ = [name for name, (_, keys) in found.items() if code_changes.key_of(change) in keys]
    row = {name: change[name] for name in ("path", "source", "site", "how", "function", "text")}
    row |= {"programs": len(found), "differ": len(differ), "wider": 0, "less": ""}
    for name in differ:
        try:
            why, is_more = tried(name)
        except Exception as error:
            why, is_more = type(error).__name__, False
        row["wider"] += is_more
        if why:
            row["less"] = f"{name}: {why}"
            break
    with output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--plans", type=int, default=1000, help="of each of two kinds")
    parser.add_argument("--verdict", default="wider")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.environ["TESSERA_NO_CACHE"] = "1"
    known = sabotage.reasons()
    done = {code_changes.key_of(row) for row in sabotage.read_rows(options.output)}

    def changes(*packages: str) -> list[dict[str, Any]]:
        return [
            change
            for name in packages
            for change in code_changes.mutants(name)
            if known.get(code_changes.name_of(change), ("", ""))[0] == options.verdict
            and code_changes.key_of(change) not in done
        ]

    jobs = options.jobs
    with tempfile.TemporaryDirectory() as folder:
        if todo := changes("lowering"):
            made = [
                (f"{kind} {number}", lambda make=make, number=number: make(number)[1])
                for number in range(options.plans)
                for kind, make in PLANS.items()
            ]
            found = _watched(todo, made, Path(folder), jobs)
            _all_of((partial(_try_plans, change, found, options.output) for change in todo), jobs)
        if todo := changes(*ANALYSIS):
            given = dict(programs(options.kernels))
            made = [(name, lambda make=make: said(make())) for name, make in given.items()]
            found = _watched(todo, made, Path(folder), jobs)
            _all_of((partial(_try, change, given, found, options.output) for change in todo), jobs)


if __name__ == "__main__":
    main()
