"""Operations that ask for the numbers behind slopes: extensions, comparisons, quotients, bits.

In: `Lanes` with slopes. Out: the results, exact for all values of the digits, or `Split`.

A quotient by `d` of a sum over digits is again one where each slope is a multiple of `d`, or where
the rest of the sum stays between two multiples of `d` for all digits. A digit whose slope becomes
a multiple of `d` after `p` steps is written to base `p`; what is left over is cut or spelled out.
Compilers divide by multiplying: `a * m >> k`. That is `a * n / d` rounded down, with smaller
numbers, as long as `a` times the difference of the two fractions makes no whole step (`_simpler`).
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np

from tessera.ir.arrays import Signed
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.lanes import (
    MASK,
    U64,
    Lanes,
    biased_bounds,
    chosen,
    digits_of,
    mul,
    of_kind,
    reason,
    scalar,
    settle,
    single,
    sloped,
    unsigned_bounds,
)
from tessera.passes.lane_values.slopes import (
    IntegerSlopes,
    WholeForm,
    bounds,
    check,
    form,
    from_form,
    low_form,
    nonnegative,
)
from tessera.passes.lane_values.symbols import extended

_FEW_QUOTIENTS = 4
_MOST_DIVISOR = 1 << 62


def zero_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as an unsigned 64-bit one."""
    if a.slopes and bits < 64:
        return of_kind(_sloped_extension(a, bits, signed=False), a.kind)
    if a.span is None or bits == 64:
        return a
    low, high = unsigned_bounds(a, bits)
    result = of_kind(settle(low, high - low, 64, a.why), a.kind)
    if a.form is not None:
        result.form = extended(a.form, bits, is_signed=False)
    return result


def sign_extend(a: Lanes, bits: int) -> Lanes:
    """A value of `bits` bits as a signed 64-bit one."""
    if bits == 64:
        return a
    if a.slopes:
        return of_kind(_sloped_extension(a, bits, signed=True), a.kind)
    half = U64(1 << (bits - 1))
    if a.span is None:
        return Lanes((a.low() ^ half) - half, kind=a.kind)
    low, high = biased_bounds(a, bits)
    result = of_kind(settle(low - half, high - low, 64, a.why), a.kind)
    if a.form is not None:
        result.form = extended(a.form, bits, is_signed=True)
    return result


def _sloped_extension(value: Lanes, bits: int, *, signed: bool) -> Lanes:
    """A value of `bits` bits as one of 64."""
    return from_form(form(value, bits, digits_of(value), signed=signed), 64, value.why)


def sloped_comparison(operator: str, a: Lanes, b: Lanes, bits: int, *, signed: bool) -> Lanes:
    """A predicate, the same for all values of the digits."""
    digits = digits_of(a, b)
    left, right = (form(value, bits, digits, signed=signed) for value in (a, b))
    slopes = _difference(left.slopes, right.slopes)
    least = left.start - right.start - right.span
    most = left.start - right.start + left.span
    check(least, slopes, digits)
    check(most, slopes, digits)
    match operator:
        case "lt":
            true, false = ~nonnegative(most, slopes), nonnegative(least, slopes)
        case "le":
            true, false = ~nonnegative(most - 1, slopes), nonnegative(least - 1, slopes)
        case "gt":
            true, false = nonnegative(least - 1, slopes), ~nonnegative(most - 1, slopes)
        case "ge":
            true, false = nonnegative(least, slopes), ~nonnegative(most, slopes)
        case _:
            apart = nonnegative(least - 1, slopes) | ~nonnegative(most, slopes)
            equal = ~apart & (least == most)
            true, false = (equal, apart) if operator == "eq" else (apart, equal)
    return settle(true.astype(U64), (~(true | false)).astype(U64), 1, reason(a, b))


def _difference(a: IntegerSlopes, b: IntegerSlopes) -> IntegerSlopes:
    slopes = dict(a)
    for digit, slope in b.items():
        slopes[digit] = slopes[digit] - slope if digit in slopes else -slope
    return {digit: slope for digit, slope in slopes.items() if slope.any()}


def sloped_extreme(a: Lanes, b: Lanes, bits: int, *, signed: bool, largest: bool) -> Lanes:
    """The smaller or the larger of two exact values, the same one for all values of the digits."""
    if a.span is not None or b.span is not None:
        raise Split(digits_of(a, b))
    first = sloped_comparison("ge" if largest else "le", a, b, bits, signed=signed)
    mask = first.low().astype(np.bool_)
    picked = Lanes(np.where(mask, a.start, b.start))
    return sloped(picked, chosen(mask, a.slopes, b.slopes), bits)


# --- quotients -----------------------------------------------------------------------------


def sloped_division(a: Lanes, b: Lanes, bits: int, *, signed: bool, remainder: bool) -> Lanes:
    """The quotient or the remainder by one number; of numbers that are not negative."""
    digits = digits_of(a, b)
    divisor = _constant(b, bits, digits, signed=signed)
    if a.span is not None or not 0 < divisor < _MOST_DIVISOR:
        raise Split(digits)
    numbers = form(a, bits, digits, signed=signed)
    if signed and not nonnegative(numbers.start, numbers.slopes).all():
        raise Split(digits)
    quotient = floor_quotient(numbers.start, numbers.slopes, divisor, digits)
    if not remainder:
        return from_form(quotient, bits)
    return from_form(_remainder(numbers, quotient, divisor), bits)


def _remainder(numbers: WholeForm, quotient: WholeForm, divisor: int) -> WholeForm:
    taken = {digit: slope * divisor for digit, slope in quotient.slopes.items()}
    slopes = _difference(numbers.slopes, taken)
    return WholeForm(numbers.start - quotient.start * divisor, slopes, quotient.span)


def sloped_right_shift(a: Lanes, b: Lanes, bits: int, *, signed: bool) -> Lanes:
    """A shift by one number: a quotient, rounded down."""
    digits = digits_of(a, b)
    amount = single(b)
    if amount is None or amount >= min(bits, 62):
        raise Split(digits)
    numbers = form(a, bits, digits, signed=signed)
    if a.span is None:
        return from_form(floor_quotient(numbers.start, numbers.slopes, 1 << amount, digits), bits)
    return from_form(_interval_quotient(numbers, 1 << amount), bits, a.why)


def _interval_quotient(numbers: WholeForm, divisor: int) -> WholeForm:
    """The quotients of all numbers of intervals, rounded down; all slopes are multiples."""
    for digit, slope in numbers.slopes.items():
        period = divisor // gcd(divisor, *(abs(int(s)) for s in slope.flat))
        if period > 1:
            raise Split((digit,), base=period if period < digit.count else 0)
    slopes = {digit: slope // divisor for digit, slope in numbers.slopes.items()}
    first = numbers.start // divisor
    return WholeForm(first, slopes, (numbers.start + numbers.span) // divisor - first)


def sloped_high_product(a: Lanes, b: Lanes, bits: int, *, signed: bool) -> Lanes:
    """The high bits of a product by one number: a quotient, rounded down."""
    digits = digits_of(a, b)
    if b.slopes:
        a, b = b, a
    if bits > 32 or a.span is not None:
        raise Split(digits)
    factor = _constant(b, bits, digits, signed=signed)
    numbers = form(a, bits, digits, signed=signed)
    size = max(abs(factor), 1)
    check(numbers.start * size, {d: s * size for d, s in numbers.slopes.items()}, digits)
    slopes = {digit: slope * factor for digit, slope in numbers.slopes.items() if factor}
    return from_form(floor_quotient(numbers.start * factor, slopes, 1 << bits, digits), bits)


def sloped_moved_product(
    a: Lanes, b: Lanes, amount: int, bits: int, *, signed: tuple[bool, bool]
) -> Lanes:
    """The high bits of a product by one number, moved right: one quotient, where nothing is below
    0. `signed` says so of the product and of the move."""
    digits = digits_of(a, b)
    by_sign, moves_sign = signed
    factor = _constant(b, bits, digits, signed=by_sign)
    numbers = form(a, bits, digits, signed=by_sign)
    low, high = bounds(numbers.start, numbers.slopes)
    most = int(high.max())
    # Up to here the high half is the same with a sign and without.
    has_sign = (most * factor) >> (2 * bits - 1)
    if int(low.min()) >= 0 and factor > 0 and not has_sign and amount < bits:
        near = _below(Fraction(factor, 1 << (bits + amount)), most)
        if max(most * near.numerator, near.denominator) < _MOST_DIVISOR:
            start = numbers.start * near.numerator
            slopes = {digit: slope * near.numerator for digit, slope in numbers.slopes.items()}
            return from_form(floor_quotient(start, slopes, near.denominator, digits), bits)
    high_half = sloped_high_product(a, b, bits, signed=by_sign)
    if high_half.slopes:
        return sloped_right_shift(high_half, scalar(amount), bits, signed=moves_sign)
    return _moved(high_half, amount, bits, signed=moves_sign)


def _moved(value: Lanes, amount: int, bits: int, *, signed: bool) -> Lanes:
    """Exact numbers without slopes, moved right."""
    if not signed:
        return Lanes(value.low() >> U64(amount)) if amount < bits else scalar(0)
    up = (value.low() << U64(64 - bits)).view(np.int64) >> np.int64(
        64 - bits + min(amount, bits - 1)
    )
    return Lanes(up.view(U64) & U64(MASK[bits]))


def _constant(value: Lanes, bits: int, digits: tuple[Digit, ...], *, signed: bool) -> int:
    number = single(value)
    if number is None:
        raise Split(digits)
    return number - (1 << bits) if signed and number >> (bits - 1) else number


def floor_quotient(
    start: Signed, slopes: IntegerSlopes, divisor: int, digits: tuple[Digit, ...]
) -> WholeForm:
    """The quotients of whole numbers, rounded down."""
    whole = {d: slope // divisor for d, slope in slopes.items() if not (slope % divisor).any()}
    rest = {d: slope for d, slope in slopes.items() if d not in whole}
    low, high = bounds(start, rest)
    least, most = low // divisor, high // divisor
    if (least == most).all():
        return WholeForm(least, whole, np.zeros((1, 1), dtype=np.int64))
    simpler = _simpler(start, slopes, divisor)
    if simpler is not None:
        return floor_quotient(*simpler, digits)
    for digit, slope in rest.items():
        # After `period` steps of the digit the sum has grown by a multiple of the divisor.
        period = divisor // gcd(divisor, *(abs(int(s)) for s in slope.flat))
        if period < digit.count:
            raise Split((digit,), base=period)
    # Few different quotients: cut where the sum passes a multiple of the divisor.
    if int((most - least).max()) <= _FEW_QUOTIENTS:
        nonnegative(start - most * divisor, rest, least != most)
    raise Split((max(rest, key=lambda d: int(np.abs(rest[d]).max()) * d.most),))


def _simpler(
    start: Signed, slopes: IntegerSlopes, divisor: int
) -> tuple[Signed, IntegerSlopes, int] | None:
    """Numbers and a divisor with the same quotients, rounded down, and a smaller divisor."""
    factor = gcd(*(int(np.gcd.reduce(s, axis=None)) for s in (start, *slopes.values())))
    low, high = bounds(start, slopes)
    if int(low.min()) < 0:
        # Either none of them is positive, or no smaller divisor exists.
        factor, low, high = -factor, -high, -low
    if int(low.min()) < 0:
        return None
    most = int(high.max()) // abs(factor)
    fraction = _below(Fraction(factor, divisor), most)
    if fraction.denominator >= divisor:
        return None
    by = fraction.numerator
    moved = {d: s // factor * by for d, s in slopes.items()}
    return start // factor * by, moved, fraction.denominator


def _below(exact: Fraction, most: int) -> Fraction:
    """A fraction n / d of small numbers, not above the given one, so that the multiples of both
    by any number from 0 to `most`, rounded down, are equal: those of n / d are whole, or at least
    1 / d below the next whole number."""
    before, last = (0, 1), (1, 0)
    top, bottom = exact.numerator, exact.denominator
    while True:  # the last one is exact
        whole, rest = divmod(top, bottom)
        before, last = last, (whole * last[0] + before[0], whole * last[1] + before[1])
        top, bottom = bottom, rest
        near = Fraction(*last)
        if near <= exact and most * (exact - near) * near.denominator < 1:
            return near


# --- bits ----------------------------------------------------------------------------------


def sloped_bits(name: str, a: Lanes, b: Lanes, bits: int) -> Lanes:
    """`and`, `or`, `xor` of a value with slopes and one without, where only bits below all slopes
    meet, or bits above; else the digits are written to a base for which that holds."""
    digits = digits_of(a, b)
    if a.slopes and b.slopes:
        raise Split(digits)
    if b.slopes:
        a, b = b, a
    if a.span is not None or b.span is not None:
        raise Split(digits)
    mask = U64(MASK[bits])
    top = int(b.low().max())
    if name == "and" and single(b) is not None and top < min(MASK[bits], _MOST_DIVISOR):
        lowest = top & -top
        if top & (top + lowest) == 0:
            # Bits side by side: the remainder by a power of two, less that by a smaller one.
            whole = _low_bits(a, top + lowest, bits, digits) if top else scalar(0)
            return whole if lowest <= 1 else _less(whole, _low_bits(a, lowest, bits, digits), bits)
    high = ~b.low() & mask
    if name == "and" and bool((high < b.low()).all()) and bool((high & (high + U64(1)) == 0).all()):
        # Clears low bits: what it takes away is what the opposite leaves.
        return _less(a, sloped_bits("and", a, Lanes(high), bits), bits)
    unit = 1 << top.bit_length()
    _aligned(a, unit, digits)
    below = U64(unit - 1)
    held = a.start & below
    match name:
        case "and":
            return Lanes(held & b.low())
        case "or":
            mixed = held | b.low()
        case _:
            mixed = held ^ b.low()
    return sloped(Lanes((a.start - held + mixed) & mask), a.slopes, bits)


def sloped_field(a: Lanes, first: int, width: int, bits: int, *, signed: bool) -> Lanes:
    """`width` bits of a value from bit `first` on, extended; all of them are in the value."""
    if signed:
        up = mul(a, scalar(1 << (bits - first - width)), bits)
        if up.slopes:
            return sloped_right_shift(up, scalar(bits - width), bits, signed=True)
        return _moved(up, bits - width, bits, signed=True)
    down = sloped_right_shift(a, scalar(first), bits, signed=False)
    return sloped_bits("and", down, scalar((1 << width) - 1), bits)


def _low_bits(a: Lanes, unit: int, bits: int, digits: tuple[Digit, ...]) -> Lanes:
    """The remainder by a power of two, whatever the sign: it divides 2**bits."""
    numbers = low_form(a, bits, digits)
    quotient = floor_quotient(numbers.start, numbers.slopes, unit, digits)
    return from_form(_remainder(numbers, quotient, unit), bits)


def _less(a: Lanes, b: Lanes, bits: int) -> Lanes:
    """A value less another, both exact."""
    zero = np.zeros((1, 1), dtype=U64)
    slopes = {d: a.slopes.get(d, zero) - b.slopes.get(d, zero) for d in digits_of(a, b)}
    return sloped(Lanes((a.start - b.start) & U64(MASK[bits])), slopes, bits)


def _aligned(a: Lanes, unit: int, digits: tuple[Digit, ...]) -> None:
    """Raise `Split` unless all slopes are multiples of `unit`, a power of two."""
    for digit, slope in a.slopes.items():
        if not (slope & U64(unit - 1)).any():
            continue
        period = unit // gcd(unit, *(int(s) for s in slope.flat))
        if period < digit.count:
            raise Split((digit,), base=period)
        raise Split((digit,))
