"""Generated plans: every record that a `.tsp` file can hold, well formed, never meaningful."""

from __future__ import annotations

from hypothesis import strategies as st

from tessera.ir.plan.division import Cut, Division, Twin, parts_of
from tessera.ir.plan.launch_program import (
    HOST,
    PLACE_ALIGNMENT,
    Area,
    AreaKind,
    Await,
    Bytes,
    DeviceEventId,
    DeviceProgram,
    Fill,
    Free,
    Home,
    LoweredReplica,
    LoweredTrace,
    Operation,
    Place,
    Portion,
    Queue,
    Queued,
    Receive,
    Record,
    Run,
    Send,
    Transfer,
    TransferId,
)
from tessera.ir.plan.plan import (
    Baseline,
    PlacedStep,
    PlacedTrace,
    Plan,
    PlanCard,
    PlanDevice,
    PlannedTrace,
    PlannedTransfer,
    Replica,
)
from tessera.ir.program.program import BufferId, LaunchId
from tessera.ir.text_digest import text_digest

words = st.text(max_size=8)
names = st.text(min_size=1, max_size=8).filter(lambda name: name != HOST)
sizes = st.integers(0, 1 << 50)
amounts = st.floats(0, 1e15)
queues = st.sampled_from(Queue)


@st.composite
def byte_ranges(draw: st.DrawFn, least: int = 0) -> Bytes:
    """Runs of equal ranges at equal strides among odd ones."""
    found: list[tuple[int, int]] = []
    at = 0
    for _ in range(draw(st.integers(least, 4))):
        width, gap = draw(st.integers(1, 300)), draw(st.integers(1, 300))
        at += draw(st.integers(1 if found else 0, 1000))
        for _ in range(draw(st.integers(1, 6))):
            found.append((at, at + width))
            at += width + gap
    return tuple(found)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A plan that `verify_plan` has nothing to say against."""
    cards = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    devices = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    traces = draw(st.lists(names, min_size=1, max_size=2, unique=True))
    texts = [draw(st.lists(st.text(max_size=12), max_size=4)) for _ in traces]
    whole = ["".join(line.replace("\n", "") + "\n" for line in lines) for lines in texts]
    count = draw(st.integers(1, 2))
    sizes_of = [draw(st.integers(0, 4)) for _ in traces]
    divided = [draw(divisions(steps)) for steps in sizes_of]
    steps = [len(parts_of(size, own)) for size, own in zip(sizes_of, divided, strict=True)]
    return Plan(
        objective=draw(words),
        strategy=draw(words),
        period_ns=draw(amounts),
        latency_ns=draw(amounts),
        usd_per_request=draw(amounts),
        bound=draw(amounts),
        gap=draw(amounts),
        ended=draw(words),
        link=draw(words),
        machine_digest=draw(words),
        options=draw(words),
        cards=tuple(
            PlanCard(
                name=name,
                gpu=draw(words),
                arch=draw(words),
                capacity_bytes=draw(sizes),
                used_bytes=draw(sizes),
                usd_per_hour=draw(st.none() | amounts),
            )
            for name in cards
        ),
        devices=tuple(
            PlanDevice(
                name=name, card=draw(st.sampled_from(cards)), sms=draw(sizes), busy_ns=draw(amounts)
            )
            for name in devices
        ),
        traces=tuple(
            PlannedTrace(
                name=name,
                share=1.0 / len(traces),
                digest=text_digest(text),
                text=text,
                contents_digest=draw(words),
                division=division,
            )
            for name, text, division in zip(traces, whole, divided, strict=True)
        ),
        replicas=tuple(draw(replicas(tuple(devices), steps, 1.0 / count)) for _ in range(count)),
        baselines=tuple(
            Baseline(
                name=draw(words),
                period_ns=draw(amounts),
                latency_ns=draw(amounts),
                usd_per_request=draw(amounts),
                memory_bytes=draw(sizes),
            )
            for _ in range(draw(st.integers(0, 2)))
        ),
    )


@st.composite
def divisions(draw: st.DrawFn, steps: int) -> Division:
    """Cuts and twins of some of so many steps."""
    cuts: list[Cut] = []
    twins: list[Twin] = []
    for step in range(steps):
        kind = draw(st.sampled_from(["whole", "cut", "twin"]))
        if kind == "twin":
            twins.append(Twin(step, draw(st.integers(2, 3))))
        elif kind == "cut":
            parts, archs = draw(st.integers(2, 3)), draw(st.sets(names, max_size=2))
            for arch in ("", *sorted(archs)):
                inside = draw(
                    st.lists(st.integers(1, 1 << 40), min_size=parts, max_size=parts, unique=True)
                )
                axis = draw(words)
                cuts.append(Cut(step=step, axis=axis, edges=(0, *sorted(inside)), arch=arch))
    return Division(tuple(cuts), tuple(twins))


@st.composite
def replicas(draw: st.DrawFn, devices: tuple[str, ...], steps: list[int], share: float) -> Replica:
    traces = len(steps)
    slots, lanes = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    placed = tuple(draw(placements(devices, *own)) for own in enumerate(steps))
    areas = tuple(
        Area(device=device, kind=kind, bytes=1 << 30, count=copies)
        for device in devices
        for kind, copies in (
            (AreaKind.WEIGHTS, 1),
            (AreaKind.LANE, lanes),
            (AreaKind.SLOT, slots),
            (AreaKind.MODULE, 1),
        )
    )
    spots = draw(
        st.lists(
            st.tuples(st.integers(0, traces - 1), st.integers(0, 5), st.sampled_from(devices)),
            max_size=5,
            unique=True,
        )
    )
    lowered = LoweredReplica(
        devices=devices,
        slots=slots,
        lanes=lanes,
        areas=areas,
        places=tuple(draw(places(*spot)) for spot in spots),
        homes=tuple(
            Home(trace=trace, buffer=BufferId(buffer), device=device, bytes=draw(byte_ranges()))
            for trace, buffer, device in spots[:2]
        ),
        traces=tuple(draw(requests(devices, one)) for one in placed),
    )
    return Replica(
        share=share,
        slots=slots,
        lanes=lanes,
        policy=draw(st.just("")),
        traces=placed,
        lowered=lowered,
    )


@st.composite
def places(draw: st.DrawFn, trace: int, buffer: int, device: str) -> Place:
    kind = draw(st.sampled_from(AreaKind))
    first, end = 0, None
    if kind is not AreaKind.MODULE and draw(st.booleans()):
        first = draw(st.integers(0, 9)) * PLACE_ALIGNMENT
        end = draw(st.none() | st.integers(first + 1, 1 << 40))
    return Place(
        trace=trace,
        buffer=BufferId(buffer),
        device=device,
        kind=kind,
        offset=draw(st.integers(0, 1000)) * PLACE_ALIGNMENT,
        first=first,
        end=end,
    )


@st.composite
def placements(draw: st.DrawFn, devices: tuple[str, ...], trace: int, steps: int) -> PlacedTrace:
    where = st.sampled_from(devices)
    return PlacedTrace(
        trace=trace,
        steps=tuple(
            PlacedStep(
                step=step,
                name=draw(words),
                device=draw(where),
                arch=draw(words),
                predicted_ns=draw(amounts),
                error=draw(amounts),
                source=draw(words),
            )
            for step in range(steps)
        ),
        transfers=tuple(
            PlannedTransfer(
                tensor=draw(words), bytes=draw(amounts), source=draw(where), target=draw(where)
            )
            for _ in range(draw(st.integers(0, 2)))
        ),
    )


@st.composite
def requests(draw: st.DrawFn, devices: tuple[str, ...], placed: PlacedTrace) -> LoweredTrace:
    ends = draw(
        st.lists(
            st.tuples(st.sampled_from((*devices, HOST)), st.sampled_from((*devices, HOST))).filter(
                lambda pair: pair[0] != pair[1]
            ),
            max_size=4,
        )
    )
    numbers, several = (st.sets(st.integers(0, 9), min_size=1, max_size=n) for n in (1, 3))
    transfers = tuple(
        Transfer(
            id=TransferId(index),
            source=source,
            target=target,
            portions=tuple(
                Portion(BufferId(buffer), draw(byte_ranges(least=1)))
                for buffer in sorted(draw(numbers if HOST in (source, target) else several))
            ),
        )
        for index, (source, target) in enumerate(ends)
    )
    programs = tuple(
        DeviceProgram(device=name, operations=draw(operations(name, placed, transfers)))
        for name in devices
    )
    gate = draw(st.sampled_from([None, *(int(one.step) for one in placed.steps)]))
    return LoweredTrace(trace=placed.trace, transfers=transfers, programs=programs, gate=gate)


@st.composite
def operations(
    draw: st.DrawFn, device: str, placed: PlacedTrace, transfers: tuple[Transfer, ...]
) -> tuple[Queued, ...]:
    found: list[tuple[Queue, Operation]] = [
        (Queue.COMPUTE, Run(LaunchId(step.step))) for step in placed.steps if step.device == device
    ]
    found += [(Queue.OUT, Send(one.id)) for one in transfers if one.source == device]
    found += [(Queue.IN, Receive(one.id)) for one in transfers if one.target == device]
    for event in range(draw(st.integers(0, 3))):
        found.append((draw(queues), Record(DeviceEventId(event))))
        found.append((draw(queues), Await(DeviceEventId(event))))
    buffer = BufferId(draw(st.integers(0, 9)))
    if draw(st.booleans()):
        found.append((Queue.COMPUTE, Fill(buffer, draw(byte_ranges()))))
        found.append((Queue.COMPUTE, Free(buffer)))
    return tuple(Queued(queue, one) for queue, one in draw(st.permutations(found)))
