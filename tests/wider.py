"""Does a change of the analysis only ever make it say more? Measured, for survivors of sabotage.

`python -m tests.wider -o RESULTS` tries the changes of `tests/sabotage.py` that `survivors.txt`
calls wider. With and without each, it analyses the example traces and generated
kernels that come to the changed statement. A change passes if no read or written byte leaves the
regions, no further byte is surely written, no pin goes, and every edge that goes has a path in its
place. What it finds is written as soon as it is there; a second run goes on where the first ended.
"""

from __future__ import annotations

import argparse
import builtins
import json
import os
import pickle
import time
import traceback
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tessera.frontend.trace.read_trace import parse_trace, read_trace
from tessera.ir.graph.access import AccessKind, Certainty
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.dependences import Dependences
from tests import sabotage
from tests.helpers.pointer_programs import random_kernel
from tests.helpers.rare_programs import RareProgram
from tests.helpers.word_traces import word_trace
from tests.property.grid_strategies import loop_kernel
from tests.property.test_pointer_programs import BUFFERS, trace
from tests.property.test_soundness_generated import program_of

ANALYSIS = ("kernel_facts", "lane_values", "footprint", "dependences", "byte_sets")
Said = tuple[dict[tuple[int, int, str], Any], set[tuple[int, int]], set[int]]


def programs(kernels: int) -> Iterator[tuple[str, Program]]:
    """The generated ones first, since they are quick; a fourth of each kind."""
    for seed in range(-(-kernels // 4)):
        yield f"rare {seed}", program_of(RareProgram(seed).kernel())
        yield f"loop {seed}", program_of(loop_kernel(seed))
        yield f"words {seed}", word_trace(seed)
        text, given = random_kernel(Random(seed), "k", hides=seed % 4 == 3)
        launch = f"//! launch m.k grid=1,1,1 block=32,1,1 args=[{given}]"
        yield f"pointers {seed}", parse_trace(trace(BUFFERS, text, [launch]), "k.ptx")
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


def _watched(given: dict[str, Program], kept: Path) -> None:
    """What is said of each program without a change, and the statements that it comes to."""
    for path in sabotage.sources():
        if any(sabotage.PACKAGES[name] in str(path) for name in ANALYSIS):
            sabotage.probe(path)
    hits = builtins.__dict__["_sabotage_hits"]
    found = {}
    for name, program in given.items():
        sabotage.forget()
        hits.clear()
        begin = time.process_time()
        found[name] = said(program), {*hits}, time.process_time() - begin
    kept.write_bytes(pickle.dumps(found))


def _try(change: dict[str, Any], given: dict[str, Program], found: Any, output: Path) -> None:
    sabotage.apply_change(change)
    path = sabotage.ROOT / change["path"]
    statement = sabotage.statements(change["path"])[change["lines"][0]]
    reached = [name for name in given if (str(path), statement) in found[name][1]]
    row = {name: change[name] for name in ("path", "source", "site", "how", "function", "text")}
    row |= {"programs": len(given), "reached": len(reached), "wider": 0, "less": ""}
    for name in reached:
        sabotage.forget()
        try:
            after = said(given[name])
        except Exception as error:
            row["less"] = f"{name}: {type(error).__name__}"
            break
        if why := less(found[name][0], after):
            row["less"] = f"{name}: {why}"
            break
        row["wider"] += bool(less(after, found[name][0]))
    with output.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--verdict", default="wider")
    options = parser.parse_args()
    os.environ["TESSERA_NO_CACHE"] = "1"
    known = sabotage.reasons()
    done = {sabotage.key_of(row) for row in sabotage.read_rows(options.output)}
    todo = [
        change
        for name in ANALYSIS
        for change in sabotage.mutants(name)
        if known.get(sabotage.name_of(change), ("", ""))[0] == options.verdict
        and sabotage.key_of(change) not in done
    ]
    given = dict(programs(options.kernels))
    kept = options.output.with_suffix(".pickle")
    _in_child(lambda: _watched(given, kept))
    found = pickle.loads(kept.read_bytes())
    print(
        f"{len(todo)} changes, {len(given)} programs, {sum(f[2] for f in found.values()):.0f} s",
        flush=True,
    )
    for change in todo:
        _in_child(lambda c=change: _try(c, given, found, options.output))
    kept.unlink()


if __name__ == "__main__":
    main()
