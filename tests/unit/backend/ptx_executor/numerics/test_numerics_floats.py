from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import exact, float64, floats, quiet
from tests.helpers.numerics_reference import SHAPES, operate, random_bits, value
from tests.helpers.share import share

COUNT = 1500
MODES = ["rn", "rz", "rm", "rp"]


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


def check(t, op, mode, function, arity, seed=0, count=COUNT):
    count = len(share(range(count)))
    columns = [random_bits(t, count, seed + i) for i in range(arity)]
    got = function(t, *columns, rounding=mode)
    assert got.dtype == columns[0].dtype
    for lane in range(count):
        operands = [int(column[lane]) for column in columns]
        expected = operate(t, op, operands, mode)
        if t == "f64" and expected == SHAPES[t][3]:
            # NaN payloads are checked against recorded results.
            assert value(t, int(got[lane])) != value(t, int(got[lane]))
            continue
        assert int(got[lane]) == expected, (op, mode, [hex(o) for o in operands], hex(expected))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_binary_operations_round_correctly(t, op, mode):
    check(t, op, mode, getattr(floats, op), 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_fma_rounds_once(t, mode):
    check(t, "fma", mode, floats.fma, 3, count=3000)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("t", ["f32", "f64"])
def test_sqrt_rounds_correctly(t, mode):
    check(t, "sqrt", mode, floats.sqrt, 1, count=600)


@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("t", ["f16", "bf16"])
def test_halves_round_correctly(t, op):
    check(t, op, "rn", getattr(floats, op), 2, count=4000)


@pytest.mark.parametrize("t", ["f16", "bf16"])
def test_half_fma_rounds_once(t):
    check(t, "fma", "rn", floats.fma, 3, count=6000)


def test_fma_f32_sees_past_a_double_rounding():
    # 1 + 2^-24 is a tie of f32; the product adds less than float64 keeps.
    tiny = 0x0D800000  # 2^-100
    one_and_half_unit = [0x3F800001, 0x3F7FFFFF]
    got = floats.fma("f32", 0x33800000, 0x3F800000, 0x3F800000)  # 2^-24 * 1 + 1: tie to even
    assert got[0] == 0x3F800000
    for b in one_and_half_unit:
        operands = [0x33800000, b, 0x3F800000]
        assert floats.fma("f32", *operands)[0] == operate("f32", "fma", operands)
    operands = [tiny, tiny, 0x3F800001]
    assert floats.fma("f32", *operands)[0] == operate("f32", "fma", operands)


def test_fma_bf16_sees_past_a_double_rounding():
    # 1.0 * (1 + 2^-7) with a tie made by the product, broken by a far smaller addend.
    operands = [0x3F81, 0x3F81, 0x0080]
    assert floats.fma("bf16", *operands)[0] == operate("bf16", "fma", operands)
    operands = [0x3FC0, 0x3F83, 0x8080]
    assert floats.fma("bf16", *operands)[0] == operate("bf16", "fma", operands)


@pytest.mark.parametrize("t", ["f16x2", "bf16x2", "f32x2"])
def test_packed_operations_treat_halves_alone(t):
    scalar = t.removesuffix("x2")
    width = SHAPES[scalar][0]
    low = [random_bits(scalar, 300, seed) for seed in range(3)]
    high = [random_bits(scalar, 300, seed + 3) for seed in range(3)]
    wide = np.dtype(f"uint{2 * width}")
    words = [
        x.astype(wide) | (y.astype(wide) << wide.type(width))
        for x, y in zip(low, high, strict=True)
    ]
    for op, arity in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("min", 2), ("abs", 1)):
        function = getattr(floats, op)
        got = function(t, *words[:arity])
        assert np.array_equal(got.astype(low[0].dtype), function(scalar, *low[:arity])), op
        upper = (got >> wide.type(width)).astype(low[0].dtype)
        assert np.array_equal(upper, function(scalar, *high[:arity])), op


def test_packed_broadcasts_a_scalar():
    words = np.array([0x3C003C00, 0x40004000], np.uint32)
    assert floats.add("f16x2", words, 0x3C000000).tolist() == [0x40003C00, 0x42004000]


def test_ftz_flushes_operands_and_results():
    assert floats.add("f32", 0x00000001, 0x80000001, ftz=True)[0] == 0
    assert floats.mul("f32", 0x807FFFFF, 0x7F000000, ftz=True)[0] == 0x80000000
    # 2^-126 * 0.5 is subnormal: its sign stays.
    assert floats.mul("f32", 0x80800000, 0x3F000000, ftz=True)[0] == 0x80000000
    assert floats.mul("f32", 0x80800000, 0x3F000000)[0] == 0x80400000
    assert floats.fma("f16", 0x0001, 0x3C00, 0x0001, ftz=True)[0] == 0


def test_sat_clamps_and_turns_nan_into_zero():
    values = np.array([0xBF800000, 0x80000000, 0x3F000000, 0x40000000, 0x7FC00000], np.uint32)
    got = floats.add("f32", values, 0, sat=True)
    assert got.tolist() == [0, 0, 0x3F000000, 0x3F800000, 0]
    halves = np.array([0xBC00, 0x8000, 0x3800, 0x4000, 0x7E00], np.uint16)
    assert floats.add("f16", halves, 0x8000, sat=True).tolist() == [0, 0, 0x3800, 0x3C00, 0]


def test_relu_clamps_negatives_and_keeps_nan():
    values = np.array([0xBC00, 0x8000, 0x3C00, 0x7E00], np.uint16)
    got = floats.fma("f16", values, 0x3C00, 0x8000, relu=True)
    assert got.tolist() == [0, 0, 0x3C00, 0x7FFF]


@pytest.mark.parametrize("nan_wins", [False, True])
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
def test_min_max(t, op, nan_wins):
    a, b = random_bits(t, 3000, 1), random_bits(t, 3000, 2)
    width, _, _, canonical = SHAPES[t]
    a[::7] = b[::7]
    a[::11], b[::11] = 0, 1 << (width - 1)
    got = getattr(floats, op)(t, a, b, nan=nan_wins)

    def order(raw):
        magnitude = raw & ((1 << (width - 1)) - 1)
        return -1 - magnitude if raw >> (width - 1) else magnitude

    for x, y, z in zip(a.tolist(), b.tolist(), got.tolist(), strict=True):
        x_nan, y_nan = value(t, x) != value(t, x), value(t, y) != value(t, y)
        if t == "f64" and (x_nan or y_nan) and (nan_wins or (x_nan and y_nan)):
            expected = y | 1 << 51
        elif (x_nan and y_nan) or (nan_wins and (x_nan or y_nan)):
            expected = canonical
        elif x_nan or y_nan:
            expected = y if x_nan else x
        else:
            expected = (min if op == "min" else max)(x, y, key=order)
        assert z == expected, (hex(x), hex(y), hex(z))


def test_min_xorsign_abs_and_three_inputs():
    assert floats.min("f32", 0xBF800000, 0x40000000, xorsign_abs=True)[0] == 0xBF800000
    assert floats.max("f32", 0xBF800000, 0xC0000000, xorsign_abs=True)[0] == 0x40000000
    nan = 0x7FC00000
    assert floats.max("f32", nan, nan, xorsign_abs=True)[0] == 0x7FFFFFFF
    assert floats.max("f32", 0xC0400000, 0x3F800000, 0x40000000, abs=True)[0] == 0x40400000
    assert floats.min("f32", nan, 0x3F800000, 0x40000000)[0] == 0x3F800000
    assert floats.min("f32", nan, 0x3F800000, 0x40000000, nan=True)[0] == 0x7FFFFFFF


def test_sign_operations_and_testp():
    assert floats.abs("f32", 0x80000001, ftz=True)[0] == 0
    assert floats.neg("f16x2", 0x3C00BC00)[0] == 0xBC003C00
    assert floats.copysign("f64", 1 << 63, 0x3FF0000000000000)[0] == 0xBFF0000000000000
    raw = np.array([0, 1, 0x00800000, 0x7F800000, 0x7F800001], np.uint32)
    table = {
        "finite": [1, 1, 1, 0, 0],
        "infinite": [0, 0, 0, 1, 0],
        "number": [1, 1, 1, 1, 0],
        "notanumber": [0, 0, 0, 0, 1],
        "normal": [1, 0, 1, 0, 0],
        "subnormal": [0, 1, 0, 0, 0],
    }
    for op, expected in table.items():
        assert floats.testp(op, "f32", raw).tolist() == [bool(x) for x in expected], op


def test_unknown_forms_are_refused():
    with pytest.raises(NotImplementedError, match=r"rounds by .rn only"):
        floats.add("f16", 0, 0, rounding="rz")
    with pytest.raises(NotImplementedError, match=r"rounding .rx"):
        floats.add("f32", 0, 0, rounding="rx")


ORDINARY = (0.0, -0.0, 1.0, -1.0, 3.0, 0.1, np.inf, -np.inf, np.nan)
EXTREME = (5e-324, -5e-324, 1e-200, -1e200, 1.7976931348623157e308, 2.0**-401, 2.0**401)


@pytest.mark.parametrize("mode", MODES)
def test_fma_f64_of_zeros_infinities_and_extremes(mode):
    grid = np.meshgrid(*[np.array([*ORDINARY, *EXTREME])] * 3)
    x, y, z = (axis.ravel() for axis in grid)
    got = float64.fma(*(axis.view(np.uint64) for axis in (x, y, z)), mode)
    lanes = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    want = np.array([exact.fma(*lane, mode) for lane in lanes]).view(np.uint64)
    nan = np.isnan(got.view(np.float64)) & np.isnan(want.view(np.float64))
    assert (nan | (got == want)).all()


def test_fma_f64_leaves_ordinary_zeros_out_of_the_slow_path(monkeypatch):
    """A masked tile of zeros took 40 microseconds a lane."""
    monkeypatch.setattr(exact, "fma", None)
    x, y, z = (axis.ravel().view(np.uint64) for axis in np.meshgrid(*[np.array(ORDINARY)] * 3))
    assert float64.fma(x, y, z, "rn").size == len(ORDINARY) ** 3
