"""Threads that poll for ever are found at once; threads that make progress are left alone."""

from __future__ import annotations

import pytest

from tessera.backend.ptx_executor.simt import launch
from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import run

SPIN = "wait: ld.volatile.global.u32 %r5, [%rd1]; setp.eq.u32 %p1, %r5, 0; @%p1 bra wait;"
LOCK = "atom.global.cas.b32 %r5, [%rd1], 0, 1; setp.ne.u32 %p1, %r5, 0;"
NEVER_COMPLETE = """
    .shared .align 8 .b64 full;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared.b64 [full], 33;
    bar.sync 0;
    mbarrier.arrive.shared.b64 %rd5, [full];
wait:
    mbarrier.try_wait.shared.b64 %p2, [full], %rd5;
    @!%p2 bra wait;
"""


def failure_of(body: str, **settings) -> tuple[str, str]:
    with pytest.raises(TesseraError) as failure:
        run(body, **settings)
    found = failure.value.diagnostics[0]
    return found.code, " ".join(found.notes)


@pytest.mark.parametrize(
    "body",
    [
        SPIN,
        SPIN.replace("bra wait", "nanosleep.u32 100; @%p1 bra wait"),
        f"take: {LOCK} @%p1 bra take; again: {LOCK} @%p1 bra again;",
        NEVER_COMPLETE,
    ],
    ids=["flag", "flag with sleep", "lock taken twice", "mbarrier"],
)
def test_waiting_for_what_no_one_does_is_a_deadlock(body):
    code, notes = failure_of(body)
    assert code == "TSR5010"
    assert "memory that no thread will change" in notes


@pytest.mark.parametrize(
    "between",
    [
        "bmsk.clamp.b32 %r10, %r1, %r2;",
        "szext.wrap.u32 %r10, %r1, 5;",
        "vadd.u32.u32.u32 %r10, %r1, %r2;",
        "ldu.global.u32 %r10, [%rd1];",
        "prefetch.global.L2 [%rd1];",
        "add.cc.u32 %r10, %r1, %r2; addc.u32 %r11, %r1, %r2;",
    ],
)
def test_what_computes_in_the_loop_does_not_hide_it(between):
    code, notes = failure_of(SPIN.replace("setp", f"{between} setp"))
    assert code == "TSR5010"
    assert "memory that no thread will change" in notes


def test_ctas_of_several_chunks_that_all_wait():
    code, notes = failure_of(SPIN, grid=1024, block=256)
    assert code == "TSR5010"
    assert "more CTAs" in notes


def test_some_wait_at_a_barrier_for_others_that_poll():
    code, notes = failure_of(
        f"setp.lt.u32 %p3, %r1, 32; @%p3 bra meet; {SPIN} meet: bar.sync 0;", block=64
    )
    assert code == "TSR5010"
    assert "barrier 0" in notes
    assert "memory that no thread will change" in notes


def test_long_loops_with_atomics_end():
    out, _ = run(
        """
        mov.u32 %r5, 0;
    more:
        red.global.add.u32 [%rd1], 1;
        add.u32 %r5, %r5, 1;
        setp.lt.u32 %p1, %r5, 3000;
        @%p1 bra more;
        """
    )
    assert out[0] == 32 * 3000


def test_progress_that_no_register_shows():
    """Lane 0 waits for a sum that the others add to without keeping anything."""
    out, _ = run(
        """
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra watch;
    add:
        red.global.add.u32 [%rd1], 1;
        ld.volatile.global.u32 %r6, [%rd1+4];
        setp.eq.u32 %p1, %r6, 0;
        @%p1 bra add;
        bra end;
    watch:
        ld.volatile.global.u32 %r6, [%rd1];
        setp.lt.u32 %p1, %r6, 100000;
        @%p1 bra watch;
        st.volatile.global.u32 [%rd1+4], 1;
    end:
        """
    )
    assert out[1] == 1


def test_loops_that_watch_the_clock_end():
    run(
        """
        mov.u64 %rd5, %clock64;
    more:
        ld.volatile.global.u32 %r5, [%rd1];
        mov.u64 %rd6, %clock64;
        sub.u64 %rd6, %rd6, %rd5;
        setp.lt.u64 %p1, %rd6, 60000;
        @%p1 bra more;
        """
    )


ROUND = "more: add.u32 %r5, %r5, 0; xor.b32 %r6, %r5, 3; bra more;"
COUNTING = "more: add.u32 %r5, %r5, 1; st.global.u32 [%rd2], %r5; bra more;"


@pytest.mark.parametrize(
    "body",
    [
        "more: bra more;",
        ROUND,
        COUNTING,
        "more: ld.global.u32 %r5, [%rd1+64]; setp.eq.u32 %p1, %r5, 99; @!%p1 bra more;",
        "more: ld.global.u32 %r5, [%rd1+64]; fma.rn.f32 %f1, %f2, %f2, %f2; "
        "setp.eq.u32 %p1, %r5, 99; @!%p1 bra more; st.global.u32 [%rd1], %r5;",
    ],
    ids=["empty", "no change", "counting without a way out", "weak load", "arithmetic"],
)
def test_a_loop_that_never_ends_is_found_early(body):
    with pytest.raises(TesseraError) as failure:
        run(body, grid=8, block=64, count=512)
    found = failure.value.diagnostics[0]
    assert found.code == "TSR5010"
    assert "never ends" in str(found.headline)


def test_some_threads_leave_and_the_others_go_round():
    code, notes = failure_of(f"setp.lt.u32 %p1, %r1, 5; @%p1 bra end; {ROUND} end:", block=64)
    assert code == "TSR5010"
    assert "59 threads" in notes


def test_a_chunk_that_goes_round_lets_others_write_what_it_reads():
    """A weak load in a loop: CTA 0 waits for the last CTA, which is in another chunk."""
    out, _ = run(
        """
        setp.eq.u32 %p1, %r2, 0;
        @%p1 bra wait;
        setp.ne.u32 %p1, %r2, 1023;
        @%p1 bra end;
        st.global.u32 [%rd1], 7;
        bra end;
    wait:
        ld.global.u32 %r5, [%rd1];
        setp.ne.u32 %p1, %r5, 7;
        @%p1 bra wait;
        st.global.u32 [%rd1+4], %r5;
    end:
        """,
        grid=1024,
        block=256,
    )
    assert out[1] == 7


def test_long_loops_are_left_alone():
    out, _ = run(
        """
        mov.u32 %r5, 0;
    more:
        add.u32 %r5, %r5, 1;
        and.b32 %r6, %r5, 1;
        setp.lt.u32 %p1, %r5, 40000;
        @%p1 bra more;
        st.global.u32 [%rd2], %r5;
        """
    )
    assert (out[:32] == 40000).all()


RING = """
    mov.u32 %r5, 0;
round:
    mov.u32 %r6, %nctaid.x;
    sub.u32 %r7, %r6, %r2;
    sub.u32 %r7, %r7, 1;
    mad.lo.u32 %r7, %r5, %r6, %r7;
wait:
    ld.acquire.gpu.global.u32 %r8, [%rd1];
    setp.ne.u32 %p1, %r8, %r7;
    @%p1 bra wait;
    bar.sync 0;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 atom.add.release.gpu.global.u32 %r9, [%rd1], 1;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p3, %r5, 4;
    @%p3 bra round;
"""


def test_a_chunk_that_writes_and_then_polls_sets_the_others_free(monkeypatch):
    """A token goes round six CTAs, each a chunk of its own, four times, last CTA first."""
    monkeypatch.setattr(launch, "LANES", 32)
    out, _ = run(RING, grid=6, block=32)
    assert out[0] == 24


def test_a_token_that_nobody_has_still_ends(monkeypatch):
    monkeypatch.setattr(launch, "LANES", 32)
    code, _ = failure_of(RING.replace("%r7, %r7, 1;", "%r7, %r7, 2;"), grid=6, block=32)
    assert code in ("TSR5010", "TSR5010")
