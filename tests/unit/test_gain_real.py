"""What `benchmarks/gain_real.py` makes of its stages."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from benchmarks import gain_real, gain_run

SPLITS = "84+48,100+32"


def test_ratios_are_against_serial_and_against_pytorch() -> None:
    stages: dict[str, Any] = {
        "torch": {"us": {"prefill": {"default": 50.0, "slow": 70.0}, "decode": {"default": 20.0}}},
        "1:2 serial": {"us": 100.0, "predicted_us": 90.0},
        "1:2 kernel 84+48": {"us": 80.0, "predicted_us": 81.0},
        "1:2 layers 84+48": {"failed": "no"},
    }
    table = gain_real.ratios({"stages": stages}, ["1:2", "1:1"], SPLITS)
    assert table["1:2"]["torch_us"] == 90.0
    assert table["1:2"]["kernel 84+48"]["of_serial"] == 1.25
    assert table["1:2"]["kernel 84+48"]["of_torch"] == 1.125
    assert table["1:2"]["serial"]["of_torch"] == 0.9
    assert "layers 84+48" in table["1:2"]["not_measured"]
    assert set(table["1:1"]["not_measured"]) == {name for name, _ in gain_real.plans(SPLITS)}
    bare = gain_real.ratios({"stages": {"1:1 streams": stages["1:2 serial"]}}, ["1:1"], SPLITS)
    assert bare["1:1"]["streams"]["of_serial"] is None
    assert bare["1:1"]["torch_us"] is None


def test_every_strategy_and_split_is_planned_once() -> None:
    names = [name for name, _ in gain_real.plans(SPLITS)]
    assert len(names) == len(set(names)) == 2 + 2 * 6
    assert gain_real.slices(SPLITS) == "h200:84sm,h200:48sm,h200:100sm,h200:32sm"


def test_what_says_most_is_measured_first() -> None:
    asked = argparse.Namespace(mixes="1:2,1:4", splits=SPLITS, plans="serial|1:4 kernel|phase")
    tasks = [(mix, name) for mix, name, _ in gain_real.wanted(asked)]
    assert tasks[:3] == [("1:2", "serial"), ("1:4", "serial"), ("1:4", "kernel 84+48")]
    assert ("1:2", "kernel 84+48") not in tasks
    assert tasks[-1] == ("1:4", "phase 100+32")


@pytest.mark.parametrize(("requests", "lanes", "run"), [(90, 4, 96), (90, 30, 90), (3, 128, 3)])
def test_every_sequence_has_whole_mixes_unless_that_is_far_more(
    requests: int, lanes: int, run: int
) -> None:
    assert gain_run.whole_mixes(requests, 3 * lanes) == run


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"tessc check ended with .*nothing_there"):
        gain_real.tessc("check", "nothing_there.tsp")
