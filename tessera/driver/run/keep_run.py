"""`tessc run plan.tsp`: run requests of a plan, keep their results, and compare them.

In: a path, `PlanRunOptions` and `KeepOptions`. Out: a `KeptRun`. The stages, in order:

1. `prepare_kept`: everything that `run_plan.prepare_run` reads and checks, and the output files.
2. `run_prepared`: the requests, on the devices.
3. `verify_run`: compare with the same requests on one device, and with PyTorch's recorded results.
4. `_write_files`: write results and timeline, also of a run that ended early.

A problem from the second stage on does not undo what is done: it is in the `KeptRun`, with the exit
code of the first problem.

In the file of results an output has a leading axis, one entry per finished request of its trace;
`tessera.requests` says which requests they are. A state has a leading axis of sequences, and is
written only if the run completed. Types that the file format lacks are rows of bytes. With several
traces, names are prefixed with the name of their trace: `prefill/y`. If two names would be equal,
`_` is appended to the later one (to `tessera.requests`, if it is one of them).
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tessera.backend.service import BackendOptions, Bytes
from tessera.backend.unwritten import ComparedSide
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error
from tessera.driver.run.compare_runs import Verdict
from tessera.driver.run.data_files import data_paths
from tessera.driver.run.options import KeepOptions, PlanRunOptions
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.recorded import check_recorded, files_of
from tessera.driver.run.run_plan import Prepared, prepare_run, run_prepared
from tessera.driver.timeline import write_events
from tessera.frontend.contents.write import check_format, has_type, write_contents
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role
from tessera.ir.progress import OnProgress
from tessera.output import Kind, check_output


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRun:
    """A run, the files written from it, and the comparison with one device.

    `problems` are those of comparing and writing, in order; the fault that ended the run is in its
    outcome.
    """

    outcome: Outcome
    written: tuple[str, ...]
    verdict: Verdict | None
    problems: tuple[Diagnostic, ...]
    exit_code: int


def prepare_kept(
    path: str, options: PlanRunOptions, keep: KeepOptions, on_progress: OnProgress | None = None
) -> Prepared:
    """Read and check everything that a run needs, and its output paths; no device is touched."""
    if keep.outputs is not None:
        check_format(keep.outputs)
    _check_files(keep, (path, *data_paths(options.data), options.inputs))
    prepared = prepare_run(path, options, on_progress)
    _check_files(keep, tuple(files_of(prepared)))
    if keep.verify:
        check_recorded(prepared)
    return prepared


def run_kept(
    prepared: Prepared, keep: KeepOptions, on_progress: OnProgress | None = None
) -> KeptRun:
    """Run the requests, write the results to keep, and compare."""
    from tessera.driver.run.verify import verify_run

    outcome = run_prepared(
        prepared,
        on_progress,
        asked=BackendOptions(
            rows=keep.timeline_file is None, unwritten=ComparedSide.RUN if keep.verify else None
        ),
        keep_outputs=keep.verify or keep.outputs is not None,
    )
    problems: tuple[Diagnostic, ...] = ()
    verdict, code = None, outcome.exit_code
    if keep.verify and outcome.done and code != ExitCode.INTERRUPTED:
        try:
            verdict = verify_run(outcome, prepared, on_progress)
        except KeyboardInterrupt:
            problems += (error("TSR5056", "interrupted before all requests were verified"),)
            code = ExitCode.INTERRUPTED
        except TesseraError as failure:
            problems += failure.diagnostics
            code = code or failure.exit_code
    written, failed, last = _write_files(outcome, keep)
    return KeptRun(
        outcome=outcome,
        written=written,
        verdict=verdict,
        problems=(*problems, *failed),
        exit_code=code or last,
    )


def _check_files(keep: KeepOptions, inputs: tuple[str | None, ...]) -> None:
    """Refuse output paths that cannot be written, or that the run reads."""
    for path, kind in ((keep.outputs, Kind.RESULTS), (keep.timeline_file, Kind.TIMELINE)):
        if path is not None:
            check_output(path, kind, inputs)


def write_timeline(outcome: Outcome, path: str) -> None:
    """Write the timeline of every device, for the requests that finished."""
    replicas = outcome.opened.replicas
    devices = list(dict.fromkeys(d for replica in replicas for d in replica.lowered.devices))
    write_events(outcome.events(), devices, path)


def _write_files(
    outcome: Outcome, keep: KeepOptions
) -> tuple[tuple[str, ...], tuple[Diagnostic, ...], int]:
    """Write the finished results; if one file fails, the other is still written."""
    written: tuple[str, ...] = ()
    problems: tuple[Diagnostic, ...] = ()
    code = outcome.exit_code
    for write, path in ((write_results, keep.outputs), (write_timeline, keep.timeline_file)):
        try:
            if path is not None:
                write(outcome, path)
                written += (path,)
        except TesseraError as failure:
            problems += failure.diagnostics
            code = code or failure.exit_code
    return written, problems, code


# --- results as a file ---------------------------------------------------------------------------


REQUESTS = "tessera.requests"


def write_results(outcome: Outcome, path: str | os.PathLike[str]) -> None:
    """Write the finished results; the file appears whole or not at all."""
    rows = results(outcome)
    write_contents(path, (r if has_type(path, r[0]) else (_as_bytes(r[0]), r[1]) for r in rows))


def results(outcome: Outcome) -> Iterator[tuple[Buffer, Bytes | list[Bytes]]]:
    """The arrays of the file."""
    prefixes = _prefixes([trace.name for trace in outcome.opened.plan.traces])
    for trace, program in enumerate(outcome.opened.programs):
        prefix = prefixes[trace]
        done = [t.request for t in outcome.turns if t.trace == trace and t.request in outcome.done]
        numbers = np.array(done, np.int64)
        names = {prefix + b.name for b in program.buffers if b.role in (Role.OUTPUT, Role.STATE)}
        yield _numbered(_free(prefix + REQUESTS, names), len(done)), numbers.view(np.uint8)
        for buffer in program.buffers:
            if buffer.role is Role.OUTPUT:
                parts = [outcome.done[number].outputs[buffer.name] for number in done]
                yield _stacked(buffer, f"{prefix}{buffer.name}", parts)
    seen: set[str] = set()
    for program in outcome.opened.programs if outcome.states is not None else ():
        for buffer in program.buffers:
            if buffer.role is Role.STATE and buffer.name not in seen:
                seen.add(buffer.name)
                parts = [states[buffer.name] for states in outcome.states or ()]
                yield _stacked(buffer, buffer.name, parts)


def _prefixes(traces: Sequence[str]) -> list[str]:
    """The prefix of the names of each trace: empty if there is only one.

    A name from a plan file is a part of the name of an array, which must not be a path.
    """
    prefixes: list[str] = []
    for name in traces:
        prefixes.append(_free(re.sub(r"[^A-Za-z0-9_$-]", "_", name), prefixes))
    return [""] if len(prefixes) == 1 else [f"{name}/" for name in prefixes]


def _free(name: str, taken: Container[str]) -> str:
    """A name that is not taken: the name itself, or with `_` appended."""
    while name in taken:
        name += "_"
    return name


def _numbered(name: str, count: int) -> Buffer:
    return Buffer(
        id=BufferId(0),
        name=name,
        bytes=8 * count,
        role=Role.OUTPUT,
        dtype=DataType.S64,
        shape=(count,),
    )


def _as_bytes(stacked: Buffer) -> Buffer:
    """The same bytes with their first axis kept, of a type that every file has."""
    assert stacked.shape is not None
    assert stacked.dtype is not None
    count, *inner = stacked.shape
    return replace(stacked, dtype=DataType.U8, shape=(count, prod(inner) * stacked.dtype.bytes))


def _stacked(buffer: Buffer, name: str, parts: list[Bytes]) -> tuple[Buffer, list[Bytes]]:
    """Buffers of one shape, stacked along a new leading axis."""
    count = len(parts)
    dtype = buffer.dtype or DataType.U8
    inner = (buffer.bytes // dtype.bytes,) if buffer.shape is None else buffer.shape
    size = count * buffer.bytes
    return replace(buffer, name=name, bytes=size, dtype=dtype, shape=(count, *inner)), parts
