"""The pure parts of `benchmarks.gain.gain`: choices, ratios, bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.gain.device import Prepared, Served, measure, rate_between
from benchmarks.gain.gain import to_profile
from benchmarks.gain.mixes import (
    MIXES,
    SMS,
    best,
    best_slots,
    decision,
    ratios,
    split_of,
    strategy_of,
    summary,
)
from benchmarks.gain.report import (
    LAYERS,
    bound_of,
    by_kind,
    kind_of,
    measured_row,
    overlapped,
    pair_rows,
    predicted_pair,
    work_of,
)
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import model_of
from tests.helpers.traces import COPY, trace
from tests.unit.backend.cuda.test_queueing import BUFFERS, SLICES, STEPS


def test_the_best_row_is_the_first_of_the_smallest() -> None:
    rows = [{"a": 2, "n": 0}, {"a": 1, "n": 1}, {"a": 1, "n": 2}]
    assert best(rows, "a")["n"] == 1


def test_a_summary_is_the_median_and_how_far_repeats_lie_apart() -> None:
    assert summary([3000.0, 1000.0, 2000.0]) == {"us": 2.0, "spread": 1.0}


def test_each_strategy_keeps_its_best_number_of_slots() -> None:
    tried = {"dp@2": [5.0, 7.0, 6.0], "dp@4": [4.0, 9.0, 5.0], "kernel@2": [3.0], "layers@2": []}
    assert best_slots(tried) == {"dp": "dp@4", "kernel": "kernel@2"}


def test_ratios_are_against_the_best_coarse_baseline_alone() -> None:
    us = {"serial": 12.0, "streams": 11.0, "kernel": 10.0, "dp": 11.5, "attention": 13.0}
    assert ratios(us) == {"of_serial": 1.2, "of_streams": 1.1, "coarse": "dp", "of_coarse": 1.15}
    assert ratios({"serial": 1.0}) == {}
    assert ratios({"kernel": 1.0}) == {}


@pytest.mark.parametrize(
    ("us", "chosen"),
    [
        ({"serial": 1.0, "kernel": 2.0, "streams": 0.5}, "serial"),
        ({"serial": 3.0, "kernel": 2.0, "dp": 2.5}, "kernel"),
        ({"serial": 3.0, "kernel": 2.0, "dp": 1.5}, "dp"),
        ({"serial": 2.0, "kernel": 2.0}, "serial"),
    ],
)
def test_not_to_split_wins_a_draw_and_plain_streams_are_no_plan(
    us: dict[str, float], chosen: str
) -> None:
    assert decision(us) == chosen


def test_slices_must_be_worth_it() -> None:
    assert decision({"serial": 1.02, "kernel": 1.0, "dp": 1.1}, 1.03) == "serial"
    assert decision({"serial": 1.04, "kernel": 1.0, "dp": 1.1}, 1.03) == "kernel"


def test_splits_use_up_the_gpu_and_are_profiled() -> None:
    devices = to_profile()
    for mix in MIXES:
        assert mix.tuned in mix.splits
        assert mix.rows % 128 == 0
        for split in mix.splits:
            assert sum(split) == SMS
            named = devices[f"{mix.name}_slices"].split(",")
            assert {f"h200:{sms}sm" for sms in split} <= set(named)


def test_steps_are_known_by_their_place() -> None:
    kinds = [kind_of(step) for step in range(1 + 11 * LAYERS + 3)]
    assert kinds[0] == "embed"
    assert kinds[-2:] == ["head", "most_likely"]
    assert kinds.count("attention_decode") == LAYERS
    assert kinds[5] == kinds[16] == "rotate_prefill"


def test_the_work_of_attention_counts_what_is_seen() -> None:
    # Two tokens at the end of the context see all but the last token, and all.
    _, operations = work_of("attention_prefill", 2)
    assert operations == 4 * 32 * 128 * (4095 + 4096)
    moved, _ = work_of("attention_decode", 0)
    assert moved == 2 * 2 * 128 * 8 * 4096 * 128


def profile_rows(sms: int, **times: float) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "sms": sms,
            "ns": times.get(kind_of(step), 1000.0),
            "beside_compute_ns": times.get(kind_of(step), 1000.0),
            "beside_memory_ns": 2 * times.get(kind_of(step), 1000.0),
        }
        for step in range(48)
    ]


def test_kinds_add_up_their_steps() -> None:
    found = by_kind(profile_rows(132, qkv=5000.0))
    assert found["qkv"]["132"] == {"alone": 20.0, "beside_compute": 20.0, "beside_memory": 40.0}
    assert found["norm"]["132"]["alone"] == 9.0


def test_the_bound_is_the_larger_of_memory_and_products() -> None:
    found = bound_of(by_kind(profile_rows(132, attention_decode=1e6, gate_up=1e6)), 896)
    kinds = found["kinds"]
    assert found["memory_us"] == pytest.approx(sum(row["memory_us"] for row in kinds.values()))
    assert kinds["attention_decode"]["compute_us"] < kinds["attention_decode"]["memory_us"]
    assert found["at_most"] == pytest.approx(
        found["serial_us"] / max(found["memory_us"], found["compute_us"]), abs=1e-3
    )


def test_what_goes_on_alone_is_not_slowed_any_more() -> None:
    assert overlapped((10.0, 10.0), (1.0, 1.0)) == (10.0, 10.0)
    first, second = overlapped((10.0, 30.0), (1.2, 1.5))
    assert first == 12.0
    assert second == pytest.approx(12.0 + 30.0 - 12.0 / 1.5)


def test_pairs_are_predicted_by_what_each_draws() -> None:
    kinds = by_kind([*profile_rows(100), *profile_rows(32)])
    pair = {"alone": [1000.0, 1000.0], "each": [1100.0, 1050.0]}
    halfway = predicted_pair(pair, (100, 32), kinds, 0.5)
    assert halfway == pytest.approx((1500.0, 1500.0))
    products, attention = predicted_pair(pair, (100, 32), kinds, None)
    assert 1000.0 < attention < products < 2000.0  # attention draws more than products do
    (row,) = pair_rows({"1024": {"sum": 1500.0, "100+32": pair}}, {1024: kinds})
    assert row["longer"] == [1.1, 1.05]
    assert row["of_one_after_the_other"] == pytest.approx(1500 / 1100, abs=1e-3)
    assert row["halfway_off"] == pytest.approx(1500 / 1100 - 1, abs=1e-3)


def test_what_was_measured_stands_beside_what_was_predicted() -> None:
    found = measured_row(
        {
            "periods_ns": {"serial": [2e6, 2e6], "kernel@4": [1e6], "kernel@4 (short)": [9e9]},
            "failed": [],
            "split": {"serial": "132", "kernel": "84+48"},
        },
        [
            {"strategy": "serial", "split": "132", "period_ns": 2.2e6},
            {"strategy": "kernel", "split": "84+48", "period_ns": 0.9e6},
            {"strategy": "kernel", "split": "76+56", "period_ns": 0.8e6},
        ],
    )
    assert found["ratios"]["of_serial"] == 2.0
    assert found["fastest"] == "kernel"
    assert found["prediction_off"] == {"serial": 0.1, "kernel": -0.1}


def small_plan(placements: Sequence[str], *, replicas: int = 1) -> Prepared:
    """Two copies on two slices."""
    model = model_of([trace(BUFFERS, COPY, STEPS)], [placements], slots=2, lanes=2)
    return Prepared(
        name="plan",
        replicas=(model.lowered,) * replicas,
        traces=(model.traces,) * replicas,
        targets=SLICES,
    )


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_plan_is_served_for_a_while(replicas: int) -> None:
    prepared = small_plan(["a", "b"], replicas=replicas)
    served = Served(prepared, np.zeros(4096, np.uint8), None, FakeCuda())
    try:
        assert 0 < served.period_ns(0.05) < 1e9
    finally:
        served.close()


def test_what_fails_ends_the_feeding() -> None:
    served = Served(small_plan(["a", "b"]), np.zeros(4096, np.uint8), None, FakeCuda())
    served.close()
    with pytest.raises(Exception, match=r"."):
        served.period_ns(0.05)


def test_a_rate_is_that_between_ends_in_the_window() -> None:
    assert rate_between([0.0, 1.0, 2.0, 3.0, 9.0], 0.5, 4.0) == pytest.approx(1.0)
    bunches = [10.0 * bunch for bunch in range(4) for _ in range(5)]
    assert rate_between(bunches, 0.0, 30.0) == pytest.approx(0.5)
    with pytest.raises(RuntimeError, match="only 1"):
        rate_between([0.0, 1.0], 0.5, 4.0)


def test_splits_by_their_sms() -> None:
    assert split_of({"a": "cuda:0:84sm", "b": "cuda:0:48sm"}) == "84+48"
    assert split_of({"a": "cuda:0"}) == "132"


def test_plans_are_measured_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """All once for a short time, then the best way of each strategy."""
    monkeypatch.setattr("benchmarks.gain.device.MOST_REPLAYS", 4)
    whole = model_of([trace(BUFFERS, COPY, STEPS)], [["a", "a"]], slots=1, lanes=1)
    serial = Prepared(
        name="serial", replicas=(whole.lowered,), traces=(whole.traces,), targets={"a": "cuda:0"}
    )
    plans = [
        serial,
        replace(small_plan(["a", "b"]), name="kernel@2", depth=1),
        replace(small_plan(["a", "b"]), name="kernel@2 calls", graphs=False, depth=1),
    ]
    said: list[str] = []
    found, clocks = measure(
        plans,
        1 << 20,
        seconds=(0.01, 0.01),
        repeats=1,
        keep=best_slots,
        on_row=lambda name, _: said.append(name),
        deadline=float("inf"),
        module=FakeCuda(),
    )
    kept = [name for name in found if not name.endswith("(short)")]
    assert [strategy_of(name) for name in kept] == ["serial", "kernel"]
    assert all(len(found[name]) == 1 and min(found[name]) > 0 for name in kept)
    assert set(clocks) == {one.name for one in plans}
    assert not any("Error" in one for one in said)
