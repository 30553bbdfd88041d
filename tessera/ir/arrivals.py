"""Requests from outside: their arrival times and lengths.

In: nothing. Out: frozen records that `frontend.arrivals` makes. Times are nanoseconds after the
first request.
"""

from __future__ import annotations

from dataclasses import dataclass

LATEST_NS = 1e18
"""The latest time in ns. Beyond it, a float cannot represent fractions of a microsecond."""


PIECE = 512
"""Tokens of a prompt that one of its `pieces` stands for."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request. A number of tokens, in or out, is `None` if it is unknown.

    Prompts that begin with the same `pieces` begin with the same tokens.
    """

    at_ns: int
    input_tokens: int | None = None
    output_tokens: int | None = None
    pieces: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Requests in order of arrival, at least one.

    `name` is the file or the process that they come from, `form` the format of the file.
    """

    name: str
    form: str
    requests: tuple[Arrival, ...]

    @property
    def span_ns(self) -> int:
        """The time from the first to the last request, in ns."""
        return self.requests[-1].at_ns - self.requests[0].at_ns
