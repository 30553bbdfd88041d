"""`run_trace`: from a trace to its results, on one device of the CPU backend.

In: a path and `RunOptions`. Out: a `RunReport`. The stages, in order:

1. `read_program`: the file, as a `Program`.
2. `layout_findings`: warnings of kernels that depend on how fragments are laid out.
3. `_given_contents`: initial contents of weights, inputs and states, from files or seeded.
4. `backend.ptx_executor.run.run_program`: launches, memsets and memcpys in file order.

Raises `TesseraError` if the trace cannot be run. `run_plan` is the same for plans.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, ExitCode, Source, TesseraError, error
from tessera.driver.analyses import layout_findings
from tessera.driver.load import read_program
from tessera.frontend.text.readfile import read_source
from tessera.ir.arguments import check_counts
from tessera.ir.options import WrongOption
from tessera.ir.program.program import Buffer, Program, Role
from tessera.ir.progress import OnProgress, counter
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.backend.ptx_executor.run import RunResult
    from tessera.frontend.contents.open_contents import Bytes, Contents

# Roles with initial contents; outputs and temporaries start poisoned, unless the file has them.
_FILLED = (Role.WEIGHT, Role.INPUT, Role.STATE)


def run_trace(
    path: str | os.PathLike[str],
    options: RunOptions | None = None,
    on_progress: OnProgress | None = None,
) -> RunReport:
    """Run one trace on one CPU device; `on_progress` is called with the progress."""
    from tessera.backend.ptx_executor.run import run_program
    from tessera.backend.ptx_executor.simt.chunk import DEFAULT_STEPS

    options = options or RunOptions()
    source = read_source(path)
    program, diagnostics = read_program(source)
    _check_runnable(program, source, options.arch)
    diagnostics += layout_findings(program)
    started = time.perf_counter()
    try:
        result = run_program(
            program,
            _given_contents(program, source, options),
            arch=options.arch,
            on_step=counter(on_progress, "running", "steps"),
            max_steps=DEFAULT_STEPS if options.max_steps is None else options.max_steps,
        )
    except MemoryError:
        no_memory = error("TSR5020", "the machine has no memory for the buffers of the trace")
        raise TesseraError(no_memory, exit_code=ExitCode.FAULT) from None
    seconds = time.perf_counter() - started
    return RunReport(
        name=source.name, program=program, result=result, seconds=seconds, diagnostics=diagnostics
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How to run a trace on one device."""

    arch: str | None = None
    seed: int = 0
    max_steps: int | None = None
    data: str | tuple[str, ...] | None = None
    data_root: str | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.data, tuple) and len(self.data) > 1:
            raise WrongOption("a trace has one file of contents: give {data} once")
        check_counts({"seed": self.seed}, least=0, optional=False)
        check_counts({"max_steps": self.max_steps}, least=1)

    def data_file(self) -> str | None:
        """The file of contents to use instead of the one that the trace names."""
        return next(iter(self.data), None) if isinstance(self.data, tuple) else self.data


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The result of a completed trace: its final bytes, and what each launch did."""

    name: str
    program: Program
    result: RunResult
    seconds: float
    diagnostics: tuple[Diagnostic, ...] = ()

    def kept(self) -> Iterator[tuple[Buffer, Bytes]]:
        """The outputs and states of the trace with their bytes, in file order."""
        for buffer in self.program.buffers:
            if buffer.name in self.result.buffers:
                yield buffer, self.result.buffers[buffer.name]


def check_outputs(path: str, options: RunOptions, outputs: str) -> None:
    """Refuse, before anything runs, an output that cannot be written or would replace an input."""
    from tessera.frontend.contents.write import check_format

    check_format(outputs)
    check_output(outputs, Kind.RESULTS, (path, options.data_file()))


def write_outputs(report: RunReport, path: str | os.PathLike[str]) -> None:
    """Write outputs and states by buffer name, to a `.npz` or `.safetensors` file."""
    from tessera.frontend.contents.write import write_contents

    if report.program.resident is not None:
        resident = os.path.join(os.path.dirname(report.name), report.program.resident)
        check_output(os.fspath(path), Kind.RESULTS, [resident])
    write_contents(path, report.kept())


def _given_contents(program: Program, source: Source, options: RunOptions) -> dict[str, Bytes]:
    """The contents of buffers before the first step, by name."""
    from tessera.driver.run.data_files import opened_checkpoint
    from tessera.frontend.contents.checkpoint import check_used

    with (
        _open_data(program, source, options) as contents,
        opened_checkpoint(options.weights, options.data_root) as checkpoint,
    ):
        if checkpoint is not None:
            contents.take_weights(program, checkpoint)
            check_used([program], checkpoint)
        return {
            buffer.name: contents.read(buffer)
            for buffer in program.buffers
            if buffer.role in _FILLED or contents.is_given(buffer)
        }


def _open_data(program: Program, source: Source, options: RunOptions) -> Contents:
    from tessera.frontend.contents.open_contents import open_contents, open_contents_file

    if (data := options.data_file()) is not None:
        return open_contents_file(program, data, seed=options.seed, root=options.data_root)
    folder = os.path.dirname(source.name) or "."
    return open_contents(program, folder, seed=options.seed, root=options.data_root)


def _check_runnable(program: Program, source: Source, arch: str | None) -> None:
    if not any(program.work()):
        raise TesseraError.of(
            "TSR3013",
            f"there is nothing to run in `{source.name}`",
            notes=("it has no launch, memset or memcpy record",),
            hint="a trace is PTX with `//!` records; `tessc analyze` summarises plain PTX",
        )
    known = sorted({v.arch for module in program.modules for v in module.variants})
    if arch is not None and arch not in known:
        raise TesseraError.of(
            "TSR5014",
            f"no module of `{source.name}` has a variant for `{arch}`",
            hint=f"choose one of: {', '.join(known)}",
        )
