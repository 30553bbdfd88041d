"""The thread in the background that collects while anybody relies on it, and the end of it all.

In: a dispatcher. Out: nothing; its requests end.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from tessera.diagnostics import TesseraError, error


class CollectingLoop(Protocol):
    """What is driven: a dispatcher."""

    def step(self) -> bool:
        """Collect if it has to be here; False at the end."""


def keep_collecting(dispatcher: weakref.ref[CollectingLoop]) -> None:
    """The collector's loop; it ends with the dispatcher, also when nobody closes that."""
    while True:
        target = dispatcher()
        if target is None or not target.step():
            return
        del target


def closed() -> TesseraError:
    """The error of a request to a runtime that has been closed."""
    return TesseraError(error("TSR5050", "the runtime has been closed"))
