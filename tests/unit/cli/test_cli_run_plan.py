"""`tessc run plan.tsp`: what it prints, writes and keeps when things go wrong."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.service import Bytes, ServiceFault
from tessera.cli import main as cli
from tessera.cli.run import terminable
from tessera.diagnostics import error
from tessera.driver.run.materials import Materials
from tests.helpers.command import tessc
from tests.helpers.naps import BUFFERS, SLEEP
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.traces import COPY, trace


def sleeping(folder: Path, second: str = "doze", **more: int) -> str:
    """A plan with a step on `a` and one on `b`, each of 50 ms."""
    steps = f"""
    launch m.doze grid=1,1,1 block=1,1,1 args=[h, x]
    launch m.{second} grid=1,1,1 block=1,1,1 args=[y, h]
    """
    return write_plan(folder, plan_of([trace(BUFFERS, SLEEP, steps)], [["a", "b"]], **more))


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = random_program(7)
    placement = ["ab"[n % 2] for n in range(len(program.steps))]
    return write_plan(tmp_path_factory.mktemp("plan"), plan_of([program], [placement]))


def test_a_run_with_everything(plan: str, tmp_path: Path) -> None:
    outputs, timeline = tmp_path / "out.npz", tmp_path / "run.json"
    result = tessc(
        "run",
        plan,
        "--requests",
        "5",
        "--verify",
        "--outputs",
        str(outputs),
        "--timeline",
        str(timeline),
        "--map",
        "a=cpu,b=cpu",
    )
    assert (result.code, result.err) == (0, "")
    for words in (
        "ran 5 requests",
        "requests/s",
        "p99",
        "busy",
        "between devices",
        "behind compute",
        "verified: 5 requests and the states of 2 sequences",
    ):
        assert words in result.text
    with np.load(outputs, allow_pickle=False) as arrays:
        assert arrays["y0"].shape == (5, 64)
        assert arrays["s0"].shape == (2, 64)
        assert arrays["tessera.requests"].tolist() == [0, 1, 2, 3, 4]
    rows = json.loads(timeline.read_text())["traceEvents"]
    assert {row["args"]["request"] for row in rows if row["ph"] == "X"} == set(range(5))


@pytest.mark.parametrize("option", ["--timeline", "--outputs"])
def test_an_input_is_never_overwritten(plan: str, option: str, tmp_path: Path) -> None:
    before = Path(plan).read_bytes()
    link = tmp_path / "link.npz"
    link.symlink_to(plan)
    result = tessc("run", plan, option, str(link))
    assert result.code == 1
    assert "it is an input of this command" in result.err
    assert Path(plan).read_bytes() == before


def test_results_of_types_that_numpy_lacks_keep_their_axis(tmp_path: Path) -> None:
    buffers = """
    buffer x bytes=64 role=input dtype=bf16 shape=8x4
    buffer s bytes=64 role=state
    buffer y bytes=64 role=output dtype=bf16 shape=8x4
    """
    steps = "memcpy s x bytes=64\nlaunch m.copy grid=1,1,1 block=16,1,1 args=[y, s, u32:16]"
    made = plan_of([trace(buffers, COPY, steps)], [["a", "b"]], slots=2, lanes=2)
    path, outputs = write_plan(tmp_path, made), tmp_path / "out.npz"
    more = ["--backend", "cpu", "--requests", "3", "--outputs", str(outputs)]
    assert tessc("run", str(path), *more).code == 0
    with np.load(outputs) as found:
        shapes = {name: found[name].shape for name in found}
        inputs = tmp_path / "in.npz"
        np.savez(inputs, x=found["y"])
        wanted = found["y"]
    assert shapes == {"tessera.requests": (3,), "y": (3, 64), "s": (2, 64)}
    # What was written can be given again.
    assert tessc("run", str(path), *more, "--inputs", str(inputs)).code == 0
    with np.load(outputs) as found:
        np.testing.assert_array_equal(found["y"], wanted)


def test_two_results_in_one_file_are_refused(plan: str, tmp_path: Path) -> None:
    place = tmp_path / "o.npz"
    done = tessc(
        "run",
        plan,
        "--backend",
        "cpu",
        "--outputs",
        str(place),
        "--timeline",
        str(tmp_path / "." / "o.npz"),
    )
    assert done.code == 2
    assert "name the same file" in done.err
    assert not place.exists()


def test_a_timeline_that_cannot_be_written_is_refused_before_the_run(plan: str) -> None:
    result = tessc("run", plan, "--timeline", "nowhere/at/all.json")
    assert result.code == 1
    assert "`nowhere/at` is no folder" in result.err
    assert "ran" not in result.text


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--requests", "100000000"], 1, "at most 1000000 requests"),
        (["--time-limit", "nan"], 2, "must be a finite number"),
        (["--throttle", "1e-200GB/s"], 2, "takes a speed"),
        (["--map", ""], 2, "cannot be used"),
        (["--arch", "sm_80"], 2, "is for traces only"),
    ],
)
def test_options_without_sense(plan: str, options: list[str], code: int, words: str) -> None:
    result = tessc("run", plan, "--backend", "cpu", *options)
    assert (result.code, result.text) == (code, "")
    assert words in result.err


def test_more_outputs_than_the_machine_can_hold(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for free in (1 << 20, 100000 * 1024):  # the outputs alone take 512 bytes
        monkeypatch.setattr("tessera.driver.run.run_plan.available_bytes", lambda free=free: free)
        result = tessc("run", plan, "--backend", "cpu", "--requests", "100000")
        assert result.code == 6
        assert "no memory for the outputs of 100000 requests" in result.err


def test_fewer_slots_and_json_without_gpus(plan: str) -> None:
    result = tessc("run", plan, "--requests", "2", "--slots", "1", "--lanes", "1", "--json")
    assert result.code == 0, result.err
    assert "warning[TSR5058]" in result.err
    report = json.loads(result.text)
    assert (report["finished"], report["complete"], report["verified"]) == ([0, 1], True, None)
    assert len(report["states"]) == 1


def test_a_fault_keeps_what_had_finished(tmp_path: Path) -> None:
    """`stop` traps unless its input is zero: the third request has another input."""
    path = sleeping(tmp_path, "stop", slots=1, lanes=1)
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, x=np.array([[2**32 - 1], [2**32 - 1], [1], [2**32 - 1]], np.uint32))
    result = tessc(
        "run", path, "--backend", "cpu", "--inputs", str(inputs), "--outputs", str(outputs)
    )
    assert result.code == 6
    assert "error[TSR5012]" in result.err
    assert "device `b`, request 2, launch #1 `m.stop`" in result.err
    assert "plan.tsp(trace0):" in result.err
    assert "finished      2 of 4: 0, 1" in result.text
    with np.load(outputs, allow_pickle=False) as arrays:
        assert arrays["tessera.requests"].tolist() == [0, 1]
        assert arrays["y"].tolist() == [[0], [0]]


def test_a_damaged_plan_is_refused_before_anything_runs(plan: str, tmp_path: Path) -> None:
    text = Path(plan).read_text()
    lines = [line for line in text.splitlines() if " send " not in f" {line} "]
    assert len(lines) < len(text.splitlines())
    broken = tmp_path / "broken.tsp"
    broken.write_text("\n".join(lines) + "\n")
    result = tessc("run", str(broken), "--backend", "cpu", "--outputs", str(tmp_path / "o.npz"))
    assert result.code == 1
    assert result.err.startswith("error[TSR")
    assert not (tmp_path / "o.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arch", "sm_80"], "`--arch` is for traces only"),
        (["--throttle", "fast"], "takes a speed"),
        (["--map", "q=cpu"], "which the plan does not use"),
        (["--map", "a"], "cannot be used"),
    ],
)
def test_wrong_usage(plan: str, arguments: list[str], message: str) -> None:
    result = tessc("run", plan, *arguments)
    assert result.code == 2
    assert message in result.err


@pytest.mark.parametrize("name", ["missing.tsp", "missing"])
def test_a_plan_that_is_not_there(tmp_path: Path, name: str) -> None:
    result = tessc("run", str(tmp_path / name), "--requests", "2")
    assert result.code == 1
    assert "TSR1900" in result.err


def test_a_file_that_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "x.tsp"
    path.write_text("hello\n")
    result = tessc("run", str(path))
    assert result.code == 1
    assert "TSR3020" in result.err


def marked(mark: str) -> list[str]:
    """Processes with a mark in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def end_in_the_middle(folder: Path, how: signal.Signals, after_s: float) -> tuple[int, str, str]:
    """Run 400 requests, end the command, and wait until no process of it is left."""
    mark = uuid.uuid4().hex
    command = [
        sys.executable,
        "-m",
        "tessera",
        "run",
        sleeping(folder),
        "--backend",
        "cpu",
        "--requests",
        "400",
        "--outputs",
        str(folder / "out.npz"),
    ]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TESSERA_TEST_MARK": mark},
    )
    deadline = time.monotonic() + 300
    while len(marked(mark)) < 3 and time.monotonic() < deadline:
        time.sleep(0.2)
    time.sleep(after_s)
    for _ in range(2 if how is signal.SIGTERM else 1):  # `timeout` sends two
        process.send_signal(how)
    out, err = process.communicate(timeout=300)
    deadline = time.monotonic() + 300  # a hang, not a busy machine
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert marked(mark) == []
    assert "Traceback" not in err
    return process.returncode, out, err


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@needs_proc
@pytest.mark.parametrize(
    "how",
    [
        signal.SIGINT,
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_ctrl_c_keeps_what_had_finished(tmp_path: Path, how: signal.Signals) -> None:
    done: list[int] = []
    for after_s in (3.0, 10.0, 30.0):  # a busy machine takes its time to start
        code, out, err = end_in_the_middle(tmp_path, how, after_s)
        assert code == 130
        assert "error[TSR5056]: interrupted after" in err
        if (tmp_path / "out.npz").exists():
            with np.load(tmp_path / "out.npz", allow_pickle=False) as arrays:
                done = arrays["tessera.requests"].tolist()
        if done:
            break
    assert 0 < len(done) < 400
    assert f"finished      {len(done)} of 400" in out


@pytest.mark.slow
@needs_proc
def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    assert end_in_the_middle(tmp_path, signal.SIGKILL, 2.0)[0] == -signal.SIGKILL


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_way_to_end_is_ctrl_c(how: signal.Signals) -> None:
    """Once: what comes right behind it does not interrupt the end."""
    ends = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    # Under `nohup` the tests ignore SIGHUP, and a signal that is ignored stays so.
    outside = {end: signal.signal(end, signal.default_int_handler) for end in ends}
    try:
        with terminable():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(how)
            for again in (*ends, how):
                signal.raise_signal(again)
        assert signal.getsignal(how) is signal.default_int_handler
    finally:
        for end, handler in outside.items():
            signal.signal(end, handler)


def test_a_second_wish_to_end_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tessera.cli.run._SAME_WISH_S", 0.0)
    with terminable():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)


def test_signals_that_are_ignored_stay_so() -> None:
    """Under `nohup` a closed terminal does not end a run."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with terminable():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outputs_are_kept_when_states_cannot_be_read(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests are done, and then a process of a device is killed."""

    def lost(*_: object) -> None:
        raise ServiceFault(error("TSR5051", "the worker of device `a` was ended"), device="a")

    monkeypatch.setattr("tessera.driver.run.serving.Serving.read_states", lost)
    outputs = tmp_path / "out.npz"
    result = tessc("run", plan, "--backend", "cpu", "--requests", "2", "--outputs", str(outputs))
    assert result.code == 6
    assert "error[TSR5051]" in result.err
    assert "ran 2 requests" in result.text
    with np.load(outputs, allow_pickle=False) as arrays:
        assert arrays["tessera.requests"].tolist() == [0, 1]
        assert "s0" not in arrays.files


def test_memory_that_runs_out_here_keeps_what_had_finished(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inputs(self: Materials, request: int, trace: int, turn: int) -> dict[str, Bytes]:
        if request == 2:
            raise MemoryError
        return real(self, request, trace, turn)

    real = Materials.inputs
    monkeypatch.setattr(Materials, "inputs", inputs)
    outputs = tmp_path / "out.npz"
    result = tessc("run", plan, "--backend", "cpu", "--requests", "4", "--outputs", str(outputs))
    assert result.code == 6
    assert "error[TSR5020]: this machine is out of memory" in result.err
    with np.load(outputs, allow_pickle=False) as arrays:
        assert arrays["tessera.requests"].tolist() == [0, 1]


def test_ctrl_c_while_requests_are_verified(plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run itself came to its end, so its report is there."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tessera.driver.run.verify.verify_run", interrupted)
    result = tessc("run", plan, "--backend", "cpu", "--requests", "2", "--verify")
    assert result.code == 130
    assert "error[TSR5056]: interrupted before all requests were verified" in result.err
    assert "ran 2 requests" in result.text
    assert "verified" not in result.text


class Gone(io.StringIO):
    """A terminal or a pipe whose other end is no longer there."""

    def __init__(self, problem: int) -> None:
        super().__init__()
        self.problem = problem

    def isatty(self) -> bool:
        return True

    @property
    def buffer(self) -> Gone:
        return self

    def write(self, _: object) -> int:
        raise OSError(self.problem, os.strerror(self.problem))


def test_a_terminal_that_goes_away_does_not_end_a_run(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bar cannot be drawn any more, and messages are seen by nobody."""
    outputs = tmp_path / "out.npz"
    monkeypatch.setattr(sys, "stderr", Gone(errno.EIO))
    run = ["run", plan, "--requests", "2", "--outputs", str(outputs)]
    assert cli.run(run) == 0
    assert cli.run([*run, "--policy", "none"]) == 1
    with np.load(outputs) as arrays:
        assert arrays["tessera.requests"].tolist() == [0, 1]


@pytest.mark.parametrize("problem", [errno.EPIPE, errno.EIO, errno.ENOSPC])
def test_a_fault_counts_for_more_than_a_report_that_nobody_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: int
) -> None:
    path = sleeping(tmp_path, "stop", slots=1, lanes=1)
    monkeypatch.setattr(sys, "stdout", Gone(problem))
    assert cli.run(["run", path, "--backend", "cpu", "--requests", "1"]) == 6
