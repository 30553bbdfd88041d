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
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
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


def programs(kernels: int) -> Iterator[tuple[str, Program]]:
    """Generated ones first, since they are quick, as many of each kind."""
    for number in range(kernels):
        kind, seed = [*KINDS][number % len(KINDS)], number // len(KINDS)
        yield f"{kind} {seed}", KINDS[kind](seed)[0]
    for case in (*CASES, *LAYERS):
        yield case.name, case_program(case, case.make())
    for path in sorted((sabotage.ROOT / "examples/traces").glob("*.ptx")):
        yield path.name, read_trace(path)


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


def _in_child(work: Any) -> None:
    if not (child := os.fork()):
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise SystemExit("this program has a fault, see above")


Found = dict[str, tuple[Any, set[tuple[object, ...]]]]


def _watch_plans(todo: list[dict[str, Any]], plans: int, kept: Path) -> None:
    """Each plan, and the changes that make a difference to it."""
    code_changes.watch_changes(todo)
    noted, found = code_changes.differing(), {}
    for number in range(plans):
        for kind, make in PLANS.items():
            noted.clear()
            found[f"{kind} {number}"] = make(number)[1], {*noted}
    kept.write_bytes(pickle.dumps(found))


def _try_plans(change: dict[str, Any], found: Found, output: Path) -> None:
    def tried(name: str) -> tuple[str, bool]:
        kind, seed = name.split()
        case, replica = PLANS[kind](int(seed))
        refused = check_replica(replica, case.programs, case.graphs, case.placements)
        return " ".join(one.code for one in refused), replica != found[name][0]

    _note(change, found, tried, output)


def _watch(todo: list[dict[str, Any]], kernels: int, kept: Path) -> None:
    """What is said of each program, and the changes that make a difference there."""
    code_changes.watch_changes(todo)
    noted, found = code_changes.differing(), {}
    for name, program in programs(kernels):
        sabotage.forget()
        noted.clear()
        found[name] = said(program), {*noted}
    kept.write_bytes(pickle.dumps(found))


def _try(change: dict[str, Any], given: dict[str, Program], found: Found, output: Path) -> None:
    def tried(name: str) -> tuple[str, bool]:
        sabotage.forget()
        after = said(given[name])
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

    kept = options.output.with_suffix(".pickle")
    if todo := changes("lowering"):
        _in_child(lambda: _watch_plans(todo, options.plans, kept))
        plans = pickle.loads(kept.read_bytes())
        for change in todo:
            _in_child(lambda c=change: _try_plans(c, plans, options.output))
    if todo := changes(*ANALYSIS):
        _in_child(lambda: _watch(todo, options.kernels, kept))
        found = pickle.loads(kept.read_bytes())
        given = dict(programs(options.kernels))
        for change in todo:
            _in_child(lambda c=change: _try(c, given, found, options.output))
    kept.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
