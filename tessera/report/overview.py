"""The overview of `tessc analyze`: one screen about a file, whatever its size.

In: a `driver.analyze.Report`. Out: text. Of a trace: its size, what waits for what, what is pinned
or goes by addresses from memory, warnings by kind, and the kernels by family (`graph_overview`). Of
a PTX file: its kernels. `report.analysis` has the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera import codes
from tessera.diagnostics import Diagnostic, Severity
from tessera.driver.analyze import Report
from tessera.passes.kernel_facts.summarise_program import ModuleSummary, ProgramSummary
from tessera.report.analysis import is_trace, report_text
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, amount, fitted, right, table
from tessera.wording import Wording

_SCREEN = 24
_MOST_KERNELS = 16
_FIELDS = (Column(least=9), Column(fit=Fit.WRAP))
_KERNELS = (
    Column("kernel", Fit.CUT),
    *right("line", "parameters", "registers", "shared", "instructions"),
)


def overview_text(report: Report, width: int | None = None) -> str:
    """The overview, or the whole report of a PTX file that fits a screen."""
    summary = report.summary
    if not is_trace(summary):
        whole = report_text(report, width)
        if whole.count("\n") <= _SCREEN:
            return whole
        lines = list(_module_lines(report.name, summary.variants[0].summary, width))
        return fitted("\n".join([*lines, "", "`--full` has all of every kernel"]) + "\n", width)
    rows = [("buffers", _buffers(summary))]
    families: list[str] = []
    if report.graph is not None:
        from tessera.report.graph_overview import family_lines, graph_rows

        rows += graph_rows(report.graph)
        families = ["", *family_lines(report.graph, width)]
    rows.append(("warnings", _warnings(report.diagnostics)))
    lines = [_title(safe(report.name), summary), *table(_FIELDS, rows, width), *families]
    lines += ["", "`--full` has every step, edge and kernel; `--why A:B` explains an edge"]
    return fitted("\n".join(lines) + "\n", width)


def not_counted(report: Report, known: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings that an overview does not count: errors, and those that are not `known`."""
    counted = tuple(known) if is_trace(report.summary) else ()
    return [d for d in report.diagnostics if d.severity is Severity.ERROR or d not in counted]


def _title(name: str, summary: ProgramSummary) -> str:
    launches = sum(total.launches for total in summary.launches)
    counts = (
        (launches, "launch", "launches"),
        (summary.memsets, "memset", None),
        (summary.memcpys, "memcpy", None),
        (summary.library_calls, "library call", None),
    )
    steps = ", ".join(amount(*each) for each in counts if each[0]) or "no steps"
    streams = f" on {summary.streams} streams" if summary.streams > 1 else ""
    archs = ", ".join(dict.fromkeys(variant.arch for variant in summary.variants))
    code = amount(len(summary.launches), "kernel") + (f" for {archs}" if archs else "")
    contents = f"; contents in {safe(summary.resident)}" if summary.resident else ""
    return f"trace {name}: {steps}{streams}, {code}{contents}"


def _buffers(summary: ProgramSummary) -> str:
    from tessera.frontend.machine.quantities import format_bytes

    roles = (f"{r.buffers} {r.role.value} {format_bytes(r.bytes)}" for r in summary.roles)
    return ", ".join(roles) or "none"


def _warnings(diagnostics: Iterable[Diagnostic]) -> str:
    """Findings that are not errors, by kind."""
    by_code: dict[str, list[Wording]] = {}
    for finding in diagnostics:
        if finding.severity is not Severity.ERROR:
            by_code.setdefault(finding.code, []).append(finding.headline)
    said = [
        f"{len(headlines)} {code} ({headlines[0] if len(headlines) == 1 else _kind(code)})"
        for code, headlines in sorted(by_code.items(), key=lambda each: -len(each[1]))
    ]
    return "; ".join(said) + "; `--full` shows them" if said else "none"


def _kind(code: str) -> str:
    entry = codes.find_code(code)
    return "" if entry is None else entry.title


# --- a PTX file --------------------------------------------------------------------------------


def _module_lines(name: str, summary: ModuleSummary, width: int | None) -> Iterator[str]:
    from tessera.frontend.machine.quantities import format_bytes

    major, minor = summary.version
    counts = [amount(len(summary.kernels), "kernel")]
    if summary.functions:
        counts.append(amount(len(summary.functions), "function"))
    if summary.variables:
        counts.append(amount(len(summary.variables), "variable"))
    target = ", ".join(summary.target)
    yield f"{safe(name)}: PTX {major}.{minor}, target {target}, {', '.join(counts)}"
    yield ""
    largest = sorted(summary.kernels, key=lambda kernel: -kernel.instructions)
    rows = [
        (
            kernel.name,
            "" if kernel.line is None else str(kernel.line),
            str(len(kernel.parameters)),
            str(sum(count.count for count in kernel.registers)),
            ("dynamic" if kernel.uses_dynamic_shared else format_bytes(kernel.shared_bytes)),
            str(kernel.instructions),
        )
        for kernel in largest[:_MOST_KERNELS]
    ]
    yield from table(_KERNELS, rows, width)
    if len(largest) > _MOST_KERNELS:
        yield f"  and {len(largest) - _MOST_KERNELS} kernels more, each with fewer instructions"
