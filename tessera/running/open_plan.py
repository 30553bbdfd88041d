"""A plan file, opened: read, its traces parsed and analysed again, and the whole proved.

In: a path or a `Plan`. Out: an `OpenPlan`, which is safe to run. The file's word is not taken for
anything that decides whether a run is right: accesses come from the analysis of the embedded
traces, and `passes.check_plan` judges the programs. Fewer or more slots and lanes than planned
mean that the programs are lowered again, and judged again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.backend.service import ServedTrace
from tessera.diagnostics import Diagnostic, Source, TesseraError, error
from tessera.driver import read_program
from tessera.frontend.readfile import read_source
from tessera.frontend.tsp import parse_plan
from tessera.ir.graph import KernelGraph
from tessera.ir.plan import Plan, Replica, text_digest
from tessera.ir.plan_text import FORMAT
from tessera.ir.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.check_plan import check_plan
from tessera.passes.dependences import Dependences
from tessera.passes.lower_plan import lower_replica


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """A plan with its traces. `folder` is where its files of contents are looked for.

    `replicas` are those to run: of a plan with several policies, the ones of the policy chosen.
    """

    name: str
    folder: str
    plan: Plan
    programs: tuple[Program, ...]
    graphs: tuple[KernelGraph, ...]
    replicas: tuple[Replica, ...]
    diagnostics: tuple[Diagnostic, ...]

    def served(self, replica: Replica) -> tuple[ServedTrace, ...]:
        """The traces with the variants that a replica runs."""
        placed = {one.trace: one for one in replica.traces}
        return tuple(
            ServedTrace(
                name=trace.name,
                program=program,
                arches=tuple(step.arch for step in placed[index].steps) if index in placed else (),
            )
            for index, (trace, program) in enumerate(
                zip(self.plan.traces, self.programs, strict=True)
            )
        )


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins as a plan does; False also where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(FORMAT) + 3).lstrip(b"\xef\xbb\xbf").startswith(FORMAT.encode())
    except (OSError, ValueError):
        return False


def open_plan(
    given: Plan | str | os.PathLike[str],
    *,
    slots: int | None = None,
    lanes: int | None = None,
    policy: str | None = None,
) -> OpenPlan:
    """Read, analyse and check a plan; raises `TesseraError` where it cannot be run."""
    if isinstance(given, Plan):
        plan, name, folder = given, "<plan>", "."
    else:
        source = read_source(given)
        plan, name = parse_plan(source.text, source.name), source.name
        folder = os.path.dirname(os.path.abspath(source.name))
    programs, findings = _programs(plan, name)
    graphs = tuple(AnalysisManager(program).get(Dependences).graph for program in programs)
    plan = _resized(plan, programs, graphs, slots, lanes)
    wrong = check_plan(plan, programs, graphs)
    if wrong:
        raise TesseraError(wrong)
    return OpenPlan(
        name=name, folder=folder, plan=plan, programs=programs, graphs=graphs,
        replicas=_chosen(plan, policy, name), diagnostics=findings,
    )  # fmt: skip


def _programs(plan: Plan, name: str) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
    programs: list[Program] = []
    findings: list[Diagnostic] = []
    for trace in plan.traces:
        if text_digest(trace.text) != trace.digest:
            raise TesseraError(
                error("TSR5057", f"trace `{trace.name}` in `{name}` is not the one planned for",
                      notes=("its text does not have the digest that the plan states",),
                      hint="plan again with `tessc plan`")
            )  # fmt: skip
        program, found = read_program(Source(f"{name}({trace.name})", trace.text))
        programs.append(program)
        findings += found
    return tuple(programs), tuple(findings)


def _resized(
    plan: Plan,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    slots: int | None,
    lanes: int | None,
) -> Plan:
    """The plan with other numbers of slots and lanes, its programs made anew."""
    replicas = []
    for replica in plan.replicas:
        wanted = (slots or replica.slots, lanes or replica.lanes)
        if wanted == (replica.slots, replica.lanes):
            replicas.append(replica)
            continue
        placements: list[Sequence[str]] = [()] * len(programs)
        for placed in replica.traces:
            placements[placed.trace] = [step.device for step in placed.steps]
        lowered = lower_replica(programs, graphs, placements, slots=wanted[0], lanes=wanted[1])
        replicas.append(replace(replica, slots=lowered.slots, lanes=lowered.lanes, lowered=lowered))
    return replace(plan, replicas=tuple(replicas))


def _chosen(plan: Plan, policy: str | None, name: str) -> tuple[Replica, ...]:
    known = list(dict.fromkeys(replica.policy for replica in plan.replicas))
    wanted = known[0] if policy is None else policy
    if wanted not in known:
        raise TesseraError(
            error("TSR5053", f"`{name}` has no policy `{wanted}`",
                  hint=f"choose one of: {', '.join(f'`{one}`' for one in known)}")
        )  # fmt: skip
    return tuple(replica for replica in plan.replicas if replica.policy == wanted)
