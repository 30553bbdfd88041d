"""The promise of regions, tried on the CPU backend as `tests/gpu` tries it on a GPU.

Nothing outside the write regions changes, and what is neither read nor possibly left alone can
hold anything. Two tests corrupt regions and see that this notices.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.backend.ptx_executor.device import Device
from tests.helpers.region_check import Step, Work, check
from tests.helpers.region_cpu import CpuMachine
from tests.helpers.region_work import case_work, trace_work
from tests.kernels.case import Case
from tests.kernels.cases import CASES
from tests.kernels.layers import LAYERS

ROOT = Path(__file__).resolve().parents[2]
# Every kernel is for the GPU and the long run; here one of each layer, and what is quick.
SOME = [layer for layer in LAYERS if layer.compiler != "nvcc"][::2]
QUICK = ("saxpy", "triton_add", "triton_softmax", "triton_layernorm_80", "triton_quantize")


def problems(work: Work) -> list[str]:
    with Device() as device:
        rows = list(check(work, CpuMachine(work, device)))
    return [f"{row['work']} #{row['step']}: {text}" for row in rows for text in row["wrong"]]


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.name)
def test_layers_keep_their_promise(case: Case) -> None:
    assert problems(case_work(case)) == []


@pytest.mark.parametrize("case", [c for c in CASES if c.name in QUICK], ids=lambda case: case.name)
def test_kernels_keep_their_promise(case: Case) -> None:
    assert problems(case_work(case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", [*CASES, *LAYERS], ids=lambda case: case.name)
def test_all_kernels_keep_their_promise(case: Case) -> None:
    assert problems(case_work(case)) == []


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        pytest.param("llama_prefill", marks=pytest.mark.slow),
        pytest.param("vision_language", marks=pytest.mark.slow),
    ],
)
def test_a_trace_keeps_its_promise(name: str) -> None:
    assert problems(trace_work(ROOT / "examples" / "traces" / f"{name}.ptx")) == []


def _changed(work: Work, **regions: object) -> Work:
    steps: list[Step] = [replace(step, **regions) for step in work.steps]  # type: ignore[arg-type]
    return replace(work, steps=steps)


def _rope() -> Work:
    return case_work(next(layer for layer in LAYERS if layer.name == "triton_rope"))


def test_a_read_that_is_missing_is_noticed() -> None:
    work = _rope()
    less = {i: ranges for i, ranges in work.steps[0].read.items() if i != 1}
    assert any("output" in text for text in problems(_changed(work, read=less)))


def test_a_write_outside_is_noticed() -> None:
    work = _rope()
    assert any("outside" in text for text in problems(_changed(work, may={}, must={})))


def test_a_write_that_is_not_certain_is_noticed() -> None:
    work = case_work(next(layer for layer in LAYERS if layer.name == "triton_kv_paged"))
    step = work.steps[0]
    assert any("output" in text for text in problems(_changed(work, must=step.may)))
