"""Tensor maps that Triton kernels make themselves, and what makes them unknown again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.ir.graph.access import AccessKind
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.case_program import case_program
from tests.helpers.rule_cases import RuleCase, touched
from tests.kernels.cases import CASES

COPY = next(case for case in CASES if case.name == "triton_copy_3d_90")
TEXT = COPY.ptx.read_text()
FIRST_COPY = "@%p1 tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu"
BASE = "@%p2 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [ %rd1 + 0 ], %rd2;"


def analysed(text: str, folder: Path):
    path = folder / "k.ptx"
    path.write_text(text)
    program = case_program(RuleCase(path), COPY.make())
    return program, AnalysisManager(program).get(AccessRegions).steps[0]


@pytest.mark.parametrize(
    "name", ["triton_matmul_tma_90", "triton_copy_3d_90", "triton_reduce_tiles_90"]
)
def test_maps_of_triton_are_known(name: str) -> None:
    """Bytes are held against the log in `test_soundness_kernels`; here: nothing is pinned."""
    case = next(case for case in CASES if case.name == name)
    program = case_program(case, case.make())
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.pins
    assert not step.diagnostics


def test_the_copy_is_exact(tmp_path: Path) -> None:
    program, step = analysed(TEXT, tmp_path)
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == [(0, 4368)]
    assert touched(program, step, "x", AccessKind.READ) == [(0, 4368)]


GENERIC = (
    "{ .reg .b64 g; cvta.shared.u64 g, %rd1;"
    "tensormap.replace.tile.global_address.b1024.b64 [g], %rd3; }"
)
CHANGES = {
    "a field is missing": (BASE, "// gone"),
    "a field is set again through a generic address": (BASE, f"{BASE}\n{GENERIC}"),
    "a field is set again by data": (
        BASE,
        f"{BASE}\nld.global.b64 %rd2, [%rd3];\n{BASE}",
    ),
    "a field is set again, to different values": (
        BASE,
        f"{BASE}\n{{ .reg .b64 v, t; cvt.u64.u32 t, %r24; mul.lo.u64 t, t, 16; add.s64 v, %rd2, t;"
        + BASE.replace("@%p2", "@%p1").replace("%rd2;", "v;")
        + "}",
    ),
    "data decides a field": (
        BASE,
        "ld.global.b64 %rd2, [%rd3];\n" + BASE,
    ),
    "data decides whether a field is set": (
        BASE,
        "{ .reg .pred q; .reg .b32 v; ld.global.b32 v, [%rd3]; setp.eq.b32 q, v, 0;\n"
        + BASE.replace("@%p2", "@q")
        + "}",
    ),
    "threads set different values": (
        BASE,
        "{ .reg .b64 v, t; cvt.u64.u32 t, %r24; mul.lo.u64 t, t, 16; add.s64 v, %rd2, t;\n"
        + BASE.replace("@%p2", "@%p1").replace("%rd2;", "v;")
        + "}",
    ),
    "an axis is an expression": (
        "b1024.b32 [ %rd1 + 0 ], 0x0, %r2;",
        "b1024.b32 [ %rd1 + 0 ], 0+0, %r2;",
    ),
    "something else is written to shared memory": (
        FIRST_COPY,
        "st.shared.b32 [%r11+16], %r6;\n" + FIRST_COPY,
    ),
    "the address moves": (
        FIRST_COPY,
        "add.s64 %rd1, %rd1, 128;\n" + FIRST_COPY,
    ),
    "all blocks copy to one place": ("shl.b32 \t%r23, %r22, 8;", "mov.b32 \t%r23, 0;"),
    "a store may hit the map": (FIRST_COPY, "st.global.b32 [%rd3+64], %r6;\n" + FIRST_COPY),
    "the map is changed in place": (
        FIRST_COPY,
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd3], %rd2;\n" + FIRST_COPY,
    ),
    "data decides whether it is copied": (
        FIRST_COPY,
        "{ .reg .b32 v; ld.global.b32 v, [%rd3]; setp.eq.b32 %p1, v, 0; }\n" + FIRST_COPY,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_makes_it_unknown(name: str, tmp_path: Path) -> None:
    old, new = CHANGES[name]
    assert old in TEXT
    _, step = analysed(TEXT.replace(old, new, 1), tmp_path)
    assert step.pins
    assert all("tensor map" in str(pin.reason) for pin in step.pins)
