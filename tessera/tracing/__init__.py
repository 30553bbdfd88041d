"""`trace`: from a PyTorch callable on a GPU to a trace that reproduces one call of it.

In: a callable and example inputs, and `TraceOptions`. Out: a `Trace`: the program, the contents of
its buffers before the call, and what PyTorch computed; `write_trace` makes files of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.frontend.capture.problems import NOT_COMPILED
from tessera.frontend.contents import Bytes
from tessera.frontend.contents_write import write_contents
from tessera.ir import program as ir
from tessera.ir.trace_text import print_program
from tessera.output import write_file
from tessera.tracing.build import build_program

if TYPE_CHECKING:
    from tessera.frontend.capture.session import Captured

_FILLED = (ir.Role.WEIGHT, ir.Role.INPUT, ir.Role.STATE)
_KEPT = (ir.Role.OUTPUT, ir.Role.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How to capture. `route` says who computes:

    `ptx`: torch.compile, everything by Triton; `library`: torch.compile, products and convolutions
    by the libraries; `eager`: no compiler; `as-is`: the callable is called as it stands.
    """

    route: str = "ptx"
    archs: tuple[str, ...] = ()
    warm_ups: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A captured call. Contents and reference are bytes by buffer name."""

    program: ir.Program
    contents: dict[str, Bytes]
    reference: dict[str, Bytes]
    diagnostics: tuple[Diagnostic, ...]


def trace(function: Callable[..., Any], *inputs: Any, options: TraceOptions | None = None) -> Trace:
    """Capture one call of `function(*inputs)` on the current GPU."""
    options = options or TraceOptions()
    require_gpu()
    found = _capture(function, inputs, options)
    changed = [n for n, old in found.before.items() if not np.array_equal(old, found.after[n])]
    program, findings = build_program(found.raw, changed)
    notes = tuple(warning("TSR6006", problem) for problem in found.problems)
    names = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    return Trace(
        program=program,
        contents={n: b for n, b in found.before.items() if names.get(n) in _FILLED},
        reference={n: b for n, b in found.after.items() if names.get(n) in _KEPT},
        diagnostics=(*findings, *notes),
    )


def _capture(
    function: Callable[..., Any], inputs: tuple[Any, ...], options: TraceOptions
) -> Captured:
    """Capture the call by its route, by the first way to compile it that works."""
    from tessera.frontend.capture.routes import attempts, compiled, fresh_compiler
    from tessera.frontend.capture.session import capture
    from tessera.frontend.capture.watch import Keeper, keep_compiled

    *first, last = attempts(options.route)
    for backends in (*first, last):
        keeper = Keeper()
        try:
            with fresh_compiler(), keep_compiled(keeper):
                return capture(
                    compiled(function, options.route, backends), inputs, keeper,
                    archs=options.archs, warm_ups=options.warm_ups,
                )  # fmt: skip
        except TesseraError as problem:
            if backends == last or problem.diagnostics[0].code != NOT_COMPILED:
                raise
    raise AssertionError("the last attempt returns or raises")


@contextmanager
def without_gpu() -> Iterator[None]:
    """Let a model be built where there is no GPU: what asks for one stays on the host."""
    try:
        import torch
    except ImportError as problem:
        raise _no_package(problem) from None
    if torch.cuda.is_available():
        yield
        return
    places = (torch.nn.Module, torch.Tensor)
    olds = [place.cuda for place in places]
    for place in places:
        place.cuda = lambda self, *_, **__: self
    try:
        yield
    finally:
        for place, old in zip(places, olds, strict=True):
            place.cuda = old


def _no_package(problem: ImportError) -> TesseraError:
    return TesseraError(
        error("TSR6000", f"tracing needs the package `{problem.name}`",
              hint="install Tessera with its extras `cuda` and `torch`")
    )  # fmt: skip


def require_gpu() -> None:
    """Raise unless torch can use a GPU and cuda-bindings is there."""
    try:
        import cuda.bindings.driver  # noqa: F401
        import torch
    except ImportError as problem:
        raise _no_package(problem) from None
    if not torch.cuda.is_available():
        raise TesseraError(
            error("TSR6000", "tracing needs a GPU, and torch finds none on this machine",
                  hint="`--dry-run` says what would be captured")
        )  # fmt: skip


def write_trace(found: Trace, path: str | os.PathLike[str], *, data: bool = True) -> list[str]:
    """Write the trace and, beside it, contents and reference; the names of the files."""
    target = Path(path)
    stem = target.with_suffix("")
    program = found.program
    written = []
    if data:
        contents, reference = stem.with_suffix(".npz"), Path(f"{stem}.ref.npz")
        program = replace(program, resident=contents.name)
        write_contents(contents, _arrays(program, found.contents))
        write_contents(reference, _arrays(program, found.reference))
        written = [str(contents), str(reference)]
    write_file(str(target), print_program(program).encode())
    return [str(target), *written]


def _arrays(program: ir.Program, found: dict[str, Bytes]) -> Iterator[tuple[ir.Buffer, Bytes]]:
    for buffer in program.declared_buffers():
        if buffer.name in found:
            yield buffer, found[buffer.name]
