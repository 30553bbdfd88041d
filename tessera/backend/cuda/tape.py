"""A request as a list of driver calls with all their arguments ready.

In: calls one after the other, from `enqueue`. Out: a `Tape`, which makes them: once under stream
capture, to build a graph, or for every request where graphs are not used. A call knows the action
that it belongs to, so that a refusal can name it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.issue_order import Action


class QueueRow(NamedTuple):
    """The compute queue of a slot. Calls that do nothing but work there can become one graph."""

    device: str
    stream: Handle


class TapeCall(NamedTuple):
    """A driver call with its arguments; `row` if it is plain work of a compute queue."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    action: Action | None
    row: QueueRow | None = None


class Refused(Exception):
    """A call that failed while a request was handed over."""

    def __init__(self, problem: DriverError, action: Action | None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.action = action


@dataclass(slots=True)
class Tape:
    """The calls in order, and what they need to stay alive."""

    calls: list[TapeCall] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def play(self, driver: Driver) -> None:
        """Make all calls; none of them waits for the GPU."""
        for name, function, arguments, action, _ in self.calls:
            try:
                status = function(*arguments)[0]
                if status:
                    driver.check(name, status)
            except DriverError as problem:
                raise Refused(problem, action) from None
