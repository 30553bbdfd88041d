"""How fast bytes travel between all pairs of devices, and from and to the host.

In: a `Workshop`. Out: rows of copies by size, and links fitted to them. Copies are those of the
backend itself: a trace of memcpys, each on another device, such that one request goes over every
pair once; another one per device for the host. What the timeline says of transfers is taken, the
median over requests. On GPUs that is the time of the copy; in processes a send and its receive.

A link has the latency of the smallest copy, and a time per byte such that the largest takes what it
took, as links between slices have in a profile (`planning.prices.adjust_costs`).
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from tessera.backend.service import TimelineEvent
from tessera.driver.selftest.document import Row, SelftestDocument
from tessera.driver.selftest.traces import TrialSize
from tessera.driver.selftest.trials import Workshop, run_whole
from tessera.ir.plan.launch_program import HOST, Queue
from tessera.ir.plan.machine import Link, Machine

_SIZES = {
    TrialSize.SMALL: (1 << 12, 1 << 16, 1 << 20),
    TrialSize.USUAL: (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
}
_REQUESTS = 9
_UNTIMED = 2
_LARGE = 1 << 20


def copy_jobs(shop: Workshop, size: TrialSize) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The copies to run: a number of bytes, and the devices along which they go."""
    names = [device.name for device in shop.ground.machine.devices]
    ways = [_circuit(names), *((name,) for name in names)]
    least, *others, most = _SIZES[size]
    for nbytes in (least, most, *others):  # what a link is fitted to comes first
        for way in ways:
            yield nbytes, way


def measure_copies(
    shop: Workshop, document: SelftestDocument, nbytes: int, way: Sequence[str]
) -> None:
    """Add the copies of a request that goes along a way, from the host and back to it."""
    hops = [(HOST, way[0]), (way[-1], HOST)] if len(way) == 1 else list(pairwise(way))
    if all(document.has("copies", source=a, target=b, bytes=nbytes) for a, b in hops):
        return
    name = f"copies_{len(way)}_{nbytes}"
    trace, placed = shop.folder / f"{name}.ptx", shop.folder / f"{name}.place"
    trace.write_text(_trace(len(way), nbytes), "utf-8")
    placed.write_text("".join(f"#{at}={device}\n" for at, device in enumerate(way)), "utf-8")
    plan = shop.plan(str(trace), placement=str(placed), slots=1, sequences=1)
    count = _UNTIMED + (_REQUESTS if nbytes <= _LARGE else 5)
    outcome = run_whole(shop.prepare(plan, count, timeline=True))
    for source, target in hops:
        times = [
            _time(outcome.done[request].events, source, target, shop.ground.backend == "cpu")
            for request in sorted(outcome.done)[_UNTIMED:]
        ]
        row: Row = {
            "source": source,
            "target": target,
            "bytes": nbytes,
            "ns": round(statistics.median(times), 1),
            "least_ns": min(times),
            "most_ns": max(times),
        }
        if not document.has("copies", source=source, target=target, bytes=nbytes):
            document.add("copies", row)


def _time(events: Sequence[TimelineEvent], source: str, target: str, is_buffered: bool) -> int:
    """Nanoseconds of the one transfer from a source to a target."""
    sent = [e for e in events if (e.device, e.queue, e.peer) == (source, Queue.OUT, target)]
    got = [e for e in events if (e.device, e.queue, e.peer) == (target, Queue.IN, source)]
    ends = [*sent, *got] if is_buffered or not sent else sent
    return sum(event.end_ns - event.start_ns for event in ends)


def _trace(steps: int, nbytes: int) -> str:
    """Memcpys in a row."""
    names = ["x", *(f"t{number}" for number in range(1, steps)), "y"]
    roles = ["input", *["temp"] * (steps - 1), "output"]
    lines = [
        f"//! buffer {name} bytes={nbytes} role={role} dtype=f32 shape={nbytes // 4}"
        for name, role in zip(names, roles, strict=True)
    ]
    lines += [f"//! memcpy {b} {a} bytes={nbytes}" for a, b in pairwise(names)]
    return "\n".join(("//! tessera.trace 1", *lines, ""))


def _circuit(names: Sequence[str]) -> tuple[str, ...]:
    """A path that goes from every device to every other once, and ends where it begins.

    Hierholzer's algorithm: walk while an edge is left, then splice in the remaining circuits.
    """
    left = {a: [b for b in reversed(names) if b != a] for a in names}
    going, done = [names[0]], []
    while going:
        if left[going[-1]]:
            going.append(left[going[-1]].pop())
        else:
            done.append(going.pop())
    return tuple(reversed(done))


# --- links -------------------------------------------------------------------------------------


def fit_links(document: SelftestDocument, machine: Machine) -> None:
    """Links by the copies that were measured, beside what the machine has without them."""
    names = {device.id: device.name for device in machine.devices}
    assumed = {(names[link.source], names[link.target]): link for link in machine.links}
    curves: dict[tuple[str, str], dict[int, float]] = {}
    for row in document.rows["copies"]:
        pair = str(row["source"]), str(row["target"])
        curves.setdefault(pair, {})[_number(row["bytes"])] = float(str(row["ns"]))
    document.rows["links"] = []
    for (source, target), times in curves.items():
        least, most = min(times), max(times)
        slope = (times[most] - times[least]) / (most - least) if most > least else 0.0
        link = assumed.get((source, target))
        document.rows["links"].append(
            {
                "source": source,
                "target": target,
                "latency_ns": times[least],
                "bytes_per_second": round(1e9 / slope, 1) if slope > 0 else None,
                "assumed_latency_ns": None if link is None else link.latency_ns,
                "assumed_bytes_per_second": None if link is None else link.bytes_per_second,
            }
        )


def with_links(machine: Machine, document: SelftestDocument) -> Machine:
    """The machine with the links that were measured; what several share is as fast as the fastest.

    Links within one GPU keep the memory that they share.
    """
    names = {device.id: device.name for device in machine.devices}
    known = {(row["source"], row["target"]): row for row in document.rows["links"]}

    def measured(link: Link) -> Link:
        row = known.get((names[link.source], names[link.target]))
        speed = None if row is None else row.get("bytes_per_second")
        latency = None if row is None else row["latency_ns"]
        if not isinstance(speed, int | float) or not isinstance(latency, int | float) or speed <= 0:
            return link
        return replace(link, bytes_per_second=float(speed), latency_ns=max(float(latency), 0.0))

    links = tuple(map(measured, machine.links))
    speeds = {(link.source, link.target): link.bytes_per_second for link in links}
    cards = {device.id: device.card for device in machine.devices}
    channels = tuple(
        channel
        if all(cards[a] == cards[b] for a, b in channel.pairs)
        else replace(channel, bytes_per_second=max(speeds[pair] for pair in channel.pairs))
        for channel in machine.channels
    )
    return replace(machine, links=links, channels=channels)


def _number(value: object) -> int:
    return int(str(value))
