"""The time of each step on each device, with its source and its error.

In: nothing. Out: frozen records that `planning.prices.estimate_costs` fills and the planner reads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tessera.ir.program.program import LaunchId
from tessera.wording import Wording


class CostSource(enum.Enum):
    """The source of a duration, in order of trust."""

    PROFILE = "profile"
    TABLE = "table"
    RATIO = "ratio"
    NEAR = "near"
    MODEL = "model"
    SHEET = "sheet"


@dataclass(frozen=True, slots=True)
class SharedError:
    """The part of a time's error (of its variance) that the GPUs of a group have in common.

    It cancels where two of them are compared. Group 0 is all GPUs.
    """

    part: float
    group: int = 0


class FloorMark(enum.Enum):
    """What is special about a duration beside the time that nothing can beat, its floor.

    RAISED: it was below. BELOW: measured, and below. FAR: far above. ORDERED: moved, since the time
    of a better or worse GPU contradicted it.
    """

    RAISED = "raised"
    BELOW = "below"
    FAR = "far"
    ORDERED = "ordered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A predicted time. Nine of ten true times are within the factor `1 + error`, either way.

    `beside` holds the times beside a neighbour on the same card that only computes, and beside a
    neighbour that only moves memory, if both are known. `alone_ns` and `quiet_ns` are as in
    `PlacedStep`. `origin` gives details of the source, such as the rows. `variant` is the
    architecture of the code that was timed; empty if it follows from the device. `shared` is the
    part of the error that other GPUs share.
    """

    ns: float
    source: CostSource
    error: float
    beside: tuple[float, float] | None = None
    alone_ns: float | None = None
    quiet_ns: float | None = None
    origin: str = ""
    variant: str = ""
    shared: SharedError | None = None
    mark: FloorMark | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.ns < float("inf")) or not (0 <= self.error < float("inf")):
            raise ValueError("a duration is a finite number of nanoseconds, not below zero")


@dataclass(frozen=True, slots=True)
class Barred:
    """The step cannot run on the device, for `reason`. `asked`: the user forbids it."""

    reason: Wording
    asked: bool = False


Cost = Duration | Barred


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchWork:
    """The total work of a launch; `units` are operations by unit, `asked_bytes` counts repeats.

    `memory_instructions` counts narrow loads, stores and copies (at most four bytes per thread),
    whose threads may conflict; wider instructions count by their bytes.
    `chain` is the number of instructions of the longest thread; `chain_loads`, `chain_barriers` and
    `chain_waits` are its loads, barriers and waits for pending copies or matrix instructions.
    `shared_bytes` is the shared memory of a CTA, `shared_traffic` the bytes that all threads move
    to and from shared memory. `registers` is the approximate number per thread; 0 if unknown.
    `indexed_bytes` is the part of `asked_bytes` whose addresses come from data. `sure`: no branch
    depends on data, and the sampled blocks agree.
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
class StepNeeds:
    """What a step cannot do without: bytes of weights and states (`cold`), other bytes (`warm`),
    operations by unit. `kept` is the bytes of all weights and states of the program. `routed`: the
    bytes are those of the experts that are expected to be read.
    """

    cold: float = 0.0
    warm: float = 0.0
    operations: tuple[tuple[str, float], ...] = ()
    kept: float = 0.0
    routed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """One step: a cost per device, the bytes it moves, what it needs, its work if it was counted.

    `refused_hint` says why the work hint of the trace is rejected.
    """

    step: LaunchId
    name: str
    on_device: tuple[Cost, ...]
    memory_bytes: float = 0.0
    work: LaunchWork | None = None
    refused_hint: str = ""
    needs: StepNeeds | None = None


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
    """The time of one step on `sms` SMs of a kind of GPU, alone and with the other SMs busy.

    `variant` is the architecture of the code that ran; empty if unknown. `seeded`: its weights were
    from a seed.
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
    seeded: bool = False


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
    """Measurements of the program with a digest, and the host's time per call and per byte."""

    program_digest: str
    rows: tuple[Measured, ...]
    copies: tuple[MeasuredCopy, ...] = ()
    together: tuple[MeasuredTogether, ...] = ()
    host_call_ns: float = 0.0
    host_byte_ns: float = 0.0
