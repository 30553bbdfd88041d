"""`tessc fleet` on a small model: the answer, what is beside it, and what is refused."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.diagnostics import TesseraError
from tessera.driver.fleet import capacity
from tessera.driver.fleet.capacity import BUSY, UnitRates, capacity_of, follow_way
from tessera.driver.fleet.choose_units import NOISE, UnitChooser, check_mix
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.fleet_words import verdict_of
from tessera.driver.fleet.follow_units import DealtRequest, follow_units
from tessera.driver.fleet.make_fleet import FleetReport, fleet
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.pools import PoolLinks
from tessera.driver.fleet.rate_bars import FleetDraws
from tessera.driver.fleet.ways import NO_HAND_OVER, HandOverTime
from tessera.driver.fleet.workload import PERCENTILES
from tessera.driver.serve.measures import Slo
from tessera.ir.options import WrongOption
from tessera.ir.plan.costs import Costs, Duration
from tessera.planning.promise.doubt import Standing
from tessera.report.fleet import fleet_json, fleet_text
from tests.helpers.command import tessc
from tests.helpers.share import share

LAYERS = 1
LINKS = PoolLinks(((HandOverTime(1e4, 0.0, 100.0),) * 2,) * 2)


def _step(phase: str, batch: int, tokens: int) -> ServingStep:
    return ServingStep(
        model="llama-8b", phase=phase, batch=batch, tokens=tokens, rows=batch, capacity=1024
    )


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("fleet")
    paths = []
    for step in (_step("decode", 1, 1), _step("decode", 64, 1), _step("prefill", 1, 512)):
        path = folder / f"{step.name}.ptx"
        path.write_text(serving_trace(step, layers=LAYERS))
        paths.append(str(path))
    return paths


QUICK = FleetOptions(gpus="2xa100,2xl40s", tokens=(512, 64))


@pytest.fixture(scope="module")
def served(traces: list[str]) -> FleetReport:
    return fleet(traces, QUICK)


def test_a_split_is_advised_where_it_brings_more_than_the_error(served: FleetReport) -> None:
    plain = next(row for row in served.rivals if row.name == "data parallel")
    assert served.chosen.splits == (served.chosen.rate / plain.rate - 1 >= NOISE)
    assert any("do not split" in line for line in served.verdict) != served.chosen.splits
    assert {row.name for row in served.rivals} >= {
        "data parallel", "layers", "phase", "attention", "kernel", "only a100", "only l40s"
    }  # fmt: skip
    both = next(row for row in served.rivals if row.name == "data parallel")
    alone = [row for row in served.rivals if row.name.startswith("only")]
    assert both.rate == pytest.approx(sum(row.rate for row in alone), rel=0.3)
    assert served.chosen.rate >= max(row.rate for row in served.rivals) * (1 - NOISE)


def test_a_simple_answer_is_taken_where_it_is_as_good(served: FleetReport) -> None:
    """The best of random units is simple, or better than all that are simpler by more than bars."""
    chooser = UnitChooser(served.offered, LINKS, None)
    draw = random.Random(5)
    simple = 0
    for _ in share(range(20)):
        units = [replace(c, rate=c.rate * draw.uniform(0.8, 1.25))
                 for c in served.capacities if c.rate > 0 and draw.random() < 0.9]  # fmt: skip
        chosen = chooser.simplest(units)
        plain = chooser.best("", [c for c in units if c.way.strategy == "single"
                                  and c.way.role is EngineRole.BOTH])  # fmt: skip
        best = max(chooser.best("", units).rate, chooser.best("", units, shared=True).rate)
        assert chosen.rate >= best * (1 - NOISE) * (1 - 1e-6)
        if chosen.splits:
            assert best / plain.rate - 1 >= NOISE
            said = verdict_of(chosen, [plain], chooser)
            assert "do not split" not in " ".join(said)
        else:
            simple += 1
            assert "do not split" in " ".join(verdict_of(chosen, [plain], chooser))
    assert simple


def _with_errors(model: ServedModel, error: float | None) -> ServedModel:
    """The model with one error bar for all times; None: as they are."""

    def changed(step: ModelStep) -> ModelStep:
        rows = [
            replace(row, on_device=tuple(
                replace(cost, error=error) if isinstance(cost, Duration) else cost
                for cost in row.on_device
            ))
            for row in step.costs.steps
        ]  # fmt: skip
        return replace(step, costs=Costs(tuple(rows)))

    parts = (tuple(map(changed, own)) for own in (model.decode, model.prefill))
    return model if error is None else replace(model, **dict(zip(("decode", "prefill"), parts)))  # noqa: B905


def test_rates_have_bars_and_only_the_bar_of_a_ratio_ranks(served: FleetReport) -> None:
    rows = {row.name: row for row in served.rivals if row.units}
    widths = []
    for error in (0.0, 0.1, 0.4):
        draws = FleetDraws.of(_with_errors(served.model, error), served.offered, served.work)
        low, high = draws.interval(served.chosen)
        assert low <= served.chosen.rate * (1 + 1e-9) or error
        widths.append(high / low - 1)
        for name, doubt in draws.doubts(served.chosen, served.rivals, None).items():
            own = [end / served.chosen.rate for end in draws.interval(rows[name])]
            assert doubt.gain == pytest.approx(rows[name].rate / served.chosen.rate - 1)
            assert doubt.low <= doubt.high
            # Both have all steps of some kind of GPU in common: no wider than if nothing cancelled.
            assert (1 + doubt.high) / (1 + doubt.low) <= own[1] / own[0] * high / low * (1 + 1e-9)
            if not error:
                assert doubt.low == pytest.approx(doubt.gain) == doubt.high
    assert widths[0] == pytest.approx(0.0)
    assert 0.02 < widths[1] < widths[2] / 2
    text = fleet_text(served)
    for name, doubt in served.doubts.items():
        assert f"  {name} against the answer: " in text
        assert (doubt.standing is Standing.OPEN) == (doubt.low <= 0 <= doubt.high)
        low, high = served.bars[name]
        assert f"{low:.4g} to {high:.4g}" in text
    alone = FleetDraws.of(served.model, served.offered, served.work)
    one = next(row for row in served.rivals if row.name.startswith("only"))
    twice = replace(one, rate=2 * one.rate, units=tuple((c, 2 * n) for c, n in one.units))
    half = alone.doubts(twice, [one], None)[one.name]
    assert half.low == pytest.approx(-0.5) == half.high, "what two mixes have in common cancels"


def test_units_that_are_not_followed_would_not_make_the_best_mix_better(
    served: FleetReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "_FEWEST", 10)
    monkeypatch.setattr(capacity, "_MOST", 10)
    ways = [c.way for c in served.capacities if c.way.strategy in ("single", "layers")]
    step, spared = ways[0].decode.at(1).ns, 0
    for seed in share(range(10)):
        draw = random.Random(seed)
        limits = Slo(
            ttft_ns=draw.choice((None, 10 ** draw.uniform(6.5, 8))),
            tpot_ns=draw.uniform(0.7, 4) * step,
        )
        percentile = draw.choice(PERCENTILES)
        work = replace(served.work, slo=limits, percentile=percentile)
        rates = UnitRates(ways, work, lambda done, all_: None)
        demand = draw.choice((None, served.chosen.rate * draw.uniform(0.1, 0.5)))
        chooser = UnitChooser(served.offered, LINKS, demand, rates)
        lazy = chooser.best("", rates.all())
        spared += sum("not followed" in c.missed for c in rates.shown())
        known = [rates.follow(c) for c in rates.all()]
        best = replace(chooser, rates=None).best("", known)
        assert (lazy.rate, lazy.usd_per_hour) == pytest.approx((best.rate, best.usd_per_hour)), seed
    assert spared


def test_tensor_parallelism_needs_no_tables_and_has_a_bar(served: FleetReport) -> None:
    tensor = [c for c in served.capacities if c.way.strategy == "tensor"]
    assert {c.way.names for c in tensor} == {"2xa100", "2xl40s"}
    assert all(0 < c.way.doubt < 1 for c in tensor)
    plain = next(c for c in served.capacities if c.way.names == "a100" and not c.way.doubt)
    cut = next(c for c in tensor if c.way.gpus[0] and c.way.role is EngineRole.BOTH)
    chooser = UnitChooser(served.offered, LINKS, None)
    for gain in (0.5, 2.0):
        ahead = 1 + gain * (NOISE + cut.way.doubt)
        better = replace(cut, rate=2 * plain.rate * ahead)
        chosen = chooser.simplest([plain, better], shared=False)
        assert chosen.splits == (gain > 1)


def test_units_take_their_requests_and_hand_over_in_time(served: FleetReport) -> None:
    """Pools followed together: every request once, its answer after its cache has arrived."""
    ways = {c.way.role: c for c in served.capacities if c.way.strategy == "single"}
    reads, makes = ways[EngineRole.PROMPTS], ways[EngineRole.ANSWERS]
    wanted = served.work.draw(0.5 * min(reads.rate, makes.rate), 60)
    slow = HandOverTime(latency_ns=5e6, sequence_ns=1e6, token_ns=1e4)
    dealt = [DealtRequest(w, 0, 1) for w in wanted]
    units = [(reads.way, reads.rows), (makes.way, makes.rows)]
    step = makes.way.decode.at(1).ns
    for taken in (NO_HAND_OVER, slow):
        results = follow_units(units, dealt, lambda a, b, taken=taken: taken)
        apart = follow_way(reads.way, wanted, served.work, reads.rows).requests
        assert [r.first_ns for r in results] == [r.first_ns for r in apart]
        for result, asked in zip(results, wanted, strict=True):
            assert result.is_whole
            least_ns = taken.latency_ns + taken.link_ns(asked.prompt) + (asked.answer - 1) * step
            assert result.ended_ns - result.first_ns >= least_ns * (1 - 1e-9)
    moved = sorted(r.first_ns for r in results)
    last = moved[0] + len(moved) * slow.link_ns(wanted[0].prompt)
    assert max(r.ended_ns for r in results) >= last  # one after the other on the link
    stay = follow_units(units[1:], [DealtRequest(w, 0, 0) for w in wanted], lambda a, b: slow)
    assert all(r.is_whole and r.first_ns > r.came_ns for r in stay)


def test_a_single_unit_takes_what_its_steps_take(served: FleetReport) -> None:
    way = next(c.way for c in served.capacities if c.way.names == "a100")
    step = served.model.decode[-1]
    scale = served.work.context / step.context
    total = sum(
        (row[0] or 0.0) * (scale if attends else 1.0)
        for row, attends in zip(step.ns, step.attends, strict=True)
    )
    assert way.decode.at(64).ns == pytest.approx(total)
    between = way.decode.at(32).ns
    assert way.decode.at(1).ns < between < way.decode.at(64).ns


@pytest.mark.slow
def test_the_cheapest_fleet_is_that_of_brute_force_over_counts_and_strategies(
    traces: list[str],
) -> None:
    options = replace(QUICK, strategies=("single", "layers"))
    most = fleet(traces, options)
    prices = [kind.usd_per_hour or 0.0 for kind in most.offered.kinds]
    units = [c for c in most.capacities if c.rate > 0]
    assert 4 <= len(units) <= 8
    for part in (0.2, 0.9):
        demand = most.chosen.rate * part
        report = fleet(traces, replace(options, demand=demand))
        best = float("inf")
        for counts in itertools.product(range(3), repeat=len(units)):
            gpus = [sum(n * c.way.gpus[k] for n, c in zip(counts, units, strict=True))
                    for k in range(2)]  # fmt: skip
            rate = sum(n * c.rate for n, c in zip(counts, units, strict=True))
            if max(gpus) <= 2 and rate >= demand * report.margin:
                best = min(best, sum(n * p for n, p in zip(gpus, prices, strict=True)))
        assert report.chosen.usd_per_hour == pytest.approx(best)


def test_a_unit_keeps_its_promises_at_its_rate_and_not_far_above(served: FleetReport) -> None:
    way = next(c.way for c in served.capacities if c.way.names == "l40s")
    free = capacity_of(way, served.work)
    assert free.rate == pytest.approx(BUSY * way.most_rate(served.work, free.rows))
    floor = way.decode.at(1).ns
    work = replace(served.work, slo=Slo(ttft_ns=5e9, tpot_ns=1.2 * floor))
    held = capacity_of(way, work)
    assert 0 < held.rate < free.rate
    assert held.rows <= free.rows
    strict = capacity_of(way, replace(served.work, slo=Slo(tpot_ns=0.5 * floor)))
    assert strict.rate == 0
    assert "TPOT" in strict.missed


def test_the_answer_is_checked_with_arrivals(served: FleetReport) -> None:
    slow = check_mix(served.chosen, served.work, served.chosen.rate * 0.1, LINKS)
    busy = check_mix(served.chosen, served.work, served.chosen.rate * 1.6, LINKS)
    assert len(slow.whole) == len(slow.requests) > 100
    assert busy.figures()["ttft_ns"]["p99"] > 2 * slow.figures()["ttft_ns"]["p99"]


def test_command_text_and_json(traces: list[str]) -> None:
    common = ("fleet", *traces, "--gpus", "a100,l40s", "--tokens", "512:64", "--demand", "5/s")
    quick = ("--strategies", "single,phase")
    outcome = tessc(*common, *quick)
    assert outcome.code == 0, outcome.err
    assert "answer: rent only 1 l40s, and do not split" in outcome.text
    assert "do not split" in outcome.text
    assert "per million tokens" in outcome.text
    data = json.loads(tessc(*common, *quick, "--json").text)
    assert data["schema"] == "tessera-fleet/1"
    assert data["answer"]["simulated"]["limits_kept"] is True
    assert sum(data["answer"]["gpus_by_kind"]) == 1
    assert {(unit["strategy"], unit["role"]) for unit in data["units"]} == {
        ("single", role) for role in ("prompts and answers", "prompts", "answers")
    }


def test_what_is_there_costs_nothing(traces: list[str]) -> None:
    options = replace(QUICK, gpus="h100", have="1xl40s", demand=1.0, strategies=("single",))
    report = fleet(traces, options)
    assert report.verdict[0].startswith("buy nothing: use only 1 l40s, which is there")
    assert report.chosen.usd_per_hour == 0
    nothing = fleet(traces, replace(options, demand=0.0))
    assert nothing.verdict == ("buy nothing: there is no demand",)


def test_what_is_scarce_is_not_exceeded(traces: list[str]) -> None:
    options = replace(
        QUICK, gpus="a100,l40s", most=(("l40s", 1),), demand=400.0, strategies=("single",)
    )
    report = fleet(traces, options)
    taken = report.chosen.gpus(2)
    assert taken[1] <= 1
    assert taken[0] >= 1


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("--gpus", "2xa100", "--tokens", "512:64", "--demand", "1e6/s"), 3, "do not serve"),
        (("--gpus", "2xa100", "--tokens", "512:64", "--demand", "1e7/s"), 3, "TSR3027"),
        (("--gpus", "a100", "--tokens", "512:64", "--slo", "tpot=1us"), 3, "keeps the limits"),
        (("--gpus", "2xa100,3xa100", "--tokens", "512:64"), 1, "names a GPU twice"),
        (("--gpus", "h200:84sm", "--tokens", "512:64"), 1, "TSR3025"),
        (("--gpus", "0xa100", "--tokens", "512:64"), 1, "a count is from 1"),
        (("--gpus", "9999999xa100", "--tokens", "512:64"), 1, "a count is from 1"),
        (("--gpus", "gb200", "--tokens", "512:64", "--demand", "1/s"), 1, "no price is known"),
        (("--gpus", "a100", "--most", "h100=1", "--tokens", "512:64"), 1, "names no GPU"),
        (("--gpus", "a100", "--most", "a100=0", "--tokens", "512:64"), 1, "its limit is 0"),
        (("--gpus", "a100,zz9", "--tokens", "512:64"), 1, "TSR3001"),
        (("--gpus", "a100"), 2, "--tokens"),
        (("--tokens", "512:64"), 2, "--gpus"),
        (("--gpus", "a100", "--tokens", "512:64", "--demand", "-1/s"), 2, "requests per time"),
        (("--gpus", "a100", "--tokens", "512:64", "--demand", "1e30/s"), 2, "1e+09"),
        (("--gpus", "a100", "--tokens", "512:64", "--strategies", "magic"), 2, "--strategies"),
        (("--gpus", "t4", "--memory", "t4=1GB", "--tokens", "9000:64"), 3, "fits none"),
    ],
)  # fmt: skip
def test_what_is_refused(
    traces: list[str], arguments: tuple[str, ...], code: int, what: str
) -> None:
    quick = () if "--strategies" in arguments else ("--strategies", "single")
    outcome = tessc("fleet", *traces, *arguments, *quick)
    assert (outcome.code, what in outcome.err) == (code, True), outcome.err
    assert not outcome.out


def test_traces_that_are_no_steps_of_one_model(traces: list[str], tmp_path: Path) -> None:
    decode, larger, prefill = traces
    other = tmp_path / "other.ptx"
    other.write_text(serving_trace(_step("decode", 8, 1), layers=2))
    mlp = str(Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx")
    for given, what in (
        ([decode], "no prefill step"),
        ([prefill], "no decode step"),
        ([decode, str(other), prefill], "not one model"),
        ([mlp, prefill], "no step of a language model"),
    ):
        with pytest.raises(TesseraError, match="TSR3026") as failure:
            fleet(given, QUICK)
        assert what in str(failure.value.diagnostics[0].headline)
    outcome = tessc("fleet", decode, decode, prefill, "--gpus", "a100", "--tokens", "8:8")
    assert outcome.code == 2
    assert larger


KERNELS = """//! tessera.trace 1
//! buffer tokens bytes=32 role=input dtype=s64 shape=4x1
//! buffer cache bytes=8192 role=state dtype=bf16 shape=4x1024x1
//! memset cache bytes=8 value=0
"""


@pytest.mark.parametrize(
    ("context", "what"),
    [
        (None, "does not say how many tokens"),
        (1025, "keeps 1024 tokens of a sequence at most, and `--context` says 1025"),
        (1 << 23, "keeps 1024 tokens of a sequence at most"),
    ],
)
def test_a_context_is_held_against_the_caches_of_the_traces(
    traces: list[str], tmp_path: Path, context: int | None, what: str
) -> None:
    own = tmp_path / "own.ptx"
    own.write_text(KERNELS)
    with pytest.raises(TesseraError, match="TSR3026") as failure:
        fleet([str(own), traces[2]], replace(QUICK, context=context))
    assert what in str(failure.value.diagnostics[0].headline)


@pytest.mark.parametrize("context", [512, 2048, 10**7])
def test_a_context_that_the_traces_contradict(traces: list[str], context: int) -> None:
    with pytest.raises(TesseraError, match=r"goes over 1024 tokens, not over"):
        fleet(traces, replace(QUICK, context=context))


def test_requests_that_are_longer_than_the_traces_are_said(
    traces: list[str], served: FleetReport
) -> None:
    longer = fleet(traces, replace(QUICK, tokens=(1024, 64), strategies=("single",)))
    assert any("up to 1088 tokens, and decode steps are known for 1024" in n for n in longer.notes)
    assert not any("taken to grow in proportion" in note for note in served.notes)


def test_a_machine_file_with_hosts(traces: list[str], tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(
        'link = "100Gb/s"\n[[node]]\nname = "left"\nlink = "nvlink"\n[[node.card]]\ngpu = "a100"\n'
        'count = 2\n[[node]]\nname = "right"\nlink = "pcie4"\n[[node.card]]\ngpu = "l40s"\n'
        "count = 2\nprice = 0.5\n"
    )
    options = FleetOptions(machine=str(file), tokens=(512, 64), strategies=("single", "layers"))
    report = fleet(traces, options)
    assert [(k.label, k.node, k.most) for k in report.offered.kinds] == [
        ("a100", "left", 2.0),
        ("l40s", "right", 2.0),
    ]
    assert report.offered.kinds[1].usd_per_hour == 0.5
    assert report.chosen.gpus(2) == (2, 2)
    with pytest.raises(WrongOption):
        FleetOptions(machine=str(file), gpus="a100", tokens=(1, 1))


def test_lengths_and_gaps_of_a_file(traces: list[str], tmp_path: Path) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        + "".join(f"2023-11-16 18:17:{n:02}.0,{100 + 20 * n},{10 + n}\n" for n in range(40))
    )
    options = FleetOptions(
        gpus="a100", arrivals=str(file), demand=2.0, strategies=("single",), slo=Slo(ttft_ns=1e9)
    )
    report = fleet(traces, options)
    assert report.work.prompt == pytest.approx(490)
    assert report.checked is not None
    assert len(report.checked.requests) == 40
    assert report.work.is_kept(report.checked)


@pytest.mark.slow
def test_the_gap_is_to_a_bound_that_no_unit_beats(served: FleetReport, traces: list[str]) -> None:
    assert served.bound is not None
    assert served.gap is not None
    for choice in (served.chosen, *served.rivals):
        assert choice.rate <= served.bound.whole <= served.bound.fluid
    assert served.gap == pytest.approx(served.bound.fluid / served.chosen.rate - 1)
    assert f"gap {served.gap:.1%}" in fleet_text(served)
    # One kind: all the work, on so many GPUs.
    alone = fleet(traces, replace(QUICK, gpus="2xl40s", strategies=("single",)))
    unit = next(c.way for c in alone.capacities if c.way.strategy == "single")
    most = 2 * unit.most_rate(alone.work, int(unit.decode.largest))
    assert alone.bound is not None
    assert alone.bound.fluid == pytest.approx(most, rel=0.02)
    cheapest = fleet(traces, replace(QUICK, gpus="a100,l40s", demand=5 * served.chosen.rate))
    assert cheapest.bound is not None
    assert cheapest.chosen.usd_per_hour is not None
    assert 0 < cheapest.bound.fluid <= cheapest.bound.whole <= cheapest.chosen.usd_per_hour
    answer = json.loads(fleet_json(cheapest))["answer"]
    assert (answer["gap"], answer["whole_gap"]) == (cheapest.gap, cheapest.whole_gap)
