"""Read the files of a report, of any kind.

In: paths. Out: `Given`. The kind of a file is known by how it begins, not by its name.
Files that do not belong together are refused: a plan of another trace, a profile of another trace,
a run of another plan. Traces are analysed; with a plan, its steps are priced on all of its GPUs.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tessera.diagnostics import Source, TesseraError
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import read_program
from tessera.driver.traces import read_planned
from tessera.frontend.graph.tsg import parse_graph
from tessera.frontend.machine.profile import parse_profile
from tessera.frontend.plan.tsp import read_plan
from tessera.frontend.text.readfile import STDIN, read_source, text_to_bytes, unreadable_file
from tessera.ir.graph.print_graph import FORMAT as GRAPH_FORMAT
from tessera.ir.plan.print_plan import FORMAT as PLAN_FORMAT
from tessera.ir.program.print_trace import program_digest
from tessera.ir.program.program import Program
from tessera.output import Kind, mark
from tessera.passes.dependences.dependences import Dependences
from tessera.report.page.given import Document, Given, GivenFile, GivenProfile, GivenTrace
from tessera.report.page.json_text import read_json
from tessera.report.page.model import Page, bad_page
from tessera.report.page.pricing import priced
from tessera.report.page.related import check_placed, check_related
from tessera.report.page.render import BEGINNING, read_page
from tessera.report.page.timeline_file import read_timeline

Tell = Callable[[str], None]
_MOST_PAGE_BYTES = 1 << 28
_PLAN_REPORT, _PLAN_RUN = "tessera-plan-report/", "tessera-plan-run/"
_TRACE_RUN, _SIMULATION = "tessera-run/", "tessera-simulate/"
_DOCUMENTS = {
    _PLAN_REPORT: (1, "what `tessc plan --json` says of a plan"),
    _PLAN_RUN: (1, "a run of a plan"),
    _TRACE_RUN: (1, "a run of a trace"),
    _SIMULATION: (1, "a simulation"),
}
_PROFILE = "tessera-profile/"
TAKEN = (
    "a trace, a kernel graph (.tsg), a plan (.tsp), a profile, a timeline, a page of `tessc "
    "report`, or the JSON of `tessc plan`, `tessc run` or `tessc simulate`"
)


def read_given(
    paths: Sequence[str | os.PathLike[str]],
    *,
    data_root: str | None = None,
    command: str = "",
    tell: Tell | None = None,
) -> Given:
    """Read and analyse all files, and check that they belong together."""
    reader = _Reader(data_root, tell or (lambda _: None))
    for path in paths:
        reader.read(os.fspath(path))
    given = check_related(replace(reader.given, command=command))
    return reader.complete(given)


def read_report(path: str | os.PathLike[str]) -> Page:
    """The page that `tessc report` wrote to a file, as records."""
    source = _source(os.fspath(path))
    return read_page(source.text, source.name)


class _Reader:
    """Reads one file after the other. Private and mutable."""

    def __init__(self, data_root: str | None, tell: Tell) -> None:
        self.given = Given()
        self._root, self._tell = data_root, tell
        self._plan_folder = "."

    def read(self, path: str) -> None:
        """Read one more file."""
        source = _source(path)
        text = source.text.lstrip()
        if text.startswith(BEGINNING):
            self._once(self.given.page, path, "a page")
            self._add(
                source,
                "a report page",
                replace(self.given, page=read_page(source.text, source.name)),
            )
        elif text.startswith("{"):
            self._json(source)
        elif _first_line(text).startswith(PLAN_FORMAT):
            self._once(self.given.plan, path, "a plan", "`tessc diff` compares two plans")
            plan = read_plan(source).plan
            self._plan_folder = os.path.dirname(os.path.abspath(source.name))
            self._add(source, "a plan", replace(self.given, plan=plan, plan_name=source.name))
        elif _first_line(text).startswith(GRAPH_FORMAT):
            graph = parse_graph(source.text, source.name)
            digest = "" if graph.trace is None else graph.trace.digest
            trace = GivenTrace(name=_stem(source), digest=digest, graph=graph)
            self._add(
                source, "a kernel graph", replace(self.given, traces=(*self.given.traces, trace))
            )
        else:
            self._tell(f"analysing {source.name}")
            program = read_program(source)[0]
            if not any(program.work()):
                raise TesseraError.of(
                    "TSR1916",
                    f"`{source.name}` has no steps, so there is nothing to show",
                    hint="`tessc analyze` says what its kernels do; a trace also lists "
                    "launches (docs/reference/trace-format.md)",
                )
            trace = self._trace(_stem(source), program, os.path.dirname(source.name) or ".")
            self._add(source, "a trace", replace(self.given, traces=(*self.given.traces, trace)))

    def _json(self, source: Source) -> None:
        value = _json_of(source)
        schema = value.get("schema")
        if isinstance(value.get("traceEvents"), list):
            spans = read_timeline(value, source.name)
            self._add(
                source, "a timeline", replace(self.given, timelines=(*self.given.timelines, spans))
            )
            return
        if isinstance(schema, str) and schema.startswith(_PROFILE):
            profile = GivenProfile(source.name, parse_profile(source.text, source.name))
            self._add(
                source, "a profile", replace(self.given, profiles=(*self.given.profiles, profile))
            )
            return
        for start, (version, words) in _DOCUMENTS.items():
            if isinstance(schema, str) and schema.startswith(start):
                if schema != f"{start}{version}":
                    raise _unknown(source.name, f"it is of `{schema:.60}`, not `{start}{version}`")
                document = Document(source.name, value)
                self._add(source, words, self._with_document(start, document, words))
                return
        found = f"its `schema` is `{schema:.60}`" if isinstance(schema, str) else "it has no schema"
        raise _unknown(source.name, found)

    def _with_document(self, kind: str, document: Document, words: str) -> Given:
        given = self.given
        if kind == _PLAN_REPORT:
            self._once(given.plan_report, document.name, words)
            return replace(given, plan_report=document)
        if kind == _PLAN_RUN:
            return replace(given, runs=(*given.runs, document))
        if kind == _TRACE_RUN:
            return replace(given, trace_runs=(*given.trace_runs, document))
        return replace(given, simulations=(*given.simulations, document))

    def complete(self, given: Given) -> Given:
        """Add the traces that the plan holds, and the durations of all steps."""
        if given.plan is None:
            self._tell("working out durations")
            return priced(given) if given.profiles else given
        by_digest = {trace.digest: trace for trace in given.traces}
        traces = []
        for number, planned in enumerate(given.plan.traces):
            found = by_digest.get(planned.digest)
            if found is None or found.program is None or planned.division:
                self._tell(f"analysing {planned.name}")
                program, _ = read_planned(planned, given.plan_name)
                found = self._trace(planned.name, program, self._plan_folder)
            check_placed(given, number, found)
            traces.append(replace(found, name=planned.name))
        self._tell("working out durations")
        return priced(replace(given, traces=tuple(traces)))

    def _trace(self, name: str, program: Program, folder: str) -> GivenTrace:
        graph = analysis_manager(program, folder, self._root).get(Dependences).graph
        return GivenTrace(
            name=name, digest=program_digest(program.whole or program), graph=graph, program=program
        )

    def _once(self, known: object, path: str, what: str, hint: str = "give one") -> None:
        if known is not None:
            raise TesseraError.of(
                "TSR1916", f"`{path}` is {what}, and so is a file before it", hint=hint
            )

    def _add(self, source: Source, holds: str, given: Given) -> None:
        data = text_to_bytes(source.text)
        file = GivenFile(
            name=source.name,
            holds=holds,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        self.given = replace(given, files=(*given.files, file))


def _source(path: str) -> Source:
    """The text of a file. Pages are read separately: as text they would be another language."""
    if path != STDIN and os.path.isfile(path):
        try:
            with open(path, "rb") as stream:
                head = stream.read(len(BEGINNING) + 3).removeprefix(b"\xef\xbb\xbf")
                if head.startswith(BEGINNING.encode()):
                    stream.seek(0)
                    data = stream.read(_MOST_PAGE_BYTES + 1)
                    if len(data) > _MOST_PAGE_BYTES or mark(Kind.PAGE).encode() not in data[:4096]:
                        raise bad_page(path, "`tessc` has not written it")
                    return Source(path, data.decode("utf-8", "surrogateescape").lstrip("\ufeff"))
        except OSError as problem:
            raise TesseraError(unreadable_file(f"`{path}`", problem)) from None
    return read_source(path)


def _json_of(source: Source) -> dict[str, object]:
    try:
        value = read_json(source.text)
    except ValueError as problem:
        raise _unknown(source.name, str(problem)) from None
    assert isinstance(value, dict)  # it begins with a brace
    return value


def _first_line(text: str) -> str:
    """The first line that is not a comment."""
    lines = (line.strip() for line in text[:65536].split("\n"))
    return next((line for line in lines if line and not line.startswith("//")), "")


def _stem(source: Source) -> str:
    return Path(source.name).stem or source.name


def _unknown(name: str, why: str) -> TesseraError:
    return TesseraError.of(
        "TSR1916", f"a report cannot be made of `{name}`: {why}", hint=f"give {TAKEN}"
    )
