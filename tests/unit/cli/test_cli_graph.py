"""`tessc analyze` on traces: the graph in the report, in files, and explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tessera.frontend.graph.tsg import parse_graph
from tessera.report.page.render import read_page
from tests.helpers.command import tessc
from tests.helpers.traces import COPY, HEADER

TRACE = (
    "//! tessera.trace 1\n"
    "//! buffer x bytes=4096 role=input\n"
    "//! buffer t bytes=4096 role=temp\n"
    "//! buffer y bytes=4096 role=output\n"
    f"//! module m\n{HEADER}{COPY}"
    "//! launch m.copy grid=8,1,1 block=128,1,1 args=[t, x, u32:1000]\n"
    "//! launch m.copy grid=8,1,1 block=128,1,1 args=[y, t, u32:999]\n"
)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    file = folder / "step.ptx"
    file.write_text(TRACE)
    monkeypatch.chdir(tmp_path)
    return str(file)


def test_report_shows_steps_edges_and_cuts(path: str) -> None:
    outcome = tessc("analyze", path, "--full")
    assert (outcome.code, outcome.err) == (0, "")
    assert (
        "steps\n"
        "  #0 m.copy (direct)\n"
        "       reads  x 4000\n"
        "       writes t 4000 must\n"
        "  #1 m.copy (direct)\n"
        "       reads  t 3996\n"
        "       writes y 3996 must\n"
        "\n"
        "edges (1 raw)\n"
        "  #0 -> #1: raw t 3996\n"
        "\n"
        "bytes that cross a cut after a step\n"
        "  #0 3996\n"
    ) in outcome.text


def test_the_overview_fits_a_screen(path: str) -> None:
    outcome = tessc("analyze", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text == (
        f"trace {path}: 2 launches, 1 kernel for sm_80\n"
        "  buffers    1 input 4.1 KB, 1 output 4.1 KB, 1 temp 4.1 KB\n"
        "  edges      1 carry data, 0 only order; the longest chain has 2 of 2 steps\n"
        "  cuts       4.0 KB (after #0) to 4.0 KB (after #0) go from the steps before to the steps "
        "after\n"
        "  pinned     none\n"
        "  indirect   none\n"
        "  warnings   none\n"
        "\n"
        "  kernels  steps   reads  writes  addresses\n"
        "  copy         2  8.0 KB  8.0 KB  direct\n"
        "\n"
        "`--full` has every step, edge and kernel; `--why A:B` explains an edge\n"
        "wrote step.tsg, the kernel graph\n"
    )


def test_families_and_layers_of_many_kernels(path: str) -> None:
    """Sixty layers of three kernels each, and twenty kernels of other names: still a screen."""
    head, _, _ = TRACE.partition("//! module m")
    launch = "//! launch {}.{} grid=8,1,1 block=128,1,1 args=[{}, {}, u32:1000]\n"
    parts = (("front", "tx"), ("back", "yt"), ("back", "ty"))
    layer = [launch.format("m", name, *pair) for name, pair in parts]
    others = [f"other_{chr(97 + n)}_kernel" for n in range(20)]
    names = ["front", "back", *others]
    text = f"{head}//! module m\n{HEADER}" + "".join(
        COPY.replace("entry copy", f"entry {name}") for name in names
    )
    text += "".join(launch.format("m", name, "t", "x") for name in others)
    Path(path).write_text(text + "".join(layer) * 60)
    outcome = tessc("analyze", path, "--no-graph")
    assert outcome.code == 0
    assert "  layers     #20 to #199: 3 steps, 60 times\n" in outcome.text
    assert outcome.text.count("\n") <= 24
    assert "\n  other_*" in outcome.text
    assert not Path("step.tsg").exists()


def test_the_overview_counts_warnings(path: str) -> None:
    """They are shown where the overview does not go to the terminal, or more is asked for."""
    Path(path).write_text(TRACE.replace("x bytes=4096", "x bytes=2000"))
    short = tessc("analyze", path)
    assert "warnings   1 TSR" in short.text
    assert short.err == ""
    assert tessc("analyze", path, "--full").err.startswith("warning[TSR")
    assert tessc("analyze", path, "--format", "concise").err.count("\n") == 1
    assert "warning[TSR" in tessc("analyze", path, "-o", "report.txt").err


def test_the_graph_is_written_to_the_current_folder(path: str) -> None:
    assert tessc("analyze", path).code == 0
    written = Path("step.tsg").read_text()
    assert len(parse_graph(written).edges) == 1
    assert tessc("analyze", path, "--emit", "graph").text == written


def test_standard_input_leaves_no_file(path: str) -> None:
    assert tessc("analyze", "-", stdin=Path(path).read_bytes()).code == 0
    assert list(Path().glob("*.tsg")) == []


def test_why(path: str) -> None:
    text = tessc("analyze", path, "--why", "0:1").text
    assert "raw through 3996 bytes of `t`: 0:3996" in text
    assert "#0 write (must, direct) by `st.global.f32`" in text
    assert "#1 read (must, direct) by `ld.global.f32`" in text
    assert "step.ptx:" in text
    assert "no dependence" in tessc("analyze", path, "--why", "1:0").text


@pytest.mark.parametrize("why", ["0", "0:2", "a:b", "0:1:2", "-1:0", ""])
def test_why_of_no_two_steps(path: str, why: str) -> None:
    outcome = tessc("analyze", path, f"--why={why}")
    assert outcome.code == (2 if why else 0)


def test_json(path: str) -> None:
    graph = json.loads(tessc("analyze", path, "--json").out)["graph"]
    assert [step["class"] for step in graph["steps"]] == ["direct", "direct"]
    (edge,) = graph["edges"]
    assert (edge["source"], edge["target"], edge["region"]) == (0, 1, "0:3996")
    assert graph["prefix_cut_bytes"] == [3996]


def test_pictures(path: str) -> None:
    dot = tessc("analyze", path, "--dot").text
    assert dot == tessc("analyze", path, "--emit", "dot").text
    assert dot.startswith("digraph")
    html = tessc("analyze", path, "--emit", "html").text
    page = read_page(html)
    (graph,) = (section for section in page.sections if section.kind == "graph")
    assert len(graph.data["steps"]) == 2


@pytest.mark.parametrize("pair", [("--json", "--dot"), ("--why=0:1", "--json")])
def test_only_one_form(path: str, pair: tuple[str, str]) -> None:
    assert tessc("analyze", path, *pair).code == 2


def test_plain_ptx_has_no_graph(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(HEADER + COPY)
    outcome = tessc("analyze", str(file), "--emit", "graph")
    assert outcome.code == 2
    assert "has no steps" in outcome.err


def test_errors_of_the_analysis_fail_the_command(path: str) -> None:
    bad = TRACE.replace("buffer y bytes=4096 role=output", "buffer y bytes=4096 role=weight")
    Path(path).write_text(bad)
    outcome = tessc("analyze", path)
    assert outcome.code == 1
    assert "TSR2003" in outcome.err
