"""How fast bytes travel between all pairs of devices, and from and to the host.

In: a `Workshop`. Out: rows of copies and exchanges by size, and links fitted to the copies. All are
those of the backend itself, by its timeline: a trace of memcpys, each on another device, such that
one request goes over every pair; another one per device for the host.

- A copy is the median over requests. On GPUs that is the time of the copy; in processes a send and
  its receive. A link has the latency of the smallest copy, and a time per byte such that the
  largest takes what it took, as in a profile (`planning.prices.adjust_costs`).
- An exchange is the time from the end of a step to the start of the one that waits for it on the
  other device; a request goes over every pair many times. Clocks of two GPUs are known to some
  microseconds only, so there both directions of a round count as their mean. From exchanges,
  machines have their latencies (`frontend.machine.selftest_links`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tessera.backend.service import TimelineEvent
from tessera.driver.run.outcome import percentiles
from tessera.driver.selftest.document import Row, SelftestDocument
from tessera.driver.selftest.traces import TrialSize
from tessera.driver.selftest.trials import Workshop, run_whole
from tessera.ir.plan.launch_program import HOST, Queue
from tessera.ir.plan.machine import Machine

_SIZES = {
    TrialSize.SMALL: (1 << 12, 1 << 16, 1 << 20),
    TrialSize.USUAL: (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 26),
}
_EXCHANGED = (1 << 16, 4, 1 << 20)
_ROUNDS = 16
_MOST_HOPS = 512
_REQUESTS = 9
_UNTIMED = 2
_LARGE = 1 << 20


Way = tuple[str, ...]
Measure = Callable[[Workshop, SelftestDocument, int, Way], None]


def link_jobs(shop: Workshop, size: TrialSize) -> Iterator[tuple[Measure, int, Way]]:
    """What to measure: a number of bytes, and the devices along which they go."""
    names = [device.name for device in shop.ground.machine.devices]
    ways = [_circuit(names), *((name,) for name in names)]
    least, *others, most = _SIZES[size]
    copies = [(measure_copies, nbytes, way) for nbytes in (least, most, *others) for way in ways]
    yield from copies[: 2 * len(ways)]  # what a link is fitted to comes first
    for nbytes in _EXCHANGED:
        yield measure_exchanges, nbytes, ways[0]
    yield from copies[2 * len(ways) :]


def measure_copies(shop: Workshop, document: SelftestDocument, nbytes: int, way: Way) -> None:
    """Add the copies of a request that goes along a way, from the host and back to it."""
    hops = [(HOST, way[0]), (way[-1], HOST)] if len(way) == 1 else list(pairwise(way))
    if all(document.has("copies", source=a, target=b, bytes=nbytes) for a, b in hops):
        return
    done = _run_along(shop, nbytes, way)
    for source, target in hops:
        times = [_time(events, source, target, shop.ground.backend == "cpu") for events in done]
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


def measure_exchanges(shop: Workshop, document: SelftestDocument, nbytes: int, way: Way) -> None:
    """Add the exchanges of requests that go along a circuit many times."""
    hops = list(pairwise(way))
    if all(document.has("exchanges", source=a, target=b, bytes=nbytes) for a, b in hops):
        return
    rounds = max(1, min(_ROUNDS, _MOST_HOPS // len(hops)))
    done = _run_along(shop, nbytes, way[:-1] * rounds + way[:1])
    gaps: dict[tuple[str, str], list[float]] = {hop: [] for hop in hops}
    for events in done:
        for number, gap in enumerate(exchange_gaps(events)):
            gaps[hops[number % len(hops)]].append(gap)
    card_of = {device.name: device.card for device in shop.ground.machine.devices}
    for (source, target), there in gaps.items():
        times = there
        if shop.ground.backend == "cuda" and card_of[source] != card_of[target]:
            times = [sum(both) / 2 for both in zip(there, gaps[target, source], strict=True)]
        ranks = percentiles([round(max(ns, 0.0)) for ns in times])
        row: Row = {"source": source, "target": target, "bytes": nbytes, "ns": ranks["p50"]}
        row |= {"p90_ns": ranks["p90"], "p99_ns": ranks["p99"], "count": len(times)}
        if not document.has("exchanges", source=source, target=target, bytes=nbytes):
            document.add("exchanges", row)


def exchange_gaps(events: Sequence[TimelineEvent]) -> list[float]:
    """From the end of each step of a request to the start of the next one."""
    steps = sorted((event.step, event) for event in events if event.step is not None)
    return [after.start_ns - before.end_ns for (_, before), (_, after) in pairwise(steps)]


def _run_along(shop: Workshop, nbytes: int, way: Way) -> list[Sequence[TimelineEvent]]:
    """The events of requests that go along a way, without those of the first requests."""
    name = f"moves_{len(way)}_{nbytes}"
    trace, placed = shop.folder / f"{name}.ptx", shop.folder / f"{name}.place"
    trace.write_text(_trace(len(way), nbytes), "utf-8")
    placed.write_text("".join(f"#{at}={device}\n" for at, device in enumerate(way)), "utf-8")
    plan = shop.plan(str(trace), placement=str(placed), slots=1, sequences=1)
    count = _UNTIMED + (_REQUESTS if nbytes <= _LARGE else 5)
    outcome = run_whole(shop.prepare(plan, count, timeline=True))
    return [outcome.done[request].events for request in sorted(outcome.done)[_UNTIMED:]]


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


def _number(value: object) -> int:
    return int(str(value))
