"""Records in a notebook: pages in a frame of their own, and tables for pandas."""

from __future__ import annotations

import sys
from html import unescape
from types import ModuleType
from typing import Any

import pytest

import tessera
from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.simulation.simulate_plan import simulate
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"


class Frame:
    """As much of a frame as is asked for."""

    def __init__(self, rows: list[list[Any]], columns: tuple[str, ...]) -> None:
        self.rows, self.columns = rows, columns

    def column(self, name: str) -> list[Any]:
        return [row[self.columns.index(name)] for row in self.rows]


@pytest.fixture
def pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("pandas")
    made.DataFrame = Frame  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", made)


@pytest.fixture(scope="module")
def planned() -> Any:
    return plan(MLP, PlanOptions(gpus="a100,l40s", strategy="kernel"), compare=False).plan


@pytest.fixture(scope="module")
def report() -> Any:
    return tessera.analyze(MLP)


def test_records_show_their_page(report: Any, planned: Any) -> None:
    for record, section in ((report, "graph"), (report.graph, "graph"), (planned, "placement")):
        shown = record._repr_html_()
        assert shown.startswith("<iframe ")
        assert 'sandbox="allow-scripts"' in shown
        page = unescape(shown.partition('srcdoc="')[2].rpartition('"')[0])
        assert page.lstrip().lower().startswith("<!doctype html>")
        assert f'"{section}"' in page
        assert "<" not in shown.partition('srcdoc="')[2].rpartition('"')[0]


def test_names_stay_text_without_a_graph(tmp_path: Any) -> None:
    file = tmp_path / "<b>k.ptx"
    file.write_text(".version 8.0\n.target sm_80\n.visible .entry k()\n{\n    ret;\n}\n")
    shown = tessera.analyze(file)._repr_html_()
    assert "&lt;b&gt;k.ptx" in shown
    assert "<b>" not in shown


@pytest.mark.usefixtures("pandas")
def test_frames(report: Any, planned: Any) -> None:
    steps = report.to_frame()
    assert steps.column("step") == list(range(8))
    assert steps.column("name")[2] == "m0.linear"
    assert sum(steps.column("bytes_in")) == sum(steps.column("bytes_out")) > 0
    placed = planned.to_frame()
    assert set(placed.column("device")) == {"a100-0", "l40s-0"}
    assert all(ns > 0 for ns in placed.column("predicted_ns"))
    requests = simulate(planned).to_frame()
    assert requests.rows
    times = zip(requests.column("began_ns"), requests.column("ended_ns"), strict=True)
    assert all(began <= ended for began, ended in times)


def test_a_frame_without_pandas(report: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(TesseraError, match=r"TSR1918.*needs pandas"):
        report.to_frame()
