"""Counts what a call does, so that growth can be asserted on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def operations(action: Callable[[], object]) -> int:
    """The calls of Python and C functions that an action makes."""
    count = 0

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    earlier = sys.getprofile()
    sys.setprofile(see)
    try:
        action()
    finally:
        sys.setprofile(earlier)
    return count


def growth(make: Callable[[int], Callable[[], object]], size: int) -> tuple[float, float]:
    """How many times the operations grow when the size grows tenfold, twice."""
    make(size * 10)()  # what is built once per process
    counts = [operations(make(size * factor)) for factor in (1, 10, 100)]
    return counts[1] / counts[0], counts[2] / counts[1]
