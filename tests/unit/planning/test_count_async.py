"""Work that one thread issues for many: `tcgen05`, bulk copies, elected lanes, waits; and bars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.diagnostics import Source
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, LaunchId, ModuleId, Scalar
from tessera.planning.prices.count_work import count_work
from tessera.planning.prices.device_model import SUSTAINED, Traffic, launch_ns
from tessera.planning.prices.estimate_costs import error_of
from tessera.planning.prices.work_effects import descriptor_shape

TEXT = """.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u32 n)
{
    .reg .pred %p<20>;
    .reg .b32 %r<60>;
    .reg .b64 %rd<20>;
    .reg .f32 %f<4>;
    ld.param.u32 %r1, [n];
    BODY
    ret;
}
"""
ELECTED = """
    mov.u32 %r2, %tid.x;
    shr.u32 %r3, %r2, 5;
    shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;
    setp.ne.s32 %p1, %r4, WARP;
    @%p1 bra DONE;
    elect.sync %r5|%p2, -1;
    mov.u32 %r6, 0;
LOOP:
    WORK
    add.s32 %r6, %r6, 1;
    setp.lt.s32 %p3, %r6, %r1;
    @%p3 bra LOOP;
DONE:
"""
WAIT = """
    {
    .reg .pred complete;
    waitLoop:
    mbarrier.try_wait.parity.shared.b64 complete, [%r10], %r11;
    @!complete bra.uni waitLoop;
    }
"""


def work(body: str, n: int, threads: int = 192, ctas: int = 3) -> LaunchWork:
    module = parse_source(Source("async.ptx", TEXT.replace("BODY", body)))
    launch = Launch(
        id=LaunchId(0),
        module=ModuleId(0),
        kernel="k",
        grid=(ctas, 1, 1),
        block=(threads, 1, 1),
        arguments=(Scalar(DataType.U32, n),),
    )
    found = count_work(module, launch)
    assert found is not None
    return found


@pytest.mark.parametrize("warp", [0, 3, 5])
@pytest.mark.parametrize(
    ("kind", "unit", "depth"),
    [("kind::f16", "bf16", 16), ("kind::tf32", "tf32", 8), ("kind::f8f6f4", "fp8", 32)],
)
def test_one_elected_thread_issues_for_the_block(
    warp: int, kind: str, unit: str, depth: int
) -> None:
    descriptor = (128 // 16) << 24 | (256 // 8) << 17 | 0x490
    step = f"""mov.b32 %r20, {descriptor};
    @%p2 tcgen05.mma.cta_group::1.{kind} [ %r21 + 0 ], %rd1, %rd2, %r20, %p4;"""
    found = work(ELECTED.replace("WARP", str(warp)).replace("WORK", step), 5000)
    assert descriptor_shape(descriptor) == 128 * 256
    assert dict(found.units) == {unit: pytest.approx(2.0 * 128 * 256 * depth * 5000 * 3)}
    assert found.sure


def test_an_unknown_descriptor_is_not_sure() -> None:
    step = """ld.global.b32 %r20, [%rd1];
    @%p2 tcgen05.mma.cta_group::1.kind::f16 [ %r21 + 0 ], %rd1, %rd2, %r20, %p4;"""
    assert not work(ELECTED.replace("WARP", "0").replace("WORK", step), 10).sure


def test_bulk_copies_count_what_they_announce() -> None:
    step = """@%p2 mbarrier.arrive.expect_tx.shared.b64 _, [%r10], 16384;
    @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r12], [%rd3, {%r6, %r7}], [%r10];"""
    found = work(ELECTED.replace("WARP", "4").replace("WORK", step), 700)
    assert found.asked_bytes == pytest.approx(16384 * 700 * 3)
    assert found.shared_traffic == pytest.approx(16384 * 700 * 3)
    assert found.sure


def test_waits_end_and_are_counted_apart_from_barriers() -> None:
    body = f"mov.u32 %r6, 0;\nL:{WAIT}{WAIT}\n add.s32 %r6, %r6, 1;\n setp.lt.s32 %p3, %r6, %r1;\n"
    found = work(body + "@%p3 bra L;", 90_000)
    assert (found.chain_waits, found.chain_barriers) == (2 * 90_000, 0)
    assert found.sure


def test_blocks_whose_work_is_far_from_even_are_not_sure() -> None:
    """One block in a thousand does everything: whoever draws a few cannot know."""
    body = """mov.u32 %r2, %ctaid.x;
    mul.lo.s32 %r3, %r2, 7919;
    rem.u32 %r4, %r3, 101;
    setp.gt.u32 %p1, %r4, 3;
    @%p1 bra DONE;
    mov.u32 %r6, 0;
L:  add.f32 %f1, %f1, %f1;
    add.s32 %r6, %r6, 1;
    setp.lt.s32 %p3, %r6, %r1;
    @%p3 bra L;
DONE:"""
    assert not work(body, 100_000, ctas=1010).sure


def test_work_that_grows_along_the_grid_is_exact() -> None:
    body = """mov.u32 %r2, %ctaid.x;
    mov.u32 %r6, 0;
L:  add.f32 %f1, %f1, %f1;
    add.s32 %r6, %r6, 1;
    setp.le.s32 %p3, %r6, %r2;
    @%p3 bra L;"""
    found = work(body, 1, threads=32, ctas=5000)
    assert dict(found.units)["fp32"] == pytest.approx(32 * 5000 * 5001 / 2)
    assert found.sure


def test_bars_hold_for_gpus_without_measurements() -> None:
    gpus = {name: machine_of(name).cards[0].gpu for name in ("h200", "a100", "b200")}
    assert error_of(1e6, gpus["h200"]) < error_of(1e6, gpus["a100"]) <= error_of(1e4, gpus["a100"])
    assert error_of(0.0, gpus["b200"]) < 30


def test_parts_of_the_sheet_that_tables_give() -> None:
    """Memory-bound work takes what its GPU reaches; other GPUs take the fitted part."""
    gpu = machine_of("l40s").cards[0].gpu
    assert gpu.key in SUSTAINED
    small = work("add.f32 %f1, %f1, %f1;", 1)
    known = launch_ns(small, Traffic(cold=1e9), gpu, gpu.sms)
    other = launch_ns(small, Traffic(cold=1e9), replace(gpu, key="other"), gpu.sms)
    assert known == pytest.approx(1e18 / gpu.memory_bandwidth / SUSTAINED["l40s"].memory, rel=0.01)
    assert other < known
