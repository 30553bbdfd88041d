"""A walk of one thread through a kernel: what it executes, and how often.

In: `ThreadCode`, values of special registers and parameters. Out: a `Tally`. Integers and
predicates that follow from arguments and indices are computed, everything else is unknown. A loop
is walked until two windows of it (one round or a few) took the same path with values in straight
lines; then `loop_forms` gives the number of further windows that do, and they are counted at once.
A branch on an unknown value continues the loop, and after some rounds leaves it; `sure` means that
there was none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tessera.planning.prices.integer_values import value_of
from tessera.planning.prices.loop_forms import FOREVER, LogEntry, more_windows
from tessera.planning.prices.thread_code import NEGATED, NUMBER, Source, ThreadCode, ThreadStep
from tessera.planning.prices.work_effects import descriptor_shape

_MOST_STEPS = 60_000  # walked steps; steps skipped by closed forms do not count
UNKNOWN_ROUNDS = 8
"""Rounds of a loop that ends by a value from memory, unless a caller knows better."""

_PERIODS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_MOST_ARRIVALS = 33  # two windows of the longest period
_SHORT_SKIPS = 4
_UNSETTLED, _SETTLED = -1, 2  # guards of branches on unknown values
_JUMP, _SIZE = -1, -2  # log entries that are not steps of the code

Value = int | None
INSTRUCTIONS, MEMORY, ASKED, INDEXED, SHARED, LOADS, BARRIERS, WAITS, UNITS = range(9)


@dataclass(slots=True)
class Tally:
    """The work of a thread: seven counts, then operations by unit; `walked` counts steps."""

    counts: list[float]
    sure: bool = True
    walked: int = 0


@dataclass(frozen=True, slots=True)
class _AtHead:
    """The thread at the head of a loop."""

    logged: int
    counts: list[float]
    values: list[Value]


@dataclass(slots=True)
class ThreadWalk:
    """Private and mutable. `units` are the names of the counts from `UNITS` on."""

    code: ThreadCode
    units: Mapping[str, int]
    values: list[Value]
    parameters: Mapping[str, Value]
    lane: int
    unknown_rounds: int = UNKNOWN_ROUNDS
    tally: Tally = field(init=False)
    log: list[LogEntry] = field(default_factory=list)
    arrivals: dict[int, list[_AtHead]] = field(default_factory=dict)
    rounds: dict[int, int] = field(default_factory=dict)
    skipped: set[int] = field(default_factory=set)
    short: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tally = Tally([0.0] * (UNITS + len(self.units)))

    def run(self) -> Tally:
        """Walk to the end of the kernel, or as far as allowed."""
        at = 0
        steps = self.code.steps
        while at < len(steps):
            step = steps[at]
            self.tally.walked += 1
            if self.tally.walked > _MOST_STEPS:
                self.tally.sure = False
                break
            guard = self._guard(step, at)
            at += 1
            if guard == 0:
                continue
            self._count(step)
            if step.ends:
                break
            if step.jump >= 0:
                if step.jump < at and not self._arrive(step.jump, at):
                    break
                at = step.jump
            elif step.target >= 0 or step.voided:
                self._assign(step, at - 1, guard)
        return self.tally

    def _guard(self, step: ThreadStep, at: int) -> Value:
        if step.guard < 0:
            return 1
        value = self.values[step.guard]
        if value is not None:
            taken = (value & 1) ^ step.negated
            self.log.append(LogEntry(at, taken, (), None))
            return taken
        if step.jump < 0 and not step.ends:
            self.log.append(LogEntry(at, None, (), None))
            return None
        if step.dies:
            return 1
        self.tally.sure = False
        self.rounds[at] = self.rounds.get(at, 0) + 1
        leaves = self.rounds[at] > self.unknown_rounds
        self.log.append(LogEntry(at, _SETTLED if leaves else _UNSETTLED, (), None))
        # A jump backwards goes on with its loop, one forwards leaves it.
        return int(leaves != (0 <= step.jump <= at))

    def _count(self, step: ThreadStep) -> None:
        effect, counts = step.effect, self.tally.counts
        counts[INSTRUCTIONS] += effect.instructions
        if step.simple:
            return
        counts[MEMORY] += effect.memory
        counts[LOADS] += effect.loads
        counts[BARRIERS] += effect.barriers
        counts[WAITS] += effect.waits
        asked, shared, operations = effect.asked, effect.shared, effect.operations
        indexed = effect.indexed
        if effect.size is not None:
            size = None if step.size is None else self._read(step.size)
            self.log.append(LogEntry(_SIZE, 1, (size,), None))
            if effect.descriptor:
                operations *= 0 if size is None else descriptor_shape(size)
                self.tally.sure = self.tally.sure and size is not None
            elif size is not None:
                asked, shared = min(asked, size), min(shared, size)
            elif asked == float("inf"):
                asked = shared = 0.0
            indexed = min(indexed, asked)
        counts[ASKED] += asked
        counts[INDEXED] += indexed
        counts[SHARED] += shared
        if operations:
            counts[UNITS + self.units[effect.unit]] += operations

    def _read(self, source: Source) -> Value:
        kind, number = source
        if kind == NUMBER:
            return number
        value = self.values[number]
        return value if kind != NEGATED or value is None else 1 - (value & 1)

    def _assign(self, step: ThreadStep, at: int, guard: Value) -> None:
        for place in step.voided:
            self.values[place] = None
        if step.target < 0:
            return
        read: tuple[Value, ...] = ()
        made: Value = None
        if step.special:
            made = int(self.lane == 0) if step.special == "elect" else 1
        elif step.parameter is not None:
            made = self.parameters.get(step.parameter)
        elif step.sources is not None:
            read = tuple([self._read(source) for source in step.sources])
            made = _computed(step, read)
        if guard is None and made != self.values[step.target]:
            made = None
        self.values[step.target] = made
        self.log.append(LogEntry(at, guard, read, made, step.rule))

    def _arrive(self, head: int, after: int) -> bool:
        """Return to the head of a loop, from the step before `after`; False if it is endless."""
        for inner in [one for one in self.arrivals if head < one < after]:
            del self.arrivals[inner]
        here = self.arrivals.setdefault(head, [])
        here.append(_AtHead(len(self.log), self.tally.counts[:], self.values[:]))
        for period in _PERIODS:
            if len(here) <= 2 * period:
                break
            first, middle = here[-1 - 2 * period], here[-1 - period]
            rises = _rises(first.values, middle.values, self.values)
            if rises is None:
                continue
            before = self.log[first.logged : middle.logged]
            now = self.log[middle.logged :]
            jumped = any(entry.step == _JUMP for entry in now)
            windows = more_windows(before, now, frozenset(self.skipped if jumped else ()))
            if windows >= FOREVER:
                self.tally.sure = False
                return False
            if self._pays(head, windows * period):
                self._skip(windows, middle, rises)
                self.skipped.update(entry.step for entry in now)
                self.log.append(LogEntry(_JUMP, 0, (windows,), None))
                del here[:]
                break
        if len(here) > _MOST_ARRIVALS:
            del here[0]
        return True

    def _pays(self, head: int, rounds: int) -> bool:
        """Whether a skip pays; repeatedly skipping a few rounds would hide a longer period."""
        if 0 < rounds < _MOST_ARRIVALS:
            self.short[head] = self.short.get(head, 0) + 1
            return self.short[head] <= _SHORT_SKIPS
        return rounds > 0

    def _skip(self, windows: int, since: _AtHead, rises: list[int]) -> None:
        counts = self.tally.counts
        for n, (count, before) in enumerate(zip(counts, since.counts, strict=True)):
            counts[n] = count + windows * (count - before)
        for place, rise in enumerate(rises):
            value = self.values[place]
            if rise and value is not None:
                self.values[place] = value + windows * rise


def _computed(step: ThreadStep, read: tuple[Value, ...]) -> Value:
    numbers = [value for value in read if value is not None]
    if len(numbers) < len(read):
        return None
    if step.function is None:
        return None if step.opcode is None else value_of(step.opcode, tuple(numbers))
    try:
        return step.function(*numbers)
    except ZeroDivisionError:
        return None


def _rises(first: list[Value], middle: list[Value], last: list[Value]) -> list[int] | None:
    """The increase of each value if it was the same twice; else None."""
    rises = []
    for a, b, c in zip(first, middle, last, strict=True):
        if a is None or b is None or c is None:
            if not (a is None and b is None and c is None):
                return None
            rises.append(0)
        elif b - a == c - b:
            rises.append(c - b)
        else:
            return None
    return rises
