"""Which buffers a launch is shown."""

from __future__ import annotations

from tessera.backend.processes.sight import _in_order
from tessera.ir.plan.launch_program import (
    Await,
    DeviceEventId,
    DeviceProgram,
    LoweredTrace,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    TransferId,
)
from tessera.ir.program.program import LaunchId
from tests.helpers.portions import one_portion


def there_and_back(name: str, sends: int, takes: int) -> DeviceProgram:
    event = DeviceEventId(0)
    operations = [
        Queued(Queue.IN, Receive(TransferId(takes))),
        Queued(Queue.COMPUTE, Run(LaunchId(sends))),
        Queued(Queue.COMPUTE, Record(event)),
        Queued(Queue.OUT, Await(event)),
        Queued(Queue.OUT, Send(TransferId(sends))),
    ]
    return DeviceProgram(device=name, operations=tuple(operations))


def test_what_comes_of_a_step_here_comes_after_it() -> None:
    """A receive whose bytes another device computes from what is sent here."""
    first = there_and_back("a", 0, 1)
    event = DeviceEventId(0)
    second = DeviceProgram(
        device="b",
        operations=(
            Queued(Queue.IN, Receive(TransferId(0))),
            Queued(Queue.IN, Record(event)),
            Queued(Queue.COMPUTE, Await(event)),
            Queued(Queue.COMPUTE, Run(LaunchId(1))),
            Queued(Queue.COMPUTE, Record(DeviceEventId(1))),
            Queued(Queue.OUT, Await(DeviceEventId(1))),
            Queued(Queue.OUT, Send(TransferId(1))),
        ),
    )
    transfers = tuple(
        one_portion(number, 0, source, target, ((0, 4),))
        for number, (source, target) in enumerate((("a", "b"), ("b", "a")))
    )
    lowered = LoweredTrace(trace=0, transfers=transfers, programs=(first, second))
    order = list(_in_order(lowered, first))
    assert order.index(Run(LaunchId(0))) < order.index(Receive(TransferId(1)))
    assert len(order) == 5
