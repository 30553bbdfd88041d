"""Laws on generated bits: one rounding, wide integers out of carries, lanes that do not mix."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.numerics import bits, convert, exact, floats, integer, quiet
from tests.helpers.numerics_reference import SHAPES, operate, value

MODES = st.sampled_from(["rn", "rz", "rm", "rp"])


def words(t):
    """Bits of a format: any, but often with few bits set in the mantissa or a middling exponent."""
    width, exponent, mantissa, _ = SHAPES[t]
    sign = st.integers(0, 1)
    fields = st.one_of(
        st.integers(0, (1 << exponent) - 1),
        st.integers((1 << exponent - 1) - 4, (1 << exponent - 1) + 2),
    )
    sparse = st.builds(
        lambda i, j: (1 << i | 1 << j) & ((1 << mantissa) - 1), *[st.integers(0, mantissa)] * 2
    )
    fractions = st.one_of(st.integers(0, (1 << mantissa) - 1), sparse)
    return st.builds(lambda s, e, f: s << (width - 1) | e << mantissa | f, sign, fields, fractions)


@pytest.mark.parametrize("t", ["f16", "bf16", "f32", "f64"])
@settings(max_examples=2 * settings.default.max_examples)
@given(data=st.data())
def test_fma_rounds_the_exact_result_once(t, data):
    operands = [data.draw(words(t)) for _ in range(3)]
    mode = data.draw(MODES) if t in ("f32", "f64") else "rn"
    with quiet():
        got = int(floats.fma(t, *operands, rounding=mode)[0])
    expected = operate(t, "fma", operands, mode)
    if t == "f64" and expected == SHAPES[t][3]:
        assert value(t, got) != value(t, got)
    else:
        assert got == expected


@settings(max_examples=2 * settings.default.max_examples)
@given(words("f64"), words("f64"), words("f64"), MODES)
def test_the_fallback_of_fractions_is_exact(a, b, c, mode):
    def bits_of(number: float) -> int:
        raw = struct.unpack("<Q", struct.pack("<d", number))[0]
        return SHAPES["f64"][3] if number != number else raw

    x, y, z = (struct.unpack("<d", struct.pack("<Q", raw))[0] for raw in (a, b, c))
    with quiet():
        assert bits_of(exact.fma(x, y, z, mode)) == operate("f64", "fma", [a, b, c], mode)
        assert bits_of(exact.add(x, y, mode)) == operate("f64", "add", [a, b], mode)
        assert bits_of(exact.mul(x, y, mode)) == operate("f64", "mul", [a, b], mode)
        assert bits_of(exact.div(x, y, mode)) == operate("f64", "div", [a, b], mode)
        assert bits_of(exact.sqrt(x, mode)) == operate("f64", "sqrt", [a], mode)


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(st.tuples(*[st.integers(0, 2**128 - 1)] * 2), min_size=1, max_size=8))
def test_carry_chains_add_and_subtract_wide_integers(pairs):
    def limbs(column):
        return [np.array([x >> 32 * i & 0xFFFFFFFF for x in column], np.uint32) for i in range(4)]

    left, right = (limbs(column) for column in zip(*pairs, strict=True))
    carry = kept = None
    total = difference = 0
    for i, (x, y) in enumerate(zip(left, right, strict=True)):
        part, carry = integer.add_carry("u32", x, y, carry)
        total = total + part.astype(object) * (1 << 32 * i)
        part, kept = integer.sub_carry("u32", x, y, kept)
        difference = difference + part.astype(object) * (1 << 32 * i)
    assert list(total) == [(a + b) % 2**128 for a, b in pairs]
    assert list(difference) == [(a - b) % 2**128 for a, b in pairs]
    assert carry.tolist() == [a + b >= 2**128 for a, b in pairs]
    assert kept.tolist() == [a >= b for a, b in pairs]


@settings(max_examples=2 * settings.default.max_examples)
@given(st.lists(words("f32"), min_size=2, max_size=40))
def test_conversions_keep_order(raws):
    values = np.array(raws, np.uint32).view(np.float32)
    values = np.sort(values[values == values])
    with quiet():
        for t in ("f16", "bf16"):
            for mode in ("rn", "rz", "rm", "rp"):
                narrow = convert.cvt(t, "f32", values.view(np.uint32), rounding=mode)
                wide = convert.cvt("f32", t, narrow).view(np.float32)
                assert (wide[1:] >= wide[:-1]).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 20_000), st.integers(0, 2**32 - 1))
def test_blocks_do_not_change_results(count, seed):
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(0, 2**32, count, dtype=np.uint32) for _ in range(3))
    with quiet():
        whole = floats.fma("f32", a, b, c)
        at = count // 2
        assert np.array_equal(whole[at:], floats.fma("f32", a[at:], b[at:], c[at:]))
        scalar = floats.fma("f32", a, 0x3F800000, c)
        assert np.array_equal(
            scalar, floats.fma("f32", a, np.full(count, 0x3F800000, np.uint32), c)
        )
    p = (a & 1).astype(bool)
    assert np.array_equal(bits.select(p, a, b), np.where(p, a, b))
