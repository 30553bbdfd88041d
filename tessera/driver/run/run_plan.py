"""`run_plan`: from a plan file to results, in one straight line.

In: a path (or a `Plan`) and `PlanRunOptions`. Out: an `Outcome`, also if a fault or Ctrl-C ended
the run early: it holds the requests that had finished by then. Raises `TesseraError` if nothing can
run. The stages, in order:

1. `prepare_run`: read and check everything that a run needs; no device is touched.
   `open_served` reads, analyses and proves the plan again; `choose_backend` chooses the backend and
   the GPUs for its devices; `served_materials` finds weights, states and inputs; `schedule` gives
   every request its trace and its sequence.
2. `run_prepared`: `Serving` loads the plan onto its devices, `Feeder` submits the requests, the
   states are read, the devices are released.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tessera.backend.known_backends import BackendName
from tessera.backend.ptx_executor.memory.host_memory import available_bytes
from tessera.backend.service import BackendOptions, Bytes
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error, warning
from tessera.driver.run.backends import BackendChoice, choose_backend, rehearsal
from tessera.driver.run.feeder import Feeder
from tessera.driver.run.materials import Materials
from tessera.driver.run.open_plan import OpenPlan
from tessera.driver.run.options import PlanRunOptions
from tessera.driver.run.outcome import Outcome
from tessera.driver.run.schedule import Turn, first_sequences, schedule
from tessera.driver.run.serving import Serving, open_served, served_materials
from tessera.ir.plan.launch_program import Await, Record
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.policies import refuse_adaptive
from tessera.ir.program.program import Launch, Program, Role
from tessera.ir.progress import OnProgress, counter
from tessera.planning.prices.count_work import count_work

DEFAULT_REQUESTS = 8
MOST_REQUESTS = 1_000_000
_EVENT_BYTES = 280


def run_plan(
    given: Plan | str | os.PathLike[str],
    options: PlanRunOptions | None = None,
    on_progress: OnProgress | None = None,
) -> Outcome:
    """Run requests of a plan; `on_progress` is called with the progress."""
    prepared = prepare_run(given, options or PlanRunOptions(), on_progress)
    return run_prepared(prepared, on_progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A run that can start: everything is read and checked, no device is touched yet."""

    opened: OpenPlan
    choice: BackendChoice
    materials: Materials
    turns: tuple[Turn, ...]
    options: PlanRunOptions
    notes: tuple[Diagnostic, ...]


def prepare_run(
    given: Plan | str | os.PathLike[str],
    options: PlanRunOptions,
    on_progress: OnProgress | None = None,
) -> Prepared:
    """Read and check everything that a run needs."""
    refuse_adaptive(options.policy)
    opened = open_served(given, options, on_progress)
    choice = choose_backend(
        opened, options.backend, options.find_targets(), hosts=options.read_hosts()
    )
    count = counter(on_progress, "loading contents", "bytes")
    materials = served_materials(opened, options, choice.backend, options.inputs, count)
    requests = options.requests or materials.requests_given() or DEFAULT_REQUESTS
    _check_room(opened, requests)
    turns = schedule(
        requests,
        shares := [trace.share for trace in opened.plan.traces],
        [(replica.share, replica.lowered.lanes) for replica in opened.replicas],
        [replica.own_shares(shares) for replica in opened.replicas],
    )
    materials.check_enough(turns)
    if options.inputs is None:
        materials = materials.with_own_states(first_sequences(turns))
    notes = list(opened.diagnostics)
    if options.inputs is not None and (missing := materials.not_given()):
        notes.append(_not_given(options.inputs, missing))
    if (
        choice.backend == BackendName.CPU
        and options.backend == BackendName.AUTO
        and not options.targets
        and options.hosts is None
    ):
        notes.append(rehearsal(cpu_seconds(opened, turns)))
    return Prepared(
        opened=opened,
        choice=choice,
        materials=materials,
        turns=turns,
        options=options,
        notes=tuple(notes),
    )


def run_prepared(
    prepared: Prepared,
    on_progress: OnProgress | None = None,
    *,
    asked: BackendOptions | None = None,
    keep_outputs: bool = True,
) -> Outcome:
    """Start the devices, run the requests, release the devices.

    `asked` holds options of the backend that the options of the run do not set.
    """
    report = counter(on_progress, "running", "requests")
    report(0, len(prepared.turns))
    try:
        serving = Serving(
            prepared.opened, prepared.materials, prepared.choice, prepared.options, asked=asked
        )
    except KeyboardInterrupt:
        raise _interrupted(0, len(prepared.turns)) from None
    # On other hosts, a replica may be lost while the others still work.
    each_alone = prepared.choice.hosts is not None
    feeder = Feeder(
        serving,
        prepared.turns,
        prepared.materials,
        each_alone=each_alone,
        retry=prepared.options.retry,
        keep_outputs=keep_outputs,
    )
    started = time.monotonic()
    try:
        states, fault = _feed(feeder, serving, lambda done: report(done, len(prepared.turns)))
    except KeyboardInterrupt:
        states, fault = None, _interrupted(len(feeder.completions()), len(prepared.turns))
    finally:
        seconds = time.monotonic() - started
        serving.close(wait=False)
    done, digests = feeder.completions(), feeder.digests()
    feeder.close()
    return Outcome(
        opened=prepared.opened,
        backend=prepared.choice.backend,
        turns=prepared.turns,
        done=done,
        states=states,
        seconds=seconds,
        begins=tuple(feeder.begins),
        command_s=feeder.command_s,
        digests=digests,
        has_patterns=asked is not None and asked.unwritten is not None,
        diagnostics=(*prepared.notes, *feeder.warnings()),
        fault=() if fault is None else fault.diagnostics,
        exit_code=0 if fault is None else fault.exit_code,
    )


def _feed(
    feeder: Feeder, serving: Serving, report: Callable[[int], None]
) -> tuple[tuple[Mapping[str, Bytes], ...] | None, TesseraError | None]:
    """Run all requests; returns the states that they leave, or the fault that ended the run."""
    with _without_sweeps():
        feeder.start()
        feeder.wait(report)
    if (fault := feeder.fault()) is not None:
        return None, fault
    try:
        return tuple(map(serving.read_states, range(len(serving.sequences)))), None
    except TesseraError as failure:
        return None, failure  # reading states failed; finished requests are kept


@contextmanager
def _without_sweeps() -> Iterator[None]:
    """Keep objects from reading and proving the plan out of garbage collection.

    A collection would take tens of milliseconds in the middle of the run, and find nothing.
    """
    if gc.get_freeze_count():  # the caller manages frozen objects itself
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _interrupted(done: int, total: int) -> TesseraError:
    stopped = error("TSR5056", f"interrupted after {done} of {total} requests")
    return TesseraError(stopped, exit_code=ExitCode.INTERRUPTED)


def _check_room(opened: OpenPlan, requests: int) -> None:
    """Raise TSR5020 if the results of all requests, which are all kept, do not fit memory."""
    if requests > MOST_REQUESTS:
        raise TesseraError.of(
            "TSR5053",
            f"a run has at most {MOST_REQUESTS} requests, not {requests}",
            hint="serve without an end with `tessera.Runtime`",
        )
    outputs = (
        sum(b.bytes for b in program.buffers if b.role is Role.OUTPUT) * trace.share
        for trace, program in zip(opened.plan.traces, opened.programs, strict=True)
    )
    needed, free = int(requests * (sum(outputs) + _events_bytes(opened))), available_bytes()
    if free is not None and needed > free:
        raise TesseraError.of(
            "TSR5020",
            f"the machine has no memory for the outputs of {requests} requests: "
            f"{needed} bytes, with what devices did when",
            notes=(f"{free} bytes are available",),
            hint="run with fewer `--requests`",
            exit_code=ExitCode.FAULT,
        )


def _events_bytes(opened: OpenPlan) -> int:
    """Most bytes of the timeline events of one request."""
    return _EVENT_BYTES * max(
        sum(
            not isinstance(enqueued.operation, Record | Await)
            for program in lowered.programs
            for enqueued in program.operations
        )
        for replica in opened.replicas
        for lowered in replica.lowered.traces
    )


def _not_given(path: str, names: Sequence[str]) -> Diagnostic:
    shown = ", ".join(f"`{name}`" for name in names[:8]) + (" ..." if len(names) > 8 else "")
    verb = "is" if len(names) == 1 else "are"
    return warning(
        "TSR5059",
        f"`{path}` does not have all inputs: {shown} {verb} seeded, or as in the file of contents",
    )


# --- how long the CPU takes ----------------------------------------------------------------------


# Seconds of the CPU backend, if the devices worked one after the other. Every instruction that a
# thread executes costs a call per chunk of threads and a little per thread, and every operation of
# a matrix instruction a little more. The constants are from runs of the example traces on one core,
# and predict those to within a factor of two. Loops count as often as they run if their bounds do
# not come from memory.
_STEP_S = 5e-4
_CALL_S = 25e-6
_THREAD_S = 2.5e-9
_MATRIX_S = 2.5e-9
_CHUNK_THREADS = 1 << 16
_PLAIN_UNITS = frozenset(("fp32", "fp64", "int", "special"))


def cpu_seconds(opened: OpenPlan, turns: Sequence[Turn]) -> float:
    """Seconds for all requests."""
    each = [_trace_seconds(program) for program in opened.programs]
    return sum(each[turn.trace] for turn in turns)


def _trace_seconds(program: Program) -> float:
    return sum(_launch_seconds(program, step) for step in program.launches())


def _launch_seconds(program: Program, step: Launch) -> float:
    work = count_work(program.modules[step.module].variants[0].ptx, step)
    if work is None:
        return _STEP_S
    chunks = -(-work.threads // _CHUNK_THREADS)
    matrix = sum(count for unit, count in work.units if unit not in _PLAIN_UNITS)
    per_thread = work.instructions * _THREAD_S + matrix * _MATRIX_S
    return _STEP_S + work.chain * chunks * _CALL_S + per_thread
