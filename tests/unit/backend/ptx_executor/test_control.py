"""Divergence, loops, calls, tables: where lanes go."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.emit import program
from tessera.backend.ptx_executor.emit.program import compile_kernel
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.cpu_kernels import module_text, run
from tests.helpers.operations import operations

STORE = "st.global.u32 [%rd2], %r10;"


def lanes(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint32)


def test_nested_branches_meet_again():
    out, _ = run(
        """
        mov.u32 %r10, 0;
        setp.lt.u32 %p1, %r1, 20;
        @!%p1 bra outer;
        and.b32 %r5, %r1, 1;
        setp.eq.u32 %p2, %r5, 0;
        @%p2 bra even;
        mov.u32 %r10, 100;
        bra inner;
    even:
        mov.u32 %r10, 200;
    inner:
        add.u32 %r10, %r10, %r1;
    outer:
        activemask.b32 %r6;
        add.u32 %r10, %r10, %r6;
        """
        + STORE
    )
    n = lanes(32)
    expected = np.where(n < 20, np.where(n % 2 == 0, 200, 100) + n, 0) + 0xFFFFFFFF
    assert (out == expected.astype(np.uint32)).all()


def test_loops_with_their_own_trip_counts_and_early_return():
    out, _ = run(
        """
        mov.u32 %r10, 0;
        mov.u32 %r5, 0;
    loop:
        setp.ge.u32 %p1, %r5, %r3;
        @%p1 bra done;
        add.u32 %r10, %r10, %r5;
        add.u32 %r5, %r5, 1;
        setp.eq.u32 %p2, %r10, 45;
        @%p2 ret;
        bra loop;
    done:
        """
        + STORE,
        grid=3,
        block=40,
    )
    n = np.arange(120)
    expected = np.where(n >= 10, 0, n * (n - 1) // 2)
    assert (out == expected).all()


def test_table_branch():
    out, _ = run(
        """
        and.b32 %r5, %r1, 3;
    targets: .branchtargets zero, one, two, zero;
        brx.idx %r5, targets;
    zero:
        mov.u32 %r10, 7;
        bra join;
    one:
        mov.u32 %r10, 8;
        bra join;
    two:
        mov.u32 %r10, 9;
    join:
        """
        + STORE
    )
    assert (out == np.array([7, 8, 9, 7])[lanes(32) % 4]).all()


RECURSION = """
.func (.param .b32 result) fact(.param .b32 n)
{
    .reg .pred %p; .reg .b32 %r<6>;
    ld.param.u32 %r1, [n];
    setp.gt.u32 %p, %r1, 1;
    @%p bra more;
    st.param.b32 [result], 1;
    ret;
more:
    sub.u32 %r2, %r1, 1;
    {
        .param .b32 a; .param .b32 b;
        st.param.b32 [a], %r2;
        call.uni (b), fact, (a);
        ld.param.b32 %r3, [b];
    }
    mul.lo.u32 %r4, %r3, %r1;
    st.param.b32 [result], %r4;
    ret;
}
"""


def test_recursion_with_another_depth_per_lane():
    out, _ = run(
        """
        { .param .b32 a; .param .b32 b;
        st.param.b32 [a], %r1;
        call (b), fact, (a);
        ld.param.b32 %r10, [b]; }
        """
        + STORE,
        before=RECURSION,
        block=12,
    )
    factorials = np.cumprod(np.maximum(np.arange(12), 1))
    assert (out == factorials).all()


def test_endless_recursion_overflows_the_stack():
    body = """
        { .param .b32 a; .param .b32 b;
        st.param.b32 [a], 1;
        call (b), down, (a); }
    """
    down = RECURSION.replace("fact", "down").replace("@%p bra more", "bra more")
    with pytest.raises(TesseraError, match="TSR5023"):
        run(body, before=down, block=2)


def test_register_parameters_and_indirect_calls():
    before = """
.func (.reg .u32 %d) twice(.reg .u32 %a) { add.u32 %d, %a, %a; ret; }
.func (.param .b32 d) plus(.param .b32 a)
{ .reg .b32 %r<3>; ld.param.b32 %r1, [a]; add.u32 %r2, %r1, 5; st.param.b32 [d], %r2; ret; }
.func (.param .b32 d) minus(.param .b32 a)
{ .reg .b32 %r<3>; ld.param.b32 %r1, [a]; sub.u32 %r2, %r1, 5; st.param.b32 [d], %r2; ret; }
"""
    out, _ = run(
        """
        call (%r5), twice, (%r1);
        mov.u64 %rd5, plus;
        mov.u64 %rd6, minus;
        setp.lt.u32 %p1, %r1, 16;
        selp.b64 %rd7, %rd5, %rd6, %p1;
        { .param .b32 a; .param .b32 b;
        st.param.b32 [a], %r5;
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %rd7, (a), proto;
        ld.param.b32 %r10, [b]; }
        """
        + STORE,
        before=before,
    )
    n = lanes(32).astype(np.int64)
    assert (out == (2 * n + np.where(n < 16, 5, -5)).astype(np.uint32)).all()


def test_some_lanes_return_early_from_a_function():
    """The others go on with the registers that they have."""
    before = """
.func (.param .b32 d) late(.param .b32 a)
{
    .reg .pred %p; .reg .b32 %r<3>;
    ld.param.b32 %r1, [a]; add.u32 %r2, %r1, 100; st.param.b32 [d], %r2;
    setp.lt.u32 %p, %r1, 8; @%p ret;
    add.u32 %r2, %r2, %r1; st.param.b32 [d], %r2; ret;
}
"""
    call = "call (b), late, (a);"
    out, _ = run(
        "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1;"
        f"{call} ld.param.b32 %r10, [b]; }} {STORE}",
        before=before,
    )
    n = lanes(32)
    assert (out == np.where(n < 8, n + 100, 2 * n + 100)).all()


def test_a_function_indexes_its_own_parameter():
    """What clang makes of an array in a struct that is passed by value."""
    before = """
.func (.param .b32 d) pick(.param .align 16 .b8 all[16], .param .b32 i)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    mov.b64 %rd1, all;
    ld.param.u32 %r1, [i];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.param.u32 %r2, [%rd3];
    st.param.b32 [d], %r2;
    ret;
}
"""
    out, _ = run(
        """
        and.b32 %r5, %r1, 3;
        { .param .align 16 .b8 a[16]; .param .b32 i; .param .b32 b;
        st.param.v4.b32 [a], {11, 22, 33, 44};
        st.param.b32 [i], %r5;
        call (b), pick, (a, i);
        ld.param.b32 %r10, [b]; }
        """
        + STORE,
        before=before,
    )
    assert (out == np.array([11, 22, 33, 44])[lanes(32) % 4]).all()


def test_call_of_something_that_is_no_function():
    body = """
        { .param .b32 a; .param .b32 b;
        st.param.b32 [a], 0;
        proto: .callprototype (.param .b32 _) _ (.param .b32 _);
        call (b), %rd1, (a), proto; }
    """
    before = ".func (.param .b32 d) f(.param .b32 a) { st.param.b32 [d], 0; ret; }"
    with pytest.raises(TesseraError, match="TSR5023"):
        run(body, before=before)


def test_odd_block_sizes_and_three_axes():
    out, _ = run(
        """
        mov.u32 %r5, %tid.y;
        mov.u32 %r6, %tid.z;
        mad.lo.u32 %r10, %r5, 5, %r1;
        mad.lo.u32 %r10, %r6, 35, %r10;
        mad.lo.u32 %r7, %r2, 105, %r10;
        mad.wide.u32 %rd2, %r7, 4, %rd1;
        add.u32 %r10, %r10, 1;
        """
        + STORE,
        grid=2,
        block=(5, 7, 3),
    )
    assert (out == np.tile(np.arange(1, 106), 2)).all()


def test_step_limit_names_the_place():
    with pytest.raises(TesseraError, match="TSR5010") as caught:
        run("loop: add.u32 %r10, %r10, 1; bra loop;", max_steps=1000)
    assert "CTA (0, 0, 0), thread (0, 0, 0)" in caught.value.diagnostics[0].notes[0]
    assert caught.value.exit_code == 6


def test_guarded_instructions_keep_old_values():
    out, _ = run(
        """
        mov.u32 %r10, 3;
        setp.gt.u32 %p1, %r1, 4;
        @%p1 add.u32 %r10, %r1, 100;
        @!%p1 ld.global.u32 %r10, [%rd2];
        @%p1 setp.eq.u32 %p1, %r1, 9;
        @%p1 mov.u32 %r10, 1;
        """
        + STORE
    )
    n = lanes(32)
    expected = np.where(n > 4, np.where(n == 9, 1, n + 100), 0)
    assert (out == expected).all()


def test_deep_stacks_of_many_threads_stay_small():
    """Chunks get smaller where every thread needs much local memory."""
    down = RECURSION.replace("fact", "down").replace("@%p bra more", "bra more")
    body = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call (b), down, (a); }"
    with pytest.raises(TesseraError, match="TSR5023"):
        run(body, before=down, grid=300, block=256)


def test_large_local_arrays_in_many_threads():
    out, _ = run(
        """
        .local .align 4 .b8 big[65536];
        mov.u64 %rd5, big;
        st.local.u32 [%rd5+65532], %r3;
        ld.local.u32 %r10, [%rd5+65532];
        """
        + STORE,
        grid=100,
        block=128,
    )
    assert (out == lanes(100 * 128)).all()


def test_compiling_costs_in_proportion_to_the_labels(monkeypatch):
    """What `nvcc -G` writes has thousands; a table of all of them per block took a minute."""
    made = []

    class Noted(program.Emitter):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            made.append(self)

    def cost(count: int) -> int:
        step = "setp.eq.u32 %p1, %r1, {0};\n@%p1 bra L{0};\nadd.u32 %r10, %r10, {0};\nL{0}:\n"
        body = "".join(step.format(i) for i in range(count)) + STORE
        module = parse_module(module_text(body))
        return operations(lambda: compile_kernel(module, "k"))

    monkeypatch.setattr(program, "Emitter", Noted)
    cost(20)
    few, many = cost(100), cost(400)
    assert many < 4.5 * few
    tables = {id(block.labels) for block in made}
    assert len(made) > 500
    assert len(tables) == 3
