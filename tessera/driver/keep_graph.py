"""The kernel graph of a trace, kept beside it for `tessc plan`.

In: a report of `analyze`. Out: a `.tsg` file in the current folder, named as the trace. What keeps
it from being written is a warning (TSR1911): the report is what was asked for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tessera.diagnostics import TesseraError, error, warning
from tessera.driver.analyze import Report, with_trace
from tessera.frontend.text.readfile import text_to_bytes
from tessera.output import Kind, check_output, is_regular, write_file


def graph_file_of(path: str) -> str | None:
    """Where the kernel graph of a trace goes; none of a pipe, whose trace nobody finds again."""
    return f"{Path(path).stem}.tsg" if path != "-" and is_regular(path) else None


def keep_graph(report: Report, graph_file: str | None) -> tuple[Report, str | None]:
    """Write the kernel graph; the report, with a warning where that fails, and the file written."""
    if report.graph is None or graph_file is None:
        return report, None
    from tessera.ir.graph.print_graph import print_graph

    try:
        if not is_regular(graph_file):
            raise TesseraError(error("TSR1911", "it is no plain file"))
        check_output(graph_file, Kind.GRAPH, (report.name,))
        write_file(graph_file, text_to_bytes(print_graph(with_trace(report))), Kind.GRAPH)
    except TesseraError as failure:
        reason = str(failure.diagnostics[0].headline).removeprefix(f"cannot write `{graph_file}`: ")
        missed = warning(
            "TSR1911",
            f"the kernel graph was not written to `{graph_file}`: {reason}",
            hint="name the trace when you call `tessc plan`, or write the graph elsewhere with "
            "`--emit graph -o FILE`",
        )
        return replace(report, diagnostics=(*report.diagnostics, missed)), None
    return report, graph_file
