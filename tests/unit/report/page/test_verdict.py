"""The first section of a page says what the plan says: shares, hand-overs, gains, sources."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tessera.driver.plan import PlanOptions, plan
from tessera.ir.objectives import Objective
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.report.page.build import build_page
from tessera.report.page.given import Document
from tessera.report.page.inputs import read_given
from tessera.report.page.verdict import best_other, brings, changes, instead, named, sources
from tessera.report.page.who import who_does_what

TRACES = Path(__file__).parents[4] / "examples" / "traces"
STEPS = [TRACES / f"llama_steps_{name}.ptx" for name in ("prefill", "decode")]
MLP = TRACES / "mlp.ptx"
CUTS = {"cuts": ("linear:x=0.6@a100,0.4@l40s",), "twins": ("relu",)}


def made(*traces: Path, **options: Any) -> Plan:
    return plan(list(traces), PlanOptions(gpus="a100,l40s", **options)).plan


@pytest.fixture(scope="module")
def roles() -> Plan:
    return made(*STEPS, strategy="phase")


def test_shares_and_hand_overs_of_roles(roles: Plan) -> None:
    who: Any = who_does_what(roles)
    served = [sum(box["serves"][n] for box in who["boxes"]) for n in range(2)]
    assert served == pytest.approx([1.0, 1.0])
    rows = [row[0] for box in who["boxes"] for row in box["rows"]]
    assert sorted(rows) == sorted(device.name for device in roles.devices)
    ((source, target, words),) = who["moves"]
    ((handed, replica),) = [(own, r) for r in roles.replicas for own in r.hand_overs]
    assert (rows[source], rows[target]) == (handed.source, handed.target)
    size = replica.serves(handed.trace) * roles.traces[handed.trace].share * handed.bytes
    assert f"hand-overs: {int(handed.part * size)} bytes per request" in words


def test_parts_are_those_of_the_cuts() -> None:
    divided = made(MLP, **CUTS)
    who: Any = who_does_what(divided)
    shares = [[part[1] for part in parts] for _, _, parts in who["parts"]]
    assert sorted(shares) == [
        [0.5, 0.5],
        pytest.approx([2 / 3, 1 / 3]),
        pytest.approx([2 / 3, 1 / 3]),
    ]
    assert who["boxes"][0]["serves"] == [1.0]
    assert who["moves"]
    assert who_does_what(replace(divided, devices=divided.devices[:1])) is None


@pytest.mark.parametrize("objective", ["throughput", "latency", "cost"])
def test_no_sentence_contradicts_the_rows(roles: Plan, objective: str) -> None:
    """Whatever the figures are: who is named is better in what it is named for."""
    draw = random.Random(45)
    unit = Objective.named(objective)
    for _ in range(300):
        rows = [
            replace(
                row,
                period_ns=row.period_ns * draw.choice((0.3, 0.97, 1.0, 1.1, 4.0)),
                latency_ns=row.latency_ns * draw.choice((0.3, 0.97, 1.0, 1.1, 4.0)),
                usd_per_request=row.usd_per_request * draw.choice((0.0, 0.3, 0.97, 1.0, 4.0)),
            )
            for row in roles.baselines
        ]
        value = unit.value(roles)
        ends = sorted(value * draw.uniform(0.5, 2) for _ in range(2))
        tried = replace(
            roles, objective=objective, baselines=tuple(rows), low=ends[0], high=ends[1]
        )
        best, said = best_other(tried), brings(tried, None)
        assert best is not None
        assert named(best.name) in said
        theirs = unit.value(best)
        assert (unit.better in said) <= (value <= theirs)
        assert (unit.worse in said) <= (value > theirs)
        assert ("holds that figure" in said) == (ends[0] <= theirs <= ends[1])
        assert ("worse end" in said) == (theirs > ends[1])
        for line in instead(tried, None):
            row = next(own for own in rows if named(own.name) in line)
            assert {
                "B": unit.value(row) < value,
                "For l": row.usd_per_request < roles.usd_per_request,
                "For o": row.latency_ns < roles.latency_ns,
            }[re.match("B|For .", line)[0]]  # type: ignore[index]


def test_the_error_bars_of_a_gain_are_those_of_the_report(roles: Plan) -> None:
    best = best_other(roles)
    assert best is not None
    for split, rival, ends in (
        (roles.strategy, best.name, "-20.0% to +25.0%"),
        (best.name, roles.strategy, "-20.0% to +25.0%"),
        ("layers", "single:a100-0", ""),
    ):
        doubt = {"split": split, "rival": rival, "low": -0.2, "high": 0.25}
        assert ends in brings(roles, Document(name="plan.json", value={"doubt": doubt}))


def test_what_a_plan_rests_on_and_what_would_change_it(roles: Plan) -> None:
    assert sum(float(str(row[1])) for row in sources(roles)) == pytest.approx(1.0)
    ((change, effect),) = changes(roles, [], None)
    assert "`tessc profile`" in change
    assert effect.endswith("% of the error")


@pytest.mark.slow
def test_a_page_of_operators_has_points_below_roofs(tmp_path: Path) -> None:
    path = tmp_path / "library.tsp"
    options = PlanOptions(gpus="a100")
    path.write_text(
        print_plan(plan(TRACES / "llama_decode_library.ptx", options, compare=False).plan)
    )
    section = build_page(read_given([path])).section("roofline")
    assert section is not None
    (device,) = section.data["devices"]  # type: ignore[misc]
    calls = [row for row in device["kernels"] if row[0].startswith("aten::")]
    assert len(calls) == 2
    assert all(row[4] > 0 and row[5] > 0 for row in calls)
    assert device["roofs"]
    assert device["bandwidth"] > 0
