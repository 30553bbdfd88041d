"""Traces of real sizes: they are well formed, as large as the models, and can be planned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.planning.real_traces import DECODERS, MODELS, hit_experts, real_trace
from tessera.driver.plan import plan
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.operators.table import work_of
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.program import LibraryCall, Program, Role
from tessera.planning.given.options import PlanOptions
from tessera.simulation.simulate_plan import simulate


def weight_bytes(trace: str) -> int:
    return sum(map(int, re.findall(r"bytes=(\d+) role=weight", trace)))


def operations(program: Program) -> float:
    found = [work_of(step) for step in program.steps if isinstance(step, LibraryCall)]
    return sum(work.operations for work in found if work is not None)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("model", MODELS)
def test_they_are_well_formed(model: str, phase: str) -> None:
    program = parse_trace(real_trace(model, phase, batch=2, context=256, layers=2, dtype="f16"))
    assert all(isinstance(step, LibraryCall) for step in program.steps)
    assert any(buffer.role is Role.OUTPUT for buffer in program.buffers)
    states = [buffer for buffer in program.buffers if buffer.role is Role.STATE]
    assert len(states) == (4 if model in DECODERS else 0)


@pytest.mark.parametrize(
    ("model", "billions"), [("llama-8b", 8.03), ("llama-70b", 70.55), ("gpt-oss-20b", 20.91)]
)
def test_they_have_the_weights_of_the_models(model: str, billions: float) -> None:
    trace = real_trace(model, "decode", batch=1, context=16)
    assert weight_bytes(trace) / 2e9 == pytest.approx(billions, rel=0.002)


def test_work_grows_with_batch_and_context() -> None:
    """Two operations per weight and token, and attention, of which a prefill does about half."""
    one, eight = (
        parse_trace(real_trace("llama-8b", "decode", batch=batch, context=64, layers=4))
        for batch in (1, 8)
    )
    assert operations(eight) == pytest.approx(8 * operations(one), rel=0.01)
    short, long = (
        operations(parse_trace(real_trace("llama-8b", "prefill", batch=1, context=c, layers=4)))
        for c in (4096, 8192)
    )
    attention = 4 * 2 * 32 * 128 * 2 * (8192 * 8193 - 2 * 4096 * 4097) / 2
    assert long - 2 * short == pytest.approx(attention, rel=0.01)


def test_experts_that_are_hit() -> None:
    model = DECODERS["gpt-oss-20b"]
    assert hit_experts(model, 1) == 4
    assert 16 <= hit_experts(model, 8) < 32
    assert hit_experts(model, 1000) == 32


def test_caches_that_are_too_small_are_refused() -> None:
    with pytest.raises(ValueError, match="too small"):
        real_trace("llama-8b", "decode", batch=8, context=64, rows=4)
    with pytest.raises(ValueError, match="too small"):
        real_trace("llama-8b", "decode", batch=8, context=64, capacity=64)


@pytest.mark.slow
def test_a_mix_keeps_its_promise(tmp_path: Path) -> None:
    """Phases share their caches; what the plan says is what its file does."""
    names = []
    for phase, batch in (("prefill", 1), ("decode", 4)):
        target = tmp_path / f"{phase}.ptx"
        target.write_text(
            real_trace("llama-8b", phase, batch=batch, context=64, layers=1, rows=4, capacity=65)
        )
        names.append(str(target))
    report = plan(names, PlanOptions(gpus="a100,l40s"), compare=False)
    target = tmp_path / "plan.tsp"
    target.write_text(print_plan(report.plan))
    assert all(
        abs(claim.off) < 0.01 for claim in simulate(target).claims() if claim.name != "bound"
    )
