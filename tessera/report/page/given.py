"""What a report page is made of: the files, read.

In: nothing. Out: frozen records that `inputs` makes and `build` reads. A JSON document of ours is
kept as it was read; `Document` has it with the name of its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tessera.backend.service import EventKind
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.costs import Costs, Profile
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Program
from tessera.report.page.model import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenFile:
    """A file as it was given: what it holds, in words, its size and its SHA-256."""

    name: str
    holds: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTrace:
    """A trace of the report with its analysis. Plans refer to it by `digest`.

    A graph file has no program; `costs` are on the devices of `Given.machine`, as measured where a
    profile says so, `predicted` without profiles.
    """

    name: str
    digest: str
    graph: KernelGraph
    program: Program | None = None
    costs: Costs | None = None
    predicted: Costs | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A JSON document, and the file that it is from."""

    name: str
    value: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class GivenProfile:
    """A profile, and the file that it is from."""

    name: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """What one queue of a device did: times in nanoseconds from the first of the timeline."""

    device: str
    queue: str
    row: int
    name: str
    start_ns: float
    end_ns: float
    request: int
    step: int
    bytes: int
    peer: str = ""
    kind: EventKind = EventKind.COMPUTING


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenTimeline:
    """Spans by time; `devices` in the order of their rows."""

    name: str
    devices: tuple[str, ...]
    spans: tuple[TimelineSpan, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """All files of a report. `machine` has those GPUs of the plan that are in the table of GPUs."""

    files: tuple[GivenFile, ...] = ()
    command: str = ""
    traces: tuple[GivenTrace, ...] = ()
    plan: Plan | None = None
    plan_name: str = ""
    machine: Machine | None = None
    plan_report: Document | None = None
    profiles: tuple[GivenProfile, ...] = ()
    runs: tuple[Document, ...] = ()
    trace_runs: tuple[Document, ...] = ()
    simulations: tuple[Document, ...] = ()
    timelines: tuple[GivenTimeline, ...] = ()
    page: Page | None = None
