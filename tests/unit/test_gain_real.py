"""What `benchmarks/gain/real.py` makes of its stages."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gain import real as gain_real
from benchmarks.gain import run as gain_run
from benchmarks.running.full_size import Sizes
from tessera.frontend.contents.open_contents import open_arrays

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


@pytest.mark.parametrize(
    ("plans", "wanted"),
    [("", True), ("torch", True), ("dp|torch", True), ("dp", False), ("serial|streams", False)],
)
def test_pytorchs_own_steps_are_measured_unless_other_plans_are_named(
    tmp_path: Path, plans: str, wanted: bool
) -> None:
    asked = argparse.Namespace(
        mixes="1:2", splits="84+48", plans=plans, inputs=None, tune=False, tail=""
    )
    names = [name for name, _ in gain_real.stages(asked, Sizes(tmp_path))]
    assert ("torch" in names) is wanted
    assert ("1:2 dp 84+48" in names) is ("dp" in plans or not plans)


@pytest.mark.parametrize(("requests", "lanes", "run"), [(90, 4, 96), (90, 30, 90), (3, 128, 3)])
def test_every_sequence_has_whole_mixes_unless_that_is_far_more(
    requests: int, lanes: int, run: int
) -> None:
    assert gain_run.whole_mixes(requests, 3 * lanes) == run


def test_a_run_goes_on_from_what_another_has_packed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("decode.ptx", "prefill.json", "kernel_84+48_1_2.tsp", "gain_real.json"):
        (tmp_path / "a" / name).write_text(name)
    packed = gain_real.pack(tmp_path / "a", tmp_path / gain_real.ARCHIVE)
    assert packed["files"] == 4
    (tmp_path / "b").mkdir()
    size = Sizes(tmp_path / "b", batch=3, context=64, prefill=5)
    assert gain_real.unpack(tmp_path / gain_real.ARCHIVE, size)["files"] == 3
    assert not (tmp_path / "b" / "gain_real.json").exists()
    assert gain_real.plan_place(tmp_path / "b", "kernel 84+48", "1:2").read_text()
    shapes = {}
    for kind in ("prefill", "decode"):
        arrays = open_arrays(str(tmp_path / "b" / f"{kind}.safetensors"))
        tokens, start = (bytes(arrays.read(name)) for name in ("tokens", "start"))
        arrays.close()
        shapes[kind] = len(tokens) // 8, int.from_bytes(start, "little")
    assert shapes == {"prefill": (5, 0), "decode": (3, 63)}


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"tessc check ended with .*nothing_there"):
        gain_real.tessc("check", "nothing_there.tsp")
