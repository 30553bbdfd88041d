"""The traces of a plan: found, read and analysed.

In: files as the user names them: a trace, or a kernel graph (`.tsg`) that names its trace, each
with an optional `:NUMBER`, its share of the requests. Out: `LoadedTrace`s. Weights and states of
equal name are one buffer for all traces, so they have to be alike.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tessera.diagnostics import Diagnostic, Source, TesseraError, error, warning
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import load, read_program
from tessera.frontend.graph.tsg import parse_graph
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.text.plain_files import file_digest, open_plain
from tessera.frontend.text.readfile import STDIN, read_source, read_stream
from tessera.ir.graph.graph import KernelGraph, TraceReference
from tessera.ir.plan.plan import PlannedTrace
from tessera.ir.program.print_trace import print_program, program_digest
from tessera.ir.program.program import BufferId, Program, Role
from tessera.ir.progress import OnProgress
from tessera.ir.text_digest import text_digest
from tessera.passes.checker.part_text import check_part_kernels
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.dependences.pointer_words import moved_words
from tessera.passes.dependences.stored_addresses import stored_addresses
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tessera.passes.kernel_facts.fragment_layout import layout_warnings
from tessera.planning.given.setting import LoadedTrace

GRAPH_ENDING = ".tsg"
PLAN_ENDING = ".tsp"
TraceName = str | os.PathLike[str]
_MOST_WEIGHT = 1e9
_WEIGHTED = re.compile(r"(.+):((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)")
_SHARED = (Role.WEIGHT, Role.STATE)
_GET_A_TRACE = (
    "PTX says what kernels do, a trace also which are launched on what: capture one with "
    "`tessc trace model.py:step -o step.ptx`, or add `//!` records (docs/reference/trace-format.md)"
)


def load_traces(
    names: TraceName | Sequence[TraceName],
    data_root: str | None = None,
    on_progress: OnProgress | None = None,
) -> tuple[LoadedTrace, ...]:
    """The traces of these names, with shares that add up to 1.

    Their files of contents may be links that lead to files below `data_root`.
    """
    given = [names] if isinstance(names, str | os.PathLike) else list(names)
    shares = [read_share(os.fspath(name)) for name in given]
    total = sum(weight for _, weight in shares)
    labels = _labels([path for path, _ in shares])
    loaded = tuple(
        _load(path, weight / total, label, data_root, on_progress)
        for (path, weight), label in zip(shares, labels, strict=True)
    )
    check_shared(loaded)
    return loaded


def graphs_in(folder: TraceName) -> tuple[str, ...]:
    """The kernel graphs in a folder, by name."""
    return tuple(
        sorted(file.name for file in Path(folder).glob(f"*{GRAPH_ENDING}") if file.is_file())
    )


def read_share(name: str) -> tuple[str, float]:
    """Parse `decode.ptx:512`, unless a file has exactly that name."""
    if os.path.exists(name):
        return name, 1.0
    match = _WEIGHTED.fullmatch(name)
    if match is None and not os.path.isfile(name.rpartition(":")[0]):
        return name, 1.0
    weight = 0.0 if match is None else float(match[2])
    if match is None or not 1 / _MOST_WEIGHT <= weight <= _MOST_WEIGHT:
        raise TesseraError(
            error(
                "TSR3009",
                f"`{name}` must have a number above zero behind the `:`",
                notes=(f"between {1 / _MOST_WEIGHT:g} and {_MOST_WEIGHT:g}",),
                hint="write `FILE:NUMBER`, such as `decode.ptx:512`",
            )
        )
    return match[1], weight


def _labels(paths: list[str]) -> list[str]:
    """A name for each trace: that of its file, numbered if it repeats."""
    labels: list[str] = []
    for path in paths:
        stem = Path(path).stem if path != STDIN else ""
        stem = "".join(c if c.isprintable() else "_" for c in stem) or "trace"
        number, name = 2, stem
        while name in labels:
            name, number = f"{stem}-{number}", number + 1
        labels.append(name)
    return labels


def _load(
    path: str, share: float, label: str, data_root: str | None, on_progress: OnProgress | None
) -> LoadedTrace:
    if path.endswith(PLAN_ENDING):
        raise TesseraError(
            error(
                "TSR3013",
                f"there is nothing to plan in `{path}`: it is a plan already",
                hint=f"`tessc run {path}` runs it; to plan anew, name its trace",
            )
        )
    given = _read_graph(path) if path.endswith(GRAPH_ENDING) else None
    trace = path if given is None else _trace_of(path, given.trace)
    if given is None:
        return loaded_program(load(trace), label, share, trace, data_root, on_progress)
    program = _load_named(trace, path)
    _check_digest(path, trace, given, program_digest(program))
    loaded = loaded_program(program, label, share, trace, data_root, on_progress)
    differing = _compare(path, trace, given, loaded.graph)
    return replace(loaded, diagnostics=(*loaded.diagnostics, *differing))


def loaded_program(
    program: Program,
    label: str,
    share: float = 1.0,
    trace: str = "",
    data_root: str | None = None,
    on_progress: OnProgress | None = None,
) -> LoadedTrace:
    """Analyse a program; `trace` is its file, if it has one."""
    text = print_program(program, with_notes=False)
    folder = os.path.dirname(trace)
    manager = analysis_manager(program, folder or ".", data_root, on_progress=on_progress)
    facts = manager.get(Dependences)
    if not facts.graph.nodes:
        raise TesseraError(
            error(
                "TSR3013",
                f"there is nothing to plan in `{trace or label}`",
                notes=("it has no launch, memset, memcpy or op record",),
                hint=_GET_A_TRACE,
            )
        )
    planned = PlannedTrace(
        name=label,
        share=share,
        digest=text_digest(text),
        text=text,
        contents_digest=_contents_digest(program, trace, data_root),
        folder=os.path.abspath(folder),
    )
    findings = [*facts.diagnostics, *stored_addresses(program, facts.graph)]
    findings += layout_warnings(program)
    return LoadedTrace(
        planned=planned,
        folder=folder,
        manager=manager,
        graph=facts.graph,
        diagnostics=tuple(findings),
    )


def read_planned(trace: PlannedTrace, plan: str) -> tuple[Program, tuple[Diagnostic, ...]]:
    """The program that a plan of this name runs, with parts and twins, and warnings about it."""
    program, warnings = read_program(Source(f"{plan}({trace.name})", trace.text))
    return divide(program, trace.division), warnings


def proved_kernels(program: Program) -> Program:
    """The program with a kernel for each part, proved to be that of its launch, for backends."""
    made = with_part_kernels(program)
    if made is program:
        return program
    for old, new in zip(program.modules, made.modules, strict=True):
        for variant in new.variants if new is not old else ():
            if parse_module(variant.text, new.name) != variant.ptx:
                raise TesseraError.of("TSR4018", f"`{new.name}` is not the code that was proved")
    if wrong := check_part_kernels(program, made):
        raise TesseraError(wrong)
    return made


# --- kernel graphs -----------------------------------------------------------------------------


def _read_graph(path: str) -> KernelGraph:
    return parse_graph(read_source(path).text, path)


def _trace_of(path: str, reference: TraceReference | None) -> str:
    """The file of the trace that a graph names: at the path it gives, or beside the graph."""
    again = "run `tessc analyze` on the trace, or give `tessc plan` the trace itself"
    if reference is None:
        raise TesseraError(
            error("TSR3007", f"`{path}` does not say which trace it is of", hint=again)
        )
    if os.path.isabs(reference.path):
        raise TesseraError(
            error(
                "TSR3007",
                f"`{path}` names its trace by an absolute path, which no graph does",
                hint=again,
            )
        )
    folder = os.path.dirname(path)
    places = [os.path.join(folder, name) for name in (reference.path, Path(reference.path).name)]
    place_found = next((place for place in places if os.path.isfile(place)), None)
    if place_found is None:
        raise TesseraError(
            error("TSR3007", f"the trace of `{path}` is not there: `{places[0]}`", hint=again)
        )
    return os.path.normpath(place_found)


def _load_named(trace: str, path: str) -> Program:
    """Load a trace that a graph names: a plain file, whose text no error may reveal.

    The user named the graph and not this file, which may be any file.
    """
    try:
        with os.fdopen(open_plain(trace), "rb") as stream:
            return read_program(read_stream(stream, trace))[0]
    except TesseraError as failure:
        code = failure.diagnostics[0].code
        raise TesseraError(
            error(
                "TSR3007",
                f"`{trace}`, which `{path}` names, is not the trace of that graph",
                notes=(f"it cannot be read as one: {code}",),
                hint="name the trace itself: then the error says what is wrong with it",
            )
        ) from None


def _check_digest(path: str, trace: str, given: KernelGraph, digest: str) -> None:
    """Check that a graph was made from this trace, before any error quotes the trace's text."""
    assert given.trace is not None
    if given.trace.digest != digest:
        raise TesseraError(
            error(
                "TSR3007",
                f"`{trace}` has changed since `{path}` was made",
                hint=f"run `tessc analyze {trace}` again, or plan for the trace itself",
            )
        )


def _compare(path: str, trace: str, given: KernelGraph, graph: KernelGraph) -> Iterable[Diagnostic]:
    """Compare a graph with the analysis of its trace: a graph is never trusted."""
    if given != graph:
        yield warning(
            "TSR3008",
            f"`{path}` is not what the analysis of `{trace}` finds",
            notes=("the analysis is used: a graph may be changed by hand, a proof may not",),
            hint=f"run `tessc analyze {trace}` to write it anew",
        )


# --- several traces ----------------------------------------------------------------------------


def check_shared(traces: Sequence[LoadedTrace]) -> None:
    """Check that buffers of equal name that outlive a request are alike: they are one buffer."""
    seen: dict[str, tuple[str, int, Role]] = {}
    words: dict[str, tuple[str, tuple[str, ...]]] = {}
    for trace in traces:
        for buffer in trace.program.buffers:
            if buffer.role not in _SHARED:
                continue
            first, size, role = seen.setdefault(
                buffer.name, (trace.planned.name, buffer.bytes, buffer.role)
            )
            if (size, role) != (buffer.bytes, buffer.role):
                raise TesseraError(
                    error(
                        "TSR3009",
                        f"the traces do not fit together: `{buffer.name}` differs",
                        notes=(
                            f"a {role.value} of {size} bytes in `{first}`",
                            f"a {buffer.role.value} of {buffer.bytes} bytes in "
                            f"`{trace.planned.name}`",
                        ),
                        hint="weights and states of equal name are one buffer: rename one",
                    )
                )
            here = _words(trace.program, buffer.id)
            first, known = words.setdefault(buffer.name, (trace.planned.name, here))
            if known != here:
                raise TesseraError(_other_words(buffer.name, first, known, trace, here))
    _check_moved(traces)


def _check_moved(traces: Sequence[LoadedTrace]) -> None:
    """Refuse traces that may overwrite addresses in a state that another trace has too."""
    for trace in traces:
        for node, state in moved_words(trace.program, trace.graph):
            for other in traces:
                if other is not trace and any(b.name == state.name for b in other.program.buffers):
                    raise TesseraError(
                        error(
                            "TSR3009",
                            "the traces do not fit together: addresses in the state "
                            f"`{state.name}` may be overwritten",
                            notes=(
                                f"by `{node.name}` in `{trace.planned.name}`",
                                f"`{other.planned.name}` has the state too",
                            ),
                            hint="plan the traces apart, or let no step write words of a "
                            "`pointers` record",
                        )
                    )


def _words(program: Program, buffer: BufferId) -> tuple[str, ...]:
    """The words of a buffer that hold addresses, as a trace writes them."""
    return tuple(
        f"{word.offset}:{program.buffers[word.target.buffer].name}+{word.target.offset}"
        for table in program.pointer_tables
        if table.buffer == buffer
        for word in sorted(table.words, key=lambda word: word.offset)
    )


def _other_words(
    name: str, first: str, known: tuple[str, ...], trace: LoadedTrace, here: tuple[str, ...]
) -> Diagnostic:
    rows = ((first, known, here), (trace.planned.name, here, known))
    only = ((label, sorted(set(own) - set(other))[:3]) for label, own, other in rows)
    notes = (f"in `{label}` it holds {', '.join(own) or 'none of these'}" for label, own in only)
    return error(
        "TSR3009",
        f"the traces do not fit together: `{name}` holds different addresses",
        notes=tuple(notes),
        hint="weights and states of equal name are one buffer: rename one, or make their "
        "`pointers` records equal",
    )


def _contents_digest(program: Program, trace: str, data_root: str | None) -> str:
    """The digest of the file of contents beside the trace; empty if there is no file."""
    if program.resident is None or os.path.basename(program.resident) != program.resident:
        return ""
    path = os.path.join(os.path.dirname(trace), program.resident)
    return file_digest(path, data_root) or ""
