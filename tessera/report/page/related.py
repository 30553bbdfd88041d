"""Whether the files of a report belong together, by digests and by names.

In: `Given`. Out: the same, or one error that names the two files and what they differ in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.diagnostics import TesseraError
from tessera.ir.plan.launch_program import HOST
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.plan_digest import plan_digest
from tessera.report.page.given import Given, GivenTrace
from tessera.report.page.json_text import inner, texts


def check_related(given: Given) -> Given:
    """Refuse files of different plans or traces."""
    if not (given.traces or given.plan or given.page or given.plan_report):
        has_more = given.profiles or given.runs or given.simulations or given.timelines
        if not has_more and not given.trace_runs:
            raise TesseraError.of("TSR1916", "there is no file to make a report of")
    for why in _wrong(given):
        raise TesseraError.of(
            "TSR1916",
            why,
            hint="give files that were made of the same trace, with the same plan",
        )
    return given


def check_placed(given: Given, number: int, trace: GivenTrace) -> None:
    """Check that the trace inside a plan has the plan's digest, and that every step is placed."""
    assert given.plan is not None
    planned = given.plan.traces[number]
    placed = [own for r in given.plan.replicas for own in r.traces if own.trace == number]
    names = [node.name for node in trace.graph.nodes]
    if planned.digest != trace.digest or any([s.name for s in p.steps] != names for p in placed):
        raise TesseraError.of(
            "TSR4013",
            f"the steps in `{given.plan_name}` are not those of its trace `{planned.name}`",
            hint="the plan was edited or damaged: plan again with `tessc plan`",
        )


def subject_of(given: Given) -> dict[str, object]:
    """The digests of the plan and the traces that a report shows."""
    plan = given.plan
    if plan is not None:
        return {"plan": plan_digest(plan), "traces": [trace.digest for trace in plan.traces]}
    known = {} if given.page is None else dict(given.page.subject)
    if given.traces:
        known["traces"] = [trace.digest for trace in given.traces]
    return known


def _wrong(given: Given) -> Iterator[str]:
    plan = given.plan
    page_traces = texts(given.page.subject, "traces") if given.page is not None else []
    page_plan = given.page.subject.get("plan") if given.page is not None else None
    if plan is not None:
        planned = {trace.digest for trace in plan.traces}
        for trace in given.traces:
            if trace.digest not in planned:
                yield f"`{given.plan_name}` is no plan of the trace `{trace.name}`"
        if page_plan and page_plan != plan_digest(plan):
            yield f"the page is of another plan than `{given.plan_name}`"
        yield from _wrong_report(plan, given)
    digests = {t.digest for t in (plan.traces if plan is not None else given.traces) if t.digest}
    if page_traces and digests - set(page_traces):
        yield "the page is of another trace than the other files"
    digests |= set(page_traces)
    for own in given.profiles:
        if digests and own.profile.program_digest not in digests:
            yield f"`{own.name}` is a profile of another trace"
    yield from _wrong_runs(given, plan_digest(plan) if plan is not None else page_plan)


def _wrong_report(plan: Plan, given: Given) -> Iterator[str]:
    report = given.plan_report
    if report is None:
        return
    value = report.value
    same = (
        value.get("machine_digest") == plan.machine_digest
        and value.get("period_ns") == plan.period_ns
        and value.get("strategy") == plan.strategy
    )
    if not same:
        yield f"`{report.name}` is of another plan than `{given.plan_name}`"


def _wrong_runs(given: Given, digest: object) -> Iterator[str]:
    for document in (*given.runs, *given.simulations):
        of = document.value.get("plan_digest")
        if digest and of and of != digest:
            named = given.plan_name or "the page"
            yield f"`{document.name}` is of another plan than `{named}`"
    if given.plan is None:
        return
    devices = {device.name for device in given.plan.devices}
    for name, own in _device_names(given):
        if unknown := sorted(set(own) - devices - {HOST}):
            listed = ", ".join(f"`{device}`" for device in unknown[:3])
            yield f"`{name}` has devices that `{given.plan_name}` has not: {listed}"


def _device_names(given: Given) -> Iterator[tuple[str, Iterable[str]]]:
    for run in given.runs:
        yield run.name, inner(run.value, "busy")
    for timeline in given.timelines:
        yield timeline.name, timeline.devices
