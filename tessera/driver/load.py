"""A trace or a PTX file as a `Program`: the first stage of every pipeline.

In: a path or a text. Out: the program and warnings about it. Raises `TesseraError` if the text
holds no program. PTX modules come from the cache if it has them.
"""

from __future__ import annotations

import os

from tessera.diagnostics import Diagnostic, Source, TesseraError
from tessera.frontend.cache.module_cache import ModuleCache
from tessera.frontend.ptx.read_ptx import load_module, parse_source
from tessera.frontend.text.readfile import read_source
from tessera.frontend.text.sniff import sniff_format
from tessera.frontend.trace.read_trace import examine_trace
from tessera.ir.program.program import Program
from tessera.ir.ptx import syntax as ptx
from tessera.settings import read_settings


def load(path: str | os.PathLike[str]) -> Program:
    """Read a trace or a PTX file; `-` is standard input."""
    return read_program(read_source(path))[0]


def read_program(source: Source) -> tuple[Program, tuple[Diagnostic, ...]]:
    """The program in a text, and warnings about it."""
    if no_program := sniff_format(source):
        raise TesseraError(no_program)
    settings = read_settings()
    cache = ModuleCache(settings.cache_dir) if settings.use_cache and settings.cache_dir else None
    warnings: list[Diagnostic] = []

    def parse(part: Source) -> ptx.Module:
        module, findings = load_module(part, cache)
        warnings.extend(findings)
        if settings.verify:
            _check_printing(module)
        return module

    reading = examine_trace(source, parse)
    if reading.program is None:
        raise TesseraError((*reading.diagnostics, *warnings))
    return reading.program, (*reading.diagnostics, *warnings)


def _check_printing(module: ptx.Module) -> None:
    """Under `TESSERA_VERIFY`, check the law of every level: printing loses nothing."""
    from tessera.ir.ptx.print_ptx import print_module

    name = "<printed>" if module.source is None else f"<printed {module.source.name}>"
    if parse_source(Source(name, print_module(module))) != module:
        raise RuntimeError(f"reading {name} does not give the module that was printed")
