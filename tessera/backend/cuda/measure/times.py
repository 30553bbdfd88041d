"""Measurements on one device: steps, copies, the whole trace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePair:
    """Medians in nanoseconds; `spread` is the mean distance from the median, as a fraction."""

    warm_ns: float
    cold_ns: float
    spread: float = 0.0

    def at(self, share: float) -> float:
        """The time at a `share` of the way from warm (0) to cold (1)."""
        return self.warm_ns + share * (self.cold_ns - self.warm_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """A step alone, and beside neighbours if there were any that stayed busy long enough."""

    step: int
    alone: TimePair
    beside_compute: TimePair | None = None
    beside_memory: TimePair | None = None

    def middle_ns(self) -> float:
        """One time for comparisons: beside neighbours if measured, with caches half warm."""
        beside = [pair for pair in (self.beside_compute, self.beside_memory) if pair is not None]
        pairs = beside or [self.alone]
        return sum(pair.at(0.5) for pair in pairs) / len(pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTime:
    """Times of copies of one size: `kind` is device, in (from pinned memory) or out."""

    kind: str
    bytes: int
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """All times of one device; `whole_ns` is that of all steps in a row in one graph."""

    sms: int
    clock_mhz: int
    whole_ns: float
    steps: tuple[StepTimes, ...]
    transfers: tuple[TransferTime, ...]
