"""What `real_models` measures again, in which order, and how it shares a GPU."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.running import real_models

UNFINISHED: dict[str, Any] = {"failed": real_models.UNFINISHED}


@pytest.mark.parametrize(
    ("row", "few", "all_modes"),
    [
        (None, False, False),
        (UNFINISHED, False, False),
        ({"failed": "no memory"}, True, True),
        ({"torch": {"default": 1.0}}, True, False),
        ({"torch": {"default": 1.0}, "torch_failed": {"max-autotune": "no"}}, True, True),
    ],
)
def test_what_was_measured_is_not_measured_again(
    tmp_path: Path, row: dict[str, Any] | None, few: bool, all_modes: bool
) -> None:
    path = tmp_path / "row.json"
    if row is not None:
        path.write_text(json.dumps(row))
    assert real_models.is_measured(path, "default") is few
    assert real_models.is_measured(path, "default,max-autotune") is all_modes


def test_every_case_gets_its_first_mode_before_any_gets_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no more run at a time than the memory of the GPU has room for."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from benchmarks.running.real_steps import CASES

    begun: list[tuple[str, str]] = []
    running: list[str] = []

    class Process:
        pid = 0
        returncode = 0

        def __init__(self, name: str, route: str, modes: str) -> None:
            self.name, self.polls = name, 0
            begun.append((name, modes))
            running.append(name)
            assert sum(CASES[one].gpu_gb for one in running) <= real_models.GPU_GB
            row = {"torch": dict.fromkeys(modes.split(","), 1.0)}
            real_models.keep(tmp_path, name, route, row)

        def poll(self) -> int | None:
            self.polls += 1
            if self.polls == 3:
                running.remove(self.name)
            return None if self.polls < 3 else 0

    monkeypatch.setattr(real_models, "start", lambda options, *job: Process(*job))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    options = argparse.Namespace(
        out=tmp_path,
        seconds=600.0,
        jobs=6,
        only="",
        routes="auto",
        modes="default,max-autotune",
        warm=False,
    )
    real_models.run_all(options)
    assert sorted(name for name, modes in begun if modes == "default") == sorted(CASES)
    assert [modes for _, modes in begun] == sorted((m for _, m in begun), key=len)
    assert len(begun) == 2 * len(CASES)
    real_models.run_all(options)
    assert len(begun) == 2 * len(CASES)


def test_what_is_compiled_is_measured_once_with_all_modes(tmp_path: Path) -> None:
    path, modes = tmp_path / "row.json", "default,max-autotune"
    assert real_models.is_due(path, modes, modes, warm=True)
    assert not real_models.is_due(path, "default", modes, warm=True)
    path.write_text(json.dumps(UNFINISHED | {"compiled": {"default": 1.0}}))
    assert not real_models.is_due(path, modes, modes, warm=True)
    assert not real_models.is_due(path, "default", modes, warm=False)
    assert real_models.is_due(path, modes, modes, warm=False)


def test_who_measures_may_measure_again_and_nobody_waits_for_a_first_call(tmp_path: Path) -> None:
    before = real_models.LOCK["times"]
    measured = real_models.alone(tmp_path, lambda work: work())
    depths: list[int] = []

    def part() -> None:
        depths.append(real_models.DEPTH[0])

    def candidate() -> None:
        part()
        measured(part)

    measured(candidate)
    assert depths == [0, 0, 1, 1, 1, 2]
    assert real_models.LOCK["times"] == before + 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's own, when it is imported
def test_a_tiny_case_passes_through_every_stage_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written for the GPU is run by a trial: the capture, the plan, its results, times."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("triton", reason="triton is not installed")
    from benchmarks.running import real_steps

    class Half(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Gives back a part of its buffer, and writes a state; every repeat does the same."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.ones(64, device="cuda"))

        def forward(self, x: Any) -> Any:
            self.state.copy_(x[0] * 0.5)
            return (x + self.state).clone()[2:]

    def make() -> real_steps.RealStep:
        torch.manual_seed(0)
        return real_steps.RealStep(Half(), (torch.randn(8, 64, device="cuda"),))

    def compiled(step: real_steps.RealStep, mode: str) -> Any:
        if mode == "default":
            return lambda count: [step.module(*step.inputs) for _ in range(count)]
        raise RuntimeError("cannot")

    monkeypatch.setitem(real_steps.CASES, "half", real_steps.RealCase(make, {}, 1))
    monkeypatch.setattr(real_steps.RealCase, "tiny", lambda self: self)
    monkeypatch.setattr(real_models, "compiled", compiled)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    options = argparse.Namespace(
        out=tmp_path,
        name="half",
        modes="default,other",
        warm=False,
        kernels=True,
        tune_ms=0,
        trial=True,
    )
    row: dict[str, Any] = {}
    with real_models.on_trial(options):
        real_models.measure(options, "auto", row, UNFINISHED)
    assert [text.split(":")[0] for text in row["wrong"]] == ["out"]  # PyTorch told a part of it
    assert row["error"] == {"norm": 0.0, "element": 0.0}
    assert set(row["torch"]) == {"default"}
    assert set(row["torch_failed"]) == {"other"}
    assert row["launches"] > 0
    assert row["ratio"] > 0
