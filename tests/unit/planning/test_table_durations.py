"""Plans with times from tables: which steps, which source, what a hint and a profile change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.frontend.machine.tables import read_tables
from tessera.ir.plan.costs import CostSource, Duration
from tessera.ir.plan.tables import TableKind
from tests.helpers.command import tessc

CALLS = """//! tessera.trace 1
//! buffer x bytes=65536 role=input
//! buffer w bytes=33554432 role=weight
//! buffer y bytes=65536 role=output
//! buffer q bytes=65536 role=input
//! buffer k bytes=33554432 role=state
//! buffer v bytes=33554432 role=state
//! buffer o bytes=65536 role=output
//! op aten::linear reads=[x:bf16[8,4096], w:bf16[4096,4096]] writes=[y:bf16[8,4096]]
//! op aten::relu reads=[x:bf16[8,4096]] writes=[y:bf16[8,4096]]
//! op aten::scaled_dot_product_attention reads=[q:bf16[8,32,1,128], k:bf16[8,8,2048,128], \
v:bf16[8,8,2048,128]] writes=[o:bf16[8,32,1,128]] attrs={"enable_gqa": true}
"""

KERNEL = """//! tessera.trace 1
//! buffer x bytes=131072 role=input
//! buffer w bytes=131072 role=weight
//! buffer y bytes=131072 role=output
//! module m
.version 8.0
.target sm_80
.address_size 64
.visible .entry product(.param .u64 x, .param .u64 w, .param .u64 y, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<8>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [w];
    ld.param.u64 %rd3, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r2, 256, %r3;
    mul.wide.u32 %rd4, %r4, 2;
    add.s64 %rd1, %rd1, %rd4;
    add.s64 %rd2, %rd2, %rd4;
    add.s64 %rd3, %rd3, %rd4;
    mov.f32 %f1, 0f00000000;
    mov.u32 %r5, 0;
LOOP:
    ld.global.b16 %h1, [%rd1];
    ld.global.b16 %h2, [%rd2];
    cvt.f32.f16 %f2, %h1;
    cvt.f32.f16 %f3, %h2;
    fma.rn.f32 %f1, %f2, %f3, %f1;
    add.s32 %r5, %r5, 1;
    setp.lt.s32 %p1, %r5, %r1;
    @%p1 bra LOOP;
    cvt.rn.f16.f32 %h3, %f1;
    st.global.b16 [%rd3], %h3;
    ret;
}
//! launch m.product grid=256,1,1 block=256,1,1 work=HINT args=[x, w, y, u32:256]
"""


def planned(
    tmp_path: Path,
    text: str,
    gpus: str = "a100,l40s",
    *profiles: str,
    library: str | None = None,
) -> PlanReport:
    path = tmp_path / "trace.ptx"
    path.write_text(text)
    options = PlanOptions(
        gpus=gpus, objective="latency", strategy="single", profiles=profiles, library=library
    )
    return plan(path, options, compare=False)  # steps of a plan in parts would be others


def cost(report: PlanReport, step: int, device: int) -> Duration:
    found = report.setting.costs[0].steps[step].on_device[device]
    assert isinstance(found, Duration)
    return found


def test_calls_have_the_times_of_their_rows(tmp_path: Path) -> None:
    report = planned(tmp_path, CALLS)
    for device, gpu in enumerate(("a100-80g-sxm", "l40s")):
        tables = read_tables(gpu, TableKind.GEMM)
        rows = next(r for r in tables if r.version == "0.14.0" and r.fixed == ("bfloat16",))
        product = cost(report, 0, device)
        assert product.source is CostSource.TABLE
        assert product.ns == pytest.approx(rows.ns[rows.sizes.index((8, 4096, 4096))])
        assert product.origin == "vllm 0.14.0, gemm m=8 n=4096 k=4096 bfloat16"
        assert 0.05 < product.error < 0.6  # also of other libraries
        assert cost(report, 1, device).source is CostSource.SHEET
        assert cost(report, 2, device).source is CostSource.TABLE
    assert dict(report.sources)[CostSource.TABLE] == 4
    assert {step.source for step in report.plan.replicas[0].traces[0].steps} == {"table", "sheet"}


def test_no_step_is_faster_than_its_bytes_from_memory(tmp_path: Path) -> None:
    # The L40S table was measured with these 67 MB in L2; two buffers of them are in no cache here.
    attention = cost(planned(tmp_path, CALLS), 2, 1)
    assert attention.ns > 2 * 8 * 8 * 2048 * 128 * 2 / 864e9 * 1e9
    assert "from memory" in attention.origin


def test_slices_other_gpus_and_no_tables_have_the_model(tmp_path: Path) -> None:
    report = planned(tmp_path, CALLS, "l40s:71sm,l40s:71sm,t4")
    assert {source for source, _ in report.sources} == {CostSource.SHEET}
    path = str(tmp_path / "trace.ptx")
    shown = tessc("plan", path, "--gpus", "a100,l40s", "--no-tables", "-o", str(tmp_path / "p.tsp"))
    assert shown.code == 0
    assert "durations: 6 from sheet" in shown.text
    assert "tables=none" in (tmp_path / "p.tsp").read_text()


def test_a_slice_takes_as_long_as_its_gpu_and_what_the_model_adds(tmp_path: Path) -> None:
    beside = planned(tmp_path, CALLS, "l40s,l40s:71sm,l40s:71sm")
    alone = planned(tmp_path, CALLS, "l40s:71sm,l40s:71sm")
    for step in range(3):
        whole, part = cost(beside, step, 0), cost(beside, step, 1)
        assert whole.ns <= part.ns
        assert cost(alone, step, 0).ns == pytest.approx(part.ns)
    assert "as the whole GPU: vllm" in cost(alone, 0, 0).origin


def test_a_true_hint_gives_a_time_with_a_wider_bar(tmp_path: Path) -> None:
    report = planned(tmp_path, KERNEL.replace("HINT", "gemm:256,256,256,f16"))
    product = cost(report, 0, 0)
    assert product.source is CostSource.TABLE
    assert product.error > 0.3
    assert not any(d.code == "TSR3014" for d in report.diagnostics)


@pytest.mark.parametrize("hint", ["gemm:256,256,2048,f16", "generation:64,8192,32,8,128,bf16"])
def test_a_false_hint_is_said_and_not_used(tmp_path: Path, hint: str) -> None:
    report = planned(tmp_path, KERNEL.replace("HINT", hint))
    assert cost(report, 0, 0).source is CostSource.SHEET
    said = [note for d in report.diagnostics if d.code == "TSR3014" for note in d.notes]
    assert any(note.startswith("#0 m.product: it ") for note in said)


def test_a_measurement_is_carried_over_by_the_rows(tmp_path: Path) -> None:
    text = KERNEL.replace("HINT", "gemm:256,256,256,f16")
    before = planned(tmp_path, text)
    row = {"step": 0, "name": "m.product", "gpu": "a100", "ns": 50_000.0, "error": 0.02}
    profile = {
        "schema": "tessera-profile/1",
        "program": before.plan.traces[0].digest,
        "rows": [row],
    }
    path = tmp_path / "times.json"
    path.write_text(json.dumps(profile))
    report = planned(tmp_path, text, "a100,l40s", str(path))
    assert cost(report, 0, 0).source is CostSource.PROFILE
    carried = cost(report, 0, 1)
    assert carried.source is CostSource.RATIO
    there, here = cost(before, 0, 1).ns, cost(before, 0, 0).ns
    assert carried.ns == pytest.approx(50_000.0 * there / here)
    known = cost(planned(tmp_path, text, "a100,l40s", str(path), library="vllm"), 0, 1)
    assert known.ns == carried.ns
    assert known.error < 0.1 < carried.error < 0.6
    assert "a100-80g-sxm times" in carried.origin


@pytest.mark.parametrize(
    ("hint", "code"),
    [
        ("gemm:8,8,f16", "TSR1103"),
        ("matmul:8,8,8,f16", "TSR1103"),
        ("gemm", "TSR1103"),
        ("gemm:8,0,8,f16", "TSR1116"),
        ("gemm:8,-1,8,f16", "TSR1116"),
        ("gemm:8,8,8,half", "TSR1116"),
    ],
)
def test_hints_that_are_not_well_formed(tmp_path: Path, hint: str, code: str) -> None:
    path = tmp_path / "trace.ptx"
    path.write_text(KERNEL.replace("HINT", hint))
    shown = tessc("plan", str(path), "--gpus", "a100,l40s", "-o", str(tmp_path / "p.tsp"))
    assert shown.code == 1
    assert code in shown.err
