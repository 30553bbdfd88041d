"""Kernels in terms of their parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.passes.kernel_facts.describe_kernel import describe_kernel
from tessera.passes.kernel_facts.kernel_code import prepare_kernel
from tests.helpers.traces import COPY, HEADER

DATA = Path(__file__).parents[2] / "data" / "rules"
LOOP = """
.visible .entry rows(.param .u64 out, .param .u32 n, .param .u64 index)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<9>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
AGAIN:
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    add.u32 %r2, %r2, 32;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], %r2;
    setp.lt.u32 %p, %r2, %r1;
    @%p bra AGAIN;
    ld.param.u64 %rd6, [index];
    ld.global.u32 %r3, [%rd6];
    mul.wide.u32 %rd7, %r3, 4;
    add.s64 %rd8, %rd1, %rd7;
    st.global.u32 [%rd8], %r2;
    ret;
}
"""


def described(kernel: str) -> tuple[str, ...]:
    module = parse_module(HEADER + kernel)
    return describe_kernel(prepare_kernel(module, next(module.kernels())))


def test_one_word_per_thread_under_a_bound() -> None:
    assert described(COPY) == (
        "ld.global.f32 [4*ctaid.x*ntid.x + 4*tid.x + x] if ctaid.x*ntid.x + tid.x < n",
        "st.global.f32 [4*ctaid.x*ntid.x + out + 4*tid.x] if ctaid.x*ntid.x + tid.x < n",
        "reads x[0 : 4*n), every byte, if nctaid.x*ntid.x >= n",
        "writes out[0 : 4*n), every byte, if nctaid.x*ntid.x >= n",
    )


def test_a_counter_before_and_after_its_step() -> None:
    assert described(LOOP)[:2] == (
        "st.global.u32 [128*i0 + out + 4*tid.x]",
        "st.global.u32 [128*i0 + out + 4*tid.x + 128]",
    )


def test_what_comes_from_memory_says_so() -> None:
    assert described(LOOP)[2:] == (
        "ld.global.u32 [index] if 32*i0 + tid.x + 32 >= n",
        "st.global.u32 [4*data.%r3? + out] if 32*i0 + tid.x + 32 >= n",
    )


def test_a_tensor_copy_shows_its_map_and_coordinates() -> None:
    module = parse_module((DATA / "tensor.ptx").read_text())
    kernel = next(k for k in module.kernels() if k.name == "copy_tiles")
    lines = describe_kernel(prepare_kernel(module, kernel))
    assert [line.partition(" ")[2] for line in lines] == [
        "[param_1{32*ctaid.x + param_2, 8*ctaid.y + param_3}] if tid.x == 0",
        "[param_0{32*ctaid.x, 8*ctaid.y}] if %r15? != 0 and tid.x == 0",
    ]


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("st.global.f32 [%rd5], %f;", "writes out[0 : 4*n)"),
        ("red.global.add.f32 [%rd5], %f;", "writes out[0 : 4*n)"),
        ("st.global.f32 [%rd2], %f;", None),  # every thread the same word
        ("st.global.f32 [%rd5+4], %f;", None),  # not from the first word on
        ("st.global.b64 [%rd5], %rd3;", None),  # words that overlap
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd5], [area], %r4;", None),
        ("setp.lt.u32 %p, %r3, 7; @%p st.global.f32 [%rd5], %f;", None),  # another guard
    ],
)
def test_a_total_is_of_one_word_per_thread(line: str, total: str | None) -> None:
    kernel = COPY.replace("st.global.f32 [%rd5], %f;", line)
    kernel = kernel.replace(".reg .f32 %f;", ".reg .f32 %f; .shared .align 16 .b8 area[64];")
    module = parse_module(HEADER.replace("80", "90") + kernel)
    lines = describe_kernel(prepare_kernel(module, next(module.kernels())))
    found = [line.partition(",")[0] for line in lines if line.startswith("writes")]
    assert found == ([] if total is None else [total])
