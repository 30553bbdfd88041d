"""What `tessc plan` prints against the simulation of the file that it wrote.

A case is one or two traces (examples, or real sizes from `real_traces.py`), GPUs, a link, memory,
an objective, slots. Each is planned, and planned again with every `--strategy`. Each plan is
written, read back and simulated. Checked:

- rate and latencies are within 1% of what the plan says,
- no strategy is ahead of the chosen plan in simulation by more than 0.1%. Where the error bars held
  a split back, the plan without one is compared with others without one, and that is counted.

    python -m benchmarks.planning.promises [-o FILE] --plans 300 --jobs 15

Cases are drawn with a seed. What is in the file already is not done again, but for plans that came
over a smaller `--limit` of seconds of processor time. `--seconds` ends the run early; what was not
reached is done by the next one.
"""

from __future__ import annotations

import json
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import FrameType

from benchmarks.common import TRACES as EXAMPLES
from benchmarks.common import arguments, machine, write
from benchmarks.planning.real_traces import real_trace
from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanReport, plan
from tessera.driver.traces import load_traces
from tessera.ir.objectives import Objective, PlanFigures
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import Role
from tessera.planning.given.options import PlanOptions
from tessera.planning.search.strategies import PHASE, PLAN_STRATEGIES
from tessera.simulation.simulate_plan import simulate

CHOSEN = "chosen"
WITHIN = 0.01
BEHIND = 0.001
_PAIRS = ("a100,l40s", "h100,l40s", "h200,a100", "2xh100")
_MORE = ("2xa100,2xl40s", "3xh100,a100", "4xa100,4xl40s", "8xh100,8xa100")
_LINKS = ("100Gb/s", "pcie4", "nvlink")
_NVLINKED = ("2xh100", "h200,a100", "8xh100,8xa100", "3xh100,a100")
_WRITTEN_EVERY = 10.0

Case = dict[str, object]
Found = dict[str, object]


class OverLimitError(Exception):
    """A plan took too long."""


def cases(seed: int) -> Iterator[Case]:
    """Cases without end; the first ones do not depend on how many follow."""
    draw = random.Random(seed)
    number = -1
    while True:
        number += 1
        gpus = draw.choice(_PAIRS if number % 3 else _MORE)
        link = draw.choice(_LINKS if gpus in _NVLINKED else _LINKS[:2])
        kind = ("example", "decode", "prefill", "mix", "image", "experts")[number % 6]
        # A plan by cost tries all subsets of the GPUs: that is slow for many.
        objective = draw.choice(("throughput",) * 3 + ("latency", "cost")[: 1 + (number % 3 > 0)])
        batch, layers = draw.choice((1, 8, 32, 128)), draw.choice((1, 2, 4))
        context = draw.choice((256, 1024, 4096))
        tight = draw.random() < 0.25 and kind in ("decode", "prefill", "experts")
        slots = draw.choice((None, None, None, 1, 2, 3, 8, 16))
        large = draw.choice(("llama-8b", "llama-70b"))
        example = draw.choice(("llama_decode", "llama_prefill", "dit", "moe", "mamba", "mmdit"))
        if number % 18 == 1:
            large, layers = "llama-8b", 32  # all of the model
        if kind == "example":
            traces = [f"{example}.ptx"]
        elif kind == "mix":
            shared = f"rows={batch},capacity={context + 1}"
            traces = [
                f"{large},prefill,batch=1,context={context},layers={layers},{shared}",
                f"{large},decode,batch={batch},context={context},layers={layers},{shared}",
            ]
        else:
            model = {"image": "mmdit", "experts": "gpt-oss-20b"}.get(kind, large)
            phase = "decode" if kind == "experts" and number % 4 else kind
            phase = phase if phase in ("decode", "prefill") else "prefill"
            batch = batch if phase == "decode" else min(batch, 2)
            traces = [f"{model},{phase},batch={batch},context={context},layers={layers}"]
        yield {
            "number": number,
            "kind": kind,
            "traces": traces,
            "gpus": gpus,
            "link": link,
            "objective": objective,
            "slots": slots if objective == "throughput" else None,
            "tight": tight,
        }


def strategies_of(case: Case) -> list[str]:
    """How a case is planned: as the planner likes, and with every strategy there is for it."""
    several = len(case["traces"]) > 1  # type: ignore[arg-type]
    return [CHOSEN, *(str(s) for s in PLAN_STRATEGIES if several or s != PHASE)]


def write_traces(case: Case, folder: Path) -> list[str]:
    """The traces of a case as files; of a mix, twenty decode steps for each prefill."""
    names = []
    for index, text in enumerate(case["traces"]):  # type: ignore[arg-type]
        if text.endswith(".ptx"):
            names.append(str(EXAMPLES / text))
            continue
        model, phase, *sizes = text.split(",")
        numbers = {key: int(value) for key, value in (size.split("=") for size in sizes)}
        target = folder / f"{phase}{index}.ptx"
        target.write_text(real_trace(model, phase, **numbers))
        names.append(f"{target}:{20 if index else 1}" if case["kind"] == "mix" else str(target))
    return names


def follow(report: PlanReport, folder: Path) -> Found:
    """What a plan says, what its file does."""
    target = folder / "plan.tsp"
    target.write_text(print_plan(report.plan))
    simulated, said = simulate(target), report.plan
    off = {claim.name: claim.off for claim in simulated.claims() if claim.name != "bound"}
    doubted = report.decision.doubt
    value = Objective.named(said.objective).value(
        PlanFigures(
            period_ns=simulated.full.period_ns,
            latency_ns=simulated.alone_ns,
            usd_per_request=said.usd_per_request * simulated.full.period_ns / said.period_ns,
        )
    )
    return {
        "plan": said.strategy,
        "slots": said.replicas[0].slots,
        "gates": sum(t.gate is not None for r in said.replicas for t in r.lowered.traces),
        "splits": any(len(r.lowered.devices) > 1 or r.shares for r in said.replicas),
        "value": value,
        "off": {name: round(share, 6) for name, share in off.items()},
        "held_back": doubted is not None and not doubted.is_sure and doubted.split != said.strategy,
        "listed": {row.name: row.period_ns for row in said.baselines},
    }


def measure(case: Case, strategy: str, limit: float) -> Found:
    """One case with one strategy; it has `limit` seconds of processor time."""
    started = time.process_time()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OverLimitError

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            traces = write_traces(case, folder)
            options = PlanOptions(
                gpus=str(case["gpus"]),
                link=str(case["link"]),
                objective=str(case["objective"]),
                slots=case["slots"],  # type: ignore[arg-type]
                strategy=None if strategy == CHOSEN else strategy,
            )
            if case["tight"]:
                options = replace(options, memory=tuple(_tight(traces, options)))
            report = plan(traces, options, compare=False)
            took = time.process_time() - started
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            return {**follow(report, folder), "cpu_seconds": round(took, 2)}
    except TesseraError as fault:
        return {"none": fault.diagnostics[0].code}
    except OverLimitError:
        return {"over_limit": limit}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _tight(traces: list[str], options: PlanOptions) -> Iterator[str]:
    """Memory that a copy of the model just misses: nine tenths of it, and 1 GiB that is kept."""
    weights = sum(
        buffer.bytes
        for trace in load_traces(traces, None)
        for buffer in trace.graph.buffers
        if buffer.role in (Role.WEIGHT, Role.STATE)
    )
    for gpu in dict.fromkeys(card.gpu.key for card in options.find_machine().cards):
        yield f"{gpu}={int(0.9 * weights) + (1 << 30)}B"


def _behind(plans: dict[str, Found]) -> float:
    """How far the chosen plan is behind the best of what it is compared with."""
    chosen = plans.get(CHOSEN, {})
    if "value" not in chosen:
        return 0.0
    rivals = [
        float(str(found["value"]))
        for found in plans.values()
        if "value" in found and not (chosen["held_back"] and found["splits"])
    ]
    return max(0.0, float(str(chosen["value"])) / min(rivals) - 1.0)


def summary(rows: list[Case]) -> Found:
    """The figures of all cases."""
    plans = [found for row in rows for found in row["plans"].values()]  # type: ignore[attr-defined]
    made = [found for found in plans if "off" in found]
    off = [max((abs(share) for share in found["off"].values()), default=0.0) for found in made]
    behind = [_behind(row["plans"]) for row in rows]  # type: ignore[arg-type]
    seconds = sorted(float(found["cpu_seconds"]) for found in made)
    return {
        "cases": len(rows),
        "plans": len(made),
        "within_1_percent": sum(share <= WITHIN for share in off),
        "most_off": max(off, default=0.0),
        "behind_a_baseline": sum(share > BEHIND for share in behind),
        "most_behind": max(behind, default=0.0),
        "split_held_back": sum(
            bool(row["plans"].get(CHOSEN, {}).get("held_back"))  # type: ignore[attr-defined]
            for row in rows
        ),
        "no_plan": sum("none" in found for found in plans),
        "over_limit": sum("over_limit" in found for found in plans),
        "cpu_seconds": round(sum(seconds), 1),
        "median_cpu_seconds": seconds[len(seconds) // 2] if seconds else 0.0,
        "most_cpu_seconds": seconds[-1] if seconds else 0.0,
        "cover": {
            key: dict(sorted(Counter(str(row[key]) for row in rows).items()))
            for key in ("kind", "gpus", "link", "objective", "slots", "tight")
        },
    }


def _is_done(found: Found | None, limit: float) -> bool:
    return found is not None and float(str(found.get("over_limit", limit))) >= limit


def main() -> None:
    parser = arguments(__doc__, "promises.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    given = parser.parse_args()
    rows: dict[int, Case] = {}
    if given.output.exists():
        known = json.loads(given.output.read_text())
        if known.get("schema") == SCHEMA and known["seed"] == given.seed:
            rows = {row["number"]: row for row in known["rows"]}
    ends = time.monotonic() + given.seconds
    written = time.monotonic()
    under_way: dict[Future[Found], tuple[int, str]] = {}
    wanted = _wanted(given.seed, rows, given.limit)
    with ProcessPoolExecutor(given.jobs) as pool:
        while True:
            left = given.plans - sum("off" in f for r in rows.values() for f in _plans(r).values())
            while len(under_way) < min(given.jobs, left) and time.monotonic() < ends:
                case, strategy = next(wanted)
                task = pool.submit(measure, case, strategy, given.limit)
                under_way[task] = int(str(case["number"])), strategy
                rows.setdefault(int(str(case["number"])), {**case, "plans": {}})
            if not under_way:
                break
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for task in done:
                number, strategy = under_way.pop(task)
                _plans(rows[number])[strategy] = task.result()
                print(json.dumps({"case": number, strategy: task.result()}), flush=True)
            if time.monotonic() > written + _WRITTEN_EVERY:
                _write(given.output, given.seed, given.jobs, rows)
                written = time.monotonic()
    _write(given.output, given.seed, given.jobs, rows)
    print(json.dumps(summary([row for row in rows.values() if row["plans"]])))


SCHEMA = "tessera-promises/3"


def _plans(row: Case) -> dict[str, Found]:
    return row["plans"]  # type: ignore[return-value]


def _wanted(seed: int, rows: dict[int, Case], limit: float) -> Iterator[tuple[Case, str]]:
    """What is not in the file yet, in order."""
    for case in cases(seed):
        done = _plans(rows[number]) if (number := int(str(case["number"]))) in rows else {}
        for strategy in strategies_of(case):
            if not _is_done(done.get(strategy), limit):
                yield case, strategy


def _write(output: Path, seed: int, jobs: int, rows: dict[int, Case]) -> None:
    kept = [rows[number] for number in sorted(rows) if rows[number]["plans"]]
    document = {
        "schema": SCHEMA,
        "seed": seed,
        "machine": machine() | {"jobs": jobs},
        **summary(kept),
        "rows": kept,
    }
    write(document, output)


if __name__ == "__main__":
    main()
