"""Threads that poll for ever are found at once; threads that make progress are left alone."""

from __future__ import annotations

import pytest

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
    assert code == "TSR5011"
    assert "memory that no thread will change" in notes


def test_ctas_of_several_chunks_that_all_wait():
    code, notes = failure_of(SPIN, grid=1024, block=256)
    assert code == "TSR5011"
    assert "more CTAs" in notes


def test_some_wait_at_a_barrier_for_others_that_poll():
    code, notes = failure_of(
        f"setp.lt.u32 %p3, %r1, 32; @%p3 bra meet; {SPIN} meet: bar.sync 0;", block=64
    )
    assert code == "TSR5011"
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
