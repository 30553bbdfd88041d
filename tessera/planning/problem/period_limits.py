"""What keeps the period of a plan from being shorter, as values with their own text."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LimitKind(StrEnum):
    """What keeps a period from being shorter: the load of something, or how requests follow."""

    DEVICE = "device"
    LINK = "link"
    MEMORY = "memory"  # the bandwidth that slices of a card share
    SLOTS = "slots"
    STATE = "state"  # a request waits for what the one before it in its lane leaves
    WAITING = "waiting"

    @property
    def is_load(self) -> bool:
        """Whether slots and lanes do nothing about it."""
        return self in (LimitKind.DEVICE, LimitKind.LINK, LimitKind.MEMORY)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a period is not below; `name` is that of the device, link, memory or state."""

    kind: LimitKind
    name: str
    ns: float

    @property
    def text(self) -> str:
        """What reports call it."""
        match self.kind:
            case LimitKind.SLOTS:
                return "slots"
            case LimitKind.STATE:
                return f"cycle {self.name}"
            case LimitKind.WAITING:
                return "requests that wait for each other"
            case _:
                return self.name
