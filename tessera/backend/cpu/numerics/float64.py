"""f64 arithmetic, correctly rounded in every mode.

To nearest is NumPy's own. The other modes need to know on which side of the exact value the
nearest result lies: the sign of an error that error-free transformations give. They hold only
while nothing overflows or underflows, so lanes with extreme exponents are computed with
Python's integers instead (`exact`); such lanes are rare.

Source: PTX ISA, floating-point instructions; T. J. Dekker, "A floating-point technique for
extending the available precision"; Boldo and Melquiond (see `rounding`).
"""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.cpu.numerics import exact
from tessera.backend.cpu.numerics.bits import Bits, Bools, Operand, bits, blocked
from tessera.backend.cpu.numerics.formats import finish
from tessera.backend.cpu.numerics.rounding import F64, check_mode, make_odd, two_sum

_SPLITTER = np.float64(2**27 + 1)
# Exponents inside which products, quotients and their error terms stay normal.
_LOW, _HIGH = np.float64(2.0**-400), np.float64(2.0**400)


def load(a: Operand) -> F64:
    """The values of an operand."""
    return bits(64, a).view(np.float64)


def two_product(x: F64, y: F64) -> tuple[F64, F64]:
    """RN(x * y) and its exact error (Dekker), for operands of moderate size."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = x_high * y_high - product
    error = error + x_high * y_low + x_low * y_high
    return product, error + x_low * y_low


def _split(x: F64) -> tuple[F64, F64]:
    """26 high and 26 low bits of x."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def _moderate(*values: F64) -> Bools:
    """Lanes on which every operand is zero or far from overflow and underflow."""
    result: Bools = np.True_  # type: ignore[assignment]
    for value in values:
        size = np.abs(value)
        result = result & (((size > _LOW) & (size < _HIGH)) | (size == 0))
    return result


def _patched(
    result: F64, easy: Bools, function: Callable[..., int], mode: str, *operands: F64
) -> Bits:
    """`result`, with lanes that are not easy recomputed by an exact integer function."""
    raw = finish("f64", result)
    if easy.all():
        return raw
    where = np.nonzero(np.broadcast_to(~easy, raw.shape))
    lanes = [np.broadcast_to(value, raw.shape)[where].view(np.uint64) for value in operands]
    columns = zip(*(lane.tolist() for lane in lanes), strict=True)
    raw[where] = np.array([function(*lane, mode) for lane in columns], np.uint64)
    return raw


def step_f64(nearest: F64, error: F64, rounding: str) -> F64:
    """Directed rounding, given nearest + error = the exact value."""
    check_mode(rounding)
    raw = nearest.view(np.uint64)
    negative = np.signbit(nearest)
    if rounding == "rz":
        inwards, outwards = (error != 0) & ((error > 0) == negative), np.zeros_like(negative)
    elif rounding == "rm":
        inwards, outwards = (error < 0) & ~negative, (error < 0) & negative
    else:
        inwards, outwards = (error > 0) & negative, (error > 0) & ~negative
    one = np.uint64(1)
    return (raw - inwards * one + outwards * one).view(np.float64)


def add(a: Operand, b: Operand, rounding: str) -> Bits:
    """a + b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish("f64", x + y)
    total, error = two_sum(x, y)
    # A zero sum of opposite signs depends on the mode; the integer path knows.
    easy = _moderate(x, y) & (total != 0)
    return _patched(step_f64(total, error, rounding), easy, exact.add, rounding, x, y)


def sub(a: Operand, b: Operand, rounding: str) -> Bits:
    """a - b."""
    if rounding == "rn":
        return finish("f64", load(a) - load(b))
    return add(a, (-load(b)).view(np.uint64), rounding)


def mul(a: Operand, b: Operand, rounding: str) -> Bits:
    """a * b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish("f64", x * y)
    product, error = two_product(x, y)
    return _patched(step_f64(product, error, rounding), _moderate(x, y), exact.mul, rounding, x, y)


def fma(a: Operand, b: Operand, c: Operand, rounding: str) -> Bits:
    """a * b + c with one rounding."""
    return blocked(
        lambda x, y, z: _fma(x, y, z, rounding), *(load(operand) for operand in (a, b, c))
    )


def _fma(x: F64, y: F64, z: F64, rounding: str) -> Bits:
    """The same on values.

    Error-free transformations write the result as high + low + rest; the two small parts are
    added with rounding to odd, after which one ordinary addition rounds correctly.
    """
    product, low = two_product(x, y)
    middle, tail = two_sum(z, low)
    high, rest = two_sum(product, middle)
    odd = make_odd(*two_sum(tail, rest))
    result = high + odd if rounding == "rn" else step_f64(*two_sum(high, odd), rounding)
    easy = _moderate(x, y, z) & (result != 0)
    return _patched(result, easy, exact.fma, rounding, x, y, z)


def div(a: Operand, b: Operand, rounding: str) -> Bits:
    """a / b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish("f64", x / y)
    quotient = x / y
    product, error = two_product(quotient, y)
    # (x - product) is exact; its sign, corrected by the divisor's, is that of the error.
    remainder = (x - product) - error
    easy = _moderate(x, y, quotient) & (quotient != 0)
    stepped = step_f64(quotient, remainder * np.sign(y), rounding)
    return _patched(stepped, easy, exact.div, rounding, x, y)


def sqrt(a: Operand, rounding: str) -> Bits:
    """The square root; -0.0 keeps its sign."""
    x = load(a)
    root = np.sqrt(x)
    if rounding == "rn":
        return finish("f64", root)
    square, error = two_product(root, root)
    easy = _moderate(x) & (x > 0)
    return _patched(step_f64(root, (x - square) - error, rounding), easy, exact.sqrt, rounding, x)


def rcp(a: Operand, rounding: str) -> Bits:
    """1 / a."""
    return div(0x3FF0000000000000, a, rounding)
