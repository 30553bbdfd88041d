"""`tessc check`: plans that are proved, and plans that somebody changed."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tessera.diagnostics import Source, TesseraError
from tessera.driver.load import read_program
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_plan
from tessera.passes.dependences.dependences import Dependences
from tests.helpers.command import tessc

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
INTEGER = re.compile(r"\d+")


@cache
def the_plan() -> Plan:
    gpus = "a100,l40s,h200:66sm,h200:66sm"
    return plan(MLP, PlanOptions(gpus=gpus, placement="random:3")).plan


@cache
def analysed() -> tuple[tuple[Program, ...], tuple[KernelGraph, ...]]:
    programs = tuple(read_program(Source(one.name, one.text))[0] for one in the_plan().traces)
    return programs, tuple(AnalysisManager(one).get(Dependences).graph for one in programs)


def codes(changed: Plan) -> list[str]:
    return [one.code for one in check_plan(changed, *analysed())]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    target = tmp_path / "plan.tsp"
    target.write_text(print_plan(the_plan()))
    return target


def test_a_plan_is_proved(path: Path) -> None:
    outcome = tessc("check", str(path))
    assert outcome.code == 0, outcome.err
    assert f"{path}: proved, for every request and every order of events:" in outcome.text
    assert "mlp: 8 steps, " in outcome.text
    assert "replica 0 on " in outcome.text
    assert "memory of a100-0: " in outcome.text


def test_the_proof_as_json(path: Path) -> None:
    found = json.loads(tessc("check", str(path), "--json").text)
    assert found["schema"] == "tessera-check/1"
    assert found["proved"] is True
    (trace,) = found["replicas"][0]["traces"]
    assert trace["steps"] == 8
    assert trace["waits"] > 0
    assert trace["transfer_bytes"] > 0


def test_a_removed_wait_is_refused(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    waits = [n for n, line in enumerate(lines) if re.match(r"\s+compute wait", line)]
    shown = []
    for at in waits:
        path.write_text("".join(lines[:at] + lines[at + 1 :]))
        outcome = tessc("check", str(path))
        assert outcome.code == 1
        assert "error[TSR4005]" in outcome.err
        assert f"--> {path}:" in outcome.err  # the operations are shown where they stand
        assert re.search(r"\d+ \|       compute launch \d+\n.*\^ step `#", outcome.err)
        assert outcome.text == ""
        shown.append(outcome.err)
    received = r"\d+ \|       in recv \d+\n.*- the receive of transfer"
    assert any(re.search(received, one) for one in shown)
    found = json.loads(tessc("check", str(path), "--json").text)
    assert found["proved"] is False
    assert found["diagnostics"][0]["code"].startswith("TSR400")


def test_a_trace_or_ptx_is_looked_through(tmp_path: Path) -> None:
    outcome = tessc("check", str(MLP))
    assert outcome.code == 0
    assert outcome.text == f"{MLP}: 0 errors, 0 warnings\n"
    assert tessc("check", "-", stdin=MLP.read_bytes()).code == 0
    broken = tmp_path / "broken.ptx"
    broken.write_text(".version 8.0\n.target sm_80\n.visible .entry k( {")
    outcome = tessc("check", str(broken))
    assert outcome.code == 1
    assert "TSR10" in outcome.err


def test_what_is_no_plan_is_said_so(tmp_path: Path) -> None:
    assert tessc("check", str(tmp_path / "nothing.tsp")).code == 1
    other = tmp_path / "other.tsp"
    other.write_text("tessera-plan 99\n")
    outcome = tessc("check", str(other))
    assert outcome.code == 1
    assert "TSR3020" in outcome.err
    other.write_bytes(b"tessera-plan 1\n\x00\xff\xfe")
    assert tessc("check", str(other)).code == 1


def test_a_trace_that_was_swapped_is_refused(path: Path) -> None:
    """The digest of an embedded trace is not that of another trace, whoever wrote the file."""
    path.write_text(path.read_text().replace("saxpy", "saxpz"))
    outcome = tessc("check", str(path))
    assert outcome.code == 1


# --- headers that do not agree ---------------------------------------------------------------


def test_headers_and_programs_agree() -> None:
    good = the_plan()
    assert codes(good) == []
    replica = good.replicas[0]
    placed = replica.traces[0]
    launch = next(n for n, step in enumerate(placed.steps) if step.arch)

    def with_step(**change: str) -> Plan:
        steps = list(placed.steps)
        steps[launch] = replace(steps[launch], **change)  # type: ignore[arg-type]
        changed = replace(replica, traces=(replace(placed, steps=tuple(steps)),))
        return replace(good, replicas=(changed, *good.replicas[1:]))

    assert codes(with_step(arch="sm_100a")) == ["TSR4013"] * 2  # not there, and not for that GPU
    assert codes(with_step(arch="")) == ["TSR4013"]
    assert codes(with_step(name="other")) == ["TSR4013"]
    assert codes(with_step(device="nowhere")) == ["TSR4002"]
    assert codes(replace(good, replicas=(replace(replica, slots=9), *good.replicas[1:]))) == [
        "TSR4013"
    ]
    assert codes(replace(good, traces=())) == ["TSR4013"]
    assert "TSR4013" in codes(replace(good, devices=good.devices[1:]))
    assert "TSR4013" in codes(replace(good, cards=good.cards[1:]))
    full = tuple(replace(card, capacity_bytes=card.used_bytes) for card in good.cards)
    assert codes(replace(good, cards=full)) == []
    low = tuple(replace(card, capacity_bytes=card.used_bytes - 1) for card in good.cards)
    assert set(codes(replace(good, cards=low))) == {"TSR4009"}
    lying = tuple(replace(card, used_bytes=0) for card in good.cards)
    assert set(codes(replace(good, cards=lying))) == {"TSR4013"}


def test_memory_of_slices_adds_up() -> None:
    """Two slices of one card fit one by one, and not together."""
    good = the_plan()
    card = next(card for card in good.cards if card.name == "h200-0")
    slices = [one.name for one in good.devices if one.card == card.name]
    used = [sum(r.lowered.memory_bytes(name) for r in good.replicas) for name in slices]
    assert len(used) == 2
    assert min(used) > 0
    assert sum(used) == card.used_bytes
    small = replace(card, capacity_bytes=max(used))
    cards = tuple(small if one is card else one for one in good.cards)
    assert codes(replace(good, cards=cards)) == ["TSR4009"]


# --- hostile files ---------------------------------------------------------------------------


def changed_lines(text: str, rng: random.Random, count: int) -> list[str]:
    """Texts with one line of the plan left out, doubled or swapped, or one number changed."""
    lines = text.split("\n")
    end = next(n for n, line in enumerate(lines) if line.lstrip().startswith("|"))
    found = []
    for _ in range(count):
        at = rng.randrange(1, end - 1)
        changed = list(lines)
        match rng.randrange(6):
            case 0:
                del changed[at]
            case 1:
                changed.insert(at, changed[at])
            case 2:
                changed[at], changed[at + 1] = changed[at + 1], changed[at]
            case _:
                numbers = list(INTEGER.finditer(changed[at]))
                if numbers:
                    one = rng.choice(numbers)
                    new = rng.choice(["0", "1", "3", "-1", str(1 << 62), str(1 << 70), "256"])
                    changed[at] = changed[at][: one.start()] + new + changed[at][one.end() :]
        found.append("\n".join(changed))
    return found


def test_a_hostile_plan_is_judged_and_never_a_crash() -> None:
    verdicts: Counter[str] = Counter()
    for text in changed_lines(print_plan(the_plan()), random.Random(5), 150):
        try:
            changed = parse_plan(text)
        except TesseraError:
            verdicts["unreadable"] += 1
            continue
        verdicts[(codes(changed) or ["proved"])[0]] += 1
    assert verdicts["unreadable"] > 20
    assert sum(count for code, count in verdicts.items() if code.startswith("TSR")) > 5


def test_contents_are_for_plans(path: Path, tmp_path: Path) -> None:
    assert tessc("check", str(MLP), "--data", "x.npz").code == 2
    assert tessc("check", str(path), "--data", str(tmp_path / "x.npz")).code == 0  # none decides
