"""Plans in parts against plans of whole steps: latency and throughput over many cells, simulated.

    python -m benchmarks.planning.parts [-o FILE] [--jobs N] [--cells NAME NAME]

A cell is a step of a model on a machine, for an objective. Per cell: the best plan of whole steps,
the best plan in parts, proved, what both take by simulation, and the bound on all plans; the shares
that people set without a planner (equal on equal cards, by memory, by bandwidth); how often parts
are ahead within the error bars; the memory of each card; and the processor time of planning.

An exchange costs what `exchange_ways.json` measured on slices of an H200 for 64 KB moved by a copy
between graphs that wait for words (p90), and the link: its latency of 5 us, and the bytes. `live`
repeats a cell with the exchange of today's host calls between cards, from the same file.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.common import RESULTS, Row, arguments, machine, write
from benchmarks.planning.real_traces import DECODERS
from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.diagnostics import TesseraError
from tessera.driver.traces import load_traces
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.machine import Machine
from tessera.planning.division.divided_promises import Divider
from tessera.planning.division.proposals import Shares
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting import PlanSetting
from tessera.planning.make_plan import PlanReport, make_plan, setting_of

LINK_NS = 5_000.0
TAX_NS = 2_000.0  # of each end, as in machines by default
DIVIDED = ("parts", "tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A step of a model on GPUs. `live`: exchanges are host calls."""

    model: str
    gpus: str
    batch: int = 1
    context: int = 2048
    phase: str = "decode"
    link: str = "25GB/s"
    objective: str = "latency"
    dtype: str = "bf16"
    live: bool = False

    @property
    def name(self) -> str:
        """A short name, unique among the cells."""
        size = f"b{self.batch}" if self.phase == "decode" else f"p{self.context}"
        parts = (self.model, self.dtype, size, f"{self.context}", self.gpus, self.link)
        return "/".join((*parts, self.objective, *(["live"] if self.live else [])))


A_L, H_R, H20_H, H200_R = "a100,l40s", "h100,rtx-pro-6000", "h20,h100", "h200,rtx-pro-6000"
GROUP = "4xa100,4xl40s"
NAMED = (
    Cell(model="llama-8b", gpus=A_L),
    Cell(model="llama-8b", gpus=H_R),
    Cell(model="llama-70b", gpus=H20_H, dtype="e4m3"),
    Cell(model="llama-70b", gpus=H200_R),
    Cell(model="llama-70b", gpus="h20,rtx-pro-6000", dtype="e4m3"),
    Cell(model="llama-70b", gpus=H200_R, batch=8, objective="throughput"),
    Cell(model="llama-70b", gpus=H200_R, batch=64, objective="throughput"),
    Cell(model="llama-70b", gpus=H20_H, batch=64, dtype="e4m3", objective="throughput"),
    Cell(model="llama-70b", gpus=GROUP, batch=8, objective="throughput"),
    Cell(model="llama-70b", gpus=GROUP, batch=64, objective="throughput"),
)
BOUND_BY_MEMORY = (
    Cell(model="llama-70b", gpus="h100,l40s", batch=64, dtype="e4m3", objective="throughput"),
    Cell(model="llama-70b", gpus="2xh100,2xl40s", batch=64, objective="throughput"),
    Cell(model="llama-8b", gpus="l4,l4", batch=64, objective="throughput"),
    Cell(model="llama-8b", gpus="l4,a10", batch=16, context=8192, objective="throughput"),
    Cell(model="llama-8b", gpus="l40s,l4", batch=64, context=4096, objective="throughput"),
    Cell(model="llama-8b", gpus="rtx4090,l4", batch=64, objective="throughput"),
    Cell(model="llama-8b", gpus="a10,a10", batch=64, objective="throughput"),
)
MORE = (
    *BOUND_BY_MEMORY,
    *(replace(NAMED[0], link=link) for link in ("100Gb/s", "64GB/s", "300GB/s")),
    *(replace(NAMED[0], batch=batch) for batch in (8, 64)),
    replace(NAMED[0], context=16384),
    replace(NAMED[0], phase="prefill", context=1024),
    Cell(model="llama-8b", gpus=H20_H),
    Cell(model="llama-8b", gpus="a100,a100"),
    Cell(model="llama-8b", gpus="2xa100,2xl40s"),
    Cell(model="llama-8b", gpus="h200,l40s"),
    Cell(model="llama-8b", gpus="l40s,l4"),
    Cell(model="llama-8b", gpus="l4,l4,l4", batch=8),
    Cell(model="llama-8b", gpus="a100,l40s", batch=64, objective="throughput"),
    Cell(model="llama-8b", gpus="l4,l4", objective="throughput"),
    Cell(model="gpt-oss-20b", gpus=A_L),
    Cell(model="gpt-oss-20b", gpus=H_R, batch=64, objective="throughput"),
    Cell(model="llama-70b", gpus=H20_H, dtype="e4m3", batch=8),
    Cell(model="llama-70b", gpus=GROUP),
    Cell(model="llama-70b", gpus="2xh100,2xl40s", link="64GB/s"),
    Cell(model="llama-70b", gpus="b200,h200", link="64GB/s"),
    *(replace(cell, live=True) for cell in NAMED[:5]),
)
CELLS = {cell.name: cell for cell in (*NAMED, *MORE)}


def exchange_ns(*, live: bool) -> float:
    """The measured exchange of 64 KB, from the end of a kernel to the start of the next one."""
    trials = json.loads((RESULTS / "exchange_ways.json").read_text())["trials"]
    if live:
        return float(trials["events_copy"]["65536"]["live"]["gap_us"]["p50"]) * 1e3
    return float(trials["graph_words_copy"]["65536"]["gap_us"]["p90"]) * 1e3


def machine_for(cell: Cell) -> Machine:
    """The machine of a cell, with what an exchange costs."""
    plain = machine_of(cell.gpus, cell.link)
    latency = LINK_NS + exchange_ns(live=cell.live) - TAX_NS
    links = tuple(replace(link, latency_ns=latency) for link in plain.links)
    return replace(plain, links=links, transfer_ns=TAX_NS)


def run(cell: Cell) -> Row:
    """One cell; what cannot be planned has a reason in place of figures."""
    begun = time.process_time()
    new = cell.context if cell.phase == "prefill" else 1
    step = ServingStep(
        model=cell.model,
        phase=cell.phase,
        batch=cell.batch,
        tokens=new,
        rows=cell.batch,
        capacity=cell.context,
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "step.ptx"
        path.write_text(serving_trace(step, dtype=cell.dtype))
        traces = load_traces([str(path)])
    options = PlanOptions(machine=machine_for(cell), objective=cell.objective, strategy="parts")
    row: Row = {**asdict(cell), "layers": DECODERS[cell.model].layers, "on": machine()["machine"]}
    try:
        report = make_plan(traces, options, Watch(), compare=False)
    except TesseraError as problem:
        return {**row, "refused": "; ".join(str(own.headline) for own in problem.diagnostics)}
    row |= {"plan_s": round(time.process_time() - begun, 1)}
    return {
        **row,
        **_figures(report),
        "fixed_shares": _fixed(report, setting_of(traces, options, Watch())),
    }


def _figures(report: PlanReport) -> Row:
    plan, doubt = report.plan, report.decision.doubt
    aim = plan.objective
    rows = {row.name: aim.value(row) for row in plan.baselines}
    whole = {name: value for name, value in rows.items() if name not in DIVIDED}
    best = min(whole, key=whole.__getitem__, default=None)
    cuts = plan.traces[0].division
    return {
        "parts_ns": aim.value(plan),
        "bound_ns": plan.bound,
        "whole": best,
        "whole_ns": None if best is None else whole[best],
        "gain": None if best is None else round(whole[best] / aim.value(plan), 3),
        "wins": None if doubt is None else round(doubt.wins, 3),
        "tensor_ns": rows.get("tensor"),
        "steps": {"cut": len({cut.step for cut in cuts.cuts}), "twins": len(cuts.twins)},
        "transfers": sum(len(t.transfers) for r in plan.replicas for t in r.lowered.traces),
        "memory": {card.name: card.used_bytes for card in plan.cards},
        "proved": True,  # `make_plan` returns no plan that the checker refuses
    }


def by_memory(machine: Machine) -> Shares:
    """Shares by the memory of the cards."""
    return lambda group: [float(machine.cards[machine.devices[d].card].memory_bytes) for d in group]


def by_bandwidth(machine: Machine) -> Shares:
    """Shares by the memory bandwidth of the cards."""
    return lambda group: [machine.gpu_of(machine.devices[d]).memory_bandwidth for d in group]


def _fixed(report: PlanReport, setting: PlanSetting) -> Row:
    """Whatever can be cut in parts with shares by memory, and by bandwidth."""
    divider = Divider(setting)
    slots, lanes = report.decision.attempt.slots, report.decision.attempt.lanes
    rules: dict[str, Callable[[Machine], Shares]] = {"memory": by_memory, "bandwidth": by_bandwidth}
    aim = setting.options.aim
    times: Row = {}
    for name, rule in rules.items():
        made = divider.promised(name, slots, lanes, aim, rule(setting.machine), 1)
        times[name] = made[0].chosen.value(aim) if made else None
    return times


def main() -> None:
    parser = arguments(__doc__, "parts.json")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cells", nargs="+", default=list(CELLS), help="some of them, by name")
    given = parser.parse_args()
    names = given.cells
    rows: dict[str, Row] = {}
    if given.output is not None and given.output.exists() and names != list(CELLS):
        rows = json.loads(given.output.read_text())["cells"]  # some cells take the place of theirs
    with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
        for name, row in pool.imap_unordered(_named, names):
            rows[name] = row
            print(name, row.get("gain", row.get("refused")), row.get("plan_s"), flush=True)
            if given.output is not None:
                ordered = {known: rows[known] for known in CELLS if known in rows}
                write({**machine(), "exchange_us": _exchanges(), "cells": ordered}, given.output)


def _exchanges() -> Row:
    return {name: exchange_ns(live=name == "live") / 1e3 for name in ("words", "live")}


def _named(name: str) -> tuple[str, Row]:
    try:
        return name, run(CELLS[name])
    except Exception as problem:  # one cell must not end the others
        return name, {"refused": repr(problem)}


if __name__ == "__main__":
    main()
