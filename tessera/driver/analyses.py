"""The analyses of a program, with results from the cache and with contents of weights.

In: a `Program` and the folder of its file. Out: an `AnalysisManager`, whose `Dependences` hold the
kernel graph. `analyze`, `plan`, `run` and `profile` all begin here, so they agree on every byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.ir.program.program import BufferId, KnownContents, Program
from tessera.ir.progress import Count, OnProgress, counter
from tessera.settings import read_settings

if TYPE_CHECKING:
    from tessera.frontend.contents.open_contents import Contents
    from tessera.passes.base import AnalysisManager


def analysis_manager(
    program: Program,
    folder: str,
    data_root: str | None = None,
    open_data: Callable[[], Contents] | None = None,
    on_progress: OnProgress | None = None,
) -> AnalysisManager:
    """The analyses of a program; contents of weights in `folder` are used if they decide accesses.

    The contents may be in a file below `data_root` that a link in the folder leads to, or come from
    `open_data`. A missing or unusable file of contents is not reported here but by the stage that
    needs it.
    """
    from tessera.passes.dependences.access_regions import AccessRegions

    count = counter(on_progress, "analysing", "steps")
    manager = remembering(program, count)
    tried: set[int] = set()
    opener = open_data or partial(_open_contents, program, folder, data_root)
    while program.resident is not None or open_data is not None:
        wanted = [b for b in manager.get(AccessRegions).wanted if b not in tried]
        tried.update(wanted)
        contents = _look_up(program, opener, wanted) if wanted else ()
        if not contents:
            break
        program = replace(program, known=(*program.known, *contents))
        manager = remembering(program, count)
    return manager


def _open_contents(program: Program, folder: str, data_root: str | None) -> Contents:
    from tessera.frontend.contents.open_contents import open_contents

    return open_contents(program, folder, root=data_root)


def remembering(program: Program, count: Count = lambda done, total: None) -> AnalysisManager:
    """The analyses of a program, with cached results for its kernels."""
    from tessera.frontend.cache.analysis_cache import AnalysisCache
    from tessera.passes.base import AnalysisManager
    from tessera.passes.dependences.access_regions import AccessRegions

    settings = read_settings()
    folder = settings.cache_dir if settings.use_cache else None
    store = None if folder is None else AnalysisCache(folder)
    manager = AnalysisManager(program, store)
    manager.provide(AccessRegions.remembering(program, store, count))
    return manager


def _look_up(
    program: Program, open_data: Callable[[], Contents], wanted: list[BufferId]
) -> tuple[KnownContents, ...]:
    from tessera.frontend.contents.known_contents import known_contents

    try:
        with open_data() as contents:
            return tuple(known_contents(program, contents, wanted))
    except TesseraError:
        return ()


def layout_findings(program: Program) -> tuple[Diagnostic, ...]:
    """Warnings of kernels that depend on the layout of fragments; most programs have none."""
    texts = [variant.text for module in program.modules for variant in module.variants]
    if all(text and "wmma" not in text for text in texts):
        return ()
    from tessera.passes.kernel_facts.fragment_layout import layout_warnings

    return tuple(layout_warnings(program))
