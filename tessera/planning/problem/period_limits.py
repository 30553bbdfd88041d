"""Limits of the period of a plan, as values with their own text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LimitKind(StrEnum):
    """The kind of a limit: the load of a resource, or the order of requests."""

    DEVICE = "device"
    LINK = "link"
    MEMORY = "memory"  # the bandwidth that slices of a card share
    SLOTS = "slots"
    STATE = "state"  # a request waits for the state of the previous request in its lane
    WAITING = "waiting"

    @property
    def is_load(self) -> bool:
        """Whether the limit is a load, which more slots and lanes do not change."""
        return self in (LimitKind.DEVICE, LimitKind.LINK, LimitKind.MEMORY)


@dataclass(frozen=True, slots=True)
class Limit:
    """A lower limit of the period; `name` is that of the device, link, memory or state."""

    kind: LimitKind
    name: str
    ns: float

    @property
    def text(self) -> str:
        """The name of the limit in reports."""
        match self.kind:
            case LimitKind.SLOTS:
                return "slots"
            case LimitKind.STATE:
                return f"cycle {self.name}"
            case LimitKind.WAITING:
                return "requests that wait for each other"
            case _:
                return self.name
