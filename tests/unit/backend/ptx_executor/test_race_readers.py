"""The race check: readers of several warps in one load, and barriers of clusters."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.watch import Checks
from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import load

SHARED = ".shared .align 4 .b8 s[256]; setp.eq.u32 %p1, %r1, 40; @%p1 st.shared.u32 [s], 1;"


def launch(body: str, grid: int, block: int, **settings):
    device = Device(checks=Checks(races=True))
    out = device.array(np.zeros(grid * block, np.uint32))
    load(device, body)["k"].launch(grid, block, [out], **settings)
    return out.numpy()


def test_a_writer_races_with_readers_of_another_warp_in_the_same_load():
    body = SHARED + "bar.sync 0; ld.shared.u32 %r5, [s]; @%p1 st.shared.u32 [s], 2;"
    with pytest.raises(TesseraError) as failure:
        launch(body, 1, 64)
    assert failure.value.diagnostics[0].code == "TSR5016"
    launch(
        body.replace("@%p1 st.shared.u32 [s], 2", "bar.sync 0; @%p1 st.shared.u32 [s], 2"), 1, 64
    )


def test_a_cluster_barrier_orders_the_ctas_of_a_cluster():
    wait = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
    body = f"""
        st.global.u32 [%rd2], %r3;
        {wait}
        xor.b32 %r5, %r3, 32;
        mad.wide.u32 %rd3, %r5, 4, %rd1;
        ld.global.u32 %r6, [%rd3];
        {wait}
        st.global.u32 [%rd2], %r6;
        """
    assert (launch(body, 4, 32, cluster=(2, 1, 1)) == np.arange(128) ^ 32).all()
    with pytest.raises(TesseraError) as failure:
        launch(body.replace(wait, "", 1), 4, 32, cluster=(2, 1, 1))
    assert failure.value.diagnostics[0].code == "TSR5016"


def test_a_thread_may_write_its_own_bytes_again():
    """Nobody has read them, or another warp has before the last barrier."""
    again = "st.global.u32 [%rd2], %r1; st.global.u32 [%rd2], %r3;"
    assert (launch(again, 2, 64) == np.arange(128)).all()
    again = (
        ".shared .align 4 .b8 s[256]; shl.b32 %r5, %r1, 2; mov.u32 %r6, s; "
        "add.u32 %r6, %r6, %r5; st.shared.u32 [%r6], %r1; bar.sync 0; ld.shared.u32 %r7, [s]; "
        "bar.sync 0; st.shared.u32 [%r6], %r1; st.shared.u32 [%r6], %r3;"
    )
    launch(again, 1, 64)
