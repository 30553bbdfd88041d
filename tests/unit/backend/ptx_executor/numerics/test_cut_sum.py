"""Sums of cut products against exact integers, however they are blocked and shared."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.numerics.matrix import cut_sum
from tessera.backend.ptx_executor.numerics.matrix.accumulate import rule_for

RULE = rule_for("bf16")


def bf16(values: np.ndarray) -> np.ndarray:
    raw = values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)
    return raw.view(np.float32)


def exponent(value: Fraction) -> int:
    """Of the leading bit."""
    magnitude = abs(value)
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if magnitude >= Fraction(2) ** guess else guess - 1


def cut(value: Fraction, unit: Fraction) -> Fraction:
    whole = abs(value) // unit * unit
    return whole if value >= 0 else -whole


def reference(a: np.ndarray, b: np.ndarray, c: float) -> float:
    """The rule in words, on Python's integers, for normal values."""
    pairs = [(Fraction(float(x)), Fraction(float(y))) for x, y in zip(a, b, strict=True)]
    terms = [(x * y, exponent(x) + exponent(y)) for x, y in pairs if x and y]
    if c:
        terms.append((Fraction(float(c)), exponent(Fraction(float(c)))))
    if not terms:
        return 0.0
    unit = Fraction(2) ** (max(e for _, e in terms) - 25)
    total = sum((cut(value, unit) for value, _ in terms), Fraction(0))
    if not total:
        return 0.0
    return float(cut(total, Fraction(2) ** (exponent(total) - 23)))


def draw(seed: int, shape: tuple[int, ...], spread: int, zeros: float = 0.1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    values[rng.random(shape) < zeros] = 0
    return values


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    left, right = (cut_sum.factor(values, RULE.lowest) for values in (a, b))
    with quiet():
        return cut_sum.sum_of_products("f32", left, right, c, RULE).view(np.float32)


@pytest.mark.parametrize("spread", [0, 6, 20, 40])
@pytest.mark.parametrize("depth", [4, 16, 32])
def test_every_sum_follows_the_rule(spread: int, depth: int) -> None:
    a = bf16(draw(1, (depth, 3, 1, 5), spread))
    b = bf16(draw(2, (depth, 1, 4, 5), spread))
    c = draw(3, (3, 4, 5), spread).astype(np.float32)
    got = product(a, b, c)
    for i, j, w in np.ndindex(3, 4, 5):
        assert got[i, j, w] == reference(a[:, i, 0, w], b[:, 0, j, w], c[i, j, w])


def test_sums_of_nothing_but_zeros_are_plus_zero() -> None:
    a, b = np.zeros((16, 2, 1, 3), np.float32), -np.ones((16, 1, 4, 3), np.float32)
    b[:, :, 1] = 2.0**100
    c = np.full((2, 4, 3), -0.0, np.float32)
    assert (product(a, b, c).view(np.uint32) == 0).all()


@pytest.mark.parametrize("power", [-60, -64, -70, -74])
def test_products_below_the_normal_range_are_not_taken_for_zeros(power: int) -> None:
    a = np.full((16, 2, 1, 3), 2.0**power, np.float32)
    b = np.full((16, 1, 4, 3), 2.0**power, np.float32)
    a[3, 1] = 0
    got = product(a, b, np.zeros((2, 4, 3), np.float32))
    assert (got[0] == np.float32(16 * 2.0 ** (2 * power))).all()
    assert (got[1] == np.float32(15 * 2.0 ** (2 * power))).all()


def test_a_row_that_needs_float64_does_not_change_the_others() -> None:
    a, b = bf16(draw(4, (16, 4, 1, 6), 3)), bf16(draw(5, (16, 1, 8, 6), 3))
    c = draw(6, (4, 8, 6), 3).astype(np.float32)
    plain = product(a, b, c)
    a[3, 2] = np.inf
    mixed = product(a, b, c)
    keep = [0, 1, 3]
    assert (mixed[keep].view(np.uint32) == plain[keep].view(np.uint32)).all()
    assert not np.isfinite(mixed[2]).any()


def test_a_subnormal_accumulator_beside_products_is_cut_away() -> None:
    a, b = (np.ones(shape, np.float32) for shape in ((16, 1, 1, 1), (16, 1, 1, 1)))
    assert product(a, b, np.full((1, 1, 1), 1e-40, np.float32)).item() == 16.0
    zeros = np.zeros_like(a)
    tiny = np.full((1, 1, 1), 1e-40, np.float32)
    assert product(zeros, b, tiny).item() == tiny.item()


def test_sixteen_of_the_largest_products_fit() -> None:
    largest = np.full((16, 1, 1, 1), 1.9921875, np.float32)
    c = np.full((1, 1, 1), 1.9999999, np.float32)
    got = product(largest, largest, c).item()
    assert got == reference(largest[:, 0, 0, 0], largest[:, 0, 0, 0], c.item())


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = bf16(draw(7, (16, 16, 1, 96), 8)), bf16(draw(8, (16, 1, 8, 96), 8))
    c = draw(9, (16, 8, 96), 8).astype(np.float32)
    alone = product(a, b, c).view(np.uint32)
    monkeypatch.setattr(cut_sum, "_BLOCK", 5000)
    cut_sum._blocks.cache_clear()
    try:
        assert (product(a, b, c).view(np.uint32) == alone).all()
    finally:
        cut_sum._blocks.cache_clear()


def test_quiet_puts_numpys_buffer_back() -> None:
    before = np.getbufsize()
    with quiet():
        assert np.getbufsize() != before
    assert np.getbufsize() == before
