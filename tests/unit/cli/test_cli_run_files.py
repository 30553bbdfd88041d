"""`tessc run plan.tsp` and the files around it: where outputs go, what is read, what never is."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.command import tessc
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.traces import COPY, trace


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = random_program(7)
    placement = ["ab"[n % 2] for n in range(len(program.steps))]
    return write_plan(tmp_path_factory.mktemp("plan"), plan_of([program], [placement]))


def copied(folder: Path, buffers: str, steps: str, **more: Any) -> str:
    """A plan of copies, all on one device."""
    program = trace(buffers, COPY, steps)
    return write_plan(folder, plan_of([program], [["a"] * len(program.steps)], **more))


def test_a_place_that_is_a_folder_is_refused_before_the_run(plan: str, tmp_path: Path) -> None:
    (tmp_path / "o.npz").mkdir()
    for option in ("--outputs", "--timeline"):
        result = tessc("run", plan, "--backend", "cpu", option, str(tmp_path / "o.npz"))
        assert (result.code, result.text) == (1, "")
        assert "it is a folder" in result.err
    result = tessc("run", plan, "--backend", "cpu", "--timeline", "-")
    assert (result.code, result.text) == (2, "")


def test_contents_are_never_overwritten(tmp_path: Path) -> None:
    """Nor what the capture recorded beside them, by whatever name they are called."""
    weights = tmp_path / "w.npz"
    np.savez(weights, w=np.arange(16, dtype=np.float32))
    shutil.copy(weights, tmp_path / "w.ref.npz")
    buffers = """
    buffer w bytes=64 role=weight dtype=f32 shape=16
    buffer y bytes=64 role=output dtype=f32 shape=16
    resident data=w.npz
    """
    path = copied(tmp_path, buffers, "memcpy y w bytes=64", contents=[weights.read_bytes()])
    (tmp_path / "link.npz").symlink_to("w.npz")
    before = weights.read_bytes()
    for name in ("w.npz", "link.npz", "w.ref.npz"):
        for option in ("--outputs", "--timeline"):
            result = tessc("run", path, "--backend", "cpu", option, str(tmp_path / name))
            assert (result.code, result.text) == (1, "")
            assert "error[TSR1911]: cannot write" in result.err
    assert weights.read_bytes() == before
    assert (tmp_path / "w.ref.npz").read_bytes() == before


def test_outputs_go_where_a_link_leads(plan: str, tmp_path: Path) -> None:
    link, target = tmp_path / "link.npz", tmp_path / "far" / "o.npz"
    target.parent.mkdir()
    link.symlink_to(target)
    more = ("--backend", "cpu", "--requests", "1", "--outputs")
    assert tessc("run", plan, *more, str(link)).code == 0
    assert link.is_symlink()
    assert zipfile.is_zipfile(target)
    full = tmp_path / "full.npz"
    full.symlink_to("/dev/full")
    result = tessc("run", plan, *more, str(full))
    assert result.code == 1
    assert "no space left on device" in result.err
    assert full.is_symlink()


def test_an_output_with_the_name_of_the_requests(tmp_path: Path) -> None:
    buffers = "buffer tessera.requests bytes=4 role=output dtype=u32 shape=1"
    path = copied(tmp_path, buffers, "memset tessera.requests bytes=4 value=1")
    outputs = tmp_path / "o.npz"
    more = ("--backend", "cpu", "--requests", "2", "--outputs", str(outputs))
    assert tessc("run", path, *more).code == 0
    with np.load(outputs) as found:
        assert found["tessera.requests"].tolist() == [[0x01010101]] * 2
        assert found["tessera.requests_"].tolist() == [0, 1]


def test_a_name_that_npz_has_no_room_for(tmp_path: Path) -> None:
    name = "n" * 70000
    path = copied(tmp_path, f"buffer {name} bytes=4 role=output", f"memset {name} bytes=4 value=1")
    more = ("--backend", "cpu", "--requests", "2", "--outputs")
    result = tessc("run", path, *more, str(tmp_path / "o.npz"))
    assert result.code == 1
    assert "has no room for a name of 70000 letters" in result.err
    assert not list(tmp_path.glob("*.npz*"))
    assert tessc("run", path, *more, str(tmp_path / "o.safetensors")).code == 0


def test_types_that_safetensors_lacks_keep_their_axis(tmp_path: Path) -> None:
    path = copied(
        tmp_path, "buffer y bytes=32 role=output dtype=c128 shape=2", "memset y bytes=32 value=1"
    )
    outputs = tmp_path / "o.safetensors"
    more = ("--backend", "cpu", "--requests", "3", "--outputs", str(outputs))
    assert tessc("run", path, *more).code == 0
    data = outputs.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header["y"]["shape"] == [3, 32]


@pytest.mark.parametrize(
    "closed", [pytest.param("<&- 2>&-", marks=pytest.mark.slow), "<&- >&- 2>&-"]
)
def test_standard_streams_that_are_closed(plan: str, tmp_path: Path, closed: str) -> None:
    """Pipes to the devices must not take the numbers that those have for their own."""
    outputs = tmp_path / "o.npz"
    command = shlex.join(
        [
            sys.executable,
            "-m",
            "tessera",
            "run",
            plan,
            "--backend",
            "cpu",
            "--requests",
            "1",
            "--outputs",
            str(outputs),
        ]
    )
    done = subprocess.run(["sh", "-c", f"exec {command} {closed}"], timeout=900, check=False)
    assert done.returncode == (1 if ">&-" in closed.split() else 0)
    assert zipfile.is_zipfile(outputs)


def test_no_code_from_the_folder_of_a_plan_runs(plan: str, tmp_path: Path) -> None:
    """Python itself would import modules from the current folder in the processes of devices."""
    shutil.copy(plan, tmp_path / "plan.tsp")
    for name in ("json", "mmap", "numpy", "struct", "tessera"):
        (tmp_path / f"{name}.py").write_text("open('seen', 'w')\nraise SystemExit(3)\n")
    code = "import sys; from tessera.cli.main import main; sys.argv[1:] = sys.argv[2:]; main()"
    root = str(Path(__file__).parents[3])
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-c",
            code,
            "tessc",
            "run",
            "plan.tsp",
            "--backend",
            "cpu",
            "--requests",
            "1",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "seen").exists()


def test_inputs_that_the_file_lacks_are_named(tmp_path: Path) -> None:
    buffers = """
    buffer x bytes=64 role=input dtype=f32 shape=16
    buffer mask bytes=64 role=input dtype=s32 shape=16
    buffer y bytes=64 role=output dtype=f32 shape=16
    """
    path = copied(tmp_path, buffers, "memcpy y x bytes=64\nmemcpy x mask bytes=64")
    given, run = tmp_path / "in.npz", ("run", path, "--backend", "cpu", "--requests", "1")
    x, mask = np.zeros(16, np.float32), np.zeros(16, np.int32)
    np.savez(given, x=x)
    result = tessc(*run, "--inputs", str(given))
    assert result.code == 0
    assert "warning[TSR5059]" in result.err
    assert "does not have all inputs: `mask` is seeded" in result.err
    np.savez(given, x=x, mask=mask)
    assert tessc(*run, "--inputs", str(given)).err == ""


def test_a_small_file_with_more_inputs_than_there_is_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros pack well: it is refused before it is unpacked."""
    buffers = "buffer x bytes=4096 role=input\nbuffer y bytes=4096 role=output"
    path, given = copied(tmp_path, buffers, "memcpy y x bytes=4096"), tmp_path / "in.npz"
    np.savez_compressed(given, x=np.zeros((4096, 4096), np.uint8))
    assert given.stat().st_size < 1 << 17
    monkeypatch.setattr("tessera.driver.run.given_inputs.available_bytes", lambda: 1 << 23)
    result = tessc("run", path, "--backend", "cpu", "--inputs", str(given))
    assert result.code == 6
    assert "no memory for the inputs" in result.err
