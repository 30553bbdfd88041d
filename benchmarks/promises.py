"""What `tessc plan` prints against the simulation of the file that it wrote.

A case is one or two traces (examples, or real sizes from `real_traces.py`), GPUs, a link, memory,
an objective, slots. Each is planned, and planned again with every `--strategy`. Each plan is
written, read back and simulated. Checked:

- rate and latencies are within 1% of what the plan says,
- no strategy is ahead of the chosen plan in simulation by more than 0.1%. Where the error bars held
  a split back, the plan without one is compared with others without one, and that is counted.

    python -m benchmarks.promises -o benchmarks/results/promises.json --plans 300

Cases are drawn with a seed. What is in the file already is not done again. A plan that takes more
than `--limit` seconds of processor time is noted as such.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType

from benchmarks.real_traces import real_trace
from tessera.diagnostics import TesseraError
from tessera.driver.plan.make_plan import PlanReport, plan
from tessera.driver.plan.options import PlanOptions
from tessera.driver.simulate.simulate_plan import simulate
from tessera.ir.choices import Objective, Strategy
from tessera.ir.plan.print_plan import print_plan

EXAMPLES = Path(__file__).parent.parent / "examples" / "traces"
STRATEGIES = tuple(Strategy)
WITHIN = 0.01
BEHIND = 0.001
_PAIRS = ("a100,l40s", "h100,l40s", "h200,a100", "2xh100")
_MORE = ("2xa100,2xl40s", "3xh100,a100", "4xa100,4xl40s", "8xh100,8xa100")
_LINKS = ("100Gb/s", "pcie4", "nvlink")
_NVLINKED = ("2xh100", "h200,a100", "8xh100,8xa100", "3xh100,a100")


class OverLimitError(Exception):
    """A plan took too long."""


def cases(seed: int, count: int) -> Iterator[dict[str, object]]:
    """Cases without end but for their number; the first ones do not depend on how many follow."""
    draw = random.Random(seed)
    for number in range(count):
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


def write_traces(case: dict[str, object], folder: Path) -> list[str]:
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


def follow(report: PlanReport, folder: Path) -> dict[str, object]:
    """What a plan says, what its file does."""
    target = folder / "plan.tsp"
    target.write_text(print_plan(report.plan))
    simulated, said = simulate(target), report.plan
    off = {claim.name: claim.off for claim in simulated.claims() if claim.name != "bound"}
    doubted = report.decision.doubt
    value = {
        Objective.THROUGHPUT: simulated.full.period_ns,
        Objective.LATENCY: simulated.alone_ns,
        Objective.COST: said.usd_per_request * simulated.full.period_ns / said.period_ns,
    }[Objective(said.objective)]
    return {
        "plan": said.strategy,
        "slots": said.replicas[0].slots,
        "gates": sum(t.gate is not None for r in said.replicas for t in r.lowered.traces),
        "splits": any(len(r.lowered.devices) > 1 for r in said.replicas),
        "value": value,
        "off": {name: round(share, 6) for name, share in off.items()},
        "held_back": doubted is not None and not doubted.is_sure and doubted.split != said.strategy,
        "listed": {row.name: row.period_ns for row in said.baselines},
    }


def measure(case: dict[str, object], limit: float) -> dict[str, object]:
    """One case, with every strategy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traces = write_traces(case, folder)
        memory: tuple[str, ...] = ()
        options = PlanOptions(
            gpus=str(case["gpus"]),
            link=str(case["link"]),
            objective=str(case["objective"]),
            slots=case["slots"],  # type: ignore[arg-type]
        )
        plans: dict[str, dict[str, object]] = {}
        if case["tight"]:
            memory = tuple(_tight(traces, options))
        for strategy in (None, *STRATEGIES):
            if strategy == Strategy.PHASE and len(traces) == 1:
                continue
            given = replace(options, strategy=strategy, memory=memory)
            plans[strategy or "chosen"] = _one(traces, given, folder, limit)
    return {**case, "memory": memory, "plans": plans, "behind": _behind(plans)}


def _one(traces: list[str], options: PlanOptions, folder: Path, limit: float) -> dict[str, object]:
    started = time.process_time()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OverLimitError

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
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
    found = plan(traces, replace(options, strategy=None, slots=1), compare=False)
    weights = sum(
        buffer.bytes
        for trace in found.setting.traces
        for buffer in trace.graph.buffers
        if buffer.role.value in ("weight", "state")
    )
    for gpu in dict.fromkeys(card.gpu.key for card in found.machine.cards):
        yield f"{gpu}={int(0.9 * weights) + (1 << 30)}B"


def _behind(plans: dict[str, dict[str, object]]) -> float:
    """How far the chosen plan is behind the best of what it is compared with."""
    chosen = plans["chosen"]
    if "value" not in chosen:
        return 0.0
    rivals = [
        float(str(found["value"]))
        for found in plans.values()
        if "value" in found and not (chosen["held_back"] and found["splits"])
    ]
    return max(0.0, float(str(chosen["value"])) / min(rivals) - 1.0)


def summary(rows: list[dict[str, object]]) -> dict[str, object]:
    """The figures of all cases."""
    plans = [found for row in rows for found in row["plans"].values()]  # type: ignore[attr-defined]
    made = [found for found in plans if "off" in found]
    off = [max((abs(share) for share in found["off"].values()), default=0.0) for found in made]
    return {
        "cases": len(rows),
        "plans": len(made),
        "within_1_percent": sum(share <= WITHIN for share in off),
        "most_off": max(off, default=0.0),
        "behind_a_baseline": sum(float(str(row["behind"])) > BEHIND for row in rows),
        "split_held_back": sum(
            bool(row["plans"]["chosen"].get("held_back"))  # type: ignore[index]
            for row in rows
        ),
        "no_plan": sum("none" in found for found in plans),
        "over_limit": sum("over_limit" in found for found in plans),
        "cpu_seconds": round(sum(float(found["cpu_seconds"]) for found in made), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plans", type=int, default=300)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    if given.output.exists():
        rows = json.loads(given.output.read_text())["rows"]
    done = {row["number"] for row in rows}
    for case in cases(given.seed, given.plans):
        if int(str(summary(rows)["plans"])) >= given.plans:
            break
        if case["number"] in done:
            continue
        rows.append(measure(case, given.limit))
        figures = summary(rows)
        document = {"schema": "tessera-promises/1", "seed": given.seed, **figures, "rows": rows}
        given.output.write_text(json.dumps(document, indent=1) + "\n")
        print(json.dumps({"number": case["number"], "kind": case["kind"], **figures}), flush=True)


if __name__ == "__main__":
    main()
