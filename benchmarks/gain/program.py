"""The 40 cells: what no plan beats, what the usual forms of plans reach, what the planner reaches.

    python -m benchmarks.gain.program run [--only WORDS] [--again] [--seconds 3600]
    python -m benchmarks.gain.program small [--cases 500]
    python -m benchmarks.gain.program show

`run` fills in a row per cell (`cells`); rows that are there are kept. A row has the best rate of
every form, with the batch, by one commit and by the same times, and seconds of the processor.
Rates of texts are those of `tessc fleet`, which searches batches and, with a limit, simulates
requests; those of images are of `tessc plan`, simulated. The usual forms (`USUAL_FORMS`) are those
that people set up without a search over kernels. `program` is the linear program (`relaxation`):

- `alone`: a GPU has whole sequences, and reads their prompts: data parallel;
- `roles`: prompts may be read elsewhere, and states handed over;
- `same_batch`: steps of a sequence may run anywhere, in batches no larger than the usual form's;
- `all`: in every batch that memory and the limit allow.

Of texts, `bar` is the interval of nine of ten gains over the best usual form, drawn with the same
errors for both sides (`bars`), and `by` what the gain comes from: batches larger than that form's,
roles, and the rest: placement.

GPUs of texts are busy for at most 95% of the time, as `tessc fleet` has it; with a limit, one
request in a hundred may miss it. `small` compares the program with the best of all plans of small
random cases (`enumerated`).
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.common import Row, arguments, kept, machine, write
from benchmarks.gain.bars import paired, sources
from benchmarks.gain.cells import CELLS, LINK, STEPS, Cell
from benchmarks.gain.enumerated import best_plan, random_case
from benchmarks.gain.inputs import image_model, served_of
from benchmarks.gain.relaxation import Allowed, Most, Served, most
from benchmarks.gain.steps import IMAGE_BATCHES, traces_of
from tessera.diagnostics import TesseraError
from tessera.driver.fleet.capacity import BUSY
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.make_fleet import FleetReport, fleet, offered_for, priced_model
from tessera.driver.fleet.model_steps import ServedModel
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.driver.serve.measures import Slo

KEPT = 0.99
"""Share of the requests that keep a limit."""
USUAL_FORMS = ("data parallel", "phase", "layers", "tensor")
"""And one kind of GPU alone (`only ...`). Of images, all but `kernel` and `parts`."""
NEAR, GAIN = 0.95, 1.10
ROUNDED = 1e-6
"""What rounding in the solver may take."""


def run_cell(cell: Cell) -> Row:
    """The forms of a cell, and the program by the same times."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in traces_of(cell).items():
            path = Path(folder) / f"{name}.ptx"
            path.write_text(text)
            paths.append(str(path))
        begun = time.process_time()
        row, served = (_text if cell.is_text else _images)(cell, paths)
        row["processor_s"] = round(time.process_time() - begun, 1)
        row["commit"] = machine()["commit"]
        begun = time.process_time()
        row["program"] = _program(cell, served(), row)
        row["program"]["processor_s"] = round(time.process_time() - begun, 1)
    return row


def _options(cell: Cell) -> FleetOptions:
    tpot = None if cell.tpot_ms is None else cell.tpot_ms * 1e6
    return FleetOptions(
        gpus=cell.gpus,
        link=LINK,
        tokens=(cell.prompt, cell.answer),
        slo=Slo(tpot_ns=tpot),
        demand=cell.demand,
    )


def _served(cell: Cell, model: ServedModel, offered: Offered) -> Served:
    demand = cell.demand and cell.demand / BUSY
    return served_of(
        model,
        offered,
        (cell.prompt, cell.answer - 1.0),
        cell.tpot_ms and cell.tpot_ms * 1e6,
        demand,
    )


def _priced(cell: Cell, paths: list[str]) -> Served:
    offered = offered_for(_options(cell))
    return _served(cell, priced_model(paths, _options(cell), offered)[0], offered)


def _text(cell: Cell, paths: list[str]) -> tuple[Row, Callable[[], Served]]:
    try:
        report = fleet(paths, _options(cell))
    except TesseraError as refused:
        row = {"forms": {}, "refused": str(refused.diagnostics[0].headline)}
        return row, partial(_priced, cell, paths)
    row = {
        "forms": {rival.name: _form(cell, rival) for rival in report.rivals},
        "answer": _form(cell, report.chosen),
    }
    row |= _compared(cell, report, usual_best(cell, row))
    return row, lambda: _served(cell, report.model, report.offered)


def _compared(cell: Cell, report: FleetReport, best: tuple[str, Row] | None) -> Row:
    """How sure the gain over the best usual form is, and what it comes from."""
    choices = [choice for choice in (*report.rivals, report.chosen) if choice.units]
    if best is None or cell.demand or not choices:
        return {}
    choice = max(choices, key=lambda own: own.rate)
    other = next(own for own in choices if own.name == best[0])
    gain = choice.rate / other.rate
    return {
        "by": sources(report, choice, gain, best[1]["batch"]),
        "bar": [gain * end for end in paired(report, choice, other)],
    }


def _form(cell: Cell, choice: FleetChoice) -> Row | None:
    """What a form gives: requests per second, or dollars per hour for a demand."""
    if not choice.units:
        return None
    units = [(c.way.strategy, c.way.names, n, c.rows, c.way.lanes) for c, n in choice.units]
    batch = max(rows for *_, rows, _ in units)
    figure = choice.usd_per_hour if cell.demand else choice.rate
    names = [f"{n} x {name}, {how} {rows}x{lanes}" for how, name, n, rows, lanes in units]
    return {"figure": figure, "batch": batch, "units": names}


def _images(cell: Cell, paths: list[str]) -> tuple[Row, Callable[[], Served]]:
    reports: list[PlanReport] = []
    forms: dict[str, Row] = {}
    batches = IMAGE_BATCHES[: len(paths)]
    for path, batch in zip(paths, batches, strict=True):
        report = plan(path, PlanOptions(gpus=cell.gpus, link=LINK), compare=False)
        reports.append(report)
        periods = {b.name: b.period_ns for b in report.plan.baselines}
        periods["this plan"] = report.plan.period_ns
        for name, period in periods.items():
            rate = batch * 1e9 / period / STEPS
            if rate > forms.get(name, {"figure": 0.0})["figure"]:
                forms[name] = {"figure": rate, "batch": batch, "units": [report.plan.strategy]}
    row = {"answer": forms.pop("this plan"), "forms": forms}

    def served() -> Served:
        offered = offered_for(FleetOptions(gpus=cell.gpus, link=LINK, tokens=(1, 1)))
        first = reports[0].setting
        model = image_model(
            [report.setting.traces[0] for report in reports],
            [report.setting.costs[0] for report in reports],
            first.machine,
            batches,
        )
        return served_of(model, offered, (0, float(STEPS)))

    return row, served


def _program(cell: Cell, served: Served, row: Row) -> Row:
    best = usual_best(cell, row)
    asked = {
        "alone": Allowed(roles=False, spread=False),
        "roles": Allowed(spread=False),
        "all": Allowed(),
    }
    if best is not None:
        asked["same_batch"] = Allowed(batch=best[1]["batch"])
    return {name: _figure(cell, most(served, allowed)) for name, allowed in asked.items()}


def _figure(cell: Cell, bound: Most | None) -> float | None:
    if bound is None:
        return None
    if cell.demand:
        return bound.usd
    kept = KEPT if cell.tpot_ms else 1.0
    return bound.rate / kept * (BUSY if cell.is_text else 1.0)


def usual_best(cell: Cell, row: Row) -> tuple[str, Row] | None:
    """The best of the forms that people use without a search."""
    forms = {n: f for n, f in row["forms"].items() if f and _is_usual(cell, n)}
    turn = -1.0 if cell.demand else 1.0
    return max(forms.items(), key=lambda item: turn * item[1]["figure"], default=None)


def _is_usual(cell: Cell, form: str) -> bool:
    if not cell.is_text:
        return form not in ("kernel", "parts")
    return form in USUAL_FORMS or form.startswith("only ")


def reached(cell: Cell, row: Row) -> Row | None:
    """The best of all forms; the answer may be a simpler one that is nearly as good."""
    made = [f for f in (*row["forms"].values(), row.get("answer")) if f]
    turn = -1.0 if cell.demand else 1.0
    return max(made, key=lambda form: turn * form["figure"], default=None)


# --- small cases --------------------------------------------------------------------------------


def small_ratios(seeds: Iterable[int]) -> dict[int, float]:
    """The program over the best of all plans, of cases that have one."""
    ratios = {}
    for seed in seeds:
        served = random_case(seed)
        best, bound = best_plan(served), most(served)
        if best:
            ratios[seed] = (0.0 if bound is None else bound.rate) / best
    return ratios


def small_cases(count: int, ratios: Mapping[int, float]) -> Row:
    """How the program compares with the best of all plans."""
    ordered = sorted(ratios.values())
    return {
        "cases": count,
        "with_a_plan": len(ordered),
        "below_the_best_plan": [seed for seed, x in ratios.items() if x < 1 - ROUNDED],
        "within_10_percent": sum(ratio <= 1.1 for ratio in ordered),
        "median": ordered[len(ordered) // 2],
        "p90": ordered[len(ordered) * 9 // 10],
    }


# --- what is shown ------------------------------------------------------------------------------


def show(data: Mapping[str, Row]) -> None:
    """Print a line per cell and the sums."""
    near, gained, sure, rows = 0, 0, 0, 0
    print(
        "| cell (prompt/answer) | usual | form | program | now | of usual (bar) | of the program "
        "| by batch, roles, placement |\n|---|---|---|---|---|---|---|---|"
    )
    for cell in CELLS:
        row = data["cells"].get(cell.name)
        if not row:
            continue
        rows += 1
        best, now = usual_best(cell, row), reached(cell, row)
        bound, words = row["program"]["all"], [cell.name]
        words += ["", "none"] if best is None else [f"{best[1]['figure']:.2f}", best[0]]
        words += [f"{bound:.2f}", "" if now is None else f"{now['figure']:.2f}"]
        if now is not None:
            part = now["figure"] / bound
            part, turn = (1 / part, -1) if cell.demand else (part, 1)
            near += part >= NEAR
            gain = (now["figure"] / best[1]["figure"]) ** turn if best else 0.0
            bar = row.get("bar")
            gained += gain >= GAIN
            sure += gain >= GAIN and bar is not None and bar[0] > 1.0
            words.append(f"{gain:.2f}" + (f" ({bar[0]:.2f} to {bar[1]:.2f})" if bar else ""))
            words.append(f"{part:.2f}")
            words.append(", ".join(f"{x:.2f}" for x in row.get("by", {}).values()))
        print("| " + " | ".join(words) + " |")
    print(
        f"{rows} cells; {near} within 5% of the program, {gained} above the usual forms by 10%, "
        f"{sure} of these with the lower end of the bar above zero"
    )


def main() -> None:
    parser = arguments(__doc__, "gain_program.json")
    parser.add_argument("what", choices=("run", "small", "show"))
    parser.add_argument("--only", default="", help="cells whose name has these words")
    parser.add_argument("--again", action="store_true", help="rows that are there, too")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--cases", type=int, default=500)
    given = parser.parse_args()
    data = kept(given.output) or {"cells": {}}
    if given.what == "show":
        show(data)
        return
    if given.what == "small":
        data["small"] = small_cases(given.cases, small_ratios(range(given.cases)))
        write(data, given.output)
        return
    begun = time.monotonic()
    for cell in CELLS:
        if given.only not in cell.name or (cell.name in data["cells"] and not given.again):
            continue
        if time.monotonic() - begun > given.seconds:
            break
        row = data["cells"][cell.name] = run_cell(cell)
        print(cell.name, json.dumps(row), flush=True)
        data["machine"] = machine()
        write(data, given.output)


if __name__ == "__main__":
    main()
