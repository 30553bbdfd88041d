"""Instructions on addresses: what shows where a variable lies, and what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tessera.passes.footprint import pointer_steps
from tessera.passes.footprint.moved_products import MovedProducts, _is_odd, _moved_steps
from tessera.passes.footprint.pointer_steps import (
    BITS,
    SUMS,
    hidden_kind,
    pointer_results,
    settled,
    unplaced_result,
)
from tessera.passes.footprint.zones import FIRST, LOCAL, PARAMETER
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.lanes import (
    HARD,
    LOW,
    MASK,
    MIXED,
    MOST_OPTIONS,
    NUMBER,
    POINTER,
    U64,
    WIDE,
    Lanes,
    one_of,
    sloped,
    unknown,
)
from tests.helpers.excerpts import Excerpt, excerpt, lanes_of, told

LINES = {
    "and": "and.b64 %d10, %d1, %d2;",
    "or": "or.b64 %d11, %d1, %d2;",
    "rem": "rem.u64 %d12, %d1, %d2;",
    "sub": "sub.s64 %d13, %d1, %d2;",
    "add": "add.s64 %d14, %d1, %d2;",
    "mad": "mad.lo.u64 %d15, %d1, %d2, %d3;",
    "mul": "mul.lo.u64 %d16, %d1, %d2;",
    "shl": "shl.b64 %d17, %d1, %r1;",
    "min": "min.u64 %d18, %d1, %d2;",
    "setp": "setp.lt.u64 %c0|%c1, %d1, %d2;",
    "mov": "mov.u64 %d20, %d1;",
    "and32": "and.b32 %r3, %r1, %r2;",
}
USES = "selp.b64 %d19, %d1, %d2, %c0; @%c1 add.s64 %d19, %d19, 1; cvt.u64.u32 %d21, %r3;"
LOCALS = ".local .align 4 .b8 l[32]; .local .align 16 .b8 m[32];"
VARIABLES = ".global .align 8 .b8 v[64]; .global .align 512 .b8 w[64];"


@pytest.fixture(scope="module")
def made() -> Excerpt:
    return excerpt(
        LOCALS + "".join(LINES.values()) + USES,
        before=VARIABLES,
        symbols=["v", "w"],
        needed=[f"%d{number}" for number in range(10, 22)],
    )


def step(made: Excerpt, name: str) -> Any:
    opcode = LINES[name].split()[0]
    return next(s for s in made.steps() if str(s.instruction.opcode) == opcode)


ANY, HIDDEN = ([0], [MASK[64]]), ([0], [MASK[64]], HARD)


def pointer(address: int, span: Any = None) -> Lanes:
    return lanes_of(address, span=span, kind=POINTER)


def shown(made: Excerpt, name: str, *values: Lanes) -> Any:
    found = unplaced_result(made, step(made, name), values)
    return None if found is None else (*told(found), found.kind)


def test_bits_of_the_address_of_a_variable(made: Excerpt) -> None:
    """`v` begins at some multiple of 8, buffers and `w` at multiples of 256."""
    v = pointer(made.symbols["v"] + 4)
    free = pointer(made.object(0))

    def masked(number: int, address: Lanes = v, **more: Any) -> Any:
        return shown(made, "and", address, lanes_of(number, **more))

    assert masked(7) is None
    assert masked(8) == ([0], [8], NUMBER)
    assert masked(255) == ([0], [255], NUMBER)
    assert masked(256) == HIDDEN
    assert masked(1 << 40) == HIDDEN
    assert masked(-8) is None
    assert masked(-7) is None
    assert masked(-9) == (told(v)[0], [MASK[64]], POINTER)
    assert masked(-255) == (told(v)[0], [MASK[64]], POINTER)
    assert masked(-256) == (told(v)[0], [MASK[64]], POINTER)
    assert masked(-257) == HIDDEN
    assert masked(7, span=1) == HIDDEN
    assert shown(made, "and", v, lanes_of(3, 7)) is None
    assert shown(made, "and", v, lanes_of(3, 9)) == ([0], [9], NUMBER)
    assert shown(made, "and", v, v) == HIDDEN
    for address in (free, pointer(made.symbols["w"]), lanes_of(12)):
        assert masked(8, address) is None
    for name in ("add", "mov"):
        assert shown(made, name, v, lanes_of(8)) is None
    for name in ("or", "mul", "shl", "min"):
        assert shown(made, name, v, lanes_of(8)) == HIDDEN
        assert shown(made, name, free, lanes_of(8)) is None
    assert shown(made, "and32", lanes_of(8), v) == ([0], [8], NUMBER)


def test_remainders_of_the_address_of_a_variable(made: Excerpt) -> None:
    v = pointer(made.symbols["v"])

    def rest(*divisors: int, **more: Any) -> Any:
        return shown(made, "rem", v, lanes_of(*divisors, **more))

    assert rest(1) is None
    assert rest(8) is None
    assert rest(16) == ([0], [15], NUMBER)
    assert rest(256) == ([0], [255], NUMBER)
    assert rest(1 << 50) == ([0], [(1 << 50) - 1], NUMBER)
    assert rest(7) == HIDDEN
    assert rest(12) == HIDDEN
    assert rest(4, 8) == HIDDEN
    assert rest(8, span=1) == HIDDEN
    assert shown(made, "rem", lanes_of(8), v) == HIDDEN
    assert shown(made, "rem", lanes_of(16), v) == HIDDEN


def test_sums_and_differences_of_addresses(made: Excerpt) -> None:
    local = made.symbols["l"]
    v, free = pointer(made.symbols["v"]), pointer(made.object(0))
    assert shown(made, "sub", v, free) is None
    assert shown(made, "sub", pointer(local), pointer(local + 8)) is None
    assert shown(made, "sub", pointer(local), pointer(made.symbols["m"])) == HIDDEN
    assert shown(made, "sub", v, pointer(local)) == HIDDEN
    assert shown(made, "sub", lanes_of(8), pointer(local)) == HIDDEN
    assert shown(made, "sub", pointer(local), v) is None
    assert shown(made, "sub", pointer(local), lanes_of(8)) is None
    # An address may be added to a product, and not be a factor.
    assert shown(made, "mad", lanes_of(3), lanes_of(4), v) is None
    assert shown(made, "mad", v, lanes_of(4), lanes_of(3)) == HIDDEN
    assert shown(made, "mad", lanes_of(4), v, lanes_of(3)) == HIDDEN
    assert shown(made, "mad", lanes_of(4), v, v) == HIDDEN
    assert shown(made, "mul", v, lanes_of(4)) == HIDDEN


def test_alignments(made: Excerpt) -> None:
    l, m = made.symbols["l"], made.symbols["m"]  # noqa: E741

    def of(*addresses: int, kind: int = POINTER) -> int:
        return pointer_steps._alignment(made, lanes_of(*addresses, kind=kind))

    assert (of(l), of(m), of(l, m), of(m, l)) == (4, 16, 4, 4)
    assert of(made.scene.zones.address(LOCAL)) == 1
    assert of(l, made.scene.zones.address(LOCAL)) == 1
    assert of(made.scene.zones.address(PARAMETER)) == 4
    assert (of(made.symbols["v"]), of(made.symbols["w"]), of(made.object(0))) == (8, 512, 256)
    assert of(made.symbols["v"], made.object(0)) == of(made.object(0), made.symbols["v"]) == 8
    assert of(l, made.object(0)) == of(made.object(0), l) == 1
    assert of(l, kind=MIXED) == of(l, kind=NUMBER) == 256


def test_variables_of_local_memory_next_to_each_other(made: Excerpt) -> None:
    l, m = made.symbols["l"], made.symbols["m"]  # noqa: E741
    local, free = made.scene.zones.address(LOCAL), made.object(0)

    def apart(first: int, second: int) -> bool:
        found = pointer_steps.are_neighbours(made, lanes_of(first), lanes_of(second))
        return bool(found.all())

    assert apart(l, m)
    assert apart(m, l)
    assert apart(local, l)
    assert apart(l - 1, l)
    assert not apart(l, l)
    assert not apart(l, l + 31)
    assert not apart(l, free)
    assert not apart(free, l)
    leaves = pointer_steps._leaves
    assert leaves(made, lanes_of(free, l), lanes_of(free, m))
    assert not leaves(made, lanes_of(free, l), lanes_of(free, l))
    assert leaves(made, lanes_of(free, free), lanes_of(free, l))


def test_what_numbers_show_a_value_to_be() -> None:
    for value, bits, kind, doubt in (
        (lambda a, b: lanes_of(a, kind=MIXED), 64, POINTER, SUMS),
        (lambda a, b: lanes_of(a, b, kind=MIXED), 64, POINTER, SUMS),
        (lambda a, b: lanes_of(a, kind=LOW), 64, POINTER, BITS),
        (lambda a, b: lanes_of(a, kind=HARD), 64, POINTER, BITS),
        (lambda a, b: lanes_of(a, span=8, kind=HARD), 64, POINTER, BITS),
        (lambda a, b: lanes_of(a, span=WIDE - 1, kind=MIXED), 64, POINTER, SUMS),
        (lambda a, b: lanes_of(a, span=WIDE, kind=MIXED), 64, MIXED, 0),
        (lambda a, b: lanes_of(a, span=MASK[64], kind=HARD), 64, HARD, 0),
        (lambda a, b: lanes_of(a, kind=MIXED), 32, MIXED, 0),
        (lambda a, b: lanes_of(8, kind=MIXED), 64, NUMBER, 0),
        (lambda a, b: lanes_of(-8, kind=MIXED), 64, NUMBER, 0),
        (lambda a, b: lanes_of(8, kind=HARD), 64, HARD, 0),
        (lambda a, b: lanes_of(8, kind=LOW), 64, LOW, 0),
        (lambda a, b: lanes_of((1 << 40) - 1, kind=MIXED), 64, NUMBER, 0),
        (lambda a, b: lanes_of(1 << 40, kind=MIXED), 64, MIXED, 0),
        (lambda a, b: lanes_of(-(1 << 40), kind=MIXED), 64, NUMBER, 0),
        (lambda a, b: lanes_of(-(1 << 40) - 1, kind=MIXED), 64, MIXED, 0),
        (lambda a, b: lanes_of(8, 1 << 41, kind=MIXED), 64, MIXED, 0),
        (lambda a, b: lanes_of(8, a, kind=MIXED), 64, MIXED, 0),
        (lambda a, b: lanes_of(a, kind=POINTER), 64, POINTER, 0),
        (lambda a, b: lanes_of(a, kind=NUMBER), 64, NUMBER, 0),
        (lambda a, b: one_of([pointer(a), pointer(b), lanes_of(0, kind=MIXED)], 1), 64, MIXED, 0),
    ):
        run = excerpt("")
        given = value(run.object(0), run.object(1))
        found = settled(run, given, bits)
        assert (found.kind, run.recorder.doubt) == (kind, doubt), told(given)
        assert told(found) == told(given)
    run = excerpt("")
    run.recorder.doubt = BITS
    settled(run, lanes_of(run.object(0), kind=MIXED), 64)
    assert run.recorder.doubt == BITS


def results(made: Excerpt, name: str, *values: Lanes) -> tuple[Lanes, ...]:
    return pointer_results(made, step(made, name), values, made._run_function)


def test_flags_of_which_little_is_open_are_spelled_out(made: Excerpt) -> None:
    a = made.object(0)
    for span, known in ((1, True), (3, True), (4, False)):
        (found,) = results(made, "mul", pointer(a), lanes_of(0, span=span))
        assert bool(found.options) == known
        if known:
            assert found.kind == max(option.kind for option in found.options)
            assert 0 in [told(option)[0][0] for option in found.options]
    (found,) = results(made, "mul", pointer(a), lanes_of(0, 1, span=(1, 0)))
    assert [told(option)[0] for option in found.options] == [[0, a], [a, a]]
    (found,) = results(made, "add", pointer(a), lanes_of(0, span=1))
    assert told(found) == ([a], [1])
    assert not found.options
    # An address with a small index is no flag.
    spelled = pointer_steps._spelled_out
    for value in (pointer(a, 1), lanes_of(5), lanes_of(0, span=4)):
        assert spelled(value) is value
    flag = spelled(lanes_of(7, span=2, why=3))
    assert [told(option) for option in flag.options] == [([7], None), ([8], None), ([9], None)]
    assert flag.why == 3


def options(first: int) -> Lanes:
    return one_of([pointer((first + i) << 42) for i in range(16)], 1)


def test_each_of_several_values(made: Excerpt) -> None:
    a, b = made.object(0), made.object(1)
    several = one_of([pointer(a), pointer(b)], 4)
    (found,) = results(made, "add", several, lanes_of(8))
    assert [told(option)[0] for option in found.options] == [[a + 8], [b + 8]]
    assert found.why == made.steps("add.s64")[0].index or found.why == 4
    (found,) = results(made, "sub", several, pointer(a))
    assert sorted(option.kind for option in found.options) == [NUMBER, MIXED]
    # A comparison that differs by value is open; its results have one bit.
    test, other = results(made, "setp", several, lanes_of(0))
    assert (told(test), told(other)) == (([0], None), ([1], None))
    test, other = results(made, "setp", several, pointer(a))
    assert (told(test), told(other)) == (([0], [1]), ([1], [1]))  # modulo 2
    assert test.why == step(made, "setp").index
    few, many = options(64), options(128)
    assert len(few.options) == MOST_OPTIONS == 16
    (found,) = results(made, "add", few, lanes_of(8))
    assert len(found.options) == 16
    (found,) = results(made, "mad", few, lanes_of(1), many)
    assert (told(found), found.kind) == (ANY, HARD)
    flag = lanes_of(0, span=1)
    (found,) = results(made, "mad", few, flag, many)  # 16 * 2 * 16: too many
    assert (told(found), found.kind, found.why) == (ANY, HARD, 1)


def test_why_one_of_several_is_open(made: Excerpt) -> None:
    index = step(made, "add").index
    a, b = made.object(0), made.object(1)
    for why, wanted in ((-1, index), (0, 0), (3, 3)):
        found = pointer_steps._one_of(
            [lanes_of(a, kind=POINTER, why=why), pointer(b)], step(made, "add")
        )
        assert (len(found.options), found.why) == (2, wanted)
        hard = lanes_of(a, kind=HARD, why=why, span=2)
        assert pointer_steps._one_of([hard, pointer(a)], step(made, "add")).why == wanted
    numbers = pointer_steps._one_of([lanes_of(0), lanes_of(MASK[32])], step(made, "add"))
    assert told(numbers) == ([0], [MASK[32]])
    flags = pointer_steps._one_of([lanes_of(1), lanes_of(0)], step(made, "setp"))
    assert told(flags) == ([1], [1])


def test_what_is_lost_may_be_a_distance(made: Excerpt) -> None:
    lost = pointer_steps._is_lost
    assert lost(unknown(64, 1)) is False
    for value, wanted in (
        (lanes_of(0, span=1, kind=HARD), True),
        (lanes_of(0, span=0, kind=HARD), False),
        (lanes_of(0, kind=HARD), False),
        (lanes_of(1, span=1, kind=HARD), False),
        (lanes_of(1, 0, span=(0, 1), kind=HARD), True),
        (lanes_of(1, 0, span=(1, 0), kind=HARD), False),
        (lanes_of(0, span=1, kind=MIXED), False),
    ):
        assert lost(value) == wanted


def test_comparisons_of_addresses(made: Excerpt) -> None:
    a, b = made.object(0), made.object(1)
    l, m = made.symbols["l"], made.symbols["m"]  # noqa: E741
    both = pointer(a), pointer(b)
    for first, second, known in (
        (a, a + 8, True),
        (a, b, False),
        (a, 0, True),
        (0, b, True),
        (5, 6, True),
        (a, 5, False),
        (1 << 41, 5, False),
        (1 << 41, 1 << 41, False),
        (l, l + 8, True),
        (l, m, False),
        (0, 0, True),
        (1 << 41, 0, False),
        (0, 1 << 41, False),
    ):
        kinds = [POINTER if number > 1 << 42 else NUMBER for number in (first, second)]
        pair = [lanes_of(n, kind=k) for n, k in zip((first, second), kinds, strict=True)]
        found = pointer_steps._tested(made, step(made, "setp"), pair, made._run_function)
        assert (found[0].span is None) == (found[1].span is None) == known, (first, second)
        if known:
            assert told(found[0]) == ([int(first < second)], None)
    null = lanes_of(0, span=1)
    found = pointer_steps._tested(made, step(made, "setp"), [null, both[0]], made._run_function)
    assert found[0].span is not None
    for kind in (LOW, HARD):
        pair = [lanes_of(5, kind=kind), lanes_of(6)]
        found = pointer_steps._tested(made, step(made, "setp"), pair, made._run_function)
        assert told(found[0]) == ([0], [1])
    pair = [lanes_of(a, a), lanes_of(a + 8, b)]
    found = pointer_steps._tested(made, step(made, "setp"), pair, made._run_function)
    assert told(found[0]) == ([1, 0], [0, 1])
    (least,) = pointer_steps._tested(made, step(made, "min"), both, made._run_function)
    assert [told(option)[0] for option in least.options] == [[a], [b]]
    (least,) = pointer_steps._tested(
        made, step(made, "min"), [pointer(a), pointer(a + 8)], made._run_function
    )
    assert (told(least), least.kind) == (([a], None), POINTER)


def test_what_a_comparison_makes_doubtful(made: Excerpt) -> None:
    a, b = made.object(0), made.object(1)
    for before, other, wanted in ((0, b, SUMS), (BITS, b, BITS), (0, a + 8, 0)):
        made.recorder.doubt = before
        pair = [pointer(a), pointer(other)]
        pointer_steps._tested(made, step(made, "setp"), pair, made._run_function)
        assert made.recorder.doubt == wanted
    # A number and an address: a larger kind, and both where it is open which is less.
    pair = [lanes_of(0), pointer(a)]
    (least,) = pointer_steps._tested(made, step(made, "min"), pair, made._run_function)
    assert (told(least), least.kind) == (([0], None), POINTER)


def test_what_was_lost_stays_lost(made: Excerpt) -> None:
    lost = lanes_of(0, span=1, kind=HARD)
    for values, anything in (
        ([lost, lanes_of(8)], True),
        ([lanes_of(8), lost], True),
        ([lanes_of(1, span=1, kind=HARD), lanes_of(8)], False),
        ([lanes_of(1, kind=HARD), lanes_of(8)], False),
    ):
        (found,) = results(made, "add", *values)
        assert ((told(found), found.kind) == (ANY, HARD)) == anything
    (found,) = results(made, "add", lanes_of(0, span=1), lanes_of(8))
    assert (told(found), found.kind) == (([8], [1]), NUMBER)


def test_results_that_may_be_a_distance() -> None:
    run = excerpt("mul.hi.u64 %d0, %p0, %d1;", needed=["%d0"])
    one = next(s for s in run.steps() if str(s.instruction.opcode).startswith("mul.hi"))
    run.registers["%p0"], run.registers["%d1"] = lanes_of(1), lanes_of(2)
    assert hidden_kind(run, one) == NUMBER
    run.registers["%d1"] = pointer(run.object(0))
    assert hidden_kind(run, one) == HARD
    del run.registers["%d1"]
    assert hidden_kind(run, one) == NUMBER


# --- quotients -----------------------------------------------------------------------------

QUOTIENT = "mul.hi.u32 %r1, %r2, %r3; shr.u32 %r4, %r1, 3;"
AFTER = "cvt.u64.u32 %d0, %r4;"


def known(body: str) -> list[str]:
    """Which of the products and shifts are quotients."""
    run = excerpt(body + AFTER, needed=["%d0"])
    found = _moved_steps(run.code)
    return [str(s.instruction.opcode) for s in run.steps() if s.index in found]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (QUOTIENT, ["mul.hi.u32", "shr.u32"]),
        (QUOTIENT.replace("shr.u32", "shr.s32"), ["mul.hi.u32", "shr.s32"]),
        (QUOTIENT.replace("shr.u32", "shr.b32"), ["mul.hi.u32", "shr.b32"]),
        (QUOTIENT.replace("hi.u32", "hi.s32"), ["mul.hi.s32", "shr.u32"]),
        (QUOTIENT + "shr.u32 %r5, %r1, 4; add.u32 %r4, %r4, %r5;",
         ["mul.hi.u32", "shr.u32", "shr.u32"]),
        (QUOTIENT.replace("hi", "lo"), []),
        (QUOTIENT.replace("shr.u32", "shl.b32"), []),
        (QUOTIENT.replace("mul.hi.u32", "@%c0 mul.hi.u32"), []),
        (QUOTIENT.replace("shr.u32", "@%c0 shr.u32"), []),
        (QUOTIENT.replace(" 3;", " %r5;"), []),
        (QUOTIENT.replace("%r1, 3;", "7, 3;") + "add.u32 %r4, %r4, %r1;", []),
        (QUOTIENT.replace("%r1, 3;", "3, %r1;"), []),
        (QUOTIENT.replace("%r1, 3;", "%r1, %r1;"), []),
        (QUOTIENT + "mul.hi.u32 %r1, %r2, %r4; shr.u32 %r4, %r1, 2;", []),
        (QUOTIENT + "add.u32 %r4, %r4, %r1;", []),
        (QUOTIENT + "bra N; N: shr.u32 %r5, %r1, 4; add.u32 %r4, %r4, %r5;", []),
        ("shr.u32 %r4, %r1, 3; mul.hi.u32 %r1, %r2, %r4;", []),
        ("shr.u32 %r4, %r1, 3; mul.hi.u32 %r1, %r2, %r3; add.u32 %r4, %r4, 1;", []),
        ("mul.hi.u32 %r4, %r2, %r3;", []),
        ("mad.hi.u32 %r1, %r2, %r3, %r5; shr.u32 %r4, %r1, 3;", []),
        # The shift writes over the product: what is shifted then is another number.
        ("mul.hi.u32 %r1, %r2, %r3; shr.u32 %r1, %r1, 3; shr.u32 %r4, %r1, 1;", []),
        # The product of the round before.
        ("L: shr.u32 %r4, %r1, 3; mul.hi.u32 %r1, %r2, %r3; setp.lt.u32 %c0, %r4, 9; @%c0 bra L;",
         []),
        (QUOTIENT.replace("mul.hi.u32", "mul24.hi.u32"), []),
        ("mul.hi.u32 %r1, %r1, %r3; shr.u32 %r4, %r1, 3;", ["mul.hi.u32", "shr.u32"]),
        ("mul.hi.u64 %d1, %d2, %d3; shr.u64 %d4, %d1, 3; cvt.u32.u64 %r4, %d4;", []),
    ],
)  # fmt: skip
def test_which_products_are_moved(body: str, wanted: list[str]) -> None:
    assert known(body) == wanted


def test_a_moved_product() -> None:
    run = excerpt(QUOTIENT + "mul.hi.u32 %r6, %r2, %r4;" + AFTER.replace("%r4", "%r6"),
                  needed=["%d0"])  # fmt: skip
    product, shift, other = run.steps("mul.hi.u32")[0], *run.steps("shr"), run.steps("mul.hi")[1]
    digit = Digit(0, 1, 100)
    grows = sloped(lanes_of(5), {digit: np.array([[1]], U64)}, 32)
    factor = lanes_of(0xAAAAAAAB)
    for values, wanted in (
        ([grows, factor], True),
        ([factor, grows], True),
        ([factor, factor], False),
    ):
        products = MovedProducts(run.code)
        assert products.may_touch(product, values) == wanted
        assert not products.may_touch(other, values)
        assert not products.may_touch(shift, [factor])
        if not wanted:
            continue
        found = products.result(product, values)
        assert found is not None
        assert (told(found), found.why) == (([0], [MASK[32]]), product.index)
        assert products.may_touch(shift, [found, lanes_of(3)])
        with pytest.raises(Split) as wanted_digits:
            products.result(shift, [found, lanes_of(3)])
        assert wanted_digits.value.base == 12  # a quotient by 12
        products.clear()
        assert not products.may_touch(shift, [found])
        assert products.result(shift, [found, lanes_of(3)]) is None
    products = MovedProducts(run.code)
    for bad in (
        lanes_of(3, 4),
        lanes_of(3, span=1),
        lanes_of(3, kind=POINTER),
        sloped(lanes_of(3), {digit: np.array([[1]], U64)}, 32),
    ):
        assert products.result(product, [grows, bad]) is None
        assert products.result(product, [bad, grows]) is None
    assert not products.open
    assert [_is_odd(v) for v in (lanes_of(3), lanes_of(3, kind=LOW), lanes_of(3, span=0))] == [
        False,
        True,
        True,
    ]
    assert FIRST
