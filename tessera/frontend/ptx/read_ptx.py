"""PTX text to `ptx.Module`.

`parse_module` reads one module and raises `TesseraError` with all its faults: after a fault,
reading continues at the next statement or function.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tessera.diagnostics import Diagnostic, Severity, Source, TesseraError, in_text_order
from tessera.frontend.cache.module_cache import ModuleCache
from tessera.frontend.text.bulk import collector_paused
from tessera.frontend.text.readfile import source_of_text
from tessera.ir.ptx import syntax as ptx


def parse_source(source: Source, *, with_runs: bool = True) -> ptx.Module:
    """Read the module in a source; spans of its diagnostics point into it."""
    with collector_paused():
        module = _scan(source) if with_runs else None
        if module is not None:
            return module
        from tessera.frontend.ptx.grammar import parse_whole

        return parse_whole(source, with_runs=with_runs)


def _scan(source: Source) -> ptx.Module | None:
    """The module, read item by item, or None if it has a fault."""
    from tessera.frontend.ptx.scan import scan_module
    from tessera.frontend.ptx.statement_runs import RunSplitter

    splitter = RunSplitter()

    def read_items(start: int, end: int) -> Sequence[ptx.Item] | None:
        from tessera.frontend.ptx.grammar import parse_fragment

        return parse_fragment(source, splitter, start, end)

    return scan_module(source, splitter, read_items)


def load_module(
    source: Source, cache: ModuleCache | None = None
) -> tuple[ptx.Module, tuple[Diagnostic, ...]]:
    """Read and verify the module in a source, or find it in a cache; its warnings come with it."""
    cached = None if cache is None else cache.find(source)
    module = None
    if cached is not None:
        with contextlib.suppress(ValueError):
            module = cached.module()
    if module is not None and cached is not None and cached.is_clean:
        return module, ()
    # Imported here, like the reader above: a module found in the cache needs neither.
    from tessera.ir.verify_ptx.module import verify_module

    is_new = module is None
    module = module or parse_source(source)
    diagnostics = in_text_order(verify_module(module))
    if any(diagnostic.severity is Severity.ERROR for diagnostic in diagnostics):
        raise TesseraError(diagnostics)
    if cache is not None and is_new:
        cache.store(source, module, is_clean=not diagnostics)
    return module, tuple(diagnostics)


def parse_module(text: str, name: str = "<ptx>") -> ptx.Module:
    """Read and verify one PTX module from text."""
    return load_module(source_of_text(text, name))[0]
