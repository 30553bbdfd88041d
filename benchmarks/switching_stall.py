"""What a switch between two policies costs those who come just after it, and whether any is lost.

    python -m benchmarks.switching_stall -o RESULT.json [--switches 1000] [--requests 100000]
        [--parts stall,lost] [--seconds 1500]

An engine on the CPU backend, with a model whose kernels sleep (`timed_model`) and a policy on each
of two devices. Switches come by the clock and not by the load, so that requests after a switch and
others differ in nothing else. What is in the output is kept.

- `stall`: requests at random times, a switch every 0.2 s. From a row being given to the first
  launch: of those that got their row within 100 ms after a switch, of those that got it later, and
  of a run of the same requests without any switch.
- `lost`: short requests through the decode step alone, as quick as they go, a switch every 20 ms:
  every answer is compared with a plain loop.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.timed_model import VOCABULARY, TimedModel, answer
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.policies import PolicySwitch
from tessera.ir.choices import POLICIES
from tessera.ir.plan.plan import Plan

NAMES = tuple(policy.value for policy in POLICIES)
AFTER_S = 0.1
ROLES = ("tokens", "lengths", "rows", "next")
DECODE_ONLY = {"steps": {"decode": dict(zip(ROLES, ROLES, strict=True))}}


class ByTheClock(PolicySwitch):
    """The other policy every so often; 0: never."""

    every_ns = 0
    begun_ns = 0

    def choose(self, now_ns: float, waiting: int, unfilled: int = 0) -> str:
        turns = int((now_ns - self.begun_ns) // self.every_ns) if self.every_ns else 0
        wanted = NAMES[turns % 2]
        if wanted != self.policy:
            self.policy = wanted
            self.switches.append((now_ns, wanted))
        return wanted


def pair(model: TimedModel) -> Plan:
    """A policy on each of two devices."""
    plan = replace(model, replicas=2).plan()
    replicas = tuple(
        replace(replica, policy=name, share=1.0)
        for replica, name in zip(plan.replicas, NAMES, strict=True)
    )
    mean = (model.prefill_ms + model.decode_ms) / 2 * 1e6
    devices = tuple(replace(device, busy_ns=mean) for device in plan.devices)
    return replace(plan, replicas=replicas, devices=devices, period_ns=mean, bound=mean)


def engine_with(plan: Plan, every_s: float, **options: Any) -> Engine:
    engine = Engine(plan, backend="cpu", **options)
    assert engine.switch is not None
    made = ByTheClock(engine.switch.prices)
    made.every_ns, made.begun_ns = int(every_s * 1e9), time.monotonic_ns()
    engine.switch = made
    return engine


def stall(given: argparse.Namespace) -> dict[str, Any]:
    plan = pair(TimedModel(rows=32, batches=1, slots=1, decode_ms=10.0, prefill_ms=5.0))
    every_s, rows = 0.2, {}
    for name, every in (("switched", every_s), ("not switched", 0.0)):
        seconds = given.switches * every_s / (1 if every else 4)
        rows[name] = paced(plan, every, seconds)
        print(name, len(rows[name][0]), flush=True)
    answers, switches = rows["switched"]
    times = [at for at, _ in switches]
    soon, later, place = [], [], 0
    for got in answers:
        while place + 1 < len(times) and times[place + 1] <= got.seated_ns:
            place += 1
        since = got.seated_ns - times[place] if times and times[0] <= got.seated_ns else -1
        (soon if 0 <= since <= AFTER_S * 1e9 else later).append(got)
    never = rows["not switched"][0]
    groups = {"within 100 ms": soon, "later": later, "without switches": never}
    return {
        "switches": len(times),
        "requests": len(answers) + len(never),
        "ended": sorted({got.ended for got in (*answers, *never)}),
        **{name: times_of(group) for name, group in groups.items()},
    }


def paced(
    plan: Plan, every_s: float, seconds: float
) -> tuple[list[Generation], list[tuple[float, str]]]:
    draw = random.Random(3)
    answers = []
    with engine_with(plan, every_s) as engine:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 16))]
            answers.append(engine.submit(prompt, max_tokens=draw.randint(1, 6)))
            time.sleep(draw.expovariate(25.0))
        for got in answers:
            got.result()
        return answers, list(engine.switches)


def times_of(answers: list[Generation]) -> dict[str, float]:
    times = sorted((got.begun_ns - got.seated_ns) / 1e6 for got in answers)
    whole = sorted((got.begun_ns - got.came_ns) / 1e6 for got in answers)
    made: dict[str, float] = {"requests": len(times)}
    for name, values in (("row to launch", times), ("coming to launch", whole)):
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            made[f"{name} {part} ms"] = round(values[int((len(values) - 1) * share)], 3)
    return made


def lost(given: argparse.Namespace) -> dict[str, Any]:
    plan = pair(TimedModel(rows=64, batches=2, slots=2, decode_ms=0.01, prefill_ms=0.01))
    draw = random.Random(5)
    under_way: deque[tuple[Generation, list[int], int]] = deque()
    sent = right = 0
    began = time.monotonic()
    with engine_with(plan, 0.02, steps=DECODE_ONLY) as engine:
        until = began + given.seconds
        while under_way or (sent < given.requests and time.monotonic() < until):
            if sent < given.requests and len(under_way) < 400 and time.monotonic() < until:
                prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 2))]
                count = draw.randint(1, 3)
                under_way.append((engine.submit(prompt, max_tokens=count), prompt, count))
                sent += 1
                continue
            got, prompt, count = under_way.popleft()
            right += got.result() == answer(prompt, count)
        switches = len(engine.switches)
    took = round(time.monotonic() - began, 1)
    return {"requests": sent, "right": right, "switches": switches, "seconds": took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--switches", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1500.0, help="for `lost`")
    parser.add_argument("--parts", default="stall,lost")
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    result: dict[str, Any] = {
        "what": "switches between two policies, CPU backend with kernels that sleep",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }
    if given.output.exists():
        result = json.loads(given.output.read_text(encoding="utf-8"))
    for part in given.parts.split(","):
        if part not in result:
            result[part] = {"stall": stall, "lost": lost}[part](given)
            print(part, result[part], flush=True)
            given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
