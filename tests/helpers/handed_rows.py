"""Sequences that begin in one replica and go on in another, whose numbers tell every mistake.

A row of either state holds a number that every token of its sequence has changed. The two states
are on different devices of the first replica, and in another order on those of the second.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera.driver.run.moves import MoveHandle
from tessera.driver.run.runtime import Runtime
from tessera.ir.plan.plan import Plan
from tests.helpers.plan_files import plan_with_roles
from tests.helpers.tiny_model import KERNEL
from tests.helpers.traces import trace

ROWS = 4
LIMIT_S = 300.0
_BUFFERS = "\n".join(
    f"buffer {name} bytes={8 * ROWS} role={role} dtype=s64 shape={shape}"
    for name, role, shape in (
        ("tokens", "input", f"{ROWS}x1"),
        ("lengths", "input", f"{ROWS}"),
        ("one", "state", f"{ROWS}"),
        ("two", "state", f"{ROWS}"),
        ("next", "output", f"{ROWS}"),
        ("other", "output", f"{ROWS}"),
    )
)
_STEPS = "\n".join(
    f"launch m.step grid=1,1,1 block={ROWS},1,1 args=[{out}, tokens, lengths, {state}]"
    for out, state in (("next", "one"), ("other", "two"))
)


def roles_plan(
    placements: Sequence[str] = ("ab", "cd"), hosts: Mapping[str, str] | None = None
) -> Plan:
    """The first replica reads (trace 0), the second answers (trace 1), in two lanes each."""
    one = trace(_BUFFERS, KERNEL, _STEPS)
    first, second = map(list, placements)
    return plan_with_roles(
        [one, one],
        [[first, None], [None, second]],
        [(1.0, 0.0), (0.0, 1.0)],
        slots=2,
        lanes=2,
        hosts=hosts,
    )


def after(value: int, token: int) -> int:
    return (value * 31 + token + 3) % 10007


class Sequences:
    """What a runtime should hold: for each lane and row, the number of its sequence."""

    def __init__(self, runtime: Runtime, seed: int) -> None:
        self.runtime = runtime
        self.rng = random.Random(seed)
        self.rows: dict[int, list[int | None]] = {
            lane: [None] * ROWS for lane in range(runtime.sequences)
        }
        self.checks: list[tuple[Any, dict[int, int]]] = []

    def begin(self, lane: int) -> None:
        """A new sequence in a free row, if there is one."""
        free = [row for row, value in enumerate(self.rows[lane]) if value is None]
        if free:
            row = self.rng.choice(free)
            self.runtime.reset_states(lane, rows=row)
            self.rows[lane][row] = 0

    def step(self, lane: int) -> None:
        """A token for some rows of a lane; results are looked at in the end."""
        tokens, lengths = np.zeros((ROWS, 1), np.int64), np.zeros(ROWS, np.int64)
        wanted = {}
        for row, value in enumerate(self.rows[lane]):
            if value is not None and self.rng.random() < 0.7:
                token = self.rng.randrange(40)
                tokens[row], lengths[row] = token, 1
                self.rows[lane][row] = wanted[row] = after(value, token)
        handle = self.runtime.submit(
            {"tokens": tokens, "lengths": lengths}, sequence=lane, trace=int(lane >= 2)
        )
        self.checks.append((handle, wanted))

    def move(self, source: int, target: int) -> MoveHandle | None:
        """Hand over some rows; what is known about them goes along."""
        rows = [row for row, value in enumerate(self.rows[source]) if value is not None]
        free = [row for row, value in enumerate(self.rows[target]) if value is None]
        count = min(len(rows), len(free), self.rng.randint(1, 3))
        pairs = list(zip(self.rng.sample(rows, count), self.rng.sample(free, count), strict=True))
        if not pairs:
            return None
        for here, there in pairs:
            self.rows[target][there], self.rows[source][here] = self.rows[source][here], None
        return self.runtime.move_rows(source, target, pairs)

    def end(self, lane: int) -> None:
        for row in range(ROWS):
            if self.rng.random() < 0.5:
                self.rows[lane][row] = None

    def look(self) -> int:
        """Compare all results so far."""
        for handle, wanted in self.checks:
            result = handle.result(LIMIT_S)
            for row, value in wanted.items():
                assert int(result["next"][row]) == int(result["other"][row]) == value % 47
        count, self.checks = len(self.checks), []
        return count


def hand_rows(runtime: Runtime, seed: int, rounds: int = 30) -> int:
    """Begin, step, move and end at random, without waiting; returns how many moves there were."""
    known = Sequences(runtime, seed)
    moves: list[MoveHandle] = []
    for _ in range(rounds):
        match known.rng.randrange(6):
            case 0 | 1:
                known.begin(known.rng.randrange(2))
            case 2:
                known.step(known.rng.randrange(2))
            case 3:
                known.step(known.rng.randrange(2, 4))
            case 4:
                made = known.move(known.rng.randrange(2), known.rng.randrange(2, 4))
                moves += [made] if made is not None else []
            case _:
                known.end(known.rng.randrange(2, 4))
    for made in moves:
        assert made.result(LIMIT_S).bytes == made.hand_over.size > 0
    for lane in range(4):
        known.step(lane)
    assert known.look() >= 4
    return len(moves)
