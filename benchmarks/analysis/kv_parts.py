"""How much of a KV cache exactly one of two parts of a launch touches.

    python -m benchmarks.analysis.kv_parts TRACE.ptx ... [--json FILE]

Every launch that reads or writes a state is cut in two along each axis of its grid, in the middle.
A cut counts if no byte may be written by both parts, and none that one may write is read by the
other. Of such cuts the one that keeps the most apart is shown, with the bytes of states that the
launch may touch and those that exactly one part may touch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from tessera.driver.load import load
from tessera.ir.arrays import Ranges
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses

Touched = dict[int, Ranges]


@dataclass(frozen=True, slots=True)
class KeptApart:
    """One launch, cut in two along an axis ("" if no cut is legal): bytes of states."""

    kernel: str
    writes: bool
    axis: str
    touched: int
    alone: int


def part(launch: ir.Launch, axis: int, first: int, end: int) -> ir.Launch:
    """A range of the CTAs of a launch."""
    x, y, z = (end - first if at == axis else size for at, size in enumerate(launch.grid))
    return replace(launch, grid=(x, y, z), ctas=ir.CtaRange(axis, first, launch.grid[axis]))


def _bytes(program: ir.Program, step: StepAccesses, *, writes: bool) -> Touched:
    found: dict[int, list] = {}
    for access in step.accesses:
        if access.kind.writes if writes else access.kind.reads:
            found.setdefault(int(access.buffer), []).append(access.region)
    return {b: regions_bytes(given, program.buffers[b].bytes) for b, given in found.items()}


def _meet(left: Touched, right: Touched) -> bool:
    shared = left.keys() & right.keys()
    return any(intervals.size(intervals.intersect(left[b], right[b])) for b in shared)


def _both(reads: Touched, writes: Touched) -> Touched:
    return {
        b: intervals.union([given[b] for given in (reads, writes) if b in given])
        for b in reads.keys() | writes.keys()
    }


def kept_apart(program: ir.Program, least: int = 0) -> Iterator[KeptApart]:
    """Every launch that touches at least so many bytes of states; equal launches each."""
    steps = AnalysisManager(program).get(AccessRegions).steps
    states = {int(b.id) for b in program.buffers if b.role is ir.Role.STATE and b.bytes > 64}
    for launch, step in zip(program.work(), steps, strict=True):
        if not isinstance(launch, ir.Launch):
            continue
        touched = _both(_bytes(program, step, writes=False), _bytes(program, step, writes=True))
        total = sum(intervals.size(touched[b]) for b in states & touched.keys())
        if total <= least:
            continue
        writes = any(b in states for b in _bytes(program, step, writes=True))
        best = KeptApart(step.name, writes, "", total, 0)
        for axis in range(3):
            if launch.grid[axis] < 2:
                continue
            edges = (0, launch.grid[axis] // 2, launch.grid[axis])
            halves = tuple(
                replace(part(launch, axis, *pair), id=ir.LaunchId(at))
                for at, pair in enumerate(pairwise(edges))
            )
            found = AnalysisManager(replace(program, steps=halves)).get(AccessRegions).steps
            reads = [_bytes(program, half, writes=False) for half in found]
            wrote = [_bytes(program, half, writes=True) for half in found]
            if any(half.pins for half in found) or _meet(wrote[0], wrote[1]):
                continue
            if _meet(wrote[0], reads[1]) or _meet(wrote[1], reads[0]):
                continue
            one, other = (_both(r, w) for r, w in zip(reads, wrote, strict=True))
            both = alone = 0
            for b in sorted(states & (one.keys() | other.keys())):
                mine, theirs = one.get(b, intervals.EMPTY), other.get(b, intervals.EMPTY)
                shared = intervals.size(intervals.intersect(mine, theirs))
                alone += intervals.size(mine) + intervals.size(theirs) - 2 * shared
                both += shared
            if not best.axis or alone > best.alone:
                best = KeptApart(step.name, writes, "xyz"[axis], both + alone, alone)
        yield best


def one_arch(program: ir.Program, arch: str) -> ir.Program:
    """The program with the code for one architecture."""
    modules = tuple(
        replace(m, variants=(m.variant(arch) or m.variants[-1],)) for m in program.modules
    )
    steps = tuple(
        ir.for_arch(s, modules[s.module].variants[0].arch) if isinstance(s, ir.Launch) else s
        for s in program.steps
    )
    return replace(program, modules=modules, steps=steps)


def main() -> None:
    """Print a table, and write it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--arch", default="sm_80")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows: dict[str, list] = {}
    for path in given.traces:
        program = one_arch(load(path), given.arch)
        found = list(kept_apart(program))
        rows[path.stem] = [[r.kernel, r.writes, r.axis, r.touched, r.alone] for r in found]
        for writes in (False, True):
            some = [row for row in found if row.writes is writes]
            touched, alone = sum(r.touched for r in some), sum(r.alone for r in some)
            share = f"{alone / touched:7.2%}" if touched else "      -"
            word = "write" if writes else "read"
            sys.stdout.write(
                f"{path.stem:28} {word:5} {len(some):4} launches {touched:12} {share}\n"
            )
            for row in dict.fromkeys(some):
                sys.stdout.write(
                    f"    {row.kernel[:60]:60} {row.axis or '-':1} {row.alone}/{row.touched}\n"
                )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
