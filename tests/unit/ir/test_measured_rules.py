"""Recorded verdicts of ptxas on single statements: none that it takes is refused, most others are.

In: `tests/data/opcodes/verdicts.txt`. Out: nothing; the floor is what the rules reach today.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.reading.statements import features, in_kernel, module_head, name_of
from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import load_module
from tessera.ir.opcodes.families.measured import RULES
from tessera.ir.opcodes.rules import operand_class, read_rule, rules_for, targets_of
from tessera.ir.ptx import syntax as ptx

PULL = (
    "fabric.try_pullred.async.multimem.shared::cta.mbarrier::complete_tx::bytes"
    ".mbarrier::report::fabric.relaxed.sys.add.u32.sync"
)
MMA, QUAD = "tcgen05.mma.cta_group::1", "{%r5, %r6, %r7, %r8}"
DROP = "mbarrier.arrive_drop.relaxed.cluster.multicast::cluster::32b.b64"
REPLACE = "tensormap.replace.tile.global_stride.global.b1024.b64"
STRAY = "mma.sync.aligned.m16n8k32.row.col.kind::mxf4.f16.e5m2.e4m3.f16 {%r1, %r2}"
RECORDED = Path(__file__).parents[2] / "data" / "opcodes" / "verdicts.txt"
FLOOR = 0.985
_TILE = "{%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f5, %f6, %f7, %f8};"
FP8_TILE = f"f8f6f4.f32.e4m3.e5m2.f32 {_TILE}"
FP4_TILE = f"f8f6f4.f32.e2m1.e2m1.f32 {_TILE}"
NOW = ("sm_100a", "9.4")
PREFETCHED = "cp.async.bulk.prefetch.tensor.3d.L2.global"
SMALL_TILE = "m64n8k32.s32.s8.u8 {%r0}, %rd1, %rd2, 1;"
BULK_SUM = "shared::cta.bulk_group"
TENSOR_STORE = "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r0, %r1}],"
SCALED = "block_scale [%r0], %rd1, %rd2, %r3, [%r4], [%r5], %p0;"
SPARSE_TILE = (
    "f32.tf32.tf32.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r5, %r6}, {%f5, %f6, %f7, %f8}, %r9"
)


def is_refused(statement: str, target: str, version: str) -> bool:
    """Whether Tessera refuses the statement on its own line."""
    lines = [*module_head(target, version), ".entry kernel(.param .b64 pointer) {"]
    text = "\n".join([*lines, in_kernel(statement), "}"]) + "\n"
    try:
        load_module(Source("statement", text))
    except TesseraError as failure:
        return summarise(failure.diagnostics[0]).startswith("statement:5:")
    return False


def test_verdicts_are_those_of_ptxas() -> None:
    rows = [line.split(" ", 3) for line in RECORDED.read_text().splitlines()[1:]]
    taken = [row for row in rows if row[2] == "taken"]
    refused = [row for row in rows if row[2] == "refused"]
    assert len(taken) > 100
    assert [row for row in taken if is_refused(row[3], row[0], row[1])] == []
    share = sum(is_refused(row[3], row[0], row[1]) for row in refused) / len(refused)
    assert share >= FLOOR


@pytest.mark.parametrize(
    ("line", "target", "version", "refused"),
    [
        ("multimem.red.add.v2.f32 [%rd1], {%f1, %f2};", "sm_90", "8.1", False),
        ("multimem.red.add.v2.f32 [%rd1], %f1;", "sm_90", "8.1", True),
        ("multimem.red.min.bf16x2 [%rd1], %r1;", "sm_90", "8.1", True),
        ("multimem.st.v2.f16 [%rd1], {%rs1, 1};", "sm_90", "8.1", False),
        ("multimem.st.e5m2x4 [%rd1], 255;", "sm_100a", "9.4", False),
        ("multimem.ld_reduce.add.e4m3x4 %f1, [%rd1];", "sm_100a", "9.4", False),
        ("multimem.ld_reduce.weak.add.u32 %r1, [%rd1];", "sm_90", "8.1", False),
        ("multimem.ld_reduce.weak.relaxed.cta.add.u32 %r1, [%rd1];", "sm_90", "8.1", True),
        ("red.async.release.gpu.global.add.s64 [%rd1], %rd2;", "sm_100", "8.7", False),
        ("red.async.mmio.release.gpu.global.add.u32 [%rd1], %r2;", "sm_100", "8.7", True),
        ("st.async.mbarrier::complete_tx::bytes.b128 [%rd1], %rq2, [%rd2];", "sm_90", "9.2", False),
        ("st.async.mbarrier::complete_tx::bytes.b128 [%rd1], %rq2, [%rd2];", "sm_90", "9.1", True),
        ("cp.async.bulk.prefetch.tensor.2d.L2.global [%rd1, {%r1, %r2}];", "sm_90", "8.0", False),
        ("cp.async.bulk.prefetch.tensor.3d.L2.global [%rd1, {%r1, %r2}];", "sm_90", "8.0", True),
        (f"{PREFETCHED}.im2col [%rd1, {{%r1, %r2, %r3}}], {{%rs1}};", "sm_90", "8.0", False),
        (f"{PREFETCHED}.im2col [%rd1, {{%r1, %r2, %r3}}], {{%rs1, %rs2}};", "sm_90", "8.0", True),
        (
            f"{PREFETCHED}.im2col::w [%rd1, {{%r1, %r2, %r3}}], {{%rs1, %rs2}};",
            "sm_90",
            "9.4",
            True,
        ),
        ("mbarrier.test_wait.parity.phase_type::primary.b64 %p1, [%rd1], %r1;", *NOW, False),
        ("mbarrier.test_wait.parity.phase_type::primary.b64 %p1, [%rd1], %rd2;", *NOW, True),
        ("mbarrier.test_wait.phase_type::primary.b64 %p1|%p2, %rc1, [%rd1], %rd2;", *NOW, False),
        ("mbarrier.test_wait.phase_type::primary.b64 %p1|%p2, %rd1, [%rd1], %rd2;", *NOW, True),
        ("cvt.sat.u32.u16 %r1, %rs1;", "sm_60", "6.0", True),
        ("cvt.sat.u16.u32 %rs1, %r1;", "sm_60", "6.0", False),
        ("brx.idx %r1, %r2;", "sm_90", "8.0", True),
        ("call %rd1;", "sm_90", "8.0", True),
        ("tcgen05.wait::ld.sync.aligned;", "sm_120a", "9.4", True),
        ("tcgen05.wait::ld.sync.aligned;", "sm_103f", "8.8", False),
        ("wgmma.fence.sync.aligned;", "sm_100a", "9.4", True),
        ("wgmma.fence.sync.aligned;", "sm_90a", "8.0", False),
        ("cvt.rn.bf16x2.e4m3x2 %r1, %rs1;", "sm_100a", "9.1", True),
        ("cvt.rn.bf16x2.e4m3x2 %r1, %rs1;", "sm_100a", "9.2", False),
        ("cvt.rn.satfinite.e5m2x2.bf16x2 %rs1, %r1;", "sm_120f", "9.0", True),
        ("cvt.rn.satfinite.e5m2x2.bf16x2 %rs1, %r1;", "sm_120f", "9.1", False),
        ("cvt.rn.satfinite.e3m2x2.f16x2 %rs1, %r1;", "sm_103a", "9.0", True),
        ("cvt.rn.satfinite.e4m3x2.f16x2 %rs1, %r1;", "sm_90", "7.8", False),
        ("shfl.up.b32 %r1, %r2, %r3, %r4;", "sm_70", "6.4", True),
        ("shfl.up.b32 %r1, %r2, %r3, %r4;", "sm_70", "6.3", False),
        ("shfl.idx.b32 %r1, %r2, 1, 31;", "sm_75", "7.6", True),
        ("shfl.bfly.b32 %r1|%p1, %r2, 1, 31;", "sm_72", "6.4", True),
        ("shfl.down.b32 %r1, %r2, 1, 31;", "sm_80", "9.4", True),
        ("shfl.down.b32 %r1, %r2, 1, 31;", "sm_62", "7.6", False),
        ("shfl.idx.b32 %r1, %r2, 1, 31;", "sm_75", "6.3", False),
        ("vote.any.pred %p1, %p2;", "sm_75", "6.4", True),
        ("vote.any.pred %p1, %p2;", "sm_70", "6.3", False),
        ("vote.uni.pred %p1, %p2;", "sm_62", "8.0", False),
        ("vote.ballot.b32 %r1, %p2;", "sm_13", "2.0", True),
        ("vote.ballot.b32 %r1, %p2;", "sm_72", "6.3", False),
        ("fabric.submit;", "sm_100a", "9.4", False),
        ("fabric.submit;", "sm_90", "9.4", True),
        ("fabric.submit.commit_group;", "sm_100a", "9.4", True),
        ("fabric.submit.commit_group;", "sm_100a", "9.5", False),
        ("fabric.wait.sync_restrict::reads 1;", "sm_100a", "9.4", False),
        ("fabric.wait.sync_restrict::read 1;", "sm_100a", "9.4", True),
        ("fabric.wait.sync_restrict::read;", "sm_100a", "9.5", True),
        ("fence.proxy.fabric::generic.alias.acquire.sys;", "sm_120a", "9.4", False),
        ("fence.proxy.fabric::generic.alias.acq_rel.shared.gpu;", "sm_120a", "9.4", False),
        ("fence.alias.release.sync_restrict::read.sys;", "sm_90", "9.5", False),
        ("fence.alias.release.sync_restrict::reads.sys;", "sm_90", "9.5", True),
        ("fence.acquire.sync_restrict::reads.sys;", "sm_107a", "9.5", True),
        ("fence.acq_rel.op_restrict::fetching.sys;", "sm_107a", "9.5", True),
        ("fence.proxy.async::generic.acq_rel.gpu;", "sm_90", "8.3", False),
        ("fence.proxy.async::generic.acq_rel.gpu;", "sm_89", "8.3", True),
        ("fence.proxy.alias.sync_restrict::shared::cta;", "sm_90", "8.6", False),
        ("fence.proxy.alias.sync_restrict::shared::cta;", "sm_89", "8.6", True),
        ("fence.proxy.alias.release.sys;", "sm_103", "9.3", True),
        ("fence.proxy.alias.release.sys;", "sm_103", "9.4", False),
        ("mov.u32 %r1, %locality_domain_id;", "sm_100", "9.5", False),
        ("mov.u32 %r1, %locality_domain_id;", "sm_100", "9.4", True),
        ("mov.u32 %r1, %locality_domain_id;", "sm_90", "9.5", True),
        ("cp.async.bulk.wait_group.sync_restrict::proxy::async 1;", "sm_90", "9.5", False),
        ("cp.async.bulk.wait_group.sync_restrict::proxy::async 1;", "sm_90", "9.4", True),
        ("cp.async.bulk.wait_group.read.sync_restrict::proxy::async 1;", "sm_90", "9.5", True),
        ("st.async.shared.mbarrier::complete_tx::bytes.s16 [%rd1], %rs1;", "sm_90", "8.1", False),
        ("st.async.mbarrier::complete_tx::bytes.b8 [%rd1], %rs1;", "sm_90", "8.1", True),
        ("st.async.mbarrier::complete_tx::bytes.u8 [%rd1], 8, [%rd2];", "sm_90", "8.1", True),
        ("mbarrier.arrive_drop.shared::cta.b64 %rd1, [%r1], 1;", "sm_90", "8.0", False),
        ("mbarrier.arrive_drop.shared::cta.b64 %rd1, [%r1], 0;", "sm_90", "8.0", True),
        (f"{DROP} %rd1, [%rd2], 0;", "sm_107a", "9.5", False),
        (f"{DROP} %rd1, [%rd2], 0, 3;", "sm_107a", "9.5", True),
        ("multimem.red.async.release.sys.add.u32.acc::f16 [%rd1], %r1;", "sm_100", "9.3", False),
        ("multimem.st.async.release.gpu.b64.acc::f16 [%rd1], %rd2;", "sm_100", "9.3", False),
        ("multimem.st.async.release.gpu.b64 [%rd1], {%r1, %r2};", "sm_100", "9.3", True),
        (f"{PULL} [%rd1], [%r2, %rd2], 16, [%r4], 0xFFFFFFFF;", "sm_107a", "9.4", False),
        (f"{PULL} %r1, [%r2, %rd2], %r3, [%r4], -1;", "sm_107a", "9.4", False),
        (f"{PULL} [%rd1], [%r2, %rd2], 16, [%r4], 5;", "sm_107a", "9.4", True),
        (f"{PULL} [%rd1], [%r2, %rd2], 16, [%r4], %r5;", "sm_107a", "9.4", True),
        (f"{MMA}.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, 15;", "sm_100a", "8.6", False),
        (f"{MMA}.kind::f16 [%r1], %rd1, %rd2, %r2, %p1, 16;", "sm_100a", "8.6", True),
        (f"{MMA}.kind::tf32 [%r1], %rd1, %rd2, %r2, %p1, 1;", "sm_110a", "9.5", True),
        (f"{MMA}.kind::f16 [%r1], %rd1, %rd2, %r2, {QUAD}, 77, 1;", "sm_100a", "8.6", False),
        (f"{MMA}.kind::f16 [%r1], %rd1, %rd2, %r2, {QUAD}, %p1, 77;", "sm_100a", "8.6", True),
        (f"{MMA}.kind::f8f6f4 [%r1], %rd1, %rd2, %r2, %p1, 1;", "sm_100a", "9.5", True),
        (f"{REPLACE} [%rd1], 4, %rd2;", "sm_107a", "9.5", False),
        (f"{REPLACE} [%rd1], 5, %rd2;", "sm_107a", "9.5", True),
        (f"{STRAY}, {{%r5, %r6, %r7, %r8}}, {{%r9, %r10}}, {{%r1, %r2}};", "sm_100a", "8.7", False),
        (f"{STRAY}, {{%r5, %r6, %r7, %r8}}, {{%r9, %r10}}, {{%r1, %r2}};", "sm_89", "8.7", True),
        ("trace.mark 4095;", "sm_107f", "9.5", False),
        ("trace.mark 4096;", "sm_107f", "9.5", True),
        ("trace.mark 1;", "sm_107", "9.5", True),
        ("prefetch.global.L1::32B.valid_addr [%rd1];", "sm_90", "9.4", False),
        ("ld.volatile.shared.v4.u32 {%r1, %r2, %r3, %r4}, [%r5];", "sm_10", "1.4", False),
        ("ld.volatile.global.s16 %rs1, [%rd1];", "sm_11", "1.5", False),
        ("st.global.v4.s32 [%rd1], {%r1, %r2, %r3, %r4};", "sm_10", "1.4", False),
        ("ld.volatile.u32 %r1, [%rd1];", "sm_13", "1.5", True),
        ("ld.u32 %r1, [%rd1];", "sm_20", "2.0", False),
        ("ld.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1];", "sm_90", "9.4", True),
        ("ld.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1];", "sm_100", "8.8", False),
        ("ld.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd5];", "sm_100", "8.8", False),
        (
            "ld.v8.b64 {%rd1, %rd2, %rd3, %rd4, %rd1, %rd2, %rd3, %rd4}, [%rd5];",
            "sm_100",
            "9.4",
            True,
        ),
        ("ld.global.L2::evict_last.b32 %r1, [%rd1];", "sm_100", "9.4", True),
        ("ld.ca.L1::evict_last.b32 %r1, [%rd1];", "sm_90", "9.4", True),
        ("ld.global.u32 %r1, [%rd1].unified;", "sm_90", "9.4", False),
        ("atom.add.u32 %r1, [%rd1], %r2, %r3;", "sm_90", "9.4", True),
        ("atom.exch.b32 %r1, [%rd1], %r2, %r3;", "sm_90", "9.4", False),
        ("atom.global.v2.f32.min {%f1, %f2}, [%rd1], {%f3, %f4};", "sm_90", "9.4", True),
        ("min.u32 %r1, %r2, %r3, %r4;", "sm_100", "9.4", True),
        ("min.f32 %f1, %f2, %f3, %f4;", "sm_100", "9.4", False),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r1, [%r2];", "sm_90", "9.4", True),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];", "sm_90", "9.4", False),
        ("wmma.load.a.sync.aligned.row.m8n8k32.s4 {%r0}, [%rd1];", "sm_75", "6.3", False),
        ("wmma.load.a.sync.aligned.row.m8n8k32.s4 %r0, [%rd1];", "sm_75", "6.3", True),
        ("cvt.rm.satfinite.f16.f32 %rs1, %f2;", "sm_100", "9.4", True),
        ("cvt.rn.ftz.sat.f16.f32 %rs1, %f2;", "sm_60", "5.0", False),
        ("set.ls.f16.s64 %rs1, %rd2, %rd3;", "sm_90", "9.4", True),
        ("atom.xor.b32 %r1, [%rd1], %r2, %r3;", "sm_90", "9.4", False),
        ("red.global.and.b32 [%rd1], %r1;", "sm_11", "1.4", False),
        ("atom.shared.max.u32 %r1, [%rd1], %r2;", "sm_12", "1.5", False),
        ("atom.max.u32 %r1, [%rd1], %r2;", "sm_13", "1.5", True),
        ("set.lt.f16.s32 %rs1, %r2, %r3;", "sm_60", "5.0", False),
        ("set.lt.s32.f16 %r1, %rs2, %rs3;", "sm_60", "5.0", True),
        (
            "ld.shared.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%r1];",
            "sm_100",
            "9.4",
            True,
        ),
        ("min.abs.f32 %f1, %f2, %f3;", "sm_100", "9.4", True),
        ("add.u32 %r1, %tid.x, %r2;", "sm_90", "9.4", True),
        ("add.u32 %r1|%p1, %r2, %r3;", "sm_90", "9.4", True),
        ("elect.sync %r1, 0xffffffff;", "sm_90", "9.4", True),
        ("elect.sync _|%p1, 0xffffffff;", "sm_90", "9.4", False),
        ("atom.global.add.u32 _, [%rd1], %r2;", "sm_90", "9.4", False),
        ("lop3.b32 _, %r1, %r2, %r3, 0x80;", "sm_90", "9.4", False),
        ("bar.sync 1, 48;", "sm_90", "9.4", True),
        ("bar.red.popc.u32 %r1, 1, 64, !%p1;", "sm_90", "9.4", False),
        ("vmad.s32.s32.u32 %r1, %r2.b0, -%r3, %r4;", "sm_90", "9.4", False),
        ("vadd.s32.s32.s32.min %r1, %r2, %r3;", "sm_90", "9.4", True),
        ("vadd2.s32.s32.s32 %r1, %r2, %r3, 1;", "sm_90", "9.4", True),
        ("mbarrier.try_wait.acquire.shared::cta.b64 %p1, [%r1], %rd1;", "sm_90", "9.4", True),
        ("mbarrier.try_wait.acquire.cta.shared::cta.b64 %p1, [%r1], %rd1;", "sm_90", "9.4", False),
        ("mbarrier.arrive.shared::cluster.b64 %rd1, [%r1];", "sm_90", "9.4", True),
        ("mbarrier.arrive_drop.shared::cluster.b64 _, [%r1], 3;", "sm_90", "9.4", False),
        (f"wgmma.mma_async.sync.aligned.{SMALL_TILE}", "sm_90a", "9.4", True),
        ("tcgen05.ld.sync.aligned.16x256b.x1.b32 {%r0, %r1}, [%r2];", "sm_100a", "9.4", True),
        ("tcgen05.ld.sync.aligned.16x64b.x2.b32 {%r0, %r1}, [%r2];", "sm_100a", "9.4", False),
        (f"tcgen05.mma.cta_group::1.kind::f16.{SCALED}", "sm_100a", "9.4", True),
        (
            f"cp.reduce.async.bulk.global.{BULK_SUM}.and.u32 [%rd1], [%r1], %r2;",
            "sm_90",
            "9.4",
            True,
        ),
        ("mad.f32 %f1, %f2, %f3, %f4;", "sm_20", "3.1", False),
        ("mad.f32 %f1, %f2, %f3, %f4;", "sm_20", "3.2", True),
        ("atom.shared::cta.add.L2::cache_hint.u32 %r1, [%rd1], %r2, %rd3;", "sm_90", "9.4", True),
        ("cvt.rzi.s8.bf16 %rc1, %rs2;", "sm_90", "7.8", False),
        ("cvt.rzi.s8.bf16 %rs1, %rs2;", "sm_90", "7.8", True),
        ("cvt.rn.bf16.u8 %rs1, %rc2;", "sm_89", "9.4", True),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::{FP8_TILE}", "sm_120f", "8.8", False),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::{FP8_TILE}", "sm_110a", "9.0", False),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::{FP8_TILE}", "sm_100", "9.4", True),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::{FP4_TILE}", "sm_120f", "8.8", False),
        (f"mma.sync.aligned.m16n8k32.row.col.kind::{FP4_TILE}", "sm_100a", "9.4", True),
        (f"mma.sp.sync.aligned.m16n8k8.row.col.{SPARSE_TILE}, 3;", "sm_80", "7.1", False),
        (f"mma.sp.sync.aligned.m16n8k8.row.col.{SPARSE_TILE}, 4;", "sm_80", "7.1", True),
        ("mov.u32 %r1, %clusterid.x;", "sm_90", "7.8", False),
        ("mov.u32 %r1, %clusterid.x;", "sm_89", "7.8", True),
        ("mov.u64 %rd1, %current_graph_exec;", "sm_50", "7.8", True),
        ("fence.proxy.tensormap::generic.acquire.gpu [%rd1], 64;", "sm_90", "9.4", True),
        ("ld.shared.L2::64B.u32 %r1, [%r2];", "sm_90", "9.4", True),
        ("ld.const.ca.u32 %r1, [k];", "sm_90", "9.4", False),
        ("st.volatile.local.u32 [%r1], %r2;", "sm_90", "9.1", False),
        (
            f"cp.reduce.async.bulk.global.{BULK_SUM}.relaxed.gpu.add.u32 [%rd1], [%rd2], 16;",
            "sm_90",
            "9.3",
            False,
        ),
        (
            f"cp.reduce.async.bulk.global.{BULK_SUM}.relaxed.gpu.add.u32 [%rd1], [%rd2], 16;",
            "sm_90",
            "9.2",
            True,
        ),
        (f"{TENSOR_STORE} %r2;", "sm_90", "8.0", False),
        (f"{TENSOR_STORE} 1.5;", "sm_120a", "9.4", False),
        (f"{TENSOR_STORE} 1;", "sm_120a", "9.4", True),
        (f"{TENSOR_STORE} {{%r1, %r2}};", "sm_120a", "9.4", True),
        ("red.add.u32 _, %r2;", "sm_90", "9.4", False),
        ("red.add.u32 s, %r2;", "sm_90", "9.4", True),
        ("mbarrier.arrive.b64 %rd1, [%rd2], {%r8, %r9};", "sm_90", "9.4", False),
        ("mbarrier.arrive.expect_tx.b64 %rd1, [%rd2], {%r8, %r9};", "sm_90", "9.4", True),
        ("st.async.sys.global.b32 [%rd1], %r2;", "sm_100", "8.7", False),
        ("st.async.sys.global.b32 [%rd1], %r2;", "sm_90", "9.4", True),
        ("red.async.relaxed.gpu.add.u32 [%rd1], %r2;", "sm_90", "8.1", False),
        ("red.async.release.gpu.global.add.s64 [%rd1], %rd2, [%rd2];", "sm_110a", "9.0", True),
        ("multimem.red.release.sys.global.add.bf16x2 [%rd9, {%r8}], %r1;", "sm_90", "9.4", True),
        ("fence.async.acq_rel.cta;", "sm_90", "8.0", False),
        ("fence.proxy.async::generic.acq_rel.gpu [%rd1], 128;", "sm_90", "8.3", False),
        ("fence.proxy.alias.sync_restrict::shared::cluster;", "sm_80", "8.6", True),
        ("tcgen05.wait::ld.sync.aligned.b8x16.b6x16_p32.b2;", *NOW, False),
        ("tcgen05.wait::ld.sync.aligned.b8x16.b6x16_p32.b4x16_p64;", *NOW, True),
        ("txq.width.b32 %r1, [%rd2];", "sm_12", "3.1", True),
        (
            "tld4.r.cube.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd5, {%f6, %f7, %f8, %f8}];",
            "sm_30",
            "4.2",
            True,
        ),
        ("wmma.load.c.sync.row.m16n16k16.f16 {%r0, %r1, %r2, %r3}, [%rd1];", "sm_70", "6.2", False),
        ("wmma.load.c.sync.row.m16n16k16.f16 {%r0, %r1, %r2, %r3}, [%rd1];", "sm_70", "6.3", True),
    ],
)
def test_targets_and_versions(line: str, target: str, version: str, *, refused: bool) -> None:
    assert is_refused(line, target, version) is refused


def test_every_rule_can_be_read_and_names_targets() -> None:
    lines = re.sub(r"\n +", " ", RULES).strip().splitlines()
    assert len(lines) == len(set(lines))
    for line in lines:
        rule = read_rule(line)
        for name in line.partition("|")[0].split():
            assert rule in rules_for(tuple(name.split(".")))
        assert all(place.targets for place in rule.places), line
        assert all(targets_of(word) for word in re.findall(r"sm_\w+\+?", line))


@pytest.mark.parametrize(
    ("values", "taken", "refused"),
    [
        ("0:24..256/8", (24, 32, 256), (16, 25, 28, 264)),
        ("0:4,8,16", (4, 8, 16, 2**40), (0, 5, 32)),
        ("0:1..", (1, 2**31), (0, -1)),
    ],
)
def test_constants_are_compared_by_value(
    values: str, taken: tuple[int, ...], refused: tuple[int, ...]
) -> None:
    limit = read_rule(f"bar | | {values}").values
    assert limit is not None
    for value in (*taken, *refused):
        assert limit.holds((ptx.Integer(str(value), value),)) is (value in taken), value
    assert limit.holds((ptx.Name("%r1"),))
    assert limit.holds(())


def test_a_constant_out_of_range_is_found_behind_one_in_range() -> None:
    lines = [*module_head("sm_90", "8.0"), ".entry kernel() {", "bar.sync 1;", "bar.sync 16;", "}"]
    with pytest.raises(TesseraError) as refusal:
        load_module(Source("statement", "\n".join(lines)))
    assert summarise(refusal.value.diagnostics[0]).startswith("statement:6:10: error[TSR1028]")


def test_names_and_features() -> None:
    assert operand_class("f16x2") == operand_class("=global") == operand_class("{b32,_}") == "?"
    assert operand_class("!pred") == "pred"
    assert operand_class("{u32,s32}") == "{b32*2}"
    assert name_of("shfl.bfly.sync.b32 %r1, %r2, 1, 31, -1;") == ("shfl", "sync")
    assert features("mov.sat.sat.u32 %r1, %clusterid.x;") == {
        *("sat", "sat*2", "u32", "#2", "0=b32", "1=%", "1=%clusterid")
    }
