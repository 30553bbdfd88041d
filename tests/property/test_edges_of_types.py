"""Rules on values, against all numbers that they stand for, at the edges of types of 8 bits and of
others: what comparisons tell, names of multiples, whole numbers of values that grow, halves of
intervals, and threads that `shfl` reads."""

from __future__ import annotations

import random
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.shared_image import SharedImage
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.facts import comparison_facts
from tessera.passes.lane_values.lane_ops import lane_function
from tessera.passes.lane_values.lanes import MASK, U64, Lanes, sloped
from tessera.passes.lane_values.named_values import named
from tessera.passes.lane_values.sloped_ops import _less
from tessera.passes.lane_values.slopes import form
from tessera.passes.lane_values.symbols import Assumptions, SymbolForm, number
from tessera.passes.lane_values.warps import source_threads
from tests.helpers.share import share
from tests.property.test_value_programs import COMPARISONS, signed

EDGES = (0, 1, 2, 63, 126, 127, 128, 129, 191, 254, 255)


def as_named(at: int, factor: int, low: int, high: int) -> tuple[Lanes, Any]:
    """The number of 8 bits `at + factor * symbol`."""
    symbol = Assumptions().fresh(number(low), number(high))
    value = lanes.unknown(8, 0)
    value.form = SymbolForm(np.array([[at]], dtype=U64), ((symbol, factor),))
    return value, symbol


@pytest.mark.parametrize("is_signed", [False, True])
@pytest.mark.parametrize("operator", COMPARISONS)
def test_comparisons_tell_what_holds(operator: str, is_signed: bool) -> None:
    rng = random.Random(f"{operator} {is_signed}")
    told = 0
    for at, edge, swapped in product(EDGES, EDGES, (False, True)):
        low = rng.choice((-129, -128, -3, 0, 1))
        high = low + rng.choice((0, 3, 127, 128, 255))
        factor, reach = rng.choice((1, 1, 1, -1, 2)), rng.choice((0, 0, 1, 5))
        value, symbol = as_named(at, factor, low, high)
        other = Lanes(np.array([[edge]], dtype=U64), np.array([[reach]], dtype=U64), 0)
        other = other if reach else Lanes(other.start)
        pair = (other, value) if swapped else (value, other)
        facts = comparison_facts(operator, *pair, 8, signed=is_signed)
        if facts is None:
            continue
        for number_, more in product(range(low, high + 1), {0, reach}):
            given = [(at + factor * number_) & 255, (edge + more) & 255]
            if is_signed:
                given = [signed(one, 8) for one in given]
            holds = COMPARISONS[operator](*(given[::-1] if swapped else given))
            for bound in facts.true if holds else facts.false:
                assert bound.terms == ((symbol, factor),)
                assert bound.low.item() <= factor * number_ <= bound.high.item()
        told += 1
    assert told > 20


def test_names_of_multiples_stand_for_all_of_them() -> None:
    """Also where the interval does not begin at a multiple."""
    assumed = Assumptions()
    steps = set()
    for start, reach, factor, name in product(
        range(9), (8, 20, 33), (1, 2, 4, 8, 12), ("min.u32", "max.u32", "and.b32", "add.u32")
    ):
        operand = lanes.unknown(32, 0)
        symbol = assumed.fresh(number(0), number(50))
        operand.form = SymbolForm(np.zeros((1, 1), dtype=U64), ((symbol, factor),))
        result = Lanes(np.array([[start]], dtype=U64), np.array([[reach]], dtype=U64), 0)
        opcode = ptx.Opcode(*(lambda name, *rest: (name, rest))(*name.split(".")))
        found = named(assumed, opcode, [operand, operand], result, 32).form
        assert found is not None
        ((fresh, step),) = found.terms
        stands_for = {
            int(found.at.item()) + step * k
            for k in range(int(fresh.low.item()), int(fresh.high.item()) + 1)
        }
        unit = factor & -factor if name != "add.u32" else 1
        assert {n for n in range(start, start + reach + 1) if n % unit == 0} <= stands_for
        steps.add(step)
    assert steps == {1, 2, 4, 8}


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_whole_numbers_are_those_of_the_type(bits: int) -> None:
    rng = random.Random(bits)
    half, found = 1 << (bits - 1), 0
    for _ in share(range(2000)):
        digit, is_signed = Digit(0, 1, rng.choice((2, 3, 5))), rng.random() < 0.5
        start = rng.choice((0, half, 2 * half)) + rng.choice((-3, -2, -1, 0, 1, 2, 3))
        value = Lanes(np.array([[start & MASK[bits]]], dtype=U64))
        if rng.random() < 0.3:
            value = Lanes(value.start, np.array([[rng.choice((1, 2, 4))]], dtype=U64), 0)
        slope = np.array([[rng.choice((0, 0, 1, 2, -1, -2)) & MASK[bits]]], dtype=U64)
        try:
            whole = form(sloped(value, {digit: slope}, bits), bits, (digit,), signed=is_signed)
        except Split:
            continue
        least, most = (-half, half - 1) if is_signed else (0, 2 * half - 1)
        for place, more in product(range(digit.count), range(int(lanes.spans(value).item()) + 1)):
            plain = (start + int(slope.item()) * place + more) & MASK[bits]
            plain = signed(plain, bits) if is_signed else plain
            first = int(whole.start.item())
            first += sum(int(s.item()) * place for s in whole.slopes.values())
            # Unsigned numbers of 64 bits may be off by 2**64, which the caller takes up.
            assert 0 <= plain - first <= int(whole.span.item()) or (bits == 64 and not is_signed)
            assert least <= first or bits == 64
            assert first + int(whole.span.item()) <= most or bits == 64
            found += 1
    assert found > 100


def test_halves_of_intervals_have_the_halves_of_all_numbers() -> None:
    """Of words in shared memory that are loaded again as 32 bits."""
    full = (1 << 32) - 1
    numbers = [0, 1, full - 1, full, full + 1, 5 << 32, (5 << 32) - 1, (5 << 32) + full]
    places = np.arange(3)
    cells = SimpleNamespace(record=np.full(3, 7), part=np.array([0, 1, 2]))
    low, high = 1, 2
    for first, span in product(numbers, (1, 2, 1 << 31, full - 1, full, full + 1, 1 << 40)):
        value = Lanes(np.full((1, 3), first, U64), np.full((1, 3), span, U64), 0)
        got = SharedImage._half(cells, value, places)  # type: ignore[arg-type]
        for more in {0, 1, span // 2, span - 1, span}:
            plain = {low: (first + more) & full, high: (first + more) >> 32}
            for part in plain:
                start, reach = (int(v[0, part]) for v in (got.low(), lanes.spans(got)))
                assert (plain[part] - start) & full <= reach, (first, span, more, part)
        if max(first, span) < full:  # a cell of its own keeps what is known
            assert (got.low()[0, 0], lanes.spans(got)[0, 0]) == (first, span)


def test_a_difference_grows_with_the_digits_of_both() -> None:
    """By one number for all threads, or by one for each."""
    one, other = Digit(0, 1, 4), Digit(1, 1, 4)
    for slope in (np.array([[3]], dtype=U64), np.arange(32, dtype=U64)[None, :]):
        a, b = (sloped(lanes.scalar(9), {digit: slope}, 32) for digit in (one, other))
        grown = _less(a, b, 32).slopes
        assert np.array_equal(grown[one], slope)
        assert np.array_equal(grown[other], -slope & U64(MASK[32]))


@pytest.mark.parametrize("threads", [8, 32, 40, 64])
def test_lanes_that_are_read_are_in_the_block(threads: int) -> None:
    known = 0
    for mode, lane, clamp in product(
        ("idx", "up", "down", "bfly"), (0, 1, 7, 8, 16, 31), (0, 31, 7, 0x1818, 0x181F)
    ):
        given = Lanes(np.array([[lane]], dtype=U64)), Lanes(np.array([[clamp]], dtype=U64))
        read = source_threads(*given, ("sync", mode, "b32"), True, threads)
        if read is not None:
            assert read.max() < threads
            assert (read // 32 == np.arange(threads) // 32).all()
            known += 1
    assert known > 20


def test_bits_of_a_multiple_beside_those_of_a_small_number() -> None:
    """Where both may have a bit, the two are no sum; 2**20 is as far as multiples are looked at."""
    sums = 0
    for name, power, near in product(("or", "xor", "add"), (0, 1, 3, 8, 19, 20, 21), (-1, 0, 1)):
        factor, most = 1 << power, (1 << power) + near
        assumed, values = Assumptions(), list[Lanes]()
        symbols = [assumed.fresh(number(0), number(last)) for last in (3, most)]
        for symbol, last, step in zip(symbols, (3, most), (factor, 1), strict=True):
            values.append(lanes.between(0, last * step, 32, 0))
            values[-1].form = SymbolForm(np.zeros((1, 1), dtype=U64), ((symbol, step),))
        opcode = ptx.Opcode(name, ("u32" if name == "add" else "b32",))
        function = lane_function(opcode)
        assert function is not None
        made = function(values)
        for first, second in product(range(4), {0, 1, max(most - 1, 0), most} & {*range(most + 1)}):
            high, low = first * factor, second
            exact = {"or": high | low, "xor": high ^ low, "add": high + low}[name]
            assert made.low().item() <= exact <= made.low().item() + int(lanes.spans(made).item())
            if made.form is not None:
                sums += 1
                of = dict(zip(symbols, (first, second), strict=True))
                plain = sum(of[symbol] * step for symbol, step in made.form.terms)
                assert made.form.at.item() + plain == exact
    assert sums > 100
