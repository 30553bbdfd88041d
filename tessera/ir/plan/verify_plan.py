"""Rules that hold for every plan, independent of its traces: known names, numbers in range.

In: a `Plan`. Out: flaws, each with the record at fault. A plan without flaws can be printed and
traversed safely. Whether it computes the right result is for `passes.checker.check_plan`, which
also knows the traces. Longer than 400 lines because every record of a plan has its rules
here, in the order of the text, and they share how numbers, names and ranges are checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import TypeVar

from tessera.ir.plan.division import division_flaws
from tessera.ir.plan.launch_program import (
    HOST,
    PLACE_ALIGNMENT,
    AreaKind,
    Await,
    AwaitPut,
    Bytes,
    Credit,
    DeviceProgram,
    Fill,
    Home,
    Landing,
    LoweredReplica,
    LoweredTrace,
    Place,
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
from tessera.ir.plan.plan import PlacedTrace, Plan, PlanCard, PlanDevice, PlannedTrace, Replica
from tessera.ir.program.program import BufferId
from tessera.ir.text_digest import text_digest

R = TypeVar("R")
LARGEST = (1 << 63) - 1
"""The upper limit of sizes, offsets and numbers."""

MOST_RANGES = 1 << 21
"""The most byte ranges in one plan: a short text may expand to many ranges."""

_SHARE_SLACK = 1e-6
_QUEUES = {Run: Queue.COMPUTE, Fill: Queue.COMPUTE, Send: Queue.OUT, Receive: Queue.IN}
_QUEUES |= {Put: Queue.OUT, AwaitPut: Queue.IN, Credit: Queue.IN}


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong with a record of a plan."""

    record: object
    message: str


def verify_plan(plan: Plan) -> Iterator[Flaw]:
    """All flaws, in the order of the text."""
    yield from _numbers(plan)
    named: tuple[tuple[str, tuple[PlanCard | PlanDevice, ...]], ...] = (
        ("card", plan.cards),
        ("device", plan.devices),
    )
    for kind, records in named:
        yield from _numbers_of(records)
        yield from _repeated(records, lambda record: record.name, f"a second {kind} has the name")
    cards = {card.name for card in plan.cards}
    for device in plan.devices:
        if device.card not in cards:
            yield Flaw(device, f"there is no card `{device.card}`")
        if device.name == HOST:
            yield Flaw(device, f"no device can be called `{HOST}`")
    yield from _paths(plan)
    yield from _numbers_of(plan.baselines)
    if not plan.replicas:
        yield Flaw(plan, "a plan has at least one replica")
    known = {device.name for device in plan.devices}
    for replica in plan.replicas:
        yield from _replica(replica, known, len(plan.traces))
        yield from _hand_overs(replica, plan)
    yield from _shared_weights(plan)
    if _ranges_in(plan) > MOST_RANGES:
        yield Flaw(plan, f"a plan has at most {MOST_RANGES} byte ranges")
    yield from _shares(plan)
    for number, trace in enumerate(plan.traces):
        yield from _trace(trace)
        yield from _division(trace, plan.replicas, number)
    yield from _repeated(plan.traces, lambda trace: trace.name, "a second trace has the name")


def _paths(plan: Plan) -> Iterator[Flaw]:
    """Check paths between devices and the host, and that their capacities exist."""
    yield from _numbers_of((*plan.capacities, *plan.paths))
    yield from _repeated(plan.capacities, lambda c: c.name, "a second capacity has the name")
    yield from _repeated(plan.paths, lambda p: (p.source, p.target), "a second path joins")
    ends = {HOST, *(device.name for device in plan.devices)}
    rates = {capacity.name: capacity.bytes_per_second for capacity in plan.capacities}
    for path in plan.paths:
        for name in (path.source, path.target):
            if name not in ends:
                yield Flaw(path, f"there is no device `{name}`")
        if path.source == path.target:
            yield Flaw(path, "a path joins two devices")
        if not path.bytes_per_second > 0:
            yield Flaw(path, "a path has a bandwidth above zero")
        for name in path.shares:
            if name not in rates:
                yield Flaw(path, f"there is no capacity `{name}`")
            elif rates[name] < path.bytes_per_second:
                yield Flaw(path, f"the capacity `{name}` is below the bandwidth of the path")
    joined = {(path.source, path.target) for path in plan.paths}
    for replica in plan.replicas if plan.paths else ():
        for trace in replica.lowered.traces:
            for transfer in trace.transfers:
                if (transfer.source, transfer.target) not in joined:
                    yield Flaw(transfer, "no path joins the ends of the transfer")


# --- traces and replicas -----------------------------------------------------------------------


def _trace(trace: PlannedTrace) -> Iterator[Flaw]:
    yield from _numbers(trace)
    if trace.text and not trace.text.endswith("\n"):
        yield Flaw(trace, "the text of a trace ends in a line end")
    if trace.digest != text_digest(trace.text):
        yield Flaw(trace, "the text of the trace is not the one that was planned: digests differ")


def _division(trace: PlannedTrace, replicas: Iterable[Replica], number: int) -> Iterator[Flaw]:
    """Check cuts and twins: each step is divided in one way, and has all its parts."""
    division = trace.division
    for record in (*division.cuts, *division.twins):
        yield from _numbers(record)
    for edges_of in division.cuts:
        if max(edges_of.edges, default=0) > LARGEST:
            yield Flaw(edges_of, f"`edges` is out of range: {max(edges_of.edges)}")
    placed = (p for replica in replicas for p in replica.traces if p.trace == number)
    for steps in dict.fromkeys(division.steps_of(len(p.steps)) for p in placed):
        for wrong, reason in division_flaws(division, steps):
            yield Flaw(wrong, f"step {wrong.step} cannot be divided so: {reason}")


def _shares(plan: Plan) -> Iterator[Flaw]:
    for policy in dict.fromkeys(replica.policy for replica in plan.replicas):
        group = [replica for replica in plan.replicas if replica.policy == policy]
        if not abs(sum(replica.share for replica in group) - 1.0) <= _SHARE_SLACK:
            yield Flaw(group[0], "the shares of the replicas do not add up to 1")
        yield from _trace_shares(plan, group)
    if plan.traces and not abs(sum(t.share for t in plan.traces) - 1.0) <= _SHARE_SLACK:
        yield Flaw(plan.traces[0], "the shares of the traces do not add up to 1")


def _trace_shares(plan: Plan, group: Sequence[Replica]) -> Iterator[Flaw]:
    """Check that the replicas of a policy serve all of every trace, and what follows from that."""
    known = [replica for replica in group if replica.shares]
    if not known or any(len(replica.shares) != len(plan.traces) for replica in known):
        return
    for number, trace in enumerate(plan.traces):
        served = sum(replica.serves(number) for replica in group)
        if not abs(served - 1.0) <= _SHARE_SLACK:
            yield Flaw(
                known[0],
                f"the `shares` of trace `{trace.name}` add up to {served:.6g} over the replicas "
                "that serve together: they have to add up to 1",
            )
    for replica in known:
        follows = sum(replica.own_shares([trace.share for trace in plan.traces]))
        if not abs(replica.share - follows) <= _SHARE_SLACK:
            yield Flaw(
                replica,
                f"`share` is {replica.share}, and follows from `shares` and the shares of the "
                f"traces as {follows:.6g}",
            )


def _shared_weights(plan: Plan) -> Iterator[Flaw]:
    """Check that policies, which share the weights of a device, lay them out equally."""
    seen: dict[object, tuple[str, object]] = {}
    for replica in plan.replicas:
        lowered = replica.lowered
        rows: list[tuple[object, object, object]] = [
            (area, area.device, area.bytes)
            for area in lowered.areas
            if area.kind is AreaKind.WEIGHTS
        ]
        rows += [
            (place, (place.device, place.trace, place.buffer), _layout(place))
            for place in lowered.places
            if place.kind is AreaKind.WEIGHTS
        ]
        for record, key, value in rows:
            policy, first = seen.setdefault(key, (replica.policy, value))
            if policy != replica.policy and first != value:
                yield Flaw(record, f"policies share weights, and `{policy}` has {first} here")


def _layout(place: Place) -> object:
    """What policies have to agree on: an offset, and the bytes of the buffer that are there."""
    is_whole = place.first == 0 and place.end is None
    return place.offset if is_whole else (place.offset, place.first, place.end)


def _replica(replica: Replica, known: set[str], traces: int) -> Iterator[Flaw]:
    lowered = replica.lowered
    yield from _numbers(replica)
    if min(replica.slots, replica.lanes) < 1:
        yield Flaw(replica, "a replica has at least one slot and one lane")
    if (lowered.slots, lowered.lanes) != (replica.slots, replica.lanes):
        yield Flaw(replica, "the launch programs are for other slots or lanes")
    if len(set(lowered.devices)) != len(lowered.devices) or not set(lowered.devices) <= known:
        yield Flaw(replica, "a replica names devices of the plan, each once")
    if replica.shares:
        yield from _role(replica, traces)
    elif [placed.trace for placed in replica.traces] != list(range(traces)):
        yield Flaw(replica, "a replica has one placement for each trace, in order")
    for placed in replica.traces:
        yield from _placed(placed, set(lowered.devices))
    yield from _memory(lowered, traces)
    yield from _landings(lowered)
    steps = {placed.trace: placed for placed in replica.traces}
    yield from _repeated(lowered.traces, lambda trace: trace.trace, "a second request is of trace")
    for trace in lowered.traces:
        if trace.trace not in steps:
            yield Flaw(trace, f"there is no trace {trace.trace}")
        else:
            yield from _request(trace, set(lowered.devices), steps[trace.trace])


def _role(replica: Replica, traces: int) -> Iterator[Flaw]:
    """Check the shares of traces, and that there is a placement and a request of those served."""
    shares = replica.shares
    if len(shares) != traces:
        yield Flaw(
            replica,
            f"`shares` has {len(shares)} numbers for {traces} traces: it has one for each, 0 for "
            "those that the replica does not serve",
        )
        return
    if not all(0.0 <= share <= 1.0 + _SHARE_SLACK for share in shares):
        yield Flaw(replica, "`shares` is out of range: shares are from 0 to 1")
    served = [trace for trace, share in enumerate(shares) if share > 0]
    if not served:
        yield Flaw(replica, "`shares` is 0 for every trace: leave the replica out")
    for what, found in (
        ("placement", [placed.trace for placed in replica.traces]),
        ("request", [lowered.trace for lowered in replica.lowered.traces]),
    ):
        if found != served:
            yield Flaw(
                replica,
                f"a replica has a `{what}` for each trace with a share above 0, in order, and for "
                f"no other: here {_numbered(served)}, not {_numbered(found)}",
            )


def _numbered(traces: Sequence[int]) -> str:
    return ", ".join(map(str, traces)) or "none"


def _hand_overs(replica: Replica, plan: Plan) -> Iterator[Flaw]:
    """Check that hand-overs follow a request that is served here, and go to another replica."""
    beside = [other for other in plan.replicas if other.policy == replica.policy]
    others = {name for other in beside if other is not replica for name in other.lowered.devices}
    joined = {(path.source, path.target) for path in plan.paths}
    for hand_over in replica.hand_overs:
        yield from _numbers(hand_over)
        if replica.placed(hand_over.trace) is None:
            yield Flaw(hand_over, f"the replica does not serve trace {hand_over.trace}")
        if hand_over.source not in replica.lowered.devices:
            yield Flaw(hand_over, f"there is no device `{hand_over.source}` in this replica")
        if hand_over.target not in others:
            yield Flaw(hand_over, f"no other replica has a device `{hand_over.target}`")
        if (hand_over.source, hand_over.target) not in joined:
            yield Flaw(hand_over, "no path joins the ends of the hand-over")


def _placed(placed: PlacedTrace, devices: set[str]) -> Iterator[Flaw]:
    for number, step in enumerate(placed.steps):
        yield from _numbers(step)
        if step.step != number:
            yield Flaw(step, f"step {number} is expected here: steps count from 0")
        if step.device not in devices:
            yield Flaw(step, f"there is no device `{step.device}` in this replica")
        if not step.is_possible:
            yield Flaw(step, "`alone_ns` is one to two times `predicted_ns`, `quiet_ns` no more")
    for move in placed.transfers:
        yield from _numbers(move)
        for name in (move.source, move.target):
            if name not in devices:
                yield Flaw(move, f"there is no device `{name}` in this replica")


# --- memory ------------------------------------------------------------------------------------


def _memory(lowered: LoweredReplica, traces: int) -> Iterator[Flaw]:
    sizes = {(area.device, area.kind): area.bytes for area in lowered.areas}
    copies = {AreaKind.LANE: lowered.lanes, AreaKind.SLOT: lowered.slots}
    for area in lowered.areas:
        yield from _numbers(area)
        if area.device not in lowered.devices:
            yield Flaw(area, f"there is no device `{area.device}` in this replica")
        if area.count != copies.get(area.kind, 1):
            yield Flaw(area, f"a {area.kind.value} area exists {copies.get(area.kind, 1)} times")
    yield from _repeated(
        lowered.areas, lambda area: (area.device, area.kind), "a second area is for"
    )
    for place in lowered.places:
        yield from _place(place, sizes, traces)
    yield from _repeated(
        lowered.places,
        lambda place: (place.trace, place.buffer, place.device),
        "a second place is for",
    )
    placed = {(place.trace, place.buffer, place.device) for place in lowered.places}
    for home in lowered.homes:
        yield from _home(home, placed)
    yield from _repeated(
        lowered.homes, lambda home: (home.trace, home.buffer, home.device), "a second home is for"
    )


def _place(place: Place, sizes: dict[tuple[str, AreaKind], int], traces: int) -> Iterator[Flaw]:
    yield from _numbers(place)
    size = sizes.get((place.device, place.kind))
    if place.trace >= traces:
        yield Flaw(place, f"there is no trace {place.trace}")
    if size is None:
        yield Flaw(place, f"`{place.device}` has no {place.kind.value} area")
    elif place.kind is not AreaKind.MODULE and not 0 <= place.offset <= size:
        yield Flaw(place, f"the {place.kind.value} area of `{place.device}` has {size} bytes")
    if place.kind is not AreaKind.MODULE and place.offset % PLACE_ALIGNMENT:
        yield Flaw(place, f"a place begins at a multiple of {PLACE_ALIGNMENT}")
    if place.first % PLACE_ALIGNMENT:
        yield Flaw(place, f"`first` is a multiple of {PLACE_ALIGNMENT}")
    if place.end is not None and place.end <= place.first:
        yield Flaw(place, "a place holds at least one byte: `end` is above `first`")


def _home(home: Home, placed: set[tuple[int, BufferId, str]]) -> Iterator[Flaw]:
    yield from _numbers(home)
    if (home.trace, home.buffer, home.device) not in placed:
        yield Flaw(home, f"buffer {home.buffer} has no place on `{home.device}`")
    yield from _ranges(home, home.bytes)


# --- programs ----------------------------------------------------------------------------------


def _request(trace: LoweredTrace, devices: set[str], placed: PlacedTrace) -> Iterator[Flaw]:
    transfers = {transfer.id: transfer for transfer in trace.transfers}
    yield from _repeated(
        trace.transfers, lambda transfer: transfer.id, "a second transfer has the number"
    )
    for transfer in trace.transfers:
        yield from _transfer(transfer, devices)
    yield from _repeated(trace.programs, lambda program: program.device, "a second program is for")
    ends: Counter[tuple[str, int]] = Counter()
    for program in trace.programs:
        if program.device not in devices:
            yield Flaw(program, f"there is no device `{program.device}` in this replica")
        yield from _program(program, transfers, placed, ends)
    for transfer in trace.transfers:
        for kind, name in (("send", transfer.source), ("recv", transfer.target)):
            wanted = 0 if name == HOST else 1
            if ends[kind, transfer.id] != wanted:
                count = ends[kind, transfer.id]
                yield Flaw(transfer, f"a transfer has {wanted} `{kind}` on `{name}`, not {count}")
    yield from _launched(trace, placed)
    if trace.gate is not None and trace.gate not in {int(step.step) for step in placed.steps}:
        yield Flaw(trace, f"the gate is step {trace.gate}, which is not there")


def _launched(trace: LoweredTrace, placed: PlacedTrace) -> Iterator[Flaw]:
    """Check that every step is launched once."""
    launches = Counter(
        queued.operation.step
        for program in trace.programs
        for queued in program.operations
        if isinstance(queued.operation, Run)
    )
    for step in placed.steps:
        count = launches[step.step]  # type: ignore[index]
        if count != 1:
            yield Flaw(trace, f"step {step.step} is launched {count} times")


def _transfer(transfer: Transfer, devices: set[str]) -> Iterator[Flaw]:
    yield from _numbers(transfer)
    for name in (transfer.source, transfer.target):
        if name != HOST and name not in devices:
            yield Flaw(transfer, f"there is no device `{name}` in this replica")
    if transfer.source == transfer.target:
        yield Flaw(transfer, "a transfer goes from one device to another")
    buffers = [portion.buffer for portion in transfer.portions]
    if buffers != sorted(set(buffers)):
        yield Flaw(transfer, "the buffers of a transfer are in ascending order, each once")
    if HOST in (transfer.source, transfer.target) and len(buffers) > 1:
        yield Flaw(transfer, f"a transfer from or to the host is of one buffer, not {len(buffers)}")
    if not buffers or not all(portion.bytes for portion in transfer.portions):
        yield Flaw(transfer, "a transfer moves at least one byte of each of its buffers")
    for portion in transfer.portions:
        yield from _numbers(portion, transfer)
        yield from _ranges(transfer, portion.bytes)


def _program(
    program: DeviceProgram,
    transfers: dict[TransferId, Transfer],
    placed: PlacedTrace,
    ends: Counter[tuple[str, int]],
) -> Iterator[Flaw]:
    recorded = Counter(
        q.operation.event for q in program.operations if isinstance(q.operation, Record)
    )
    for queued in program.operations:
        operation = queued.operation
        wanted = _QUEUES.get(type(operation), queued.queue)
        if queued.queue is not wanted:
            yield Flaw(queued, f"this belongs on the {wanted.value} queue")
        yield from _numbers(operation, queued)
        match operation:
            case Run(step):
                yield from _run(queued, int(step), program.device, placed)
            case Fill():
                yield from _ranges(queued, operation.bytes)
            case Send(transfer) | Receive(transfer) | Put(transfer) | AwaitPut(transfer):
                kind = "send" if isinstance(operation, Send | Put) else "recv"
                ends[kind, transfer] += 1
                yield from _end(queued, kind, transfers.get(transfer), program.device)
            case Record(event) if recorded[event] > 1:
                yield Flaw(queued, f"event {event} is recorded {recorded[event]} times")
            case Await(event) if not recorded[event]:
                yield Flaw(queued, f"event {event} is never recorded on this device")


def _run(queued: Queued, step: int, device: str, placed: PlacedTrace) -> Iterator[Flaw]:
    if step >= len(placed.steps):
        yield Flaw(queued, f"there is no step {step}")
    elif placed.steps[step].device != device:
        yield Flaw(queued, f"step {step} is placed on `{placed.steps[step].device}`")


def _end(queued: Queued, kind: str, transfer: Transfer | None, device: str) -> Iterator[Flaw]:
    if transfer is None:
        yield Flaw(queued, "there is no such transfer")
    elif device != (transfer.source if kind == "send" else transfer.target):
        yield Flaw(queued, f"the `{kind}` of transfer {transfer.id} belongs on another device")


# --- landings ----------------------------------------------------------------------------------


def _landings(lowered: LoweredReplica) -> Iterator[Flaw]:
    """Check landings and their uses; the checker covers the order of puts and credits."""
    yield from _numbers_of(lowered.landings)
    yield from _repeated(lowered.landings, lambda row: row.id, "a second landing has the number")
    landings = {landing.id: landing for landing in lowered.landings}
    for landing in lowered.landings:
        for name in (landing.source, landing.target):
            if name not in lowered.devices:
                yield Flaw(landing, f"there is no device `{name}` in this replica")
        if landing.source == landing.target:
            yield Flaw(landing, "a landing is for bytes of another device")
        if landing.bytes < 1:
            yield Flaw(landing, "a landing has room for at least one byte")
    for trace in lowered.traces:
        transfers = {transfer.id: transfer for transfer in trace.transfers}
        for program in trace.programs:
            for queued in program.operations:
                match queued.operation:
                    case Put(number, own) | AwaitPut(number, own):
                        yield from _landed(queued, transfers.get(number), landings.get(own))
                    case Credit(own):
                        known = landings.get(own)
                        if known is None or known.target != program.device:
                            yield Flaw(queued, f"there is no landing {own} here")
                    case _:
                        pass


def _landed(queued: Queued, transfer: Transfer | None, landing: Landing | None) -> Iterator[Flaw]:
    if landing is None:
        yield Flaw(queued, "there is no such landing")
    elif transfer is not None:
        if (landing.source, landing.target) != (transfer.source, transfer.target):
            yield Flaw(queued, f"landing {landing.id} is for bytes from `{landing.source}`")
        if transfer.size > landing.bytes:
            yield Flaw(
                queued, f"landing {landing.id} has {landing.bytes} bytes, not {transfer.size}"
            )


# --- parts -------------------------------------------------------------------------------------


def _numbers_of(records: Iterable[object]) -> Iterator[Flaw]:
    for record in records:
        yield from _numbers(record)


def _numbers(record: object, blamed: object | None = None) -> Iterator[Flaw]:
    """Check that numbers are finite, not negative, and fit in 63 bits."""
    for field in fields(record):  # type: ignore[arg-type]
        value = getattr(record, field.name)
        if isinstance(value, int | float) and not (isfinite(value) and 0 <= value <= LARGEST):
            yield Flaw(blamed or record, f"`{field.name}` is out of range: {value}")


def _repeated(records: Iterable[R], key: Callable[[R], object], message: str) -> Iterator[Flaw]:
    seen: set[object] = set()
    for record in records:
        value = key(record)
        if value in seen:
            yield Flaw(record, f"{message} {_named(value)}")
        seen.add(value)


def _named(key: object) -> str:
    parts = key if isinstance(key, tuple) else (key,)
    return ", ".join(f"`{getattr(part, 'value', part)}`" for part in parts)


def _ranges_in(plan: Plan) -> int:
    lowered = [replica.lowered for replica in plan.replicas]
    traces = [trace for lowered_replica in lowered for trace in lowered_replica.traces]
    count = sum(len(home.bytes) for lowered_replica in lowered for home in lowered_replica.homes)
    moves = (move for trace in traces for move in trace.transfers)
    count += sum(len(portion.bytes) for move in moves for portion in move.portions)
    queued = (q for trace in traces for program in trace.programs for q in program.operations)
    return count + sum(len(q.operation.bytes) for q in queued if isinstance(q.operation, Fill))


def _ranges(record: object, ranges: Bytes) -> Iterator[Flaw]:
    """Check that byte ranges are sorted, disjoint and never touch."""
    last = -1
    for start, end in ranges:
        if not last < start < end <= LARGEST:
            yield Flaw(record, f"byte range {start}:{end} is empty, unsorted or touches another")
            return
        last = end
