"""The paper's figures: kernel level against coarse splits, by tables and an exact program.

    python -m benchmarks.paper.figures run|show [-o FILE] [--seconds 3600] [--only NAME]

In: sizes of models (`serving_traces`, `models`), measured tables (extra `tables`). Out: a
JSON file with a row per cell, cells in the order in which they matter; a run goes on where the last
one ended. A cell is a pair of GPUs (how many on each side), a model, a batch and a mix of lengths;
each has figures for links of 25, 100 and 400 Gb/s. Figures are periods: the time between two
requests in the steady state, with as many batches under way as that takes, within memory.

- `bound`: transfers, gaps and memory free, every kind of step divided between the two at will.
- `kernel`: the best split by kernels with transfers over the link, all weights on both sides, a
  placement per request (`benchmarks.paper.split`); `kernel_alone`: the same, one batch at a time.
- `dp`, `phase`, `attention`, `layers`, `tensor`, `first`, `second`, `two_first`: what people do
  without a search; missing where it does not fit.
- `by_age`, `by_arrival`: the split with requests that wait for one another, two queue orders.

`show` writes the page with its pictures from this file, `paper_kernels.json` and
`paper_clusters.json`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from benchmarks.common import ROOT, arguments, kept, machine, write
from benchmarks.paper.models import QWEN_TEXT, mamba_trace, vision_trace
from benchmarks.paper.split import (
    Held,
    Part,
    Sides,
    best_split,
    bound,
    coarse_splits,
    queued_period,
)
from benchmarks.paper.story import write_page
from benchmarks.planning.real_traces import DECODERS
from benchmarks.planning.serving_traces import FOLDER, ServingStep, serving_trace
from tessera.driver.fleet.find_ways import tensor_way
from tessera.driver.fleet.make_fleet import offered_for, priced_model
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.ways import UnitWay, WaySearch
from tessera.driver.fleet.workload import Workload
from tessera.driver.traces import load_traces
from tessera.frontend.machine import tables
from tessera.ir.plan.costs import Costs, Duration
from tessera.ir.plan.machine import Machine
from tessera.ir.program.program import Role
from tessera.planning.prices.durations import find_costs, read_profiles
from tessera.planning.problem.plan_problem import RESERVED_BYTES, problem_of

PAIRS = ("a100,l40s", "h100,rtx-pro-6000", "b200,h100")
BATCHES = (64, 8, 256, 1)
MIXES = ((1020, 129), (4096, 512))
LINKS = {"25Gb/s": 25e9 / 8, "100Gb/s": 100e9 / 8, "400Gb/s": 400e9 / 8}
PROMPTS = 4
FEW = 4  # layers that are priced
MAMBA_LAYERS = 64
QWEN, MAMBA, IMAGES = "qwen2.5-vl-7b", "mamba2-2.7b", "mmdit"


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination; `count` GPUs on each side."""

    pair: str
    model: str
    batch: int
    mix: tuple[int, int]
    count: int = 1

    @property
    def name(self) -> str:
        """Its key in the file."""
        sides = f"{self.count}+{self.count}"
        lengths = f"{self.mix[0]}/{self.mix[1]}"
        return f"{self.pair} {sides} {self.model} b{self.batch} {lengths}"


def cells() -> list[Cell]:
    """All cells, those that matter most first."""
    small = ("llama-8b", "gpt-oss-20b")
    made = [Cell(p, m, b, MIXES[0]) for b in BATCHES for m in small for p in PAIRS]
    made += [Cell(p, "llama-70b", b, MIXES[0], 4) for b in BATCHES[:2] for p in PAIRS]
    made += [Cell(p, m, b, MIXES[1]) for b in BATCHES for m in small for p in PAIRS]
    made += [Cell(p, m, b, MIXES[0]) for m in (QWEN, MAMBA) for b in BATCHES for p in PAIRS]
    made += [Cell(p, IMAGES, b, (0, 0)) for b in (1, 4) for p in PAIRS]
    made += [Cell(p, "llama-70b", b, MIXES[0], 8) for b in BATCHES[:2] for p in PAIRS]
    made += [Cell(p, "llama-70b", BATCHES[0], MIXES[1], 4) for p in PAIRS]
    return made


# --- parts of a request ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A model on one GPU of each kind: parts of a request, and bytes."""

    parts: tuple[Part, ...]
    held: Held
    machine: Machine
    offered: Offered


def _layers_of(cell: Cell) -> int:
    if cell.model == MAMBA:
        return MAMBA_LAYERS
    return (QWEN_TEXT if cell.model == QWEN else DECODERS[cell.model]).layers


def _traces(cell: Cell, context: int, layers: int, rows: int | None = None) -> list[str]:
    """The texts of its decode and prefill steps; caches have `rows` rows, or those of the step."""
    if cell.model == MAMBA:
        return [
            mamba_trace(cell.batch, 1, layers, rows),
            mamba_trace(PROMPTS, cell.mix[0], layers, rows),
        ]
    sizes = (
        ("decode", cell.batch, 1, context),
        ("prefill", PROMPTS, cell.mix[0], max(context, cell.mix[0])),
    )
    with mock.patch.dict(DECODERS, {QWEN: QWEN_TEXT}):
        return [
            serving_trace(
                ServingStep(
                    model=cell.model,
                    phase=phase,
                    batch=batch,
                    tokens=tokens,
                    rows=rows or batch,
                    capacity=capacity,
                ),
                layers=layers,
            )
            for phase, batch, tokens, capacity in sizes
        ]


def steps_of(cell: Cell, layers: int) -> tuple[ServedModel, Offered]:
    """The steps of its model with `layers` layers, on one GPU of each kind."""
    options = _options(cell)
    offered = offered_for(options)
    texts = _traces(cell, round(Workload(lengths=(cell.mix,)).context), layers)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in zip(("decode", "prefill"), texts, strict=True):
            path = Path(folder, f"{name}.ptx")
            path.write_text(text)
            paths.append(str(path))
        model, _ = priced_model(paths, options, offered)
    return model, offered


def price(cell: Cell) -> Priced:
    """The parts of a request of a cell, with times by the tables.

    Layers are alike: four are read, analysed and priced, and the two in the middle come again.
    """
    if cell.model == IMAGES:
        return _plain(cell, (FOLDER / "mmdit.ptx").read_text(), 1.0)
    work = Workload(lengths=(cell.mix,))
    model, offered = steps_of(cell, FEW)
    more = (_layers_of(cell) - FEW) // 2
    decode, prefill = model.decode[-1], model.prefill[-1]
    reads = work.prompt / (prefill.rows * prefill.tokens)
    makes = max(work.answer - 1, 0.0) / decode.rows
    scale = work.context / decode.context
    parts = [_part(prefill, reads, 1.0).repeated(more), _part(decode, makes, scale).repeated(more)]
    weights = float(sum(model.weight_bytes.values()))
    middle = [size for name, size in model.weight_bytes.items() if _is_in_middle(name)]
    weights += more * float(sum(middle))
    if cell.model == QWEN:
        seen = _plain(cell, vision_trace(PROMPTS), reads)
        parts[0] = _joined(seen.parts[0], parts[0])
        weights += seen.held.weights
    each = work.prompt + work.answer
    names = [(label, label.partition("@")[0]) for label in parts[1].caches]
    tokens, rows = model.token_bytes, model.row_bytes
    held = Held(
        weights=weights,
        batch={
            label: (tokens.get(n, 0.0) * each + rows.get(n, 0.0)) * cell.batch for label, n in names
        },
        handed={label: tokens.get(n, 0.0) * work.prompt + rows.get(n, 0.0) for label, n in names},
    )
    return Priced(parts=tuple(parts), held=held, machine=offered.machine, offered=offered)


def _is_in_middle(name: str) -> bool:
    return name.startswith(("l1.", "l2."))


def _options(cell: Cell) -> FleetOptions:
    if not all(cell.mix):
        return FleetOptions(gpus=cell.pair, tokens=(1, 1))
    # A state-space model has no attention that would say it.
    context = cell.mix[0] if cell.model == MAMBA else None
    return FleetOptions(gpus=cell.pair, tokens=cell.mix, context=context)


def _part(step: ModelStep, share: float, scale: float) -> Part:
    """A step as a part; what attention takes goes with the context."""
    ns = tuple(
        tuple((t or 0.0) * (scale if attends else 1.0) for t in row)
        for row, attends in zip(step.ns, step.attends, strict=True)
    )
    return Part(
        ns=ns,  # type: ignore[arg-type]
        tensors=step.tensors,
        caches=step.users(Role.STATE),
        attends=step.attends,
        share=share,
        sources=_sources(step.costs),
    )


def _sources(costs: Costs) -> tuple[tuple[str, str], ...]:
    """Where the time of each step on both GPUs comes from."""
    rows = []
    for row in costs.steps:
        a, b = (c.source.value if isinstance(c, Duration) else "none" for c in row.on_device[:2])
        rows.append((a, b))
    return tuple(rows)


def _shares(parts: Sequence[Part], kind: int) -> dict[str, float]:
    """Which part of the time on a GPU comes from which source."""
    sums: dict[str, float] = {}
    for part in parts:
        for row, sources in zip(part.ns, part.sources, strict=True):
            sums[sources[kind]] = sums.get(sources[kind], 0.0) + row[kind] * part.share
    whole = sum(sums.values()) or 1.0
    return {name: round(ns / whole, 3) for name, ns in sums.items() if ns}


def _plain(cell: Cell, text: str, share: float) -> Priced:
    """A trace without phases, which a request runs `share` times."""
    options = _options(cell)
    offered = offered_for(options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "step.ptx")
        path.write_text(text)
        loaded = load_traces([str(path)])
    plan = options.as_plan()
    costs = find_costs(loaded, offered.machine, plan, read_profiles(loaded, plan))
    graph = loaded[0].graph
    detail = problem_of(graph, offered.machine, costs[0], slots=1, lanes=1).problem.detail
    assert detail is not None
    names = [node.name.lower() for node in graph.nodes]
    part = Part(
        ns=tuple((t.ns[0] or 0.0, t.ns[1] or 0.0) for t in detail.problem.tasks),
        tensors=detail.problem.tensors,
        caches={},
        attends=tuple("attention" in name for name in names),
        share=share * (cell.batch if cell.model == IMAGES else 1),
        sources=_sources(costs[0]),
    )
    weights = float(sum(b.bytes for b in graph.buffers if b.role is Role.WEIGHT))
    held = Held(weights=weights, batch={}, handed={})
    return Priced(parts=(part,), held=held, machine=offered.machine, offered=offered)


def _joined(before: Part, after: Part) -> Part:
    """Two parts, one after the other, that a request runs equally often."""
    base = len(before.ns)
    moved = tuple(
        replace(t, producer=t.producer + base, consumers=tuple(c + base for c in t.consumers))
        for t in after.tensors
    )
    return Part(
        ns=before.ns + after.ns,
        tensors=before.tensors + moved,
        caches={name: [n + base for n in users] for name, users in after.caches.items()},
        attends=before.attends + after.attends,
        share=after.share,
        sources=before.sources + after.sources,
    )


# --- figures -------------------------------------------------------------------------------------


def run_cell(cell: Cell) -> dict[str, object]:
    """The periods of one cell, in ns per request, for each link."""
    priced = price(cell)
    row: dict[str, object] = {
        "bound": bound(priced.parts, cell.count),
        "sources": [_shares(priced.parts, kind) for kind in (0, 1)],
        "usd_per_hour": [kind.usd_per_hour for kind in priced.offered.kinds],
        "weights_gb": round(priced.held.weights / 1e9, 2),
    }
    for name in LINKS:
        sides = _sides(cell, priced, name)
        own: dict[str, object] = dict(coarse_splits(priced.parts, sides, priced.held))
        split = best_split(priced.parts, sides, priced.held)
        if split is not None:
            own |= {
                "kernel": split.period,
                "kernel_alone": split.alone,
                "busy": [round(load / split.period, 3) for load in (*split.loads, split.link)],
                "lanes": [split.lanes, split.room],
            }
            if name == "100Gb/s" and cell.count == 1:
                for label, by_age in (("by_age", True), ("by_arrival", False)):
                    own[label] = queued_period(priced.parts, split, sides, by_age=by_age)
        row[name] = own
    usual: dict[str, object] = row["100Gb/s"]  # type: ignore[assignment]
    if cell.count > 1:
        usual |= _tensor(cell)
    return row


def _sides(cell: Cell, priced: Priced, link: str) -> Sides:
    cards = [priced.offered.kinds[kind].gpu.memory_bytes - RESERVED_BYTES for kind in (0, 1)]
    return Sides(
        count=cell.count,
        memory=(float(cards[0]), float(cards[1])),
        links=max(1, cell.count // 4),
        bytes_per_second=LINKS[link],
        latency_ns=priced.machine.links[0].latency_ns,
        transfer_ns=priced.machine.transfer_ns,
    )


def _tensor(cell: Cell) -> dict[str, float]:
    """Tensor parallelism on each side, requests dealt to both, where tables have its sums.

    The times of two and of four layers say what a layer takes.
    """
    work = Workload(lengths=(cell.mix,))
    times: list[list[float]] = []
    rates = []
    for layers in (FEW - 2, FEW):
        model, offered = steps_of(cell, layers)
        ways = [tensor_way(WaySearch(model, offered, work), kind, cell.count) for kind in (0, 1)]
        if any(way is None or way.doubt for way in ways):  # no table has the sums
            return {}
        times.append([_tensor_ns(cell, work, way) for way in ways if way is not None])
    for kind in (0, 1):
        each = (times[1][kind] - times[0][kind]) / 2
        rates.append(1 / (times[1][kind] + each * (_layers_of(cell) - FEW)))
    return {"tensor": 1 / sum(rates)}


def _tensor_ns(cell: Cell, work: Workload, way: UnitWay) -> float:
    read = way.prefill.points[-1][1].ns * work.prompt / (PROMPTS * cell.mix[0])
    return read + way.decode.points[-1][1].ns * (work.answer - 1) / cell.batch


def _run(output: Path, seconds: float, only: str | None) -> None:
    begun = time.perf_counter()
    data = kept(output) or {"cells": {}}
    data["machine"] = machine()
    data["with_extra_tables"] = not tables.extra_is_missing()
    for cell in cells():
        if cell.name in data["cells"] or (only and only not in cell.name):
            continue
        if time.perf_counter() - begun > seconds:
            return
        at = time.process_time()
        data["cells"][cell.name] = {
            "pair": cell.pair,
            "count": cell.count,
            "model": cell.model,
            "batch": cell.batch,
            "mix": list(cell.mix),
            **run_cell(cell),
        }
        write(data, output)
        usual = data["cells"][cell.name]["100Gb/s"]
        said = {k: round(v / 1e6, 2) for k, v in usual.items() if isinstance(v, float)}
        print(f"{cell.name} {time.process_time() - at:.1f} s", said, flush=True)


def main() -> None:
    parser = arguments(__doc__, "paper.json")
    parser.add_argument("command", choices=("run", "show"))
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--only", help="cells whose names have this in them")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs" / "concepts")
    given = parser.parse_args()
    if given.command != "show" and tables.extra_is_missing():
        parser.error(f"most tables are missing: {tables.INSTALL}")
    if given.command == "run":
        _run(given.output, given.seconds, given.only)
    else:
        write_page(json.loads(given.output.read_text()), given.docs)


if __name__ == "__main__":
    main()
