"""Processes in which Triton compiles kernels while a model is captured.

In: the settings and the cores of this machine. Out: the numbers of processes to try in turn: many
if there are enough cores, then this process alone, in case the others fail.

Kernels compiled in other processes come back with their PTX but without their source, so they
cannot be compiled again for another architecture.
"""

from __future__ import annotations

import contextlib

from tessera.frontend.capture.problems import chain
from tessera.settings import read_settings

_MOST = 16
_FEWEST = 4  # with fewer cores the processes slow each other down
# Messages about a closed pool, from exceptions without a class of their own.
_GONE = ("SubprocPool closed", "closed pool", "compilation subprocess exited")


def process_counts(*, for_others: bool) -> tuple[int, ...]:
    """Numbers of processes to try in turn; `for_others`: code for other architectures is needed,
    too."""
    wanted = read_settings().compile_processes
    if wanted is None:
        from torch._inductor import config

        cores = config.decide_compile_threads()
        wanted = min(cores, _MOST) if cores >= _FEWEST else 1
    return (wanted, 1) if wanted > 1 and not for_others else (1,)


def start_pool() -> None:
    """Start the processes while the model is being recorded."""
    from torch._inductor.async_compile import AsyncCompile

    with contextlib.suppress(Exception):  # the first use reports the failure
        AsyncCompile.use_process_pool()


def pool_failed(problem: BaseException) -> bool:
    """Whether a failure comes from the other processes."""
    return any(_is_of_pool(cause) for cause in chain(problem))


def drop_pool() -> None:
    """End the processes; the next capture starts others."""
    from torch._inductor import async_compile

    with contextlib.suppress(Exception):
        async_compile.shutdown_compile_workers()


def _is_of_pool(problem: BaseException) -> bool:
    modules = {kind.__module__ for kind in type(problem).__mro__}
    return any(
        module.startswith(("torch._inductor.compile_worker", "concurrent.futures"))
        for module in modules
    ) or any(text in str(problem) for text in _GONE)
