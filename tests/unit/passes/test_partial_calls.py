"""Prices of library calls that touch a part of their operands: caches, experts; large examples."""

from __future__ import annotations

from benchmarks.planning.serving_traces import EXAMPLES, FOLDER, ServingStep, serving_trace, texts
from tessera.diagnostics import Source
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import read_program
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.costs import Duration
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.program import LibraryCall
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.work_shapes import call_shape


def _times(model: str, phase: str, batch: int, tokens: int = 1) -> dict[str, float]:
    step = ServingStep(
        model=model, phase=phase, batch=batch, tokens=tokens, rows=batch, capacity=2048
    )
    program = read_program(Source("step", serving_trace(step, layers=1)))[0]
    graph = analysis_manager(program, ".").get(Dependences).graph
    costs = estimate_costs(program, graph, machine_of("h200"))
    times: dict[str, float] = {}
    for row in costs.steps:
        assert isinstance(row.on_device[0], Duration)
        times[row.name] = max(times.get(row.name, 0.0), row.on_device[0].ns)
    return times


def test_a_write_to_a_cache_costs_what_is_written_and_not_the_cache() -> None:
    few, many = (_times("llama-8b", "decode", rows) for rows in (1, 64))
    # 64 sequences of 2048 tokens are 268 MB of keys: 50 us or more if all of it were moved.
    assert many["tessera::cache_write"] < 2 * few["tessera::cache_write"] < 10_000
    assert many["aten::scaled_dot_product_attention"] > 20_000


def test_experts_cost_the_weights_of_those_that_are_hit() -> None:
    one, many = (_times("gpt-oss-20b", "decode", rows)["tessera::experts"] for rows in (1, 128))
    assert many > 4 * one  # 4 of 32, and all of them


def test_packed_experts_are_looked_up_as_weights_of_four_bits() -> None:
    step = next(s for s in EXAMPLES if s.model == "gpt-oss-20b" and s.batch == 128)
    program = read_program(Source("step", serving_trace(step, layers=1)))[0]
    shapes = [call_shape(work) for work in program.work() if isinstance(work, LibraryCall)]
    (experts,) = [s for s in shapes if s is not None and s.kind is TableKind.MOE]
    assert experts.fixed == ("w4a16_mxfp4", 2880, 2880, 4, 32)
    assert experts.sizes == (128, 1, 1)


def test_large_examples_are_what_the_script_writes_and_small_files() -> None:
    made = texts()
    files = {path.name: path.read_text("utf-8") for path in FOLDER.glob("*.ptx")}
    assert files.keys() == made.keys()
    assert [name for name in made if files[name] != made[name]] == []
    assert sum(map(len, files.values())) < 2_000_000
