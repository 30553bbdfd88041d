"""Whether steps take as long as the plan says: the monitor of a serving engine.

In: steps that begin and end. Out: a `Drift` when the steps of a trace leave the plan's error bars,
and when they are back. The expected time of a step comes from the simulation of the launch
programs, given the steps under way beside it (`step_clocks.RatedClock`). The bars are those of the
times in the plan, as if all were off in the same direction, and never narrower than a tenth: the
host takes some time for every step that no plan knows. The median of the last steps is compared, so
one slow step does not count as drift.

A separate process simulates the plan with the measured times: the simulation takes about a second,
in which threads of this process would wait for each other. Drift is reported at most every ten
seconds.
"""

from __future__ import annotations

import json
import os
import pickle
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tessera.driver.serve.batches import StepWork
from tessera.driver.serve.step_clocks import RatedClock
from tessera.ir.plan.plan import PlacedStep, Plan, Replica
from tessera.simulation.hardware import Hardware
from tessera.simulation.simulate import shares_of
from tessera.simulation.steady import saturate

STEPS = 32
"""Steps of a trace whose median is compared with the plan."""
_NARROWEST = 0.1
QUIET_NS = 10e9
"""Least nanoseconds between two reports of drift."""
_BOOT = (
    "import sys; sys.path[:] = sys.argv[1:];"
    "from tessera.driver.serve.drift import simulate_apart; simulate_apart()"
)
_LONGEST_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Steps of a trace take `ratio` times the planned time; the error bars reach to `bars`.

    `requests_per_s` is the simulated throughput of the plan with the measured times,
    `planned_per_s` that with its own times.
    """

    trace: str
    ratio: float
    bars: tuple[float, float]
    requests_per_s: float
    planned_per_s: float

    @property
    def is_back(self) -> bool:
        """Whether the steps are within the bars again."""
        return self.bars[0] <= self.ratio <= self.bars[1]


class StepMonitor:
    """Compares measured times of steps with expected ones."""

    def __init__(self, plan: Plan, replicas: Sequence[Replica], hardware: Hardware) -> None:
        """Each sequence of these replicas is a batch."""
        self._plan = plan
        self._replicas = tuple(replicas)
        self._hardware = hardware
        # Pickled here, because pickling it later would delay the steps under way.
        self._packed = pickle.dumps((self._replicas, shares_of(plan), hardware))
        traces = len(plan.traces)
        self._clock = RatedClock(replicas, hardware, traces)
        self._bars = [error_bars(replicas, trace) for trace in range(traces)]
        self._ratios: list[deque[float]] = [deque(maxlen=STEPS) for _ in range(traces)]
        self._is_out = [False] * traces
        self._quiet_until_ns = 0.0
        self._begun: dict[int, tuple[int, float, float]] = {}

    def begin(self, work: StepWork, now_ns: float) -> None:
        """A batch begins a step."""
        expected = self._clock.expect(work, now_ns) - now_ns
        self._begun[work.batch] = work.trace, now_ns, expected

    def forget(self, batch: int) -> None:
        """Forget the step of a batch that faulted."""
        if self._begun.pop(batch, None) is not None:
            self._clock.leave(batch)

    def end(self, batch: int, now_ns: float) -> Callable[[], Drift] | None:
        """End the step of a batch; returns a call, which is slow, that finds a new `Drift`."""
        known = self._begun.pop(batch, None)
        if known is None:
            return None
        self._clock.leave(batch)
        trace, begun_ns, expected = known
        ratios = self._ratios[trace]
        ratios.append((now_ns - begun_ns) / max(expected, 1.0))
        if len(ratios) < STEPS:
            return None
        ratio = statistics.median(ratios)
        low, high = self._bars[trace]
        is_out = not low <= ratio <= high
        if is_out == self._is_out[trace] or now_ns < self._quiet_until_ns:
            return None
        self._is_out[trace] = is_out
        self._quiet_until_ns = now_ns + QUIET_NS
        ratios.clear()
        factors = [statistics.median(own) if own else 1.0 for own in self._ratios]
        factors[trace] = ratio
        return partial(self._drift, trace, factors)

    def ratios(self) -> dict[str, float]:
        """The ratio of measured to planned times of steps, for each trace that has run."""
        return {
            self._plan.traces[trace].name: statistics.median(ratios)
            for trace, ratios in enumerate(self._ratios)
            if ratios
        }

    def _drift(self, trace: int, factors: Sequence[float]) -> Drift:
        try:
            planned, again = _periods_apart(self._packed, factors)
        except (OSError, ValueError, subprocess.SubprocessError):
            shares = shares_of(self._plan)
            planned, again = _periods(self._replicas, shares, self._hardware, factors)
        return Drift(
            trace=self._plan.traces[trace].name,
            ratio=factors[trace],
            bars=self._bars[trace],
            requests_per_s=1e9 / again if again else 0.0,
            planned_per_s=1e9 / planned if planned else 0.0,
        )


def _periods_apart(packed: bytes, factors: Sequence[float]) -> tuple[float, float]:
    """The period with the times of the plan and with scaled ones, from a separate process."""
    command = [sys.executable, "-P", "-c", _BOOT, *sys.path]
    given = packed + pickle.dumps(tuple(factors))
    made = subprocess.run(command, input=given, capture_output=True, timeout=_LONGEST_S, check=True)
    planned, again = json.loads(made.stdout)
    return float(planned), float(again)


def _periods(
    replicas: Sequence[Replica],
    shares: Sequence[float],
    hardware: Hardware,
    factors: Sequence[float],
) -> tuple[float, float]:
    planned = saturate(replicas, shares, hardware).period_ns
    return planned, saturate(retimed(replicas, factors), shares, hardware).period_ns


def simulate_apart() -> None:
    """The main function of the process: reads replicas and writes two periods in nanoseconds."""
    if hasattr(os, "nice"):
        os.nice(10)  # requests are served meanwhile
    replicas, shares, hardware = pickle.load(sys.stdin.buffer)
    periods = _periods(replicas, shares, hardware, pickle.load(sys.stdin.buffer))
    sys.stdout.write(json.dumps(periods))


def error_bars(replicas: Sequence[Replica], trace: int) -> tuple[float, float]:
    """The factors by which a trace's steps may be off, if all are off in the same direction."""
    placed = [own for replica in replicas for own in replica.traces if own.trace == trace]
    steps = [step for own in placed for step in own.steps]
    total = sum(step.predicted_ns for step in steps)
    off = sum(step.predicted_ns * step.error for step in steps) / total if total else 0.0
    off = max(off, _NARROWEST)
    return 1 / (1 + off), 1 + off


def retimed(replicas: Sequence[Replica], factors: Sequence[float]) -> tuple[Replica, ...]:
    """Replicas whose steps take longer by a factor for each trace."""
    made = []
    for replica in replicas:
        traces = tuple(
            replace(
                placed, steps=tuple(_longer(step, factors[placed.trace]) for step in placed.steps)
            )
            for placed in replica.traces
        )
        made.append(replace(replica, traces=traces))
    return tuple(made)


def _longer(step: PlacedStep, factor: float) -> PlacedStep:
    alone, quiet = (None if ns is None else ns * factor for ns in (step.alone_ns, step.quiet_ns))
    return replace(step, predicted_ns=step.predicted_ns * factor, alone_ns=alone, quiet_ns=quiet)


def drift_words(drift: Drift) -> str:
    """A drift in one line."""
    low, high = drift.bars
    if drift.is_back:
        return f"steps of `{drift.trace}` take as long as planned again ({drift.ratio:.2f} times)"
    return (
        f"steps of `{drift.trace}` take {drift.ratio:.2f} times as long as planned, and the error "
        f"bars reach from {low:.2f} to {high:.2f}: by simulation with these times the plan does "
        f"{drift.requests_per_s:.4g} steps/s instead of {drift.planned_per_s:.4g}"
    )
