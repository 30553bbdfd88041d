"""A plan: the device of each step of every trace, the transfers, and the predicted times.

In: nothing. Out: frozen records that `planning` makes, `ir.plan.print_plan` prints,
`frontend.plan.tsp` reads and `ir.plan.verify_plan` checks. Times are nanoseconds, sizes bytes.

A plan serves requests of one or more traces with a list of replicas. Each replica is a copy of all
that the traces need, has a share of the requests, a device for every step, and the launch programs
that follow from that (`ir.plan.launch_program`). The traces are embedded as text, so that a plan is
one file except for the contents of buffers.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tessera.ir.notebook import frame_of
from tessera.ir.notebook_pages import html_of
from tessera.ir.plan.division import WHOLE, Division, StepPart, parts_of
from tessera.ir.plan.launch_program import AreaKind, LoweredReplica

if TYPE_CHECKING:
    import pandas

_COLUMNS = (
    "replica",
    "trace",
    "step",
    "name",
    "device",
    "arch",
    "predicted_ns",
    "error",
    "source",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A GPU of the machine. `capacity_bytes` is the limit for the areas of all replicas on it.

    The reserve for the driver is already subtracted; `used_bytes` is the size of the areas. `node`
    is the host, if the machine has several. `like` is the GPU of the table that the machine file
    derived this kind from, if it did.
    """

    name: str
    gpu: str
    arch: str
    capacity_bytes: int
    used_bytes: int
    usd_per_hour: float | None
    node: str = ""
    like: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDevice:
    """A card or a slice of one; `busy_ns` is its load per request.

    `memory_bytes_per_second` is the bandwidth of its memory; 0 if an old plan does not say.
    """

    name: str
    card: str
    sms: int
    busy_ns: float
    memory_bytes_per_second: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCapacity:
    """A capacity that several paths share: a link, a port, the connection to the host."""

    name: str
    bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPath:
    """The path from one device to another, or from or to the host.

    `shares` are the capacities that it uses. `tax_ns` and `tax_ns_per_byte` are the time that a
    transfer takes from the compute queue at each of its ends.
    """

    source: str
    target: str
    bytes_per_second: float
    latency_ns: float
    shares: tuple[str, ...]
    tax_ns: float = 0.0
    tax_ns_per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrace:
    """A trace that the plan serves: `share` of all requests, and the whole trace as text.

    `digest` is that of the text. `contents_digest` is that of the file of contents which the trace
    names, at the time of planning; empty if there was none. `division` says which steps are parts
    or twins; steps of a plan count those of the divided program. `folder` is the folder of the
    trace; it is not written to the file of a plan.
    """

    name: str
    share: float
    digest: str
    contents_digest: str = ""
    text: str = field(repr=False)
    division: Division = WHOLE
    folder: str = field(default="", compare=False, repr=False)


_ROUNDED = 1 + 1e-6
"""Times that are products of the same floats differ by less than this factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step on a device, with its predicted time and the error of the prediction, as a fraction.

    `arch` names the variant of the module that runs there; it is empty except for launches.
    `predicted_ns` is its time on a device that is never idle. `alone_ns` is its time while the
    device runs no other request; if that is longer, two requests fill each other's gaps.
    `quiet_ns` is `alone_ns` while nothing runs on other slices of its card. None means equal to the
    previous time.
    """

    step: int
    name: str
    device: str
    arch: str
    predicted_ns: float
    error: float
    source: str
    alone_ns: float | None = None
    quiet_ns: float | None = None

    @property
    def times_ns(self) -> tuple[float, float, float]:
        """The times on a device that is never idle, of a request alone, and on a quiet card."""
        alone = self.predicted_ns if self.alone_ns is None else self.alone_ns
        return self.predicted_ns, alone, alone if self.quiet_ns is None else self.quiet_ns

    @property
    def is_possible(self) -> bool:
        """Whether the three times are consistent: at best two requests share the time of one."""
        ns, alone, quiet = self.times_ns
        return (
            ns <= alone * _ROUNDED and alone <= 2 * ns * _ROUNDED and (0 < quiet <= alone or not ns)
        )

    @property
    def least_ns(self) -> float:
        """The least time that the step takes on its device, in ns."""
        ns, alone, quiet = self.times_ns
        return ns * quiet / alone if alone > 0 else ns


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransfer:
    """Bytes that the planner expects to go from one device to another in every request."""

    tensor: str
    bytes: float
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTrace:
    """One trace on the devices of a replica. `trace` indexes the traces of the plan."""

    trace: int
    steps: tuple[PlacedStep, ...]
    transfers: tuple[PlannedTransfer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHandOver:
    """Sequences that the planner expects to go on in another replica.

    After a request of `trace`, `part` sequences (the mean; a request may begin several) send
    `bytes` each from a device of this replica to one of another.
    """

    trace: int
    source: str
    target: str
    bytes: float
    part: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of the model, and the share of requests that it serves.

    Replicas of one `policy` serve together. A plan with several policies holds one way to serve
    for each, side by side in memory, for the run to switch between; they share weights.

    `shares` has the share of each trace's requests, in the order of the plan's traces; empty, it is
    `share` for all of them. A replica has nothing for the requests of a trace of which its share is
    0: the traces that it serves are its role. `share` is its share of all requests in any case.
    """

    share: float
    slots: int
    lanes: int
    policy: str = ""
    shares: tuple[float, ...] = ()
    traces: tuple[PlacedTrace, ...]
    hand_overs: tuple[PlannedHandOver, ...] = ()
    lowered: LoweredReplica

    def serves(self, trace: int) -> float:
        """The share of a trace's requests that the replica serves."""
        return self.shares[trace] if self.shares else self.share

    def own_shares(self, shares: Sequence[float]) -> tuple[float, ...]:
        """How often its requests are of each trace, given the shares of the traces; they add up
        to 1 only if the replica serves all traces alike."""
        if not self.shares:
            return tuple(shares)
        return tuple(map(operator.mul, shares, self.shares))

    def placed(self, trace: int) -> PlacedTrace | None:
        """The placement of a trace; None if the replica does not serve it."""
        return next((placed for placed in self.traces if placed.trace == trace), None)

    def placements(self, traces: int) -> list[tuple[str, ...] | None]:
        """The device of each step of each of so many traces; None for those not served."""
        return [
            None if placed is None else tuple(step.device for step in placed.steps)
            for placed in map(self.placed, range(traces))
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Another way to serve the requests, simulated as the plan is.

    `loaded_latency_ns` is the median time of a request at the full rate.
    """

    name: str
    period_ns: float
    latency_ns: float
    usd_per_request: float
    memory_bytes: int
    loaded_latency_ns: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that was decided.

    Period and latencies are those of a simulation: `latency_ns` of a request alone,
    `loaded_latency_ns` of the median request at the full rate. `bound` is in the unit of the
    objective, as are `low` and `high`, which nine of ten draws of the error bars lie between (both
    0: unknown). `ended` says why the search stopped (`choices.Ending`). `host_call_ns` is the time
    of a call by which the host submits work, `host_byte_ns` the time to copy a byte of an input or
    output; 0 means not measured.
    """

    objective: str
    strategy: str
    period_ns: float
    latency_ns: float
    usd_per_request: float
    bound: float
    gap: float
    ended: str
    link: str
    machine_digest: str
    options: str
    cards: tuple[PlanCard, ...]
    devices: tuple[PlanDevice, ...]
    traces: tuple[PlannedTrace, ...]
    replicas: tuple[Replica, ...]
    baselines: tuple[Baseline, ...]
    loaded_latency_ns: float = 0.0
    low: float = 0.0
    high: float = 0.0
    host_call_ns: float = 0.0
    host_byte_ns: float = 0.0
    capacities: tuple[PlanCapacity, ...] = ()
    paths: tuple[PlanPath, ...] = ()

    def _repr_html_(self) -> str:
        return html_of(self)

    def to_frame(self) -> pandas.DataFrame:
        """Steps as a pandas frame: the device and time of each step on every replica."""
        rows = (
            {
                "replica": number,
                "trace": self.traces[placed.trace].name,
                "step": step.step,
                "name": step.name,
                "device": step.device,
                "arch": step.arch,
                "predicted_ns": step.predicted_ns,
                "error": step.error,
                "source": str(step.source),
            }
            for number, replica in enumerate(self.replicas)
            for placed in replica.traces
            for step in placed.steps
        )
        return frame_of(rows, _COLUMNS)


def parts_of_placed(placed: PlacedTrace, division: Division) -> dict[int, StepPart]:
    """What each step of a placement is of the trace, by its number."""
    parts = parts_of(division.steps_of(len(placed.steps)), division)
    return {part.step: part for part in parts}


def hosts_of(plan: Plan) -> dict[str, str]:
    """The host of each device, from the nodes of the machine; one name if there are no nodes."""
    node_of = {card.name: card.node for card in plan.cards}
    return {device.name: node_of.get(device.card, "") for device in plan.devices}


def staged_bytes(replicas: Iterable[Replica], hosts: Mapping[str, str]) -> dict[str, int]:
    """Memory of hosts that transfers between them take: landings at the target, and as much at the
    source for what is about to leave; both once per slot."""
    staged: dict[str, int] = {}
    for replica in replicas:
        for landing in replica.lowered.landings:
            for device in (landing.source, landing.target):
                size = landing.bytes * replica.slots
                staged[hosts[device]] = staged.get(hosts[device], 0) + size
    return dict(sorted(staged.items()))


def memory_on(replicas: Iterable[Replica], device: str) -> int:
    """What the areas of replicas take on a device. Replicas of several policies share weights:
    there each policy has the same layout of them (`ir.plan.verify_plan`), so they count once."""
    weights: dict[str, int] = {}
    others = 0
    for replica in replicas:
        for area in replica.lowered.areas:
            if area.device != device:
                continue
            if area.kind is AreaKind.WEIGHTS:
                known = weights.get(replica.policy, 0)
                weights[replica.policy] = known + area.bytes * area.count
            else:
                others += area.bytes * area.count
    return others + max(weights.values(), default=0)
