"""Strands: all that queues and events order stays ordered, with few waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.backend.cuda.issue_order import Action, Do, Hold, Mark, Move, issue_order
from tessera.backend.cuda.strands import StrandWork, strands
from tessera.ir.plan.launch_program import HOST, Queue
from tests.helpers.share import least
from tests.unit.backend.cuda.test_random_placements import random_model

Key = tuple[object, ...]


def key(action: Action) -> Key:
    if isinstance(action, Move):
        return "move", int(action.transfer.id)
    assert isinstance(action, Do)
    return action.device, action.operation


def ordered_by_queues(actions: Sequence[Action]) -> set[tuple[Key, Key]]:
    """All pairs of work of which one ends before the other begins, by queues and events."""
    done: dict[object, frozenset[Key]] = {}
    pairs = set[tuple[Key, Key]]()
    for action in actions:
        match action:
            case Mark(device, queue, event):
                done[device, int(event)] = done.get((device, queue), frozenset())
            case Hold(device, queue, event):
                both = done.get((device, queue), frozenset()) | done[device, int(event)]
                done[device, queue] = both
            case Do() | Move():
                if isinstance(action, Do):
                    ends = [(action.device, Queue.COMPUTE)]
                else:
                    moved = action.transfer
                    ends = [(moved.source, Queue.OUT), (moved.target, Queue.IN)]
                    ends = [end for end in ends if end[0] != HOST]
                earlier = frozenset[Key]().union(*(done.get(end, frozenset()) for end in ends))
                pairs |= {(one, key(action)) for one in earlier}
                done.update(dict.fromkeys(ends, earlier | {key(action)}))
    return pairs


def ordered_by_strands(works: Sequence[StrandWork]) -> set[tuple[Key, Key]]:
    """The same, by the order of strands and their waits."""
    done: list[frozenset[Key]] = []
    last: dict[str, frozenset[Key]] = {}
    for work in works:
        earlier = last.get(work.device, frozenset()).union(*(done[one] for one in work.after))
        done.append(earlier | {key(work.action)})
        last[work.device] = done[-1]
    return {
        (one, key(work.action))
        for work, all_done in zip(works, done, strict=True)
        for one in all_done - {key(work.action)}
    }


def test_what_was_ordered_stays_ordered() -> None:
    """And every wait is needed: without it, some pair of work has no order."""
    waits = 0
    for seed in range(200, 200 + least(30, 10)):
        (lowered,) = random_model(seed).lowered.traces
        actions = issue_order(lowered)
        works, wanted = strands(actions), ordered_by_queues(actions)
        given = {key(action) for action in actions if isinstance(action, Do | Move)}
        assert {key(work.action) for work in works} == given
        assert len(works) == len(given)
        assert all(one < number for number, work in enumerate(works) for one in work.after)
        assert wanted <= ordered_by_strands(works)
        for number, work in enumerate(works):
            for one in work.after:
                rest = replace(work, after=tuple(other for other in work.after if other != one))
                fewer = [*works[:number], rest, *works[number + 1 :]]
                assert not wanted <= ordered_by_strands(fewer)
                waits += 1
    assert waits > least(50, 15)


def test_copies_are_made_by_the_strand_of_their_target() -> None:
    for seed in range(230, 240):
        (lowered,) = random_model(seed).lowered.traces
        for work in strands(issue_order(lowered)):
            if isinstance(work.action, Move):
                moved = work.action.transfer
                assert work.device == (moved.source if moved.target == HOST else moved.target)
