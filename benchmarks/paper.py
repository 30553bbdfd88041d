"""The paper's figures: kernel level against coarse splits, by tables and the planner's search.

    python -m benchmarks.paper run -o paper.json --seconds 1200
    python -m benchmarks.paper show paper.json --page docs/concepts/paper.md --plots docs/concepts

In: sizes of models (`serving_traces`), measured tables (extra `tables`). Out: a JSON file with a
row per cell, cells in the order in which they matter; a run goes on where the last one ended. A
cell is a pair of GPUs, a model, a batch, a mix of lengths and a link. Its figures are periods: the
time between two requests in the steady state, with as many batches under way as that takes, each
GPU with the memory that it has.

- `bound`: transfers, gaps and memory free, every kind of step divided between the two at will.
- `kernel`: the planner's split, with transfers over the link, within memory.
- `dp`, `phase`, `attention`, `layers`, `first`, `second`, `two_first`: what people do without one;
  missing where it does not fit.
- `kernel_alone`: the same split without overlap, one batch at a time.

`show` prints gains below the error of looked-up times (5%) as none, and names cells without rows.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper_page import write_page
from benchmarks.serving_traces import ServingStep, serving_trace
from tessera.driver.fleet.kernel_ways import split_places
from tessera.driver.fleet.layer_ways import layer_ways
from tessera.driver.fleet.make_fleet import offered_for, priced_model
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.way_search import WaySearch
from tessera.driver.fleet.ways import GpuUnit, Places, Taken, cache_room, held_by, taken_by
from tessera.driver.fleet.workload import Workload
from tessera.ir.program.program import Role

PAIRS = ("a100,l40s", "h100,rtx-pro-6000", "b200,h100")
MODELS = ("llama-8b", "gpt-oss-20b", "llama-70b")
BATCHES = (64, 1, 256, 8)
MIXES = ((1020, 129), (4096, 512))
LINKS = ("100Gb/s", "25Gb/s", "400Gb/s")
PROMPTS = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    pair: str
    model: str
    batch: int
    mix: tuple[int, int]
    link: str

    @property
    def name(self) -> str:
        """Its key in the file."""
        return f"{self.pair} {self.model} b{self.batch} {self.mix[0]}/{self.mix[1]} {self.link}"


def cells() -> list[Cell]:
    """All cells, those that matter most first."""
    small = [m for m in MODELS if m != "llama-70b"]
    first = [Cell(p, m, b, MIXES[0], LINKS[0]) for b in BATCHES for m in small for p in PAIRS]
    links = [Cell(p, m, 64, MIXES[0], k) for k in LINKS[1:] for m in small for p in PAIRS]
    longer = [Cell(p, m, b, MIXES[1], LINKS[0]) for b in BATCHES for m in small for p in PAIRS]
    return [*first, *links, *longer]


NOT_COVERED = (
    "Llama-3-70B on 4+4 and 8+8 GPUs: no replica fits one GPU, and the search over so many takes "
    "minutes per cell; `tessc fleet` compares its splits by layers, phase and tensor parallelism",
    "Qwen2.5-VL, a state-space model and the MMDiT: their traces are not written from shapes in "
    "two phases, and tables lack most of their kernels",
    "the same backend on both GPUs against the best on each: tables are read for the fastest "
    "kernel of one version of vLLM",
    "ablations of the order by age, and of full replication against memory-aware placement",
)


def run_cell(cell: Cell) -> dict[str, object]:
    """The periods of one cell, in ns per request."""
    work = Workload(lengths=(cell.mix,))
    options = FleetOptions(gpus=cell.pair, tokens=cell.mix, link=cell.link)
    offered = offered_for(options)
    context = round(work.context)
    steps = [
        ServingStep(
            model=cell.model,
            phase=phase,
            batch=cell.batch if phase == "decode" else PROMPTS,
            tokens=1 if phase == "decode" else cell.mix[0],
            rows=cell.batch if phase == "decode" else PROMPTS,
            capacity=context if phase == "decode" else max(context, cell.mix[0]),
        )
        for phase in ("decode", "prefill")
    ]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for step in steps:
            path = Path(folder, f"{step.name}.ptx")
            path.write_text(serving_trace(step))
            paths.append(str(path))
        model, _ = priced_model(paths, options, offered)
    search = WaySearch(model, offered, work)
    unit = search.unit((1, 1))
    assert unit is not None
    return _figures(search, model, unit, work) | {
        "table_share": [round(model.shares(k).get("table", 0.0), 3) for k in (0, 1)],
        "usd_per_hour": [kind.usd_per_hour for kind in offered.kinds],
        "weights_gb": round(sum(model.weight_bytes.values()) / 1e9, 1),
    }


def _figures(
    search: WaySearch, model: ServedModel, unit: GpuUnit, work: Workload
) -> dict[str, object]:
    decode, prefill = model.decode[-1], model.prefill[-1]
    reads = work.prompt / (prefill.rows * prefill.tokens)
    makes = max(work.answer - 1, 0.0) / decode.rows

    def together(places: dict[str, Places]) -> Taken | None:
        parts = [taken_by(step, places[step.name], unit, work) for step in (prefill, decode)]
        first, second = parts
        if first is None or second is None or not _fits(model, places, unit, work):
            return None
        loads = zip(first.scaled(reads).loads, second.scaled(makes).loads, strict=True)
        return Taken(first.ns * reads + second.ns * makes, tuple(a + b for a, b in loads))

    def alone(kind: int) -> tuple[float, float] | None:
        where = {step.name: (kind,) * len(step.ns) for step in (prefill, decode)}
        taken = [taken_by(step, where[step.name], unit, work) for step in (prefill, decode)]
        if None in taken or not _fits(model, where, unit, work):
            return None
        return taken[0].ns * reads, taken[1].ns * makes  # type: ignore[union-attr]

    row: dict[str, object] = {"bound": _bound(model, work, reads, makes)}
    single = [alone(kind) for kind in (0, 1)]
    for name, times in zip(("first", "second"), single, strict=True):
        if times is not None:
            row[name] = sum(times)
    if single[0] is not None:
        row["two_first"] = sum(single[0]) / 2
    if single[0] is not None and single[1] is not None:
        row["dp"] = 1 / (1 / sum(single[0]) + 1 / sum(single[1]))
        row["phase"] = min(
            max(single[a][0], single[1 - a][1])  # type: ignore[index]
            for a in (0, 1)
        )
    found = []
    for holder in (0, 1):
        by = {s.name: tuple(holder if _stays(s, n) else 1 - holder for n in range(len(s.ns)))
              for s in (prefill, decode)}  # fmt: skip
        taken = together(by)
        if taken is not None:
            found.append(max(taken.loads))
    if found:
        row["attention"] = min(found)
    layers = {way.gpus: way for way in layer_ways(search, fits_alone=True)}
    way = layers.get((1, 1))
    if way is not None:
        taken = [c.at(1e9).scaled(s) for c, s in ((way.prefill, reads), (way.decode, makes))]
        row["layers"] = max(a + b for a, b in zip(taken[0].loads, taken[1].loads, strict=True))
    split = split_places(search, unit, decode, max(1, decode.rows), 2)
    if split is not None:
        taken = together(split)
        if taken is not None:
            row["kernel"], row["kernel_alone"] = max(taken.loads), taken.ns
    return row


def _stays(step: ModelStep, number: int) -> bool:
    users = {n for own in step.users(Role.STATE).values() for n in own}
    return number in users or step.attends[number]


def _fits(model: ServedModel, places: dict[str, Places], unit: GpuUnit, work: Workload) -> bool:
    lanes = len({place for own in places.values() for place in own})
    rows, _ = cache_room(model, held_by(model, places, unit), unit, work, lanes)
    return rows >= model.decode[-1].rows


def _bound(model: ServedModel, work: Workload, reads: float, makes: float) -> float:
    """Two GPUs, work that divides at will: the steps in the order of their ratio, one cut."""
    items = []
    for step, share in ((model.prefill[-1], reads), (model.decode[-1], makes)):
        scale = work.context / step.context if step.is_decode else 1.0
        for times, attends in zip(step.ns, step.attends, strict=True):
            factor = share * (scale if attends else 1.0)
            items.append(((times[0] or 0.0) * factor, (times[1] or 0.0) * factor))
    items.sort(key=lambda item: item[0] / max(item[1], 1e-12))
    left, right = 0.0, sum(b for _, b in items)
    for a, b in items:
        if left + a >= right - b:
            part = (right - left) / (a + b)
            return left + a * part
        left, right = left + a, right - b
    return left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("-o", "--output", type=Path, required=True)
    run.add_argument("--seconds", type=float, default=3600.0)
    show = commands.add_parser("show")
    show.add_argument("file", type=Path)
    show.add_argument("--page", type=Path, required=True)
    show.add_argument("--plots", type=Path, required=True)
    given = parser.parse_args()
    if given.command == "show":
        data = json.loads(given.file.read_text())
        missing = [cell.name for cell in cells() if cell.name not in data["cells"]]
        write_page(data, missing, NOT_COVERED, given.page, given.plots)
        return
    begun = time.perf_counter()
    data = json.loads(given.output.read_text()) if given.output.exists() else {"cells": {}}
    for cell in cells():
        if cell.name in data["cells"]:
            continue
        if time.perf_counter() - begun > given.seconds:
            break
        data["cells"][cell.name] = {
            "pair": cell.pair,
            "model": cell.model,
            "batch": cell.batch,
            "mix": list(cell.mix),
            "link": cell.link,
            **run_cell(cell),
        }
        given.output.write_text(json.dumps(data, indent=1) + "\n")
        print(cell.name, {k: round(v / 1e6, 3) for k, v in data["cells"][cell.name].items()
                          if isinstance(v, float) and k != "weights_gb"}, flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
