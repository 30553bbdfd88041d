"""What is planned: strategies and placements by name, two policies, slots, a search cut short."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver import plan as driver_plan
from tessera.driver.analyze import analyze
from tessera.driver.plan import PlanOptions, Watch, plan
from tessera.driver.run.open_plan import open_plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.choices import Ending
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_launch import lowered_lines
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.progress import StageProgress
from tessera.passes.checker.check_plan import check_plan
from tessera.planning import choose_best as gathering
from tessera.planning import find_plan as planning_search
from tessera.planning import make_plan, refusals
from tessera.planning.given import options as planning_options
from tessera.planning.problem import limits as partition_limits
from tessera.planning.problem.period_limits import Limit, LimitKind
from tessera.simulation.options import SimulateOptions
from tessera.simulation.simulate_plan import choose_replicas
from tests.helpers.command import tessc
from tests.helpers.share import share

TRACES = Path(__file__).parents[3] / "examples" / "traces"
MLP = TRACES / "mlp.ptx"
PAIR = "a100,l40s"


@pytest.fixture(autouse=True, scope="module")
def analysed_once() -> Iterator[None]:
    """Every test plans the same two traces."""
    with mock.patch.object(driver_plan, "load_traces", cache(driver_plan.load_traces)):
        yield


BIG = """//! tessera.trace 1
//! buffer w bytes=30000000000 role=weight
//! buffer x bytes=4096 role=output
//! op aten::add.Tensor reads=[w:f32[512], w+29999997952:f32[512]] writes=[x:f32[512]]
"""
"""A weight that is read at both ends, so that a device has all of it."""


def devices(found: Plan) -> list[list[str]]:
    return [[step.device for step in replica.traces[0].steps] for replica in found.replicas]


@cache
def best_plan() -> Plan:
    return plan(MLP, PlanOptions(gpus=PAIR)).plan


def proved(found: Plan) -> bool:
    """The plan as a file, read and proved again from the trace alone."""
    report = analyze(MLP)
    assert report.graph is not None
    again = parse_plan(print_plan(found))
    for card in again.cards:
        names = [device.name for device in again.devices if device.card == card.name]
        used = [one.lowered.memory_bytes(name) for one in again.replicas for name in names]
        assert max(used, default=0) <= card.used_bytes <= card.capacity_bytes
        if len({replica.policy for replica in again.replicas}) == 1:
            assert card.used_bytes == sum(used)
    return not check_plan(again, [report.program], [report.graph])


@pytest.mark.parametrize("strategy", ["single", "dp", "layers", "kernel"])
def test_strategies_are_plans_of_their_own(strategy: str) -> None:
    found = plan(MLP, PlanOptions(gpus=PAIR, strategy=strategy), compare=False).plan
    assert found.strategy.startswith(strategy)
    assert found.ended == "given"
    assert proved(found)
    assert len(found.replicas) == (2 if strategy == "dp" else 1)
    best = best_plan()
    assert best.period_ns <= found.period_ns
    assert found.bound <= best.period_ns
    listed = {row.name: row.period_ns for row in best.baselines}
    assert {best.strategy: best.period_ns, **listed}[found.strategy] == found.period_ns


@pytest.mark.parametrize("gpus", [PAIR, "a100,l40s,h100"])
def test_no_split_of_a_request_is_better_than_the_one_by_kernels(gpus: str) -> None:
    found = plan(MLP, PlanOptions(gpus=gpus, strategy="kernel")).plan
    (replica,) = found.replicas
    assert len({step.device for placed in replica.traces for step in placed.steps}) > 1
    others = [row.period_ns for row in found.baselines if row.name in ("layers", "attention")]
    for seed in share(range(4)):
        random = PlanOptions(gpus=gpus, placement=f"random:{seed}")
        others.append(plan(MLP, random, compare=False).plan.period_ns)
    assert found.period_ns <= min(others)


def test_slots_are_added_for_a_plan_that_only_slots_hold_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is second with 4 slots, and would be the best with 9."""
    tried: list[int] = []
    choose_best = planning_search.choose_best

    def with_another(setting: Any, attempt: Any, *given: Any) -> Any:
        tried.append(attempt.slots)
        choice = choose_best(setting, attempt, *given)
        best = choice.best
        held = replace(
            best,
            name="held back",
            period_ns=2 * best.period_ns,
            latency_ns=9 * best.period_ns / 2,
            limits=(
                Limit(LimitKind.SLOTS, "", 2 * best.period_ns),
                Limit(LimitKind.DEVICE, "load", best.period_ns / 2),
            ),
            replicas=(replace(best.replicas[0], share=1.0),),
        )
        bound = choice.bound / 2  # as low as the load of the other
        return replace(choice, candidates=(*choice.candidates, held), bound=bound)

    monkeypatch.setattr(planning_search, "choose_best", with_another)
    plan(MLP, PlanOptions(gpus=PAIR), compare=False)
    assert tried == [4, 9]


def test_steps_with_a_state_that_are_pinned_apart(tmp_path: Path) -> None:
    """The cache of a layer is written by one step and read by another, of the next request too."""
    trace = str(TRACES / "llama_steps_decode.ptx")
    pins = ["--pin", "#4=a100", "--pin", "#5=l40s"]
    outcome = tessc("plan", trace, "--gpus", PAIR, *pins, "-o", str(tmp_path / "x.tsp"))
    assert outcome.code == 3
    assert "with `#5`" in outcome.err
    assert "l40s-0: #4 pinned by `#4=a100`" in outcome.err
    assert "a100-0: #5 pinned by `#5=l40s`" in outcome.err
    assert "share a state from one request to the next" in outcome.err


@pytest.mark.parametrize(
    "given",
    [{"strategy": "tessera"}, {"strategy": ""}, {"seconds": 0.0}, {"seconds": float("nan")}],
)
def test_options_without_sense(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"`strategy` is one of single|`seconds` is a number"):
        PlanOptions(gpus=PAIR, **given)


@pytest.mark.parametrize("strategy", ["phase", "attention"])
def test_strategies_that_a_trace_does_not_have(strategy: str) -> None:
    with pytest.raises(TesseraError, match="TSR3017") as failure:
        plan(MLP, PlanOptions(gpus=PAIR, strategy=strategy))
    assert failure.value.exit_code == 3


def test_random_placements() -> None:
    found = [
        plan(MLP, PlanOptions(gpus="a100,l40s,h100", placement=f"random:{seed}"), compare=False)
        for seed in (1, 1, 2, 3)
    ]
    placed = [devices(report.plan)[0] for report in found]
    assert placed[0] == placed[1]
    assert len({tuple(one) for one in placed}) == 3
    assert {name for one in placed for name in one} == {"a100-0", "l40s-0", "h100-0"}
    assert all(proved(report.plan) for report in found)
    assert print_plan(found[0].plan) == print_plan(found[1].plan)


def test_placements_from_files(tmp_path: Path) -> None:
    lines = tmp_path / "place.txt"
    lines.write_text("// all\n*=a100\nm0.linear = l40s  // but these\n#0=l40s-0\n")
    first = plan(MLP, PlanOptions(gpus=PAIR, placement=str(lines)), compare=False).plan
    steps = first.replicas[0].traces[0].steps
    assert first.strategy == "place.txt"
    assert str(tmp_path) not in print_plan(first)
    away = [step.step for step in steps if step.device == "l40s-0"]
    assert away == [0, *(step.step for step in steps if step.name == "m0.linear")]
    assert proved(first)
    file = tmp_path / "p.tsp"
    file.write_text(print_plan(first))
    second = plan(MLP, PlanOptions(gpus=PAIR, placement=str(file)), compare=False).plan
    assert devices(second) == devices(first)
    both = plan(MLP, PlanOptions(gpus=PAIR, strategy="dp"), compare=False).plan
    file.write_text(print_plan(both))
    again = plan(MLP, PlanOptions(gpus=PAIR, placement=str(file)), compare=False).plan
    assert [replica.share for replica in again.replicas] == pytest.approx(
        [replica.share for replica in both.replicas]
    )
    assert devices(again) == devices(both)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m0.linear=a100\n", "does not place step #0 `memset`"),
        ("*=a100\nm0.lin=l40s\n", "`m0.lin` names no step"),
        ("*=a100\n#3=t4\n", "`t4` is not one GPU"),
        ("*=\n", "`` is not one GPU"),
        ("nonsense\n", "`nonsense` is not one GPU"),
        ("tessera-plan 1\n", "ends too early"),
    ],
)
def test_placement_files_that_are_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "place.txt"
    path.write_text(text)
    with pytest.raises(TesseraError) as failure:
        plan(MLP, PlanOptions(gpus=PAIR, placement=str(path)))
    assert said in str(failure.value.diagnostics[0].headline)
    assert failure.value.exit_code == 1


def test_a_plan_of_another_trace_is_no_placement(tmp_path: Path) -> None:
    path, other = tmp_path / "p.tsp", tmp_path / "big.ptx"
    other.write_text(BIG)
    path.write_text(
        print_plan(plan(MLP, PlanOptions(gpus=PAIR, strategy="dp"), compare=False).plan)
    )
    with pytest.raises(TesseraError, match=r"TSR3017.*other traces"):
        plan(str(other), PlanOptions(gpus=PAIR, placement=str(path)))
    with pytest.raises(TesseraError, match=r"TSR3017.*which the machine lacks"):
        plan(MLP, PlanOptions(gpus="h100,b200", placement=str(path)))


def test_slots_and_lanes(tmp_path: Path) -> None:
    found = plan(MLP, PlanOptions(gpus="a100", slots=3, sequences=5)).plan
    assert (found.replicas[0].slots, found.replicas[0].lanes) == (3, 5)
    assert proved(found)
    chain, around = tmp_path / "chain.ptx", tmp_path / "around.txt"
    roles = ["input", *(["temp"] * 11), "output"]
    chain.write_text(
        "//! tessera.trace 1\n"
        + "".join(f"//! buffer b{n} bytes=65536 role={role}\n" for n, role in enumerate(roles))
        + "".join(f"//! memcpy b{n + 1} b{n} bytes=65536\n" for n in range(12))
    )
    around.write_text("".join(f"#{step}=a100-{step // 2}\n" for step in range(12)))
    options = PlanOptions(gpus="6xa100", placement=str(around))
    report = plan(str(chain), options)
    found = report.plan
    # As many as keep the busiest busy, found to within an eighth: more would not help, fewer
    # would be slower.
    slots = found.replicas[0].slots
    assert slots > 4
    limit = report.insight.limits[0]
    assert limit.kind.is_load
    assert found.period_ns == pytest.approx(limit.ns, rel=1e-12)
    fewer = plan(str(chain), replace(options, slots=slots - slots // 8 - 1)).plan
    assert fewer.period_ns > found.period_ns


def test_two_policies_in_one_plan() -> None:
    found = plan(MLP, PlanOptions(gpus=PAIR, objective="latency+throughput"), compare=False).plan
    assert proved(found)
    assert {replica.policy for replica in found.replicas} == {"latency", "throughput"}
    latency = plan(MLP, PlanOptions(gpus=PAIR, objective="latency"), compare=False).plan
    assert found.latency_ns == latency.latency_ns
    throughput = best_plan()
    assert found.period_ns == pytest.approx(throughput.period_ns, rel=1e-9)
    for policy in ("latency", "throughput"):
        shares = [one.share for one in found.replicas if one.policy == policy]
        assert sum(shares) == pytest.approx(1.0)
    assert {one.policy for one in open_plan(found).replicas} == {"throughput"}
    assert open_plan(found).replicas == choose_replicas(found, SimulateOptions(), "plan")


def test_policies_share_weights(tmp_path: Path) -> None:
    path = tmp_path / "big.ptx"
    path.write_text(BIG)
    options = PlanOptions(gpus=PAIR, objective="latency+throughput")
    found = plan(str(path), options, compare=False).plan
    users: dict[str, set[str]] = {}
    for replica in found.replicas:
        for area in replica.lowered.areas:
            if area.kind is AreaKind.WEIGHTS:
                assert area.bytes == 30_000_000_000
                users.setdefault(area.device, set()).add(replica.policy)
    assert {"latency", "throughput"} in users.values()
    for card in found.cards:
        assert card.used_bytes < 31_000_000_000
    report = analyze(path)
    assert report.graph is not None
    again = parse_plan(print_plan(found))
    assert not check_plan(again, [report.program], [report.graph])
    # Another layout under one of the policies is refused.
    text = print_plan(found)
    first, last = text.split('policy="throughput"', 1)
    assert 'kind="weights" offset=0' in last
    changed = last.replace('kind="weights" offset=0', 'kind="weights" offset=256')
    with pytest.raises(TesseraError, match="policies share weights"):
        parse_plan(first + 'policy="throughput"' + changed)


# --- cut short ---------------------------------------------------------------------------------


def test_a_search_that_is_stopped_at_once_gives_a_baseline() -> None:
    heard: list[StageProgress] = []
    watch = Watch(on_progress=heard.append, should_stop=lambda: True)
    found = plan(TRACES / "dit.ptx", PlanOptions(gpus=PAIR), watch).plan
    assert found.ended == "interrupted"
    assert found.bound <= found.period_ns
    whole = plan(TRACES / "dit.ptx", PlanOptions(gpus=PAIR)).plan
    assert found.period_ns >= whole.period_ns * (1 - 1e-9)


_CLOCK = partition_limits.SearchWatch


def test_a_time_limit_too_short_for_any_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a short limit leaves the solver a tenth of a second; here it leaves none."""
    monkeypatch.setattr(_CLOCK, "over", lambda watch: Ending.CLOCK if watch.deadline else None)
    monkeypatch.setattr(_CLOCK, "seconds_left", lambda watch: 1e-6 if watch.deadline else None)
    target = tmp_path / "p.tsp"
    outcome = tessc(
        "plan", str(TRACES / "dit.ptx"), "--gpus", PAIR, "--time-limit", "1e-6", "-o", str(target)
    )
    assert outcome.code == 0, outcome.err
    assert "TSR3019" in outcome.err
    assert "distance from the best possible" in outcome.err
    assert parse_plan(target.read_text()).ended == "clock"


def test_ctrl_c_keeps_the_best_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = gathering.choose

    def interrupted(*arguments: Any, **rest: Any) -> Any:
        assert not rest["should_stop"]()
        signal.raise_signal(signal.SIGINT)
        assert rest["should_stop"]()
        return real(*arguments, **rest)

    monkeypatch.setattr(gathering, "choose", interrupted)
    target = tmp_path / "p.tsp"
    before = signal.getsignal(signal.SIGINT)
    outcome = tessc("plan", str(TRACES / "dit.ptx"), "--gpus", PAIR, "-o", str(target))
    assert outcome.code == 130
    assert "an interrupt ended the search" in outcome.err
    assert parse_plan(target.read_text()).ended == "interrupted"
    assert signal.getsignal(signal.SIGINT) is before


def test_what_is_done_is_said_in_order() -> None:
    said: list[str] = []
    options = PlanOptions(gpus=PAIR, objective="latency")  # parts of its steps pay
    plan(MLP, options, Watch(on_progress=lambda told: said.append(told.stage)))
    order = ["reading and analysing", "analysing", "working out durations", "searching"]
    order += ["simulating what was found", "dividing steps", "proving the plan"]
    order += ["comparing with other GPUs"]
    assert list(dict.fromkeys(said)) == order


def test_ctrl_c_in_the_comparisons_keeps_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written before they begin, so nobody waits for it."""
    target = tmp_path / "p.tsp"

    def interrupted(*arguments: Any, **rest: Any) -> Any:
        assert parse_plan(target.read_text()).ended == "search"
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the command goes on")

    monkeypatch.setattr(make_plan, "alone", interrupted)
    outcome = tessc("plan", str(MLP), "--gpus", PAIR, "-o", str(target))
    assert outcome.code == 130
    assert "TSR3019" in outcome.err
    assert f"wrote {target}" in outcome.text
    assert "in place of this machine" not in outcome.text
    assert parse_plan(target.read_text()).ended == "search"


def test_all_searches_share_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each used to have all the time for itself."""
    now = [100.0]
    monkeypatch.setattr(planning_options.time, "perf_counter", lambda: now[0])
    given: list[float | None] = []
    real = gathering.choose

    def slow(problem: Any, objective: str, options: Any, **rest: Any) -> Any:
        given.append(options.seconds)
        now[0] += 4.0
        return real(problem, objective, replace(options, seconds=None), **rest)

    monkeypatch.setattr(gathering, "choose", slow)
    found = plan(MLP, PlanOptions(gpus=PAIR, seconds=5.0), Watch())
    assert found.plan.replicas
    assert given[:2] == [5.0, 1.0]
    assert len(given) <= 3  # nothing is compared when the time is up
    assert Watch().seconds_left() is None
    assert not Watch().within(1.0).stopped()


# --- reports -----------------------------------------------------------------------------------


def test_a_plan_that_cannot_be_proved_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = refusals.check_plan
    seen: list[str] = []

    def doubtful(found: Plan, *rest: Any) -> Any:
        seen.append(found.strategy)
        if len(seen) == 1:
            return real(found, [], [])
        return real(found, *rest)

    monkeypatch.setattr(refusals, "check_plan", doubtful)
    target = tmp_path / "p.tsp"
    outcome = tessc("plan", str(MLP), "--gpus", PAIR, "-o", str(target))
    assert outcome.code == 0
    assert f"warning[TSR3018]: the plan `{seen[0]}` was given up" in outcome.err
    assert parse_plan(target.read_text()).strategy == seen[1]
    monkeypatch.setattr(refusals, "check_plan", lambda found, *_: real(found, [], []))
    target.unlink()
    outcome = tessc("plan", str(MLP), "--gpus", PAIR, "-o", str(target))
    assert outcome.code == 3
    assert not target.exists()


def test_launch_programs_are_printed() -> None:
    outcome = tessc("plan", str(MLP), "--gpus", PAIR, "--placement", "random:1", "--emit", "launch")
    assert outcome.code == 0, outcome.err
    found = plan(MLP, PlanOptions(gpus=PAIR, placement="random:1"), compare=False).plan
    assert outcome.text.splitlines()[1:] == list(lowered_lines(found.replicas[0].lowered))


def test_explained_steps(tmp_path: Path) -> None:
    outcome = tessc(
        "plan",
        str(MLP),
        "--gpus",
        PAIR,
        "--strategy",
        "layers",
        "--explain",
        "k5",
        "-o",
        str(tmp_path / "p.tsp"),
    )
    assert outcome.code == 0, outcome.err
    assert "k5 m0.linear: on " in outcome.text
    assert "sm_80, chosen" in outcome.text
    assert "there: period " in outcome.text
    assert "needs 9.2 KB of hidden: k3" in outcome.text
    missing = tessc("plan", str(MLP), "--gpus", PAIR, "--explain", "k99")
    assert missing.code == 1
    assert "`k0` to `k7`" in missing.err


def test_the_report_says_what_limits_and_what_else_there_is(tmp_path: Path) -> None:
    outcome = tessc("plan", str(MLP), "--gpus", PAIR, "--pareto", "-o", str(tmp_path / "p.tsp"))
    for said in ("what went where", "bottleneck: ", "2x a100-80g-sxm", "2x l40s", "no plan found"):
        assert said in outcome.text
    barred = tmp_path / "new.ptx"
    text = MLP.read_text().replace(".target sm_80", ".target sm_90")
    barred.write_text(text)
    outcome = tessc("plan", str(barred), "--gpus", "a100,h100", "-o", str(tmp_path / "p.tsp"))
    assert outcome.code == 0, outcome.err
    assert "not on a100-0: no code for sm_80" in outcome.text


def test_the_report_says_what_would_help() -> None:
    report = plan(MLP, PlanOptions(gpus=PAIR))
    assert any("as fast in place of a100-0: at most +" in one for one in report.insight.helpers)
    slow = PlanOptions(gpus=PAIR, link="1Gb/s", pins=("m0.linear=a100", "m0.relu=l40s"))
    assert plan(MLP, slow).insight.helpers[0].startswith("all links 2 times as fast: at most +")


def test_a_plan_has_one_figure_for_its_memory() -> None:
    """In all tables of its report: what its launch programs take."""
    report = plan(MLP, PlanOptions(gpus=PAIR), pareto=True)
    taken = sum(card.used_bytes for card in report.plan.cards)
    own = [
        row.memory_bytes
        for row in (*report.frontier, *report.plan.baselines)
        if (row.name, row.period_ns) == (report.plan.strategy, report.plan.period_ns)
    ]
    assert own == [taken]


def test_the_frontier_has_nothing_that_is_beaten() -> None:
    rows = plan(MLP, PlanOptions(gpus=PAIR), pareto=True).frontier
    assert len(rows) >= 2
    values = [(row.period_ns, row.latency_ns, row.usd_per_request) for row in rows]
    for one in values:
        for other in values:
            assert one == other or any(a < b for a, b in zip(one, other, strict=True))


def test_json(tmp_path: Path) -> None:
    outcome = tessc(
        "plan", str(MLP), "--gpus", PAIR, "--json", "--explain", "k5", "-o", str(tmp_path / "p.tsp")
    )
    found = json.loads(outcome.text)
    assert found["schema"] == "tessera-plan-report/1"
    assert found["classes"][0]["ratio"] > 1
    assert found["limits"][0]["ns"] == pytest.approx(found["period_ns"])
    assert {row["name"].split(":")[0] for row in found["alternatives"]} == {
        "2x a100-80g-sxm",
        "2x l40s",
    }
    assert found["explained"][0]["name"] == "m0.linear"
    assert sum(len(placed["steps"]) for placed in found["replicas"][0]["traces"]) == 8


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "speed"},
        {"slots": 0},
        {"gap": float("nan")},
        {"strategy": "dp", "placement": "random:1"},
        {"strategy": "dp", "objective": "latency+throughput"},
    ],
)
def test_options_that_are_wrong_in_themselves(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="`"):
        PlanOptions(gpus=PAIR, **wrong)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--gap", "nan"],
        ["--time-limit", "nan"],
        ["--time-limit", "0"],
        ["--slots", "0"],
        ["--lanes", "0"],
        ["--placement", "random:1", "--strategy", "dp"],
        ["--objective", "latency+throughput", "--strategy", "dp"],
        ["--objective", "speed"],
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str]) -> None:
    target = tmp_path / "p.tsp"
    assert tessc("plan", str(MLP), "--gpus", PAIR, *arguments, "-o", str(target)).code == 2
    assert not target.exists()


def test_the_public_names() -> None:
    for name in driver_plan.__all__:
        assert getattr(driver_plan, name) is not None
