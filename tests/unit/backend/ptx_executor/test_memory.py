"""Addresses, allocations, logged accesses, and the other state spaces."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.access_log import merge
from tessera.backend.ptx_executor.memory.memory import GUARD, POISON, AddressSpace
from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import load, run


def accesses(result, name="out"):
    return next(a for a in result.accesses if a.buffer == name)


def test_fresh_memory_is_poisoned_and_guarded():
    with Device() as device:
        first, second = device.empty(100), device.empty(100)
        assert (first.numpy() == POISON).all()
        assert second.address - (first.address + 100) >= GUARD


# PTX ISA 4.5: 64 bits, unsigned if an operand is; results worked out by hand.
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("-1U/2", 2**63 - 1),
        ("-1/2", 0),
        ("1<<70", 0),
        ("-8>>70", 2**64 - 1),
        ("~0U>>60", 15),
        ("-7 % 3", 2**64 - 1),
        ("0x8000000000000000 > 1", 1),
        ("-1 < 0U", 0),
        ("3 > 2 ? WARP_SZ : 1/1", 32),
    ],
)
def test_constant_expressions(expression, value):
    out, _ = run(f"mov.u64 %rd5, ({expression}); st.global.u64 [%rd1], %rd5;", block=1, count=2)
    assert out.view(np.uint64)[0] == value


def test_a_constant_divided_by_zero_is_refused():
    with pytest.raises(TesseraError, match="TSR5001"):
        run("mov.u64 %rd5, (1/0); st.global.u64 [%rd1], %rd5;", block=1, count=2)


def test_devices_have_their_own_addresses():
    with Device(0) as one, Device(1) as two:
        a, b = one.array(np.zeros(4)), two.array(np.zeros(4))
        assert a.address >> 40 != b.address >> 40


def test_freed_memory_is_a_fault():
    with Device() as device:
        module = load(device, "ld.global.u32 %r5, [%rd2]; st.global.u32 [%rd2], %r5;")
        out = device.empty(32, np.uint32)
        out.close()
        with pytest.raises(TesseraError, match="TSR5002"):
            module["k"].launch(1, 32, [out])


def test_fault_below_shared_memory_names_its_thread():
    body = "setp.eq.u32 %p1, %r1, 4; shl.b32 %r5, %r1, 2; @%p1 mov.u32 %r5, -16;"
    with pytest.raises(TesseraError, match="TSR50") as caught:
        run(f".shared .b8 own[64]; {body} st.shared.u32 [%r5], %r1;", count=8)
    assert "thread (4, 0, 0)" in caught.value.diagnostics[0].notes[0]
    assert caught.value.diagnostics[0].hint is None  # no size of a launch would help


def test_an_access_that_ends_behind_its_buffer():
    with pytest.raises(TesseraError, match="TSR5002") as caught:
        run("st.global.u64 [%rd1+8], %rd1;", block=1, count=3)
    assert "8 bytes into it" in str(caught.value.diagnostics[0])


def test_rows_below_all_buffers_are_a_fault():
    body = "mad.lo.u32 %r5, %r2, 8, %r1; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd5, %rd5, 4096;"
    with pytest.raises(TesseraError, match="TSR5002"):
        run(f"{body} st.global.u32 [%rd5], %r1;", grid=3, block=8)


def test_some_threads_load_from_two_spaces():
    body = """
        .shared .align 4 .b32 kept;
        st.shared.u32 [kept], 7;
        bar.sync 0;
        mov.u64 %rd5, kept;
        cvta.shared.u64 %rd5, %rd5;
        setp.lt.u32 %p1, %r1, 3;
        selp.b64 %rd5, %rd5, %rd1, %p1;
        setp.lt.u32 %p2, %r1, 5;
        mov.u32 %r5, 9;
        @%p2 ld.u32 %r5, [%rd5];
        mul.wide.u32 %rd6, %r1, 4;
        add.u64 %rd6, %rd1, %rd6;
        st.global.u32 [%rd6+32], %r5;
    """
    out, _ = run(body, block=8, count=16)
    assert out[8:].tolist() == [7, 7, 7, 0, 0, 9, 9, 9]


def test_fault_at_the_top_of_the_address_space_names_its_thread():
    body = "setp.eq.u32 %p1, %r1, 4; mov.u64 %rd5, %rd1; @%p1 mov.u64 %rd5, 0xff00000000000010;"
    with pytest.raises(TesseraError, match="TSR5002") as caught:
        run(f"{body} st.global.u32 [%rd5], %r1;", count=8)
    assert "thread (4, 0, 0)" in caught.value.diagnostics[0].notes[0]


def test_fault_names_thread_line_and_allocation():
    with pytest.raises(TesseraError, match="TSR5002") as caught:
        run(
            "mul.wide.u32 %rd5, %r1, 8; add.u64 %rd6, %rd1, %rd5; st.global.u32 [%rd6], %r1;",
            grid=2,
            block=(8, 4),
            count=8,
        )
    found = caught.value.diagnostics[0]
    assert found.primary is not None
    assert found.primary.span.source.line_text(found.primary.span.start).lstrip().startswith("mul")
    assert "CTA (0, 0, 0), thread (4, 0, 0)" in found.notes[0]
    assert "`out` (32 bytes at" in found.notes[1]
    assert "0 bytes past its end" in found.notes[1]


def test_logged_bytes_are_exact():
    _, result = run(
        """
        and.b32 %r5, %r1, 7;
        mul.wide.u32 %rd5, %r5, 12;
        add.u64 %rd6, %rd1, %rd5;
        ld.global.u16 %rs1, [%rd6+2];
        ld.global.v2.u32 {%r6, %r7}, [%rd1+128];
        setp.eq.u32 %p1, %r1, 3;
        @%p1 st.global.u8 [%rd1+201], %r5;
        st.global.u32 [%rd2+256], %r6;
        """,
        grid=2,
        count=256,
    )
    found = accesses(result)
    assert found.reads == (*((12 * i + 2, 12 * i + 4) for i in range(8)), (128, 136))
    assert found.writes == ((201, 202), (256, 512))


def test_rows_far_apart_and_columns_apart():
    _, result = run(
        """
        mul.lo.u32 %r5, %r2, 400;
        mad.lo.u32 %r6, %r1, 8, %r5;
        cvt.u64.u32 %rd5, %r6;
        add.u64 %rd6, %rd1, %rd5;
        ld.global.u32 %r7, [%rd6];
        mad.lo.u32 %r8, %r1, 4, %r5;
        cvt.u64.u32 %rd5, %r8;
        add.u64 %rd6, %rd1, %rd5;
        st.global.u32 [%rd6], %r7;
        """,
        grid=3,
        block=32,
        count=400,
    )
    found = accesses(result)
    assert found.reads == tuple(
        (400 * c + 8 * t, 400 * c + 8 * t + 4) for c in range(3) for t in range(32)
    )
    assert found.writes == tuple((400 * c, 400 * c + 128) for c in range(3))


def test_merge_of_ranges():
    given = np.array([[5, 9], [0, 2], [2, 4], [8, 12], [20, 21]])
    assert merge(given) == [(0, 4), (5, 12), (20, 21)]
    assert merge(np.zeros((0, 2), dtype=np.int64)) == []


def test_overlapping_stores_keep_the_last_lane():
    out, _ = run("st.global.u32 [%rd1], %r3;", grid=4, block=32, count=1)
    assert out.tolist() == [127]


def test_module_variables_with_initialisers():
    before = """
.global .align 4 .u32 table[4] = {10, 20, 30};
.const .align 4 .b8 bytes[8] = {1, 2, 3, 4, 0xff, 0, 0, 0};
.global .u64 where = generic(table);
.global .f32 number = 0f40490FDB;
.global .u32 zero[2];
"""
    out, _ = run(
        """
        and.b32 %r5, %r1, 3;
        ld.global.u64 %rd5, [where];
        mul.wide.u32 %rd6, %r5, 4;
        add.u64 %rd6, %rd5, %rd6;
        ld.u32 %r10, [%rd6];
        ld.const.u8 %r6, [bytes+4];
        add.u32 %r10, %r10, %r6;
        ld.global.u32 %r7, [zero+4];
        add.u32 %r10, %r10, %r7;
        ld.global.u32 %r8, [number];
        xor.b32 %r10, %r10, %r8;
        st.global.u32 [%rd2], %r10;
        """,
        before=before,
    )
    expected = (np.array([10, 20, 30, 0]) + 255)[np.arange(32) % 4] ^ 0x40490FDB
    assert (out == expected).all()


def test_constant_memory_cannot_be_written():
    with pytest.raises(TesseraError, match="TSR5017"):
        run("mov.u64 %rd5, c; st.global.u32 [%rd5], %r1;", before=".const .u32 c;")


def test_generic_addresses_of_every_space():
    out, _ = run(
        """
        .shared .align 4 .b32 s[32];
        .local .align 4 .b32 l[2];
        mov.u64 %rd5, s;
        cvta.shared.u64 %rd6, %rd5;
        mul.wide.u32 %rd7, %r1, 4;
        add.u64 %rd6, %rd6, %rd7;
        mov.u64 %rd8, l;
        cvta.local.u64 %rd9, %rd8;
        setp.lt.u32 %p1, %r1, 8;
        setp.lt.u32 %p2, %r1, 16;
        selp.b64 %rd10, %rd9, %rd2, %p2;
        selp.b64 %rd11, %rd6, %rd10, %p1;
        add.u32 %r5, %r1, 100;
        st.u32 [%rd11], %r5;
        ld.u32 %r6, [%rd11];
        isspacep.shared %p3, %rd11;
        isspacep.local %p4, %rd11;
        isspacep.global %p5, %rd11;
        mov.u64 %rd12, c;
        cvta.const.u64 %rd12, %rd12;
        isspacep.const %p6, %rd12;
        isspacep.const %p7, %rd11;
        selp.u32 %r11, 4000, 0, %p6;
        selp.u32 %r12, 5000, 0, %p7;
        selp.u32 %r7, 1000, 0, %p3;
        selp.u32 %r8, 2000, 0, %p4;
        selp.u32 %r9, 3000, 0, %p5;
        add.u32 %r10, %r6, %r7;
        add.u32 %r10, %r10, %r8;
        add.u32 %r10, %r10, %r9;
        add.u32 %r10, %r10, %r11;
        add.u32 %r10, %r10, %r12;
        st.global.u32 [%rd2], %r10;
        """,
        before=".const .align 4 .b32 c[2];",
    )
    n = np.arange(32)
    space = np.where(n < 8, 1000, np.where(n < 16, 2000, 3000))
    assert (out == n + 4100 + space).all()


def test_vectors_of_every_width():
    out, _ = run(
        """
        shl.b32 %r5, %r1, 5;
        cvt.u64.u32 %rd5, %r5;
        add.u64 %rd6, %rd1, %rd5;
        ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd6];
        ld.global.v2.u64 {%rd7, %rd8}, [%rd6+16];
        st.global.v4.u32 [%rd6+16], {%r13, %r12, %r11, %r10};
        st.global.v2.u64 [%rd6], {%rd8, %rd7};
        mov.b64 {%rs1, %rs2, %rs3, %rs4}, %rd7;
        st.global.v4.u16 [%rd6+8], {%rs4, %rs3, %rs2, %rs1};
        """,
        block=16,
        initial=np.arange(128, dtype=np.uint32),
    )
    words = np.arange(128, dtype=np.uint32).reshape(16, 8)
    expected = words.copy()
    expected[:, 4:] = words[:, 3::-1]
    expected[:, :2], expected[:, 2:4] = words[:, 6:], words[:, 4:6]
    halves = words[:, 4:6].copy().view(np.uint16)[:, ::-1]
    expected[:, 2:4] = np.ascontiguousarray(halves).view(np.uint32)
    assert (out.reshape(16, 8) == expected).all()


def test_address_of_a_place_inside_a_variable():
    out, _ = run(
        "mov.u64 %rd5, table+8; ld.global.u32 %r10, [%rd5]; st.global.u32 [%rd2], %r10;",
        before=".global .align 4 .u32 table[4] = {10, 20, 30};",
    )
    assert (out == 30).all()


def test_words_of_128_bits():
    out, _ = run(
        """
        .reg .b128 %q<4>;
        ld.global.v2.u64 {%rd5, %rd6}, [%rd1];
        mov.b128 %q1, {%rd5, %rd6};
        mov.b128 %q2, {%rd6, %rd5};
        setp.eq.u32 %p1, %r1, 0;
        @%p1 atom.global.cas.b128 %q3, [%rd1], %q1, %q2;
        @%p1 st.global.b128 [%rd1+16], %q3;
        """,
        initial=np.array([0x7FF8000000000001, 0x8000000000000000, 0, 0], np.uint64),
    )
    nan, minus_zero = 0x7FF8000000000001, 0x8000000000000000
    assert out.tolist() == [minus_zero, nan, nan, minus_zero]


def test_missing_dynamic_shared_memory_has_a_hint():
    with pytest.raises(TesseraError, match="TSR5002") as caught:
        run("st.shared.u32 [dynamic], %r1;", before=".extern .shared .align 16 .b8 dynamic[];")
    assert "dynamic shared memory" in (caught.value.diagnostics[0].hint or "")


def test_special_registers_as_vectors():
    out, _ = run(
        "mov.v4.u32 {%r5, %r6, %r7, %r8}, %tid; mad.lo.u32 %r10, %r6, 10, %r5;"
        " mul.wide.u32 %rd4, %r10, 4; add.u64 %rd5, %rd1, %rd4; st.global.u32 [%rd5], %r6;",
        block=(10, 3),
    )
    assert (out == np.repeat(np.arange(3), 10)).all()


def test_all_threads_store_to_one_shared_word():
    out, _ = run(
        """
        .shared .align 4 .b32 s[2];
        st.shared.u32 [s], %r3;
        bar.sync 0;
        ld.shared.u32 %r10, [s];
        st.global.u32 [%rd2], %r10;
        """,
        grid=3,
        block=40,
    )
    assert (out.reshape(3, 40) == [[39], [79], [119]]).all()


@pytest.mark.parametrize(
    "body",
    ["ld.global.pred %p1, [%rd1];", "rsqrt.ftz.f32 %f1, %f2;", "mul.wide.s64 %rd5, %rd1, 2;"],
)
def test_forms_that_do_not_exist_are_refused(body: str):
    with pytest.raises(TesseraError, match="TSR1027"):
        run(body)


@pytest.mark.parametrize(
    "body",
    ["mov.u64 %rd5, child;", "{ .param .b32 r; call.uni (r), cudaLaunchDeviceV2, (); }"],
)
def test_launches_by_the_device_are_refused_by_name(body: str):
    before = ".visible .entry child() { ret; }\n.extern .func (.param .b32 r) cudaLaunchDeviceV2();"
    with pytest.raises(TesseraError) as caught:
        run(body, before=before)
    label = caught.value.diagnostics[0].primary
    assert label is not None
    assert "launches by the device are not supported" in label.text


def test_an_address_names_the_device_that_owns_it() -> None:
    spaces = [AddressSpace(index, 1 << 16) for index in range(4)]
    for own in spaces:
        for other in spaces:
            place = other.base + 4096
            assert own.other_owner(place) == (None if own is other else other.index)
            assert (f"of device {other.index}" in own.describe(place)[0]) is (own is not other)
    assert spaces[0].other_owner(4096) is None
