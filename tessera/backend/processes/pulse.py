"""Tells whether a process stands still: it gives no sign of life, and none of its threads can run.

In: a process, and its last sign of life at every look. Out: for how long it has stood still. A
process that is starved of a core is silent as well, but the system has a thread of it that could
run; so has one that waits for a disk. Such a process counts as alive until the time limit of its
request is over. Where the system does not say what threads do, every silent process counts as
alive.
"""

from __future__ import annotations

import os
from pathlib import Path

_LOOKS = 5
"""Looks without a sign of life; a look of a host that was busy itself counts once."""

_CAN_RUN = "RD"


class Pulse:
    """The signs of life of one process, looked at every `watchdog.LOOK_S` seconds."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._last: object = None
        self._looks = 0

    def stands_still(self, sign: object) -> bool:
        """Look at the last sign of life; whether the process stands still."""
        if sign != self._last:
            self._last, self._looks = sign, 0
            return False
        self._looks += 1
        return self._looks >= _LOOKS and not can_run(self._process)


def can_run(process: int) -> bool:
    """Whether a thread of the process runs, waits for a core or a disk, or nobody knows."""
    tasks = Path(f"/proc/{process}/task")
    states = []
    try:
        for task in os.listdir(tasks):
            # The name of the program, in brackets, may have brackets and spaces.
            states.append(
                (tasks / task / "stat").read_text("latin-1").rpartition(")")[2].split()[0]
            )
    except (OSError, IndexError):
        return True  # a thread has just ended, or the system is not Linux
    return any(state in _CAN_RUN for state in states)
