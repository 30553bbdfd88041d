"""The axes of library calls, and why other dimensions are none."""

from __future__ import annotations

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import LibraryCall
from tessera.passes.division.cut_calls import call_axes, why_not_axis

BUFFERS = "//! tessera.trace 1\n" + "".join(
    f"//! buffer {name} bytes={1 << 20} role={role}\n"
    for role, names in {"input": "xi", "weight": "wv", "state": "st", "output": "yz"}.items()
    for name in names
)


def read(record: str) -> LibraryCall:
    (call,) = parse_trace(f"{BUFFERS}//! op {record}\n").steps
    assert isinstance(call, LibraryCall)
    return call


@pytest.mark.parametrize(
    ("record", "axes"),
    [
        # Columns at multiples of 16 bytes; a single row is none.
        ("aten::mm reads=[x:bf16[1,8], w:bf16[8,64]{1,8}] writes=[y:bf16[1,64]]", "columns 64/8"),
        ("aten::mm reads=[x:f32[3,8], w:f32[8,5]] writes=[y:f32[3,5]]", "rows 3/1 columns 5/1"),
        (
            "tessera::merged_linear reads=[x:bf16[1,8], w:bf16[64,8], v:bf16[16,8]] "
            "writes=[y:bf16[1,64], z:bf16[1,16]]",
            "columns 64/32",
        ),
        # Eight heads share two of keys; a mask for all heads is whole in every part.
        (
            "aten::scaled_dot_product_attention reads=[x:bf16[2,8,1,4], s:bf16[2,2,9,4], "
            "t:bf16[2,2,9,4], i:bool[2,1,1,9]] writes=[y:bf16[2,8,1,4]]",
            "sequences 2/1 heads 8/4",
        ),
        # Angles for tokens, whatever the head: queries and keys are cut in proportion.
        (
            "tessera::rotary reads=[x:bf16[3,8], x:bf16[3,8], v:bf16[1,8,3,8], w:bf16[1,2,3,8]] "
            "writes=[y:bf16[1,8,3,8], z:bf16[1,2,3,8]]",
            "d1 8/4 d2 3/1",
        ),
        (
            "tessera::paged_attention reads=[x:bf16[2,8,1,4], s:bf16[9,4,2,4], t:bf16[9,4,2,4], "
            "i:s64[2,5]] writes=[y:bf16[2,8,1,4]]",
            "sequences 2/1 heads 8/4",
        ),
        (
            "aten::convolution reads=[x:f32[1,6,5], w:f32[12,2,3]] writes=[y:f32[1,12,3]] "
            'attrs={"groups":3,"bias":null}',
            "channels 12/4",
        ),
        (
            "aten::index_put_ reads=[s:f32[4,8,2], i:s64[2], x:f32[4,2,2]] "
            'writes=[s:f32[4,8,2]] attrs={"indices_at":[1]}',
            "d0 4/1 d2 2/1",
        ),
    ],
)
def test_axes(record: str, axes: str) -> None:
    listed = [f"{axis.axis} {axis.extent}/{axis.multiple}" for axis in call_axes(read(record))]
    assert " ".join(listed) == axes


@pytest.mark.parametrize(
    ("record", "axis", "reason"),
    [
        ("aten::relu_ reads=[s:f32[4]] writes=[s:f32[4]]", "d0", ""),
        ("aten::copy_ reads=[s+4:f32[4]] writes=[s:f32[4]]", "d0", "`src` shares bytes"),
        ("aten::copy_ reads=[x:f32[4]] writes=[s:f32[4]{0}]", "d0", "lie on each other"),
        ("aten::copy_ reads=[s+4:f32[4]{2}] writes=[s:f32[4]{2}]", "d0", ""),
        ("aten::mm reads=[x:f32[3,8], w:f32[8,5]] writes=[y:f32[3,5]]", "x", "no dimension `x`"),
        (
            "aten::scaled_dot_product_attention reads=[x:f32[2,3,4], w:f32[2,3,4], v:f32[2,3,4]] "
            'writes=[y:f32[2,3,4]] attrs={"is_causal":true}',
            "queries",
            "counts queries from the first",
        ),
        ('aten::cumsum reads=[x:f32[4]] writes=[y:f32[4]] attrs={"dim":0}', "d0", "depends on"),
    ],
)
def test_reasons(record: str, axis: str, reason: str) -> None:
    why = why_not_axis(read(record), axis)
    assert (why is None) == (not reason)
    assert reason in str(why)
