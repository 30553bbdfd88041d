"""Traps at the end, and loops in circles with several entries, against logs of the CPU backend."""

from __future__ import annotations

from functools import partial

import pytest

from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.footprint import footprint
from tests.property.kernel_strategies import Kernel
from tests.property.test_soundness_generated import check_log, log_of, program_of

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p<5>;
    .reg .b32 %r<5>;
    .reg .b64 %d<7>;
    ld.param.u64 %d1, [out];
    ld.param.u64 %d2, [data];
    ld.param.u64 %d3, [wide];
    ld.param.u32 %r1, [a];
    ld.param.u32 %r2, [b];
    mov.u64 %d4, %d1;
"""
# By default every CTA by itself, else a row of threads for all.
ALONE: dict[str, int] = {}
COARSE = {"exact_budget": 0}


def check(body: str, way: dict[str, int]) -> None:
    text = f"{HEAD}{body}\n}}\n"
    kernel = Kernel(text=text, grid=(2, 1, 1), block=(32, 1, 1), scalars=(0, 5), offset=0)
    program = program_of(kernel)
    with pytest.MonkeyPatch.context() as patch:
        find = partial(footprint.find_footprint, **way)
        patch.setattr(footprint, "find_footprint", find)
        (step,) = AnalysisManager(program).get(AccessRegions).steps
    if not step.pins:
        for contents in ("zeros", "ones", "small"):
            check_log(program, step, log_of(program, kernel, contents), contents)


def test_who_does_not_trap_at_the_end_comes_to_the_end() -> None:
    """The other side of the branch is not where all of them meet."""
    check(
        """ld.global.u32 %r3, [%d2]; setp.eq.u32 %p1, %r3, 0; @%p1 bra A;
        st.global.u32 [%d1], %r3; ret;
        A: setp.eq.u32 %p2, %r3, 77; @%p2 trap;""",
        ALONE,
    )


@pytest.mark.parametrize("into", ["@%p1 bra B; bra A;", "@!%p1 bra A; bra B;"])
def test_a_circle_goes_on_when_its_wide_loop_has_ended(into: str) -> None:
    """Its blocks have no order in which the loop is settled before they run."""
    check(
        f"""setp.ne.u32 %p1, %r1, 0; mov.u32 %r3, 0; {into}
        A: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, 200; @!%p2 bra B; bra A;
        B: setp.ge.u32 %p3, %r3, 100; mul.wide.u32 %d5, %r3, 4; add.u64 %d6, %d4, %d5;
        @%p3 st.global.u32 [%d6], %r3; mov.u64 %d4, %d3; mov.u64 %d6, %d3;
        setp.ge.u32 %p4, %r2, 3; @!%p4 bra A;
        st.global.u32 [%d4], %r3; st.global.u32 [%d6+4], %r3; ret;""",
        COARSE,
    )
