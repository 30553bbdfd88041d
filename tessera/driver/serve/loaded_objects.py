"""What engines have loaded is kept out of the collections of garbage while they serve.

A plan with its traces and graphs is some 10^5 objects, none of which becomes garbage before the
engine is closed. A full collection looks at all of them: tens of milliseconds in which no step is
handed over. So all that is there when an engine opens is set aside, and put back when the last one
is closed.
"""

from __future__ import annotations

import gc
import threading

_LOCK = threading.Lock()
_OPEN: set[int] = set()


def set_aside(engine: int) -> None:
    """An engine serves from now on, by a number of its own."""
    with _LOCK:
        _OPEN.add(engine)
        gc.freeze()


def put_back(engine: int) -> None:
    """It is closed; once more is once too often and changes nothing."""
    with _LOCK:
        if engine in _OPEN:
            _OPEN.discard(engine)
            if not _OPEN:
                gc.unfreeze()
