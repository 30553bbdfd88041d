"""Deadlock detection: programs that cannot end because their queues wait for each other.

In: the launch programs of a request. Out: the blocked queues, each with the operation it waits for.
A proved plan has no blocked queues, but a simulation also reads plans that are not proved.
"""

from __future__ import annotations

from tessera.ir.plan.launch_program import (
    HOST,
    Await,
    AwaitPut,
    Credit,
    LoweredTrace,
    Operation,
    Put,
    Queue,
    Receive,
    Record,
    Send,
)

_Place = tuple[str, Queue]


def blocked_queues(lowered: LoweredTrace, *, buffered: bool) -> list[tuple[str, str]]:
    """Blocked queues, such as ("a100-0 compute", "event 3"); empty for a valid program."""
    queues: dict[_Place, list[Operation]] = {
        (program.device, queue): list(program.on(queue))
        for program in lowered.programs
        for queue in Queue
    }
    at = dict.fromkeys(queues, 0)
    recorded: set[tuple[str, int]] = set()
    sent: set[int] = set()
    arrived: set[int] = set()
    held: set[int] = set()
    ends = {transfer.id: transfer for transfer in lowered.transfers}
    moved = True
    while moved:
        moved = False
        for place, operations in queues.items():
            while at[place] < len(operations):
                operation = operations[at[place]]
                match operation:
                    case Record(event):
                        recorded.add((place[0], event))
                    case Await(event) if (place[0], event) not in recorded:
                        break
                    case Send(number):
                        moved = moved or number not in sent
                        sent.add(number)
                        is_free = buffered or ends[number].target == HOST
                        if not is_free and number not in arrived:
                            break
                    case Put(number, landing):
                        if landing in held:
                            break
                        held.add(landing)
                        sent.add(number)
                    case AwaitPut(number) if number not in sent:
                        break
                    case Credit(landing):
                        held.discard(landing)
                    case Receive(number):
                        if number not in sent and ends[number].source != HOST:
                            break
                        arrived.add(number)
                at[place] += 1
                moved = True
    return [
        (f"{place[0]} {place[1].value}", _waits_for(operations[at[place]]))
        for place, operations in queues.items()
        if at[place] < len(operations)
    ]


def _waits_for(operation: Operation) -> str:
    match operation:
        case Await(event):
            return f"event {event}"
        case Put(_, landing):
            return f"landing {landing}"
        case Send(number) | Receive(number) | AwaitPut(number):
            return f"transfer {number}"
        case _:
            return "nothing"
