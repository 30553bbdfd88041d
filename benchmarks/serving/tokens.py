"""Tokens of an engine against a plain loop over the same captured steps, token for token.

Used by the part `tokens` of `benchmarks.serving.h200` and by tests. The plain loop knows nothing of
engines: it seats as many sequences as a batch has rows, takes their prompts a chunk at a time, then
decodes all rows until the last has its tokens, and seats the next. The engine gets the sequences a
few at a time, so that they join and leave all the while; some end at a stop, some are given up.
What it gives must be what the loop has: whole, up to the stop, or as far as it came.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np

import tessera
from tessera.ir.program.program import Program, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt with what is asked of its answer, of `most` tokens."""

    prompt: list[int]
    most: int
    temperature: float = 0.0
    seed: int = 0

    def uniforms(self) -> list[float]:
        """The numbers by which a step draws its tokens: those of its seed, in turn."""
        source = np.random.Generator(np.random.PCG64(self.seed))
        return [float(source.random(dtype=np.float32)) for _ in range(self.most)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The two steps of a plan, as a plain loop drives them."""

    runtime: tessera.Runtime
    limit_s: float = 60.0

    def program(self, kind: str) -> tuple[int, Program]:
        for number, name in enumerate(self.runtime.traces):
            if name.endswith(kind):
                return number, self.runtime.programs[number]
        raise KeyError(kind)

    def shapes(self, kind: str) -> dict[str, tuple[int, ...]]:
        _, program = self.program(kind)
        return {b.name: b.shape or () for b in program.buffers if b.role is Role.INPUT}

    def rows(self) -> int:
        return self.shapes("decode")["tokens"][0]

    def own_blocks(self) -> int:
        """How many blocks of a cache each row gets; block 0 is nobody's."""
        _, program = self.program("decode")
        first = next(b.shape for b in program.buffers if b.role is Role.STATE and b.shape)
        return min((first[0] - 1) // self.rows(), self.shapes("decode")["blocks"][1])

    def step(self, kind: str, given: dict[str, Any]) -> list[int]:
        """The tokens of a step; inputs that it does not have are left out."""
        number, _ = self.program(kind)
        shapes = self.shapes(kind)
        types = {"temperature": np.float32, "uniform": np.float32}
        arrays = {
            name: np.asarray(given[name], types.get(name, np.int64)).reshape(shape)
            for name, shape in shapes.items()
        }
        (values,) = self.runtime.submit(arrays, trace=number).result(self.limit_s).values()
        return [int(token) for token in np.asarray(values).reshape(-1)]

    def answers(self, asked: Sequence[Asked]) -> list[list[int]]:
        """Of all sequences, as many at a time as there are rows."""
        rows = self.rows()
        made: list[list[int]] = []
        for start in range(0, len(asked), rows):
            self.runtime.reset_states(0)
            made += self._seated(asked[start : start + rows])
        return made

    def _seated(self, asked: Sequence[Asked]) -> list[list[int]]:
        rows = self.rows()
        shape = self.shapes("decode").get("blocks")
        table = np.zeros(shape or (rows, 1), np.int64)
        if shape is not None:
            own = self.own_blocks()
            table[:, :own] = 1 + np.arange(rows * own).reshape(rows, own)
        numbers = [each.uniforms() for each in asked]
        made = [[self._first(row, each, table[row])] for row, each in enumerate(asked)]
        while any(len(own) < each.most for own, each in zip(made, asked, strict=True)):
            given: dict[str, Any] = {
                name: np.zeros(rows)
                for name in ("tokens", "positions", "lengths", "temperature", "uniform")
            }
            active = [row for row, each in enumerate(asked) if len(made[row]) < each.most]
            for row, each in enumerate(asked):  # a row that is done writes its last place again
                count = len(made[row])
                given["tokens"][row] = made[row][-1]
                given["positions"][row] = len(each.prompt) + count - 1
                given["lengths"][row] = row in active
                given["temperature"][row] = each.temperature
                given["uniform"][row] = numbers[row][min(count, each.most - 1)]
            chosen = self.step("decode", given | {"blocks": table})
            for row in active:
                made[row].append(chosen[row])
        return made

    def _first(self, row: int, each: Asked, blocks: Any) -> int:
        """A prompt chunk by chunk: the first token of its answer."""
        chunk = self.shapes("prefill")["tokens"][1]
        token = 0
        for start in range(0, len(each.prompt), chunk):
            part = each.prompt[start : start + chunk]
            given = {"tokens": [*part, *[0] * (chunk - len(part))], "positions": [start]}
            given |= {"rows": [row], "lengths": [len(part)], "blocks": blocks}
            given |= {"temperature": [each.temperature], "uniform": each.uniforms()[:1]}
            (token,) = self.step("prefill", given)
        return token


def mixed(
    count: int, vocabulary: int, prompts: tuple[int, int], answers: tuple[int, int], sampled: bool
) -> list[Asked]:
    """Sequences of mixed lengths; every second one is sampled, where any is."""
    draw = random.Random(count)
    return [
        Asked(
            prompt=[draw.randrange(vocabulary) for _ in range(draw.randint(*prompts))],
            most=draw.randint(*answers),
            temperature=draw.choice((0.7, 1.0)) if sampled and number % 2 else 0.0,
            seed=number,
        )
        for number in range(count)
    ]


def by_engine(
    engine: tessera.Engine, asked: Sequence[Asked], right: Sequence[Sequence[int]], limit_s: float
) -> dict[str, Any]:
    """Ask an engine for the same, a few at a time, and compare."""
    draw = random.Random(7)
    begun = time.monotonic()
    until, at_once = begun + limit_s, 2 * len(asked) // 3
    answers, wanted = [], []
    for number, (each, whole) in enumerate(zip(asked, right, strict=True)):
        stop, left = None, None
        if number % 5 == 3:
            stop = draw.choice(list(whole[len(whole) // 2 :]))
        elif number % 7 == 4:
            left = draw.randint(1, max(len(whole) - 2, 1))
        answer = engine.submit(
            each.prompt,
            max_tokens=each.most,
            temperature=each.temperature,
            seed=each.seed,
            stop=() if stop is None else [stop],
            ignore_end=True,
        )
        answers.append(answer)
        wanted.append(list(whole) if stop is None else list(takewhile(stop.__ne__, whole)))
        if left is not None:
            answer.listen(_leaver(left))
        while sum(not own.done() for own in answers) > at_once and time.monotonic() < until:
            time.sleep(0.0005)  # others join when some have left
    given = [answer.result(limit_s) for answer in answers]
    return compared(given, wanted, [answer.ended for answer in answers]) | {
        "steps": dict(engine.steps_done),
        "handed_over_ahead": engine.steps_ahead,
        "seconds": round(time.monotonic() - begun, 2),
    }


def _leaver(left: int) -> Any:
    def listen(answer: tessera.Generation) -> None:
        if len(answer.tokens) >= left and not answer.done():
            answer.cancel()

    return listen


def compared(
    given: Sequence[Sequence[int]], wanted: Sequence[Sequence[int]], ended: Sequence[str]
) -> dict[str, Any]:
    """How many sequences and tokens are equal; an answer that was given up only as far as it is."""
    equal = tokens = same = 0
    first = None
    for number, (got, right, how) in enumerate(zip(given, wanted, ended, strict=True)):
        whole = right[: len(got)] if how == "cancelled" else right
        pairs = [a == b for a, b in zip(got, whole, strict=False)]
        tokens += len(whole)
        same += sum(pairs)
        if list(got) == list(whole):
            equal += 1
        elif first is None:
            at = pairs.index(False) if False in pairs else len(pairs)
            first = {
                "sequence": number,
                "token": at,
                "ended": how,
                "lengths": [len(got), len(whole)],
            }
    return {
        "sequences": len(given),
        "sequences_equal": equal,
        "tokens": tokens,
        "tokens_equal": same,
        "first_difference": first,
        "ended": {how: list(ended).count(how) for how in sorted(set(ended))},
        "distinct_tokens": len({token for own in wanted for token in own}),
    }
