"""A trace, or a plain PTX file, to a `Program`.

In: text in the format of `docs/reference/trace-format.md`. Out: a `Program` in which every name is
resolved and every rule of the format holds, or the errors in the text, at most 20, in file order.
`ir.program.print_trace.print_program` is the inverse.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, Source, TesseraError
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.text.readfile import read_source, source_of_text
from tessera.frontend.trace.findings import TooManyErrors, TraceFindings
from tessera.frontend.trace.modules import Modules, ParsePtx, plain_module, variable_buffers
from tessera.frontend.trace.split import Line, is_trace, split_trace
from tessera.ir.program.program import Program, ProgramModule

_MARKED_COMMENT = re.compile(r"^([ \t]*)//!", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Reading:
    """The program in a text, or None if it has errors; it may also have warnings."""

    program: Program | None
    diagnostics: tuple[Diagnostic, ...]


def read_trace(path: str | os.PathLike[str]) -> Program:
    """The program in a file; raises `TesseraError` with all its errors."""
    return _usable(examine_trace(read_source(path)))


def parse_trace(text: str, name: str = "<trace>", parse_ptx: ParsePtx = parse_source) -> Program:
    """The program in a text; raises `TesseraError` with all its errors."""
    return _usable(examine_trace(source_of_text(text, name), parse_ptx))


def examine_trace(source: Source, parse_ptx: ParsePtx = parse_source) -> Reading:
    """Read a trace or a plain PTX file; errors and warnings are in the result."""
    if not is_trace(source.text):
        return _examine_plain(source, parse_ptx)
    # Imported here because it needs Lark, which a plain file does not.
    from tessera.frontend.trace.build_trace import ProgramBuilder, StopReading

    findings = TraceFindings(source)
    parts = split_trace(source)
    declared = sum(isinstance(part, Line) and part.kind == "buffer" for part in parts)
    builder = ProgramBuilder(findings, parse_ptx, declared)
    with contextlib.suppress(TooManyErrors, StopReading):
        for part in parts:
            builder.add(part)
        builder.finish()
    program = None if findings.has_errors else builder.program()
    return Reading(program, findings.in_file_order())


def _examine_plain(source: Source, parse_ptx: ParsePtx) -> Reading:
    """Plain PTX: one module. Its `//!` comments become `// !`; otherwise they would be records in a
    printed trace."""
    text = _MARKED_COMMENT.sub(r"\1// !", source.text) if "//!" in source.text else source.text
    if text and not text.endswith("\n"):
        text += "\n"
    if text is not source.text:
        source = Source(source.name, text, source.first_line)
    findings = TraceFindings(source)
    modules = Modules(findings, parse_ptx)
    program = None
    with contextlib.suppress(TooManyErrors):
        opened = plain_module(source, modules)
        program = Program(
            buffers=() if opened.broken else tuple(variable_buffers(opened, 0)),
            modules=(ProgramModule(opened.id, opened.name, tuple(opened.variants)),),
            source=source,
        )
    return Reading(None if findings.has_errors else program, findings.in_file_order())


def _usable(reading: Reading) -> Program:
    if reading.program is None:
        raise TesseraError(reading.diagnostics)
    return reading.program
