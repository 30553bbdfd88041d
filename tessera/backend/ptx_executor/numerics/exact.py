"""f64 operations on single values with Python's integers: slow, exact, in every rounding mode.

For the lanes that error-free transformations cannot handle (overflow, underflow, infinities,
NaNs, zeros whose sign depends on the mode), and a reference for tests.
"""

from __future__ import annotations

import math

_SIGN = 1 << 63
_INFINITY = 0x7FF << 52
_NAN = 0x7FFFFFFFFFFFFFFF


def _fields(raw: int) -> tuple[int, int, int]:
    """Sign (0 or 1), integer significand and exponent of a finite value."""
    exponent = raw >> 52 & 0x7FF
    significand = raw & ((1 << 52) - 1)
    if exponent:
        return raw >> 63, significand | 1 << 52, exponent - 1075
    return raw >> 63, significand, -1074


def _is_nan(raw: int) -> bool:
    return raw & ~_SIGN > _INFINITY


def _is_infinite(raw: int) -> bool:
    return raw & ~_SIGN == _INFINITY


def round_to_f64(sign: int, numerator: int, exponent: int, mode: str, sticky: bool = False) -> int:
    """Bits of (-1)^sign * (numerator + a little if sticky) * 2^exponent, in the given mode."""
    # Two more bits than the result keeps, so that `sticky` stays below half a unit.
    lack = max(0, 56 - numerator.bit_length())
    numerator, exponent = numerator << lack, exponent - lack
    numerator = numerator << 1 | sticky
    exponent -= 1
    cut = max(numerator.bit_length() - 53, -1074 - exponent)
    kept, rest = numerator >> cut, numerator & ((1 << cut) - 1)
    half = 1 << (cut - 1)
    away = {
        "rn": rest > half or (rest == half and kept & 1 == 1),
        "rz": False,
        "rm": rest != 0 and sign == 1,
        "rp": rest != 0 and sign == 0,
    }[mode]
    kept += away
    field = exponent + cut + 1074
    # `kept` holds the hidden bit, which adds one to the exponent; `field` is 0 for subnormals.
    magnitude = (field << 52) + kept
    if magnitude >= _INFINITY:
        to_infinity = mode == "rn" or mode == ("rm" if sign else "rp")
        magnitude = _INFINITY if to_infinity else _INFINITY - 1
    return sign << 63 | magnitude


def add(a: int, b: int, mode: str) -> int:
    """a + b."""
    if _is_nan(a) or _is_nan(b):
        return _NAN
    if _is_infinite(a) or _is_infinite(b):
        return _infinite_sum(a, b)
    return _sum(*_fields(a), *_fields(b), mode)


def _infinite_sum(a: int, b: int) -> int:
    if _is_infinite(a) and _is_infinite(b) and a != b:
        return _NAN
    return a if _is_infinite(a) else b


def _sum(sa: int, ma: int, ea: int, sb: int, mb: int, eb: int, mode: str) -> int:
    """The rounded sum of two values in sign, significand, exponent form."""
    if ma == 0 and mb == 0:
        return (sa if sa == sb else int(mode == "rm")) << 63
    base = min(ea, eb)
    total = (-ma if sa else ma) << (ea - base)
    total += (-mb if sb else mb) << (eb - base)
    if total == 0:
        return int(mode == "rm") << 63
    return round_to_f64(int(total < 0), abs(total), base, mode)


def mul(a: int, b: int, mode: str) -> int:
    """a * b."""
    if _is_nan(a) or _is_nan(b):
        return _NAN
    sign = (a ^ b) >> 63
    if _is_infinite(a) or _is_infinite(b):
        zero = a & ~_SIGN == 0 or b & ~_SIGN == 0
        return _NAN if zero else sign << 63 | _INFINITY
    (_, ma, ea), (_, mb, eb) = _fields(a), _fields(b)
    if ma * mb == 0:
        return sign << 63
    return round_to_f64(sign, ma * mb, ea + eb, mode)


def fma(a: int, b: int, c: int, mode: str) -> int:
    """a * b + c, rounded once."""
    product = mul(a, b, "rz")
    if _is_nan(product) or _is_nan(c):
        return _NAN
    if _is_infinite(a) or _is_infinite(b) or _is_infinite(c):
        infinite_product = _is_infinite(a) or _is_infinite(b)
        return _infinite_sum(product if infinite_product else 0, c)
    (sa, ma, ea), (sb, mb, eb) = _fields(a), _fields(b)
    return _sum(sa ^ sb, ma * mb, ea + eb, *_fields(c), mode)


def div(a: int, b: int, mode: str) -> int:
    """a / b."""
    if _is_nan(a) or _is_nan(b):
        return _NAN
    sign = (a ^ b) >> 63
    zero_a, zero_b = a & ~_SIGN == 0, b & ~_SIGN == 0
    if (_is_infinite(a) and _is_infinite(b)) or (zero_a and zero_b):
        return _NAN
    if _is_infinite(a) or zero_b:
        return sign << 63 | _INFINITY
    if _is_infinite(b) or zero_a:
        return sign << 63
    (_, ma, ea), (_, mb, eb) = _fields(a), _fields(b)
    quotient, remainder = divmod(ma << 120, mb)
    return round_to_f64(sign, quotient, ea - eb - 120, mode, remainder != 0)


def sqrt(a: int, mode: str) -> int:
    """The square root of a."""
    if a & ~_SIGN == 0 or a == _INFINITY:
        return a
    if _is_nan(a) or a >> 63:
        return _NAN
    _, significand, exponent = _fields(a)
    shift = 128 + (exponent & 1)
    scaled = significand << shift
    root = math.isqrt(scaled)
    return round_to_f64(0, root, (exponent - shift) // 2, mode, root * root != scaled)
