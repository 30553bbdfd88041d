"""Reports over the whole range of their figures, made from a few real ones.

In: small traces. Out: texts of `plan`, `fleet`, `diff`, `simulate`, each with what it is of. To
read them one by one: `python -m tests.unit.report.said`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.driver.diff_plans import diff
from tessera.driver.fleet.choose_units import FleetChoice, UnitChooser
from tessera.driver.fleet.fleet_words import verdict_of
from tessera.driver.fleet.make_fleet import FleetReport, fleet
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.pools import PoolLinks
from tessera.driver.fleet.ways import HandOverTime
from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.ir.choices import Ending
from tessera.ir.objectives import COST, LATENCY, Objective
from tessera.ir.plan.plan import Baseline, Plan
from tessera.planning.alternatives import Alternative
from tessera.planning.promise.doubt import Doubt
from tessera.report.diff import diff_text
from tessera.report.fleet import fleet_text
from tessera.report.plan import plan_text
from tessera.report.simulation import simulation_text
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import simulate

TRACES = Path(__file__).parents[3] / "examples" / "traces"
MLP = str(TRACES / "mlp.ptx")
STEPS = [str(TRACES / f"llama_steps_{phase}.ptx") for phase in ("prefill", "decode")]
ENDS = (-0.4, -0.1, 0.0, 0.1, 0.4)
BARS = [(low, gain, high) for low, gain, high in product(ENDS, repeat=3) if low < high]
NEAR = ((0.02, 0.03, 0.04), (-0.02, 0.03, 0.08))
GIVEN = {
    "search": PlanOptions(gpus="a100,l40s"),
    "kernel": PlanOptions(gpus="a100,l40s", strategy="kernel"),
    "single": PlanOptions(gpus="a100,l40s", strategy="single"),
    "latency": PlanOptions(gpus="a100,l40s", objective="latency"),
    "cost": PlanOptions(gpus="a100,l40s", objective="cost"),
    "one": PlanOptions(gpus="a100"),
    "three": PlanOptions(gpus="2xa100,l40s"),
}
FLEET = FleetOptions(gpus="2xa100,2xl40s", tokens=(512, 64))
LINKS = PoolLinks(((HandOverTime(1e4, 0.0, 100.0),) * 2,) * 2)


def doubt_of(low: float, gain: float, high: float) -> Doubt:
    """A doubt with these figures."""
    wins = 1.0 if low > 0 else 0.0 if high < 0 else 0.5
    causes = (("m0._ZN6cudapy3addB2v1E5ArrayIfLi1EE", "a100-0"),)
    return Doubt(
        split="kernel", rival="dp", gain=gain, low=low, high=high, wins=wins, causes=causes
    )


def plans() -> dict[str, PlanReport]:
    """Real plans of each form."""
    made = {name: plan(MLP, options) for name, options in GIVEN.items()}
    made["roles"] = plan(STEPS, PlanOptions(gpus="a100,l40s", strategy="phase"))
    return made


def plan_texts(made: dict[str, PlanReport]) -> Iterator[tuple[str, str]]:
    """The real plans, and splits that are ahead or behind by any bar, taken or not."""
    for name, report in made.items():
        yield f"plan {name}", plan_text(report, "plan.tsp")
    for bar, given in product(BARS, (True, False)):
        yield f"split {bar}, asked for: {given}", plan_text(split_of(made, bar, given), "plan.tsp")
    for bar, name in product(BARS, ("search", "latency", "cost")):
        yield f"other GPUs {bar}, {name}", plan_text(other_gpus(made[name], bar), "plan.tsp")


def split_of(
    made: dict[str, PlanReport], bar: tuple[float, float, float], given: bool
) -> PlanReport:
    """The report on a split that is ahead of data parallelism by this bar."""
    doubt = doubt_of(*bar)
    taken = given or (doubt.is_sure and doubt.gain > 0)
    report, whole = made["kernel" if taken else "search"], made["search"].plan
    period = whole.period_ns / (1 + doubt.gain)
    row = Baseline(
        name="kernel",
        period_ns=period,
        latency_ns=whole.latency_ns,
        loaded_latency_ns=whole.loaded_latency_ns,
        usd_per_request=whole.usd_per_request / (1 + doubt.gain),
        memory_bytes=1,
    )
    other = replace(row, name="dp", **_figures(whole))
    own, rival = (row, other) if taken else (other, row)
    changed = replace(
        report.plan,
        strategy=own.name,
        ended=Ending.GIVEN if given else Ending.GAP,
        baselines=(rival,),
        **_figures(own),
    )
    insight = replace(report.insight, limits=())
    return replace(
        report,
        plan=changed,
        decision=replace(report.decision, doubt=doubt),
        alternatives=(),
        bars={},
        insight=insight,
    )


def _figures(row: Baseline | Plan) -> dict[str, float]:
    names = ("period_ns", "latency_ns", "loaded_latency_ns", "usd_per_request")
    return {name: getattr(row, name) for name in names}


def other_gpus(report: PlanReport, bar: tuple[float, float, float]) -> PlanReport:
    """The report beside other GPUs that are ahead of it by this bar."""
    doubt, own = doubt_of(*bar), report.plan
    objective = Objective.named(own.objective)
    figures = _figures(own)
    name = {LATENCY: "latency_ns", COST: "usd_per_request"}.get(objective, "period_ns")
    figures[name] /= 1 + doubt.gain
    row = Alternative(
        name="2x h100-sxm: dp", memory_bytes=1, low=0.0, high=0.0, against=doubt, **figures
    )
    return replace(report, alternatives=(row,))


# --- fleets --------------------------------------------------------------------------------------


def small_fleet(folder: Path) -> FleetReport:
    """A fleet for a model of one layer."""
    paths = []
    for phase, batch, tokens in (("decode", 1, 1), ("decode", 64, 1), ("prefill", 1, 512)):
        step = ServingStep(
            model="llama-8b", phase=phase, batch=batch, tokens=tokens, rows=batch, capacity=1024
        )
        path = folder / f"{step.name}.ptx"
        path.write_text(serving_trace(step, layers=1))
        paths.append(str(path))
    return fleet(paths, FLEET)


def fleet_texts(report: FleetReport) -> Iterator[tuple[str, str]]:
    """Answers of every form, with and without a demand, beside others that bars favour or not."""
    draw = random.Random(7)
    yield "fleet", fleet_text(report)
    rows = [row for row in report.rivals if row.units]
    for (number, own), demand, (low, gain, high) in product(
        enumerate(rows), (None, 20.0), (*BARS[:: len(BARS) // 8], *NEAR)
    ):
        yield (
            f"fleet {own.name}, demand {demand}, {low, gain, high}",
            fleet_text(answer_of(report, own, demand, (low, gain, high), number, draw)),
        )
    nothing = replace(report, chosen=FleetChoice(name="this mix"), options=_asked(0.0))
    chooser = UnitChooser(report.offered, LINKS, 0.0)
    verdict = tuple(verdict_of(nothing.chosen, report.rivals, chooser))
    yield "fleet without demand", fleet_text(replace(nothing, verdict=verdict))


def _asked(demand: float | None) -> FleetOptions:
    return replace(FLEET, demand=demand)


def answer_of(
    report: FleetReport,
    own: FleetChoice,
    demand: float | None,
    bar: tuple[float, float, float],
    number: int,
    draw: random.Random,
) -> FleetReport:
    """The report with another answer; the others are ahead of it by the bar."""
    chosen = replace(own, name="this mix", rate=21.0, usd_per_hour=4.0)
    rivals, doubts = [], {}
    for row in report.rivals:
        gain = bar[1]
        rate, usd = 21.0 * (1 + gain), 4.0 / (1 + gain)
        rival = replace(row, rate=21.0 if demand else rate, usd_per_hour=usd if demand else 4.0)
        if row.name == own.name:
            rival = replace(chosen, name=row.name)
        elif row.units:
            doubts[row.name] = replace(doubt_of(*bar), split=row.name, rival="this mix")
        if number == 1 and row.name == "data parallel":
            rival = replace(row, units=(), why="no GPU holds the model by itself")
            doubts.pop(row.name, None)
        rivals.append(rival if row.units else row)
    chooser = UnitChooser(report.offered, LINKS, demand)
    ends = draw.uniform(15, 21), draw.uniform(21, 30)
    return replace(
        report,
        options=_asked(demand),
        chosen=chosen,
        rivals=tuple(rivals),
        bars={row.name: ends for row in (chosen, *rivals)},
        doubts=doubts,
        bound=None,
        checked=None,
        verdict=tuple(verdict_of(chosen, rivals, chooser, doubts)),
    )


# --- two plans, and simulations ------------------------------------------------------------------


def diff_texts(made: dict[str, PlanReport]) -> Iterator[tuple[str, str]]:
    """Plans against each other and themselves, and against one that is a little better or worse."""
    for first, second in product(("search", "kernel", "cost", "one", "roles"), repeat=2):
        yield f"diff {first} {second}", diff_text(diff(made[first].plan, made[second].plan))
    whole = diff(made["search"].plan, made["single"].plan)
    for objective, factor in product(("throughput", "latency", "cost"), (0.5, 0.999999, 1.0, 1.3)):
        old = replace(whole.plans[0], objective=objective)
        new = replace(old, **{name: factor * value for name, value in _figures(old).items()})
        figures = []
        for pair in whole.figures:
            changes = {"rate": 1 / factor, "gap to the bound": 1.0, "memory": 1.0}
            before = pair.before or 0.0
            after = before * changes.get(pair.name, factor)
            figures.append(replace(pair, before=before, after=after))
        changed = replace(whole, plans=(old, new), figures=tuple(figures), settings=())
        yield f"diff {objective} {factor}", diff_text(changed)


def simulation_texts(made: dict[str, PlanReport]) -> Iterator[tuple[str, str]]:
    """Plans alone, and with requests that come slowly, too fast, and at once."""
    own = made["search"].plan
    for text in (None, "poisson:1000/s:60", "poisson:60000/s:200", "poisson:200000/s:200"):
        options = SimulateOptions(arrivals=text)
        yield f"simulate {text}", simulation_text(simulate(own, options))
    for factor in (0.5, 0.9999, 1.0, 1.3):
        said = replace(own, period_ns=own.period_ns * factor)
        yield f"simulate, claimed {factor}", simulation_text(simulate(said, SimulateOptions()))
    roles = simulate(made["roles"].plan, SimulateOptions(noise=True))
    yield "simulate roles", simulation_text(roles)


def every_text(folder: Path) -> Iterator[tuple[str, str, str]]:
    """All of them: the command, what it is of, the text."""
    made = plans()
    for command, texts in (
        ("plan", plan_texts(made)),
        ("diff", diff_texts(made)),
        ("simulate", simulation_texts(made)),
        ("fleet", fleet_texts(small_fleet(folder))),
    ):
        for name, text in texts:
            yield command, name, text


def main() -> None:
    """Write the lines that are new in each text."""
    shown: set[str] = set()
    with tempfile.TemporaryDirectory() as place:
        for _, name, text in every_text(Path(place)):
            lines = [line for line in text.splitlines() if line not in shown]
            sys.stdout.write("\n".join((f"== {name}", *lines, "")))
            shown.update(lines)


if __name__ == "__main__":
    main()
