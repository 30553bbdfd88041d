"""What a switch between two policies costs those who come just after it, and whether any is lost.

    python -m benchmarks.serving.switching_stall [--switches 1000] [--requests 100000]
        [--parts stall,lost] [--seconds 1500]

An engine on the CPU backend, with a model whose kernels sleep (`timed_model`) and a policy on each
of two devices. Switches come by the clock and not by the load, so that requests after a switch and
others differ in nothing else. What is in the output is kept.

- `stall`: requests at random times. For 20 s there is a switch every 0.2 s, for 20 s there is none,
  and so on, since the machine may have other work. From a row being given to the first launch: of
  requests that got their row within 100 ms after a switch, and of those in times without switches.
- `lost`: short requests through the decode step alone, as quick as they go, a switch every 20 ms:
  every answer is compared with a plain loop. In rounds, each with an engine of its own; after each
  the output is written, and the same command goes on from there.
"""

from __future__ import annotations

import argparse
import bisect
import random
import time
from collections import deque
from dataclasses import replace
from typing import Any

from benchmarks.common import arguments, kept, machine, write
from benchmarks.serving.timed_model import VOCABULARY, TimedModel, answer
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.policies import PolicySwitch
from tessera.ir.objectives import POLICIES
from tessera.ir.plan.plan import Plan

NAMES = tuple(map(str, POLICIES))
AFTER_NS = 100e6
PAUSE_S = 20.0
ROUND = 5000
ROLES = ("tokens", "lengths", "rows", "next")
DECODE_ONLY = {"steps": {"decode": dict(zip(ROLES, ROLES, strict=True))}}


class ByTheClock(PolicySwitch):
    """Switches to the other policy; with `pause_ns`, only in every second period of that length."""

    every_ns = 0
    pause_ns = 0
    begun_ns = 0

    def choose(self, now_ns: float, waiting: int, unfilled: int = 0) -> str:
        if self.is_paused(now_ns):
            return self.policy
        wanted = NAMES[int((now_ns - self.begun_ns) // self.every_ns) % 2]
        if wanted != self.policy:
            self.policy = wanted
            self.switches.append((now_ns, wanted))
        return wanted

    def is_paused(self, at_ns: float) -> bool:
        """Whether no switch is made then."""
        return bool(self.pause_ns) and (at_ns - self.begun_ns) // self.pause_ns % 2 == 1


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


def engine_with(plan: Plan, every_s: float, pause_s: float = 0.0, **options: Any) -> Engine:
    engine = Engine(plan, backend="cpu", **options)
    assert engine.switch is not None
    made = ByTheClock(engine.switch.prices)
    made.every_ns, made.pause_ns = int(every_s * 1e9), int(pause_s * 1e9)
    made.begun_ns = time.monotonic_ns()
    engine.switch = made
    return engine


def stall(given: argparse.Namespace) -> dict[str, Any]:
    plan = pair(TimedModel(rows=32, batches=1, slots=1, decode_ms=10.0, prefill_ms=5.0))
    every_s, draw = 0.2, random.Random(3)
    answers = []
    with engine_with(plan, every_s, PAUSE_S) as engine:
        switch = engine.switch
        assert isinstance(switch, ByTheClock)
        while len(switch.switches) < given.switches:
            prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 16))]
            answers.append(engine.submit(prompt, max_tokens=draw.randint(1, 4)))
            time.sleep(draw.expovariate(8.0))
        for got in answers:
            got.result()
        times = [at for at, _ in switch.switches]
        soon = [got for got in answers if 0 <= since(times, got.seated_ns) <= AFTER_NS]
        never = [
            got
            for got in answers
            if switch.is_paused(got.seated_ns) and switch.is_paused(got.seated_ns - AFTER_NS)
        ]
    return {
        "switches": len(times),
        "requests": len(answers),
        "ended": sorted({got.ended for got in answers}),
        "within 100 ms after a switch": times_of(soon),
        "without switches": times_of(never),
    }


def since(times: list[float], at_ns: float) -> float:
    """How long the last switch was ago."""
    place = bisect.bisect_right(times, at_ns)
    return at_ns - times[place - 1] if place else -1.0


def times_of(answers: list[Generation]) -> dict[str, float]:
    times = sorted((got.begun_ns - got.seated_ns) / 1e6 for got in answers)
    whole = sorted((got.begun_ns - got.came_ns) / 1e6 for got in answers)
    made: dict[str, float] = {"requests": len(times)}
    for name, values in (("row to launch", times), ("coming to launch", whole)):
        for part, share in (("p50", 0.5), ("p99", 0.99)):
            made[f"{name} {part} ms"] = round(values[int((len(values) - 1) * share)], 3)
    return made


def lost(given: argparse.Namespace, before: dict[str, Any]) -> dict[str, Any]:
    """A round more."""
    plan = pair(TimedModel(rows=64, batches=2, slots=2, decode_ms=0.01, prefill_ms=0.01))
    rounds = before.get("rounds", 0)
    draw = random.Random(5 + rounds)
    under_way: deque[tuple[Generation, list[int], int]] = deque()
    sent = right = 0
    most = min(given.requests - before.get("requests", 0), ROUND)
    began = time.monotonic()
    with engine_with(plan, 0.02, steps=DECODE_ONLY) as engine:
        while under_way or sent < most:
            if sent < most and len(under_way) < 400:
                prompt = [draw.randrange(VOCABULARY) for _ in range(draw.randint(1, 2))]
                count = draw.randint(1, 3)
                under_way.append((engine.submit(prompt, max_tokens=count), prompt, count))
                sent += 1
                continue
            got, prompt, count = under_way.popleft()
            right += got.result() == answer(prompt, count)
        switches = len(engine.switches)
    took = time.monotonic() - began
    more = {"requests": sent, "right": right, "switches": switches, "seconds": took, "rounds": 1}
    return {name: round(before.get(name, 0) + value, 1) for name, value in more.items()}


def main() -> None:
    parser = arguments(__doc__, "switching_stall.json")
    parser.add_argument("--switches", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=1500.0, help="for `lost`")
    parser.add_argument("--parts", default="stall,lost")
    given = parser.parse_args()
    result = kept(given.output) or {
        "what": "switches between two policies, CPU backend with kernels that sleep",
        **machine(),
    }

    def keep(part: str, row: dict[str, Any]) -> None:
        result[part] = row
        print(part, row, flush=True)
        write(result, given.output)

    parts = given.parts.split(",")
    if "stall" in parts and "stall" not in result:
        keep("stall", stall(given))
    until = time.monotonic() + given.seconds
    while "lost" in parts and time.monotonic() < until:
        before = result.get("lost", {})
        if before.get("requests", 0) >= given.requests:
            break
        keep("lost", lost(given, before))


if __name__ == "__main__":
    main()
