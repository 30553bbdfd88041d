"""What loads from memory give: words of known contents, of tables, and anything."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.passes.footprint import loaded
from tessera.passes.footprint.loaded import contents_value, may_be_address, table_word
from tessera.passes.footprint.scene import Table
from tessera.passes.footprint.zones import FIRST, Zones
from tessera.passes.lane_values.digits import Digit
from tessera.passes.lane_values.lanes import (
    HARD,
    MASK,
    NUMBER,
    POINTER,
    U64,
    WIDE,
    Lanes,
    one_of,
    sloped,
)
from tests.helpers.excerpts import Excerpt, excerpt, lanes_of, told

ZONES = Zones(0)
A, B, C = (ZONES.address(FIRST + number) for number in range(3))
CONTENT = np.arange(200, 224).astype(np.uint8)  # 24 bytes


def word(count: int, start: int) -> int:
    return int.from_bytes(bytes(range(200 + start, 200 + start + count)), "little")


def value(address: Lanes, offset: int, type: str, bits: int = 64, content: Any = CONTENT) -> Any:
    found = contents_value(ZONES, content, address, offset, type, bits, 7)
    return None if found is None else told(found)


def test_words_of_known_contents() -> None:
    for type, count in (("u8", 1), ("b16", 2), ("u32", 4), ("f32", 4), ("b64", 8)):
        for start in (0, 8, 24 - count):
            assert value(lanes_of(A + start), 0, type) == ([word(count, start)], None)
            assert value(lanes_of(A), start, type) == ([word(count, start)], None)
        assert value(lanes_of(A + 24), 0, type) is None
        assert value(lanes_of(A + 24 - count // 2), 0, type) is None or count == 1
        assert value(lanes_of(A - count), 0, type) is None
    assert value(lanes_of(A + 1), 0, "u16") is None
    assert value(lanes_of(A), 0, "b128") is None
    assert value(lanes_of(A), 0, "s8") == ([MASK[64] - 55], None)
    assert value(lanes_of(A), 0, "s8", 32) == ([MASK[32] - 55], None)
    assert value(lanes_of(A), 0, "u8", 16) == ([200], None)
    assert value(lanes_of(A + 23), 0, "u8", 16) == ([223], None)
    # Some threads load elsewhere.
    some = lanes_of(A, A + 24, A - 1, A + 1)
    assert value(some, 0, "u8") == ([200, 0, 0, 201], [0, MASK[64], MASK[64], 0])
    assert value(lanes_of(A, A + 2), 0, "u32", 32) == ([word(4, 0), 0], [0, MASK[32]])
    # A tail that is no whole word is not there.
    short = CONTENT[:7]
    assert value(lanes_of(A + 4), 0, "u32", content=short) is None
    assert value(lanes_of(A), 0, "u32", content=short) == ([word(4, 0)], None)
    assert value(lanes_of(A), 0, "u64", content=short) is None
    assert value(lanes_of(A), 0, "u8", content=CONTENT[:0]) is None


def test_words_at_addresses_that_are_not_known() -> None:
    assert value(lanes_of(A, span=3), 0, "u8") == ([200], [3])
    assert value(lanes_of(A, span=0), 0, "u8") == ([200], [0])
    assert value(lanes_of(A, span=3), 2, "u8") == ([202], [3])
    assert value(lanes_of(A, A + 10, span=(3, 0)), 0, "u8") == ([200], [10])
    assert value(lanes_of(A + 4, span=7), 0, "u32") == ([word(4, 4)], [word(4, 8) - word(4, 4)])
    assert value(lanes_of(A + 4, span=3), 0, "u32") == ([word(4, 4)], [0])
    assert value(lanes_of(A - 50, span=49), 0, "u8") is None
    assert value(lanes_of(A - 50, span=50), 0, "u8") == ([200], [0])
    assert value(lanes_of(A + 23, span=50), 0, "u8") == ([223], [0])
    assert value(lanes_of(A + 24, span=50), 0, "u8") is None
    full = ([200], [23])
    for span in (WIDE, MASK[64]):
        assert value(lanes_of(A + 9, span=span), 0, "u8") == full
        assert value(lanes_of(A + 9, span=span), 5, "u8") == full
        assert value(lanes_of(A + 100, span=span), 0, "u8") == full
    signed = CONTENT.copy()
    signed[3] = 5
    assert value(lanes_of(A + 2, span=1), 0, "s8", content=signed) == ([MASK[64] - 53], [59])
    assert value(lanes_of(A, span=3), 0, "u64", content=CONTENT[:7]) is None


def table(*offsets: int, written: Any = (), zone: int = FIRST + 2) -> Table:
    ranges = np.array(written, dtype=np.int64).reshape(-1, 2)
    targets = np.array([C + offset for offset in offsets], U64)
    return Table(np.array(offsets, dtype=np.int64), targets, zone, ranges)


def scene(*tables: tuple[int, Table], holders: Any = None) -> Any:
    held = frozenset(number + FIRST for number, _ in tables) if holders is None else holders
    made = excerpt("", tables={number + FIRST: one for number, one in tables}, holders=held)
    return made.scene


def test_words_of_a_table() -> None:
    plain = scene((0, table(8, 24)))

    def found(given: Any, address: Lanes, offset: int = 0) -> Any:
        value = table_word(given, address, offset, 7)
        return None if value is None else (*told(value), value.kind)

    any_of_it = ([C], [MASK[64]], POINTER)
    assert found(plain, lanes_of(A + 8)) == ([C + 8], None, POINTER)
    assert found(plain, lanes_of(A + 8), 16) == ([C + 24], None, POINTER)
    assert found(plain, lanes_of(A + 8, A + 24)) == ([C + 8, C + 24], None, POINTER)
    for other in (0, 7, 9, 16, 25, 1000):
        assert found(plain, lanes_of(A + other)) == any_of_it
        assert found(plain, lanes_of(A + 8, A + other)) == any_of_it
    assert found(plain, lanes_of(A + 8, span=8)) == any_of_it
    assert found(plain, lanes_of(A + 8, B + 8)) is None
    assert found(plain, lanes_of(B + 8)) is None
    assert found(plain, lanes_of(B + 8, A + 8)) is None
    assert found(scene(), lanes_of(A + 8)) is None
    # Bytes that were written may be anything, but not where a word is intact.
    written = scene((0, table(8, 24, written=[(40, 48)])))
    assert found(written, lanes_of(A + 8)) == ([C + 8], None, POINTER)
    assert found(written, lanes_of(A + 32)) == any_of_it
    for place in (33, 40, 47):
        assert found(written, lanes_of(A + place)) is None, place
        assert found(written, lanes_of(A + 8, A + place)) is None
    assert found(written, lanes_of(A + 48)) == any_of_it
    assert found(written, lanes_of(A + 8, span=24)) == any_of_it
    assert found(written, lanes_of(A + 8, span=25)) is None
    assert found(written, lanes_of(A + 8, A + 8, span=(0, 25))) is None
    assert found(written, lanes_of(A + 100, span=WIDE)) is None
    assert found(written, lanes_of(A + 100, span=WIDE - 1)) == any_of_it
    over = scene((0, table(8, 24, written=[(8, 16)])))
    assert found(over, lanes_of(A + 8, A + 24)) == ([C + 8, C + 24], None, POINTER)


def test_what_may_be_an_address() -> None:
    def may(given: Any, address: Lanes, offset: int = 0, width: int = 4) -> bool:
        return may_be_address(given, address, offset, width)

    plain = scene((0, table(8, 24, written=[(40, 44)])))
    assert not may(scene(), lanes_of(0))
    for place, wanted in (
        (0, False),
        (4, False),
        (5, True),
        (8, True),
        (15, True),
        (16, False),
        (20, False),
        (21, True),
        (31, True),
        (32, False),
        (36, False),
        (37, True),
        (43, True),
        (44, False),
    ):
        assert may(plain, lanes_of(A + place)) == wanted, place
        assert may(plain, lanes_of(A), place) == wanted
        assert may(plain, lanes_of(A, A + place)) == wanted
    assert may(plain, lanes_of(A + 16, span=5))
    assert not may(plain, lanes_of(A + 16, span=4))
    assert not may(plain, lanes_of(A + 16), width=8)
    assert may(plain, lanes_of(A + 16), width=9)
    assert may(plain, lanes_of(A + 100, span=WIDE))
    assert not may(plain, lanes_of(A + 100, span=WIDE - 1))
    assert not may(plain, lanes_of(B + 8))
    assert may(plain, lanes_of(5))
    assert may(plain, lanes_of(B, A + 8))
    assert may(plain, lanes_of(B, 5))
    gone = scene((0, table(8)), holders=frozenset({FIRST, FIRST + 1}))
    assert may(gone, lanes_of(B + 100))
    assert not may(gone, lanes_of(C + 100))


def load(made: Excerpt, address: Lanes, type: str = "u16", bits: int = 32, offset: int = 0) -> Any:
    return loaded._word(made, address, offset, type, bits, 7)


def test_which_numbers_get_names() -> None:
    alone = frozenset({FIRST})
    made = excerpt("", alone=alone)
    one = load(made, lanes_of(A))
    assert one.form is not None
    assert load(made, lanes_of(A)) is one
    assert load(made, lanes_of(A + 4)) is not one
    assert load(made, lanes_of(A), offset=4) is not one
    assert load(made, lanes_of(A), "s16") is not one
    assert load(made, lanes_of(A), bits=64) is not one
    assert load(made, lanes_of([A], [A])) is not one
    assert made.recorder.steady == {FIRST}
    digit = Digit(0, 1, 4)
    grows = sloped(lanes_of(A), {digit: np.array([[4]], U64)}, 64)
    other = sloped(lanes_of(A), {digit: np.array([[8]], U64)}, 64)
    assert load(made, grows) is load(made, grows)
    assert load(made, grows) is not load(made, other)
    # Another object may be written: equal addresses may hold other numbers later.
    two = load(made, lanes_of(B))
    assert two.form is not None
    assert load(made, lanes_of(B)) is not two
    assert made.recorder.steady == {FIRST}
    assert made.recorder.asked == {FIRST, FIRST + 1}
    # All threads have the same number if they load one word of such an object.
    for address, shared in (
        (lanes_of(A + 64), True),
        (lanes_of(A + 64, A + 68), False),
        (lanes_of([A + 64], [A + 68]), True),
        (lanes_of(B + 64), False),
        (grows, True),
        (sloped(lanes_of(A), {digit: np.array([[4, 8]], U64)}, 64), False),
    ):
        (term,) = load(made, address).form.terms
        assert term[0].is_shared == shared
    # No name: an address that is not known, fewer than 32 bits, in no object, all CTAs as one.
    assert load(made, lanes_of(A, span=4)).form is None
    assert load(made, lanes_of(A), "u16", 16).form is None
    assert load(made, lanes_of(A), "u16", 32).form is not None
    for outside in (
        lanes_of(5),
        lanes_of(A, B),
        lanes_of(ZONES.address(1)),
        lanes_of(ZONES.address(15)),
    ):
        assert load(made, outside).form is None
        assert load(made, outside).kind == NUMBER
    assert load(excerpt("", alone=alone, piece=False), lanes_of(A)).form is None


def test_only_so_many_addresses_are_compared() -> None:
    made = excerpt("", alone=frozenset({FIRST}), threads=1 << 13)
    for count, steady in ((1 << 12, True), ((1 << 12) + 1, False)):
        address = lanes_of(*[A + 4 * place for place in range(count)])
        assert (load(made, address) is load(made, address)) == steady


def test_contents_that_were_looked_at() -> None:
    made = excerpt("", contents={FIRST: CONTENT})
    assert told(load(made, lanes_of(A))) == ([word(2, 0)], None)
    assert (made.recorder.looked_up, made.recorder.asked) == ({FIRST}, set())
    load(made, lanes_of(B))
    assert made.recorder.asked == {FIRST + 1}
    load(made, lanes_of(A, C))
    assert made.recorder.asked == {FIRST, FIRST + 1, FIRST + 2}
    made = excerpt("", contents={FIRST: CONTENT})
    load(made, lanes_of(5, C))
    assert made.recorder.asked == {FIRST + 2}


def test_words_of_tables_come_first() -> None:
    given = {"tables": {FIRST: table(8)}, "holders": frozenset({FIRST})}
    made = excerpt("", **given)
    assert told(load(made, lanes_of(A + 8), "u64", 64)) == ([C + 8], None)
    half = load(made, lanes_of(A + 8))
    assert (told(half), half.kind) == (([0], [65535]), HARD)
    assert load(made, lanes_of(A + 16)).kind == NUMBER


def loads(body: str, name: str = "%d0", **given: Any) -> Lanes:
    made = excerpt(body, needed=[name], contents={FIRST: CONTENT}, **given)
    return made.run().registers[name]


def test_load_instructions() -> None:
    assert told(loads("ld.global.u64 %d0, [%p0+8];")) == ([word(8, 8)], None)
    assert told(loads("ldu.global.u64 %d0, [%p0+8];")) == ([word(8, 8)], None)
    assert told(loads("ld.global.v2.u64 {%d0, %d1}, [%p0];", "%d1")) == ([word(8, 8)], None)
    assert told(loads("ld.global.v2.u64 {%d0, _}, [%p0];")) == ([word(8, 0)], None)
    assert told(loads("ld.global.s8 %d0, [%p0];")) == ([MASK[64] - 55], None)
    assert told(loads("ld.global.u8 %r0, [%p0]; cvt.u64.u32 %d0, %r0;")) == ([200], None)
    by_thread = loads("add.s64 %d1, %p0, %o; ld.global.u32 %d0, [%d1];")
    assert told(by_thread) == ([word(4, 4 * thread) for thread in range(4)], None)
    assert told(loads("mov.u64 %d0, 5; atom.global.add.u64 %d0, [%p0], 1;")) == ([0], [MASK[64]])
    guarded = loads("""mov.u64 %d0, 5; setp.lt.u32 %c0, %t, 2; add.s64 %d1, %p0, %o;
    @%c0 ld.global.u32 %d0, [%d1];""")
    assert told(guarded) == ([word(4, 0), word(4, 4), 5, 5], None)


def test_one_of_several_addresses() -> None:
    made = excerpt("ld.global.u8 %d0, [%d1];", needed=["%d0"], contents={FIRST: CONTENT})
    made.registers["%d1"] = one_of([lanes_of(A, kind=POINTER), lanes_of(B, kind=POINTER)], 1)
    made.run()
    assert told(made.registers["%d0"]) == ([0], [255])
    made.registers["%d1"] = one_of([lanes_of(A, kind=POINTER), lanes_of(A + (1 << 40))], 1)
    made.registers["%d1"].options = (lanes_of(A), lanes_of(A + 5))
    made.run()
    assert told(made.registers["%d0"]) == ([200], [5])
