"""`tessc selftest` on the stand-in driver and on the CPU backend, with traces of one layer."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tessera.backend.cuda.measure import neighbours, together
from tessera.backend.cuda.measure import profile as measuring
from tessera.driver.load import load
from tessera.driver.selftest import links, plan_trials, run_selftest, traces, trials
from tessera.driver.selftest.options import SelftestPart
from tessera.driver.selftest.traces import TrialModel, TrialSize, trace_text
from tests.helpers.command import Outcome, tessc
from tests.helpers.fake_cuda import FakeCuda, Stream

SLICES = "h200:84sm,h200:48sm"
SMALL = ("--size", "small", "--models", "decode", "--placements", "2", "--minutes", "60")


class _Wrong(FakeCuda):
    """A GPU on whose smaller slice one kernel does nothing."""

    def _enqueue(self, stream: Stream, label: str, run: Any) -> Any:
        idle = label == "gate" and stream.sms == 48
        return super()._enqueue(stream, label, (lambda: None) if idle else run)


@pytest.fixture(autouse=True)
def _short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = traces._Shape(layers=1, rows=1, heads=1, head_width=32, hidden=32, context=4)
    monkeypatch.setattr(traces, "_SMALL_DECODE_SHAPE", shape)
    monkeypatch.setattr(links, "_SIZES", {TrialSize.SMALL: (1 << 12, 1 << 13)})
    monkeypatch.setattr(links, "_REQUESTS", 2)
    monkeypatch.setattr(links, "_EXCHANGED", (1 << 12, 4))
    monkeypatch.setattr(links, "_ROUNDS", 3)
    monkeypatch.setattr(trials, "_REPEATS", 1)
    monkeypatch.setattr(run_selftest, "PLANS", ("layers",))
    monkeypatch.setattr(run_selftest, "_LONGEST_LOAD_S", 0.05)
    monkeypatch.setattr(plan_trials, "_WARM_S", 0.0)
    monkeypatch.setattr(measuring, "_FLUSH_BYTES", 1 << 16)
    monkeypatch.setattr(measuring, "_MOST_LAUNCHES", 2)
    monkeypatch.setattr(measuring, "_SIZES", (1 << 12, 1 << 14))
    monkeypatch.setattr(measuring, "_WARM_UP_NS", 0)
    monkeypatch.setattr(measuring, "_PAUSE_NS", 0)
    monkeypatch.setattr(together, "_MOST_RUNS", 6)
    monkeypatch.setattr(neighbours, "_MEMORY_BYTES", 1 << 12)
    monkeypatch.setattr("tessera.backend.cuda.backend._LOOK_S", 1e-4)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCuda], FakeCuda]:
    def install(fake: FakeCuda) -> FakeCuda:
        monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: fake)
        return fake

    return install


def selftest(*more: str) -> Outcome:
    return tessc("selftest", *SMALL, *more)


def skipping(*parts: str) -> list[str]:
    return [word for part in SelftestPart if part not in parts for word in ("--skip", str(part))]


def document() -> dict[str, Any]:
    data = json.loads(Path("selftest.json").read_text())
    assert isinstance(data, dict)
    return data


@pytest.mark.slow
def test_all_parts_on_two_gpus_of_the_stand_in(use: Callable[[FakeCuda], FakeCuda]) -> None:
    fake = use(FakeCuda(gpus=2, memory=1 << 30, name="NVIDIA H200", peers=False))
    done = selftest("--skip", "plans")
    assert done.code == 0, done.err + done.text
    data = document()
    assert data["missing"] == []
    states = [part["status"] for part in data["parts"].values()]
    assert states == ["passed", "passed", "passed", "skipped"]
    pairs = {(row["source"], row["target"]) for row in data["links"]}
    names = ("h200-0", "h200-1")
    assert pairs == {(a, b) for a in (*names, "host") for b in (*names, "host") if a != b}
    exchanges = [(row["source"], row["target"], row["bytes"]) for row in data["exchanges"]]
    there_and_back = (names, names[::-1])
    assert exchanges == [(*pair, size) for size in (1 << 12, 4) for pair in there_and_back]
    for row in data["exchanges"]:
        assert row["count"] == 2 * 3
        assert 0 <= row["ns"] <= row["p90_ns"] <= row["p99_ns"]
    assert "exchanges: from the end of a step" in done.text
    assert {row["sms"] for row in data["profiles"]["decode"]["rows"]} == {132}
    assert [row["placement"] for row in data["placements"]] == ["random:0", "random:1"]
    assert all(row["bytes"] > 0 and len(row["digest"]) == 64 for row in data["placements"])
    assert [gpu["name"] for gpu in data["machine"]["gpus"]] == ["NVIDIA H200"] * 2
    assert "2 of 2 random placements equal one device" in done.text
    assert "self-test: bytes" in done.err
    text = Path("selftest.json").read_text()
    for secret in (os.getcwd(), platform.node(), os.path.expanduser("~"), "tessc-selftest-"):
        assert not re.search(rf"(?<![\w-]){re.escape(secret)}(?![\w-])", text), secret

    launched = len(fake.launched)
    again = selftest("--skip", "plans")
    assert again.code == 0
    assert len(fake.launched) - launched <= 1  # what looks at the driver
    assert document()["placements"] == data["placements"]
    former = {key: value for key, value in data.items() if key != "exchanges"}
    Path("selftest.json").write_text(json.dumps(former))
    assert selftest("--skip", "plans").code == 0
    assert document()["copies"] == data["copies"]
    assert len(document()["exchanges"]) == len(exchanges)
    data = document()
    refused = selftest("--skip", "plans", "--seed", "7")
    assert refused.code == 1
    assert "TSR5062" in refused.err
    assert "settings differ in `seed`" in refused.err
    assert document() == data


def test_bytes_that_differ_are_said_and_end_with_5(use: Callable[[FakeCuda], FakeCuda]) -> None:
    use(_Wrong(memory=1 << 30, name="NVIDIA H200"))
    done = selftest("--devices", SLICES, "--placements", "4", *skipping("bytes"))
    assert done.code == 5, done.err + done.text
    data = document()
    assert data["parts"]["bytes"]["status"] == "failed"
    wrong = [row for row in data["placements"] if "problem" in row]
    assert wrong
    assert all("TSR5054" in row["problem"] for row in wrong)
    assert "problem in bytes: decode, small, random:" in done.text


def test_gpus_are_found_and_one_is_not_enough(use: Callable[[FakeCuda], FakeCuda]) -> None:
    use(FakeCuda(memory=1 << 30, name="NVIDIA H200"))
    alone = selftest()
    assert alone.code == 4
    assert "TSR5055" in alone.err
    assert "--devices h200:80sm,h200:48sm" in alone.err
    other = selftest("--devices", "a100,h200")
    assert other.code == 4
    assert "TSR5055" in other.err
    assert "no GPU for `a100-0`" in other.err
    use(FakeCuda(gpus=2, name="Riva 128"))
    unknown = selftest()
    assert unknown.code == 4
    assert "cuda:0 (Riva 128, 132 SMs) is not in the table of GPUs" in unknown.err
    assert not Path("selftest.json").exists()


@pytest.mark.slow
def test_a_rehearsal_on_the_cpu_goes_on_where_it_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    few = ("--backend", "cpu", "--placements", "1", "--skip", "plans")
    with monkeypatch.context() as patch:
        patch.setattr(run_selftest._Test, "_bytes", stop)
        stopped = selftest(*few)
    assert stopped.code == 130
    assert "TSR5056" in stopped.err
    assert "the same command goes on" in stopped.err
    first = document()
    assert first["missing"] == ["bytes"]
    assert first["parts"]["plans"]["status"] == "skipped"
    done = selftest(*few)
    assert done.code == 0, done.err + done.text
    second = document()
    assert second["missing"] == []
    assert second["copies"] == first["copies"]
    assert second["profiles"] == first["profiles"]
    assert len(second["placements"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_plans_are_predicted_and_measured(
    backend: str, use: Callable[[FakeCuda], FakeCuda]
) -> None:
    use(FakeCuda(gpus=2, memory=1 << 30, name="NVIDIA H200"))
    done = selftest("--backend", backend, "--devices", "2xh200", *skipping("profile", "plans"))
    assert done.code == 0, done.err + done.text
    rows = document()["plans"]
    assert [row["label"] for row in rows] == ["layers", "random:0"]
    for row in rows:
        low, high = row["predicted"]["requests_per_s_range"]
        assert 0 < low <= high
        assert row["measured"]["requests_per_s"] > 0
        assert row["bytes_equal"] > 0
        assert row["durations"] == "profile"
    assert "measured rates within the range predicted" in done.text


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--models", "gpt"), 2, "none of: prefill, decode, towers"),
        (("--devices", "a100"), 4, "TSR5055"),
        (("--devices", "a100,zx81"), 1, "TSR3001"),
        (("-o", "-"), 2, "names a file"),
        (("-o", "mine.json"), 1, "not a self-test that tessc has written"),
        (("-o", "old.json"), 1, "TSR5062"),
        (("-o", "none/x.json"), 1, "is no folder"),
        (skipping(), 2, "leaves nothing to try"),
        (("--minutes", "nan"), 2, "finite"),
    ],
)
def test_bad_input_is_one_message(words: tuple[str, ...], code: int, said: str) -> None:
    Path("mine.json").write_text('{"mine": 1}')
    Path("old.json").write_text('{"schema": "tessera-selftest/1", "tessera": "0.0.1"}')
    done = selftest("--backend", "cpu", *words)
    assert done.code == code, done.err
    assert said in done.err
    assert "Traceback" not in done.err
    assert not Path("selftest.json").exists()
    assert Path("mine.json").read_text() == '{"mine": 1}'


@pytest.mark.parametrize("model", TrialModel)
@pytest.mark.parametrize("size", TrialSize)
def test_traces_are_well_formed(model: TrialModel, size: TrialSize) -> None:
    path = Path("trace.ptx")
    path.write_text(trace_text(model, size))
    program = load(path)
    assert sum(1 for _ in program.work()) >= 8


def test_kernels_round_as_ieee_says() -> None:
    """What GPUs may do in different ways is in none of them."""
    text = traces._KERNELS.read_text()
    assert not re.search(r"\.approx|\.ftz|\.full", text)
    assert not re.search(r"\b(?:add|sub|mul|div|sqrt|fma)\.f32", text)
    assert not re.search(r"\b(?:atom|red)\.\S*f32", text)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_circuit_has_every_pair_once(count: int) -> None:
    names = [str(number) for number in range(count)]
    way = links._circuit(names)
    hops = list(pairwise(way))
    assert way[0] == way[-1]
    assert sorted(hops) == sorted((a, b) for a in names for b in names if a != b)
