"""The results that PyTorch computed when a trace was captured, compared with a run of its plan.

In: the outcome of a run and what it started from. Out: a note per trace that names contents. The
recorded results are in the file beside the contents (`NAME.ref.npz` for `NAME.npz`, also if
`--data` names them). A result outside the tolerance of its type raises TSR5054 with exit code 5.
Only a request that starts from the recorded inputs and states can be compared: the first of its
sequence, without `--inputs` or another seed. Bytes of an output that no step writes (the gaps of a
view) are arbitrary, and are not compared.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from tessera.backend.service import Bytes
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.run.data_files import data_files
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.schedule import Turn, first_sequences
from tessera.driver.run.tolerance import (
    Approximations,
    Distance,
    approximations,
    distance,
    near_ties,
)
from tessera.frontend.contents.open_contents import open_contents_file
from tessera.frontend.machine.quantities import format_bytes
from tessera.frontend.text.plain_files import is_plain
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import Buffer, Program, Role
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes


def check_recorded(prepared: Prepared) -> None:
    """Refuse unusable files of recorded results, before anything runs."""
    programs = prepared.opened.programs if _starts_as_recorded(prepared) else ()
    for trace, program in enumerate(programs):
        path = _file_of(trace, prepared)
        if path is not None:
            open_contents_file(program, path, root=prepared.options.data_root).close()


def compare_recorded(outcome: Outcome, prepared: Prepared) -> tuple[str, ...]:
    """A note per trace that names contents: what was compared, or why nothing was compared."""
    notes = []
    for trace, program in enumerate(prepared.opened.programs):
        contents = _contents_of(trace, prepared)
        if contents is None:
            continue
        path = _file_of(trace, prepared)
        turn = next(
            (earlier for earlier in outcome.turns if _is_recorded(earlier, trace, prepared)), None
        )
        if path is None:
            name = os.path.basename(_recording_of(contents))
            notes.append(f"not compared with PyTorch: there is no `{name}`")
        elif not _starts_as_recorded(prepared) or turn is None:
            notes.append("not compared with PyTorch: the run starts from other contents")
        elif turn.request in outcome.done:
            results = dict(outcome.done[turn.request].outputs)
            if outcome.states is not None and _is_alone(turn, outcome):
                results |= outcome.states[turn.sequence]
            graph = prepared.opened.graphs[trace]
            recording = partial(_recorded, program, path, prepared.options.data_root)
            notes.append(_compare(program, graph, path, recording, results, turn.request))
    return tuple(notes)


def files_of(prepared: Prepared) -> Iterator[str]:
    """The files of contents, and the files of recorded results beside them."""
    names = [trace.name for trace in prepared.opened.plan.traces]
    yield from (file.path for file in data_files(prepared.options.data, names))
    for trace in range(len(names)):
        contents = _contents_of(trace, prepared)
        if contents is not None:
            yield from (contents, _recording_of(contents))


def _starts_as_recorded(prepared: Prepared) -> bool:
    options = prepared.options
    return options.inputs is None and not options.seed


def _contents_of(trace: int, prepared: Prepared) -> str | None:
    """The file of contents of a trace: the user's, or a plain file in the trace's folder."""
    opened = prepared.opened
    files = data_files(prepared.options.data, [planned.name for planned in opened.plan.traces])
    if files:
        shared = None if len(opened.programs) == 1 else trace
        own = [file.path for file in files if file.trace in (trace, shared)]
        return os.path.abspath(own[0]) if len(own) == 1 else None
    name = opened.programs[trace].resident
    if name is None or os.path.basename(name) != name:
        return None
    return os.path.join(opened.folders[trace], name)


def _recording_of(contents: str) -> str:
    stem, ending = os.path.splitext(contents)
    return f"{stem}.ref{ending}"


def _file_of(trace: int, prepared: Prepared) -> str | None:
    """The recorded results, if there are any."""
    contents = _contents_of(trace, prepared)
    path = None if contents is None else _recording_of(contents)
    return path if path and is_plain(path, prepared.options.data_root) else None


def _is_recorded(turn: Turn, trace: int, prepared: Prepared) -> bool:
    """Whether a request starts from the inputs and states that the trace was captured with."""
    if turn.trace != trace or any(
        earlier.sequence == turn.sequence and earlier.request < turn.request
        for earlier in prepared.turns
    ):
        return False
    if turn.sequence not in first_sequences(prepared.turns):
        return False  # the sequence has states of its own
    recorded = prepared.materials.first_inputs[trace]
    given = prepared.materials.inputs(turn.request, turn.trace, turn.turn)
    return all(np.array_equal(given[name], content) for name, content in recorded.items())


def _is_alone(turn: Turn, outcome: Outcome) -> bool:
    """Whether the final states of its sequence are those that this request left."""
    return all(other.sequence != turn.sequence or other == turn for other in outcome.turns)


def _compare(
    program: Program,
    graph: KernelGraph,
    path: str,
    recording: Callable[[], Iterator[tuple[Buffer, Bytes]]],
    results: Mapping[str, Bytes],
    request: int,
) -> str:
    name = os.path.basename(path)
    compared, worst = 0, None
    steps = None
    missing = [output.name for output in program.buffers if output.role is Role.OUTPUT]
    orders: list[str] = []
    for buffer, recorded in recording():
        if buffer.name in missing:
            missing.remove(buffer.name)
        if buffer.name not in results:
            continue
        recorded, count = _touched(graph, buffer, recorded, results[buffer.name])
        compared += count
        if np.array_equal(recorded, results[buffer.name]):
            continue
        steps = steps or approximations(program)
        apart = distance(buffer.dtype, recorded, results[buffer.name], steps.widened)
        if not apart.is_within:
            ties = near_ties(buffer, recorded, results[buffer.name], recording(), steps.widened)
            if ties is not None:
                orders.append(ties.text(buffer.name))
                continue
            raise TesseraError(_differs(request, buffer, name, apart, steps), ExitCode.MISMATCH)
        if worst is None or apart.error > worst[1].error:
            worst = buffer, apart
    if not compared:
        return f"not compared with PyTorch: `{name}` has no result of this run"
    size = format_bytes(compared)
    if missing:
        size += f", without {', '.join(f'`{name_missing}`' for name_missing in missing[:3])}"
    if steps is None:
        return f"request {request} equals what PyTorch recorded to the byte ({name}, {size})"
    details = orders if worst is None else [f"`{worst[0].name}`, {worst[1].text()}", *orders]
    return (
        f"request {request} is what PyTorch recorded within the tolerance of each type ({name}, "
        f"{size}), the worst: {'; '.join(details)}; steps that approximate: {steps.text()}"
    )


def _touched(
    graph: KernelGraph, buffer: Buffer, recorded: Bytes, result: Bytes
) -> tuple[Bytes, int]:
    """Recorded bytes where a step may write, found bytes elsewhere; the number of the former."""
    if buffer.role is not Role.OUTPUT:
        return recorded, buffer.bytes
    regions = (
        a.region for n in graph.nodes for a in n.accesses if a.buffer == buffer.id and a.kind.writes
    )
    written = regions_bytes(regions, buffer.bytes)
    count = intervals.size(written)
    if count == buffer.bytes:
        return recorded, count
    kept = result.copy()
    for start, end in intervals.pairs(written):
        kept[start:end] = recorded[start:end]
    return kept, count


def _recorded(program: Program, path: str, root: str | None) -> Iterator[tuple[Buffer, Bytes]]:
    with open_contents_file(program, path, root=root) as contents:
        for buffer in program.declared_buffers():
            if buffer.role in (Role.OUTPUT, Role.STATE) and contents.is_given(buffer):
                yield buffer, contents.read(buffer)


def _differs(
    request: int, buffer: Buffer, name: str, apart: Distance, steps: Approximations
) -> Diagnostic:
    hint = "if the model has changed since, trace it again with `tessc trace`"
    if buffer.dtype is not None and not apart.tolerance:
        hint += "; if these are places of values that are nearly equal, return the values too"
    return error(
        "TSR5054",
        f"request {request} differs from what PyTorch recorded in {buffer.role.value} "
        f"`{buffer.name}` by more than the tolerance",
        notes=(
            f"recorded in `{name}`",
            f"{apart.different} of {apart.count} elements are not equal, the worst: {apart.text()}",
            f"steps that approximate: {steps.text()}",
            "the run agrees with one device, so its plan is not the cause",
        ),
        hint=hint,
    )
