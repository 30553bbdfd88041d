"""`tessc plan` and `tessc run` on the CUDA backend, with the stand-in driver as the GPU."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tessera import output
from tests.helpers.command import tessc
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.traces import HEADER

TRACE = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"
GPUS = ("--gpus", "h200:84sm,h200:48sm", "--strategy", "layers", "--slots", "2")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    made = FakeCuda(memory=1 << 30, name="NVIDIA H200")
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    monkeypatch.setattr("tessera.backend.cuda.backend._LOOK_S", 1e-4)
    monkeypatch.chdir(tmp_path)
    return made


def test_auto_finds_the_slices_and_the_run_is_verified(fake: FakeCuda) -> None:
    assert tessc("plan", str(TRACE), *GPUS).code == 0
    outcome = tessc("run", "plan.tsp", "--requests", "3", "--verify", "--timeline", "t.json")
    assert outcome.code == 0, outcome.err
    assert "on GPUs" in outcome.text
    assert "verified: 3 requests equal the run on one device to the byte" in outcome.text
    assert {sms for name, sms in fake.launched if name == "linear"} == {84, 48}
    assert not fake.allocated
    assert Path("t.json").exists()


def test_a_fault_ends_the_run_with_6(fake: FakeCuda) -> None:
    Path("bad.ptx").write_text(
        "//! tessera.trace 1\n//! buffer x bytes=64 role=input\n//! buffer y bytes=64 role=output\n"
        f"//! module m\n{HEADER}.visible .entry stop(.param .u64 p) {{ trap; }}\n"
        "//! memcpy y x bytes=64\n"
        "//! launch m.stop grid=1,1,1 block=1,1,1 smem=0 args=[y]\n"
    )
    assert tessc("plan", "bad.ptx", "--gpus", "h200").code == 0
    outcome = tessc("run", "plan.tsp", "--backend", "cuda")
    assert outcome.code == 6
    assert "TSR5106" in outcome.err
    assert "trap" in outcome.err
    assert "TESSERA_NO_GRAPHS" in outcome.err


def test_the_plan_as_programs(fake: FakeCuda) -> None:
    assert tessc("plan", str(TRACE), *GPUS, "--emit", "cuda-python", "-o", "out").code == 0
    names = sorted(path.name for path in Path("out").iterdir())
    assert names == [
        "api.py",
        "call_structures.py",
        "common.py",
        "device_0_h200_0_0.py",
        "device_1_h200_0_1.py",
        "m0.sm_80.ptx",
        "run.py",
        "slices.py",
    ]
    Path("blocked").write_text("")
    refused = tessc("plan", str(TRACE), *GPUS, "--emit", "cuda-python", "-o", "blocked")
    assert refused.code == 1
    assert "TSR1911" in refused.err


def test_programs_say_how_they_run_without_cuda(fake: FakeCuda) -> None:
    """Neither package is there; what runs needs them, and says so."""
    assert tessc("plan", str(TRACE), *GPUS, "--emit", "cuda-python", "-o", "out").code == 0

    def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
        hidden = "import sys; sys.modules['numpy'] = sys.modules['cuda'] = None; "
        start = "sys.path.insert(0, 'out'); import runpy; runpy.run_path('out/run.py', None, "
        code = f"{hidden}sys.argv = ['run.py', *{arguments!r}]; {start}'__main__')"
        command = [sys.executable, "-I", "-S", "-c", code]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

    done = ran("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--inputs" in done.stdout
    done = ran()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("this program needs the packages `cuda-python` and `numpy`: ")


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_programs_take_the_place_of_nothing_else(fake: FakeCuda, kind: str) -> None:
    """Of their own kind they do; what is not is named, and no file is written."""
    emit = ("plan", str(TRACE), *GPUS, "--emit", "cuda-python", "-o", "out")
    Path("out").mkdir()
    Path("own.py").write_text("print('mine')\n")
    foreign = Path("out", "run.py")
    if kind == "file":
        foreign.write_text("print('mine')\n")
    elif kind == "folder":
        foreign.mkdir()
    else:
        foreign.symlink_to("../own.py")
    refused = tessc(*emit)
    assert refused.code == 1
    assert "error[TSR1911]: cannot write `out/run.py`: there is one that" in refused.err
    assert [path.name for path in Path("out").iterdir()] == ["run.py"]
    assert Path("own.py").read_text() == "print('mine')\n"
    assert kind != "file" or foreign.read_text() == "print('mine')\n"
    foreign.rmdir() if kind == "folder" else foreign.unlink()
    for _ in range(2):
        assert tessc(*emit).code == 0
    assert len(list(Path("out").iterdir())) == 8


def test_programs_are_all_written_or_none(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def full(target: Path, data: bytes) -> str:
        made.append(target)
        if len(made) == 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(target, data)

    real = output._write_beside
    monkeypatch.setattr(output, "_write_beside", full)
    emit = ("plan", str(TRACE), *GPUS, "--emit", "cuda-python", "-o")
    refused = tessc(*emit, "out")
    assert refused.code == 1
    assert "no space left on device" in refused.err
    assert list(Path("out").iterdir()) == []
    refused = tessc(*emit, "-")
    assert refused.code == 2
    assert "writes to a folder" in refused.err
    assert not Path("-").exists()


def test_the_programs_of_several_replicas_are_named(fake: FakeCuda) -> None:
    more = ("--gpus", "2xh200", "--strategy", "dp", "--emit", "cuda-python", "-o", "out")
    done = tessc("plan", str(TRACE), *more)
    assert done.code == 0
    named = [word.strip("`,") for word in done.text.split() if word.endswith("run.py")]
    assert named == ["out/replica_0/run.py", "out/replica_1/run.py"]
    assert all(Path(name).is_file() for name in named)
