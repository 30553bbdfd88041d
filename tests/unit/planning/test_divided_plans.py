"""Plans in parts: chains, shares of equal layers, memory that adds up, no loss by more GPUs."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.driver.traces import load_traces
from tessera.ir.plan.launch_program import AreaKind
from tessera.ir.plan.plan import Plan
from tessera.ir.program.program import Role
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.make_plan import make_plan
from tests.helpers.share import share

_GPUS = ("a100", "l40s", "h100", "h200", "l4")


@cache
def _trace(folder: Path, model: str, batch: int, layers: int) -> LoadedTrace:
    step = ServingStep(
        model=model, phase="decode", batch=batch, tokens=1, rows=batch, capacity=2048
    )
    path = folder / f"{model}-{batch}-{layers}.ptx"
    path.write_text(serving_trace(step, layers))
    (trace,) = load_traces([str(path)])
    return trace


def _plan(
    trace: LoadedTrace, gpus: str, link: str, objective: str = "latency", **more: str
) -> Plan:
    options = PlanOptions(gpus=gpus, link=link, objective=objective, **more)
    return make_plan((trace,), options, Watch(), compare=False).plan


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.mark.slow
def test_a_layer_is_cut_in_four_chains_with_equal_shares_in_all_layers(folder: Path) -> None:
    trace = _trace(folder, "llama-8b", 1, 3)
    plan = _plan(trace, "a100,l40s", "300GB/s", strategy="parts")
    shares: dict[str, list[tuple[float, ...]]] = {}
    work = tuple(trace.program.work())
    for cut in plan.traces[0].division.cuts:
        name = trace.graph.nodes[cut.step].name
        kind = f"{name} {work[cut.step].writes[0].shape}"  # type: ignore[union-attr]
        shares.setdefault(kind, []).append(tuple(edge / cut.edges[-1] for edge in cut.edges))
    layers = [rows for rows in shares.values() if len(rows) % 3 == 0]
    assert len(layers) >= 5
    for rows in layers:
        assert len(set(rows)) == len(rows) // 3
    heads = {
        tuple(edge / cut.edges[-1] for edge in cut.edges)
        for cut in plan.traces[0].division.cuts
        if trace.graph.nodes[cut.step].name
        in ("aten::scaled_dot_product_attention", "tessera::rotary", "tessera::cache_write")
    }
    assert len(heads) == 1  # one boundary of heads
    fewer = _plan(_trace(folder, "llama-8b", 1, 2), "a100,l40s", "300GB/s", strategy="parts")
    sent, of_two = (len(made.replicas[0].lowered.traces[0].transfers) for made in (plan, fewer))
    assert sent - of_two <= 8  # a layer has four exchanges, both ways


def test_weights_of_all_devices_add_up_to_the_model(folder: Path) -> None:
    trace = _trace(folder, "llama-8b", 1, 3)
    plan = _plan(trace, "a100,l40s", "300GB/s", strategy="parts")
    weights = sum(buffer.bytes for buffer in trace.graph.buffers if buffer.role is Role.WEIGHT)
    embedded = next(b.bytes for b in trace.graph.buffers if b.name == "embed")
    held = sum(
        area.bytes for area in plan.replicas[0].lowered.areas if area.kind is AreaKind.WEIGHTS
    )
    # The table of embeddings may be on both: any row of it may be looked up.
    assert held <= 1.1 * (weights - embedded) + 2 * embedded


def test_a_model_that_fits_on_no_card_has_a_plan(folder: Path) -> None:
    trace = _trace(folder, "llama-8b", 1, 3)
    needed = sum(buffer.bytes for buffer in trace.graph.buffers if buffer.role is Role.WEIGHT)
    options = PlanOptions(
        gpus="a100,l40s",
        link="300GB/s",
        objective="latency",
        memory=(("a100", int(0.8 * needed) + (1 << 30)), ("l40s", int(0.8 * needed) + (1 << 30))),
    )
    plan = make_plan((trace,), options, Watch(), compare=False).plan
    assert {device for replica in plan.replicas for device in replica.lowered.devices} == {
        "a100-0",
        "l40s-0",
    }


@pytest.mark.parametrize("seed", share(range(4)))
def test_more_of_a_machine_never_makes_a_plan_worse(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    trace = _trace(folder, draw.choice(("llama-8b", "gpt-oss-20b")), draw.choice((1, 8)), 1)
    first, second, third = (draw.choice(_GPUS) for _ in range(3))
    bandwidth = draw.choice((2, 12, 25, 100, 300))
    objective = draw.choice(("latency", "latency", "throughput"))

    def value(gpus: str, link: int) -> float:
        plan = _plan(trace, gpus, f"{link}GB/s", objective)
        return plan.objective.value(plan)

    least = value(f"{first},{second}", bandwidth)
    assert value(f"{first},{second}", 2 * bandwidth) <= least * (1 + 1e-6)
    assert value(f"{first},{second},{third}", bandwidth) <= least * (1 + 1e-6)
