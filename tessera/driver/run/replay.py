"""Which requests of a lost replica can be replayed from their inputs, and which cannot.

In: the turns of a run. Out: those to submit again, and words on the others. A request whose trace
has no states gives the same wherever it runs. One with states needs those that the requests before
it left, and they are lost with the replica; only where none of its sequence had begun, it can begin
on a replica that was started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.driver.run.schedule import Turn
from tessera.ir.program.program import Program, Role

MOST_STARTS = 3
"""So often a replica is started again."""
LOST = "TSR5072"
_MOST_SHOWN = 12


class Replays:
    """What was lost, and what becomes of it. For the threads of several replicas."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self._has_states = [
            any(buffer.role is Role.STATE for buffer in program.buffers) for program in programs
        ]
        self._begun: set[int] = set()
        self._submitted: set[int] = set()
        self._again: dict[int, str] = {}
        self._given_up: dict[str, list[int]] = {}

    def begin(self, turn: Turn) -> None:
        """A request is under way."""
        self._submitted.add(turn.request)
        if self._has_states[turn.trace]:
            self._begun.add(turn.sequence)

    def sort_out(self, unfinished: Iterable[Turn], fault: TesseraError) -> list[Turn]:
        """Those of the requests of a lost replica that can be replayed."""
        again: list[Turn] = []
        stuck: list[Turn] = []
        for turn in unfinished:
            has_begun = self._has_states[turn.trace] and turn.sequence in self._begun
            (stuck if has_begun else again).append(turn)
        self.give_up(stuck, "the states of their sequences are lost")
        for turn in again:
            if turn.request in self._submitted:
                self._again[turn.request] = str(fault.diagnostics[0].headline)
        return again

    def give_up(self, turns: Iterable[Turn], why: str) -> None:
        """These requests are not replayed."""
        for turn in turns:
            self._again.pop(turn.request, None)
            self._given_up.setdefault(why, []).append(turn.request)

    def on(self, fault: TesseraError) -> TesseraError:
        """An error with what is not replayed, and why."""
        notes = tuple(
            f"not run: {_numbers(requests)}: {why}"
            for why, requests in self._given_up.items()
            if requests
        )
        first, *others = fault.diagnostics
        first = replace(first, notes=(*first.notes, *notes))
        return TesseraError([first, *others], fault.exit_code) if notes else fault

    def warnings(self) -> tuple[Diagnostic, ...]:
        """What was replayed, by the fault that made it necessary."""
        of_fault: dict[str, list[int]] = {}
        for request, headline in sorted(self._again.items()):
            of_fault.setdefault(headline, []).append(request)
        return tuple(
            warning("TSR5073", f"replayed from their inputs: {_numbers(requests)}", notes=(why,))
            for why, requests in of_fault.items()
        )


def _numbers(requests: Sequence[int]) -> str:
    """Numbers of requests, runs of them as one."""
    runs: list[list[int]] = []
    for request in sorted(requests):
        if runs and request == runs[-1][1] + 1:
            runs[-1][1] = request
        else:
            runs.append([request, request])
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in runs]
    more = f" and {len(texts) - _MOST_SHOWN} more ranges" if len(texts) > _MOST_SHOWN else ""
    noun = "request" if len(requests) == 1 else "requests"
    return f"{noun} {', '.join(texts[:_MOST_SHOWN])}{more}"
