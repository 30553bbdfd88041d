"""Rules on addresses that few kernels need, against what the CPU backend touches.

The lesser of two pointers, halves from any thread that grow with the CTA, and launches that combine
pointers at other offsets.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.region import Affine
from tessera.passes.dependences import launch_report
from tessera.passes.kernel_facts.hidden_addresses import HiddenAddresses
from tests.helpers.pointer_cases import analysed, checked, kernel, trace
from tests.property.test_grid_pieces import in_pieces
from tests.property.test_soundness_generated import check_log

BUFFERS = "\n".join(f"//! buffer b{i} bytes=8192 role=state" for i in range(3))
STORE = "add.s64 %d1, %d1, %o; st.global.u32 [%d1], %t;"
SIDES = ("%p0", "%p1", "%d2", "%d3", "0")


@pytest.mark.parametrize("name", ["min.u64", "max.s64"])
def test_the_lesser_of_two_addresses(name: str) -> None:
    """In one buffer, in two, by thread, and beside null."""
    for first, second in product(SIDES, SIDES):
        if first == second or (first.startswith("%p"), second) == (False, "0"):
            continue
        body = f"""
  ld.global.u32 %r0, [%p2]; mul.wide.u32 %d4, %r0, 64; add.s64 %d2, %p0, %d4;
  add.s64 %d3, %p0, 256; setp.lt.u32 %c0, %t, 16; selp.b64 %d3, %d3, %p1, %c0;
  {name} %d1, {first}, {second};
"""
        if name.startswith("max") or "0" not in (first, second):
            body += STORE
        launch = "//! launch m.k grid=1,1,1 block=32,1,1 args=[b0, b1, b2]"
        (found,) = checked(trace(BUFFERS, kernel("k", 3, body), [launch]), fills=(0, 7))
        assert not found.pins


@pytest.mark.parametrize("form", ["min.s64 %d5, %d5, 0;", "max.s64 %d5, 0, %d5;"])
def test_the_lesser_of_a_distance_and_nothing(form: str) -> None:
    """It leads from one buffer to the other, or stays."""
    for first, second in ("%p0", "%p1"), ("%p1", "%p0"):
        body = f"sub.s64 %d5, {second}, {first}; {form} add.s64 %d1, {first}, %d5; {STORE}"
        launch = "//! launch m.k grid=1,1,1 block=32,1,1 args=[b0, b1, b2]"
        checked(trace(BUFFERS, kernel("k", 3, body), [launch]))


# How a word is kept, and how it becomes a distance of 64 bits again.
KEPT = {
    "local": "st.local.u32 [%d2], %r1; ld.local.u32 %r2, [%d2];",
    "local, 64 bits": "st.local.u64 [%d2], %d5; ld.local.u32 %r2, [%d2];",
    "global": "st.global.u32 [%p2+64], %r1; ld.global.u32 %r2, [%p2+64];",
    "shared": "st.shared.u32 [%r0], %r1; bar.warp.sync -1; ld.shared.u32 %r2, [%r0];",
    "exchanged": "st.global.u32 [%p2+64], %r1; atom.global.exch.b32 %r2, [%p2+64], %r1;",
}
WIDENED = (
    "cvt.u64.u32 %d1, %r2;",
    "cvt.s64.s32 %d1, %r2;",
    "mul.wide.u32 %d1, %r2, 1;",
    "mul.wide.u32 %d1, %r2, 4; shr.u64 %d1, %d1, 2;",
    "and.b32 %r2, %r2, 0xfffff; cvt.u64.u32 %d1, %r2;",
    "min.u32 %r2, %r2, 0xfffff; cvt.u64.u32 %d1, %r2;",
    "add.u32 %r2, %r2, 64; cvt.u64.u32 %d1, %r2;",
    "mov.b64 %d1, {%r2, 0};",
    "shr.u32 %r2, %r2, 2; mul.wide.u32 %d1, %r2, 4;",
    "setp.eq.u32 %c1, %r0, 0; selp.b32 %r2, %r2, 0, %c1; cvt.u64.u32 %d1, %r2;",
)


@pytest.mark.parametrize("kept", KEPT)
def test_a_distance_in_32_bits_that_memory_held(kept: str) -> None:
    """Nothing is known of the word, so that all draws of addresses would agree on it."""
    for widened in WIDENED:
        body = f"""
  {{ .local .align 8 .b8 own[16]; .shared .align 4 .b8 both[16];
  mov.b64 %d2, own; ld.global.u32 %r0, [%p2]; and.b32 %r0, %r0, 8; cvt.u64.u32 %d4, %r0;
  add.s64 %d2, %d2, %d4; sub.s64 %d5, %p1, %p0; cvt.u32.u64 %r1, %d5; {KEPT[kept]}
  {widened} add.s64 %d1, %p0, %d1; {STORE} }}
"""
        launch = "//! launch m.k grid=1,1,1 block=1,1,1 args=[b0, b1, b2]"
        checked(trace(BUFFERS, kernel("k", 3, body), [launch]), fills=(0, 8))


@pytest.mark.parametrize("place", ["0", "%d4"])
def test_either_rule_tells_a_distance_that_local_memory_held(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was stored there says so, also where the look at all instructions says nothing."""
    monkeypatch.setattr(HiddenAddresses, "where", lambda *_, **__: frozenset())
    body = f"""
  {{ .local .align 8 .b8 own[16];
  mov.b64 %d2, own; ld.global.u32 %r0, [%p2]; and.b32 %r0, %r0, 8; cvt.u64.u32 %d4, %r0;
  add.s64 %d2, %d2, {place}; sub.s64 %d5, %p1, %p0; st.local.u64 [%d2], %d5;
  mov.b64 %d2, own; add.s64 %d2, %d2, %d4; ld.local.u32 %r2, [%d2];
  cvt.u64.u32 %d1, %r2; add.s64 %d1, %p0, %d1; {STORE} }}
"""
    launch = "//! launch m.k grid=1,1,1 block=1,1,1 args=[b0, b1, b2]"
    checked(trace(BUFFERS, kernel("k", 3, body), [launch]))


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_a_field_of_a_number_from_memory_is_an_index(kind: str) -> None:
    word = "%r0" if kind.endswith("32") else "%d4"
    body = f"""
  ld.global.{kind} {word}, [%p2]; bfe.{kind} {word}, {word}, 4, 3; add.{kind} {word}, {word}, 4;
  {"cvt.s64.s32 %d4, %r0;" if word == "%r0" else ""} shl.b64 %d4, %d4, 2;
  add.s64 %d1, %p0, %d4; {STORE}
"""
    launch = "//! launch m.k grid=1,1,1 block=32,1,1 args=[b0, b1, b2]"
    checked(trace(BUFFERS, kernel("k", 3, body), [launch]), fills=(0, 0x10, 0x30, 0x40, 0x70))


def test_more_pieces_than_a_region_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of the thread; what lies between some of them counts as written, too."""
    monkeypatch.setattr(launch_report, "MOST_PIECES", 4)
    body = f"mul.lo.u32 %r0, %t, %t; mul.wide.u32 %d0, %r0, 8; add.s64 %d1, %p0, %d0; {STORE}"
    launch = "//! launch m.k grid=1,1,1 block=32,1,1 args=[b0, b1, b2]"
    text = trace(BUFFERS, kernel("k", 3, body), [launch])
    checked(text)
    (step,) = analysed(text)
    assert {type(access.region) for access in step.accesses} == {Affine}


@pytest.mark.parametrize("lane", ["%r9", "3"])
@pytest.mark.parametrize("grows", ["%t", "5"])
def test_halves_of_addresses_that_grow_with_the_block(lane: str, grows: str) -> None:
    """A thread gets an address from another one, which grows otherwise."""
    body = f"""
  ld.global.u32 %r0, [%p2]; and.b32 %r0, %r0, 1; mul.wide.u32 %d0, %r0, 4;
  add.s64 %d1, %p0, %d0; mov.u32 %r1, %ctaid.x; mul.lo.u32 %r1, %r1, {grows};
  mul.wide.u32 %d2, %r1, 4;
  add.s64 %d1, %d1, %d2; ld.global.u32 %r9, [%p2+4];
  mov.b64 {{%r2, %r3}}, %d1;
  shfl.sync.idx.b32 %r4, %r2, {lane}, 31, -1; shfl.sync.idx.b32 %r5, %r3, {lane}, 31, -1;
  mov.b64 %d1, {{%r4, %r5}}; {STORE}
"""
    launch = "//! launch m.k grid=6,1,1 block=32,1,1 args=[b0, b1, b2]"
    program = parse_trace(trace(BUFFERS, kernel("k", 3, body), [launch]), "k.ptx")
    step = in_pieces(program)
    for fill in (0, 7, 31):
        words = np.full(2048, fill if fill < 8 else 0, np.uint32)
        words[1] = fill
        given = {f"b{i}": words.view(np.uint8).copy() for i in range(3)}
        (record,) = run_program(program, given).launches
        if not step.pins:
            check_log(program, step, record.result.accesses, f"lane {fill}")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_launches_with_other_offsets_touch_other_bytes(order: tuple[int, ...]) -> None:
    """What several pointers come to depends on all of their offsets."""
    body = "sub.s64 %d0, %p1, %p2; add.s64 %d1, %p0, %d0; shl.b64 %d2, %d0, 1;" + STORE
    body += "add.s64 %d1, %p0, %d2; st.global.u32 [%d1], %t;"
    places = ("b0, b1+256, b1", "b0, b1+1024, b1+512", "b0, b1+512, b1+512")
    launches = [f"//! launch m.k grid=1,1,1 block=32,1,1 args=[{places[n]}]" for n in order]
    text = trace(BUFFERS, kernel("k", 3, body), launches)
    checked(text)
    found = [sorted({str(a.region) for a in step.accesses}) for step in analysed(text)]
    assert len({str(regions) for regions in found}) == 3
