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
        """The time that far from warm to cold."""
        return self.warm_ns + share * (self.cold_ns - self.warm_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """A step alone, and beside neighbours where there are any that were busy long enough."""

    step: int
    alone: TimePair
    beside_compute: TimePair | None = None
    beside_memory: TimePair | None = None

    def middle_ns(self) -> float:
        """One number to compare by: beside neighbours if there are any, caches half warm."""
        beside = [pair for pair in (self.beside_compute, self.beside_memory) if pair is not None]
        pairs = beside or [self.alone]
        return sum(pair.at(0.5) for pair in pairs) / len(pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTime:
    """Copies of one size: `kind` is device, in (from pinned memory) or out."""

    kind: str
    bytes: int
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTimes:
    """Everything about one device; `whole_ns` is all steps, one after the other in one graph."""

    sms: int
    clock_mhz: int
    whole_ns: float
    steps: tuple[StepTimes, ...]
    transfers: tuple[TransferTime, ...]
