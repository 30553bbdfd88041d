"""The plans of `simulated_h200`: made, simulated, and held against what they did.

In: traces and profiles. Out: a file per plan in the working folder; afterwards the report.
"""

from __future__ import annotations

import argparse
import json
import pickle
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.prediction.h200_models import MODELS, unpack

SLICES, WHOLE = "h200:84sm,h200:48sm", "h200"
RESULTS = "simulated.jsonl"


@dataclass(frozen=True)
class Wanted:
    """A plan to make."""

    label: str
    gpus: str = SLICES
    strategy: str | None = None
    slots: int | None = None
    placement: str | None = None


WANTED = (
    Wanted("kernel", strategy="kernel"),
    Wanted("dp", strategy="dp"),
    Wanted("layers", strategy="layers"),
    Wanted("whole", gpus=WHOLE, strategy="single"),
    Wanted("kernel@4", strategy="kernel", slots=4),
    Wanted("random:1@4", placement="random:1", slots=4),
    Wanted("kernel@2", strategy="kernel", slots=2),
    Wanted("layers@2", strategy="layers", slots=2),
    Wanted("whole@1", gpus=WHOLE, strategy="single", slots=1),
    Wanted("free"),
    Wanted("random:2@6", placement="random:2", slots=6),
    Wanted("attention", strategy="attention"),
    Wanted("kernel@8", strategy="kernel", slots=8),
    # How many requests a slice has at a time makes a difference: one, and more than two.
    Wanted("dp@1", strategy="dp", slots=1),
    Wanted("dp@4", strategy="dp", slots=4),
    Wanted("layers@4", strategy="layers", slots=4),
    Wanted("layers@6", strategy="layers", slots=6),
)


def traces(options: argparse.Namespace) -> dict[str, Path]:
    """The traces: those of the archive, or files that are in the folder already."""
    made = {name: options.work / f"{name}.ptx" for name in MODELS}
    return made if all(path.exists() for path in made.values()) else unpack(options.work)


# --- plan ------------------------------------------------------------------------------------


def plan_all(options: argparse.Namespace) -> None:
    """All plans of all models that have a profile, some processes at a time."""
    paths = traces(options)
    parts = max(1, options.jobs // len(options.models))
    todo = []
    for name in options.models:
        wanted = [w for w in WANTED if not plan_path(options, name, w.label).exists()]
        if (options.out / f"{name}.profile.json").exists():
            todo += [(name, wanted[n::parts]) for n in range(parts) if wanted[n::parts]]
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [pool.submit(plan_some, options, n, str(paths[n]), w) for n, w in todo]
        for one in as_completed(running):
            if one.exception() is not None:
                print("planning failed:", repr(one.exception())[:300], flush=True)


def plan_path(options: argparse.Namespace, model: str, label: str) -> Path:
    return Path(options.work) / f"{model}.{label.replace(':', '')}.pkl"


def plan_some(options: argparse.Namespace, model: str, path: str, wanted: list[Wanted]) -> None:
    """Some plans of a model; the trace is read once."""
    from tessera.driver.plan import make_plan
    from tessera.driver.plan.search import find_plan

    settings: dict[str, Any] = {}
    for one in wanted:
        begun = time.monotonic()
        given = make_plan.PlanOptions(
            gpus=one.gpus,
            strategy=one.strategy,
            slots=one.slots,
            sequences=one.slots,
            placement=one.placement,
            profiles=(str(options.out / f"{model}.profile.json"),),
            gap=0.005,
            seconds=40.0,
        )
        try:
            if one.gpus not in settings:
                settings[one.gpus] = make_plan._setting(path, given, make_plan.Watch())
            setting = replace(settings[one.gpus], options=given)
            decision = find_plan(setting, make_plan.Watch().within(given.seconds))
            keep(options, model, one, decision)
            what = (
                f"{decision.plan.period_ns / 1e3:.0f} us, {decision.plan.replicas[0].slots} slots"
            )
        except Exception as problem:
            what = f"{type(problem).__name__}: {problem}"[:200]
        print(f"{model} {one.label}: {what} ({time.monotonic() - begun:.1f} s)", flush=True)


def keep(options: argparse.Namespace, model: str, one: Wanted, decision: Any) -> None:
    from benchmarks.gain.plans import prepared_of

    prepared = prepared_of(one.label, decision.plan, decision.setting.traces)
    target = plan_path(options, model, one.label)
    part = target.with_suffix(".part")
    part.write_bytes(pickle.dumps((decision.plan, prepared)))
    part.rename(target)


ABLATED = ("layers@2", "kernel@4", "attention")


def variants(plan: Any, prepared: Any, one: Wanted) -> list[tuple[str, Any, Any, dict[str, Any]]]:
    """The plan as it is run by default, and what a part of it is without."""
    found = [("", plan, prepared, {})]
    if one.label in ABLATED:
        found.append((" one priority", plan, prepared, {"priorities": False}))
        found.append((" spanning graph", plan, prepared, {"spanning": True}))
    if any(t.gate is not None for r in plan.replicas for t in r.lowered.traces):
        bare = replace(plan, replicas=tuple(map(_ungated, plan.replicas)))
        replicas = tuple(replica.lowered for replica in bare.replicas)
        found.append((" no gate", bare, replace(prepared, replicas=replicas), {}))
    return found


def _ungated(replica: Any) -> Any:
    lowered = replica.lowered
    bare = tuple(replace(trace, gate=None) for trace in lowered.traces)
    return replace(replica, lowered=replace(lowered, traces=bare))


def simulated(plan: Any, depth: int) -> dict[str, Any]:
    """What the simulator says of a plan, and the bound of its busiest load."""
    from tessera.driver.simulate.hardware import hardware_of
    from tessera.driver.simulate.known_work import work_of
    from tessera.driver.simulate.simulate import shares_of
    from tessera.driver.simulate.steady import largest_load_ns, saturate

    hardware, replicas, shares = hardware_of(plan), plan.replicas, shares_of(plan)
    assert hardware is not None
    found = saturate(replicas, shares, hardware)
    deep = saturate(replicas, shares, replace(hardware, depth=depth))
    bound = largest_load_ns(replicas, work_of(replicas, hardware), shares, hardware)
    return {
        "simulated_ns": round(found.period_ns, 1),
        "simulated_latency_ns": round(found.latency_ns, 1),
        "simulated_deep_ns": round(deep.period_ns, 1),
        "simulated_deep_latency_ns": round(deep.latency_ns, 1),
        "bound_ns": round(bound, 1),
        "load_ns": round(load_ns(replicas, shares), 1),
    }


def load_ns(replicas: Any, shares: Any) -> float:
    """What the busiest device takes for the steps of a request while nothing is ever free."""
    loads: dict[str, float] = {}
    for replica in replicas:
        for placed in replica.traces:
            part = replica.share * shares[placed.trace] / sum(shares)
            for step in placed.steps:
                loads[step.device] = loads.get(step.device, 0.0) + part * step.predicted_ns
    return max(loads.values())


def read_rows(options: argparse.Namespace) -> list[dict[str, Any]]:
    path = options.out / RESULTS
    rows = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # cut off
    return rows


# --- afterwards ------------------------------------------------------------------------------


def steps(options: argparse.Namespace) -> None:
    """Whole steps: measured, against the sum of what the model says of their kernels."""
    from tessera.driver.plan.traces import load_traces
    from tessera.frontend.machine.gpus import machine_of
    from tessera.passes.costs.estimate_costs import estimate_costs

    found = []
    for model, path in traces(options).items():
        profiled = options.out / f"{model}.profile.json"
        if not profiled.exists():
            continue
        (trace,) = load_traces(str(path))
        for whole in json.loads(profiled.read_text())["wholes"]:
            gpus = "h200" if whole["sms"] == 132 else f"h200:{whole['sms']}sm"
            costs = estimate_costs(trace.program, trace.graph, machine_of(gpus, "100Gb/s"))
            said = sum(getattr(step.on_device[0], "ns", 0.0) for step in costs.steps)
            row = {"model": model, "sms": whole["sms"], "measured_ns": whole["ns"]}
            row |= {"predicted_ns": round(said, 1), "ratio": round(said / whole["ns"], 3)}
            found.append(row)
            print(row, flush=True)
    (options.out / "steps.json").write_text(json.dumps(found, indent=1) + "\n")


def again(options: argparse.Namespace) -> None:
    """The plans that ran, simulated again with the times of the host as plans have them now."""
    from tessera.frontend.machine.profile import parse_profile
    from tessera.passes.costs.measured_links import LOADED_HOST

    rows = read_rows(options)
    for row in rows:
        if "error" in row:
            continue
        plan, prepared = pickle.loads(plan_path(options, row["model"], row["label"]).read_bytes())
        wanted = next(one for one in WANTED if one.label == row["label"])
        (ran,) = (
            changed
            for suffix, changed, *_ in variants(plan, prepared, wanted)
            if suffix.strip() == row["variant"]
        )
        profile = parse_profile((options.out / f"{row['model']}.profile.json").read_text())
        times = {
            "host_call_ns": LOADED_HOST * profile.host_call_ns,
            "host_byte_ns": LOADED_HOST * profile.host_byte_ns,
        }
        row |= simulated(replace(ran, **times), row["depth"])
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (options.out / RESULTS).write_text(text)


def _accuracy(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How near the simulation is to these rows, and whether it has them in order."""
    away = sorted(abs(row["off"]) for row in rows)
    pairs = [
        (a, b)
        for a in rows
        for b in rows
        if a["model"] == b["model"] and a["measured_ns"] < 0.95 * b["measured_ns"]
    ]
    return {
        "plans": len(rows),
        "within_7_percent": round(sum(one <= 0.07 for one in away) / max(len(away), 1), 3),
        "within_15_percent": round(sum(one <= 0.15 for one in away) / max(len(away), 1), 3),
        "most_off": away[-1] if away else None,
        "median_off": away[len(away) // 2] if away else None,
        "pairs_that_differ_by_5_percent": len(pairs),
        "in_the_right_order": sum(a["simulated_ns"] < b["simulated_ns"] for a, b in pairs),
    }


def report(options: argparse.Namespace) -> None:
    """All rows, and how near the simulation is."""
    rows = [row for row in read_rows(options) if "error" not in row]
    failed = [row for row in read_rows(options) if "error" in row]
    plain = [row for row in rows if not row["variant"]]
    for row in rows:
        row["off"] = round(row["measured_ns"] / row["simulated_ns"] - 1, 4)
        row["latency_off"] = round(row["measured_latency_ns"] / row["simulated_latency_ns"] - 1, 4)
        row["rate_over_bound"] = round(row["bound_ns"] / row["measured_ns"], 4)
        row["rate_over_load"] = round(row["load_ns"] / row["measured_ns"], 4)
        said = f"{row['id']:28} slots {row['slots']} off {row['off']:+.3f}"
        print(said, f"latency {row['latency_off']:+.3f} of load {row['rate_over_load']:.3f}")
    document = {
        "schema": "tessera-simulated-h200/2",
        "searched": _accuracy([r for r in plain if not r["strategy"].startswith("random")]),
        "with_random_placements": _accuracy(plain),
        "rows": rows,
        "failed": failed,
    }
    print({k: v for k, v in document.items() if k not in ("rows", "failed")})
    if options.file:
        options.file.write_text(json.dumps(document, indent=1) + "\n")
