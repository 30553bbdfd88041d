"""Launch programs from a few lines, for tests that write them by hand.

A line is `DEVICE QUEUE: operation; operation`. Operations are `run 0`, `fill t 0:64`, `free t`,
`send 0`, `receive 0`, `put 0 3`, `take 0 3` and `credit 3` (of landing 3), `record 0` and
`await 0`. A line `landing ID SOURCE TARGET BYTES` declares a landing, `transfer ID BUFFER SOURCE
TARGET RANGES` a transfer, `home BUFFER DEVICE RANGES` a home and `place BUFFER DEVICE OFFSET` a
place; areas follow from the places.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.plan.launch_program import (
    Area,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceEventId,
    DeviceProgram,
    Fill,
    Free,
    Home,
    Landing,
    LandingId,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Place,
    Portion,
    Put,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.program.program import BufferId, LaunchId, Program, Role

KINDS = {Role.WEIGHT: AreaKind.WEIGHTS, Role.STATE: AreaKind.LANE, Role.VARIABLE: AreaKind.MODULE}


def lowered(
    programs: Sequence[Program], *texts: str, slots: int = 1, lanes: int = 1
) -> LoweredReplica:
    """A replica with one text per trace."""
    traces, places, homes, devices, landings = [], [], [], {}, []
    for number, (program, text) in enumerate(zip(programs, texts, strict=True)):
        ids = {one.name: one.id for one in program.buffers}
        transfers, queued = [], {}
        for line in filter(None, map(str.strip, text.splitlines())):
            match line.split():
                case ["transfer", at, name, source, target, ranges]:
                    named = zip(name.split(","), ranges.split(";"), strict=True)
                    portions = tuple(Portion(ids[own], _bytes(found)) for own, found in named)
                    ends = {"source": source, "target": target}
                    transfers.append(Transfer(id=TransferId(int(at)), portions=portions, **ends))
                case ["landing", at, source, target, size]:
                    landings.append(
                        Landing(
                            id=LandingId(int(at)), source=source, target=target, bytes=int(size)
                        )
                    )
                case ["home", name, device, ranges]:
                    found = _bytes(ranges)
                    homes.append(Home(trace=number, buffer=ids[name], device=device, bytes=found))
                case ["place", name, device, offset]:
                    kind = KINDS.get(program.buffers[ids[name]].role, AreaKind.SLOT)
                    places.append(
                        Place(
                            trace=number,
                            buffer=ids[name],
                            device=device,
                            kind=kind,
                            offset=int(offset),
                        )
                    )
                case [device, _, *_]:
                    queue, _, rest = line.removeprefix(device).partition(":")
                    devices[device] = None
                    queued.setdefault(device, []).extend(
                        Queued(Queue(queue.strip()), _operation(part.split(), ids))
                        for part in rest.split(";")
                    )
        programs_of = tuple(
            DeviceProgram(device=device, operations=tuple(ops)) for device, ops in queued.items()
        )
        traces.append(LoweredTrace(trace=number, transfers=tuple(transfers), programs=programs_of))
    return LoweredReplica(
        devices=tuple(devices),
        slots=slots,
        lanes=lanes,
        places=tuple(places),
        homes=tuple(homes),
        areas=tuple(_areas(places, programs, slots, lanes)),
        traces=tuple(traces),
        landings=tuple(landings),
    )


def _areas(
    places: Sequence[Place], programs: Sequence[Program], slots: int, lanes: int
) -> list[Area]:
    ends: dict[tuple[str, AreaKind], int] = {}
    for place in places:
        end = place.offset + programs[place.trace].buffers[place.buffer].bytes
        key = (place.device, place.kind)
        ends[key] = max(ends.get(key, 0), -(-end // 256) * 256)
    counts = {AreaKind.LANE: lanes, AreaKind.SLOT: slots}
    return [
        Area(device=device, kind=kind, bytes=end, count=counts.get(kind, 1))
        for (device, kind), end in ends.items()
    ]


def _bytes(text: str) -> Bytes:
    return tuple((int(a), int(b)) for a, b in (part.split(":") for part in text.split(",")))


def _operation(words: list[str], ids: dict[str, BufferId]) -> Operation:
    match words:
        case ["put", number, landing]:
            return Put(TransferId(int(number)), LandingId(int(landing)))
        case ["take", number, landing]:
            return AwaitPut(TransferId(int(number)), LandingId(int(landing)))
        case ["credit", landing]:
            return Credit(LandingId(int(landing)))
        case ["run", step]:
            return Run(LaunchId(int(step)))
        case ["fill", name, ranges]:
            return Fill(ids[name], _bytes(ranges))
        case ["free", name]:
            return Free(ids[name])
        case ["send", number]:
            return Send(TransferId(int(number)))
        case ["receive", number]:
            return Receive(TransferId(int(number)))
        case ["record", event]:
            return Record(DeviceEventId(int(event)))
        case ["await", event]:
            return Await(DeviceEventId(int(event)))
    raise ValueError(words)
