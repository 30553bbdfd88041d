"""Pages without a browser: their data, their structure, and that they are read back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.ir.plan.print_plan import print_plan
from tessera.report.page.build import build_page
from tessera.report.page.inputs import read_given
from tessera.report.page.model import Page, PageSection, page_value
from tessera.report.page.render import page_html, read_page
from tests.helpers.command import tessc

TRACES = Path(__file__).parents[4] / "examples" / "traces"
MLP = TRACES / "mlp.ptx"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planned") / "mlp.tsp"
    made = plan(MLP, PlanOptions(gpus="a100,l40s", strategy="kernel"), compare=False)
    path.write_text(print_plan(made.plan))
    return path


def test_what_is_in_a_page_is_read_back(planned: Path) -> None:
    page = build_page(read_given([planned]))
    again = read_page(page_html(page))
    assert page_value(again) == json.loads(json.dumps(page_value(page)))


def test_a_page_is_made_of_a_page(planned: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first.html", tmp_path / "second.html"
    assert tessc("report", str(planned), "-o", str(first)).code == 0
    assert tessc("report", str(first), "-o", str(second)).code == 0
    one, two = (read_page(path.read_text()) for path in (first, second))
    assert [s for s in one.sections if s.kind != "made"] == [
        s for s in two.sections if s.kind != "made"
    ]
    assert one.subject == two.subject


def test_nothing_in_a_page_asks_for_another_file(planned: Path) -> None:
    html = page_html(build_page(read_given([planned])))
    head, data = html.split('<script type="application/json"')
    code = head + data.split("</script>", 1)[1]
    assert not re.search(r"\b(?:src|href)=\"(?!#)|@import|url\((?!data:)|fetch\(|import\(", code)
    assert "default-src 'none'" in head


def test_names_stay_text() -> None:
    name = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028&amp;"
    section = PageSection(kind="text", id="t", title=name, data={"paragraphs": [name], name: name})
    html = page_html(Page(title=name, sections=(section,)))
    assert html.count("<script") == html.count("</script>") == 2
    assert "<img" not in html
    assert read_page(html).sections[0].title == name


def test_names_that_are_not_utf_8() -> None:
    section = PageSection(kind="text", id="t", title="t", data={"paragraphs": ["caf\udce9"]})
    page = Page(title="caf\udce9", sections=(section,))
    html = page_html(page)
    assert html.encode().isascii() or "caf?" in html
    assert read_page(html) == page


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"schema": "tessera-plan-run/2"}', "not `tessera-plan-run/1`"),
        ('{"schema": "somebody-else/1"}', "its `schema` is"),
        ('{"rows": []}', "it has no schema"),
        ("{", "it is not JSON"),
        ('{"schema": NaN}', "no number that can be used"),
        ('{"schema": 1e999}', "no number that can be used"),
        ('{"schema": [' + "[" * 400 + "]" * 400 + "]}", "nested too deeply"),
        ('{"traceEvents": []}', "tessc has not written it"),
        ("<!doctype html>\n<p>hello", "`tessc` has not written it"),
    ],
)
def test_unknown_files(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(text)
    with pytest.raises(TesseraError, match="TSR1916") as raised:
        read_given([path])
    assert len(raised.value.diagnostics) == 1
    assert words in str(raised.value.diagnostics[0].headline)


def test_files_of_different_traces(planned: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.ptx"
    other.write_text(MLP.read_text().replace("hidden", "elsewhere"))
    with pytest.raises(TesseraError, match="TSR1916"):
        read_given([planned, other])
    profile = tmp_path / "profile.json"
    profile.write_text('{"schema": "tessera-profile/1", "program": "abc", "rows": []}')
    with pytest.raises(TesseraError, match="profile of another trace"):
        read_given([planned, profile])
    with pytest.raises(TesseraError, match="so is a file before it"):
        read_given([planned, planned])
    run = tmp_path / "run.json"
    run.write_text('{"schema": "tessera-plan-run/1", "plan_digest": "0", "busy": {}}')
    with pytest.raises(TesseraError, match="of another plan"):
        read_given([planned, run])
    run.write_text('{"schema": "tessera-plan-run/1", "busy": {"h200-0": 1.0}}')
    with pytest.raises(TesseraError, match="devices that"):
        read_given([planned, run])


def test_an_edited_plan(planned: Path, tmp_path: Path) -> None:
    text = planned.read_text()
    edited = tmp_path / "edited.tsp"
    edited.write_text(text.replace("m0.relu", "m0.count_positive", 1))
    result = tessc("report", str(edited), "-o", str(tmp_path / "page.html"))
    assert result.code == 1
    assert result.err.startswith("error[TSR")
    assert "TSR9000" not in result.err
    assert not (tmp_path / "page.html").exists()


def test_plain_ptx_has_nothing_to_show(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n")
    with pytest.raises(TesseraError, match="no steps"):
        read_given([path])


def test_a_page_never_replaces_its_input(planned: Path) -> None:
    before = planned.read_bytes()
    result = tessc("report", str(planned), "-o", str(planned))
    assert result.code == 1
    assert "TSR1911" in result.err
    assert planned.read_bytes() == before


def test_the_graph_page_of_analyze_is_this_page(tmp_path: Path) -> None:
    path = tmp_path / "graph.html"
    assert tessc("analyze", str(MLP), "--emit", "html", "-o", str(path)).code == 0
    page = read_page(path.read_text())
    assert [section.kind for section in page.sections] == ["overview", "graph", "made"]
