"""Machines made of self-tests: searches and simulation mean the exchanges that were measured."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import plan as make_plan
from tessera.driver.selftest.links import _trace, exchange_gaps
from tessera.driver.simulated_timeline import timeline_events
from tessera.frontend.machine.machine_file import parse_machine
from tessera.ir.plan.machine import DEFAULT_TRANSFER_NS, Machine
from tessera.planning.given.options import PlanOptions
from tessera.planning.search.schedule import latency_of
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import simulate
from tests.helpers.command import tessc

SIZES = (4, 1 << 16, 1 << 20)


def made(devices: str, rng: random.Random, least_ns: float) -> tuple[dict[str, Any], Machine]:
    """A document whose exchanges grow with their bytes as its copies do, and its machine."""
    plain = parse_machine(json.dumps(document(devices)))
    data = document(devices)
    for link in plain.links:
        names = {
            "source": plain.devices[link.source].name,
            "target": plain.devices[link.target].name,
        }
        speed = rng.choice([0.2, 0.5, 0.9]) * link.bytes_per_second
        slope = 1e9 / speed + 2 * plain.end_ns_per_byte(link)
        base = rng.uniform(least_ns, 20 * least_ns)
        data["links"].append({**names, "latency_ns": 3000.0, "bytes_per_second": speed})
        data["exchanges"] += [
            {**names, "bytes": size, "ns": base + slope * size, "p90_ns": 0, "p99_ns": 0}
            for size in SIZES
        ]
    return data, parse_machine(json.dumps(data))


def document(devices: str) -> dict[str, Any]:
    settings = {"devices": devices, "backend": "cuda"}
    return {"schema": "tessera-selftest/1", "settings": settings, "links": [], "exchanges": []}


@pytest.mark.parametrize("least_ns", [1500.0, 2 * DEFAULT_TRANSFER_NS])
@pytest.mark.parametrize("devices", ["h200:84sm,h200:48sm", "2xa100,l40s"])
def test_simulated_gaps_are_those_that_were_measured(
    devices: str, least_ns: float, tmp_path: Path
) -> None:
    data, machine = made(devices, random.Random(f"{devices} {least_ns}"), least_ns)
    names = [device.name for device in machine.devices]
    way = (*names, *reversed(names[:-1]), *names[1:])
    placed = tmp_path / "way.place"
    placed.write_text("".join(f"#{at}={name}\n" for at, name in enumerate(way)))
    known = {(row["source"], row["target"], row["bytes"]): row["ns"] for row in data["exchanges"]}
    for size in SIZES:
        trace = tmp_path / f"{size}.ptx"
        trace.write_text(_trace(len(way), size))
        options = PlanOptions(machine=machine, placement=str(placed), slots=1, sequences=1)
        report = make_plan(str(trace), options, compare=False)
        simulated = simulate(report.plan, SimulateOptions(timeline=True))
        events = timeline_events(simulated)
        first = [event for event in events if event.request == events[0].request]
        measured = [known[a, b, size] for a, b in pairwise(way)]
        assert exchange_gaps(first) == pytest.approx(measured, abs=2.0)
        decision = report.decision
        times = [step.predicted_ns for step in report.plan.replicas[0].traces[0].steps]
        problem = decision.attempt.planning.problem
        searched = latency_of(problem, decision.chosen.replicas[0].placement)
        assert searched == pytest.approx(sum(times) + sum(measured), rel=1e-6)


def test_exchanges_of_other_shapes_are_met_at_64_kb() -> None:
    data, _ = made("a100,l40s", random.Random(1), 9e3)
    for row in data["exchanges"]:
        row["ns"] *= random.Random(row["bytes"]).uniform(0.6, 1.6)
    machine = parse_machine(json.dumps(data))
    names = {device.id: device.name for device in machine.devices}
    known = {(row["source"], row["target"], row["bytes"]): row["ns"] for row in data["exchanges"]}
    for link in machine.links:
        pair = names[link.source], names[link.target]
        assert machine.exchange_ns(link, 1 << 16) == pytest.approx(known[*pair, 1 << 16])
    former = {key: value for key, value in data.items() if key != "exchanges"}
    machine = parse_machine(json.dumps(former))
    assert [link.latency_ns for link in machine.links] == [3000.0, 3000.0]
    assert machine.measured_links == 0


def test_plans_and_reports_name_where_exchanges_are_from(tmp_path: Path) -> None:
    data, machine = made("a100,l40s", random.Random(2), 9e3)
    trace, measured = tmp_path / "t.ptx", tmp_path / "selftest.json"
    trace.write_text(_trace(3, 1 << 16))
    measured.write_text(json.dumps(data))
    file = tmp_path / "machine.toml"
    file.write_text('selftest = "selftest.json"\n[[card]]\ngpu="a100"\n[[card]]\ngpu="l40s"\n')
    made_plan = str(tmp_path / "p.tsp")
    done = tessc("plan", str(trace), "--machine", str(file), "-o", made_plan)
    assert "joined by links that a self-test measured" in done.text
    assert "measured by a self-test" in done.text
    assert 'link="links that a self-test measured"' in Path(made_plan).read_text()
    done = tessc(*("plan", str(trace), "--machine", str(measured), "-o", made_plan, "--json"))
    said = json.loads(done.text)["exchange"]
    times = [machine.exchange_ns(link, 1 << 16) for link in machine.links]
    assert (said["least_ns"], said["most_ns"], said["measured"]) == (min(times), max(times), 2)
    assumed = tessc("plan", str(trace), "--gpus", "a100,l40s", "-o", made_plan)
    assert "us, assumed; `tessc selftest` measures it" in assumed.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "other/1"}, "its `schema` must be"),
        ({"exchanges": [{"source": "a100-0", "target": "l40s-0", "bytes": 4}]}, "missing key `ns`"),
        ({"links": [{"source": "x", "target": "y", "latency_ns": -1}]}, "at `links[0].latency_ns`"),
        ({"settings": {}}, "missing key `devices`"),
    ],
)
def test_documents_that_are_none_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(TesseraError, match="TSR3005") as refused:
        parse_machine(json.dumps({**document("a100,l40s"), **change}))
    assert said in str(refused.value)
