"""Instructions on values that grow with digits, against the same instructions value by value."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from itertools import product as product_of

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.lane_ops import lane_function, source_bits
from tessera.passes.lane_values.lanes import MASK, U64, Lanes, sloped
from tessera.passes.lane_values.sloped_ops import sloped_moved_product
from tessera.passes.lane_values.slopes import apart

SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 33, 64, 100, 256)
BINARY = ("add", "sub", "div", "rem", "min", "max", "mul.lo", "mul.hi", "shr")
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
OPCODES = [
    *(f"{name}.{sign}{bits}" for name in BINARY for sign in "us" for bits in (16, 32, 64)),
    *(f"setp.{name}.{sign}{bits}" for name in COMPARISONS for sign in "us" for bits in (32, 64)),
    *(f"{name}.b{bits}" for name in ("and", "or", "xor", "shl") for bits in (32, 64)),
    *(f"bfe.{sign}{bits}" for sign in "us" for bits in (32, 64)),
]


def number(rng: random.Random, bits: int) -> int:
    """Small ones, those near the ends of a type, and any."""
    ends = (0, 0, 0, 1 << (bits - 1), 1 << bits, 1 << rng.randrange(bits))
    few = rng.choice(ends) + rng.choice((1, 1, -1)) * rng.choice(SMALL)
    return (few if rng.random() < 0.9 else rng.getrandbits(bits)) & MASK[bits]


def operand(rng: random.Random, bits: int, digits: list[Digit]) -> Lanes:
    value = lanes.scalar(number(rng, bits), bits)
    if rng.random() < 0.2:
        value = Lanes(value.low(), np.array([[rng.choice([1, 2, 5])]], dtype=U64), 0)
    slopes = {digit: np.array([[number(rng, bits)]], dtype=U64) for digit in digits}
    return sloped(value, slopes, bits)


def at(value: Lanes, digits: dict[Digit, int], more: int, bits: int) -> int:
    """The value where digits are these, and the unknown part is `more`, if it can be."""
    total = int(value.start.flat[0]) + min(more, int(lanes.spans(value).flat[0]))
    total += sum(int(slope.flat[0]) * digits[digit] for digit, slope in value.slopes.items())
    return total & MASK[bits]


def unless_split(compute: Callable[[], Lanes]) -> Lanes | None:
    """What is computed; None where digits have to be taken apart, and it is said which."""
    wanted: tuple[Digit, ...] = ()
    try:
        return compute()
    except Split as split:
        wanted = split.digits
    assert wanted
    return None


def check(text: str, values: list[Lanes], digits: list[Digit]) -> None:
    name, *modifiers = text.split(".")
    opcode = ptx.Opcode(name, tuple(modifiers))
    bits = type_bits(modifiers[-1])
    widths = [source_bits(opcode, place, bits) for place in range(len(values))]
    function = lane_function(opcode)
    assert function is not None
    result = unless_split(lambda: function(values))
    if result is None:
        return
    wide = 1 if name == "setp" else bits
    for places in product_of(*(range(digit.count) for digit in digits)):
        here = dict(zip(digits, places, strict=True))
        widest = max(int(lanes.spans(value).max()) for value in values)
        for more in {0, 1, 5, widest}:
            numbers = [at(v, here, more, w) for v, w in zip(values, widths, strict=True)]
            exact = function([lanes.scalar(n, w) for n, w in zip(numbers, widths, strict=True)])
            if exact.span is None:
                past = int(exact.low().flat[0]) - at(result, here, 0, wide)
                assert past & MASK[wide] <= int(lanes.spans(result).flat[0]), (numbers, here)


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_results_hold_for_all_values_of_digits(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        digits = [Digit(0, 1, rng.randint(2, 5)) for _ in range(rng.choice([1, 1, 2]))]
        text = rng.choice(OPCODES)
        bits = type_bits(text.rpartition(".")[2])
        second = 32 if text.startswith(("shl", "shr")) else bits
        values = [
            operand(rng, bits, digits),
            operand(rng, second, digits if rng.random() < 0.2 else []),
        ]
        if text.startswith("and") and rng.random() < 0.5:  # bits side by side
            low, high = sorted(rng.randrange(bits + 1) for _ in range(2))
            values[1] = lanes.scalar((1 << high) - (1 << low), bits)
        if text.startswith("bfe"):
            ends = (0, 1, 31, 32, 63, 64, 255, rng.randrange(bits))
            values[1:] = [lanes.scalar(rng.choice(ends)) for _ in range(2)]
        check(text, values, digits)


@pytest.mark.parametrize("kind", ["u16", "s16", "u32", "s32"])
def test_high_halves_hold_for_all_numbers_of_intervals(kind: str) -> None:
    bits, digit = type_bits(kind), Digit(0, 1, 3)
    interval = Lanes(lanes.scalar(8).low(), np.array([[5]], dtype=U64), 0)
    value = sloped(interval, {digit: np.array([[16]], dtype=U64)}, bits)
    for factor in (1 << (bits - 2), (1 << (bits - 1)) - 1, (1 << bits) - 3):
        check(f"mul.hi.{kind}", [value, lanes.scalar(factor, bits)], [digit])


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_high_halves_that_are_moved_hold_for_all_values_of_digits(seed: int) -> None:
    """Against the two instructions one after the other, number by number."""
    rng = random.Random(seed)
    for _ in range(4):
        digits = [Digit(0, 1, rng.randint(2, 300)), Digit(1, 1, rng.randint(2, 4))]
        value = sloped(
            lanes.scalar(rng.choice([0, 1, 5, number(rng, 32)]), 32),
            {
                digit: np.array([[rng.choice([1, 32, number(rng, 32)])]], dtype=U64)
                for digit in digits
            },
            32,
        )
        by, more = rng.choice([3, 7, 12, 448, 513, 1000]), rng.choice([0, 1, 8, 31])
        factor = rng.choice([-(-(1 << (32 + more)) // by) & MASK[32], number(rng, 32)])
        signs = rng.choice("us"), rng.choice("us")
        both = [lane_function(ptx.Opcode("mul", ("hi", f"{signs[0]}32")))]
        both.append(lane_function(ptx.Opcode("shr", (f"{signs[1]}32",))))
        product, move = both
        assert product is not None
        assert move is not None
        signed = (signs[0] == "s", signs[1] == "s")
        by_one = lanes.scalar(factor, 32)
        found = unless_split(partial(sloped_moved_product, value, by_one, more, 32, signed=signed))
        if found is None:
            continue
        assert found.span is None
        for places in product_of(*(range(digit.count) for digit in digits)):
            here = dict(zip(digits, places, strict=True))
            given_number = lanes.scalar(at(value, here, 0, 32), 32)
            exact = move([product([given_number, lanes.scalar(factor, 32)]), lanes.scalar(more)])
            assert at(found, here, 0, 32) == int(exact.low().flat[0]) & MASK[32]


@pytest.mark.parametrize("signs", [(a, b) for a in "us" for b in "us"])
def test_high_halves_that_do_not_grow_are_moved(signs: tuple[str, str]) -> None:
    """The number grows with a digit, and the high half of its product does not."""
    digit = Digit(0, 1, 5)
    product = lane_function(ptx.Opcode("mul", ("hi", f"{signs[0]}32")))
    move = lane_function(ptx.Opcode("shr", (f"{signs[1]}32",)))
    assert product is not None
    assert move is not None
    followed = 0
    for start, factor, more in product_of(
        (0, 1 << 31, 3 << 30, MASK[32] - 63), (1 << 16, 1 << 20, 1 << 31), (0, 1, 5, 31, 32, 33, 70)
    ):
        value = sloped(lanes.scalar(start, 32), {digit: np.array([[8]], dtype=U64)}, 32)
        by, signed = lanes.scalar(factor, 32), (signs[0] == "s", signs[1] == "s")
        found = unless_split(partial(sloped_moved_product, value, by, more, 32, signed=signed))
        for place in range(digit.count) if found else ():
            number = lanes.scalar((start + 8 * place) & MASK[32], 32)
            exact = move([product([number, by]), lanes.scalar(more)])
            assert at(found, {digit: place}, 0, 32) == int(exact.low().flat[0]), (start, factor)
            followed += 1
    assert followed > 100


@pytest.mark.parametrize("sign", "us")
@pytest.mark.parametrize("amount", [0, 1, 3, 5])
def test_indices_from_memory_beside_digits_are_moved(sign: str, amount: int) -> None:
    """All numbers of an interval, on both sides of 0 and of multiples."""
    digit, other = Digit(0, 1, 7), Digit(1, 1, 3)
    for start, span, slope in product_of((0, 1, 7, 31, -40, -1), (1, 6, 63), (8, 32, 96, -64)):
        step = {digit: np.array([[slope & MASK[32]]], dtype=U64)}
        step[other] = np.array([[256]], dtype=U64)
        open_ = Lanes(np.array([[start & MASK[32]]], dtype=U64), np.array([[span]], dtype=U64), 0)
        values = [sloped(open_, step, 32), lanes.scalar(amount)]
        check(f"shr.{sign}32", values, [digit, other])


def test_masks_of_any_bits_hold_for_all_values_of_digits() -> None:
    """Bits side by side are followed, others are taken apart or right."""
    digit = Digit(0, 1, 9)
    for mask, slope, start in product_of(range(1, 128), (1, 3, 8, 24, 64), (0, 5, 100)):
        value = sloped(lanes.scalar(start, 32), {digit: np.array([[slope]], dtype=U64)}, 32)
        check("and.b32", [value, lanes.scalar(mask, 32)], [digit])


@pytest.mark.parametrize("text", ["shr.u32", "and.b32", "rem.u32", "div.u32", "mul.hi.u32"])
def test_numbers_that_differ_from_thread_to_thread_are_not_one(text: str) -> None:
    digit = Digit(0, 1, 6)
    value = sloped(lanes.scalar(64), {digit: np.array([[32]], dtype=U64)}, 32)
    by = np.array([[8, 8, 4, 8]], dtype=U64)
    name, *modifiers = text.split(".")
    function = lane_function(ptx.Opcode(name, tuple(modifiers)))
    assert function is not None
    result = unless_split(lambda: function([value, Lanes(by)]))
    for thread, place in product_of(range(4), range(digit.count)) if result else ():
        exact = function([lanes.scalar(64 + 32 * place), lanes.scalar(int(by[0, thread]))])
        start = np.broadcast_to(result.start, by.shape)[0, thread]
        step = np.broadcast_to(result.slopes.get(digit, U64(0)), by.shape)[0, thread]
        assert int(start + step * U64(place)) & MASK[32] == int(exact.low().flat[0])


@pytest.mark.parametrize("signed", list(product_of([False, True], [False, True])))
def test_high_halves_with_a_sign_are_moved_as_such(signed: tuple[bool, bool]) -> None:
    """Products up to the largest, which are below 0 for who takes them so."""
    digit = Digit(0, 1, 4)
    for start, factor in product_of((1 << 31, MASK[32] - 31, 0), (MASK[32], 1 << 31, 3 << 30)):
        value = sloped(lanes.scalar(start, 32), {digit: np.array([[8]], dtype=U64)}, 32)
        by = lanes.scalar(factor, 32)
        found = unless_split(partial(sloped_moved_product, value, by, 1, 32, signed=signed))
        for place in range(digit.count) if found else ():
            number, half = (start + 8 * place) & MASK[32], 1 << 31
            pair = [n - (1 << 32) if signed[0] and n >= half else n for n in (number, factor)]
            high = (pair[0] * pair[1] >> 32) & MASK[32]
            high = high - (1 << 32) if signed[1] and high >= half else high
            assert at(found, {digit: place}, 0, 32) == (high >> 1) & MASK[32]


def test_a_quotient_by_an_odd_number_is_one_of_a_large_grid() -> None:
    """x / 513, of 8 million blocks."""
    digit = Digit(0, 1, 1 << 23)
    blocks = sloped(lanes.scalar(0), {digit: np.array([[1]], dtype=U64)}, 32)
    factor = lanes.scalar(-(-(1 << 41) // 513), 32)
    with pytest.raises(Split) as wanted:
        sloped_moved_product(blocks, factor, 9, 32, signed=(False, False))
    assert wanted.value.base == 513


@pytest.mark.parametrize("sign", "us")
def test_the_sign_of_a_large_grid_is_one_number(sign: str) -> None:
    """As Triton divides by powers of two; to spell it out would take all blocks one by one."""
    digit = Digit(0, 1, 1 << 20)
    blocks = sloped(lanes.scalar(0), {digit: np.array([[1]], dtype=U64)}, 32)
    function = lane_function(ptx.Opcode("bfe", (f"{sign}32",)))
    assert function is not None
    result = function([blocks, lanes.scalar(21), lanes.scalar(1)])
    assert not result.slopes
    assert int(result.low().max()) == 0


def test_threads_that_grow_in_too_many_ways_are_taken_apart() -> None:
    digit = Digit(0, 1, 9)
    slopes = {digit: np.arange(2048, dtype=U64).reshape(2, 1024)}
    threads = np.ones((2, 1024), np.bool_)
    with pytest.raises(Split):
        list(apart(slopes, threads, slopes[digit]))


@pytest.mark.parametrize("operator", COMPARISONS)
def test_intervals_around_zero_are_large_numbers_too(operator: str) -> None:
    """An index from memory that may be negative, compared as an unsigned number of 64 bits."""
    digit = Digit(0, 1, 5)
    around = Lanes(np.array([[MASK[64]]], dtype=U64), np.array([[5]], dtype=U64), 0)
    grown = sloped(lanes.scalar(33), {digit: np.array([[7]], dtype=U64)}, 64)
    check(f"setp.{operator}.u64", [around, grown], [digit])
    check(f"setp.{operator}.u64", [grown, around], [digit])


@pytest.mark.parametrize("name", ["div", "rem"])
def test_divisors_of_64_bits_are_spelled_out(name: str) -> None:
    digit = Digit(0, 1, 5)
    grown = sloped(lanes.scalar(33), {digit: np.array([[7]], dtype=U64)}, 64)
    function = lane_function(ptx.Opcode(name, ("u64",)))
    assert function is not None
    with pytest.raises(Split):
        function([grown, lanes.scalar(MASK[64] - 1)])
