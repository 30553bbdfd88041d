"""A plan is the same whatever GPUs, steps and buffers are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tessera.driver.plan import PlanOptions, PlanReport, plan
from tests.helpers.share import share

TRACES = Path(__file__).parents[3] / "examples" / "traces"
MLP = (TRACES / "mlp.ptx").read_text()

# Words that mean something to the planner, to its reports or to the solver, and words that sort
# before and behind them.
WORDS = (
    *("slots", "cycle", "cycle-slots", "requests that wait for each other", "kernel", "dp"),
    *("single", "host", "transfer", "x.bandwidth", "comes from memory", "zz", "A.a-0"),
)


def planned(
    tmp_path: Path, first: str, second: str, trace: str, slices: str = "", **options: object
) -> PlanReport:
    machine = tmp_path / "machine.toml"
    machine.write_text(
        f'link = "100Gb/s"\n[[card]]\ngpu = "{first}"\n[[card]]\ngpu = "{second}"\n'
        f'{slices}\n[gpu."{first}"]\nlike = "a100"\n[gpu."{second}"]\nlike = "l40s"\n'
    )
    file = tmp_path / "trace.ptx"
    file.write_text(trace)
    given = PlanOptions(machine=str(machine), **options)  # type: ignore[arg-type]
    return plan(str(file), given, compare=False)


def figures(report: PlanReport) -> Iterator[object]:
    """Everything that is said of a plan but the names in it."""
    found, insight = report.plan, report.insight
    index = {device.name: number for number, device in enumerate(report.machine.devices)}
    yield found.period_ns, found.latency_ns, found.low, found.high, found.bound
    yield found.replicas[0].slots, found.replicas[0].lanes
    for replica in found.replicas:
        for placed in replica.traces:
            yield [(index[step.device], step.predicted_ns) for step in placed.steps]
    yield [(row.period_ns, row.latency_ns, row.usd_per_request) for row in found.baselines]
    yield [(limit.kind, limit.ns) for limit in insight.limits]
    yield None if insight.losses is None else [ns for _, ns in insight.losses.parts]
    yield [helper.rpartition(":")[2] for helper in insight.helpers]
    doubted = report.decision.doubt
    if doubted is not None:
        yield doubted.gain, doubted.low, doubted.high, doubted.wins, len(doubted.causes)


@pytest.mark.parametrize(("objective", "every"), [("throughput", 2), ("latency", 6), ("cost", 6)])
def test_a_plan_does_not_depend_on_names_of_gpus(
    tmp_path: Path, objective: str, every: int
) -> None:
    wanted = list(figures(planned(tmp_path, "mine", "other", MLP, objective=objective)))
    for number in share(range(0, len(WORDS), every)):
        names = WORDS[number], WORDS[(number + 1) % len(WORDS)]
        found = list(figures(planned(tmp_path, *names, MLP, objective=objective)))
        assert found == wanted, names


def test_a_plan_for_slices_does_not_depend_on_names(tmp_path: Path) -> None:
    wanted = list(figures(planned(tmp_path, "mine", "other", MLP, "slices = [50, 60]")))
    assert list(figures(planned(tmp_path, "slots", "cycle", MLP, "slices = [50, 60]"))) == wanted


def test_a_plan_does_not_depend_on_names_of_steps_and_buffers(tmp_path: Path) -> None:
    wanted = list(figures(planned(tmp_path, "mine", "other", MLP)))
    kernels = ["linear", "relu", "count_positive", "saxpy", "scale_rows"]
    buffers = ["x", "w1", "b1", "w2", "b2", "hidden", "skip", "y", "active"]
    names = [("slots", "cycle", "transfer", "a", "zz"), ("zz", "y9", "host", "slots", "cycle")]
    for words in share(names):
        text = MLP
        for name, word in zip(kernels, words, strict=True):
            text = re.sub(rf"\b{name}(?=\b|_param)", f"{word}_k", text)
        for number, name in enumerate(buffers):
            word = f"{words[number % len(words)]}{9 - number}"
            text = re.sub(rf"(?m)^(//!.*)(?<![\w=])\b{name}\b(?!:)", rf"\1{word}", text)
            while (again := re.sub(rf"(?m)^(//! .*[ \[,]){name}\b", rf"\1{word}", text)) != text:
                text = again
        assert list(figures(planned(tmp_path, "mine", "other", text))) == wanted


def test_a_gpu_is_named_in_a_rule_whatever_its_name_contains(tmp_path: Path) -> None:
    report = planned(tmp_path, "a.b", "c-1.5", MLP, pins=("*=a.b",))
    assert {s.device for r in report.plan.replicas for s in r.traces[0].steps} == {"a.b-0"}
    report = planned(tmp_path, "a.b", "c-1.5", MLP, forbids=("*=c-1.5",))
    assert {s.device for r in report.plan.replicas for s in r.traces[0].steps} == {"a.b-0"}
