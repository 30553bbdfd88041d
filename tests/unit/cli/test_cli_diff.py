"""`tessc diff`: what moved between two plans, why the numbers changed, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.driver.diff_plans import diff
from tessera.driver.plan import PlanOptions, plan
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.text_digest import text_digest
from tessera.report.page.render import read_page
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"


def planned(**options: object) -> Plan:
    given = PlanOptions(gpus="a100,l40s", **options)  # type: ignore[arg-type]
    return plan(MLP, given, compare=False).plan


@pytest.fixture(scope="module")
def split() -> Plan:
    return planned(strategy="kernel", slots=2)


@pytest.fixture(scope="module")
def single() -> Plan:
    return planned(strategy="single", slots=2)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: Plan, single: Plan) -> Path:
    (tmp_path / "a.tsp").write_text(print_plan(split))
    (tmp_path / "b.tsp").write_text(print_plan(single))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def doubled(made: Plan) -> Plan:
    """The same plan, with steps that take twice as long by measurement."""
    replicas = tuple(
        replace(
            replica,
            traces=tuple(
                replace(
                    placed,
                    steps=tuple(
                        replace(s, predicted_ns=2 * s.predicted_ns, source="profile")
                        for s in placed.steps
                    ),
                )
                for placed in replica.traces
            ),
        )
        for replica in made.replicas
    )
    return replace(made, replicas=replicas)


def test_equal_plans(folder: Path) -> None:
    (folder / "c.tsp").write_bytes((folder / "a.tsp").read_bytes())
    outcome = tessc("diff", "a.tsp", "c.tsp")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text == "first:  a.tsp\nsecond: c.tsp\nthe plans are equal\n"


def test_what_moved_and_why(folder: Path, split: Plan, single: Plan) -> None:
    outcome = tessc("diff", "a.tsp", "b.tsp", "-o", "diff.html")
    assert (outcome.code, outcome.err) == (0, "")
    value = json.loads(tessc("diff", "a.tsp", "b.tsp", "--json").out)
    where = {s.step: s.device for s in split.replicas[0].traces[0].steps}
    there = {s.step: s.device for s in single.replicas[0].traces[0].steps}
    moved = {step for step in where if where[step] != there[step]}
    assert moved
    assert {step for row in value["moved"] for step in row["steps"]} == moved
    assert value["stayed"] == len(where) - len(moved)
    assert f"{len(moved)} step" in outcome.text
    causes = value["causes"]
    assert causes[0]["period_ns"] == pytest.approx(split.period_ns, rel=1e-6)
    assert causes[-1]["period_ns"] == pytest.approx(single.period_ns, rel=1e-6)
    page = read_page((folder / "diff.html").read_text(), "diff.html")
    assert {"what", "figures", "causes", "moved"} <= {section.id for section in page.sections}


def test_durations_are_a_cause_of_their_own(split: Plan) -> None:
    found = diff(split, doubled(split))
    assert found.moves == ()
    assert {row.sources[1] for row in found.retimed} == {"profile"}
    assert sum(row.after_ns for row in found.retimed) == pytest.approx(
        2 * sum(row.before_ns for row in found.retimed)
    )
    names = [cause.name for cause in found.causes]
    assert names[1] == "durations of steps that stay where they are"
    assert len(names) == 3
    assert found.causes[1].period_ns > found.causes[0].period_ns
    assert found.causes[2].period_ns == pytest.approx(found.causes[1].period_ns)


def test_links_and_slots_are_causes(split: Plan) -> None:
    slower = replace(
        split, paths=tuple(replace(p, latency_ns=p.latency_ns + 50_000.0) for p in split.paths)
    )
    found = diff(split, slower)
    assert [cause.name for cause in found.causes][1:-1] == ["links and memory"]
    assert found.causes[1].latency_ns > found.causes[0].latency_ns
    assert {pair.unit for pair in found.links} == {"ns"}
    fewer = planned(strategy="kernel", slots=1)
    names = [cause.name for cause in diff(split, fewer).causes]
    assert "slots and sequences" in names
    assert ("slots", "2", "1") in diff(split, fewer).settings


def test_other_traces(split: Plan) -> None:
    (trace,) = split.traces
    text = trace.text + "// another\n"
    other = replace(split, traces=(replace(trace, text=text, digest=text_digest(text)),))
    found = diff(split, other)
    assert found.traces == ((trace.name, "another text"),)
    assert found.stayed == 0
    assert any("different traces" in note for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("a.tsp", "none.tsp"), "TSR1900"),
        (("a.tsp", str(MLP)), "TSR3020"),
        (("a.tsp", "b.tsp", "-o", "a.tsp"), "TSR19"),
    ],
)
def test_what_is_refused(folder: Path, arguments: tuple[str, ...], code: str) -> None:
    before = (folder / "a.tsp").read_bytes()
    outcome = tessc("diff", *arguments)
    assert outcome.code == 1
    assert code in outcome.err
    assert (folder / "a.tsp").read_bytes() == before
