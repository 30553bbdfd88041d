"""A plan: which device runs each step of a trace, what moves, what it is predicted to cost.

In: nothing. Out: frozen records that `planning` makes, `ir.plan_text` prints and `frontend.tsp`
reads. Times are nanoseconds, sizes bytes. A plan is a list of replicas; each has a share of the
requests and a device for every step.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCard:
    """A GPU of the machine, with the memory that there is and that the plan needs."""

    name: str
    gpu: str
    capacity_bytes: int
    used_bytes: int
    usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDevice:
    """A card or a slice of one; `busy_ns` is its load per request."""

    name: str
    card: str
    sms: int
    busy_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedStep:
    """A step of the trace on a device of a replica, with its predicted time."""

    step: int
    name: str
    device: str
    predicted_ns: float
    error: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTransfer:
    """Bytes that go from one device to another in every request of the replica."""

    tensor: str
    bytes: float
    source: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of the model, and the share of requests that it serves."""

    share: float
    steps: tuple[PlacedStep, ...]
    transfers: tuple[PlannedTransfer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Another way to serve the requests, as predicted by the same model."""

    name: str
    period_ns: float
    latency_ns: float
    usd_per_request: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that was decided. `bound` is in the unit of the objective; `ended` says why the
    search stopped: `gap`, `nodes`, `search` or `clock`."""

    objective: str
    strategy: str
    slots: int
    lanes: int
    period_ns: float
    latency_ns: float
    usd_per_request: float
    bound: float
    gap: float
    ended: str
    link: str
    program_digest: str
    machine_digest: str
    options: str
    cards: tuple[PlanCard, ...]
    devices: tuple[PlanDevice, ...]
    replicas: tuple[Replica, ...]
    baselines: tuple[Baseline, ...]


def text_digest(text: str) -> str:
    """The digest of a program's or machine's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
