"""What the PTX ISA promises of approximate instructions, as checks on bit patterns.

In: an instruction's text, its inputs and results. Out: the largest error in units of the bound (at
most 1 is within it), or None where the ISA promises nothing for any input given. True values are
computed in double precision, whose error is far below every bound here.

Source: PTX ISA 9.0, sections 9.7.3 to 9.7.5 (floating-point, half precision).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.kernels.formats import from_bf16

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """The exact function and the allowed error at each input; NaN where nothing is promised."""

    exact: Callable[..., Values]
    allowed: Callable[..., Values]


def relative(size: float) -> Callable[..., Values]:
    """An error relative to the exact result."""
    return lambda exact, *inputs: np.abs(exact) * size


def absolute(size: float) -> Callable[..., Values]:
    """The same error everywhere."""
    return lambda exact, *inputs: np.full_like(exact, size)


def ulps(count: float) -> Callable[..., Values]:
    """Units in the last place of an f32 result."""
    return lambda exact, *inputs: count * np.spacing(np.abs(exact).astype(np.float32)).astype(float)


def near_multiples(exact: Values, angle: Values) -> Values:
    """sin and cos: 2**-20.5 within two pi, 2**-14.7 within 100 pi, nothing beyond."""
    size = np.abs(angle)
    beyond = np.where(size <= 100 * np.pi, 2.0**-14.7, np.nan)
    return np.where(size <= 2 * np.pi, 2.0**-20.5, beyond)


def logarithm(exact: Values, x: Values) -> Values:
    """lg2: absolute near one, relative elsewhere."""
    return np.where((x >= 0.5) & (x <= 2), 2.0**-22, np.abs(exact) * 2.0**-22)


def divided(exact: Values, a: Values, b: Values) -> Values:
    """div.approx: two ulps for divisors between 2**-126 and 2**126."""
    inside = (np.abs(b) >= 2.0**-126) & (np.abs(b) <= 2.0**126)
    return np.where(inside, ulps(2)(exact), np.nan)


BOUNDS: dict[str, Bound] = {
    r"ex2\.approx\S*f32": Bound(np.exp2, relative(2.0**-22)),
    r"lg2\.approx": Bound(np.log2, logarithm),
    r"sin\.approx": Bound(np.sin, near_multiples),
    r"cos\.approx": Bound(np.cos, near_multiples),
    r"tanh\.approx\S*\.f32": Bound(np.tanh, relative(2.0**-11)),
    r"tanh\.approx\S*bf16": Bound(np.tanh, absolute(2.0**-8)),
    r"tanh\.approx\S*f16": Bound(np.tanh, absolute(2.0**-10.987)),
    r"ex2\.approx\S*bf16": Bound(np.exp2, relative(2.0**-7)),
    r"ex2\.approx\S*f16": Bound(np.exp2, relative(2.0**-9.9)),
    r"rcp\.approx\S*f32": Bound(np.reciprocal, ulps(1)),
    r"rsqrt\.approx\S*f32": Bound(lambda x: 1 / np.sqrt(x), relative(2.0**-22.9)),
    r"\bsqrt\.approx\S*f32": Bound(np.sqrt, relative(2.0**-23)),
    # The ISA states no error: these read and write the upper 32 bits, 20 of them mantissa.
    r"rcp\.approx\S*f64": Bound(np.reciprocal, relative(2.0**-19)),
    r"rsqrt\.approx\S*f64": Bound(lambda x: 1 / np.sqrt(x), relative(2.0**-19)),
    r"div\.approx": Bound(np.divide, divided),
    r"div\.full": Bound(np.divide, ulps(2)),
}


def find_bound(text: str) -> Bound | None:
    """The bound of an instruction; None if its results are exact by definition."""
    return next((bound for pattern, bound in BOUNDS.items() if re.search(pattern, text)), None)


@np.errstate(invalid="ignore")
def decode(bits: NDArray, kind: str) -> Values:
    """Bit patterns as numbers; pairs become twice as many. Signalling NaN is no error here."""
    if kind == "f64":
        return bits.view(np.float64)
    if kind == "f32":
        return bits.view(np.float32).astype(np.float64)
    halves = bits.view(np.uint16)
    if kind.startswith("bf16"):
        return from_bf16(halves).astype(np.float64)
    return halves.view(np.float16).astype(np.float64)


def flushed(values: Values, text: str, kind: str) -> Values:
    """Inputs as `.ftz` reads them."""
    smallest = {"f32": 2.0**-126, "f64": 2.0**-1022}.get(kind)
    if ".ftz" not in text or smallest is None:
        return values
    return np.where(np.abs(values) < smallest, np.copysign(0.0, values), values)


def error_in_bounds(
    text: str, bound: Bound, inputs: list[Values], got: Values, kind: str
) -> tuple[float, int]:
    """The worst error in units of the bound, and at which element."""
    inputs = [flushed(values, text, kind) for values in inputs]
    with np.errstate(all="ignore"):
        exact = bound.exact(*inputs)
        allowed = bound.allowed(exact, *inputs)
        limits = np.finfo({"f64": np.float64, "f32": np.float32}.get(kind, np.float16))
        # Results that under- or overflow, zeros, infinities and NaN follow rules of their own.
        ordinary = np.isfinite(exact) & (np.abs(exact) < float(limits.max))
        ordinary &= np.abs(exact) >= float(limits.tiny)
        error = np.abs(got - exact) / allowed
        error = np.where(ordinary & ~np.isnan(allowed), np.nan_to_num(error, nan=np.inf), 0.0)
    worst = int(np.argmax(error))
    return float(error[worst]), worst
