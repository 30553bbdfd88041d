"""`tessc run` on GPUs, with a driver that runs kernels on the CPU executor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.ir.plan.plan import Plan
from tests.helpers.command import Outcome, tessc
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.naps import BUFFERS, SLEEP
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.traces import COPY, trace

SLICES = "a=cuda:0:84sm,b=cuda:0:48sm"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The GPUs of this machine."""
    made = FakeCuda()
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    return made


@pytest.fixture(scope="module")
def plan() -> Plan:
    program = random_program(7)
    placement = ["ab"[n % 2] for n in range(len(program.steps))]
    return plan_of([program], [placement])


def run(tmp_path: Path, plan: Plan, *more: str) -> Outcome:
    return tessc("run", write_plan(tmp_path, plan), "--requests", "4", *more)


def test_a_plan_on_slices(tmp_path: Path, plan: Plan, fake: FakeCuda) -> None:
    outputs, timeline = tmp_path / "out.npz", tmp_path / "run.json"
    result = run(
        tmp_path,
        plan,
        "--map",
        SLICES,
        "--verify",
        "--outputs",
        str(outputs),
        "--timeline",
        str(timeline),
    )
    assert (result.code, result.err) == (0, "")
    assert "ran 4 requests" in result.text
    assert "on GPUs" in result.text
    assert (
        "verified: 4 requests and the states of 2 sequences equal the run on one device to the"
        in (result.text)
    )
    alone = tmp_path / "cpu.npz"
    assert run(tmp_path, plan, "--backend", "cpu", "--outputs", str(alone)).code == 0
    with np.load(outputs) as there, np.load(alone) as here:
        assert there.files == here.files
        assert all(np.array_equal(there[name], here[name]) for name in here.files)
    rows = json.loads(timeline.read_text())["traceEvents"]
    assert {r["args"]["name"] for r in rows if r["name"] == "process_name"} == {"a", "b"}
    assert fake.calls["cuGraphLaunch"]


def test_auto_takes_gpus_of_the_planned_kind_only(
    tmp_path: Path, plan: Plan, fake: FakeCuda
) -> None:
    result = run(tmp_path, plan)
    assert result.code == 4
    assert "TSR5055" in result.err
    assert "found: cuda:0 (Fake GPU, 132 SMs)" in result.err
    used = sum(card.used_bytes for card in plan.cards)
    card = replace(plan.cards[0], gpu="fake", like="h200", arch="sm_90a", used_bytes=used)
    devices = tuple(
        replace(device, card="a", sms=sms)
        for device, sms in zip(plan.devices, (84, 48), strict=True)
    )
    result = run(tmp_path, replace(plan, cards=(card,), devices=devices))
    assert (result.code, result.err) == (0, "")
    assert "on GPUs" in result.text


@pytest.mark.parametrize("sms", [48, 84, 132])
def test_a_plan_for_one_slice_runs_on_so_many_sms(tmp_path: Path, fake: FakeCuda, sms: int) -> None:
    alone = plan_of([random_program(7)], [["a"] * len(random_program(7).steps)])
    (device,) = (replace(device, sms=sms) for device in alone.devices if device.name == "a")
    card = replace(alone.cards[0], gpu="fake", like="h200", arch="sm_90a")
    result = run(tmp_path, replace(alone, cards=(card,), devices=(device,)))
    assert (result.code, result.err) == (0, "")
    assert {launched for _, launched in fake.launched} == {sms}


def test_without_a_timeline_a_row_of_steps_has_two_stamps(tmp_path: Path, fake: FakeCuda) -> None:
    """Stamps take time on the GPU, which the printed rate is not to have."""
    buffers = "".join(
        f"buffer {name} bytes=64 role={role} dtype=f32\n"
        for name, role in (("x", "input"), ("h", "temp"), ("g", "temp"), ("y", "output"))
    )
    steps = "".join(
        f"launch m.copy grid=1,1,1 block=16,1,1 args=[{target}, {source}, u32:16]\n"
        for target, source in (("h", "x"), ("g", "h"), ("y", "g"))
    )
    alone = write_plan(tmp_path, plan_of([trace(buffers, COPY, steps)], [["a"] * 3]))
    common = ("run", alone, "--requests", "4", "--map", "a=cuda:0", "--json")

    def stamped(*more: str) -> tuple[int, dict[str, Any]]:
        fake.launched.clear()
        result = tessc(*common, *more)
        assert (result.code, result.err) == (0, "")
        shown = json.loads(result.text)
        return sum(name == "stamp" for name, _ in fake.launched), shown

    tied = 2  # the clock is tied to the host's once
    count, plain = stamped()
    assert count == tied + 2 * 4
    assert plain["busy"]["a"] > 0
    count, timed = stamped("--timeline", str(tmp_path / "run.json"))
    assert count == tied + 8 * 4  # a transfer in, three steps, a transfer out
    for name in ("bytes_from_host", "bytes_to_host"):
        assert plain[name] == timed[name] > 0
    assert [o["sha256"] for o in plain["outputs"]] == [o["sha256"] for o in timed["outputs"]]


def test_a_fault_keeps_what_had_finished(tmp_path: Path, fake: FakeCuda) -> None:
    steps = """
    launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
    launch m.stop grid=1,1,1 block=1,1,1 args=[y, h]
    """
    plan = plan_of([trace(BUFFERS, SLEEP, steps)], [["a", "b"]], slots=1, lanes=1)
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, x=np.array([[2**32 - 1], [2**32 - 1], [1], [2**32 - 1]], np.uint32))
    result = run(
        tmp_path, plan, "--map", SLICES, "--inputs", str(inputs), "--outputs", str(outputs)
    )
    assert result.code == 6
    assert "request 2" in result.err
    with np.load(outputs) as arrays:
        assert arrays["tessera.requests"].tolist() == [0, 1]
        assert arrays["y"].tolist() == [[0], [0]]


def test_a_gpu_that_is_not_there(tmp_path: Path, plan: Plan, fake: FakeCuda) -> None:
    result = run(tmp_path, plan, "--map", "a=cuda:0,b=cuda:7")
    assert result.code == 4
    assert "cuda:7" in result.err


FLOATS = """
.visible .entry add(.param .u64 .ptr .global out, .param .u64 .ptr .global x)
{
    .reg .b64 %rd<3>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [x];
    ld.global.f32 %f1, [%rd2];
    atom.global.add.f32 %f2, [%rd1], %f1;
    ret;
}
"""


def test_where_bytes_need_not_be_equal_launches_are_compared(
    tmp_path: Path, fake: FakeCuda
) -> None:
    buffers = """
    buffer x bytes=4 role=input dtype=f32 shape=1
    buffer s bytes=4 role=state dtype=f32 shape=1
    buffer y bytes=4 role=output dtype=f32 shape=1
    """
    steps = """
    launch m.add grid=1,1,1 block=32,1,1 args=[s, x]
    memcpy y+0 s+0 bytes=4
    """
    plan = plan_of([trace(buffers, FLOATS, steps)], [["a", "b"]], slots=1, lanes=1)
    result = run(tmp_path, plan, "--map", SLICES, "--verify")
    assert result.code == 0, result.err
    assert "kernel `add` adds floats atomically" in result.text
    assert "launch by launch, within the tolerance of each type" in result.text
