"""Barriers, warps, locks, flags between CTAs: who waits for whom."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import run

STORE = "st.global.u32 [%rd2], %r10;"
SHARED = (
    ".shared .align 8 .b8 s[4096]; shl.b32 %r20, %r1, 2; mov.u32 %r21, s; add.u32 %r22, %r20, %r21;"
)


def test_barrier_makes_stores_visible():
    out, _ = run(
        SHARED
        + """
        st.shared.u32 [%r22], %r1;
        bar.sync 0;
        xor.b32 %r5, %r1, 33;
        shl.b32 %r5, %r5, 2;
        add.u32 %r5, %r5, %r21;
        ld.shared.u32 %r10, [%r5];
        """
        + STORE,
        grid=3,
        block=64,
    )
    assert (out == np.tile(np.arange(64) ^ 33, 3)).all()


def test_named_barriers_with_counts_between_warps():
    """Warp 0 produces, warp 1 consumes, warp 2 takes no part."""
    out, _ = run(
        SHARED
        + """
        shr.u32 %r5, %r1, 5;
        and.b32 %r6, %r1, 31;
        mov.u32 %r10, 7;
        setp.eq.u32 %p1, %r5, 2;
        @%p1 bra end;
        setp.eq.u32 %p2, %r5, 1;
        @%p2 bra consumer;
        add.u32 %r7, %r1, 500;
        st.shared.u32 [%r22], %r7;
        bar.arrive 3, 64;
        bra end;
    consumer:
        bar.sync 3, 64;
        ld.shared.u32 %r10, [%r22+-128];
    end:
        """
        + STORE,
        block=96,
    )
    assert (out[32:64] == 500 + np.arange(32)).all()
    assert (np.delete(out, np.arange(32, 64)) == 7).all()


@pytest.mark.parametrize("op", ["popc", "and", "or"])
def test_barrier_reduction(op: str):
    target = "%r10" if op == "popc" else "%p2"
    kind = "u32" if op == "popc" else "pred"
    out, _ = run(
        f"""
        setp.lt.u32 %p1, %r3, 70;
        bar.red.{op}.{kind} {target}, 0, %p1;
        """
        + ("" if op == "popc" else "selp.u32 %r10, 1, 0, %p2;\n")
        + STORE,
        grid=3,
        block=40,
    )
    counts = np.array([40, 30, 0])
    expected = {"popc": counts, "and": counts == 40, "or": counts > 0}[op]
    assert (out.reshape(3, 40) == expected[:, None]).all()


def test_exited_threads_are_not_waited_for():
    out, _ = run(
        """
        mov.u32 %r10, 1;
        setp.ge.u32 %p1, %r1, 50;
        @%p1 exit;
        bar.sync 0;
        """
        + STORE,
        grid=2,
        block=100,
    )
    assert (out.reshape(2, 100) == (np.arange(100) < 50)).all()


def test_deadlock_says_who_waits_where():
    with pytest.raises(TesseraError, match="TSR5010") as caught:
        run(
            """
            setp.lt.u32 %p1, %r1, 32;
            @%p1 bra first;
            bar.sync 2;
            bra end;
        first:
            bar.sync 1;
        end:
            """,
            block=64,
        )
    notes = "\n".join(caught.value.diagnostics[0].notes)
    assert "warps 0 (32 threads) wait for barrier 1" in notes
    assert "warps 1 (32 threads) wait for barrier 2" in notes


def test_lock_taken_by_every_thread():
    """The classic loop: winners run on while losers spin."""
    out, _ = run(
        """
    take:
        atom.global.cas.b32 %r5, [%rd1], 0, 1;
        setp.ne.u32 %p1, %r5, 0;
        @%p1 bra take;
        ld.volatile.global.u32 %r6, [%rd1+4];
        add.u32 %r6, %r6, 1;
        st.volatile.global.u32 [%rd1+4], %r6;
        membar.gl;
        atom.global.exch.b32 %r7, [%rd1], 0;
        """,
        grid=3,
        block=48,
        count=2,
    )
    assert out.tolist() == [0, 144]


def test_ctas_that_wait_for_later_ctas(monkeypatch: pytest.MonkeyPatch):
    """CTA 0 spins until the last CTA has set a flag: chunks take turns."""
    monkeypatch.setattr("tessera.backend.ptx_executor.simt.launch.LANES", 64)
    out, _ = run(
        """
        setp.ne.u32 %p1, %r2, 0;
        @%p1 bra later;
    spin:
        ld.acquire.gpu.global.u32 %r5, [%rd1+1024];
        setp.eq.u32 %p2, %r5, 0;
        @%p2 bra spin;
        mov.u32 %r10, %r5;
        bra end;
    later:
        mov.u32 %r10, 5;
        setp.ne.u32 %p3, %r2, 7;
        @%p3 bra end;
        st.release.gpu.global.u32 [%rd1+1024], 9;
    end:
        """
        + STORE,
        grid=8,
        block=32,
        count=257,
    )
    assert (out[:32] == 9).all()
    assert (out[32:256] == 5).all()


def test_shuffles_and_votes_inside_a_divergent_branch():
    out, _ = run(
        """
        mov.u32 %r10, 0;
        setp.ge.u32 %p1, %r1, 16;
        @%p1 bra end;
        shfl.sync.down.b32 %r5|%p2, %r1, 1, 31, 0xffff;
        and.b32 %r6, %r1, 2;
        setp.eq.u32 %p3, %r6, 0;
        vote.sync.ballot.b32 %r7, %p3, 0xffff;
        add.u32 %r10, %r5, %r7;
    end:
        """
        + STORE
    )
    ballot = sum(1 << i for i in range(16) if i & 2 == 0)
    assert (out[:15] == np.arange(1, 16) + ballot).all()
    assert (out[16:] == 0).all()


def test_lanes_wait_for_the_rest_of_their_warp():
    """Half of the warp goes a longer way to the shuffle."""
    out, _ = run(
        """
        mov.u32 %r5, %r1;
        setp.lt.u32 %p1, %r1, 16;
        @%p1 bra join;
        mov.u32 %r6, 0;
    loop:
        add.u32 %r6, %r6, 1;
        setp.lt.u32 %p2, %r6, %r1;
        @%p2 bra loop;
        add.u32 %r5, %r5, 1000;
    join:
        shfl.sync.bfly.b32 %r10, %r5, 16, 31, 0xffffffff;
        """
        + STORE
    )
    n = np.arange(32)
    assert (out == np.where(n < 16, n + 16 + 1000, n - 16)).all()


def test_lanes_meet_at_different_warp_barriers():
    out, _ = run(
        SHARED
        + """
        setp.lt.u32 %p1, %r1, 16;
        @%p1 bra low;
        st.shared.u32 [%r22], 7;
        bar.warp.sync 0xffffffff;
        mov.u32 %r10, 1;
        bra end;
    low:
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r10, [%r22+64];
    end:
        """
        + STORE,
        grid=2,
    )
    assert (out.reshape(2, 32) == np.where(np.arange(32) < 16, 7, 1)).all()


def test_warp_that_never_meets_is_a_deadlock():
    with pytest.raises(TesseraError, match="TSR5010") as caught:
        run(
            """
            setp.lt.u32 %p1, %r1, 16;
            @%p1 bra skip;
            shfl.sync.bfly.b32 %r10, %r1, 1, 31, 0xffffffff;
        skip:
            @%p1 bar.sync 5, 64;
            """
        )
    assert "other lanes of their warps" in "\n".join(caught.value.diagnostics[0].notes)


def test_producer_and_consumer_warps_with_mbarriers():
    """Four slots handed over through full and empty barriers, as in pipelined kernels."""
    out, _ = run(
        """
        .shared .align 8 .b64 full;
        .shared .align 8 .b64 empty;
        .shared .align 4 .b32 slot;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra ready;
        mbarrier.init.shared.b64 [full], 1;
        mbarrier.init.shared.b64 [empty], 32;
    ready:
        bar.sync 0;
        mov.u32 %r5, 0;
        mov.u32 %r10, 0;
        setp.ge.u32 %p2, %r1, 32;
        @%p2 bra consumer;
        setp.ne.u32 %p3, %r1, 0;
        @%p3 bra end;
    produce:
        and.b32 %r6, %r5, 1;
        xor.b32 %r6, %r6, 1;
    wait_empty:
        mbarrier.try_wait.parity.shared.b64 %p4, [empty], %r6;
        @!%p4 bra wait_empty;
        mul.lo.u32 %r7, %r5, 10;
        st.shared.u32 [slot], %r7;
        mbarrier.arrive.shared.b64 _, [full];
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p5, %r5, 6;
        @%p5 bra produce;
        bra end;
    consumer:
        and.b32 %r6, %r5, 1;
    wait_full:
        mbarrier.try_wait.parity.shared.b64 %p4, [full], %r6;
        @!%p4 bra wait_full;
        ld.shared.u32 %r7, [slot];
        add.u32 %r10, %r10, %r7;
        mbarrier.arrive.shared.b64 _, [empty];
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p5, %r5, 6;
        @%p5 bra consumer;
    end:
        """
        + STORE,
        grid=5,
        block=64,
    )
    assert (out.reshape(5, 64)[:, 32:] == 150).all()


def test_cluster_barrier_and_remote_shared_memory():
    out, _ = run(
        SHARED
        + """
        mov.u32 %r5, %cluster_ctarank;
        mad.lo.u32 %r6, %r5, 100, %r1;
        st.shared.u32 [%r22], %r6;
        barrier.cluster.arrive;
        barrier.cluster.wait;
        xor.b32 %r7, %r5, 1;
        mapa.shared::cluster.u32 %r8, %r22, %r7;
        ld.shared::cluster.u32 %r10, [%r8];
        barrier.cluster.arrive;
        barrier.cluster.wait;
        """
        + STORE,
        grid=6,
        block=32,
        cluster=(2, 1, 1),
    )
    ranks = np.arange(6) % 2 ^ 1
    assert (out.reshape(6, 32) == ranks[:, None] * 100 + np.arange(32)).all()


def test_single_bytes_of_remote_shared_memory():
    """Also those at odd addresses."""
    mapped = "xor.b32 %r7, %r5, 1; add.u32 %r8, %r21, %r1; mapa.shared::cluster.u32 %r8, %r8, %r7;"
    met = "barrier.cluster.arrive; barrier.cluster.wait;"
    body = f"""
        mov.u32 %r5, %cluster_ctarank;
        {mapped}
        mad.lo.u32 %r6, %r5, 100, %r1;
        st.shared::cluster.u8 [%r8], %r6;
        {met}
        ld.shared::cluster.u8 %r10, [%r8];
        {met}
    """
    out, _ = run(SHARED + body + STORE, grid=2, block=32, cluster=(2, 1, 1))
    assert (out.reshape(2, 32) == np.arange(2)[:, None] * 100 + np.arange(32)).all()


GRID_BARRIER = """
    mov.u32 %r30, %envreg1;
    mov.u32 %r31, %envreg2;
    mov.b64 %rd10, {%r31, %r30};
    setp.eq.u64 %p9, %rd10, 0;
    @%p9 trap;
    st.global.u32 [%rd2], %r3;
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra met;
    mov.u32 %r5, %nctaid.x;
    setp.eq.u32 %p2, %r2, 0;
    sub.u32 %r6, 0x80000001, %r5;
    selp.b32 %r7, %r6, 1, %p2;
    atom.add.release.gpu.u32 %r8, [%rd10 + 4], %r7;
wait:
    ld.acquire.gpu.u32 %r9, [%rd10 + 4];
    xor.b32 %r9, %r9, %r8;
    setp.gt.s32 %p3, %r9, -1;
    @%p3 bra wait;
met:
    bar.sync 0;
    mov.u32 %r5, %nctaid.x;
    mad.lo.u32 %r6, %r5, %r4, -1;
    sub.u32 %r6, %r6, %r3;
    mad.wide.u32 %rd3, %r6, 4, %rd1;
    ld.global.u32 %r10, [%rd3];
    bar.sync 0;
    add.u32 %r10, %r10, 7;
    mad.wide.u32 %rd4, %r5, %r4, 0;
    shl.b64 %rd4, %rd4, 2;
    add.u64 %rd2, %rd2, %rd4;
"""


def test_a_cooperative_launch_has_memory_for_a_barrier_over_the_grid():
    """As cooperative_groups does it; more CTAs than one chunk holds."""
    grid, block = 70, 1024
    threads = grid * block
    out, result = run(
        GRID_BARRIER + STORE, grid=grid, block=block, count=2 * threads, cooperative=True
    )
    assert (out[threads:] == np.arange(threads)[::-1] + 7).all()
    assert [access.buffer for access in result.accesses] == ["out"]


def test_without_a_cooperative_launch_there_is_no_such_memory():
    with pytest.raises(TesseraError) as caught:
        run(GRID_BARRIER + STORE, grid=2, count=128)
    assert caught.value.diagnostics[0].code == "TSR5012"


@pytest.mark.parametrize("space", ["", ".shared::cluster"])
def test_the_rank_of_an_address(space: str) -> None:
    """Of the own CTA, and of the other of the cluster, as a window or as a generic address."""
    mapped = "mapa.shared::cluster.u32 %r8, %r22, %r7; getctarank.shared::cluster.u32 %r9, %r8;"
    own = "getctarank.shared::cluster.u32 %r10, %r22;"
    if not space:
        mapped = "cvta.shared.u64 %rd5, %rd6; mapa.u64 %rd7, %rd5, %r7; getctarank.u64 %r9, %rd7;"
        own = "getctarank.u64 %r10, %rd5;"
    out, _ = run(
        f"""
        .shared .align 4 .b32 s[4];
        mov.u32 %r22, s; cvt.u64.u32 %rd6, %r22;
        mov.u32 %r6, %cluster_ctarank; xor.b32 %r7, %r6, 1;
        {mapped} {own}
        mad.lo.u32 %r11, %r9, 10, %r10;
        st.global.u32 [%rd2], %r11;
        """,
        grid=4,
        block=1,
        cluster=(2, 1, 1),
    )
    assert out.tolist() == [10, 1, 10, 1]
