"""What the sections of a page say, and that they stay within what a page may draw."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.backend.service import EventKind
from tessera.diagnostics import TesseraError
from tessera.driver.load import load
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.machine.quantities import format_time
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.print_trace import program_digest
from tessera.report.page import timeline_section as timelines
from tessera.report.page.answer import above_bound
from tessera.report.page.build import build_page
from tessera.report.page.given import Document, Given, GivenTimeline, TimelineSpan
from tessera.report.page.inputs import read_given, read_report
from tessera.report.page.model import Page, page_of
from tessera.report.page.render import page_html, page_json, read_page
from tessera.report.page.timeline_section import timeline_section
from tests.helpers.command import tessc

MLP = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan that splits, what was said of it, a simulation, a timeline and a profile."""
    folder = tmp_path_factory.mktemp("files")
    options = PlanOptions(gpus="a100,l40s", placement="random:3")
    path = folder / "mlp.tsp"
    path.write_text(print_plan(plan(MLP, options, compare=False).plan))
    found = tessc(
        *("simulate", str(path), "--json", "--arrivals", "poisson:1000/s:40"),
        *("--timeline", str(folder / "timeline.json")),
    )
    (folder / "sim.json").write_text(found.text)
    program = load(MLP)
    rows = [
        {"step": n, "name": name, "gpu": "a100", "sms": 108, "ns": 9000.0 + n, "error": 0.02}
        for n, name in ((2, "m0.linear"), (3, "m0.relu"))
    ]
    profile = {"schema": "tessera-profile/1", "program": program_digest(program), "rows": rows}
    (folder / "profile.json").write_text(json.dumps(profile))
    return folder


@pytest.fixture(scope="module")
def given(files: Path) -> Given:
    names = ("mlp.tsp", "sim.json", "timeline.json", "profile.json")
    return read_given([files / name for name in names])


@pytest.fixture(scope="module")
def page(given: Given) -> Page:
    return build_page(given)


def data_of(page: Page, name: str) -> Any:
    section = page.section(name)
    assert section is not None, [own.id for own in page.sections]
    return section.data


def test_sections_for_what_was_given(page: Page) -> None:
    assert [section.id for section in page.sections] == [
        "answer",
        "graph-0",
        "placement",
        "timeline-0",
        "timeline-1",
        "roofline",
        "tradeoffs",
        "load-0",
        "made",
    ]


def test_the_answer_is_that_of_the_plan(page: Page, given: Given) -> None:
    made, answer = given.plan, data_of(page, "answer")
    assert made is not None
    assert answer["split"] is True
    assert answer["figures"][0]["value"] == pytest.approx(1e9 / made.period_ns)
    rows = {row["name"]: row for row in answer["charts"][0]["rows"]}
    assert {baseline.name for baseline in made.baselines} <= set(rows)
    own = rows[f"this plan ({made.strategy})"]
    assert own["range"][0] < own["value"] < own["range"][1]
    assert rows["simulated (sim.json)"]["value"] == pytest.approx(own["value"], rel=1e-3)


def test_a_wide_gap_is_taken_apart(given: Given) -> None:
    made = given.plan
    assert made is not None
    busiest = max(device.busy_ns for device in made.devices)
    least, slots = busiest / 2, made.replicas[0].slots
    wide = replace(
        made, bound=least, gap=3.0, latency_ns=busiest * 3 * slots, period_ns=busiest * 4
    )
    (said,) = above_bound(replace(wide, replicas=made.replicas[:1]))
    shares = made.replicas[0].share
    parts = (busiest / 2, busiest * (3 * shares - 1), busiest * (4 - 3 * shares))
    assert all(format_time(ns) in said for ns in parts)
    assert above_bound(replace(wide, gap=0.05)) == []


def test_the_graph_says_where_steps_are_and_what_they_touch(page: Page, given: Given) -> None:
    graph = data_of(page, "graph-0")
    made = given.plan
    assert made is not None
    placed = made.replicas[0].traces[0].steps
    devices = [graph["devices"][n] for n in graph["replicas"][0]["device"]]
    assert devices == [step.device for step in placed]
    nodes = given.traces[0].graph.nodes
    for node, own in zip(nodes, graph["accesses"]["of"], strict=True):
        rows = [graph["accesses"]["rows"][n] for n in own[1::2]]
        assert own[0::2] == [access.buffer for access in node.accesses]
        texts = [graph["accesses"]["lines"][row[5]] for row in rows]
        for text, access in zip(texts, node.accesses, strict=True):
            assert access.text.split()[0] in text
    times = graph["time_rows"][graph["times"][2]]
    assert times[0] == 9002.0
    assert graph["time_sources"][times[2]] == "profile"


def test_memory_is_that_of_the_cards(page: Page, given: Given) -> None:
    assert given.plan is not None
    for card, own in zip(given.plan.cards, data_of(page, "placement")["cards"], strict=True):
        assert sum(own["bytes"]) == card.used_bytes
        assert own["capacity"] == card.capacity_bytes


def test_links_carry_what_the_programs_send(page: Page, given: Given) -> None:
    assert given.plan is not None
    moves = given.plan.replicas[0].lowered.traces[0].transfers
    sent = sum(move.size for move in moves if (move.source, move.target) == ("a100-0", "l40s-0"))
    links = {row["name"]: row for row in data_of(page, "placement")["links"]}
    assert links["a100-0 to l40s-0"]["bytes"] == sent > 0


def test_one_period_is_one_request_of_every_step(page: Page, given: Given) -> None:
    line = data_of(page, "timeline-0")
    assert given.plan is not None
    assert line["end"] == pytest.approx(given.plan.period_ns, rel=0.02)
    spans = line["spans"]
    by_step: dict[int, int] = {}
    for step, took in zip(spans["step"], spans["ns"], strict=True):
        if step >= 0:
            by_step[step] = by_step.get(step, 0) + took
    for step in given.plan.replicas[0].traces[0].steps:
        assert by_step[step.step] == pytest.approx(step.predicted_ns, abs=4)


def test_transfers_are_joined_and_gaps_explained() -> None:
    def span(device: str, queue: str, name: str, times: tuple[int, int], **more: Any) -> Any:
        kind = EventKind.COMPUTING if queue == "compute" else EventKind.MOVING
        own = {"request": 0, "step": -1, "bytes": 0, "peer": "", "kind": kind, **more}
        return TimelineSpan(device, queue, 0, name, *map(float, times), **own)

    spans = (
        span("a", "compute", "first", (0, 100), step=0),
        span("a", "out", "send x to b", (100, 150), bytes=64, peer="b"),
        span("b", "in", "receive x from a", (100, 150), bytes=64, peer="a"),
        span("b", "compute", "second", (150, 300), step=1),
    )
    data: Any = timeline_section(
        GivenTimeline(name="t", devices=("a", "b"), spans=spans), 0, "t"
    ).data
    assert data["joins"] == [[0, 1], [1, 2], [2, 3]]
    gaps = {
        (data["rows"][row][0], start, end): data["reasons"][why]
        for row, start, end, why in data["gaps"]
    }
    assert gaps[1, 0, 150] == "waits for `x` from `a`, for request 0"
    assert gaps[0, 100, 300] == "no further work in this time"


def test_very_many_spans_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "MOST_SPANS", 1000)
    spans = tuple(
        TimelineSpan("a", "compute", 0, "k", 10.0 * n, 10.0 * n + 9, n, 0, 0) for n in range(5_000)
    )
    data: Any = timeline_section(GivenTimeline(name="t", devices=("a",), spans=spans), 0, "t").data
    assert len(data["spans"]["row"]) <= 2000
    assert data["merged"] == len(spans) - len(data["spans"]["row"])
    assert data["spans"]["start"][-1] + data["spans"]["ns"][-1] == 49_999


def test_measured_times_beside_predicted_ones(page: Page) -> None:
    rows = {row[0]: row for row in data_of(page, "roofline")["differences"]}
    assert set(rows) == {"m0.linear", "m0.relu"}
    assert rows["m0.linear"][3] == 9002.0
    assert 0 < rows["m0.linear"][2] != 9002.0


def test_no_step_is_faster_than_light(page: Page) -> None:
    for device in data_of(page, "roofline")["devices"]:
        for row in device["kernels"]:
            assert 0 <= row[3] <= row[2], row


def test_the_front_is_not_beaten(page: Page) -> None:
    points = data_of(page, "tradeoffs")["points"]
    for point in points:
        beaten = any(
            other is not point
            and other["rate"] >= point["rate"]
            and other["latency_ns"] <= point["latency_ns"]
            and other["usd"] <= point["usd"]
            and (other["rate"], other["latency_ns"], other["usd"])
            != (point["rate"], point["latency_ns"], point["usd"])
            for other in points
        )
        assert point["front"] is not beaten
    assert any(
        row[0] == "all links 2 times as fast" for row in data_of(page, "tradeoffs")["what_ifs"]
    )


@pytest.mark.parametrize("value", [None, 1, "x", [1, "x"], {"a": 1}, [{"a": [1]}], True])
def test_documents_with_odd_values(given: Given, value: object) -> None:
    keys = (
        *("requests", "finished", "busy", "outputs", "errors", "latency_ns", "windows", "served"),
        *("back_to_back", "arrivals", "frontier", "limits", "helpers", "alternatives", "backend"),
        *("transfer_hidden", "verified", "launches", "buffers", "ttft_ns", "policy_switches"),
    )
    own = Document("odd.json", dict.fromkeys(keys, value))
    odd = replace(given, traces=(), timelines=(), profiles=(), machine=None, plan_report=own)
    page = build_page(replace(odd, runs=(own,), trace_runs=(own,), simulations=(own,)))
    assert read_page(page_html(page)) == page_of(json.loads(page_json(page)), "odd")


def test_a_graph_file_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "mlp.tsg"
    assert tessc("analyze", str(MLP), "--emit", "graph", "-o", str(path)).code == 0
    page = build_page(read_given([path]))
    graph = data_of(page, "graph-0")
    assert len(graph["steps"]["name"]) == 8
    assert graph["launches"] == []


def test_files_add_to_a_page(files: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.html"
    assert tessc("report", str(MLP), "-o", str(first)).code == 0
    page = build_page(read_given([first, files / "profile.json"]))
    assert page.section("graph-0") == read_report(first).section("graph-0")
    held = [file["holds"] for file in data_of(page, "made")["files"]]
    assert held == ["a trace", "a report page", "a profile"]
    other = json.loads((files / "profile.json").read_text()) | {"program": "0" * 64}
    (tmp_path / "other.json").write_text(json.dumps(other))
    with pytest.raises(TesseraError, match="profile of another trace"):
        read_given([first, tmp_path / "other.json"])


def test_load_over_time(page: Page, given: Given) -> None:
    load_data = data_of(page, "load-0")
    assert sum(row[2] for row in load_data["windows"]) == 40
    served = replace(given, plan=None, traces=(), profiles=(), timelines=(), machine=None)
    tokens = {
        "schema": "tessera-plan-run/1",
        "ttft_ns": {"p50": 1.0, "p90": 2.0, "p99": 3.0, "max": 4.0},
        "policy_switches": [{"at_ns": 5.0, "to": "throughput"}],
    }
    document = replace(given.simulations[0], value=tokens)
    again = build_page(replace(served, simulations=(), runs=(document,)))
    assert data_of(again, "load-0")["percentiles"] == [["Time to first token", 1.0, 2.0, 3.0, 4.0]]
    assert data_of(again, "load-0")["switches"] == [[5.0, "throughput"]]
