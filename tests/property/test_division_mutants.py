"""The proof of divided programs: no change is accepted, and no cut that changes a result."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.division import Cut, Division, Twin, parts_of
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_plan
from tessera.passes.checker.division import check_division
from tessera.passes.checker.findings import Findings
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.divided_plans import divided_plan, launch, program_of
from tests.helpers.random_divisions import random_division
from tests.helpers.random_traces import random_program
from tests.helpers.served import graph_of
from tests.helpers.share import least, share
from tests.property.test_plan_file_edits import changes, harm


def is_refused(divided: ir.Program, division: Division, graph: KernelGraph) -> bool:
    findings = Findings()
    check_division(divided, graph, division, findings)
    return findings.count > 0


def other_steps(step: ir.Work) -> Iterator[ir.Work]:
    """Each with one change."""
    match step:
        case ir.Launch():
            for axis in range(3):
                grid = list(step.grid)
                grid[axis] += 1
                yield replace(step, grid=tuple(grid))
            yield replace(step, arguments=step.arguments[::-1])
            yield replace(step, stream="other")
            yield replace(step, shared_bytes=step.shared_bytes + 4)
            first, extent = (0, 9) if step.ctas is None else (step.ctas.first, step.ctas.extent)
            axis = 0 if step.ctas is None else step.ctas.axis
            yield replace(step, ctas=ir.CtaRange(axis, first + 1, extent))
            yield replace(step, ctas=ir.CtaRange(axis, first, extent + 1))
            yield replace(step, ctas=ir.CtaRange((axis + 1) % 3, first, extent))
            if step.ctas is not None:
                yield replace(step, ctas=None)
        case ir.Memset() | ir.Memcpy():
            target = replace(step.target, offset=step.target.offset + 1)
            yield replace(step, target=target)
            yield replace(step, bytes=step.bytes + 1)
            if isinstance(step, ir.Memset):
                yield replace(step, value=step.value + 1)
            else:
                yield replace(step, source=target)
        case ir.LibraryCall():
            yield replace(step, reads=step.reads[::-1], writes=step.writes[:0])
            shape = (*step.writes[0].shape[:-1], step.writes[0].shape[-1] + 1)
            yield replace(step, writes=(replace(step.writes[0], shape=shape), *step.writes[1:]))
    yield replace(step, id=ir.LaunchId(step.id + 1))


def other_programs(divided: ir.Program) -> Iterator[ir.Program]:
    """Steps changed, left out, doubled and exchanged; other twins."""
    for at, step in enumerate(divided.steps):
        before, after = divided.steps[:at], divided.steps[at + 1 :]
        yield replace(divided, steps=(*before, *after))
        yield replace(divided, steps=(*before, step, step, *after))
        if after and replace(after[0], id=step.id) != step:
            yield replace(divided, steps=(*before, after[0], step, *after[1:]))
        for other in other_steps(step):
            yield replace(divided, steps=(*before, other, *after))
    for at, twins in enumerate(divided.twins):
        rest = (*divided.twins[:at], *divided.twins[at + 1 :])
        yield replace(divided, twins=rest)
        yield replace(divided, twins=(*rest, twins[:-1]))
    yield replace(divided, twins=(*divided.twins, (ir.LaunchId(0), ir.LaunchId(1))))
    yield replace(divided, whole=None)
    yield replace(divided, whole=divided)


def other_divisions(division: Division) -> Iterator[Division]:
    """Records changed, left out and doubled."""
    for at, cut in enumerate(division.cuts):
        before, after = division.cuts[:at], division.cuts[at + 1 :]
        others: list[tuple[Cut, ...]] = [(), (cut, cut)]
        for place in range(len(cut.edges)):
            for step in (-1, 1):
                edges = list(cut.edges)
                edges[place] += step
                others.append((replace(cut, edges=tuple(edges)),))
        others += [(replace(cut, axis=axis),) for axis in ("x", "y", "bytes") if axis != cut.axis]
        others += [(replace(cut, step=cut.step + 1),), (replace(cut, arch="sm_1"),)]
        for other in others:
            yield Division((*before, *other, *after), division.twins)
    for at, twin in enumerate(division.twins):
        before, after = division.twins[:at], division.twins[at + 1 :]
        for others in ((), (twin, twin), (Twin(twin.step, twin.count + 1),), (Twin(99, 2),)):
            yield Division(division.cuts, (*before, *others, *after))


def test_every_change_of_a_divided_program_is_refused() -> None:
    count = 0
    for seed in range(10):
        rng = random.Random(seed)
        program = random_program(seed, ctas=4, races=False, wide=seed % 2 == 1)
        division = random_division(AnalysisManager(program), rng, 3)
        if not division:
            continue
        divided = divide(program, division)
        graph = graph_of(divided)
        assert not is_refused(divided, division, graph)
        others = [(other, division) for other in other_programs(divided)]
        others += [(divided, other) for other in other_divisions(division)]
        for other, records in share(rng.sample(others, min(len(others), 60))):
            assert is_refused(other, records, graph), (other.steps, records)
            count += 1
    assert count > least(400, 45)


def in_any_order(divided: ir.Program, division: Division, rng: random.Random) -> ir.Program:
    """The parts of each step exchanged."""
    parts = parts_of(len(divided.whole.steps), division)
    order = sorted(parts, key=lambda part: (part.origin, rng.random()))
    return replace(divided, steps=tuple(divided.steps[part.step] for part in order))


def left_by(program: ir.Program) -> dict[str, bytes]:
    rng = np.random.default_rng(1)
    contents = {b.name: rng.integers(0, 256, b.bytes).astype(np.uint8) for b in program.buffers}
    return {name: value.tobytes() for name, value in run_program(program, contents).buffers.items()}


def test_any_cut_is_refused_or_leaves_the_same_bytes_in_any_order() -> None:
    verdicts = {True: 0, False: 0}
    for seed in share(range(30)):
        rng = random.Random(seed)
        program = random_program(seed, ctas=4, races=True, wide=seed % 2 == 1)
        cuts = [
            Cut(
                step=launch.id,
                axis="x",
                edges=(0, rng.randrange(1, launch.grid[0]), launch.grid[0]),
            )
            for launch in program.launches()
            if launch.grid[0] > 1 and rng.random() < 0.4
        ]
        if not cuts:
            continue
        division = Division(tuple(cuts))
        divided = divide(program, division)
        refused = is_refused(divided, division, graph_of(divided))
        verdicts[refused] += 1
        if not refused:
            ordered = with_part_kernels(in_any_order(divided, division, rng))
            assert left_by(ordered) == left_by(program), seed
    assert min(verdicts.values()) > least(5, 0), verdicts


MEMSET = "memset s bytes=128 value=0x07"


def test_every_edit_of_a_plan_with_parts_is_refused_or_makes_no_difference() -> None:
    steps = [
        launch("plain", "h", "x"),
        MEMSET,
        launch("plain", "s", "h"),
        launch("plain", "y", "s"),
    ]
    program = program_of(*steps)
    cuts = (
        Cut(step=0, axis="x", edges=(0, 3, 8)),
        Cut(step=1, axis="bytes", edges=(0, 32, 128)),
        Cut(step=3, axis="x", edges=(0, 2, 5, 8)),
    )
    made, _, _ = divided_plan(program, Division(cuts, (Twin(2, 2),)), "abbaabaab")
    text = print_plan(made)
    assert made == parse_plan(text)
    graphs: dict[Division, KernelGraph] = {}
    verdicts: Counter[str] = Counter()
    rng = random.Random(1)
    records = [line for line in text.splitlines() if line.startswith(("  cut ", "  twin "))]
    edits = [edit for edit in changes(text, rng) if edit != text]
    of_records = [edit for edit in edits if not all(line in edit.splitlines() for line in records)]
    for edited in rng.sample(edits, 50) + of_records:
        try:
            plan = parse_plan(edited)
            division = plan.traces[0].division
            divided = divide(program, division)
        except TesseraError:
            verdicts["refused"] += 1
            continue
        if division not in graphs:
            graphs[division] = graph_of(divided)
        graph = graphs[division]
        if check_plan(plan, [divided], [graph]):
            verdicts["refused"] += 1
        else:
            verdicts["accepted"] += 1
            assert harm(plan.replicas[0].lowered, (divided,), (graph,)) == "", edited
    assert verdicts["refused"] > 60
    assert verdicts["accepted"] > 0
