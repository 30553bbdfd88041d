"""The pipelines behind the commands: straight lines from a file to a result.

`load` reads a trace or a PTX file; `analyze` summarises it. Both raise `TesseraError` where the
input cannot be used, and return findings that are no errors with the result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, Source, TesseraError
from tessera.frontend.cache import ModuleCache
from tessera.frontend.ptx import load_module, parse_source
from tessera.frontend.readfile import read_source, text_to_bytes
from tessera.frontend.trace import examine_trace
from tessera.ir import ptx
from tessera.ir.program import Program
from tessera.ir.ptx_text import print_module
from tessera.passes.summarise_program import ProgramSummary, summarise_program
from tessera.settings import read_settings


@dataclass(frozen=True, slots=True)
class Report:
    """What `analyze` finds out about one file."""

    name: str
    program: Program
    summary: ProgramSummary
    diagnostics: tuple[Diagnostic, ...] = ()


def load(path: str | os.PathLike[str]) -> Program:
    """Read a trace or a PTX file; `-` is standard input."""
    return _read_program(read_source(path))[0]


def analyze(path: str | os.PathLike[str]) -> Report:
    """Summarise a trace or a PTX file: buffers, launches, and each kernel."""
    source = read_source(path)
    program, diagnostics = _read_program(source)
    return Report(source.name, program, summarise_program(program), diagnostics)


def emit_ptx(program: Program) -> bytes:
    """The PTX of every module as Tessera prints it; several make a trace without steps."""
    return text_to_bytes("".join(_ptx_parts(program)))


def _ptx_parts(program: Program) -> Iterator[str]:
    variants = [(m.name, v) for m in program.modules for v in m.variants]
    if len(variants) != 1:
        yield "//! tessera.trace 1\n"
    for name, variant in variants:
        if len(variants) > 1:
            yield f"//! module {name} arch={variant.arch}\n"
        yield print_module(variant.ptx)


def _read_program(source: Source) -> tuple[Program, tuple[Diagnostic, ...]]:
    """The program in a text, with what is odd about it but no error."""
    settings = read_settings()
    cache = ModuleCache(settings.cache_dir) if settings.use_cache and settings.cache_dir else None
    warnings: list[Diagnostic] = []

    def parse(part: Source) -> ptx.Module:
        module, found = load_module(part, cache)
        warnings.extend(found)
        if settings.verify:
            _check_printing(module)
        return module

    reading = examine_trace(source, parse)
    if reading.program is None:
        raise TesseraError((*reading.diagnostics, *warnings))
    return reading.program, (*reading.diagnostics, *warnings)


def _check_printing(module: ptx.Module) -> None:
    """Under `TESSERA_VERIFY`: the law of every level, that printing loses nothing."""
    name = "<printed>" if module.source is None else f"<printed {module.source.name}>"
    if parse_source(Source(name, print_module(module))) != module:
        raise RuntimeError(f"reading {name} does not give the module that was printed")
