"""GPU architectures: their names, which code runs where, and what one multiprocessor holds.

In: names such as `sm_90a`. Out: numbers. This is the only table of hardware limits, except for that
of the checker, which shares no code with what it checks; a test compares the two.

Source: CUDA C++ Programming Guide, table of technical specifications per compute capability; PTX
ISA, `.target`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

THREADS_PER_CTA = 1024
STATIC_SHARED_BYTES = 48 << 10
CLUSTERS_FROM = 90
WARP = 32

_NAME = re.compile(r"sm_([1-9][0-9]{0,3})([af]?)(?::([1-9][0-9]{0,3})sm)?")


@dataclass(frozen=True, slots=True)
class Architecture:
    """An architecture: `sm_90a` is number 90 with suffix `a`.

    `sm_90a:84sm` is code for `sm_90a` that is tuned for 84 SMs and also runs on other numbers of
    SMs. `sms` is 0 if the name does not say.
    """

    number: int
    suffix: str = ""
    sms: int = 0

    def runs_on(self, gpu: Architecture) -> bool:
        """Whether code for this architecture runs on a GPU of another.

        Plain code runs on its generation and later generations, `a` code only on its own, `f` code
        on later generations with the same major number.
        """
        if self.suffix == "a":
            return self.number == gpu.number
        if self.suffix == "f":
            return self.number <= gpu.number and self.number // 10 == gpu.number // 10
        return self.number <= gpu.number


@dataclass(frozen=True, slots=True)
class Limits:
    """The resources of one multiprocessor, and the most that one CTA may use."""

    threads: int
    ctas: int
    shared_kib: int
    cta_shared_kib: int

    @property
    def shared_bytes(self) -> int:
        """The shared memory of a multiprocessor, in bytes."""
        return self.shared_kib << 10

    @property
    def cta_shared_bytes(self) -> int:
        """The shared memory that one CTA may use, in bytes."""
        return self.cta_shared_kib << 10


LIMITS = {
    70: Limits(2048, 32, 96, 96),
    72: Limits(2048, 32, 96, 96),
    75: Limits(1024, 16, 64, 64),
    80: Limits(2048, 32, 164, 163),
    86: Limits(1536, 16, 100, 99),
    87: Limits(1536, 16, 164, 163),
    88: Limits(1536, 16, 100, 99),
    89: Limits(1536, 24, 100, 99),
    90: Limits(2048, 32, 228, 227),
    100: Limits(2048, 32, 228, 227),
    101: Limits(1536, 24, 228, 227),
    103: Limits(2048, 32, 228, 227),
    110: Limits(1536, 24, 228, 227),
    120: Limits(1536, 24, 100, 99),
    121: Limits(1536, 24, 100, 99),
}
# Limits of architectures older or newer than those in the table.
OLDER = Limits(2048, 32, 96, 48)
NEWER = Limits(2048, 32, 228, 227)


@lru_cache(maxsize=256)
def architecture(name: str) -> Architecture | None:
    """The architecture with a name; None if the name is not an architecture."""
    match = _NAME.fullmatch(name)
    return None if match is None else Architecture(int(match[1]), match[2], int(match[3] or 0))


def arch_number(name: str) -> int:
    """The number of an architecture: 90 for `sm_90a`; 0 if the name is not an architecture."""
    known = architecture(name)
    return 0 if known is None else known.number


def sms_of(name: str) -> int:
    """The SMs that code is tuned for: 84 for `sm_90a:84sm`; 0 if the name does not say."""
    known = architecture(name)
    return 0 if known is None else known.sms


def limits_of(name: str) -> Limits:
    """The limits of an architecture; the largest of all if it is not in the table."""
    number = arch_number(name)
    return LIMITS.get(number, OLDER if 0 < number < min(LIMITS) else NEWER)


def runs_on(code: str, gpu: str) -> bool:
    """Whether code for one architecture runs on a GPU of another; False for unknown names."""
    made, there = architecture(code), architecture(gpu)
    return made is not None and there is not None and made.runs_on(there)
