"""What a mix of captures could reach on slices of a GPU at most, and which cause takes how much.

    python -m benchmarks.gain.bound INPUTS [--splits 84+48] [--mixes 1:2,1:4]
                                    [--plans kernel,dp,phase,layers,attention] [--seconds 900]
                                    [--other-run gain_real.json] [--keep-plans]
                                    [-o gain_bound.json]

INPUTS is what `benchmarks.gain.real` packs (`gain_real_inputs.tar.xz`), or a folder with that in
it: traces, their profiles, and what was measured. No GPU. Every kernel is there with its time on
the whole GPU and on each slice: alone, beside a neighbour that computes and beside one that moves
bytes (`kernels`). From these, microseconds for one mix, each level with one cause more:

- `fit`: the linear program over shares of every step on every slice. Slices do not disturb each
  other, steps may be cut, nothing is sent, and no step takes longer on a slice than on the whole
  GPU times its part of the SMs, as if all tiles fitted the slice. Two requests on one slice fill
  each other's gaps as well as the profile has seen it.
- `apart`: the same with the times that kernels have on slices.
- `busy`: the same, but a slice takes what was measured beside a neighbour that only computes, and
  while slices are busy together for long, for as long as its neighbour is busy. **No plan on
  these slices is faster by these times**, whatever it places where.
- `bytes`: the same, where neighbours draw as many bytes as those of the plan do, and all slices
  together no more than the memory moves by its data sheet.
- `whole`: steps stay whole, and so does what must stay together: the best placement, by the integer
  program (of plans with one replica).
- `placed`: the plan's own placement, which copies less than that one.
- `copies`: what sending takes from both slices.
- `slots`: a request takes longer than its slots cover.
- `simulated`: requests wait for each other and for the gate; what the plan promises.
- `measured`, by `benchmarks.gain.real`, where it ran these plans.

`serial` and `streams` are the whole GPU, predicted from the same profiles. What another run has
measured (`--other-run`: of other captures, on another day) stands beside, and is in no difference.

A level is a program over the states of the GPU: which slices are busy at a time, for how long, and
how much of which step is done where meanwhile. Rows are kept as they come; what is in `-o` is not
done again. With `--keep-plans` the plans are left in INPUTS, a folder, under the names by which
`benchmarks.gain.real` finds them.

Longer than 400 lines because the levels of the bound are one chain, each built on the one before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import common
from benchmarks.gain.real import plan_place
from tessera.driver.plan import PlanOptions, PlanReport, PlanSetting, plan
from tessera.ir.plan.costs import Costs, Duration
from tessera.ir.plan.print_plan import print_plan
from tessera.planning.prices.adjust_costs import beside_neighbours, in_crowds
from tessera.planning.prices.durations import find_costs
from tessera.planning.problem.period_limits import LimitKind
from tessera.planning.problem.problem import Problem, transfers_of
from tessera.planning.promise.contention import find_crowds
from tessera.planning.promise.trial import with_gate
from tessera.report.plan_json import plan_json
from tessera.simulation.hardware import hardware_of
from tessera.simulation.simulate import shares_of
from tessera.simulation.steady import saturate

GPU = "h200"
KINDS = ("prefill", "decode")
PLANS = ("kernel", "dp", "phase", "layers", "attention")
MIP_GAP = 1e-3
MIP_SECONDS = 60.0

Times = tuple[tuple[float, float] | None, ...]
"""Per slice: nanoseconds of the slice while no other computes, and while all do."""


@dataclass(frozen=True, slots=True)
class Group:
    """A number of equal groups of steps that stay together, and the times of each."""

    times: Times
    count: int = 1


# --- the program ----------------------------------------------------------------------------------


def least_ns(
    groups: Sequence[Group],
    *,
    placed: Sequence[Sequence[float]] | None = None,
    whole: bool = False,
    least: float = 0.0,
) -> float:
    """No placement of these groups has a shorter period; `least` is a floor of it.

    `placed` fixes how many of each group are on each slice; `whole`: none is cut.
    """
    import highspy

    slices = max((len(group.times) for group in groups), default=0)
    states = [
        state
        for size in range(1, slices + 1)
        for state in itertools.combinations(range(slices), size)
    ]
    unit = max((ns for group in groups for pair in group.times if pair for ns in pair), default=1.0)
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("mip_rel_gap", MIP_GAP)
    solver.setOptionValue("time_limit", MIP_SECONDS)
    period = solver.addVariable(least / unit)
    lasts = {state: solver.addVariable(0.0) for state in states}
    solver.addConstr(sum(lasts.values()) - period <= 0.0)
    done: dict[tuple[tuple[int, ...], int], list[Any]] = {}
    for number, group in enumerate(groups):
        here = []
        for place, pair in enumerate(group.times):
            wanted = None if placed is None else placed[number][place]
            if pair is None or wanted == 0.0:
                continue
            parts = []
            for state in (state for state in states if place in state):
                part = solver.addVariable(0.0)
                parts.append(part)
                beside = (len(state) - 1) / (slices - 1) if slices > 1 else 0.0
                ns = pair[0] + beside * (pair[1] - pair[0])
                done.setdefault((state, place), []).append((ns / unit) * part)
            if wanted is not None:
                solver.addConstr(sum(parts) == wanted)
            elif whole:
                kind = highspy.HighsVarType.kInteger
                count = solver.addVariable(0.0, float(group.count), 0.0, kind)
                solver.addConstr(sum(parts) - count == 0.0)
            here += parts
        if placed is None:
            solver.addConstr(sum(here) == float(group.count))
    for (state, _), terms in done.items():
        solver.addConstr(sum(terms) - lasts[state] <= 0.0)
    solver.minimize(period)
    solution = solver.getInfo().primal_solution_status
    if solution != highspy.SolutionStatus.kSolutionStatusFeasible:
        raise RuntimeError(f"the program was not solved: {solver.getModelStatus()}")
    return float(solver.val(period)) * unit


def alike(groups: Iterable[Times]) -> list[Group]:
    """Groups with the same times are one with a count: layers repeat."""
    counts: dict[Times, int] = {}
    for times in groups:
        counts[times] = counts.get(times, 0) + 1
    return [Group(times, count) for times, count in counts.items()]


# --- times ----------------------------------------------------------------------------------------


def group_times(problem: Problem, costs: Sequence[Costs]) -> list[Times]:
    """What every group takes of each slice per request of the mix, by costs with crowds in them."""
    detail = problem.detail
    assert detail is not None
    steps = [step for own in costs for step in own.steps]
    sums: list[list[tuple[float, float] | None]] = [
        [(0.0, 0.0)] * len(problem.devices) for _ in problem.tasks
    ]
    for number, (step, group) in enumerate(zip(steps, detail.groups, strict=True)):
        rate = detail.problem.tasks[number].rate
        row = sums[group]
        for device, cost in enumerate(step.on_device):
            before = row[device]
            if before is None or not isinstance(cost, Duration):
                row[device] = None
                continue
            alone = cost.ns if cost.alone_ns is None else cost.alone_ns
            quiet = alone if cost.quiet_ns is None else cost.quiet_ns
            share = cost.ns / alone if alone else 1.0
            row[device] = before[0] + rate * share * quiet, before[1] + rate * share * alone
    return [tuple(row) for row in sums]


def least_times(one: Sequence[Times], other: Sequence[Times]) -> list[Times]:
    """The element-wise minimum of two lists of times."""
    return [
        tuple(
            None if a is None or b is None else (min(a[0], b[0]), min(a[1], b[1]))
            for a, b in zip(own, its, strict=True)
        )
        for own, its in zip(one, other, strict=True)
    ]


def busy_times(setting: PlanSetting, problem: Problem) -> list[Times]:
    """The shortest times of any plan: neighbours compute, and move as few bytes as suits a step."""
    crowds = find_crowds(setting)
    made = [
        group_times(
            problem,
            [
                in_crowds(beside_neighbours(costs, (share,) * len(problem.devices)), own)
                for costs, own in zip(setting.costs, crowds, strict=True)
            ],
        )
        for share in (0.0, 1.0)
    ]
    return least_times(*made)


def fitted(setting: PlanSetting) -> PlanSetting:
    """Where no step takes longer alone on a slice than its part of the SMs would."""
    machine = setting.machine
    whole: dict[tuple[str, int, str, str], float] = {}
    for profile in setting.profiles:
        for row in profile.rows:
            key = profile.program_digest, row.step, row.name, row.gpu
            if row.sms == machine.gpu_of(machine.devices[0]).sms:
                whole[key] = min(row.ns, whole.get(key, row.ns))

    def shorter(costs: Costs, digest: str) -> Costs:
        steps = []
        for step in costs.steps:
            on_device = list(step.on_device)
            for device in machine.devices:
                cost, gpu = on_device[device.id], machine.gpu_of(device)
                known = whole.get((digest, int(step.step), step.name, gpu.key))
                if isinstance(cost, Duration) and known is not None:
                    own = cost.ns if cost.quiet_ns is None else cost.quiet_ns
                    least = min(own, known * gpu.sms / device.sms)
                    on_device[device.id] = replace(cost, quiet_ns=least)
            steps.append(replace(step, on_device=tuple(on_device)))
        return Costs(tuple(steps))

    made = (
        shorter(costs, trace.planned.digest)
        for costs, trace in zip(setting.costs, setting.traces, strict=True)
    )
    return replace(setting, costs=tuple(made))


def quiet(times: Sequence[Times]) -> list[Times]:
    """The same, as if no neighbour ever computed."""
    return [tuple(pair and (pair[0], pair[0]) for pair in own) for own in times]


# --- levels ---------------------------------------------------------------------------------------


def bounds(report: PlanReport) -> dict[str, float]:
    """Nanoseconds per request of a mix: the levels that all plans on the slices share."""
    settled = report.decision.setting
    problem = report.decision.attempt.planning.problem
    costs = find_costs(settled.traces, settled.machine, settled.options, settled.profiles)
    raw = replace(settled, costs=tuple(costs))
    busy = busy_times(raw, problem)
    return {
        "fit": least_ns(alike(quiet(busy_times(fitted(raw), problem)))),
        "apart": least_ns(alike(quiet(busy))),
        "busy": least_ns(alike(busy)),
    }


def levels(report: PlanReport) -> dict[str, float]:
    """The levels of a plan, up to what is simulated."""
    decision = report.decision
    problem = decision.attempt.planning.problem
    own = group_times(problem, decision.setting.costs)
    floor = max((sum(load.ns) for load in problem.shared), default=0.0)
    replicas = decision.chosen.replicas
    made = {"bytes": least_ns(alike(own), least=floor)}
    if len(replicas) == 1:
        made["whole"] = least_ns(alike(own), whole=True, least=floor)
    shares = [[0.0] * len(problem.devices) for _ in problem.tasks]
    for replica in replicas:
        for task, device in enumerate(replica.placement):
            shares[task][device] += replica.share
    groups = [Group(times) for times in own]
    made["placed"] = least_ns(groups, placed=shares, least=floor)
    taxes = list(_taxes(problem, [(r.placement, r.share) for r in replicas]))
    sent = [Group(tuple((ns, ns) for ns in row)) for row in taxes]
    fixed = [[float(ns > 0) for ns in row] for row in taxes]
    made["copies"] = least_ns([*groups, *sent], placed=[*shares, *fixed], least=floor)
    period = decision.chosen.period_ns
    made["slots"] = min(
        next((own.ns for own in decision.chosen.limits if own.kind is LimitKind.SLOTS), 0.0), period
    )
    made["simulated"] = period
    return rising(made)


def _taxes(
    problem: Problem, replicas: Iterable[tuple[tuple[int, ...], float]]
) -> Iterator[tuple[float, ...]]:
    """Nanoseconds per request that sending takes from each slice."""
    wires = {(wire.source, wire.target): wire for wire in problem.wires}
    for placement, share in replicas:
        taken = [0.0] * len(problem.devices)
        for tensor, source, target in transfers_of(problem, placement):
            tax = problem.tax_ns(problem.tensors[tensor], wires[source, target]) * share
            taken[source] += tax
            taken[target] += tax
        yield tuple(taken)


def rising(made: Mapping[str, float]) -> dict[str, float]:
    """Levels raised to the level before them; the simulated level is not changed."""
    reached, kept = 0.0, {}
    for name, ns in made.items():
        reached = ns if name == "simulated" else max(reached, ns)
        kept[name] = reached
    return kept


def in_us(levels_ns: Mapping[str, float], requests: int) -> dict[str, float]:
    """Microseconds of a mix of `requests` requests."""
    return {name: round(ns * requests / 1e3, 1) for name, ns in levels_ns.items()}


def lost_to(us: Mapping[str, float]) -> dict[str, float]:
    """What each level adds, as a part of the last; the first is what is left without causes."""
    last = list(us.values())[-1]
    before, lost = 0.0, {}
    for name, value in us.items():
        lost[name] = round((value - before) / last, 4)
        before = value
    return lost


def row_of(report: PlanReport, requests: int, measured_us: float | None) -> dict[str, Any]:
    """A plan's own levels in microseconds of a mix."""
    us = in_us(levels(report), requests)
    if measured_us is not None:
        us["measured"] = measured_us
    made, hardware = report.plan, hardware_of(report.plan)
    replicas, period = made.replicas, made.period_ns
    if hardware is not None and any(own.gate is not None for own in replicas[0].lowered.traces):
        for own in replicas[0].lowered.traces:
            replicas = tuple(with_gate(replica, own.trace, None) for replica in replicas)
        period = saturate(replicas, shares_of(made), hardware).period_ns
    return {
        "without_gates_us": round(period * requests / 1e3, 1),
        "strategy": report.plan.strategy,
        "slots": [replica.slots for replica in report.plan.replicas],
        "gates": [own.gate for replica in report.plan.replicas for own in replica.lowered.traces],
        "between_us": [round(ns * requests / 1e3, 1) for ns in (report.plan.low, report.plan.high)],
        "us": us,
    }


# --- kernels --------------------------------------------------------------------------------------


def kernels(profile: Mapping[str, Any], most: int = 10) -> list[dict[str, Any]]:
    """By kernel, microseconds of all its launches in a request, by SMs: alone, beside both."""
    sums: dict[str, dict[str, list[float]]] = {}
    launches: dict[str, set[int]] = {}
    for row in profile["rows"]:
        own = sums.setdefault(row["name"], {}).setdefault(str(row["sms"]), [0.0, 0.0, 0.0])
        launches.setdefault(row["name"], set()).add(row["step"])
        for index, key in enumerate(("ns", "beside_compute_ns", "beside_memory_ns")):
            own[index] += row.get(key, row["ns"]) / 1e3
    ranked = sorted(sums, key=lambda name: -max(own[0] for own in sums[name].values()))
    return [
        {
            "kernel": name,
            "launches": len(launches[name]),
            "us": {sms: [round(us, 1) for us in own] for sms, own in sums[name].items()},
        }
        for name in ranked[:most]
    ]


# --- all ------------------------------------------------------------------------------------------


def planned(
    folder: Path, mix: str, split: str, strategy: str, slots: int | None = None
) -> PlanReport:
    """The plan that `benchmarks.gain.real` makes; no split is the whole GPU."""
    traces = [
        f"{folder / kind}.ptx:{part}" for kind, part in zip(KINDS, mix.split(":"), strict=True)
    ]
    profiles = tuple(str(folder / f"{kind}.json") for kind in KINDS)
    gpus = ",".join(f"{GPU}:{sms}sm" for sms in split.split("+")) if split else GPU
    options = PlanOptions(gpus=gpus, strategy=strategy, profiles=profiles, slots=slots)
    return plan(traces, options, compare=False)


def keep(report: PlanReport, place: Path) -> None:
    """Write a plan and its report as `tessc plan --json` does."""
    place.write_text(print_plan(report.plan))
    place.with_suffix(".report.json").write_text(plan_json(report))


def work_out(options: argparse.Namespace, folder: Path) -> None:
    """All rows, the missing ones first."""
    until = time.monotonic() + options.seconds
    document: dict[str, Any] = {"schema": "tessera-gain-bound/1", "mixes": {}}
    if options.output and options.output.exists():
        document = json.loads(options.output.read_text())
    run = json.loads((folder / "gain_real.json").read_text())
    document["machine"], document["sizes"] = run.get("machine"), run["sizes"]
    document["kernels"] = {
        kind: kernels(json.loads((folder / f"{kind}.json").read_text())) for kind in KINDS
    }
    other = json.loads(options.other_run.read_text()) if options.other_run else {"stages": {}}
    if options.other_run:
        document["other_run"] = {"machine": other["machine"], "rows": {}}
    for name, row in other["stages"].items():
        if "us" in row and "predicted_us" in row:
            document["other_run"]["rows"][name] = [row["us"], row["predicted_us"]]
    for mix in options.mixes.split(","):
        rows = document.setdefault("whole_gpu_us", {}).setdefault(mix, {})
        common = document.setdefault("common_us", {}).setdefault(mix, {})
        for split in options.splits.split(","):
            if split not in common:
                report = planned(folder, mix, split, "single")
                common[split] = in_us(bounds(report), sum(map(int, mix.split(":"))))
        for name, slots in (("serial", 1), ("streams", 4)):
            if name not in rows:
                report = planned(folder, mix, "", "single", slots)
                ns = report.plan.period_ns
                rows[name] = round(ns * sum(map(int, mix.split(":"))) / 1e3, 1)
                if options.keep_plans:
                    keep(report, plan_place(folder, name, mix))
    for strategy, mix, split in itertools.product(
        options.plans.split(","), options.mixes.split(","), options.splits.split(",")
    ):
        rows = document["mixes"].setdefault(mix, {}).setdefault(split, {})
        if strategy in rows or time.monotonic() > until:
            continue
        requests = sum(map(int, mix.split(":")))
        measured = run["stages"].get(f"{mix} {strategy} {split}", {}).get("us")
        begun = time.perf_counter()
        report = planned(folder, mix, split, strategy)
        if options.keep_plans:
            keep(report, plan_place(folder, f"{strategy} {split}", mix))
        rows[strategy] = row_of(report, requests, measured)
        rows[strategy]["seconds"] = round(time.perf_counter() - begun, 1)
        write(document, options.output)
        print(mix, split, strategy, json.dumps(rows[strategy]), flush=True)
    write(document, options.output)


def write(document: dict[str, Any], output: Path | None) -> None:
    """Write the document with the ratios of the rows that it has."""
    finish(document)
    common.write(document, output)


def finish(document: dict[str, Any]) -> None:
    """What all plans share before each plan's own levels, what each adds, and the ratios."""
    for mix, splits in document["mixes"].items():
        for split, rows in splits.items():
            common = document["common_us"][mix][split]
            for row in rows.values():
                row["us"] = {**common, **row["us"], **common}
                row["lost"] = lost_to(row["us"])
    document["at_most"] = at_most(document["mixes"], document["whole_gpu_us"])


def at_most(mixes: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    """By mix and split, what no plan on the slices is beyond, against what is predicted of others.

    The best coarse plan is that of the slices.
    """
    table: dict[str, Any] = {}
    for mix, splits in mixes.items():
        for split, rows in splits.items():
            if not rows:
                continue
            coarse = [row["us"]["simulated"] for name, row in rows.items() if name != "kernel"]
            own = table.setdefault(mix, {}).setdefault(split, {})
            for level in ("fit", "apart", "busy"):
                us = min(row["us"][level] for row in rows.values())
                own[f"{level}_us"] = us
                own[f"{level}_of_serial"] = round(whole[mix]["serial"] / us, 3)
                own[f"{level}_of_streams"] = round(whole[mix]["streams"] / us, 3)
                own[f"{level}_of_best_coarse"] = round(min(coarse) / us, 3) if coarse else None
    return table


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("inputs", type=Path)
    parser.add_argument("--splits", default="84+48")
    parser.add_argument("--mixes", default="1:2,1:4", help="prompts and decode steps")
    parser.add_argument("--plans", default=",".join(PLANS))
    parser.add_argument("--seconds", type=float, default=900.0, help="no row begins after that")
    parser.add_argument("--keep-plans", action="store_true", help="leave them in INPUTS")
    parser.add_argument("--other-run", type=Path, help="what another run has measured")
    options = parser.parse_args()
    if options.inputs.is_dir():
        work_out(options, options.inputs)
        return
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(options.inputs) as archive:
            archive.extractall(folder, filter="data")
        work_out(options, Path(folder))


if __name__ == "__main__":
    main()
