"""Profiles, pins and bans change what is planned, and are refused where they fit nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions
from tessera.driver.plan import plan as driver_plan
from tessera.frontend.machine.profile import parse_profile
from tessera.ir.plan.costs import CostSource
from tessera.ir.plan.plan import Plan

plan = partial(driver_plan, compare=False)
MLP = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"
PAIR = PlanOptions(gpus="a100,l40s", objective="latency")


@pytest.fixture(scope="module")
def before() -> Plan:
    """The plan that measured times change."""
    return plan(MLP, PAIR).plan


def devices_of(made: Plan) -> dict[int, str]:
    return {step.step: step.device for step in made.replicas[0].traces[0].steps}


def profile(path: Path, digest: str, rows: list[dict[str, Any]]) -> str:
    document = {"schema": "tessera-profile/1", "program": digest, "rows": rows}
    path.write_text(json.dumps(document))
    return str(path)


def test_measured_times_decide(tmp_path: Path, before: Plan) -> None:
    assert "l40s-0" in {step.device for step in before.replicas[0].traces[0].steps}
    rows = [
        {"step": step.step, "name": step.name, "gpu": gpu, "ns": ns}
        for step in before.replicas[0].traces[0].steps
        for gpu, ns in (("a100", 2000.0), ("l40s", 90_000.0))
    ]
    path = profile(tmp_path / "p.json", before.traces[0].digest, rows)
    report = plan(MLP, PlanOptions(gpus="a100,l40s", objective="latency", profiles=(path,)))
    assert {step.device for step in report.plan.replicas[0].traces[0].steps} == {"a100-0"}
    assert {step.source for step in report.plan.replicas[0].traces[0].steps} == {"profile"}
    # Inputs come from the host and outputs go there: a few microseconds more.
    steps_ns = 2000.0 * len(before.replicas[0].traces[0].steps)
    assert steps_ns < report.plan.latency_ns < steps_ns + 5000.0
    assert not any(d.code == "TSR3014" for d in report.diagnostics)
    later = profile(tmp_path / "q.json", before.traces[0].digest, [{**rows[4], "ns": 2200.0}])
    both = PlanOptions(gpus="a100,l40s", objective="latency", profiles=(path, later))
    assert plan(MLP, both).plan.latency_ns == pytest.approx(report.plan.latency_ns + 200)


def test_durations_that_a_profile_lacks_are_said(tmp_path: Path, before: Plan) -> None:
    rows = [
        {"step": step.step, "name": step.name, "gpu": gpu, "ns": 2000.0}
        for step in before.replicas[0].traces[0].steps[2:]
        for gpu in ("a100", "l40s")
    ]
    path = profile(tmp_path / "p.json", before.traces[0].digest, rows)
    report = plan(MLP, replace(PAIR, profiles=(path,)))
    (said,) = [one for one in report.diagnostics if one.code == "TSR3014"]
    assert said.notes[0].startswith("4 of 16 durations, ")
    assert said.notes[1] == "not in the profiles: #0 memset, #1 memcpy"
    assert dict(report.sources)[CostSource.PROFILE] == 12


def test_slices_take_the_times_beside_a_neighbour(tmp_path: Path) -> None:
    before = plan(MLP, PlanOptions(gpus="h200:66sm", objective="latency")).plan
    steps = before.replicas[0].traces[0].steps
    rows = [
        {
            "step": step.step,
            "name": step.name,
            "gpu": "h200",
            "sms": 66,
            "ns": 500.0,
            "beside_compute_ns": 550.0,
            "beside_memory_ns": 900.0,
        }
        for step in steps
    ]
    path = profile(tmp_path / "p.json", before.traces[0].digest, rows)
    alone = plan(MLP, PlanOptions(gpus="h200:66sm", objective="latency", profiles=(path,))).plan
    both = PlanOptions(gpus="h200:66sm,h200:66sm", objective="latency", profiles=(path,))
    assert 500.0 * len(steps) < alone.latency_ns < 500.0 * len(steps) + 5000.0
    shared = plan(MLP, both).plan.replicas[0].traces[0].steps
    assert {step.predicted_ns for step in shared} == {(550.0 + 900.0) / 2}


def test_slices_copy_as_fast_as_was_measured(tmp_path: Path) -> None:
    slices = PlanOptions(gpus="h200:84sm,h200:48sm")
    copies = [
        {"gpu": "h200", "sms": 84, "kind": kind, "bytes": size, "ns": 3000.0 + size / per_ns}
        for kind, per_ns in (("device", 1000.0), ("in", 50.0))
        for size in (4096, 1 << 20, 1 << 28)
    ]
    digest = plan(MLP, slices).plan.traces[0].digest
    document = {"schema": "tessera-profile/1", "program": digest, "rows": [], "transfers": copies}
    (tmp_path / "p.json").write_text(json.dumps(document))
    report = plan(MLP, replace(slices, profiles=(str(tmp_path / "p.json"),)))
    there, back = sorted(report.machine.links, key=lambda link: link.source)
    assert there.bytes_per_second == pytest.approx(1000e9)
    assert there.latency_ns == pytest.approx(3004.096)
    assert back == sorted(plan(MLP, slices).machine.links, key=lambda link: link.source)[1]
    given = replace(slices, machine=slices.find_machine(), profiles=(str(tmp_path / "p.json"),))
    assert plan(MLP, given).machine == slices.find_machine()


def test_a_profile_of_another_trace(tmp_path: Path) -> None:
    path = profile(tmp_path / "p.json", "0" * 64, [])
    with pytest.raises(TesseraError, match=r"TSR3015.*another trace"):
        plan(MLP, PlanOptions(gpus="a100", profiles=(path,)))


MEMSET = {"step": 0, "name": "memset", "gpu": "a100", "ns": 5.0}
ROW = {"step": 0, "name": "k", "gpu": "a100", "ns": 5.0}
WHOLE = {"gpu": "h200", "sms": 84, "ns": 1e6, "together_ns": 2e6}
COPY = {"gpu": "h200", "sms": 84, "kind": "device", "bytes": 4096, "ns": 3000.0}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"schema": "tessera-profile/2", "program": "", "rows": []}',
        '{"schema": "tessera-profile/1", "program": 1, "rows": []}',
        '{"schema": "tessera-profile/1", "program": "", "rows": {}}',
        *(
            json.dumps({"schema": "tessera-profile/1", "program": "", "rows": [row]})
            for row in (
                3,
                {**ROW, "sms": 0},
                {**ROW, "sms": -1},
                {**ROW, "step": -1},
                {**ROW, "variant": 80},
                {**ROW, "gpu": "abacus"},
                {**ROW, "ns": float("nan")},
                {**ROW, "ns": -1},
                {**ROW, "ns": "1"},
                {**ROW, "step": True},
                {**ROW, "x": 1},
                {"step": 0},
                {**ROW, "ns": 10**400},
                {**ROW, "ns": 1e300},
                {**ROW, "ns": 5e-324},
                {**ROW, "error": 10**400},
                {**ROW, "error": 1e308},
                {**ROW, "beside_memory_ns": 1e308},
            )
        ),
        *(
            json.dumps({"schema": "tessera-profile/1", "program": "", "rows": [], "transfers": one})
            for one in (
                3,
                [3],
                [{}],
                [{**COPY, "ns": 0}],
                [{**COPY, "ns": "1"}],
                [{**COPY, "bytes": True}],
                [{**COPY, "bytes": -4}],
                [{**COPY, "kind": "up"}],
                [{**COPY, "sms": 1.5}],
                [{**COPY, "x": 1}],
                [{**COPY, "kind": []}],
            )
        ),
        *(
            json.dumps({"schema": "tessera-profile/1", "program": "", "rows": [], "wholes": one})
            for one in (
                3,
                [3],
                [{"together_ns": 1.0}],
                [{**WHOLE, "together_ns": 0}],
                [{**WHOLE, "together_ns": "1"}],
                [{**WHOLE, "sms": 0}],
                [{**WHOLE, "gpu": 3}],
                [{**WHOLE, "together_ns": 10**400}],
                [{**WHOLE, "together_ns": 1e200}],
            )
        ),
    ],
)
def test_profiles_that_are_refused(text: str) -> None:
    with pytest.raises(TesseraError, match="TSR3015"):
        parse_profile(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            '{"schema": "tessera-profile/1", "program": "", "rows": [], "rows": []}',
            "`rows` is given",
        ),
        (
            json.dumps({"schema": "tessera-profile/1", "program": "", "rows": [ROW, ROW]}),
            "rows 0 and 1 of `p.json` are both of step #0 on 108 SMs of `a100-80g-sxm`",
        ),
    ],
)
def test_what_a_profile_says_twice_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TesseraError, match=f"TSR3015.*{reason}"):
        parse_profile(text, "p.json")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"step": 99}, "step #99 `memset`, and the trace has none"),
        ({"name": "relu"}, "step #0 `relu`, and the trace has none"),
        ({"step": 2, "name": "m0.linear", "variant": "sm_90a"}, "for sm_90a, and plans run that"),
    ],
)
def test_rows_of_other_steps_or_other_code_are_refused(
    tmp_path: Path, before: Plan, change: dict[str, Any], reason: str
) -> None:
    path = profile(tmp_path / "bad.json", before.traces[0].digest, [{**MEMSET, **change}])
    with pytest.raises(TesseraError, match=f"TSR3015.*{reason}"):
        plan(MLP, replace(PAIR, profiles=(path,)))


def test_a_row_of_a_step_without_code_is_taken(tmp_path: Path, before: Plan) -> None:
    path = profile(tmp_path / "good.json", before.traces[0].digest, [{**MEMSET, "variant": ""}])
    plan(MLP, PlanOptions(gpus="a100,l40s", strategy="single", profiles=(path,)))


def test_pins_and_bans() -> None:
    pinned = PlanOptions(gpus="a100,l40s", objective="latency", pins=("m0.linear=a100",))
    made = plan(MLP, pinned).plan
    placed = devices_of(made)
    assert placed[2] == placed[5] == "a100-0"
    banned = PlanOptions(gpus="a100,l40s", objective="latency", forbids=("#3=l40s-0", "*=l40s"))
    assert set(devices_of(plan(MLP, banned).plan).values()) == {"a100-0"}
    assert "pin=m0.linear=a100" in made.options


@pytest.mark.parametrize("rule", ["m0.lineer=a100", "m0.linear=h100", "m0.linear", "", "#99=a100"])
def test_pins_that_name_nothing(rule: str) -> None:
    with pytest.raises(TesseraError, match="TSR3017"):
        plan(MLP, PlanOptions(gpus="a100,l40s", pins=(rule,)))


def test_pins_that_leave_nothing() -> None:
    options = PlanOptions(gpus="a100,l40s", pins=("m0.linear=a100",), forbids=("m0.*=a100",))
    with pytest.raises(TesseraError, match="TSR3011") as failure:
        plan(MLP, options)
    assert failure.value.exit_code == 3
    assert any("pinned by" in note for note in failure.value.diagnostics[0].notes)
