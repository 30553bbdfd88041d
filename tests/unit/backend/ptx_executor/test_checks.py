"""Optional checks: reads of bytes never written, and races."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.watch import Checks
from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import load

BOTH = Checks(uninitialised=True, races=True)


def launch(body: str, *, grid: int = 1, block: int = 64, words: int = 512, fresh: bool = False):
    with Device(checks=BOTH) as device:
        out = device.empty(words, np.uint32, "out")
        if not fresh:
            out = device.array(np.zeros(words, np.uint32), "out")
        load(device, body)["k"].launch(grid, block, [out])
        return out.numpy()


def test_reading_what_no_one_wrote():
    with pytest.raises(TesseraError, match="TSR5015") as caught:
        launch("ld.global.u32 %r5, [%rd2]; st.global.u32 [%rd2], %r5;", fresh=True)
    assert "thread (0, 0, 0)" in caught.value.diagnostics[0].notes[0]


def test_reading_what_the_kernel_wrote():
    launch("st.global.u32 [%rd2], %r1; ld.global.u32 %r5, [%rd2];", fresh=True)


def test_half_written_word():
    with pytest.raises(TesseraError, match="TSR5015"):
        launch("st.global.u16 [%rd2], %r1; ld.global.u32 %r5, [%rd2];", fresh=True)


def test_shared_memory_starts_unwritten():
    with pytest.raises(TesseraError, match="TSR5015"):
        launch(".shared .b32 s[4]; ld.shared.u32 %r5, [s];")


SHARED = """
    .shared .align 4 .b32 s[64];
    shl.b32 %r20, %r1, 2;
    mov.u32 %r21, s;
    add.u32 %r22, %r21, %r20;
    xor.b32 %r23, %r20, 128;
    add.u32 %r24, %r21, %r23;
    st.shared.u32 [%r22], %r1;
    {between}
    ld.shared.u32 %r10, [%r24];
    st.global.u32 [%rd2], %r10;
"""


def test_missing_barrier_is_a_race():
    with pytest.raises(TesseraError, match="TSR5016") as caught:
        launch(SHARED.format(between=""))
    assert "of CTA 0" in caught.value.diagnostics[0].notes[1]


def test_barrier_orders():
    out = launch(SHARED.format(between="bar.sync 0;"), grid=2)
    assert (out[:64] == np.arange(64) ^ 32).all()


def test_write_after_read_needs_a_barrier_too():
    after = SHARED.format(between="bar.sync 0;") + "{more} st.shared.u32 [%r22], %r10;"
    with pytest.raises(TesseraError, match="TSR5016"):
        launch(after.replace("{more}", ""))
    launch(after.replace("{more}", "bar.sync 0;"))


def test_ctas_race_in_global_memory():
    with pytest.raises(TesseraError, match="TSR5016"):
        launch("st.global.u32 [%rd1], %r3;", grid=2, block=1)


def test_same_value_and_atomics_do_not_race():
    launch("st.global.u32 [%rd1], 7; red.global.add.u32 [%rd1+4], %r1;", grid=3)


@pytest.mark.parametrize(
    ("store", "load"),
    [
        ("st.release.cta", "ld.acquire.cta"),
        ("st.relaxed.gpu", "ld.relaxed.gpu"),
        ("st.volatile", "ld.volatile"),
    ],
)
def test_strong_accesses_do_not_race_with_each_other(store: str, load: str):
    """One thread of the last warp sets a flag that the others poll at once (cuda::barrier)."""
    launch(
        f"""
        setp.ne.u32 %p1, %r1, 63;
        @%p1 bra others;
        {store}.global.u32 [%rd1], 1;
    others:
        {load}.global.u32 %r10, [%rd1];
        """
    )


def test_weak_accesses_of_the_same_place_do():
    with pytest.raises(TesseraError, match="TSR5016"):
        launch(
            """
            setp.ne.u32 %p1, %r1, 63;
            @%p1 bra others;
            st.global.u32 [%rd1], 1;
        others:
            ld.global.u32 %r10, [%rd1];
            st.global.u32 [%rd2 + 1024], %r10;
            """
        )
