"""Addresses in shared memory beside bulk copies, matrix stores and clusters (sm_90)."""

from __future__ import annotations

import pytest

from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program import program as ir
from tests.property.test_shared_addresses import (
    BAR,
    BUFFERS,
    GET,
    HEAD,
    PUT_A,
    PUT_B,
    READ,
    WHOLE,
    WORDS,
    analysed,
    check,
    merged,
    touched,
)

# Thread 0 copies 512 bytes of `b` to a variable; everybody waits.
COPY = (
    "setp.eq.u32 %p2, %r1, 0; @%p2 mbarrier.init.shared::cta.b64 [more+1008], 1; {bar}"
    "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 %rd20, [more+1008], 512;"
    "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    " [{target}], [%rd2], 512, [more+1008];"
    "W: mbarrier.try_wait.parity.shared::cta.b64 %p3, [more+1008], 0; @!%p3 bra W; {bar}"
)
MATRIX = "stmatrix.sync.aligned.m8n8.x1.shared.b16 [{place}], {{%r6}};"
ROW = "and.b32 %r11, %r1, 7; shl.b32 %r12, %r11, 4; add.s32 %r13, %r33, %r12;"
REMOTE = (
    "mov.u32 %r11, %cluster_ctarank; xor.b32 %r12, %r11, 1;"
    "mapa.shared::cluster.u32 %r13, %r5, %r12;"
)
MEET = "barrier.cluster.arrive; barrier.cluster.wait;"


def program(body: str, cluster: str = "") -> ir.Program:
    records = [f"//! {line.strip()}\n" for line in BUFFERS.strip().splitlines()]
    launch = f"//! launch m.k grid=2,1,1 block=64,1,1 {cluster} smem=512 args=[a, b, out, data]\n"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    text = f"//! tessera.trace 1\n{''.join(records)}//! module m\n{head}{HEAD}{body}\nret;\n}}\n"
    return parse_trace(text + launch, "trace.ptx")


def follows(given: ir.Program, expected: dict[str, list[tuple[int, int]]]) -> None:
    step = analysed(given)
    assert not step.pins
    found = touched(given, step)
    assert found == {name: merged(pairs) for name, pairs in expected.items()}
    assert check(given, step) == 3


def test_a_bulk_copy_to_another_variable() -> None:
    copy = COPY.format(bar=BAR, target="more")
    body = f"{copy} {PUT_A} {BAR} {GET} {READ}"
    follows(program(body), {"a": WORDS, "b": [(0, 512)]})


def test_a_bulk_copy_over_addresses_may_land_at_any_time() -> None:
    copy = COPY.format(bar=BAR, target="smem")
    given = program(f"{copy} {PUT_A} {BAR} {GET} {READ}")
    step = analysed(given)
    assert step.pins
    check(given, step)


def test_a_matrix_store_before() -> None:
    matrix = MATRIX.format(place="%r13")
    body = f"{ROW} {matrix} {BAR} ld.shared.b32 %r14, [%r5]; {BAR} {PUT_A} {BAR} {GET} {READ}"
    follows(program(body), {"a": WORDS})


def test_a_matrix_store_over_addresses() -> None:
    given = program(f"{PUT_A} {BAR} {ROW} {MATRIX.format(place='%r13')} {BAR} {GET} {READ}")
    step = analysed(given)
    assert step.pins
    check(given, step)


def test_the_other_cta_stores_to_this_one() -> None:
    body = (
        f"{PUT_A} {REMOTE} {MEET} st.shared::cluster.b64 [%r13], %rd6; {MEET} {GET} {READ} {MEET}"
    )
    follows(program(body, "cluster=2,1,1"), {"a": WHOLE, "b": WHOLE})


def test_a_load_from_the_other_cta() -> None:
    body = f"{PUT_A} {REMOTE} {MEET} ld.shared::cluster.b64 %rd10, [%r13]; {READ} {MEET} {PUT_B}"
    follows(program(body, "cluster=2,1,1"), {"a": WHOLE, "b": WHOLE})


@pytest.mark.parametrize("cluster", ["", "cluster=2,1,1"])
def test_barriers_of_the_cluster_order_nothing(cluster: str) -> None:
    body = f"{PUT_B} {BAR} {PUT_A} {MEET} {GET} {READ}"
    follows(program(body, cluster), {"a": WHOLE, "b": WHOLE})
