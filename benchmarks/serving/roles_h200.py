"""Prompts on one slice of an H200 and answers on the other, with hand-over between the two.

    python -m benchmarks.serving.roles_h200 prepare --work FOLDER          # no GPU, needs torch
    python -m benchmarks.serving.roles_h200 run --work FOLDER -o FILE [--seconds 150]

`prepare` captures the steps of `benchmarks.serving.h200` (8 layers of Llama 3 8B, bf16, random
weights) and plans them three ways: prompts on 84 SMs and answers on 48, both slices as replicas,
and the whole GPU. `run` needs a GPU. With `--tiny` the steps are those of `examples/traces`, on the
CPU backend; with `--stand-in` too, on a stand-in for the driver: a rehearsal.

- `tokens`: 64 sequences that join, leave, stop and are given up, against a plain loop over the same
  steps on the whole GPU, token for token (`serving_tokens`).
- `cost`: what hand-overs take: bytes, time from the first byte to the last, time from when a prompt
  was read until its sequence was in its new batch, and how much of that is in TTFT.
- `mix`: many requests at once, then at random times, by each of the three plans.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tessera
from benchmarks.common import TRACES, Row, arguments, machine, write
from benchmarks.running.cuda_bench import facts
from benchmarks.serving import engines, h200
from benchmarks.serving import tokens as serving_tokens
from tessera.driver.run.open_plan import open_plan
from tessera.driver.serve.bench_text import bench_text
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.options import ArrivingText
from tessera.ir.objectives import HOUR_NS
from tessera.ir.plan.plan import Plan, memory_on
from tessera.ir.plan.print_plan import print_plan
from tessera.planning.lower.lower_plan import Lowering

ROLES = ((1.0, 0.0), (0.0, 1.0))
"""The shares of prefill and decode steps, on the larger slice and on the smaller."""
MIX = (384, 64)
"""Tokens of a prompt and of an answer."""


# --- without a GPU --------------------------------------------------------------------------------


def prepare(given: argparse.Namespace) -> None:
    """Traces, and the three plans; what is there stays."""
    setting = h200.setting_of(given)
    given.work.mkdir(parents=True, exist_ok=True)
    steps = [given.work / f"{kind}.ptx" for kind in ("prefill", "decode")]
    if setting.tiny:
        steps = [TRACES / f"gpt_steps_{kind}.ptx" for kind in ("prefill", "decode")]
        shutil.copy(TRACES / "gpt_steps.npz", given.work)  # contents lie beside plans
    for path, more in zip(steps, ({"chunk": setting.chunk}, {}), strict=True):
        h200.capture(setting, path, f"llama_{path.stem}", h200.sized(setting) | more)
    traces = [f"{steps[0]}:1", f"{steps[1]}:{setting.rows}"]
    one: dict[str, Any] = {"slots": 1, "sequences": 1}
    whole = tessera.PlanOptions(gpus="h200", strategy="single", **one)
    save(given.work / "whole.tsp", tessera.plan(traces, whole).plan)
    slices = tessera.PlanOptions(gpus=h200.SLICES, strategy="dp", **one)
    both = tessera.plan(traces, slices).plan
    save(given.work / "replicas.tsp", both)
    save(given.work / "roles.tsp", in_roles(both))


def save(path: Path, plan: Plan) -> None:
    path.write_text(print_plan(plan), encoding="utf-8")
    shares = [replica.shares or replica.share for replica in plan.replicas]
    print(path.name, [device.name for device in plan.devices], shares, flush=True)


def in_roles(plan: Plan) -> Plan:
    """The plan with two replicas, one of which reads prompts, while the other one answers them."""
    opened = open_plan(plan)
    lowering = Lowering(opened.programs, opened.graphs)
    replicas = []
    busy = {device.name: 0.0 for device in plan.devices}
    for replica, own in zip(plan.replicas, ROLES, strict=True):
        kept = tuple(placed for placed in replica.traces if own[placed.trace])
        made = replace(replica, shares=own, traces=kept)
        for placed in kept:
            for step in placed.steps:
                busy[step.device] += plan.traces[placed.trace].share * step.predicted_ns
        lowered = lowering.lower(made.placements(len(plan.traces)), slots=1, lanes=1)
        share = sum(made.own_shares([trace.share for trace in plan.traces]))
        replicas.append(replace(made, share=share, lowered=lowered))
    used = {device.name: memory_on(replicas, device.name) for device in plan.devices}
    period_ns = max(busy.values())
    hourly = sum(card.usd_per_hour or 0.0 for card in plan.cards)
    return replace(
        plan,
        strategy="roles",
        replicas=tuple(replicas),
        baselines=(),
        period_ns=period_ns,
        usd_per_request=period_ns * hourly / HOUR_NS,
        bound=0.0,
        devices=tuple(replace(device, busy_ns=busy[device.name]) for device in plan.devices),
        cards=tuple(
            replace(card, used_bytes=sum(used[d.name] for d in plan.devices if d.card == card.name))
            for card in plan.cards
        ),
    )


# --- on the GPU -----------------------------------------------------------------------------------


class Run:
    """One run: its plans, how they are opened, and the time that is left."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.work: Path = given.work
        self.tiny: bool = given.tiny
        self.until = time.monotonic() + given.seconds
        self.backend = "cuda" if given.stand_in or not given.tiny else "cpu"
        if given.stand_in:
            import tests.helpers.boot_fake_cuda

            assert tests.helpers.boot_fake_cuda

    def left(self) -> float:
        return max(self.until - time.monotonic(), 1.0)

    def options(self, name: str) -> dict[str, Any]:
        """How an engine or a runtime opens a plan."""
        options: dict[str, Any] = {"backend": self.backend}
        if self.backend == "cuda":
            whole = {"h200-0": "cuda:0"}
            options["targets"] = whole if name == "whole" else h200.TARGETS
        return options

    def engine(self, name: str, ended: list[Generation], **more: Any) -> tessera.Engine:
        return tessera.Engine(
            self.work / f"{name}.tsp",
            isolated=False,
            on_end=ended.append,
            **self.options(name),
            **more,
        )

    def tokens(self) -> Iterator[tuple[str, Row]]:
        """A plain loop over the whole GPU, then the engine with roles."""
        vocabulary = 64 if self.tiny else engines.LARGE["vocabulary"]
        lengths = ((1, 9), (1, 12)) if self.tiny else ((1, 200), (8, 72))
        asked = serving_tokens.mixed(64, vocabulary, *lengths, sampled=False)
        with tessera.Runtime(self.work / "whole.tsp", **self.options("whole")) as runtime:
            right = serving_tokens.Loop(runtime=runtime, limit_s=self.left()).answers(asked)
        ended: list[Generation] = []
        begun = time.monotonic()
        with self.engine("roles", ended) as engine:
            started_s = time.monotonic() - begun
            row = serving_tokens.by_engine(engine, asked, right, self.left())
            yield "tokens", row | {"start_s": round(started_s, 1)}
            yield "cost", cost(engine, ended)

    def mix(self) -> Iterator[tuple[str, Row]]:
        """The same requests by each plan: all at once, then at 0.6 of what the whole GPU takes."""
        sizes = (9, 6) if self.tiny else MIX
        count = 24 if self.tiny else 256
        rate = 0.0
        for name, more in (
            ("whole", {}),
            ("whole, two batches", {"sequences": 2, "slots": 2}),
            ("replicas", {}),
            ("roles", {}),
        ):
            if self.left() < 12:
                yield f"mix: {name}", {"failed": "not reached"}
                continue
            ended: list[Generation] = []
            with self.engine(name.split(",")[0], ended, **more) as engine:
                engine.generate([[1, 2, 3]] * 4, max_tokens=3, ignore_end=True)
                flood = ArrivingText(arrivals=f"poisson:1000000/s:{count}", tokens=sizes)
                whole = bench_text(engine, name, flood)
                rate = rate or whole.rates()["requests_per_s"]
                some = ArrivingText(
                    arrivals=f"poisson:{0.6 * rate:.6g}/s:{count}", tokens=sizes, seed=1
                )
                spread = bench_text(engine, name, some)
                row = {"at once": figures(whole), "at 0.6": figures(spread)}
                yield f"mix: {name}", row | {"hand_overs": engine.counts.hand_overs}


def figures(report: Any) -> Row:
    """Rates and times of a report, in milliseconds."""
    rates = {name: round(value, 3) for name, value in report.rates().items()}
    times = {name: round(value, 3) for name, value in engines.figures(report).items()}
    return rates | times | {"endings": report.endings(), "hand_overs": report.hand_overs()}


def cost(engine: tessera.Engine, ended: Sequence[Generation]) -> Row:
    """What hand-overs have taken."""
    moved = [answer.served(0) for answer in ended if answer.hand_overs]
    count = max(engine.counts.hand_overs, 1)
    waited = sorted(served.handed_ns / 1e3 for served in moved)
    return {
        "hand_overs": engine.counts.hand_overs,
        "sequences": len(moved),
        "mean_bytes": engine.counts.hand_over_bytes // count,
        "mean_us": round(engine.counts.hand_over_ns / count / 1e3, 1),
        "gigabytes_per_s": round(
            engine.counts.hand_over_bytes / max(engine.counts.hand_over_ns, 1), 2
        ),
        "from_read_to_batch_us": {
            "median": round(statistics.median(waited), 1) if waited else None,
            "most": round(waited[-1], 1) if waited else None,
        },
        "in_ttft_us": round(sum(s.held_ns for s in moved) / max(len(moved), 1) / 1e3, 1),
        "first_token_from_prefill": engine.sizes.first_from_prefill,
        "without_hand_over": sum(not answer.hand_overs for answer in ended),
    }


def run(given: argparse.Namespace) -> None:
    """Both parts; a row is written as soon as it is there."""
    one_run = Run(given)
    rows: dict[str, Row] = {}
    for part in (one_run.tokens, one_run.mix):
        for name, row in part():
            rows[name] = row
            print(name, json.dumps(row), flush=True)
            head = {"what": __doc__.splitlines()[0], **machine()}
            head |= {"gpu": facts()} if one_run.backend == "cuda" else {}
            write(head | {"rows": rows}, given.output)


def main() -> None:
    parser = arguments(__doc__, "serving_roles_h200.json")
    parser.add_argument("stage", choices=("prepare", "run"))
    parser.add_argument("--work", type=Path, required=True, help="a folder for traces and plans")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--tiny", action="store_true", help="a small model, without a GPU")
    parser.add_argument("--stand-in", action="store_true", help="with `--tiny`: a stand-in driver")
    parser.set_defaults(limit=1200.0, one=None, load_s=0.0)
    given = parser.parse_args()
    given.tiny = given.tiny or given.stand_in
    {"prepare": prepare, "run": run}[given.stage](given)


if __name__ == "__main__":
    main()
