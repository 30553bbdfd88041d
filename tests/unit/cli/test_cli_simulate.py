"""`tessc simulate`: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.report.simulation import simulation_text
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import simulate
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
REQUESTS = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{second:02}.5,100,{second}\n" for second in range(30)
)


@pytest.fixture(scope="module")
def text() -> str:
    options = PlanOptions(gpus="a100,l40s", strategy="kernel")
    return print_plan(plan(MLP, options).plan)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> Path:
    (tmp_path / "plan.tsp").write_text(text)
    (tmp_path / "requests.csv").write_text(REQUESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(text: str) -> Plan:
    return parse_plan(text)


def test_what_is_printed(folder: Path) -> None:
    outcome = tessc("simulate", "plan.tsp")
    assert (outcome.code, outcome.err) == (0, "")
    shown = outcome.text
    assert "plan.tsp, simulated by the rules of GPUs: 1 replica" in shown
    assert re.search(r"^  throughput +[\d.]+ requests/s, back to back$", shown, re.MULTILINE)
    assert re.search(r"^  latency +[\d.]+ us alone; loaded p50 .* p90 .* p99 .*$", shown, re.M)
    # The plan was ranked by the same simulation.
    for name in ("rate", "latency alone", "latency loaded"):
        assert re.search(rf"^  {name} .* [+-]0\.00%$", shown, re.MULTILINE), shown
    assert re.search(r"^  bound .*%$", shown, re.MULTILINE)
    assert re.search(r"^busy devices:\n  \S+ +[\d.]+%$", shown, re.MULTILINE)
    assert "a100-0 to l40s-0" in shown.partition("busy links:")[2]


def test_arrivals_noise_and_requests(folder: Path) -> None:
    shown = tessc("simulate", "plan.tsp", "--arrivals", "requests.csv", "--noise").text
    assert "30 requests of requests.csv (azure) in 29.0 s:" in shown
    assert re.search(r"^  response +p50 .* max .*$", shown, re.MULTILINE)
    assert "nine in ten of 20 draws" in shown
    assert len(re.findall(r"^ +[\d.]+ n?s  ", shown, re.MULTILINE)) == 10
    faster = tessc("simulate", "plan.tsp", "--arrivals", "requests.csv", "--speed", "2").text
    assert "(azure, 2 times as fast) in 14.5 s:" in faster
    both = tessc("simulate", "plan.tsp", "--arrivals", "poisson:5/ms", "--requests", "12").text
    assert "12 requests of poisson:5/ms (poisson)" in both
    alone = tessc("simulate", "plan.tsp", "--requests", "12", "--slots", "2").text
    assert "12 requests back to back:" in alone
    assert "2 slots" in alone
    assert "response" not in alone


def test_json(folder: Path) -> None:
    command = ("simulate", "plan.tsp", "--arrivals", "requests.csv", "--noise", "--json")
    outcome = tessc(*command)
    assert outcome.code == 0
    assert outcome.out == tessc(*command).out
    value = json.loads(outcome.text)
    assert value["schema"] == "tessera-simulate/1"
    assert value["arrivals"]["format"] == "azure"
    assert value["served"]["requests"] == 30
    assert sum(window["came"] for window in value["served"]["windows"]) == 30
    assert len(value["noise"]) == 20
    assert {claim["name"] for claim in value["claims"]} >= {"rate", "bound"}
    assert set(value["back_to_back"]["devices_busy"]) == {"a100-0", "l40s-0"}
    assert abs(value["claims"][0]["off"]) < 1e-9
    assert json.loads(tessc("simulate", "plan.tsp", "--json").text)["served"] is None
    page = (ROOT / "docs" / "reference" / "json.md").read_text("utf-8")
    section = page.partition("tessera-simulate/1")[2].partition("\n## ")[0]
    for part in (value, value["back_to_back"], value["arrivals"], value["served"]):
        assert [key for key in part if f"`{key}`" not in section] == []


def test_the_file_and_the_record_give_the_same(folder: Path, made: Plan) -> None:
    """Nothing is read but the plan."""
    report = simulate(made, SimulateOptions(arrivals="poisson:10000/s:50"))
    outcome = tessc("simulate", "plan.tsp", "--arrivals", "poisson:10000/s:50")
    assert outcome.text == simulation_text(replace(report, name="plan.tsp"))


def test_timeline(folder: Path) -> None:
    outcome = tessc("simulate", "plan.tsp", "--requests", "4", "--timeline", "out.json")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text.endswith("wrote out.json\n")
    value = json.loads((folder / "out.json").read_text())
    names = {row["name"] for row in value["traceEvents"] if row["ph"] == "X"}
    assert {"m0.linear", "send hidden to l40s-0", "receive x from host"} <= names
    processes = [r["args"]["name"] for r in value["traceEvents"] if r["name"] == "process_name"]
    assert sorted(processes) == ["a100-0", "l40s-0"]
    assert tessc("simulate", "plan.tsp", "--timeline", "-").code == 2


@pytest.mark.parametrize("width", [20, 40, 80, 100])
def test_the_report_fits_the_terminal(made: Plan, width: int) -> None:
    name = "x" * 300 + "\u5927" * 40
    cards = {device.name: f"{device.name}{name}" for device in made.devices}
    text = print_plan(made)
    for old, new in cards.items():
        text = text.replace(f'"{old}', f'"{new}')
    options = SimulateOptions(arrivals="poisson:10000/s:50", noise=True)
    report = simulate(parse_plan(text), options)
    shown = simulation_text(replace(report, name=name), [name], width)
    assert max(map(cell_len, shown.splitlines())) <= width
    whole = simulation_text(report, [name])
    assert f"  a100-0{name}" in whole


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--speed", "2"), 2, "`--speed` is for `--arrivals` only"),
        (("--speed", "nan"), 2, "speed"),
        (("--speed", "inf", "--arrivals", "requests.csv"), 2, "finite number"),
        (("--speed", "0", "--arrivals", "requests.csv"), 2, "--speed"),
        (("--requests", "0"), 2, "--requests"),
        (("--requests", "9999999"), 2, "`--requests` is at most 2000000"),
        (("--slots", "0"), 2, "--slots"),
        (("--slots", "5000"), 1, "error[TSR5053]"),
        (("--policy", "best"), 1, "error[TSR5053]: `plan.tsp` has no policy `best`"),
        (("--backend", "auto"), 2, "--backend"),
        (("--throttle", "fast"), 2, "--throttle"),
        (("--seed", "-1"), 2, "--seed"),
        (("--arrivals", ""), 1, "error[TSR19"),
        (("--arrivals", "none.csv"), 1, "error[TSR1900]"),
        (("--arrivals", "."), 1, "error[TSR1900]"),
        (("--arrivals", "plan.tsp"), 1, "error[TSR1914]: `plan.tsp`, line 1"),
        (("--arrivals", "poisson:20"), 1, "error[TSR1914]"),
        (("--arrivals", "bad.csv"), 1, "--> bad.csv:3:1"),
    ],
)
def test_wrong_options_and_files(
    folder: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    (folder / "bad.csv").write_text("\n".join([*REQUESTS.splitlines()[:2], "never,1,2", ""]))
    before = sorted(os.listdir(folder))
    outcome = tessc("simulate", "plan.tsp", *arguments, "--timeline", "out.json")
    assert (outcome.code, outcome.out) == (code, b"")
    assert words in outcome.err
    assert outcome.err.count("error[") == (1 if code == 1 else 0)
    assert "TSR9000" not in outcome.err
    assert sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("name", ["requests.csv", "none.tsp", ".", "trace.ptx", "old.tsp"])
def test_what_is_no_plan(folder: Path, text: str, name: str) -> None:
    (folder / "trace.ptx").write_bytes(MLP.read_bytes())
    kept = [
        re.sub(r" memory_bytes_per_second=\S+| loaded_latency_ns=\S+", "", line)
        for line in text.splitlines(keepends=True)
        if not line.startswith(("capacity ", "path "))
    ]
    (folder / "old.tsp").write_text("".join(kept).replace("tessera-plan 2", "tessera-plan 1", 1))
    outcome = tessc("simulate", name)
    codes = {"none.tsp": "TSR1900", ".": "TSR6019", "old.tsp": "TSR5060"}
    assert (outcome.code, outcome.out) == (1, b"")
    assert outcome.err.count("error[") == 1
    assert f"error[{codes.get(name, 'TSR')}" in outcome.err
    assert "TSR9000" not in outcome.err


def test_standard_input(folder: Path, text: str) -> None:
    assert "<stdin>, simulated" in tessc("simulate", "-", stdin=text.encode()).text
    shown = tessc("simulate", "plan.tsp", "--arrivals", "-", stdin=REQUESTS.encode()).text
    assert "30 requests of <stdin> (azure)" in shown
    outcome = tessc("simulate", "-", "--arrivals", "-", stdin=text.encode())
    assert (outcome.code, "cannot both be standard input" in outcome.err) == (2, True)


def test_nothing_that_plans_is_loaded(folder: Path) -> None:
    code = (
        "import sys; from tessera.cli.main import run; "
        "assert run(['simulate', 'plan.tsp', '--requests', '3']) == 0; "
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    loaded = done.stderr.split()
    for prefix in ("tessera.passes", "tessera.planning", "highspy", "networkx", "torch"):
        assert not [name for name in loaded if name.startswith(prefix)], prefix
