"""A decode step in parts over two slices of an H200: by rows of graphs, and as graphs over both.

    python -m benchmarks.running.divided_h200 [-o FILE] [--layers 4] [--seconds 80]

The step is `decode8b` of `benchmarks.prediction.h200_models`: 8 sequences with 4096 tokens each, 8B
width, its first layers. In parts, products are cut by columns, attention and its cache by
sequences, in the ratio of 84 and 48 SMs; norms and gates are computed by both slices (twins). By
case, outputs and states are compared to the byte with the whole GPU's:

- `latency_us`: from `submit` to the result with nothing else under way, `period_us` per request
  with as many under way as the host loop takes
- `process_us`: processor time of all threads per request, `submit_us` of the thread that submits
- `gap_us`: from the end of a step to the start of the step on the other slice that waits for what
  it sent, by a timeline, whose stamps are two small kernels per operation; `move_us` is the copy in
  it. Exchanges that arrive while their target computes are in `hidden`, not in `gap_us`
- `allowed_us`: 1.05 of the whole GPU's latency and 8 us per exchange (a buffer that changes hands)

`rows` are rows of graphs with calls between them, `graph` is one graph over both slices with one
stream for each (`strands`). `graph_no_trail` is without marks of progress; `@2` has two slots.
`slice` is the whole step on 84 SMs.

`host`: a chain of 201 small launches in which the slices change 0, 12, 60 and 200 times, for
processor time; `more_us` is what `process_us` is above that of no transfer.

A case that fails is in the result with its reason; those that would begin too late are left out.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import traceback
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Row, arguments, machine, write
from benchmarks.prediction.h200_models import unpack
from benchmarks.running.cuda_bench import TWO, WHOLE, facts, served, start
from benchmarks.running.cuda_models import Writer
from benchmarks.running.cuda_overhead import serve
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import Bytes, Completion, TimelineEvent
from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.driver.traces import proved_kernels
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.division import Cut, Division, Twin
from tessera.ir.plan.launch_program import HOST, LoweredReplica, Queue
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, Pointer, Program, Role
from tessera.ir.program.seeded import LazyContents, Seeded, seeded_bytes
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.divide import divide

SHARE = 84 / 132
PER_LAYER = 10  # norm, qkv, rotate, attention, join, out, norm, gate and up, gate, down
# Steps of a layer that both slices do, and those of attention, which are cut by sequences.
TWINS, BY_SEQUENCE, SEQUENCES = (0, 6, 8), (2, 3, 4), 8
REQUESTS, ALONE, TIMED, MANY = 4, 60, 8, 120
TRANSFERS, CHAIN, WIDTH = (0, 12, 60, 200), 201, 4096
WAYS: dict[str, dict[str, Any]] = {
    "rows": {"spanning": False},
    "graph": {"spanning": True},
}


@dataclass(frozen=True)
class Model:
    """A trace whose buffers hold seeded numbers; weights and states are made on the GPU."""

    name: str
    program: Program
    graph: KernelGraph

    @property
    def programs(self) -> tuple[Program, ...]:
        """The trace."""
        return (self.program,)

    @property
    def graphs(self) -> tuple[KernelGraph, ...]:
        """Its graph."""
        return (self.graph,)

    def weights(self) -> Mapping[str, Bytes]:
        return self._seeded(Role.WEIGHT, 1)

    def states(self, lane: int) -> Mapping[str, Bytes]:
        return self._seeded(Role.STATE, 100 + lane)

    def _seeded(self, role: Role, seed: int) -> LazyContents:
        buffers = [buffer for buffer in self.program.buffers if buffer.role is role]
        return LazyContents({buffer.name: Seeded(buffer, seed) for buffer in buffers})

    def inputs(self, trace: int, request: int) -> dict[str, Bytes]:
        buffers = [buffer for buffer in self.programs[trace].buffers if buffer.role is Role.INPUT]
        return {buffer.name: seeded_bytes(buffer, 1000 + request) for buffer in buffers}


def graph_of(program: Program) -> KernelGraph:
    return AnalysisManager(program).get(Dependences).graph


def first_layers(layers: int) -> Program:
    """The first layers of the step; the result of the last of them is the output."""
    with tempfile.TemporaryDirectory() as folder:
        text = unpack(Path(folder))["decode8b"].read_text()
    program = read_program(Source("decode8b.ptx", text))[0]
    steps = list(program.launches())[: PER_LAYER * layers]
    given = [[a.buffer for a in step.arguments if isinstance(a, Pointer)] for step in steps]
    used = {buffer for buffers in given for buffer in buffers}
    roles = {buffer.id: buffer.role for buffer in program.buffers if buffer.id in used}
    roles[given[-1][3]] = Role.OUTPUT  # x, weight, residual, out
    # Nothing has a place for a buffer that no step is given.
    buffers = [
        replace(buffer, dtype=DataType.BF16, role=roles.get(buffer.id, Role.TEMP))
        for buffer in program.buffers
    ]
    return replace(program, steps=tuple(steps), buffers=tuple(buffers))


def division_of(program: Program) -> Division:
    """Two parts of every step but those that both slices do."""
    cuts, twins = [], []
    for number, step in enumerate(program.work()):
        at = number % PER_LAYER
        if at in TWINS:
            twins.append(Twin(number, 2))
            continue
        assert isinstance(step, Launch)
        extent = step.grid[0]
        grain = extent // SEQUENCES if at in BY_SEQUENCE else 1
        edge = round(extent * SHARE / grain) * grain
        cuts.append(Cut(step=number, axis="x", edges=(0, edge, extent)))
    return Division(tuple(cuts), tuple(twins))


# --- cases -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model, a device for each of its steps, and how requests are handed over."""

    model: Model
    places: Sequence[str]
    targets: Mapping[str, str]
    options: Mapping[str, Any]
    slots: int = 1

    def open(self, *, timeline: bool = False) -> tuple[Any, LoweredReplica]:
        """The backend, and what it runs."""
        replica = served(self.model, [self.places], self.slots, self.slots)
        backend = start(replica, self.targets, timeline=timeline, **self.options)
        return backend, replica.lowered


def step_case(
    case: Case, reference: dict[str, Any], whole: Mapping[str, Any], gaps: bool = False
) -> Row:
    """Times of a case, and whether its bytes are those of the first case."""
    begun = time.perf_counter()
    backend, lowered = case.open()
    row: Row = {"started_s": round(time.perf_counter() - begun, 2), **exchanges(lowered)}
    row["is_one_graph"] = all(r.graph is not None for r in backend.replica.ready.values())
    row["megabytes"] = {d: round(lowered.memory_bytes(d) / 1e6) for d in lowered.devices}
    dispatcher = Dispatcher(backend, slots=case.slots, lanes=case.slots)
    try:
        row |= equality(case.model, dispatcher, reference)
        row |= times(case.model, dispatcher, case.slots)
    finally:
        dispatcher.close()
    if "latency_us" in whole:
        row["over_whole"] = round(row["latency_us"] / whole["latency_us"], 4)
        row["allowed_us"] = round(1.05 * whole["latency_us"] + 8 * row["exchanges"], 1)
    return row | (gap_row(case) if gaps else {})


def exchanges(lowered: LoweredReplica) -> Row:
    """What changes hands between the devices in a request."""
    moved = [t for t in lowered.traces[0].transfers if HOST not in (t.source, t.target)]
    return {
        "exchanges": len({tuple(portion.buffer for portion in t.portions) for t in moved}),
        "transfers": len(moved),
        "bytes": sum(transfer.size for transfer in moved),
    }


def equality(model: Model, dispatcher: Dispatcher, reference: dict[str, Any]) -> Row:
    """The outputs of some requests and the states after them, against the reference.

    The first case becomes the reference.
    """
    futures = [dispatcher.submit(model.inputs(0, n), trace=0, lane=0) for n in range(REQUESTS)]
    found = {
        f"{name} of request {number}": content
        for number, future in enumerate(futures)
        for name, content in future.result(30).outputs.items()
    }
    found |= dispatcher.read_states(0)
    if not reference:
        reference |= {name: np.array(content) for name, content in found.items()}
    differ = [name for name, own in found.items() if not np.array_equal(own, reference[name])]
    outputs = [own.view(np.uint16) for name, own in found.items() if " of request " in name]
    return {
        "equal": not differ and found.keys() == reference.keys(),
        "differ": differ[:8],
        "compared_bytes": sum(own.nbytes for own in found.values()),
        # Equal bytes say little if they are all alike, or no numbers.
        "distinct_outputs": len(np.unique(np.concatenate(outputs))),
        "not_finite": int(sum(((own >> 7) & 0xFF == 0xFF).sum() for own in outputs)),
    }


def times(model: Model, dispatcher: Dispatcher, slots: int) -> Row:
    """Latency alone, then requests back to back."""
    inputs, alone = model.inputs(0, 0), []
    for _ in range(ALONE):
        begun = time.perf_counter()
        dispatcher.submit(inputs, trace=0, lane=0).result(30)
        alone.append((time.perf_counter() - begun) * 1e6)
    back_to_back = serve(dispatcher, model, slots, MANY)
    return {
        "latency_us": round(statistics.median(alone[10:]), 1),
        "latency_spread_us": spread(alone[10:]),
        "period_us": round(back_to_back["plan_us"], 1),
        "process_us": round(back_to_back["process_us"], 1),
        "submit_us": round(back_to_back["submit_us"], 1),
    }


def spread(values: Sequence[float]) -> Row:
    """Percentiles."""
    if not values:
        return {"count": 0}
    at = dict(
        zip(("p10", "p50", "p90", "p99"), np.percentile(values, (10, 50, 90, 99)), strict=True)
    )
    return {name: round(float(v), 2) for name, v in at.items()} | {
        "max": round(max(values), 2),
        "count": len(values),
    }


def gap_row(case: Case) -> Row:
    """What a timeline says of the exchanges."""
    backend, _ = case.open(timeline=True)
    dispatcher = Dispatcher(backend, slots=case.slots, lanes=case.slots)
    inputs = case.model.inputs(0, 0)
    try:
        done = [dispatcher.submit(inputs, trace=0, lane=0).result(30) for _ in range(2 + TIMED)]
    finally:
        dispatcher.close()
    found = [gap for completion in done[2:] for gap in gaps_of(completion)]
    return {
        "gap_us": spread([gap for gap, _ in found if gap is not None]),
        "move_us": spread([moved for _, moved in found]),
        "hidden": sum(gap is None for gap, _ in found),
        "timed_latency_us": round(
            statistics.median((one.ended_ns - one.started_ns) / 1e3 for one in done[2:]), 1
        ),
    }


def gaps_of(completion: Completion) -> list[tuple[float | None, float]]:
    """By step that begins after something arrived: the gap, and what the last copy took, in us.

    The gap is None if the device still computed when the last bytes arrived.
    """
    steps: dict[str, list[TimelineEvent]] = {}
    moves: dict[str, list[TimelineEvent]] = {}
    for event in sorted(completion.events, key=lambda event: event.start_ns):
        if event.queue is Queue.COMPUTE and event.step is not None:
            steps.setdefault(event.device, []).append(event)
        elif event.queue is Queue.IN and event.peer not in ("", HOST):
            moves.setdefault(event.device, []).append(event)
    found = []
    for device, arrived in moves.items():
        own = steps.get(device, [])
        starts, last = [step.start_ns for step in own], dict[int, TimelineEvent]()
        for move in arrived:
            last[bisect_left(starts, move.end_ns)] = move
        for number, move in last.items():
            others = [step.end_ns for step in steps.get(move.peer, ())]
            before = bisect_right(others, move.start_ns)
            if number == len(own) or not before:
                continue
            moved_us = (move.end_ns - move.start_ns) / 1e3
            is_late = number > 0 and own[number - 1].end_ns > move.end_ns
            gap_us = None if is_late else (starts[number] - others[before - 1]) / 1e3
            found.append((gap_us, moved_us))
    return found


def chain(transfers: int) -> tuple[Model, list[str]]:
    """Small launches, each on the result of the one before; the slices change evenly."""
    writer = Writer()
    weight = writer.buffer("scale", "weight", 1, WIDTH)
    names = [writer.buffer("x", "input", 1, WIDTH)]
    names += [writer.buffer(f"h{number % 2}", "temp", 1, WIDTH) for number in range(CHAIN - 1)]
    names += [writer.buffer("y", "output", 1, WIDTH)]
    for number in range(CHAIN):
        writer.launch("rms_norm", (1,), 128, names[number], weight, names[number + 1], WIDTH)
    program = read_program(Source("chain.ptx", writer.text()))[0]
    places = ["ab"[number * transfers // (CHAIN - 1) % 2] for number in range(CHAIN)]
    return Model("chain", program, graph_of(program)), places


def host_case(transfers: int, options: Mapping[str, Any]) -> Row:
    """Host time of a request with so many transfers."""
    model, places = chain(transfers)
    case = Case(model, places, TWO, options)
    backend, lowered = case.open()
    dispatcher = Dispatcher(backend, slots=1, lanes=1)
    try:
        serve(dispatcher, model, 1, MANY // 4)
        return {"moved": exchanges(lowered)["transfers"], **times(model, dispatcher, 1)}
    finally:
        dispatcher.close()


# --- the run -----------------------------------------------------------------------------------


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=80.0)
    given = parser.parse_args()
    begun = time.perf_counter()
    whole_program = first_layers(given.layers)
    divided = divide(whole_program, division_of(whole_program))
    launches = len(list(whole_program.work()))
    sides = ["ab"[number % 2] for number, _ in enumerate(divided.work())]
    whole = Model("whole", whole_program, graph_of(whole_program))
    parts = Model("parts", proved_kernels(divided), graph_of(divided))
    result: Row = {
        **machine(),
        "gpu": facts(),
        "layers": given.layers,
        "launches": launches,
        "launches_in_parts": len(sides),
        "prepared_s": round(time.perf_counter() - begun, 1),
        "step": {},
        "host": {},
    }

    def attempt(group: str, name: str, measure: Callable[[], Row]) -> Row:
        """One case; a failure is its result."""
        since = time.perf_counter()
        if since - begun > given.seconds:
            row: Row = {"left_out": "no time was left"}
        else:
            try:
                row = measure()
            except Exception as problem:
                where = traceback.format_exc().splitlines()[-8:]
                row = {"failed": f"{type(problem).__name__}: {problem}"[:800], "where": where}
        row["seconds"] = round(time.perf_counter() - since, 1)
        result[group][name] = row
        result["seconds"] = round(time.perf_counter() - begun, 1)
        print(group, name, row, flush=True)
        write(result, given.output)
        return row

    reference: dict[str, Any] = {}
    on_gpu = Case(whole, ["gpu"] * launches, WHOLE, {})
    base = attempt("step", "whole", partial(step_case, on_gpu, reference, {}))
    on_two = Case(parts, sides, TWO, {})
    cases = {name: replace(on_two, options=options) for name, options in WAYS.items()}
    for name, case in cases.items():
        attempt("step", name, partial(step_case, case, reference, base, gaps=True))
    for transfers in TRANSFERS:
        for name, options in WAYS.items() if transfers else [("graph", {})]:
            key = f"{name}_{transfers}"
            row = attempt("host", key, partial(host_case, transfers, options))
            least = result["host"]["graph_0"].get("process_us")
            if least is not None and "process_us" in row:
                row["more_us"] = round(row["process_us"] - least, 1)
    for name, case in {
        "graph_no_trail": replace(on_two, options={**WAYS["graph"], "trail": False}),
        **{f"{way}@2": replace(case, slots=2) for way, case in cases.items()},
        "slice": Case(whole, ["a"] * launches, TWO, {}),
    }.items():
        attempt("step", name, partial(step_case, case, reference, base))
    write(result, given.output)


if __name__ == "__main__":
    main()
