"""`bar.red` where warps come one after another, and what barriers are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import run

STORE = "st.global.u32 [%rd2], %r10;"
BY_WARP = "setp.lt.u32 %p1, %r1, 32; setp.ne.u32 %p2, %r1, 5;"


def test_a_later_barrier_leaves_the_result_of_a_vote_alone():
    out, _ = run(
        BY_WARP
        + """
        @%p1 bra first;
        bar.red.popc.u32 %r10, 0, %p2;
        bra voted;
    first:
        bar.red.popc.u32 %r10, 0, %p2;
    voted:
        add.u32 %r10, %r10, %r1;
        @%p1 bra second;
        bar.sync 0;
        bra done;
    second:
        bar.sync 0;
    done:
        """
        + STORE,
        block=64,
    )
    assert (out == 63 + np.arange(64)).all()


def test_each_place_of_a_vote_gets_the_result_in_its_own_register():
    out, _ = run(
        BY_WARP
        + """
        mov.u32 %r6, 0;
        mov.u32 %r5, 0;
        @%p1 bra first;
        bar.red.popc.u32 %r5, 0, %p2;
        add.u32 %r10, %r5, 1000;
        bra done;
    first:
        bar.red.or.pred %p3, 0, %p2;
        selp.u32 %r6, 7, 9, %p3;
        add.u32 %r10, %r6, 2000;
    done:
        """
        + STORE,
        block=64,
    )
    assert (out == np.where(np.arange(64) < 32, 2007, 1063)).all()


@pytest.mark.parametrize(
    ("barrier", "code"),
    [("bar.sync 1, 40;", "TSR1028"), ("mov.u32 %r5, 33; bar.sync 1, %r5;", "TSR5023")],
)
def test_a_count_that_is_no_multiple_of_the_warp_is_refused(barrier, code):
    with pytest.raises(TesseraError) as failure:
        run(barrier + STORE, block=64)
    assert failure.value.diagnostics[0].code == code
    assert "multiple of 32" in str(failure.value.diagnostics[0].headline)
