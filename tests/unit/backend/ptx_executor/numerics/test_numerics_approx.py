from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import approx, quiet

INF, NAN, ONE = 0x7F800000, 0x7FFFFFFF, 0x3F800000
NEG = 0x80000000


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def f32(values):
    return np.asarray(values, np.float32).view(np.uint32)


def spread(low, high, count=200_000, seed=0):
    """Values that fill an interval evenly, and another set evenly spread over exponents."""
    rng = np.random.default_rng(seed)
    even = rng.uniform(low, high, count)
    small = np.where(rng.integers(0, 2, count) == 0, low, high) * 2.0 ** -rng.uniform(0, 30, count)
    return np.concatenate([even, small]).astype(np.float32)


def run(function, x, **modifiers):
    got = function("f32", x.view(np.uint32), **modifiers)
    assert got.dtype == np.uint32
    return got.view(np.float32).astype(np.float64)


def worst(got, exact):
    return float(np.max(np.abs(got - exact)))


def test_ex2_error():
    x = spread(-125.9, 127.9)
    exact = np.exp2(x.astype(np.float64))
    assert worst(run(approx.ex2, x) / exact, 1.0) < 2.0**-22.8


def test_ex2_subnormal_results_are_within_a_unit():
    x = np.linspace(-150, -126, 50_000, dtype=np.float32)
    exact = np.exp2(x.astype(np.float64))
    assert worst(run(approx.ex2, x), exact) <= 2.0**-149
    assert not run(approx.ex2, x[x < -126.01], ftz=True).any()


def test_lg2_error():
    near = spread(0.5, 2.0)
    near = near[near > 0.5]
    assert worst(run(approx.lg2, near), np.log2(near.astype(np.float64))) < 2.0**-22.5
    rng = np.random.default_rng(1)
    far = (2.0 ** rng.uniform(-149, 128, 200_000)).astype(np.float32)
    far = far[((far <= 0.5) | (far >= 2.0)) & (far > 0) & np.isfinite(far)]
    assert worst(run(approx.lg2, far) / np.log2(far.astype(np.float64)), 1.0) < 2.0**-22.5


@pytest.mark.parametrize(("name", "exact"), [("sin", np.sin), ("cos", np.cos)])
def test_sin_cos_error(name, exact):
    x = spread(-6.2831855, 6.2831855)
    assert worst(run(getattr(approx, name), x), exact(x.astype(np.float64))) < 2.0**-22.5
    x = spread(-314.15927, 314.15927)
    assert worst(run(getattr(approx, name), x), exact(x.astype(np.float64))) < 2.0**-22.5


def test_tanh_error():
    x = spread(-12, 12)
    assert worst(run(approx.tanh, x) / np.tanh(x.astype(np.float64)), 1.0) < 2.0**-20


def test_roots_and_quotients():
    rng = np.random.default_rng(3)
    x = (2.0 ** rng.uniform(-125, 125, 100_000)).astype(np.float32)
    wide = x.astype(np.float64)
    assert worst(run(approx.rcp, x) * wide, 1.0) < 2.0**-23.5
    assert worst(run(approx.rsqrt, x) * np.sqrt(wide), 1.0) < 2.0**-23.5
    assert worst(run(approx.sqrt, x) / np.sqrt(wide), 1.0) < 2.0**-23.5
    y = rng.permutation(x)
    quotient = y.astype(np.float64) / wide
    normal = (quotient > 2.0**-125) & (quotient < 2.0**127)
    got = (
        approx.div("f32", y.view(np.uint32), x.view(np.uint32)).view(np.float32).astype(np.float64)
    )
    assert worst(got[normal] / quotient[normal], 1.0) < 2.0**-22
    got = approx.div_full(y.view(np.uint32), x.view(np.uint32)).view(np.float32).astype(np.float64)
    assert worst(got[normal] / quotient[normal], 1.0) < 2.0**-23.5


SPECIALS = {
    "ex2": {0: ONE, NEG: ONE, 1: ONE, NEG | 1: ONE, INF: INF, NEG | INF: 0, NAN: NAN},
    "lg2": {0: NEG | INF, NEG: NEG | INF, INF: INF, NEG | INF: NAN, NEG | ONE: NAN, ONE: 0},
    "sin": {0: 0, NEG: NEG, INF: NAN, NEG | INF: NAN, NAN: NAN, 1: 1, NEG | 1: NEG | 1},
    "cos": {0: ONE, NEG: ONE, INF: NAN, NEG | INF: NAN, NAN: NAN, 1: ONE},
    "tanh": {0: 0, NEG: NEG, INF: ONE, NEG | INF: NEG | ONE, NAN: NAN, 1: 1, NEG | 1: NEG | 1},
    "rcp": {0: INF, NEG: NEG | INF, INF: 0, NEG | INF: NEG, NAN: NAN, 1: INF},
    "rsqrt": {0: INF, NEG: NEG | INF, INF: 0, NEG | INF: NAN, NEG | ONE: NAN, NAN: NAN},
    "sqrt": {0: 0, NEG: NEG, INF: INF, NEG | INF: NAN, NEG | ONE: NAN, NAN: NAN},
}
FLUSHED = {
    "ex2": {1: ONE, NEG | 1: ONE},
    "lg2": {1: NEG | INF, NEG | 1: NEG | INF},
    "sin": {1: 0, NEG | 1: NEG},
    "cos": {1: ONE, NEG | 1: ONE},
    "rcp": {1: INF, NEG | 1: NEG | INF, 0x7F000001: 0, 0xFF000001: NEG},
    "rsqrt": {1: INF, NEG | 1: NEG | INF},
    "sqrt": {1: 0, NEG | 1: NEG},
}


@pytest.mark.parametrize("name", SPECIALS)
def test_special_values(name):
    function = getattr(approx, name)
    for operand, expected in SPECIALS[name].items():
        assert int(function("f32", operand)[0]) == expected, (name, hex(operand))
    for operand, expected in FLUSHED.get(name, {}).items():
        assert int(function("f32", operand, ftz=True)[0]) == expected, (name, "ftz", hex(operand))


def test_division_by_huge_numbers():
    huge = 0x7F000001
    assert approx.div("f32", ONE, huge)[0] == 0
    assert approx.div("f32", INF, huge)[0] == NAN
    assert approx.div_full(0x7F000001, huge)[0] == ONE


@pytest.mark.parametrize(("t", "dtype"), [("f16", np.float16)])
def test_half_functions(t, dtype):
    raw = np.arange(0x7C00, dtype=np.uint16)
    raw = np.concatenate([raw, raw | 0x8000])
    x = raw.view(dtype).astype(np.float64)
    for name, exact in (("ex2", np.exp2), ("tanh", np.tanh)):
        got = getattr(approx, name)(t, raw).view(dtype)
        expected = exact(x).astype(dtype)
        apart = np.abs(got.view(np.int16).astype(int) - expected.view(np.int16).astype(int))
        assert apart.max() <= 1


def test_bf16_and_pairs():
    assert approx.ex2("bf16", 0x3F80, ftz=True)[0] == 0x4000
    assert approx.ex2("bf16x2", 0x3F80BF80, ftz=True)[0] == 0x40003F00
    assert approx.tanh("f16x2", 0x7C00FC00)[0] == 0x3C00BC00


def test_gross_f64_approximations():
    rng = np.random.default_rng(5)
    x = 2.0 ** rng.uniform(-1000, 1000, 10_000)
    for function, exact in ((approx.rcp, 1 / x), (approx.rsqrt, 1 / np.sqrt(x))):
        got = function("f64", x.view(np.uint64), ftz=True)
        assert not (got & np.uint64(0xFFFFFFFF)).any()
        assert worst(got.view(np.float64) / exact, 1.0) < 2.0**-19
    assert approx.rcp("f64", 1, ftz=True)[0] == 0x7FF0000000000000
    assert approx.rcp("f64", 0x7FE0000100000000, ftz=True)[0] == 0
    assert approx.rsqrt("f64", 1 << 63, ftz=True)[0] == 0xFFF0000000000000


def test_what_does_not_exist_is_refused():
    with pytest.raises(NotImplementedError):
        approx.sin("f16", 0)
    with pytest.raises(NotImplementedError):
        approx.ex2("f64", 0)
