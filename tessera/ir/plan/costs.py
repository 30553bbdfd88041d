"""How long each step takes on each device, where the number comes from, and how far to trust it.

In: nothing. Out: frozen records that `planning.prices.estimate_costs` fills and the planner reads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tessera.ir.program.program import LaunchId
from tessera.wording import Wording


class CostSource(enum.Enum):
    """Where a duration comes from, in the order of trust."""

    PROFILE = "profile"
    TABLE = "table"
    RATIO = "ratio"
    MODEL = "model"
    SHEET = "sheet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A predicted time. The true time is taken to differ by at most the fraction `error`.

    `beside` are the times beside a neighbour on the same card that only computes, and beside one
    that only moves memory, where both are known. `alone_ns` and `quiet_ns` are as in `PlacedStep`.
    `origin` says more of the source: which rows. `variant` is the architecture of the code whose
    time it is; empty where that follows from the device.
    """

    ns: float
    source: CostSource
    error: float
    beside: tuple[float, float] | None = None
    alone_ns: float | None = None
    quiet_ns: float | None = None
    origin: str = ""
    variant: str = ""

    def __post_init__(self) -> None:
        if not (0 <= self.ns < float("inf")) or not (0 <= self.error < float("inf")):
            raise ValueError("a duration is a finite number of nanoseconds, not below zero")


@dataclass(frozen=True, slots=True)
class Barred:
    """The step cannot run on the device, for `reason`. `asked`: the user has forbidden it."""

    reason: Wording
    asked: bool = False


Cost = Duration | Barred


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWork:
    """What a launch does in all; `units` are operations by unit, `asked_bytes` count repeats.

    `memory_instructions` are narrow loads, stores and copies (at most four bytes a thread), whose
    threads may get in each other's way; wider ones count by their bytes.
    `chain` are the instructions of the thread with the most, with its loads, its barriers
    and its waits for copies or matrix instructions under way.
    `shared_bytes` are those of a CTA, `shared_traffic` those that all threads move to and from
    shared memory. `registers` is about the number of a thread; 0 if unknown. `indexed_bytes`
    are those of `asked_bytes` whose addresses come from data. `sure`: no branch hung on data, and
    drawn blocks agree.
    """

    ctas: int
    threads: int
    instructions: float
    memory_instructions: float
    asked_bytes: float
    units: tuple[tuple[str, float], ...]
    chain: float
    chain_loads: float
    chain_barriers: float
    shared_bytes: int
    sure: bool
    chain_waits: float = 0.0
    shared_traffic: float = 0.0
    registers: int = 0
    indexed_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """One step: a cost per device, the bytes it moves, and its work where that was counted.

    `refused_hint` says why the trace's hint on its work is not believed.
    """

    step: LaunchId
    name: str
    on_device: tuple[Cost, ...]
    memory_bytes: float = 0.0
    work: LaunchWork | None = None
    refused_hint: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """All steps of a program on all devices of a machine."""

    steps: tuple[StepCosts, ...]

    def sources(self) -> tuple[tuple[CostSource, int], ...]:
        """Number of durations by source; sources without durations are left out."""
        sources = [
            c.source for step in self.steps for c in step.on_device if isinstance(c, Duration)
        ]
        return tuple((source, sources.count(source)) for source in CostSource if source in sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The time of one step on `sms` SMs of a kind of GPU, alone and with the others at work.

    `variant` is the architecture of the code that ran; empty if unknown.
    """

    step: int
    name: str
    gpu: str
    sms: int
    ns: float
    error: float
    beside_compute_ns: float | None = None
    beside_memory_ns: float | None = None
    variant: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCopy:
    """The time of a copy of `bytes` bytes on `sms` SMs of a kind of GPU.

    `kind` is `device` within its memory, `in` from the host and `out` to it.
    """

    gpu: str
    sms: int
    kind: str
    bytes: int
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTogether:
    """A request on `sms` SMs of a kind of GPU while two are under way there and on the rest of it.

    `steady_ns` is that with one at a time there and on the rest. Both in the steady state, after
    some seconds.
    """

    gpu: str
    sms: int
    ns: float
    steady_ns: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of the program with that digest, and what a call and a byte take its host."""

    program_digest: str
    rows: tuple[Measured, ...]
    copies: tuple[MeasuredCopy, ...] = ()
    together: tuple[MeasuredTogether, ...] = ()
    host_call_ns: float = 0.0
    host_byte_ns: float = 0.0
