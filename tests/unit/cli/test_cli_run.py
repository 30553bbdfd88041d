"""`tessc run`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.command import tessc

TRACES = Path(__file__).parents[3] / "examples" / "traces"
MLP = str(TRACES / "mlp.ptx")


def test_outputs_are_written_by_buffer_name(tmp_path: Path) -> None:
    outputs = tmp_path / "out.npz"
    result = tessc("run", MLP, "--outputs", str(outputs))
    assert result.code == 0, result.err
    assert "ran 6 launches" in result.text
    with np.load(outputs, allow_pickle=False) as arrays:
        assert {name: (arrays[name].dtype.str, arrays[name].shape) for name in arrays.files} == {
            "y": ("<f4", (24, 40)),
            "active": ("<u4", (1,)),
        }


def test_the_seed_decides_the_contents(tmp_path: Path) -> None:
    digests = []
    for seed in ("0", "0", "1"):
        result = tessc("run", MLP, "--json", "--seed", seed)
        assert result.code == 0, result.err
        digests.append([buffer["sha256"] for buffer in json.loads(result.text)["buffers"]])
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


def test_memory_that_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("tessera.backend.ptx_executor.run.run_program", refuse)
    result = tessc("run", MLP)
    assert result.code == 6
    assert "TSR5020" in result.err


def test_a_launch_that_goes_wrong_leaves_no_output(tmp_path: Path) -> None:
    outputs = tmp_path / "out.npz"
    result = tessc("run", MLP, "--outputs", str(outputs), "--max-steps", "3")
    assert result.code == 6
    assert "TSR5010" in result.err
    assert not outputs.exists()


@pytest.mark.parametrize("name", ["out.txt", "missing/out.npz"])
def test_outputs_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    result = tessc("run", MLP, "--outputs", str(tmp_path / name))
    assert result.code == 1
    assert result.err.startswith("error[")
    assert "Traceback" not in result.err
