"""The pipelines behind the commands: straight lines from a file to a result.

`load` reads a trace or a PTX file; `analyze` summarises it. Both raise `TesseraError` where the
input cannot be used, and return findings that are no errors with the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, Source
from tessera.frontend.ptx import parse_source
from tessera.frontend.readfile import read_source, text_to_bytes
from tessera.ir.program import Module, ModuleId, ModuleVariant, Program
from tessera.ir.ptx_text import print_module
from tessera.passes.summarise_program import ProgramSummary, summarise_program


@dataclass(frozen=True, slots=True)
class Report:
    """What `analyze` finds out about one file."""

    name: str
    program: Program
    summary: ProgramSummary
    diagnostics: tuple[Diagnostic, ...] = ()


def load(path: str | os.PathLike[str]) -> Program:
    """Read a trace or a PTX file; `-` is standard input."""
    return _read_program(read_source(path))


def analyze(path: str | os.PathLike[str]) -> Report:
    """Summarise a trace or a PTX file: buffers, launches, and each kernel."""
    source = read_source(path)
    program = _read_program(source)
    summary = summarise_program(program)
    return Report(source.name, program, summary, summary.diagnostics)


def emit_ptx(program: Program) -> bytes:
    """The PTX of every module as Tessera prints it, under a record where there are several."""
    return text_to_bytes("".join(_ptx_parts(program)))


def _ptx_parts(program: Program) -> Iterator[str]:
    variants = [(m.name, v) for m in program.modules for v in m.variants]
    for name, variant in variants:
        if len(variants) > 1:
            yield f"//! module {name} arch={variant.arch}\n"
        yield print_module(variant.ptx)


def _read_program(source: Source) -> Program:
    module = parse_source(source)
    variant = ModuleVariant(arch=module.target[0], text=source.text, ptx=module)
    return Program(modules=(Module(ModuleId(0), "m0", (variant,)),), source=source)
