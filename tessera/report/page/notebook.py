"""The view of a record in a notebook: the report page, in a frame of its own.

In: a `Report`, a `Plan` or a `KernelGraph`. Out: HTML. The page has its own scripts and its own
rules on what it may load, so it must be a document by itself: an `iframe` with all of it inside.
"""

from __future__ import annotations

from html import escape

from tessera.driver.analyze import Report
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.plan import Plan
from tessera.report.page.build import build_page, graph_page
from tessera.report.page.given import Given, GivenTrace
from tessera.report.page.model import Page
from tessera.report.page.render import page_html

_HEIGHT = 640


def notebook_html(record: Report | Plan | KernelGraph) -> str:
    """The page of a record, or the text of a report without a graph."""
    if isinstance(record, Report) and record.graph is None:
        from tessera.report.overview import overview_text

        return f"<pre>{escape(overview_text(record))}</pre>"
    page = page_html(_page(record), fonts=False)
    return (
        f'<iframe title="Tessera report" style="width: 100%; height: {_HEIGHT}px; border: 0" '
        f'sandbox="allow-scripts" srcdoc="{escape(page, quote=True)}"></iframe>'
    )


def _page(record: Report | Plan | KernelGraph) -> Page:
    match record:
        case Plan():
            return build_page(Given(plan=record, plan_name="plan"))
        case KernelGraph():
            digest = "" if record.trace is None else record.trace.digest
            trace = GivenTrace(name="graph", digest=digest, graph=record)
            return build_page(Given(traces=(trace,)))
        case _:
            assert record.graph is not None
            return graph_page(record.graph, record.name, record.program)
