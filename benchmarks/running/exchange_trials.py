"""What `exchange_ways` measures: every way at every size, requests in a queue, slices that wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from benchmarks.common import Row
from benchmarks.running.exchange_chain import Shape, Way, capture, chain, emit, launch
from benchmarks.running.exchange_slices import LONG, POINTER, Calls, Hang, Nodes, Slices, step

SIZES = (4, 1 << 16, 1 << 20)
EXCHANGES, ROUNDS = 64, 24
LAYERS, REQUESTS = 128, 4
WAYS = (
    Way("stream_alone", "streams", "none", "none", "none"),
    Way("graph_alone", "captured", "none", "none", "none"),
    Way("events_copy", "streams", "copy", "event", "event"),
    Way("events", "streams", "none", "event", "event"),
    Way("stream_words_copy", "streams", "copy", "memop", "memop"),
    Way("stream_words", "streams", "none", "memop", "memop"),
    Way("stream_words_host", "streams", "none", "memop", "memop", "host"),
    Way("stream_flags", "streams", "none", "kernel", "spin"),
    Way("graph_words_copy", "captured", "copy", "memop", "memop"),
    Way("graph_words", "captured", "none", "memop", "memop"),
    Way("graph_words_host", "captured", "none", "memop", "memop", "host"),
    Way("graph_words_push", "captured", "push", "kernel", "memop"),
    Way("graph_words_kernel", "captured", "none", "kernel", "memop"),
    Way("graph_numbered", "captured", "none", "numbered", "numbered"),
    Way("graph_flags", "captured", "none", "kernel", "spin"),
    Way("graph_flags_push", "captured", "push", "kernel", "spin"),
    Way("nodes_words_copy", "nodes", "copy", "memop", "memop"),
    Way("nodes_words", "nodes", "none", "memop", "memop"),
    Way("nodes_words_kernel", "nodes", "none", "kernel", "memop"),
    Way("one_graph_copy", "one", "copy", "edge", "edge"),
    Way("one_graph", "one", "none", "edge", "edge"),
)
BY_NAME = {way.name: way for way in WAYS}


def spread(values_us: Sequence[float] | np.ndarray[Any, Any]) -> Row:
    """A distribution, in microseconds."""
    found = np.asarray(values_us, float)
    if not found.size:
        return {}
    points = {f"p{p}": round(float(np.percentile(found, p)), 2) for p in (10, 50, 90, 99)}
    return {**points, "max": round(float(found.max()), 2), "count": int(found.size)}


def of_way(slices: Slices, way: Way) -> Row:
    """A way at every size."""
    found: Row = {"submit": way.submit, "move": way.move, "signal": way.signal, "wait": way.wait}
    for size in SIZES:
        found[str(size)] = of_size(slices, way, Shape(exchanges=EXCHANGES, size=size))
    if way.signal != "none":
        both = Shape(exchanges=EXCHANGES, size=1 << 16, both=True)
        found["both_directions_65536"] = of_size(slices, way, both)
    return found


def of_size(slices: Slices, way: Way, shape: Shape) -> Row:
    is_stream = way.submit == "streams"
    start = chain(way, shape, slices, is_gated=is_stream)
    gaps, totals, host = rounds(slices, way, shape, start)
    sides = [slices.sms(at) for at in (0, 1)]
    found: Row = {
        "gap_us": spread(gaps),
        "per_exchange_us": spread(totals),
        "work_us": shape.work_ns / 1e3,
        "host_us": {
            "per_exchange": spread(np.array(host) / shape.exchanges),
            "per_chain": spread(host),
        },
        "sms": [len(side) for side in sides],
        "shared_sms": len(sides[0] & sides[1]),
        "outside_sms": [len(side - own) for side, own in zip(sides, slices.own, strict=True)],
    }
    if is_stream:
        live = rounds(slices, way, shape, chain(way, shape, slices))
        found["live"] = {"gap_us": spread(live[0]), "per_exchange_us": spread(live[1])}
    return found


def rounds(
    slices: Slices, way: Way, shape: Shape, start: Callable[[], None]
) -> tuple[list[float], list[float], list[float]]:
    """Gaps and chains in microseconds of the GPU, and of the host per chain."""
    gaps: list[float] = []
    totals: list[float] = []
    host: list[float] = []
    for number in range(ROUNDS + 2):
        # Numbered words are never set back.
        slices.reset(1000 * number, keep_words=way.signal == "numbered" and number > 0)
        begun = time.perf_counter()
        start()
        spent = time.perf_counter() - begun
        slices.gate[0] = 1
        slices.finish()
        check(slices)
        if number < 2:
            continue
        stamps = slices.stamps(shape.steps)
        gaps += gaps_of(shape, stamps)
        totals.append((stamps[:, 1].max() - stamps[:, 0].min()) / shape.exchanges / 1e3)
        host.append(spent * 1e6)
    return gaps, totals, host


def check(slices: Slices) -> None:
    """Every word arrived, and no wait gave up."""
    faults = slices.faults()
    if any(faults.values()):
        raise RuntimeError(f"wrong words and late waits: {faults}")


def gaps_of(shape: Shape, stamps: np.ndarray[Any, Any]) -> list[float]:
    """From the end of what a step waits for to its beginning."""
    if shape.both:
        pairs = stamps.reshape(-1, 2, 2)
        waits = pairs[1:, :, 0] - pairs[:-1, :, 1].max(axis=1)[:, None]
        return [float(one) / 1e3 for one in waits.reshape(-1)]
    return [float(one) / 1e3 for one in stamps[1:, 0] - stamps[:-1, 1]]


def queued(slices: Slices, way: Way) -> Row:
    """Requests whose graphs are launched before earlier ones have ended.

    With two slots, requests take turns on two streams of each slice.
    """
    driver = slices.driver
    lowest, _ = driver.priorities()
    second = [driver.stream(lowest, green) for green in slices.greens]
    shapes = [
        Shape(
            exchanges=LAYERS,
            size=1 << 16,
            both=True,
            first_word=2 * request,
            first_time=2 * (LAYERS + 1) * request,
            first_byte=request << 16,
        )
        for request in range(REQUESTS)
    ]
    found: Row = {}
    for slots in (1, 2):
        streams = [(slices.streams, second)[request % slots] for request in range(REQUESTS)]
        begun = time.perf_counter()
        graphs = [
            graphs_of(slices, way, shape, on) for shape, on in zip(shapes, streams, strict=True)
        ]
        made_ms = (time.perf_counter() - begun) * 1e3 / REQUESTS
        pairs = [list(zip(two, on, strict=True)) for two, on in zip(graphs, streams, strict=True)]
        in_turn = [pair for two in pairs for pair in two]
        sides = [[two[at] for two in pairs] for at in (0, 1)]
        for name, order in (("in_turn", in_turn), ("a_side_first", sides[0] + sides[1])):
            late_s = 0.0 if name == "in_turn" else 0.002
            rows = [trial(slices, shapes, order, late_s, second) for _ in range(8)][2:]
            found[f"slots_{slots}_{name}"] = {
                "gap_us": spread([gap for row in rows for gap in row["gaps"]]),
                "between_requests_us": spread([one for row in rows for one in row["between"]]),
                "request_us": spread([one for row in rows for one in row["request"]]),
                "all_us_per_request": spread([row["all"] for row in rows]),
                "launch_us": spread([one for row in rows for one in row["launch"]]),
                "made_ms_per_request": round(made_ms, 2),
            }
    return found


def graphs_of(slices: Slices, way: Way, shape: Shape, streams: list[Any]) -> list[Any]:
    """The graphs of a request, uploaded."""
    if way.submit == "captured":
        graphs = capture(way, shape, slices, streams)
    else:
        nodes = Nodes(slices)
        emit(way, shape, nodes, slices)
        graphs = nodes.ready()
    for graph, stream in zip(graphs, streams, strict=True):
        slices.driver.upload_graph(graph, stream)
    return graphs


def trial(
    slices: Slices, shapes: list[Shape], order: list[tuple[Any, Any]], late_s: float, second: Any
) -> Row:
    """All requests once; the second half of the launches comes later."""
    slices.finish(*slices.streams, *second)
    slices.reset(7)
    spent = []
    for number, (graph, stream) in enumerate(order):
        if number == len(order) // 2:
            time.sleep(late_s)
        begun = time.perf_counter()
        slices.driver.launch_graph(graph, stream)
        spent.append((time.perf_counter() - begun) * 1e6)
    slices.finish(*slices.streams, *second)
    check(slices)
    stamps = slices.stamps(sum(shape.steps for shape in shapes))
    each = [stamps[one.first_time : one.first_time + one.steps] for one in shapes]
    times = [(one[:, 0].min(), one[:, 1].max()) for one in each]
    return {
        "gaps": [
            gap for one, shape in zip(each, shapes, strict=True) for gap in gaps_of(shape, one)
        ],
        "between": [(b[0] - a[1]) / 1e3 for a, b in pairwise(times)],
        "request": [(end - begin) / 1e3 for begin, end in times],
        "all": (max(t[1] for t in times) - min(t[0] for t in times)) / 1e3 / len(times),
        "launch": spent,
    }


def renumbered(slices: Slices) -> Row:
    """The host's time to give every wait of a graph another value, per node and per request."""
    nodes = Nodes(slices)
    emit(BY_NAME["nodes_words"], Shape(exchanges=LAYERS, size=4, both=True), nodes, slices)
    graphs = nodes.ready()
    set_params = slices.driver.cu.cuGraphExecBatchMemOpNodeSetParams
    spent = []
    for _ in range(12):
        begun = time.perf_counter()
        for at, node, params in nodes.waits:
            status = set_params(graphs[at], node, params)[0]
            slices.driver.check("cuGraphExecBatchMemOpNodeSetParams", status)
        spent.append((time.perf_counter() - begun) * 1e6)
    waits = len(nodes.waits)
    return {
        "waits": waits,
        "per_node_us": spread(np.array(spent[2:]) / waits),
        "all_us": spread(spent[2:]),
    }


def waiting(slices: Slices, way: Way) -> Row:
    """Beside a slice that waits for words: what goes on, and how fast it is released."""
    driver = slices.driver
    lowest, _ = driver.priorities()
    others = [[driver.stream(lowest, green) for _ in range(8)] for green in slices.greens]
    graphs = graphs_of(slices, way, Shape(exchanges=EXCHANGES, size=4), slices.streams)
    slices.reset(0)
    launch(driver, [(graphs[1], slices.streams[1])])
    time.sleep(0.02)
    found: Row = {"waits": not driver.is_idle(slices.streams[1])}
    blocked = []
    for at, streams in enumerate(others):
        for number, stream in enumerate([slices.streams[0], *streams] if at == 0 else streams):
            calls = Calls(slices, [stream, stream])
            step(calls, at)
            try:
                slices.finish(stream, most_s=0.3)
            except Hang:
                blocked.append([at, number])
    copies = [slices.copies[1], slices.rescue]
    for stream in copies:
        driver.call("cuMemcpyDtoDAsync", slices.inboxes[0][0], slices.outboxes[0][0], 65536, stream)
    try:
        slices.finish(*copies, most_s=0.3)
        found["copies_go_on"] = True
    except Hang:
        found["copies_go_on"] = False
    found |= {"streams_beside": sum(map(len, others)) + 1, "streams_blocked": blocked}
    begun = time.perf_counter()
    slices.release()
    slices.finish()
    found["released_us"] = round((time.perf_counter() - begun) * 1e6, 1)
    usual = Shape(exchanges=EXCHANGES, size=4)
    found["gap_us_afterwards"] = spread(rounds(slices, way, usual, chain(way, usual, slices))[0])
    return found


def timer(slices: Slices) -> Row:
    """The steps of the GPU's timer."""
    values = (slices.times, 512)
    Calls(slices).kernel(0, "ticks", 1, 1, values, (POINTER, LONG))
    slices.finish()
    raw = slices.driver.download(slices.times, 8 * 512).view(np.uint64).astype(np.int64)
    steps = np.diff(raw)
    return {
        "tick_ns": {"least": int(steps.min()), "median": float(np.median(steps))},
        "own_sms": [len(own) for own in slices.own],
        "shared_sms": len(slices.own[0] & slices.own[1]),
    }


TRIALS: dict[str, Callable[[Slices], Row]] = {
    "timer": timer,
    **{way.name: partial(of_way, way=way) for way in WAYS},
    "renumbered": renumbered,
    "queued_captured": partial(queued, way=BY_NAME["graph_words"]),
    "queued_nodes": partial(queued, way=BY_NAME["nodes_words"]),
    "waiting_captured": partial(waiting, way=BY_NAME["graph_words"]),
    "waiting_captured_host": partial(waiting, way=BY_NAME["graph_words_host"]),
    "waiting_nodes": partial(waiting, way=BY_NAME["nodes_words"]),
}
