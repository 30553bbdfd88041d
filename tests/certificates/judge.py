"""Which changes of the analysis make the checker of certificates refuse?

In: launches that are proved, and changes of `tests/sabotage.py` in footprints and lane values:
those that no test notices (`alive` in `survivors.txt`; all that have such a name, where it is not
known which) and a sample of those that tests notice. With each, the regions of the launches are
asked for: as they are, and once more in pieces of the grid, which small grids do not need.
"""

from __future__ import annotations

import os
import random
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.program import program as ir
from tessera.passes.dependences.access_regions import AccessWalk
from tessera.passes.footprint import footprint
from tests import sabotage
from tests.certificates import checker, trial
from tests.certificates.producer import access_record
from tests.certificates.ptx_reader import Refused
from tests.helpers import code_changes

PACKAGES = ("footprint", "lane_values")
_RECORDED = sabotage.ROOT / "benchmarks" / "results" / "sabotage.jsonl"
_SECONDS = 120
Proven = list[tuple[ir.Program, list[tuple[ir.Launch, list[checker.Proof]]]]]


def proven(paths: list[Path]) -> Proven:
    """Launches with what they touch, as the checker has proved it."""
    found: Proven = []
    seen: set[object] = set()
    for path in paths:
        proofs = trial.prove(path)
        program = read_trace(path)
        launches = [work for work in program.work() if isinstance(work, ir.Launch)]
        kept = []
        for place in proofs.made:
            variants = proofs.launches[place]
            key = tuple((v.text, v.kernel, v.grid, v.block) for v in variants.values())
            if key in seen:
                continue
            seen.add(key)
            mine = [proofs.proved[place, arch] for arch in variants]
            kept.append((launches[place], mine))
        found.append((program, kept))
    return found


@contextmanager
def _in_pieces() -> Iterator[None]:
    find = footprint.find_footprint
    footprint.find_footprint = partial(find, few_threads=0)  # type: ignore[assignment]
    try:
        yield
    finally:
        footprint.find_footprint = find


def refusals(given: Proven) -> Iterator[str]:
    """Why the checker refuses regions, for each launch that it refuses."""
    for program, launches in given:
        walk = AccessWalk(program, None)
        for launch, proofs in launches:
            step = walk.launch_accesses(launch)
            if step.pins:
                continue
            accesses = [access_record(program, access) for access in step.accesses]
            try:
                for proof in proofs:
                    proof.compare(accesses)
            except Refused as refused:
                yield f"{step.name}: {refused}"


def answer(given: Proven) -> str:
    """The first refusal, or what went wrong; empty if all is accepted."""
    try:
        why = next(refusals(given), "")
        if not why:
            with _in_pieces():
                why = next(refusals(given), "")
    except Exception as error:
        return f"crash: {type(error).__name__}"
    return f"refused: {why}" if why else ""


def judge(change: dict[str, Any], given: Proven) -> str:
    """What happens with a change, in a child."""
    used = int(sum(os.times()[:2]))
    with tempfile.NamedTemporaryFile("r") as file:
        if not (child := os.fork()):
            resource.setrlimit(resource.RLIMIT_CPU, (used + _SECONDS, used + _SECONDS))
            code_changes.apply_change(change)
            sabotage.forget()
            Path(file.name).write_text(answer(given) or "accepted")
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        return file.read() if not status else "crash: no end"


def changes(sample: int, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    known, rows = sabotage.reasons(), sabotage.read_rows(_RECORDED)
    every = [change for package in PACKAGES for change in code_changes.mutants(package)]
    exact = {sabotage.key_of(row) for row in rows if row["result"] == "survived"}
    for change in every:
        name = sabotage.name_of(change)
        if known.get(name, ("", ""))[0] == "alive":
            alike = {sabotage.key_of(one) for one in every if sabotage.name_of(one) == name}
            if sabotage.key_of(change) in (alike & exact or alike):
                yield "noticed by no test", change
    noticed = {sabotage.name_of(row) for row in rows if row["result"] == "killed"}
    again = [change for change in every if sabotage.name_of(change) in noticed]
    for change in random.Random(seed).sample(again, min(sample, len(again))):
        yield "noticed by tests", change
