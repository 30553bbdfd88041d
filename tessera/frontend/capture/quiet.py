"""Keep what compilers say while they compile and measure out of the user's sight.

In: a function that takes the names of measured products. Out: nothing on the terminal: what
Inductor measured, and which candidates it had to leave out, goes to the logger of this module
(level INFO), and warnings of PyTorch and Triton are left out. What an operator refuses is said
once, by whoever catches it.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tessera.frontend.capture.replaced import replaced

_LOGGER = logging.getLogger(__name__)
_STATISTICS = "_log_autotune_choices_stats"
# Candidates that do not fit a GPU, and shapes that do not fit each other, are errors to these, each
# with its traceback.
_TALKERS = (
    "torch._inductor.select_algorithm",
    "torch._inductor.runtime.triton_heuristics",
    "torch._inductor.autotune_process",
    "torch._subclasses.fake_tensor",
)


@contextmanager
def quiet_compiler(heard: Callable[[str], None]) -> Iterator[None]:
    """Silence the compilers; `heard` gets the name of each product that was measured."""
    from torch._inductor import select_algorithm

    def note(name: str, timings: Mapping[object, float]) -> None:
        """Replaces Inductor's own function, which writes to standard error."""
        short = name.removesuffix("_template_autotuning").removesuffix("_autotuning")
        for choice in sorted(timings, key=lambda choice: timings[choice]):
            described = getattr(choice, "description", "") or getattr(choice, "name", choice)
            _LOGGER.info("%s: %.4f ms, %s", short, timings[choice], described)
        heard(short)

    noted = replaced(select_algorithm, _STATISTICS, lambda before: note)
    with warnings.catch_warnings(), quiet_loggers(), noted:
        warnings.filterwarnings("ignore", module=r"(torch|triton)\.")
        yield


@contextmanager
def quiet_loggers() -> Iterator[None]:
    """Send PyTorch's log records of failures to our logger."""

    def heard(record: logging.LogRecord) -> bool:
        _LOGGER.info("%s", record.getMessage().strip())
        return False

    loggers = [logging.getLogger(name) for name in _TALKERS]
    for logger in loggers:
        logger.addFilter(heard)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(heard)
