"""`--weights FOLDER`: a trace and a plan with weights out of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tessera.driver.load import load
from tests.helpers.checkpoints import sharded
from tests.helpers.command import tessc

TRACE = Path(__file__).parents[4] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint of the perceptron, and the same weights in `w.npz` beside it."""
    random = np.random.default_rng(3)
    shapes = {b.name: b.shape for b in load(TRACE).buffers if b.role.value == "weight"}
    arrays = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    made = tmp_path / "checkpoint"
    made.mkdir()
    sharded(made, *((n, "F32", array.shape, array.tobytes()) for n, array in arrays.items()))
    np.savez(tmp_path / "w.npz", **arrays)
    return made


def outputs(folder: Path, file: Path, *options: str) -> dict[str, bytes]:
    place = folder.parent / "out.npz"
    ran = tessc("run", str(file), "--outputs", str(place), *options)
    assert ran.code == 0, ran.text
    with np.load(place) as arrays:
        return {name: arrays[name].tobytes() for name in arrays}


def test_a_trace_runs_with_the_weights_of_a_checkpoint(folder: Path) -> None:
    wanted = outputs(folder, TRACE, "--data", str(folder.parent / "w.npz"))
    assert outputs(folder, TRACE, "--weights", str(folder)) == wanted
    assert outputs(folder, TRACE) != wanted


def test_a_plan_runs_with_the_weights_of_a_checkpoint(folder: Path) -> None:
    plan = folder.parent / "p.tsp"
    assert tessc("plan", str(TRACE), "--gpus", "a100,l40s", "-o", str(plan)).code == 0
    options = ("--backend", "cpu", "--requests", "2", "--verify")
    wanted = outputs(folder, plan, "--data", str(folder.parent / "w.npz"), *options)
    assert outputs(folder, plan, "--weights", str(folder), *options) == wanted


def test_a_checkpoint_of_another_model_is_refused_in_one_message(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    table = json.loads(index.read_text())
    del table["weight_map"]["w2"]
    index.write_text(json.dumps(table))
    ran = tessc("run", str(TRACE), "--weights", str(folder))
    assert ran.code == 1
    assert ran.err.count("error[") == 1
    assert "TSR1187" in ran.err
    assert "missing: `w2`, f32 of shape [96, 40], 15360 bytes" in ran.err


def test_contents_of_a_capture_do_not_stand_in_for_a_checkpoint_unsaid(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    sharded(other, ("." * 300_000, "F32", (1,), bytes(4)))
    given = ("--data", str(folder.parent / "w.npz"), "--weights", str(other))
    ran = tessc("run", str(TRACE), *given)
    assert ran.code == 1
    assert "TSR1187" in ran.err
    assert "has none of the weights" in ran.err


def test_an_empty_file_of_a_checkpoint_is_said_to_be_empty(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    ran = tessc("run", str(TRACE), "--weights", str(tmp_path))
    assert ran.code == 1
    assert "it is empty" in ran.err
    assert "savez" not in ran.err
