"""A cache of compiled kernels, keyed by the text of their module.

In: a module and the name of a kernel. Out: its program; equal text gives the same program.
"""

from __future__ import annotations

import hashlib

from tessera.backend.ptx_executor.emit.program import compile_kernel
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.ir.ptx import syntax as ptx

_PROGRAMS: dict[tuple[str, str], KernelProgram] = {}
_MOST_PROGRAMS = 512


def compiled(module: ptx.Module, digest: str | None, name: str) -> KernelProgram:
    """The program of a kernel, compiled if it is not in the cache."""
    if digest is None:
        return compile_kernel(module, name)
    program = _PROGRAMS.get((digest, name))
    if program is None:
        program = compile_kernel(module, name)
        if len(_PROGRAMS) >= _MOST_PROGRAMS:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
        _PROGRAMS[digest, name] = program
    return program


def digest_of(module: ptx.Module) -> str | None:
    """The digest of the module's text; None for a module that was not read from text."""
    if module.source is None:
        return None
    place = f"{module.source.name}:{module.source.first_line}\n"
    return hashlib.sha256((place + module.source.text).encode("utf-8", "replace")).hexdigest()
