"""Prices of parts of launches: their own CTAs, the whole grid's stride, their share of a hint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.trace.read_trace import parse_trace, read_trace
from tessera.ir.operators.table import work_of
from tessera.ir.plan.costs import Duration, LaunchWork
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import CtaRange, Launch, LaunchId, LibraryCall, Program, WorkHint
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.division.cut_calls import call_axes, part_of_call
from tessera.planning.prices.count_work import count_work, launch_work
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.merge_tables import step_shapes
from tessera.planning.prices.work_shapes import step_shape
from tests.helpers.share import least
from tests.unit.planning.test_count_work import program

TRACES = Path(__file__).parents[3] / "examples" / "traces"
STRIDE = "\n".join(
    (
        ".reg .b32 %g<3>; .reg .pred %q;",
        "mov.u32 %g0, %ctaid.x;",
        "mov.u32 %g1, %nctaid.x;",
        "WALK: add.f32 %f1, %f1, %f1;",
        "add.s32 %g0, %g0, %g1;",
        "setp.lt.u32 %q, %g0, 1000;",
        "@%q bra WALK;",
    )
)


def part(launch: Launch, first: int, end: int) -> Launch:
    _, *rest = launch.grid
    return replace(
        launch, grid=(end - first, rest[0], rest[1]), ctas=CtaRange(0, first, launch.grid[0])
    )


def counted(made: Program, launch: Launch) -> LaunchWork:
    found = count_work(made.modules[0].variants[0].ptx, launch)
    assert found is not None
    return found


def test_parts_do_the_work_of_their_own_blocks() -> None:
    made = program(1, STRIDE, grid=24)
    whole = next(made.launches())
    parts = [part(whole, 0, 5), part(whole, 5, 16), part(whole, 16, 24)]
    works = [counted(made, one) for one in parts]
    assert [one.ctas for one in works] == [5, 11, 8]
    total = counted(made, whole)
    assert sum(one.instructions for one in works) == pytest.approx(total.instructions)
    # The first 16 blocks of 24 walk over 42 numbers below 1000, the others over 41.
    each = [dict(one.units)["fp32"] / one.threads for one in works]
    assert each[0] == each[1] == each[2] + 1


def test_counts_are_kept_apart_by_range() -> None:
    made = program(1, STRIDE, grid=24)
    whole = next(made.launches())
    variant = made.modules[0].variants[0]
    first, last = (launch_work(variant, part(whole, at, at + 8), 0.0) for at in (0, 16))
    assert first is not None
    assert last is not None
    assert first.instructions > last.instructions


def test_a_part_of_everything_costs_what_the_launch_costs() -> None:
    made = read_trace(TRACES / "mamba.ptx")
    launches = tuple(replace(launch, variants=()) for launch in made.launches())
    launches = launches[: least(len(launches), 20)]
    made = replace(made, steps=launches)
    all_parts = replace(made, steps=tuple(part(one, 0, one.grid[0]) for one in launches))
    found = []
    for each in (made, all_parts):
        graph = AnalysisManager(each).get(Dependences).graph
        costs = estimate_costs(each, graph, machine_of("a100,l40s"))
        found.append((costs, step_shapes(each, graph, costs)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("kind", "sizes", "touched", "wanted"),
    [
        # Columns: all rows of the input, a quarter of the weight. Rows: the weight as a whole.
        ("gemm", (64, 4096, 4096), 2 * 4096 * 1024, (64, 1024, 4096)),
        ("gemm", (4096, 512, 512), 2 * (1024 * 512 * 2 + 512 * 512), (1024, 512, 512)),
        ("generation", (8, 1024, 32, 8, 128), 2 * 8 * 1024 * 2 * 2 * 128, (8, 1024, 8, 2)),
    ],
)
def test_a_part_has_its_share_of_a_hint(
    kind: str, sizes: tuple[int, ...], touched: float, wanted: tuple[int, ...]
) -> None:
    hint = WorkHint(kind, sizes, DataType.BF16)
    whole = replace(next(program(grid=64).launches()), work=hint)
    operations = {"gemm": 2.0 * wanted[0] * wanted[1] * wanted[-1]}
    operations["generation"] = 4.0 * wanted[0] * wanted[1] * wanted[2] * 128
    work = replace(
        counted(program(), whole), units=(("fp16", operations[kind]),), asked_bytes=touched
    )
    shape = step_shape(part(whole, 16, 32), work, touched).shape
    assert shape is not None
    assert shape.sizes == wanted


# --- library calls ------------------------------------------------------------------------

CALLS = """
aten::mm reads=[x:bf16[64,4096], w:bf16[4096,14336]{1,4096}] writes=[y:bf16[64,14336]]
aten::bmm reads=[x:bf16[32,64,128], w:bf16[32,128,512]] writes=[y:bf16[32,64,512]]
aten::_grouped_mm reads=[x:bf16[512,2048], w:bf16[64,2048,1536], i:s32[64]] \
writes=[y:bf16[512,1536]]
tessera::merged_linear reads=[x:bf16[8,4096], w:bf16[4096,4096]{1,4096}, \
v:bf16[4096,1024]{1,4096}] writes=[y:bf16[8,4096], z:bf16[8,1024]]
aten::scaled_dot_product_attention reads=[x:bf16[8,32,1,128], s:bf16[8,8,4096,128], \
t:bf16[8,8,4096,128]] writes=[y:bf16[8,32,1,128]] attrs={"enable_gqa":true}
aten::topk reads=[x:f32[4096,128]] writes=[y:f32[4096,8], z:s64[4096,8]] attrs={"k":8}
aten::index.Tensor reads=[w:bf16[1000,4096], i:s64[64]] writes=[y:bf16[64,4096]]
aten::native_layer_norm reads=[x:bf16[4096,4096], w:bf16[4096]] writes=[y:bf16[4096,4096]] \
attrs={"normalized_shape":[4096],"bias":null}
aten::mul.Tensor reads=[x:bf16[64,14336], w:bf16[64,14336]] writes=[y:bf16[64,14336]]
aten::convolution reads=[x:bf16[2,320,64,64], w:bf16[320,320,3,3]] writes=[y:bf16[2,320,64,64]] \
attrs={"padding":[1,1],"bias":null}
"""
BUFFERS = "//! tessera.trace 1\n" + "".join(
    f"//! buffer {name} bytes={1 << 30} role={role}\n"
    for role, names in {"input": "xi", "weight": "wv", "state": "st", "output": "yz"}.items()
    for name in names
)


@pytest.mark.parametrize("record", CALLS.strip().splitlines(), ids=lambda text: text.split()[0])
def test_parts_of_calls_do_the_work_of_the_whole(record: str) -> None:
    whole = parse_trace(f"{BUFFERS}//! op {record}\n")
    (call,) = whole.steps
    assert isinstance(call, LibraryCall)
    for axis in call_axes(call):
        edge = axis.extent // axis.multiple * 2 // 3 * axis.multiple
        parts = [part_of_call(call, axis.axis, 0, edge)]
        parts.append(part_of_call(call, axis.axis, edge, axis.extent))
        works = [work_of(step) for step in (call, *parts)]
        total, *shares = [work.operations for work in works if work is not None]
        assert sum(shares) == pytest.approx(total)
        steps = [replace(step, id=LaunchId(at)) for at, step in enumerate((call, *parts))]
        made = replace(whole, steps=tuple(steps))
        graph = AnalysisManager(made).get(Dependences).graph
        costs = estimate_costs(made, graph, machine_of("h200,a100,l40s")).steps
        for cost in costs[1:]:
            assert cost.memory_bytes <= costs[0].memory_bytes
            # Small calls have no time to hide the first loads.
            for mine, all_of_it in zip(cost.on_device, costs[0].on_device, strict=True):
                assert isinstance(mine, Duration)
                assert isinstance(all_of_it, Duration)
                assert mine.ns <= all_of_it.ns * 1.01 + 500
