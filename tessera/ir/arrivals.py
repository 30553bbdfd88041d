"""Requests that come from outside: when, and how long they are.

In: nothing. Out: frozen records that `frontend.arrivals` makes. Times are nanoseconds after the
first request.
"""

from __future__ import annotations

from dataclasses import dataclass

LATEST_NS = 1e18
"""Later times have no room for the parts of a microsecond that a step takes."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request. `None` tokens, in or out, are not known."""

    at_ns: int
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests in the order in which they come, at least one.

    `name` is the file or the process that they come from, `form` the format of the file.
    """

    name: str
    form: str
    requests: tuple[Arrival, ...]

    @property
    def span_ns(self) -> int:
        """The time from the first to the last."""
        return self.requests[-1].at_ns - self.requests[0].at_ns
