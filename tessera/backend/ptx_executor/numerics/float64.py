"""f64 arithmetic, correctly rounded in every mode.

Rounding to nearest is NumPy's arithmetic. The other modes need to know on which side of the exact
value the nearest result lies: the sign of the error, which error-free transformations give. Those
hold only while nothing overflows or underflows, so lanes with extreme exponents are computed with
fractions instead (`exact`). Such lanes are rare.

NaN: f64 keeps payloads. A NaN operand is returned quieted (b before c before a; a first for
`div`), an invalid operation gives 0xfff8000000000000; recorded on an H200.

Source: PTX ISA, floating-point instructions; T. J. Dekker, "A floating-point technique for
extending the available precision"; Boldo and Melquiond (see `rounding`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.numerics import exact
from tessera.backend.ptx_executor.numerics.bits import Bits, Operand, bits, blocked
from tessera.backend.ptx_executor.numerics.rounding import F64, check_mode, make_odd, two_sum
from tessera.ir.arrays import Flags

_SPLITTER = np.float64(2**27 + 1)
# Exponents inside which products, quotients and their error terms stay normal.
_DEFAULT_NAN, _QUIET = np.uint64(0xFFF8000000000000), np.uint64(0x0008000000000000)
_LOW, _HIGH = np.float64(2.0**-400), np.float64(2.0**400)


def load(a: Operand) -> F64:
    """The values of an operand."""
    return bits(64, a).view(np.float64)


def finish_f64(values: F64, *operands: F64) -> Bits:
    """The bits of results; a NaN is the first NaN among `operands`, quieted, or the default one."""
    raw = values.view(np.uint64)
    if not values.size or (top := values.max()) == top:
        return raw
    lost = np.nonzero(values != values)
    payloads = np.full(lost[0].shape, _DEFAULT_NAN, np.uint64)
    for operand in reversed(operands):
        lanes = np.broadcast_to(operand, values.shape)[lost]
        payloads = np.where(lanes != lanes, lanes.view(np.uint64) | _QUIET, payloads)
    raw[lost] = payloads
    return raw


def two_product(x: F64, y: F64) -> tuple[F64, F64]:
    """RN(x * y) and its exact error (Dekker), for operands of moderate size."""
    product = x * y
    x_high, x_low = _split(x)
    y_high, y_low = _split(y)
    error = x_high * y_high - product
    error = error + x_high * y_low + x_low * y_high
    return product, error + x_low * y_low


def _split(x: F64) -> tuple[F64, F64]:
    """The 26 high and 26 low bits of x."""
    scaled = x * _SPLITTER
    high = scaled - (scaled - x)
    return high, x - high


def _moderate(*values: F64) -> Flags:
    """Flags of lanes where every operand is zero or far from overflow and underflow."""
    result: Flags = np.True_  # type: ignore[assignment]
    for value in values:
        size = np.abs(value)
        result = result & (((size > _LOW) & (size < _HIGH)) | (size == 0))
    return result


def _patched(
    result: F64, easy: Flags, function: Callable[..., float], mode: str, *operands: F64
) -> F64:
    """`result`, with lanes that are not `easy` recomputed by a function of `exact`."""
    if easy.all():
        return result
    where = np.nonzero(np.broadcast_to(~easy, result.shape))
    lanes = (np.broadcast_to(value, result.shape)[where].tolist() for value in operands)
    result[where] = [function(*lane, mode) for lane in zip(*lanes, strict=True)]
    return result


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
    unit = np.uint64(1)
    result: F64 = (raw - inwards * unit + outwards * unit).view(np.float64)
    return result


def add(a: Operand, b: Operand, rounding: str) -> Bits:
    """a + b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish_f64(x + y, y, x)
    total, error = two_sum(x, y)
    # The sign of a zero sum of opposite operands depends on the mode; `exact` handles it.
    easy = _moderate(x, y) & (total != 0)
    result = _patched(step_f64(total, error, rounding), easy, exact.add, rounding, x, y)
    return finish_f64(result, y, x)


def sub(a: Operand, b: Operand, rounding: str) -> Bits:
    """a - b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish_f64(x - y, y, x)
    return finish_f64(add(a, (-y).view(np.uint64), rounding).view(np.float64), y, x)


def mul(a: Operand, b: Operand, rounding: str) -> Bits:
    """a * b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish_f64(x * y, y, x)
    product, error = two_product(x, y)
    stepped = step_f64(product, error, rounding)
    result = _patched(stepped, _moderate(x, y), exact.mul, rounding, x, y)
    return finish_f64(result, y, x)


def fma(a: Operand, b: Operand, c: Operand, rounding: str) -> Bits:
    """a * b + c with one rounding."""
    return blocked(
        lambda x, y, z: _fma(x, y, z, rounding), *(load(operand) for operand in (a, b, c))
    )


def _fma(x: F64, y: F64, z: F64, rounding: str) -> Bits:
    """`fma` on values.

    Error-free transformations write the result as high + low + rest; the two small parts are
    added with rounding to odd, after which one ordinary addition rounds correctly.
    """
    product, low = two_product(x, y)
    middle, tail = two_sum(z, low)
    high, rest = two_sum(product, middle)
    odd = make_odd(*two_sum(tail, rest))
    result = high + odd if rounding == "rn" else step_f64(*two_sum(high, odd), rounding)
    moderate = _moderate(x, y, z)
    easy = moderate & (result != 0)
    if not easy.all():
        result, done = _plain_fma(result, easy, moderate, rounding, x, y, z)
        easy = easy | done
    return finish_f64(_patched(result, easy, exact.fma, rounding, x, y, z), y, z, x)


def _plain_fma(
    result: F64, easy: Flags, moderate: Flags, rounding: str, x: F64, y: F64, z: F64
) -> tuple[F64, Flags]:
    """Results of lanes that need only a product and a sum, and flags of these lanes.

    Zeros and infinities are common (masked tiles are full of them), so they are not left to
    `exact`: the addend of an infinite or zero product does not matter, and a zero sum of moderate
    values comes from an exact product.
    """
    zero = (x == 0) | (y == 0)
    wild = ~(np.isfinite(x) & np.isfinite(y) & np.isfinite(z))
    done = wild | (zero & (z != 0))
    if rounding == "rn":
        done = done | zero | moderate
    done = done & ~easy
    finite = np.isfinite(x) & np.isfinite(y)
    product = np.where(finite & ~np.isfinite(z), 0.0, x * y)
    return np.where(done, product + z, result), done


def div(a: Operand, b: Operand, rounding: str) -> Bits:
    """a / b."""
    x, y = load(a), load(b)
    if rounding == "rn":
        return finish_f64(x / y, x, y)
    quotient = x / y
    product, error = two_product(quotient, y)
    # (x - product) is exact; its sign, corrected by the divisor's, is that of the error.
    remainder = (x - product) - error
    easy = _moderate(x, y, quotient) & (quotient != 0)
    stepped = step_f64(quotient, remainder * np.sign(y), rounding)
    return finish_f64(_patched(stepped, easy, exact.div, rounding, x, y), x, y)


def sqrt(a: Operand, rounding: str) -> Bits:
    """The square root; -0.0 keeps its sign."""
    x = load(a)
    root = np.sqrt(x)
    if rounding == "rn":
        return finish_f64(root, x)
    square, error = two_product(root, root)
    easy = _moderate(x) & (x > 0)
    stepped = step_f64(root, (x - square) - error, rounding)
    return finish_f64(_patched(stepped, easy, exact.sqrt, rounding, x), x)


def rcp(a: Operand, rounding: str) -> Bits:
    """1 / a."""
    return div(0x3FF0000000000000, a, rounding)
