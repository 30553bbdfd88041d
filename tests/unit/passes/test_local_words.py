"""Local memory and parameters, word by word: what is stored, what is loaded, what is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.passes.footprint import local
from tessera.passes.footprint.local import any_of_type
from tessera.passes.footprint.pointer_steps import BITS
from tessera.passes.footprint.zones import LOCAL, PARAMETER
from tessera.passes.lane_values.lanes import HARD, MASK, MIXED, NUMBER, POINTER, Lanes
from tessera.passes.lane_values.masks import NONE, Mask
from tests.helpers.excerpts import EVERYBODY, excerpt, flags, lanes_of, told

ANYTHING = {bits: ([0], [MASK[bits]]) for bits in (32, 64)}


def test_any_of_a_type() -> None:
    """All numbers of a type, as a register of some bits holds them."""
    for type, bits, wanted in (
        ("u8", 32, ([0], [255])),
        ("b8", 16, ([0], [255])),
        ("s8", 32, ([MASK[32] - 127], [255])),
        ("s8", 64, ([MASK[64] - 127], [255])),
        ("s16", 32, ([MASK[32] - 32767], [65535])),
        ("u16", 16, ([0], [65535])),
        ("s16", 16, ([0], [65535])),
        ("u32", 64, ([0], [MASK[32]])),
        ("s32", 64, ([MASK[64] - 0x7FFFFFFF], [MASK[32]])),
        ("s32", 32, ANYTHING[32]),
        ("f32", 64, ([0], [MASK[32]])),
        ("u64", 32, ANYTHING[32]),
        ("b64", 64, ANYTHING[64]),
        ("u16x2", 64, ([0], [MASK[32]])),
        ("b128", 64, ANYTHING[64]),
    ):
        value = any_of_type(type, bits, 7)
        assert told(value) == wanted, type
        assert value.why == 7


def loads(body: str, name: str = "%d0", **given: Any) -> Lanes:
    made = excerpt(body, needed=[name], **given)
    made.run()
    value = made.registers[name]
    assert isinstance(value, Lanes)
    return value


LOCALS = ".local .align 8 .b8 l[32]; .local .align 8 .b8 m[8];"
STORE = LOCALS + "mov.u64 %d1, 77; st.local.u64 [l+8], %d1; mov.u64 %d2, 78;"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("ld.local.u64 %d0, [l+8];", ([77], None)),
        ("ld.local.u64 %d0, [l];", ANYTHING[64]),
        ("ld.local.u64 %d0, [l+16];", ANYTHING[64]),
        ("ld.local.u64 %d0, [l+12];", ANYTHING[64]),
        ("ld.local.u32 %r0, [l+8]; cvt.u64.u32 %d0, %r0;", ([0], [MASK[32]])),
        # A store that overlaps forgets the word, the next one does not.
        ("st.local.u8 [l+15], 1; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.u8 [l+16], 1; ld.local.u64 %d0, [l+8];", ([77], None)),
        ("st.local.u8 [l+7], 1; ld.local.u64 %d0, [l+8];", ([77], None)),
        ("st.local.u8 [l+8], 1; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.u64 [l+1], %d1; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.u64 [l], %d1; ld.local.u64 %d0, [l+8];", ([77], None)),
        ("st.local.v2.u64 [l], {%d1, %d2}; ld.local.u64 %d0, [l+8];", ([78], None)),
        ("st.local.v2.u64 [l+8], {%d1, %d2}; ld.local.u64 %d0, [l+16];", ([78], None)),
        ("st.local.v2.u32 [l+12], {%t, %t}; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.v2.u64 [m], {%d1, %d2}; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.u64 [l+25], %d2; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("st.local.u64 [l+24], %d2; ld.local.u64 %d0, [l+8];", ([77], None)),
        ("st.local.u64 [l+-8], %d2; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("mov.u64 %d6, m; cvta.local.u64 %d6, %d6; atom.add.u64 %d2, [%d6], 1;"
         "ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        # Part of a word is stored by some threads, or by none.
        ("setp.lt.u32 %c0, %t, 2; @%c0 st.local.u64 [l+8], %d2; ld.local.u64 %d0, [l+8];",
         ([78, 78, 77, 77], None)),
        ("setp.lt.u32 %c0, %t, 2; @%c0 st.local.u64 [l+16], %d2; ld.local.u64 %d0, [l+16];",
         ([78, 78, 0, 0], [0, 0, MASK[64], MASK[64]])),
        # Each thread has a word of its own: words side by side, of 8 bytes.
        ("mul.wide.u32 %d3, %t, 8; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3;"
         "ld.local.u64 %d0, [%d4];", ([0, 8, 16, 24], None)),
        ("mul.wide.u32 %d3, %t, 8; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3;"
         "ld.local.u64 %d0, [l+8];", ([77, 8, 77, 77], None)),
        ("mul.wide.u32 %d3, %t, 8; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; ld.local.u64 %d0, [%d4];",
         ([0, 77, 0, 0], [MASK[64], 0, MASK[64], MASK[64]])),
        # Words that overlap, and words of 4 bytes, are not kept.
        ("mul.wide.u32 %d3, %t, 4; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3;"
         "ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("mul.wide.u32 %d3, %t, 4; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; st.local.u32 [%d4], %t;"
         "ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("mul.wide.u32 %d3, %t, 8; mov.u64 %d4, m; add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3;"
         "ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("mul.wide.u32 %d3, %t, 4; mov.u64 %d4, l; add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3;"
         "ld.local.u64 %d0, [l+12];", ANYTHING[64]),
        # Where it is not known where, or elsewhere than in local memory.
        ("ld.global.u32 %r3, [%p0]; and.b32 %r3, %r3, 8; cvt.u64.u32 %d3, %r3; mov.u64 %d4, l;"
         "add.s64 %d4, %d4, %d3; st.local.u64 [%d4], %d3; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("ld.global.u64 %d4, [%p0]; ld.local.u64 %d0, [%d4];", ANYTHING[64]),
        ("st.local.u64 [%p0+1048576], %d2; ld.local.u64 %d0, [l+8];", ANYTHING[64]),
        ("ld.local.u64 %d0, [%p0+1048584];", ANYTHING[64]),
        ("st.local.u64 [l+16], %d2; ld.local.v2.u64 {%d3, %d0}, [l+8];", ([78], None)),
        # Numbers of fewer bits, with a sign and without.
        ("mov.u32 %r1, 200; st.local.u8 [m], %r1; ld.local.s8 %r0, [m]; cvt.s64.s32 %d0, %r0;",
         ([MASK[64] - 55], None)),
        ("mov.u32 %r1, 200; st.local.u8 [m], %r1; ld.local.u8 %r0, [m]; cvt.s64.s32 %d0, %r0;",
         ([200], None)),
        ("mov.u32 %r1, 456; st.local.u8 [m], %r1; ld.local.u8 %r0, [m]; cvt.s64.s32 %d0, %r0;",
         ([200], None)),
        ("ld.local.s8 %r0, [m]; cvt.s64.s32 %d0, %r0;", ([MASK[64] - 127], [255])),
    ],
)  # fmt: skip
def test_local_words(body: str, wanted: Any) -> None:
    assert told(loads(STORE + body)) == wanted


NEWER = ".version 8.3\n.target sm_80\n.address_size 64\n"


def test_128_bits_are_not_kept() -> None:
    body = STORE + ".reg .b128 %q; mov.b128 %q, {%d1, %d1}; st.local.b128 [l], %q;"
    assert told(loads(body + "ld.local.u64 %d0, [l+8];", header=NEWER)) == ANYTHING[64]
    body = STORE + ".reg .b128 %q; ld.local.b128 %q, [l]; mov.b128 {%d0, %d3}, %q;"
    assert told(loads(body, header=NEWER)) == ANYTHING[64]
    body = ".reg .b128 %q; ld.param.b128 %q, [a0]; mov.b128 {%d0, %d3}, %q;"
    assert told(loads(body, header=NEWER)) == ANYTHING[64]


VALUES = b"".join(number.to_bytes(4, "little") for number in (5, 6, 7, 0x80000001))
MORE = ".param .u32 i, .param .u32 j, .param .b8 s[8]"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("ld.param.u32 %r0, [j]; cvt.u64.u32 %d0, %r0;", ([6], None)),
        ("ld.param.s32 %r0, [s+4]; cvt.s64.s32 %d0, %r0;", ([MASK[64] - 0x7FFFFFFE], None)),
        ("ld.param.s32 %d0, [s+4];", ([MASK[64] - 0x7FFFFFFE], None)),
        ("ld.param.u32 %d0, [s+4];", ([0x80000001], None)),
        ("ld.param.u64 %d0, [i];", ([5 + (6 << 32)], None)),
        ("ld.param.u8 %d0, [s+7];", ([0x80], None)),
        ("ld.param.v2.u32 {%r0, %r1}, [s]; cvt.u64.u32 %d0, %r1;", ([0x80000001], None)),
        # Behind the last one, and before the first.
        ("ld.param.u64 %d0, [s+4];", ANYTHING[64]),
        ("ld.param.u32 %d0, [s+8];", ([0], [MASK[32]])),
        ("ld.param.u64 %d0, [a0+-8];", ANYTHING[64]),
        # An element by thread, and by data.
        ("mul.wide.u32 %d1, %t, 4; mov.u64 %d2, i; add.s64 %d1, %d1, %d2; ld.param.u32 %d0, [%d1];",
         ([5, 6, 7, 0x80000001], None)),
        ("ld.global.u32 %r1, [%p0]; and.b32 %r1, %r1, 1; mul.wide.u32 %d1, %r1, 4; mov.u64 %d2, i;"
         "add.s64 %d1, %d1, %d2; ld.param.u32 %d0, [%d1];", ([5], [1])),
        ("ld.global.u32 %r1, [%p0]; and.b32 %r1, %r1, 3; mul.wide.u32 %d1, %r1, 4; mov.u64 %d2, i;"
         "add.s64 %d1, %d1, %d2; ld.param.u32 %d0, [%d1];", ([5], [0x80000001 - 5])),
    ],
)  # fmt: skip
def test_parameters(body: str, wanted: Any) -> None:
    assert told(loads(body, more=MORE, values=VALUES)) == wanted


def test_parts_of_pointers_in_parameters() -> None:
    """A whole pointer is an address; a part of it is a number of which little is known."""
    for offset, width, kind, doubt in (
        (0, 8, POINTER, 0),
        (8, 8, POINTER, 0),
        (0, 4, HARD, BITS),
        (4, 8, HARD, BITS),
        (12, 8, HARD, BITS),
        (15, 1, HARD, BITS),
        (16, 1, NUMBER, 0),
        (16, 4, NUMBER, 0),
        (16, 8, NUMBER, 0),
    ):
        made = excerpt("", more=".param .u64 n", values=bytes(8))
        value = local._parameter(made, np.array([[offset]]), width)
        assert value is not None
        assert (value.kind, made.recorder.doubt) == (kind, doubt), (offset, width)
    made = excerpt("", pointers=3, pointer_words=(8,))
    for offset, width, kind in ((0, 8, NUMBER), (1, 8, HARD), (4, 4, NUMBER), (16, 8, NUMBER)):
        value = local._parameter(made, np.array([[offset]]), width)
        assert value is not None
        assert value.kind == kind
    made = excerpt("", more=".param .u64 n", values=bytes(8))
    value = local._parameter(made, np.array([[16, 1]]), 8)
    assert value is not None
    assert (value.kind, made.recorder.doubt) == (HARD, BITS)
    assert local._parameter(made, np.array([[17]]), 8) is None


WIDE = 1 << 38


@pytest.mark.parametrize(
    ("zone", "start", "span", "width", "wanted"),
    [
        # Local variables: `l` has 32 bytes, `m` 8.
        ("l", 0, 7, 8, (0, 7)),
        ("l", 0, 8, 8, (0, 8)),
        ("l", 3, 4, 4, (4, 7)),
        ("l", 0, 24, 8, (0, 24)),
        ("l", 0, 28, 8, (0, 24)),
        ("l", 0, 31, 8, (0, 24)),
        ("l", 0, 32, 8, None),
        ("l", 8, 24, 8, None),
        ("l", 8, 23, 8, (8, 24)),
        ("l", 8, WIDE - 1, 8, None),
        ("l", 8, WIDE, 8, (0, 24)),
        ("l", 8, MASK[64], 8, (0, 24)),
        ("l", 8, MASK[64], 1, (0, 31)),
        ("m", 0, MASK[64], 8, (0, 0)),
        ("m", 0, 7, 4, (0, 4)),
        ("m", 8, 0, 8, None),
        # Parameters: two pointers, then one of 4 bytes.
        (PARAMETER, 0, 8, 8, (0, 8)),
        (PARAMETER, 0, 19, 4, (0, 16)),
        (PARAMETER, 8, 100, 4, (8, 16)),
        (PARAMETER, 8, WIDE - 1, 4, (8, 16)),
        (PARAMETER, 8, WIDE, 4, (8, 12)),
        (PARAMETER, 16, MASK[64], 4, (16, 16)),
    ],
)
def test_where_a_load_may_be(zone: Any, start: int, span: int, width: int, wanted: Any) -> None:
    made = excerpt(LOCALS, more=".param .u32 n", values=bytes(4))
    base = made.symbols[zone] if zone != PARAMETER else made.scene.zones.address(PARAMETER)
    own = made.scene.zones.address(PARAMETER if zone == PARAMETER else LOCAL)
    address = lanes_of(base + start, span=span, kind=POINTER)
    low, high = local._bounds(made, address, PARAMETER if zone == PARAMETER else LOCAL, width)
    if wanted is None:
        assert high < low
    else:
        assert (low + own - base, high + own - base) == wanted
    if span < WIDE:  # threads further up count, too
        two = lanes_of(base, base + start, span=(0, span), kind=POINTER)
        number = PARAMETER if zone == PARAMETER else LOCAL
        low, high = local._bounds(made, two, number, width)
        if wanted is None:
            assert high < low
        else:
            assert (low + own - base, high + own - base) == (0, wanted[1])


def test_one_of_some_words() -> None:
    made = excerpt(".local .align 8 .b8 l[256];" + LOCALS.replace(" l[", " n["))
    base = made.symbols["l"]
    own = base - made.scene.zones.address(LOCAL)
    for place in range(16):
        made.registers[own + 8 * place, 8] = lanes_of(100 + place)

    def word(start: int, span: int, width: int = 8, offset: int = 0) -> Any:
        address = lanes_of(base + start, span=span, kind=POINTER)
        found = local._any_word(made, address, offset, width, 9)
        return None if found is None else (*told(found), found.why)

    assert word(0, 8) == ([100], [1], 9)
    assert word(0, 8, offset=8) == ([101], [1], 9)
    assert word(16, 15) == ([102], [1], 9)
    assert word(24, 1) == ([103], None, 9)
    assert word(0, 8 * 15) == ([100], [15], 9)
    assert word(0, 8 * 16) is None  # too many, and one of them is not known
    assert word(8 * 15, 8) is None
    assert word(0, 8, width=4) is None
    assert word(250, 4) is None  # no aligned word there
    made.registers[own + 128, 8] = lanes_of(116)
    assert word(0, 8 * 16) is None
    assert word(8, 8 * 15) == ([101], [15], 9)
    made.registers[own, 8] = lanes_of(0, span=4, why=3)
    assert word(0, 8) == ([0], [101], 3)
    made.registers[own, 8] = lanes_of(0, span=4, why=0)
    assert word(0, 8) == ([0], [101], 0)
    outside = lanes_of(made.object(0), span=8, kind=POINTER)
    assert local._any_word(made, outside, 0, 8, 9) is None


def test_words_by_thread() -> None:
    made = excerpt(LOCALS)
    made.registers[0, 8] = lanes_of(1, 2, 3, 4)
    made.registers[8, 8] = lanes_of(11, 12, 13, 14)

    def word(*places: int) -> Any:
        found = local._local_word(made, np.array([places]), 8, 5)
        return None if found is None else told(found)

    assert word(0) == ([1, 2, 3, 4], None)
    assert word(16) is None
    assert word(0, 8, 8, 0) == ([1, 12, 13, 4], None)
    assert word(0, 8, 16, 0) == ([1, 12, 0, 4], [0, 0, MASK[64], 0])
    made.local_kind = MIXED
    found = local._local_word(made, np.array([[0, 16, 0, 0]]), 8, 5)
    assert found is not None
    assert (found.kind, found.why) == (HARD, 5)


def test_too_many_words(monkeypatch: pytest.MonkeyPatch) -> None:
    made = excerpt(LOCALS)
    for place in range(4):
        made.registers[8 * place, 8] = lanes_of(place)
    places = 8 * np.arange(4)[None, :]
    for loads, elements, known in ((4, 16, True), (3, 16, False), (4, 15, False), (3, 15, False)):
        monkeypatch.setattr(local, "_MOST_LOADS", loads)
        monkeypatch.setattr(local, "_MOST_ELEMENTS", elements)
        assert (local._local_word(made, places, 8, 0) is not None) == known
    assert local._local_word(made, np.array([[8]]), 8, 0) is not None


def test_too_many_places_to_store_at() -> None:
    for count in (16, 17):
        body = f".local .align 8 .b8 l[{8 * count}]; mov.u64 %d1, l; mul.wide.u32 %d2, %t, 8;"
        body += "add.s64 %d1, %d1, %d2; st.local.u64 [%d1], %d2; ld.local.u64 %d0, [l+8];"
        value = loads(body, threads=count)
        wanted = [0, MASK[64]] if count == 16 else [MASK[64]]
        assert sorted(set(value.span[0].tolist())) == wanted if value.span is not None else False


def test_inside_one_variable_each() -> None:
    made = excerpt(LOCALS)
    one, two = (made.symbols[name] - made.scene.zones.address(LOCAL) for name in ("l", "m"))
    for places, width, inside in (
        ([one], 32, True),
        ([one], 33, False),
        ([one + 31], 1, True),
        ([one + 32], 1, False),
        ([one - 1], 1, False),
        ([two], 8, True),
        ([two + 1], 8, False),
        ([one, two], 8, True),
        ([one, two], 9, False),
        ([one - 1, two], 8, False),
        ([0], 1, False),
    ):
        assert local._are_inside(made, np.array(places), width) == inside, (places, width)
    assert not local._are_inside(excerpt(""), np.array([0]), 1)


def test_what_an_atomic_instruction_gives_is_unknown() -> None:
    body = "mov.u64 %d6, m; cvta.local.u64 %d6, %d6; atom.add.u64 %d2, [%d6], 1;"
    assert told(loads(STORE + body, "%d2")) == ANYTHING[64]


def test_a_store_forgets_the_words_that_it_overlaps() -> None:
    made = excerpt(LOCALS)
    (step,) = excerpt("st.global.u8 [%p0], 0;").steps("st")
    value = lanes_of(5)
    keys = [(at, width) for at in range(80, 130) for width in (1, 2, 4, 8)]
    for start, width in ((100, 1), (100, 2), (101, 4), (96, 8)):
        for known in (True, False):
            made.registers = {"%t": value, **dict.fromkeys(keys, value)}
            if not known:
                del made.registers[start, width]
            local._store_word(made, step, (start, width), lanes_of(6), EVERYBODY)
            kept = {k for k in keys if k[0] >= start + width or k[0] + k[1] <= start}
            assert made.registers.keys() == {"%t", (start, width)} | kept
            assert told(made.registers[start, width]) == ([6], None)


def test_who_stores_a_word_that_is_not_known() -> None:
    made = excerpt(LOCALS)
    made.local_kind = MIXED
    (step,) = excerpt("st.global.u8 [%p0], 0;").steps("st")
    some = flags(True, False)
    local._store_word(made, step, (8, 8), lanes_of(6), EVERYBODY)
    assert made.registers[8, 8].kind == NUMBER
    local._store_word(made, step, (16, 8), lanes_of(6), Mask(some, some, some))
    found = made.registers[16, 8]
    assert (told(found), found.kind) == (([6, 0], [0, MASK[64]]), HARD)
    local._store_word(made, step, (24, 8), lanes_of(6), Mask(some, NONE, NONE))
    assert (24, 8) not in made.registers


def test_a_store_by_threads_that_are_not_certain_joins() -> None:
    made = excerpt(STORE + "st.local.u64 [l+8], %d2; ld.local.u64 %d0, [l+8];", needed=["%d0"])
    *before, store, load, _ = (s for s in made.steps() if s.instruction.opcode.name != "ret")
    for step in before:
        made.step(step, EVERYBODY)
    some = flags(True, False, True, False)
    made.step(store, Mask(some, NONE, NONE))
    made.step(load, EVERYBODY)
    value = made.registers["%d0"]
    assert told(value) == ([77, 77, 77, 77], [1, 0, 1, 0])


def test_what_is_not_known_may_be_a_distance_that_was_stored() -> None:
    body = STORE + "sub.s64 %d5, %p0, %p1; st.local.u64 [m], %d5; ld.local.u64 %d0, [l];"
    assert loads(body).kind == HARD
    assert excerpt(body, needed=["%d0"]).run().local_kind == MIXED
    body = STORE + "st.local.u64 [m], %p0; ld.local.u64 %d0, [l];"
    assert loads(body).kind == NUMBER
    body = STORE + "st.local.v2.u64 [l], {%d1, %p0}; ld.local.u64 %d0, [l+8];"
    assert loads(body).kind == POINTER
