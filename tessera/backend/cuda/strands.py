"""The work of a request as one strand per device, for a graph over slices of one GPU.

In: actions in issue order. Out: the same steps, fills and transfers, in an order in which each
device does its own one after the other, on one stream; and the work of other strands that each has
to wait for. A graph of three queues per slice has branches that the driver maps onto queues of its
own, where what is ready waits behind what is not (decision record 0017).

Whatever the queues and events of the actions order stays ordered: by the strand, by a wait, or by
waits in a row. A transfer between devices is done by the strand of its target, right before what
needs it: then the source goes on at once (it was slower the other way round).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from tessera.backend.cuda.issue_order import Action, Do, Hold, Mark, Move
from tessera.ir.plan.launch_program import HOST, Queue

Before = dict[int, frozenset[int]]


@dataclass(frozen=True, slots=True)
class StrandWork:
    """A piece of work of a device. `after`: the numbers of what it waits for on other strands."""

    device: str
    action: Do | Move
    after: tuple[int, ...]


def strands(actions: Sequence[Action]) -> tuple[StrandWork, ...]:
    """The work of a request in order; what has to wait comes after what it waits for."""
    before = work_before(actions)
    order = _order(actions, before)
    numbers = {at: number for number, at in enumerate(order)}
    devices = [_device_of(actions[at]) for at in order]
    works: list[StrandWork] = []
    reached: list[Mapping[str, int]] = []  # by work: the last work of each strand that is done then
    last: dict[str, Mapping[str, int]] = {}
    for number, at in enumerate(order):
        device, known, after = devices[number], dict(last.get(devices[number], {})), []
        for other in sorted((numbers[earlier] for earlier in before[at]), reverse=True):
            if known.get(devices[other], -1) < other:
                after.append(other)
                for name, done in reached[other].items():
                    known[name] = max(known.get(name, -1), done)
        known[device] = number
        last[device] = known
        reached.append(known)
        action = actions[at]
        assert isinstance(action, Do | Move)
        works.append(StrandWork(device, action, tuple(after)))
    return tuple(works)


def _device_of(action: Action) -> str:
    """The device whose strand does some work."""
    if not isinstance(action, Move):
        return action.device
    transfer = action.transfer
    return transfer.source if transfer.target == HOST else transfer.target


def work_before(actions: Sequence[Action]) -> Before:
    """By step, fill and transfer: the work that queues and events put right before it."""
    before: Before = {}
    queues: dict[tuple[str, Queue], frozenset[int]] = {}
    events: dict[tuple[str, int], frozenset[int]] = {}
    nothing = frozenset[int]()
    for at, action in enumerate(actions):
        match action:
            case Do(device):
                ends = [(device, Queue.COMPUTE)]
            case Move(transfer):
                both = (transfer.source, Queue.OUT), (transfer.target, Queue.IN)
                ends = [end for end in both if end[0] != HOST]
            case Mark(device, queue, event):
                events[device, int(event)] = queues.get((device, queue), nothing)
                continue
            case Hold(device, queue, event):
                awaited = events[device, int(event)]
                queues[device, queue] = queues.get((device, queue), nothing) | awaited
                continue
            case _:
                assert_never(action)
        before[at] = nothing.union(*(queues.get(end, nothing) for end in ends))
        queues.update({end: frozenset([at]) for end in ends})
    return before


def _order(actions: Sequence[Action], before: Before) -> list[int]:
    """All work, each after what is before it; transfers to devices when work needs them."""
    order: list[int] = []
    left = dict.fromkeys(before)
    is_late = {
        at: isinstance(action, Move) and action.transfer.target != HOST
        for at, action in enumerate(actions)
    }
    for at in sorted(before, key=lambda at: is_late[at]):
        needed, taken = [at], set[int]()
        while needed:
            current = needed.pop()
            if current in left:
                del left[current]
                taken.add(current)
                needed += before[current]
        order += sorted(taken)
    return order
