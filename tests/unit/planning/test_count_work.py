"""Work of a launch: loops, guards, units, bytes, shared memory; and times made of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.diagnostics import Source
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.access import Need, NeedKind
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.costs import Barred, Cost, Duration, LaunchWork
from tessera.ir.program.program import Launch, Program
from tessera.ir.ptx import syntax as ptx
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.count_work import count_work, launch_work, static_shared_bytes
from tessera.planning.prices.device_model import Traffic, launch_ns, resident_ctas
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.thread_code import thread_code
from tessera.wording import Wording

TRACE = """//! tessera.trace 1
//! buffer x bytes=4096 role=input
//! buffer y bytes=4096 role=output
//! module m
.version 8.0
.target sm_80
.address_size 64
.shared .align 16 .b8 unused[4096];
.visible .entry sums(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<8>;
    .shared .align 16 .b8 tile[STATIC];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r3, 0;
    mov.u32 %r4, tile;
LOOP:
    ld.global.f32 %f2, [%rd1];
    fma.rn.f32 %f1, %f2, %f2, %f1;
    add.s32 %r3, %r3, 1;
    setp.lt.s32 %p1, %r3, %r1;
    @%p1 bra LOOP;
    BODY
    setp.gt.u32 %p2, %r2, 1000;
    @%p2 bra DONE;
    st.global.f32 [%rd2], %f1;
DONE:
    ret;
}
//! launch m.sums grid=GRID,1,1 block=128,1,1 smem=DYNAMIC args=[x, y, u32:COUNT]
"""
LEFT = """setp.ge.s32 %p1, %r3, %r1;
    @%p1 bra OUT;
    bra LOOP;
OUT:
"""


def program(
    count: int = 10, body: str = "", static: int = 256, dynamic: int = 0, grid: int = 4
) -> Program:
    text = TRACE.replace("STATIC", str(static)).replace("DYNAMIC", str(dynamic))
    return parse_trace(
        text.replace("COUNT", str(count)).replace("BODY", body).replace("GRID", str(grid))
    )


def work(made: Program) -> LaunchWork:
    launch = next(one for one in made.work() if isinstance(one, Launch))
    found = count_work(made.modules[0].variants[0].ptx, launch)
    assert found is not None
    return found


def graph_of(made: Program) -> KernelGraph:
    return AnalysisManager(made).get(Dependences).graph


def cost(made: Program, gpu: str, graph: KernelGraph | None = None) -> Cost:
    found = estimate_costs(made, graph or graph_of(made), machine_of(gpu))
    return found.steps[0].on_device[0]


def test_loops_count_as_often_as_they_run() -> None:
    short, long = work(program(10)), work(program(1000))
    assert short.sure
    assert dict(short.units)["fp32"] == 2 * 10 * 512
    assert dict(long.units)["fp32"] == 2 * 1000 * 512
    assert short.asked_bytes == (10 + 1) * 4 * 512
    assert short.memory_instructions == (10 + 1) * 512
    assert long.instructions - short.instructions == pytest.approx(990 * 5 * 512)


def test_a_branch_on_data_ends_and_is_said() -> None:
    body = "setp.gt.f32 %p3, %f1, 0f00000000;\n @%p3 bra LOOP;"
    found = work(program(10, body))
    assert not found.sure
    assert 10 <= dict(found.units)["fp32"] / 2 / 512 <= 200


@pytest.mark.parametrize("turn", ["setp.lt.s32 %p1, %r3, %r1;\n    @%p1 bra LOOP;", LEFT])
def test_a_loop_whose_length_lies_in_memory_reads_all_that_it_may(turn: str) -> None:
    """Tested at its end, or left from inside."""
    text = TRACE.replace("ld.param.u32 %r1, [n];", "ld.global.u32 %r1, [%rd1];")
    text = text.replace("setp.lt.s32 %p1, %r3, %r1;\n    @%p1 bra LOOP;", turn)
    text = text.replace("add.s32 %r3, %r3, 1;", "add.s32 %r3, %r3, 1;\n add.s64 %rd1, %rd1, 512;")
    for name, value in (("STATIC", 16), ("DYNAMIC", 0), ("COUNT", 0), ("BODY", ""), ("GRID", 1)):
        text = text.replace(name, str(value))
    made = parse_trace(text)
    launch, variant = next(made.launches()), made.modules[0].variants[0]
    few = launch_work(variant, launch, 0.0)
    many = launch_work(variant, launch, 100 * 4 * 128.0)
    assert few is not None
    assert many is not None
    assert not many.sure
    assert few.asked_bytes < 20 * 4 * 128
    assert many.asked_bytes == pytest.approx(100 * 4 * 128, rel=0.05)


def test_nobody_goes_into_a_trap() -> None:
    body = "setp.gt.f32 %p3, %f1, 0f00000000;\n @%p3 bra FINE;\n trap;\nFINE:"
    found = work(program(10, body))
    assert found.asked_bytes == (10 + 1) * 4 * 512


def test_matrix_instructions() -> None:
    body = (
        ".reg .b32 %h<8>; .reg .f32 %a<8>;\n"
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%a0,%a1,%a2,%a3}, {%h0,%h1,%h2,%h3},"
        " {%h4,%h5}, {%a0,%a1,%a2,%a3};"
    )
    found = work(program(1, body))
    assert dict(found.units)["fp16"] == 2 * 16 * 8 * 16 * 4 * 4  # four warps in four CTAs


def test_packed_elements_take_what_ptxas_gives_them() -> None:
    """`ptxas -v` says 256 bytes for 64 elements of `.f16x2` (13.0, sm_80)."""
    text = program(static=1000).modules[0].variants[0].text
    packed = text.replace(".shared .align 16 .b8 tile[1000];", ".shared .align 4 .f16x2 tile[64];")
    assert packed != text
    module = parse_source(Source("packed.ptx", packed))
    assert static_shared_bytes(module, next(iter(module.kernels()))) == 256


def test_static_shared_memory_counts_and_bars() -> None:
    assert work(program(static=1000, dynamic=500)).shared_bytes == 1500
    large = program(static=40000, dynamic=90000)
    assert isinstance(cost(large, "a100"), Duration)
    barred = cost(large, "l40s")
    assert isinstance(barred, Barred)
    assert "130000 bytes of shared memory" in str(barred.reason)


def test_blocks_that_wait_for_each_other_must_fit_together() -> None:
    made = program(grid=20000)
    assert isinstance(cost(made, "h200"), Duration)
    graph = graph_of(made)
    waits = replace(graph.nodes[0], needs=(Need(NeedKind.WAIT, Wording("spins")),))
    barred = cost(made, "h200", replace(graph, nodes=(waits, *graph.nodes[1:])))
    assert isinstance(barred, Barred)
    assert "at most 2112 fit" in str(barred.reason)


def test_resident_ctas() -> None:
    gpu = {name: machine_of(name).cards[0].gpu for name in ("a100", "l40s", "h200")}
    assert resident_ctas(gpu["a100"], 1024, 0) == 2
    assert resident_ctas(gpu["l40s"], 1024, 0) == 1
    assert resident_ctas(gpu["h200"], 128, 100_000) == 2
    assert resident_ctas(gpu["l40s"], 128, 200_000) == 0
    assert resident_ctas(gpu["h200"], 256, 0, registers=160) == 1
    assert resident_ctas(gpu["h200"], 256, 0, registers=128) == 2


def test_times_grow_with_work_and_shrink_with_the_machine() -> None:
    gpu = machine_of("h200").cards[0].gpu
    small = work(program(10))
    times = [
        launch_ns(
            replace(
                small,
                ctas=4 * n,
                threads=512 * n,
                instructions=small.instructions * n,
                asked_bytes=small.asked_bytes * n,
            ),
            Traffic(),
            gpu,
            132,
        )
        for n in (1, 1000, 100_000)
    ]
    assert times[0] < times[1] < times[2]
    half = launch_ns(replace(small, ctas=400_000, threads=51_200_000), Traffic(), gpu, 66)
    whole = launch_ns(replace(small, ctas=400_000, threads=51_200_000), Traffic(), gpu, 132)
    assert whole < half
    assert launch_ns(small, Traffic(cold=1e9), gpu, 132) > 1e9 / gpu.memory_bandwidth * 1e9
    assert launch_ns(small, Traffic(warm=1e6), gpu, 132) == launch_ns(small, Traffic(), gpu, 132)


def test_registers_are_what_is_live_at_once() -> None:
    def registers(body: str) -> int:
        text = f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .pred %p<4>;
    .reg .f32 %f<200>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [p];
    {body}
    ret;
}}
"""
        module = parse_source(Source("k", text))
        (function,) = (item for item in module.items if isinstance(item, ptx.Function))
        return thread_code(function).registers

    loads = [f"ld.global.f32 %f{n}, [%rd1+{4 * n}];" for n in range(100)]
    stores = [f"st.global.f32 [%rd1+{4 * n}], %f{n};" for n in range(100)]
    together = registers("\n".join(loads + stores))
    in_turn = registers(
        "\n".join(line for pair in zip(loads, stores, strict=True) for line in pair)
    )
    assert 85 <= together <= 110
    assert in_turn < 15
    # What a loop reads again stays live through all of it.
    kept = "\n".join(loads) + "\nL: add.f32 %f150, %f150, %f1;\nsetp.lt.f32 %p1, %f150, %f2;\n"
    assert registers(kept + "@%p1 bra L;\n" + "\n".join(stores)) >= together
