"""`tessc plan`: what it prints, writes and refuses; and the plan file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.cli import options as cli_options
from tessera.cli import plan as cli_plan
from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.machine import gpus
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.objectives import OBJECTIVES
from tessera.ir.plan.print_plan import print_plan
from tessera.planning.search.strategies import PLAN_STRATEGIES
from tests.helpers.command import tessc

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"

BIG = """//! tessera.trace 1
//! buffer w bytes=60000000000 role=weight
//! buffer v bytes=60000000000 role=weight
//! buffer x bytes=4096 role=output
//! buffer y bytes=4096 role=output
//! op aten::clone reads=[w:f32[2]{14999999999}] writes=[x:f32[2]]
//! op aten::clone reads=[v:f32[2]{14999999999}] writes=[y:f32[2]]
"""


@pytest.fixture(scope="module")
def text() -> str:
    report = plan(MLP, PlanOptions(gpus="a100,l40s,h200:66sm,h200:66sm", link="pcie4"))
    return print_plan(report.plan)


def test_a_plan_is_printed_and_written(tmp_path: Path) -> None:
    target = tmp_path / "plan.tsp"
    outcome = tessc("plan", str(MLP), "--gpus", "a100,l40s", "-o", str(target))
    assert outcome.code == 0, outcome.err
    assert "TSR3014" in outcome.err
    assert "a100-0: A100 SXM4 80GB, 80.0 GB" in outcome.text
    assert "single:l40s-0" in outcome.text
    written = parse_plan(target.read_text())
    assert {d for r in written.replicas for d in r.lowered.devices} <= {"a100-0", "l40s-0"}
    again = tmp_path / "again.tsp"
    tessc("plan", str(MLP), "--gpus", "a100,l40s", "-o", str(again))
    assert again.read_bytes() == target.read_bytes()


@pytest.mark.parametrize(
    "objective", ["throughput", pytest.param("latency", marks=pytest.mark.slow), "cost"]
)
def test_no_baseline_is_better(tmp_path: Path, objective: str) -> None:
    outcome = tessc(
        "plan",
        str(MLP),
        "--gpus",
        "a100,l40s",
        "--objective",
        objective,
        "--json",
        "-o",
        str(tmp_path / "p.tsp"),
    )
    found = json.loads(outcome.text)
    key = {"throughput": "period_ns", "latency": "latency_ns", "cost": "usd_per_request"}[objective]
    assert found["bound"] <= found[key]
    assert all(found[key] <= baseline[key] for baseline in found["baselines"])
    for card in found["cards"]:
        assert card["used_bytes"] <= card["capacity_bytes"]


def test_prices_and_memory(tmp_path: Path) -> None:
    outcome = tessc(
        "plan",
        str(MLP),
        "--gpus",
        "a100,l40s",
        "--price",
        "a100=1.00",
        "--memory",
        "l40s=40GB",
        "-o",
        str(tmp_path / "p.tsp"),
    )
    assert "a100-0: A100 SXM4 80GB, 80.0 GB, $1.00/h" in outcome.text
    assert "l40s-0: L40S, 40.0 GB" in outcome.text


def test_machine_file(tmp_path: Path) -> None:
    machine = tmp_path / "machine.toml"
    machine.write_text('[[card]]\ngpu = "l40s"\n')
    target = str(tmp_path / "p.tsp")
    outcome = tessc("plan", str(MLP), "--machine", str(machine), "-o", target)
    assert outcome.code == 0, outcome.err
    assert "plan: run every request on l40s-0" in outcome.text


def test_the_integer_program() -> None:
    outcome = tessc("plan", str(MLP), "--gpus", "a100,l40s", "--emit", "lp")
    assert outcome.code == 0, outcome.err
    assert "binary" in outcome.text.lower() or "bin" in outcome.text.lower()


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "--gpus"),
        (["--gpus", "a101"], 1, "TSR3001"),
        (["--gpus", "a100", "--price", "a100=cheap"], 1, "TSR3002"),
        (["--gpus", "a100", "--memory", "a100=lots"], 1, "TSR3002"),
        (["--gpus", "a100,l40s", "--link", "0Gb/s"], 1, "TSR3002"),
        (["--gpus", "t4"], 3, "TSR3011"),
        (["--machine", "missing.toml"], 1, "TSR1900"),
        (["--machine", "missing.toml", "--link", "nvlink"], 2, "machine file"),
        (["--machine", "missing.toml", "--price", "a100=1"], 2, "machine file"),
    ],
)
def test_refused(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    target = tmp_path / "p.tsp"
    outcome = tessc("plan", str(MLP), *arguments, "-o", str(target))
    assert (outcome.code, said in outcome.err) == (code, True), outcome.err
    assert not target.exists()


def test_nothing_to_plan(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n")
    outcome = tessc("plan", str(path), "--gpus", "a100", "-o", str(tmp_path / "p.tsp"))
    assert outcome.code == 1
    assert "TSR3013" in outcome.err


def test_a_launch_without_an_end(tmp_path: Path) -> None:
    path = tmp_path / "mlp.ptx"
    path.write_text(MLP.read_text().replace("grid=18,1,1", "grid=2147483647,65535,65535"))
    outcome = tessc("plan", str(path), "--gpus", "a100,l40s", "-o", str(tmp_path / "p.tsp"))
    assert outcome.code == 3
    assert "no GPU of the machine can run `#3 m0.relu`" in outcome.err
    assert "a100-0: it would take about" in outcome.err


def test_memory_that_does_not_suffice(tmp_path: Path) -> None:
    path = tmp_path / "big.ptx"
    path.write_text(BIG)
    target = str(tmp_path / "p.tsp")
    outcome = tessc("plan", str(path), "--gpus", "a100", "-o", target)
    assert outcome.code == 3
    assert "TSR3010" in outcome.err
    assert "more on `a100-0` it fits" in outcome.err
    small = tessc("plan", str(path), "--gpus", "a100", "--memory", "a100=1GB", "-o", target)
    assert "with 120.1 GB more on `a100-0`" in small.err
    outcome = tessc("plan", str(path), "--gpus", "2xa100", "-o", target)
    assert outcome.code == 0, outcome.err
    used = parse_plan(Path(target).read_text()).replicas[0].lowered.devices
    assert set(used) == {"a100-0", "a100-1"}


STATE = """//! tessera.trace 1
//! buffer s bytes=10000000000 role=state
//! buffer t bytes=10000000000 role=temp
//! memcpy t s bytes=10000000000
//! memcpy s t bytes=10000000000
"""


def test_slots_and_lanes_that_do_not_fit(tmp_path: Path) -> None:
    path, target = tmp_path / "state.ptx", str(tmp_path / "p.tsp")
    path.write_text(STATE)
    outcome = tessc("plan", str(path), "--gpus", "l40s", "--lanes", "8", "-o", target)
    assert outcome.code == 3
    assert "hint: with `--sequences 3` it fits" in outcome.err
    outcome = tessc(
        "plan", str(path), "--gpus", "l40s", "--slots", "3", "--sequences", "3", "-o", target
    )
    assert "hint: with `--slots 2 --sequences 2` it fits" in outcome.err
    tight = ("--gpus", "l40s", "--memory", "l40s=4GB", "-o", target)
    for option in ((), ("--slots", "1"), ("--slots", "2"), ("--lanes", "9")):
        outcome = tessc("plan", str(path), *tight, *option)
        assert outcome.code == 3
        assert " GB more on `l40s-0` it fits" in outcome.err
        assert "`--" not in outcome.err
    outcome = tessc("plan", str(path), "--gpus", "l40s", "-o", target)
    assert outcome.code == 0, outcome.err
    # More would fit, and bring nothing.
    assert parse_plan(Path(target).read_text()).replicas[0].slots == 1


TWO_CODES = """//! tessera.trace 1
//! buffer x bytes=4096 role=output
//! module m0 arch=sm_90a
.version 8.0
.target sm_90a
.address_size 64
.visible .entry a(.param .u64 p)
{ .reg .b64 %r; ld.param.u64 %r, [p]; st.global.u64 [%r], %r; ret; }
//! module m1 arch=sm_100a
.version 8.6
.target sm_100a
.address_size 64
.visible .entry b(.param .u64 p)
{ .reg .b64 %r, %v; ld.param.u64 %r, [p]; ld.global.u64 %v, [%r]; st.global.u64 [%r+8], %v; ret; }
//! launch m0.a grid=1,1,1 block=1,1,1 args=[x]
//! launch m1.b grid=1,1,1 block=1,1,1 args=[x]
"""


def test_gpus_that_no_link_joins(tmp_path: Path) -> None:
    path = tmp_path / "two.ptx"
    path.write_text(TWO_CODES)
    both = machine_of("h200,b200")
    assert len(plan(path, PlanOptions(machine=both)).plan.replicas[0].traces[0].transfers) == 1
    with pytest.raises(TesseraError, match="TSR3011") as failure:
        plan(path, PlanOptions(machine=replace(both, links=(), channels=())))
    assert failure.value.exit_code == 3
    outcome = tessc("plan", str(path), "--gpus", "h200,b200", "--link", "none")
    assert outcome.code == 3
    assert "TSR3011" in outcome.err


def test_reading_gives_what_was_printed(text: str) -> None:
    found = parse_plan(text)
    assert print_plan(found) == text
    assert parse_plan(print_plan(found)) == found
    commented = text.replace("\n", "\n\n// a comment\n")
    assert parse_plan(commented) == found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tessera-plan 2", "tessera-plan 7", "version 7 is unknown"),
        ("tessera-plan 2", "a plan", "this is no plan"),
        ("\ncard ", "\ncart ", "`cart` cannot stand here"),
        (" share=", " parts=", "unknown key `parts`"),
        ("slots=2 ", "", "lacks the key `slots`"),
        ("slots=2", "slots=2 slots=2", "repeated key"),
        ("slots=2", 'slots="x"', "no such value"),
        ("slots=2", "slots=2.5", "no such value"),
        ("period_ns=", "period_ns=NaN garbage=", "`period_ns` has no such value"),
        ("\nplan ", "\n// plan ", "`card` cannot stand here"),
        ("\nreplica ", "\n// replica ", "`placement` cannot stand here"),
        ('gpu="l40s"', 'gpu="l40s', "cannot stand here"),
    ],
)
def test_plan_files_that_are_refused(text: str, old: str, new: str, said: str) -> None:
    assert old in text
    with pytest.raises(TesseraError, match="TSR3020") as failure:
        parse_plan(text.replace(old, new))
    assert said in str(failure.value.diagnostics[0].headline)
    assert failure.value.diagnostics[0].primary is not None


def test_the_trace_is_never_overwritten(tmp_path: Path) -> None:
    place = tmp_path / "own.ptx"
    place.write_bytes(Path("examples/traces/mlp.ptx").read_bytes())
    result = tessc("plan", f"{place}:1", "--gpus", "a100", "-o", str(place))
    assert result.code == 1
    assert "it is an input of this command" in result.err
    assert place.read_bytes() == Path("examples/traces/mlp.ptx").read_bytes()


def test_the_command_offers_what_the_library_has() -> None:
    """It has lists of its own, so that `--help` need not load the planner."""
    offered = {p.name: p.type for p in cli_plan.plan.params}
    assert list(offered["objective"].choices) == [*OBJECTIVES]
    assert list(offered["strategy"].choices) == [*PLAN_STRATEGIES]
    assert cli_options.DEFAULT_LINK == gpus.DEFAULT_LINK
