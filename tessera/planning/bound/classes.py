"""Tasks that are alike: equal times, equal neighbours.

In: a `Problem`. Out: a class per task. A model repeats its layers, and what can be said of one of
them can be said of all: `bound.counts` branches on how many tasks of a class are on a device.
Any partition into classes is right there; one that follows the layers is fast.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tessera.planning.problem.problem import Problem


def classes_of(problem: Problem, rounds: int = 1, *, by_time: bool = True) -> tuple[int, ...]:
    """Per task its class, numbered by first appearance.

    Tasks are told apart by where they can run, by their times to three digits if `by_time`, and in
    each round by the classes of the tasks they share tensors with.
    """
    numbers = _numbered(
        [
            (task.phase, task.allowed(), tuple(map(_digits, task.ns)) if by_time else ())
            for task in problem.tasks
        ]
    )
    for _ in range(rounds):
        seen: list[list[Hashable]] = [[] for _ in problem.tasks]
        for tensor in problem.tensors:
            readers = tuple(sorted(numbers[task] for task in set(tensor.consumers)))
            shape = (tensor.bytes, tensor.count, numbers[tensor.producer], readers)
            seen[tensor.producer].append((0, *shape))
            for task in set(tensor.consumers):
                seen[task].append((1, *shape))
        numbers = _numbered(
            [(number, tuple(sorted(seen[task], key=repr))) for task, number in enumerate(numbers)]
        )
    return tuple(numbers)


def _digits(ns: float | None) -> str:
    return "" if ns is None else f"{ns:.3g}"


def _numbered(colours: Sequence[Hashable]) -> list[int]:
    known: dict[Hashable, int] = {}
    return [known.setdefault(colour, len(known)) for colour in colours]
