"""Waits that others imply go, and no others, in random programs of devices with three queues.

What is over when an operation begins is worked out here with sets of operations, not with clocks:
the same before and after; and less without any wait that is left.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    DeviceEventId,
    DeviceProgram,
    Operation,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.program.program import LaunchId
from tessera.planning.lower.waits import prune_waits

Over = dict[Operation, frozenset[Operation]]


class Programs:
    """Programs as they grow, in an order in which their operations can run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        names = ("a", "b", "c")[: self.random.choice((1, 2, 2, 3))]
        self.own: dict[str, list[Queued]] = {name: [] for name in names}
        self.events = dict.fromkeys(names, 0)
        self.transfers: list[Transfer] = []
        self.waiting: list[Transfer] = []

    def add(self, device: str, queue: Queue, operation: Operation) -> None:
        self.own[device].append(Queued(queue, operation))

    def record(self, device: str, queue: Queue) -> None:
        self.add(device, queue, Record(DeviceEventId(self.events[device])))
        self.events[device] += 1

    def transfer(self, source: str, target: str) -> Transfer:
        number = TransferId(len(self.transfers))
        self.transfers.append(Transfer(id=number, source=source, target=target, portions=()))
        return self.transfers[-1]

    def wait(self, device: str, queue: Queue, ago: int) -> None:
        """For one of the latest events."""
        if self.events[device] > ago:
            self.add(device, queue, Await(DeviceEventId(self.events[device] - 1 - ago)))

    def step(self) -> None:
        """An operation with waits before it, most often recorded."""
        rng = self.random
        device, queue = rng.choice([*self.own]), rng.choice([*Queue])
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            self.wait(device, queue, rng.randrange(4))
        here = [sent for sent in self.waiting if sent.target == device]
        other = rng.choice([HOST, *self.own])
        if queue is Queue.OUT and other not in (HOST, device):
            self.waiting.append(self.transfer(device, other))
            self.add(device, queue, Send(self.waiting[-1].id))
        elif queue is Queue.IN and here:
            self.waiting.remove(here[0])
            self.add(device, queue, Receive(here[0].id))
        elif queue is Queue.IN and other == HOST:
            self.add(device, queue, Receive(self.transfer(HOST, device).id))
        else:
            self.add(device, queue, Run(LaunchId(sum(map(len, self.own.values())))))
        if rng.random() < 0.7:
            self.record(device, queue)

    def there_and_back(self) -> None:
        """A device hears from another one what it has itself done."""
        here, there = self.random.sample([*self.own], 2)
        for source, target in ((here, there), (there, here)):
            sent = self.transfer(source, target).id
            self.add(source, Queue.OUT, Send(sent))
            if self.random.random() < 0.8:
                self.record(source, Queue.OUT)
            self.add(target, Queue.IN, Receive(sent))
            self.record(target, Queue.IN)
            self.wait(target, Queue.OUT, 0)
        for ago in range(3):
            self.wait(here, Queue.IN, ago)
        self.add(here, Queue.IN, Receive(self.transfer(HOST, here).id))


def random_programs(seed: int) -> tuple[list[DeviceProgram], list[Transfer]]:
    made = Programs(seed)
    for _ in range(made.random.choice((8, 15, 30))):
        made.step()
        if len(made.own) > 1 and made.random.random() < 0.1:
            made.there_and_back()
    programs = [DeviceProgram(device=n, operations=tuple(own)) for n, own in made.own.items()]
    return programs, made.transfers


def over(programs: list[DeviceProgram], transfers: list[Transfer]) -> Over:
    """What is surely over when each operation begins, once all queues have come to their end."""
    hosts = {transfer.id for transfer in transfers if transfer.source == HOST}
    lists = {(p.device, queue): [*p.on(queue)] for p in programs for queue in Queue}
    known = dict.fromkeys(lists, frozenset[Operation]())
    marks, begun = dict[object, frozenset[Operation]](), Over()
    while any(lists.values()):
        before = len(begun), len(marks), sum(map(len, lists.values()))
        for key, left in lists.items():
            while left:
                match operation := left[0]:
                    case Record(event):
                        marks[key[0], event] = known[key]
                    case Await(event):
                        if (key[0], event) not in marks:
                            break
                        known[key] |= marks[key[0], event]
                    case Receive(transfer) if transfer not in hosts and transfer not in marks:
                        break
                    case _:
                        begun[operation] = known[key]
                        known[key] |= {operation}
                        if isinstance(operation, Send):
                            marks[operation.transfer] = known[key]
                        elif isinstance(operation, Receive):
                            known[key] |= marks.get(operation.transfer, frozenset())
                left.pop(0)
        assert before != (len(begun), len(marks), sum(map(len, lists.values())))
    return begun


def without_each_wait(program: DeviceProgram) -> Iterator[DeviceProgram]:
    """The program without one of its waits that have something to hold up."""
    for place, (queue, operation) in enumerate((q.queue, q.operation) for q in program.operations):
        rest = program.operations[place + 1 :]
        held = [q for q in rest if q.queue is queue and not isinstance(q.operation, Await)]
        if isinstance(operation, Await) and held:
            operations = (*program.operations[:place], *rest)
            yield DeviceProgram(device=program.device, operations=operations)


@pytest.mark.parametrize("part", range(4))
def test_what_is_over_stays_and_no_wait_is_needless(part: int) -> None:
    gone = left = 0
    for seed in range(part, 160, 4):
        programs, transfers = random_programs(seed)
        pruned = [*prune_waits(programs, transfers)]
        wanted = over(programs, transfers)
        assert over(pruned, transfers) == wanted, seed
        for place, program in enumerate(pruned):
            names = [type(queued.operation).__name__ for queued in program.operations]
            gone += sum(isinstance(q.operation, Await) for q in programs[place].operations)
            gone -= names.count("Await")
            events = [
                q.operation.event for q in program.operations if isinstance(q.operation, Record)
            ]
            assert events == [*range(len(events))]
            assert {*events} == {
                q.operation.event for q in program.operations if isinstance(q.operation, Await)
            }
            for shorter in without_each_wait(program):
                left += 1
                others = [*pruned[:place], shorter, *pruned[place + 1 :]]
                assert over(others, transfers) != wanted, seed
    assert gone > 50
    assert left > 50
