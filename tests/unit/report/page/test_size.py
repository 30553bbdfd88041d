"""A page of many steps is small, and draws no more than a page may."""

from __future__ import annotations

import pytest

from benchmarks.planning.plan_scale import trace_text
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import read_program
from tessera.frontend.text.readfile import source_of_text
from tessera.passes.dependences.dependences import Dependences
from tessera.report.page.build import build_page
from tessera.report.page.given import Given, GivenTrace
from tessera.report.page.model import MOST_ELEMENTS, Page
from tessera.report.page.render import page_html

# What the scripts draw at most: elements per row of a graph, of a table, of a bar, and of the rest.
PER_ROW, PER_EDGE, PER_CELL, FRAME = 7, 1, 3, 300


def most_elements(page: Page) -> int:
    """A bound on what a page draws, by the budgets and pages of its sections."""
    count = FRAME
    for section in page.sections:
        data = section.data
        budget = data.get("budget")
        if isinstance(budget, dict):
            # The chosen step always has its own edges, up to a hundred of them.
            count += PER_ROW * budget["rows"] + PER_EDGE * (budget["edges"] + 100) + 300
        charts = data.get("charts")
        if isinstance(charts, list):
            count += sum(7 * len(chart["rows"]) + 8 for chart in charts)
        files = data.get("files")
        if isinstance(files, list):
            count += PER_CELL * 4 * min(len(files), 12) + 60
    return count


def page_of_steps(steps: int) -> Page:
    program = read_program(source_of_text(trace_text(steps), "chain.ptx"))[0]
    graph = analysis_manager(program, ".").get(Dependences).graph
    trace = GivenTrace(name="chain", digest="", graph=graph, program=program)
    return build_page(Given(traces=(trace,)))


def test_a_thousand_steps() -> None:
    page = page_of_steps(1000)
    assert len(page_html(page)) < 3_000_000
    assert most_elements(page) < MOST_ELEMENTS


@pytest.mark.slow
def test_ten_thousand_steps() -> None:
    page = page_of_steps(10_000)
    assert len(page_html(page)) < 15_000_000
    assert most_elements(page) < MOST_ELEMENTS
