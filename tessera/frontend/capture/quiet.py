"""Keep what compilers say while they compile and measure out of the user's sight.

In: whoever wants to hear what was measured. Out: nothing on the terminal: what Inductor measured
goes to the logger of this module (level INFO), and PyTorch's own warnings are left out.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

_LOGGER = logging.getLogger(__name__)
_STATISTICS = "_log_autotune_choices_stats"


@contextmanager
def quiet_compiler(heard: Callable[[str], None]) -> Iterator[None]:
    """Have compilers say nothing; `heard` is told the name of each product that was measured."""
    from torch._inductor import select_algorithm

    before = getattr(select_algorithm, _STATISTICS, None)

    def note(name: str, timings: Mapping[object, float]) -> None:
        """In place of Inductor's own, which writes to standard error."""
        short = name.removesuffix("_template_autotuning").removesuffix("_autotuning")
        for choice in sorted(timings, key=lambda choice: timings[choice]):
            described = getattr(choice, "description", "") or getattr(choice, "name", choice)
            _LOGGER.info("%s: %.4f ms, %s", short, timings[choice], described)
        heard(short)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"torch\.")
        if before is not None:
            setattr(select_algorithm, _STATISTICS, note)
        try:
            yield
        finally:
            if before is not None:
                setattr(select_algorithm, _STATISTICS, before)
