"""Build a page from the given files: the sections, in order.

In: `Given`. Out: a `Page`. A section appears if there are data for it. Sections of a page that was
read back stay, unless the other files give new ones with the same id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.plan_digest import plan_digest
from tessera.ir.program.program import Program
from tessera.ir.version import __version__
from tessera.report.page.answer import answer_section, overview_section
from tessera.report.page.followed import Followed, follow
from tessera.report.page.given import Given, GivenTimeline, GivenTrace
from tessera.report.page.graph_section import graph_section
from tessera.report.page.model import KINDS, SCHEMA, Page, PageSection
from tessera.report.page.placement import placement_section
from tessera.report.page.related import subject_of
from tessera.report.page.roofline import roofline_section
from tessera.report.page.runs import load_sections, run_sections
from tessera.report.page.timeline_section import timeline_section
from tessera.report.page.tradeoffs import tradeoffs_section


def build_page(given: Given, title: str | None = None) -> Page:
    """The page with every section that the files allow."""
    made = {section.id: section for section in _sections(given)}
    known = {} if given.page is None else {s.id: s for s in given.page.sections}
    sections = {**known, **made}
    ranked = sorted(sections.values(), key=lambda section: KINDS.index(section.kind))
    return Page(title=title or _title(given), subject=subject_of(given), sections=tuple(ranked))


def graph_page(graph: KernelGraph, name: str, program: Program) -> Page:
    """The page of a trace alone, without its files: what `tessc analyze --emit html` writes."""
    digest = "" if graph.trace is None else graph.trace.digest
    trace = GivenTrace(name=Path(name).stem, digest=digest, graph=graph, program=program)
    return build_page(Given(traces=(trace,), command=f"tessc analyze {name} --emit html"))


def _title(given: Given) -> str:
    if given.page is not None:
        return given.page.title
    named = given.plan_name or next((trace.name for trace in given.traces), "")
    named = named or next((file.name for file in given.files), "report")
    return f"{Path(named).name} - Tessera report"


def _sections(given: Given) -> Iterator[PageSection]:
    programs = [trace.program for trace in given.traces if trace.program is not None]
    followed = Followed() if given.plan is None else follow(given.plan, programs)
    if given.plan is not None:
        yield answer_section(given, followed.spread, followed.what_ifs)
    else:
        for number, trace in enumerate(given.traces):
            yield overview_section(trace, len(given.traces) > 1, number)
    for number, trace in enumerate(given.traces):
        yield graph_section(given, trace, number)
    if given.plan is not None:
        yield placement_section(given.plan)
        yield tradeoffs_section(given.plan, given.plan_report, followed)
    yield from _timelines(given, followed)
    if (roofline := roofline_section(given)) is not None:
        yield roofline
    yield from load_sections(given)
    yield from run_sections(given)
    yield _made_section(given)


def _timelines(given: Given, followed: Followed) -> Iterator[PageSection]:
    if followed.period is not None:
        note = "simulated, with the times of the plan"
        yield timeline_section(followed.period, 0, "One period", note)
    for number, timeline in enumerate(given.timelines, 1):
        name = Path(timeline.name).name
        yield timeline_section(_ordered(timeline, given), number, f"Timeline {name}")


def _ordered(timeline: GivenTimeline, given: Given) -> GivenTimeline:
    """Put the devices into the order of the plan, so that their colours are the same everywhere."""
    if given.plan is None:
        return timeline
    return replace(timeline, devices=tuple(device.name for device in given.plan.devices))


def _made_section(given: Given) -> PageSection:
    """How the page was made. It names no time and no host: the same files give the same page.

    Files of a page that was read back come first.
    """
    files: list[object] = []
    if given.page is not None and (before := given.page.section("made")) is not None:
        known = before.data.get("files")
        files += known if isinstance(known, list) else []
    files += [
        {"name": file.name, "holds": file.holds, "bytes": file.bytes, "sha256": file.sha256}
        for file in given.files
    ]
    facts: list[list[str]] = [["Made by", f"tessc {__version__}"], ["Format", SCHEMA]]
    if given.command:
        facts.append(["Command", given.command])
    if given.plan is not None:
        facts += [
            ["Options of the plan", given.plan.options],
            ["Digest of the plan", plan_digest(given.plan)],
            ["Digest of the machine", given.plan.machine_digest],
        ]
    facts += [
        [f"Digest of the trace {trace.name}", trace.digest]
        for trace in given.traces
        if trace.digest
    ]
    data = {"facts": facts, "files": files}
    return PageSection(kind="made", id="made", title="How it was made", data=data)
