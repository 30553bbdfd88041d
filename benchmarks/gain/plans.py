"""The plans of `benchmarks.gain.gain`: every mix, split and strategy, predicted from the profiles.

In: a folder with traces and profiles. Out, per mix: `MIX_plans.json`, all predictions, and
`MIX_plans.pkl`, what `gain run` opens: for each strategy the split that is predicted to be best.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gain.device import Prepared
from benchmarks.gain.mixes import BASELINES, GPU, MIXES, PLAN_SLOTS, SMS, Mix, best, decision
from tessera.backend.service import ServedTrace
from tessera.driver.plan.assemble import Attempt, assemble, lowering_of
from tessera.driver.plan.attempts import build_problem
from tessera.driver.plan.contention import find_crowds, has_neighbours, settle
from tessera.driver.plan.make_plan import PlanOptions, PlanSetting, Watch
from tessera.driver.plan.search import choose_best, findings_of
from tessera.driver.plan.traces import LoadedTrace, load_traces
from tessera.driver.plan.whole import WORTH
from tessera.frontend.machine.profile import parse_profile
from tessera.ir.choices import Strategy
from tessera.ir.plan.costs import Barred, Cost, Costs, CostSource, Duration
from tessera.ir.plan.plan import Plan
from tessera.passes.costs.adjust_costs import merge_profiles
from tessera.passes.costs.estimate_costs import estimate_costs
from tessera.passes.placement.candidates import Candidate
from tessera.passes.placement.plans import Choice
from tessera.passes.placement.problem import transfers_of
from tessera.wording import Wording

# What is tried: slots, and requests as one graph or call by call. A graph that spans slices has
# queues inside that graphs of other slots share, so plans with many changes of slice go by calls.
GRAPH, CALLS = True, False
TRIED: dict[str, tuple[tuple[int, bool], ...]] = {
    "serial": ((1, GRAPH),),
    "streams": ((4, GRAPH),),
    Strategy.KERNEL: ((6, GRAPH), (6, CALLS)),
    "attention": ((6, CALLS),),
    "layers": ((3, GRAPH),),
    "dp": ((2, GRAPH),),
    "phase": ((2, GRAPH),),
}
# With so many slots one request of each under way keeps the GPU busy.
MANY_SLOTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A candidate for a split."""

    strategy: str
    split: tuple[int, ...]
    setting: PlanSetting
    choice: Choice
    candidate: Candidate

    def row(self) -> dict[str, Any]:
        """What is predicted."""
        return {
            "strategy": self.strategy,
            "split": "+".join(map(str, self.split)),
            "period_ns": round(self.candidate.period_ns, 1),
            "latency_ns": round(self.candidate.latency_ns, 1),
            "bound_ns": round(self.choice.bound, 1),
            "together": [round(one.crowded, 4) for one in find_crowds(self.setting)[0]],
            "limits": [[own.text, round(own.ns, 1)] for own in self.candidate.limits[:3]],
            "placement": placement_of(self),
            "moved_bytes": moved_bytes(self),
            "found": self,
        }


def moved_bytes(found: Found) -> int:
    """What a request copies between slices."""
    problem = attempt_of(found.setting, PLAN_SLOTS).planning.problem
    return round(
        sum(
            problem.tensors[tensor].bytes * replica.share
            for replica in found.candidate.replicas
            for tensor, _, _ in transfers_of(problem, replica.placement)
        )
    )


def placement_of(found: Found) -> dict[str, dict[str, int]]:
    """Per kind of step how many are on which device; empty for several replicas."""
    if len(found.candidate.replicas) > 1:
        return {}
    attempt = attempt_of(found.setting, PLAN_SLOTS)
    counts: dict[str, dict[str, int]] = {}
    for part, trace in enumerate(found.setting.traces):
        devices = attempt.planning.expand_part(found.candidate.replicas[0].placement, part)
        for node, device in zip(trace.graph.nodes, devices, strict=True):
            row = counts.setdefault(node.name, {})
            name = str(found.setting.machine.devices[device].sms)
            row[name] = row.get(name, 0) + 1
    return counts


def plan_all(folder: Path, names: Sequence[str], *, prepare: bool = True) -> None:
    """Plan some mixes, and write what was found for each; `prepare` what is to be run, too."""
    for mix in (mix for mix in MIXES if mix.name in names):
        found = [one.row() for one in candidates(folder, mix)]
        strategies = dict.fromkeys(row["strategy"] for row in found)
        chosen = {
            name: best([row for row in found if row["strategy"] == name], "period_ns")
            for name in strategies
        }
        us = {name: round(row["period_ns"] / 1e3, 1) for name, row in chosen.items()}
        row = {
            "predicted_us": us,
            "decision": decision(us, WORTH),
            "split": {name: row["split"] for name, row in chosen.items()},
            "all": [{k: v for k, v in row.items() if k != "found"} for row in found],
        }
        (folder / f"{mix.name}_plans.json").write_text(json.dumps(row, indent=1) + "\n")
        print(mix.name, us, "->", row["decision"], row["split"], flush=True)
        if not prepare:
            continue
        prepared = [one for name, row in chosen.items() for one in prepare_all(name, row["found"])]
        (folder / f"{mix.name}_plans.pkl").write_bytes(pickle.dumps(prepared))


def predicted(folder: Path) -> dict[str, Any]:
    """What `predict` has found for all mixes, in short."""
    rows = {}
    for mix in MIXES:
        found = json.loads((folder / f"{mix.name}_plans.json").read_text())
        kernel = best([row for row in found["all"] if row["strategy"] == "kernel"], "period_ns")
        rows[mix.name] = {
            "predicted_us": found["predicted_us"],
            "decision": found["decision"],
            "split": found["split"],
            "kernel_moves_mb": round(kernel["moved_bytes"] / 1e6, 1),
            "worth": WORTH,
        }
    return rows


def candidates(folder: Path, mix: Mix) -> Iterator[Found]:
    """All strategies on the whole GPU and on all splits of a mix."""
    whole = load_traces(str(folder / f"{mix.name}_whole.ptx"))
    setting = setting_of(whole, GPU, (folder / f"{mix.name}_whole.json",))
    for found in strategies_of(setting, (SMS,)):
        yield replace(found, strategy="serial")
        yield replace(found, strategy="streams")
    sliced = load_traces(str(folder / f"{mix.name}_slices.ptx"))
    phases = load_traces([str(folder / f"{mix.name}_prefill.ptx"), str(folder / "decode.ptx")])
    for split in mix.splits:
        gpus = ",".join(f"{GPU}:{sms}sm" for sms in split)
        profile = (folder / f"{mix.name}_slices.json",)
        every = list(strategies_of(setting_of(sliced, gpus, profile), split))
        yield from (one for one in every if one.strategy in (Strategy.KERNEL, *BASELINES))
        if split == mix.tuned:
            yield from phase_of(folder, mix, phases, gpus, split)


def phase_of(
    folder: Path, mix: Mix, traces: tuple[LoadedTrace, ...], gpus: str, split: tuple[int, int]
) -> Iterator[Found]:
    """The prompt's tokens on the large slice, the sequences' on the small one."""
    profiles = (folder / f"{mix.name}_prefill.json", folder / "decode.json")
    setting = setting_of(traces, gpus, profiles)
    for one in strategies_of(setting, split, "phase"):
        if one.strategy == "phase":
            # A period is that of an average request, and a step is one of each kind.
            twice = replace(one.candidate, period_ns=2 * one.candidate.period_ns)
            yield replace(one, candidate=twice)


def setting_of(traces: tuple[LoadedTrace, ...], gpus: str, profiles: Sequence[Path]) -> PlanSetting:
    """What is planned, with measured times and no others, where there are any."""
    options = PlanOptions(
        gpus=gpus,
        slots=PLAN_SLOTS,
        lanes=PLAN_SLOTS,
        gap=0.002,
        profiles=tuple(str(one) for one in profiles if one.exists()),
    )
    machine = options.find_machine()
    read = [parse_profile(Path(one).read_text(), one) for one in options.profiles]
    costs = tuple(
        merge_profiles(
            _spread(estimated(trace), len(machine.devices)),
            machine,
            [one for one in read if one.program_digest == trace.planned.digest],
        )
        for trace in traces
    )
    if read:
        costs = tuple(map(_measured, costs))
    return PlanSetting(
        traces=traces,
        machine=machine,
        costs=costs,
        options=options,
        lowering=lowering_of(traces),
        profiles=tuple(read),
    )


_ESTIMATED: dict[str, Costs] = {}


def estimated(trace: LoadedTrace) -> Costs:
    """Costs on the whole GPU, worked out once: measured times take their place."""
    if trace.planned.digest not in _ESTIMATED:
        machine = PlanOptions(gpus=GPU).find_machine()
        _ESTIMATED[trace.planned.digest] = estimate_costs(trace.program, trace.graph, machine)
    return _ESTIMATED[trace.planned.digest]


def _measured(costs: Costs) -> Costs:
    """What was not measured on a slice cannot run there."""

    def known(cost: Cost) -> Cost:
        unknown = isinstance(cost, Duration) and cost.source is not CostSource.PROFILE
        return Barred(Wording("it was not measured")) if unknown else cost

    return Costs(
        tuple(replace(one, on_device=tuple(map(known, one.on_device))) for one in costs.steps)
    )


def _spread(costs: Costs, devices: int) -> Costs:
    return Costs(tuple(replace(one, on_device=one.on_device * devices) for one in costs.steps))


def attempt_of(setting: PlanSetting, slots: int) -> Attempt:
    """The problem for so many slots and as many lanes."""
    return Attempt(slots=slots, lanes=slots, planning=build_problem(setting, slots, slots))


def strategies_of(
    setting: PlanSetting, split: tuple[int, ...], strategy: str | None = None
) -> Iterator[Found]:
    """What the planner found, the best first."""
    setting = replace(setting, options=replace(setting.options, strategy=strategy))
    choice = choose_best(setting, attempt_of(setting, PLAN_SLOTS), "throughput", Watch())
    for one in choice.candidates if choice is not None else ():
        yield Found(strategy=one.name, split=split, setting=setting, choice=choice, candidate=one)  # type: ignore[arg-type]


def prepare_all(name: str, found: Found) -> Iterator[Prepared]:
    """The plan of a strategy in every way that is tried."""
    for slots, graphs in TRIED[name]:
        attempt, setting = attempt_of(found.setting, slots), found.setting
        if has_neighbours(setting):
            settled = settle(setting, attempt, found.candidate)
            attempt, setting = settled.attempt, settled.setting
        plan = assemble(setting, attempt, found.choice, found.candidate)
        wrong = findings_of(setting, plan)
        label = name if name == "serial" else f"{name}@{slots}{'' if graphs else ' calls'}"
        if wrong:
            print(f"{label} is given up: {wrong[0].headline}")
            continue
        one = prepared_of(label, plan, setting.traces)
        yield replace(one, graphs=graphs, depth=1 if slots >= MANY_SLOTS else None)


def prepared_of(label: str, plan: Plan, traces: Sequence[LoadedTrace]) -> Prepared:
    """A plan as the runtime opens it."""
    served = []
    for replica in plan.replicas:
        placed = {one.trace: one for one in replica.traces}
        served.append(
            tuple(
                ServedTrace(
                    name=trace.planned.name,
                    program=trace.program,
                    arches=tuple(step.arch for step in placed[index].steps),
                )
                for index, trace in enumerate(traces)
            )
        )
    slices = len(plan.devices) > 1
    return Prepared(
        name=label,
        replicas=tuple(replica.lowered for replica in plan.replicas),
        traces=tuple(served),
        targets={one.name: f"cuda:0:{one.sms}sm" if slices else "cuda:0" for one in plan.devices},
        turns=tuple(range(len(traces))),
    )
