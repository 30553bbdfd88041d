"""Library operators on the CPU against NumPy, to the bit where the bits are defined."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from tessera.backend import ptx_executor
from tessera.backend.ptx_executor.operators import elementary
from tessera.backend.ptx_executor.operators.run import FUNCTIONS
from tessera.diagnostics import TesseraError
from tessera.ir.operators.table import table
from tests.helpers.operator_calls import Calls, bf16, call, from_bf16

RNG = np.random.default_rng(5)
X = RNG.standard_normal((4, 6)).astype(np.float32)
Y = RNG.standard_normal((4, 6)).astype(np.float32)


def test_every_operator_of_the_table_has_a_function() -> None:
    """Those that stand for several of PyTorch's (`tessera::`) have none of their own."""
    theirs = {e.function for e in table().values() if not e.name.startswith("tessera::")}
    assert theirs == set(FUNCTIONS)


def test_attention_with_a_cap_and_sinks() -> None:
    query, key, value = (RNG.standard_normal((2, 3, 4)).astype(np.float32) for _ in range(3))
    sinks = np.array([0.5, -1.0], np.float32).reshape(2, 1, 1)
    (made,) = call(
        "tessera::attention",
        [query, key, value, sinks],
        [((2, 3, 4), "f32")],
        attn_mask=None,
        attn_bias=None,
        softcap=1.5,
    )
    scores = 1.5 * np.tanh(query @ key.swapaxes(-1, -2) / 2 / 1.5)
    parts = np.exp(scores)
    wanted = parts @ value / (parts.sum(-1, keepdims=True) + np.exp(sinks))
    np.testing.assert_allclose(made, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("exp", math.exp),
        ("expm1", math.expm1),
        ("tanh", math.tanh),
        ("erf", math.erf),
        ("sin", math.sin),
        ("cos", math.cos),
        ("log", math.log),
        ("log1p", math.log1p),
        ("log2", math.log2),
    ],
)
def test_elementary_functions_are_within_a_few_units(name: str, exact) -> None:
    values = np.concatenate([RNG.standard_normal(200) * 10.0**p for p in (-8, -2, 0, 1)])
    if name.startswith("log"):
        values = np.abs(values)
    if name in ("sin", "cos"):
        values = np.concatenate([values, RNG.standard_normal(50) * 1e5, [1e9, 2.5]])
    got = getattr(elementary, name)(values)
    wanted = np.array([exact(value) for value in values.tolist()])
    error = np.abs(got - wanted) / np.maximum(np.abs(wanted), 1e-3 if name == "erf" else 1e-300)
    if name in ("sin", "cos", "log2", "log"):
        error = np.minimum(error, np.abs(got - wanted) * 2**4)
    assert error.max() < 2.0**-48


def test_angles_of_any_size_are_reduced_exactly() -> None:
    """The last is the double that comes nearest to a multiple of pi/2."""
    angles = np.array([2.0**19, -1e6, 1e22, 2.0**1023, 6381956970095103 * 2.0**797])
    wanted = [math.sin(angle) for angle in angles[:4].tolist()]
    assert elementary.sin(angles[:4]).tolist() == pytest.approx(wanted, rel=1e-13)
    assert elementary.cos(angles[4:])[0] == pytest.approx(-4.68716592425462761112e-19, rel=1e-15)


# Functions of the system's library or of a CPU's vector unit: their last bits differ.
_BY_MACHINE = re.compile(
    r"\b(?:math|np)\.(?:a?sinh?|a?cosh?|a?tanh?|arc\w+|exp\d?|expm1|log\d*|log1p|pow|cbrt|hypot"
    r"|erfc?|l?gamma|logaddexp\d?|float_power|sum|mean|var|std|cumsum|dot|inner|matmul|einsum"
    r"|vdot|tensordot|linalg|fft|convolve)\b|\bvalues?\)?\.(?:sum|mean|var|std)\(|[^@] @ "
)


def test_nothing_that_differs_between_machines_is_called() -> None:
    for path in sorted(Path(ptx_executor.__path__[0]).rglob("*.py")):
        found = _BY_MACHINE.search(path.read_text("utf-8"))
        assert found is None, f"{path}: {found[0]}"


def test_elementary_functions_of_special_values() -> None:
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0])
    with np.errstate(all="ignore"):
        assert np.array_equal(elementary.exp(special), [np.inf, 0, np.nan, 1, 1], equal_nan=True)
        logs = elementary.log(special)
        assert np.array_equal(logs, [np.inf, np.nan, np.nan, -np.inf, -np.inf], equal_nan=True)
        assert np.array_equal(elementary.tanh(special), [1, -1, np.nan, 0, 0], equal_nan=True)
        assert np.array_equal(elementary.erf(special), [1, -1, np.nan, 0, 0], equal_nan=True)
        assert elementary.exp(np.array([-745.0, 709.7])).tolist() == pytest.approx(
            [math.exp(-745), math.exp(709.7)], rel=1e-13
        )
        powers = elementary.power(np.array([-2.0, -2.0, 4.0, 0.0]), np.array([3.0, 2.0, -0.5, 0.0]))
        assert powers.tolist() == pytest.approx([-8.0, 4.0, 0.5, 1.0])


def test_elementwise_arithmetic_is_that_of_float32() -> None:
    shape = [((4, 6), "f32")]
    assert (call("aten::add.Tensor", [X, Y], shape)[0] == X + Y).all()
    assert (call("aten::sub.Tensor", [X, Y], shape, alpha=2)[0] == X - 2 * Y).all()
    assert (call("aten::mul.Tensor", [X], shape, other=0.1)[0] == X * np.float32(0.1)).all()
    assert (call("aten::div.Tensor", [X, Y[:1]], shape)[0] == X / Y[:1]).all()
    assert (call("aten::pow.Tensor_Scalar", [X], shape, exponent=2)[0] == X * X).all()
    assert (call("aten::rsub.Scalar", [X], shape, other=1)[0] == 1 - X).all()
    assert (call("aten::clamp", [X], shape, min=-0.5, max=None)[0] == np.maximum(X, -0.5)).all()


def test_bf16_is_rounded_once_to_nearest_even() -> None:
    raw, other = bf16(X), bf16(Y)
    got = call("aten::add.Tensor", [raw, other], [((4, 6), "bf16")])[0]
    total = from_bf16(raw[0]) + from_bf16(other[0])
    assert (got == bf16(total)[0]).all()


def test_integers_wrap_and_divide_like_c() -> None:
    a = np.array([7, -7, 127, -128], np.int8)
    b = np.array([2, 2, 1, 1], np.int8)
    assert call("aten::add.Tensor", [a, b], [((4,), "s8")])[0].tolist() == [9, -5, -128, -127]
    floor = call("aten::div.Tensor_mode", [a, b], [((4,), "s8")], rounding_mode="floor")[0]
    trunc = call("aten::div.Tensor_mode", [a, b], [((4,), "s8")], rounding_mode="trunc")[0]
    assert floor.tolist() == [3, -4, 127, -128]
    assert trunc.tolist() == [3, -3, 127, -128]
    assert call("aten::div.Tensor", [a, b], [((4,), "f32")])[0].tolist() == [3.5, -3.5, 127, -128]


@pytest.mark.parametrize("name", ["floor_divide", "div.Tensor_mode"])
def test_quotients_are_rounded_down_as_python_does(name: str) -> None:
    """What is left over is taken off first: 1 // 0.1 is 9, though 1 / 0.1 rounds to 10."""
    a = np.array([1, -1, 0.3, 7, -7, 5], np.float32)
    b = np.array([0.1, 0.1, 0.1, 2, 2, np.inf], np.float32)
    mode = {"rounding_mode": "floor"} if name.startswith("div") else {}
    (found,) = call(f"aten::{name}", [a, b], [((6,), "f32")], **mode)
    assert found.tolist() == [x // y for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert found.tolist()[0] == 9


def test_quotients_of_16_bits_are_rounded_before_they_are_cut() -> None:
    """As on a GPU: 17.96875 is 18 in bf16."""
    a, b = np.float32([17.25]), np.float32([0.96])
    left, right = bf16(a), bf16(b)
    exact = from_bf16(left[0]) / from_bf16(right[0])
    assert exact < 18 == from_bf16(bf16(exact)[0])
    got = call("aten::div.Tensor_mode", [left, right], [((1,), "bf16")], rounding_mode="trunc")[0]
    assert from_bf16(got).tolist() == [18]


def test_a_mean_of_integers_is_rounded_down() -> None:
    x, index = np.array([-8, 5], np.int64), np.array([0, 0, 1], np.int64)
    source = np.array([-3, -4, 4], np.int64)
    reads, shape = [x, index, source], [((2,), "s64")]
    (found,) = call("aten::scatter_reduce.two", reads, shape, dim=0, reduce="mean")
    assert found.tolist() == [-5, 4]
    (found,) = call(
        "aten::scatter_reduce.two", [x, index, source * 0 - 1], shape, dim=0, reduce="mean"
    )
    assert found.tolist() == [-4, 2]


def test_softplus_is_straight_beyond_its_threshold() -> None:
    x = np.array([-2, 0, 3, 100], np.float32)
    (found,) = call("aten::softplus", [x], [((4,), "f32")])
    wanted = [math.log1p(math.exp(one)) if one < 20 else one for one in x.tolist()]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    (found,) = call("aten::softplus", [x], [((4,), "f32")], beta=2, threshold=1)
    assert found.tolist()[2:] == [3, 100]
    np.testing.assert_allclose(found[1], math.log(2) / 2, rtol=1e-6)


def test_roll_takes_a_shift_for_each_dimension_or_one_for_all() -> None:
    for shifts, dims in (((3,), (1,)), ((1, -2), (0, -1)), ((5,), None)):
        given = {} if dims is None else {"dims": dims}
        (found,) = call("aten::roll", [X], [((4, 6), "f32")], shifts=shifts, **given)
        assert np.array_equal(found, np.roll(X, shifts if dims else shifts[0], dims))
    with pytest.raises(TesseraError, match="TSR5001"):
        call("aten::roll", [X], [((4, 6), "f32")], shifts=(1, 2), dims=(0,))


def test_products_are_summed_in_float64_whatever_the_strides() -> None:
    a, b = bf16(RNG.standard_normal((9, 40))), bf16(RNG.standard_normal((40, 7)))
    wanted = from_bf16(a[0]).astype(np.float64) @ from_bf16(b[0]).astype(np.float64)
    got = call("aten::mm", [a, b], [((9, 7), "bf16")])[0]
    assert np.abs(from_bf16(got) - wanted).max() <= np.abs(wanted).max() * 2**-8
    single = call(
        "aten::addmm",
        [np.ones(7, np.float32), from_bf16(a[0]), from_bf16(b[0])],
        [((9, 7), "f32")],
        beta=0.5,
        alpha=2,
    )[0]
    np.testing.assert_allclose(single, 2 * wanted + 0.5, rtol=1e-6)


def test_beta_zero_ignores_nans() -> None:
    base = np.full((2, 2), np.nan, np.float32)
    eye = np.eye(2, dtype=np.float32)
    got = call("aten::addmm", [base, eye, eye], [((2, 2), "f32")], beta=0)[0]
    assert (got == eye).all()


def test_reductions_and_norms() -> None:
    wide = X.astype(np.float64)
    total = call("aten::sum.dim_IntList", [X], [((4,), "f32")], dim=(1,))[0]
    np.testing.assert_allclose(total, wide.sum(1), rtol=1e-6)
    assert call("aten::mean", [X], [((), "f32")])[0] == np.float32(wide.mean())
    assert (call("aten::amax", [X], [((1, 6), "f32")], dim=(0,), keepdim=True)[0] == X.max(0)).all()
    values, places = call("aten::max.dim", [X], [((4,), "f32"), ((4,), "s64")], dim=-1)
    assert (values == X.max(1)).all()
    assert (places == X.argmax(1)).all()
    soft = call("aten::_softmax", [X], [((4, 6), "f32")], dim=1, half_to_float=False)[0]
    powers = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(soft, powers / powers.sum(1, keepdims=True), rtol=1e-6)
    out, mean, rstd = call(
        "aten::native_layer_norm",
        [X, Y[0]],
        [((4, 6), "f32"), ((4, 1), "f32"), ((4, 1), "f32")],
        normalized_shape=(6,),
        bias=None,
        eps=1e-5,
    )
    center = wide - wide.mean(1, keepdims=True)
    scale = 1 / np.sqrt((center**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(out, center * scale * Y[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(mean, wide.mean(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(rstd, scale, rtol=1e-6)


def test_order_puts_nan_last_and_keeps_equal_elements_in_place() -> None:
    values = np.array([2.0, np.nan, 1.0, 2.0, -1.0], np.float32)
    shape = [((5,), "f32"), ((5,), "s64")]
    found, places = call("aten::sort.stable", [values], shape, stable=True)
    assert places.tolist() == [4, 2, 0, 3, 1]
    assert np.isnan(found[-1])
    assert call("aten::sort", [values], shape, descending=True)[1].tolist() == [1, 0, 3, 2, 4]
    top = call("aten::topk", [values], [((2,), "f32"), ((2,), "s64")], k=2)
    assert top[1].tolist() == [1, 0]


def test_convolution_with_groups_stride_and_padding() -> None:
    data = RNG.standard_normal((2, 4, 7, 5)).astype(np.float32)
    kernel = RNG.standard_normal((6, 2, 3, 2)).astype(np.float32)
    bias = RNG.standard_normal(6).astype(np.float32)
    got = call(
        "aten::convolution",
        [data, kernel, bias],
        [((2, 6, 4, 6), "f32")],
        stride=(2, 1),
        padding=(1, 1),
        dilation=(1, 1),
        transposed=False,
        output_padding=(0, 0),
        groups=2,
    )[0]
    padded = np.pad(data.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    for n, o, y, x in np.ndindex(got.shape):
        group = slice(2 * (o // 3), 2 * (o // 3) + 2)
        window = padded[n, group, 2 * y : 2 * y + 3, x : x + 2]
        assert got[n, o, y, x] == pytest.approx((window * kernel[o]).sum() + bias[o], abs=1e-5)


def test_attention_with_fewer_heads_of_keys_and_a_causal_mask() -> None:
    query = RNG.standard_normal((1, 4, 5, 8)).astype(np.float32)
    key = RNG.standard_normal((1, 2, 5, 8)).astype(np.float32)
    value = RNG.standard_normal((1, 2, 5, 8)).astype(np.float32)
    out, sums = call(
        "aten::_scaled_dot_product_flash_attention",
        [query, key, value],
        [((1, 4, 5, 8), "f32"), ((1, 4, 5), "f32")],
        dropout_p=0.0,
        is_causal=True,
    )
    wide_key, wide_value = (np.repeat(one, 2, axis=1).astype(np.float64) for one in (key, value))
    scores = query @ wide_key.swapaxes(-1, -2) / math.sqrt(8)
    scores = np.where(np.triu(np.ones((5, 5), bool), 1), -np.inf, scores)
    powers = np.exp(scores)
    np.testing.assert_allclose(
        out, powers / powers.sum(-1, keepdims=True) @ wide_value, rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(sums, np.log(powers.sum(-1)), rtol=1e-5, atol=1e-6)


def test_moves_keep_the_bits_of_nans() -> None:
    odd = np.array([0x7F800001, 0xFFC12345, 1], np.uint32).view(np.float32)
    got = call("aten::cat", [odd, odd], [((6,), "f32")], dim=0)[0]
    assert got.view(np.uint32).tolist() == [*odd.view(np.uint32).tolist()] * 2
    pairs = (np.arange(4) + 1j).astype(np.complex64)
    assert (call("aten::flip", [pairs], [((4,), "c64")], dims=(0,))[0] == pairs[::-1]).all()


def test_only_chosen_elements_are_logged() -> None:
    table_ = RNG.standard_normal((8, 4)).astype(np.float32)
    calls = Calls()
    got = calls.call("aten::embedding", [table_, np.array([5, 1, 5])], [((3, 4), "f32")])[0]
    assert (got == table_[[5, 1, 5]]).all()
    by_name = {access.buffer: access for access in calls.result.accesses}
    assert by_name["r0"].reads == ((16, 32), (80, 96))
    assert by_name["r1"].reads == ((0, 24),)
    assert by_name["w0"].writes == ((0, 48),)
    assert by_name["r0"].writes == ()


def test_in_place_index_put_touches_what_it_writes() -> None:
    cache = RNG.standard_normal((6, 2)).astype(np.float32)
    row = np.array([[9.0, 8.0]], np.float32)
    calls = Calls()
    got = calls.call(
        "aten::index_put_", [cache, np.array([-1]), row], [((6, 2), "f32")], in_place=True
    )[0]
    wanted = cache.copy()
    wanted[-1] = row
    assert (got == wanted).all()
    touched = {access.buffer: access for access in calls.result.accesses}
    assert touched["r0"].writes == ((40, 48),)
    assert touched["r0"].reads == ()
    more = Calls()
    added = more.call(
        "aten::index_put_",
        [cache, np.array([1, 1]), row],
        [((6, 2), "f32")],
        in_place=True,
        accumulate=True,
    )[0]
    np.testing.assert_allclose(added[1], cache[1] + 2 * row[0], rtol=1e-6)
    assert {a.buffer: a for a in more.result.accesses}["r0"].reads == ((8, 16),)


def test_indices_of_later_dimensions_say_which() -> None:
    cache = RNG.standard_normal((2, 3, 5, 4)).astype(np.float32)
    fresh = RNG.standard_normal((2, 3, 2, 4)).astype(np.float32)
    places = np.array([4, 1])
    got = call(
        "aten::index_put_",
        [cache, places, fresh],
        [((2, 3, 5, 4), "f32")],
        in_place=True,
        indices_at=(2,),
    )[0]
    wanted = cache.copy()
    wanted[:, :, places] = fresh
    assert (got == wanted).all()
    few = places % 2
    apart = call("aten::index.Tensor", [cache, few, few], [((2, 3, 5), "f32")], indices_at=(0, 3))
    assert (apart[0] == cache[few, :, :, few]).all()
    beside = call("aten::index.Tensor", [cache, few, few], [((2, 2, 4), "f32")], indices_at=(1, 2))
    assert (beside[0] == cache[:, few, few]).all()


def test_scatter_and_its_reductions() -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    index = np.array([[2, 0, 1, 2]])
    source = np.full((1, 4), 10.0, np.float32)
    wanted = base.copy()
    wanted[index[0], range(4)] = 10
    shape = [((3, 4), "f32")]
    assert (call("aten::scatter.src", [base, index, source], shape, dim=0)[0] == wanted).all()
    assert (call("aten::scatter.value", [base, index], shape, dim=0, value=10)[0] == wanted).all()
    added = base.copy()
    added[index[0], range(4)] += 10
    assert (call("aten::scatter_add", [base, index, source], shape, dim=0)[0] == added).all()
    mean = call(
        "aten::scatter_reduce.two",
        [base, index, source],
        shape,
        dim=0,
        reduce="mean",
        include_self=True,
    )[0]
    assert mean[2, 0] == (base[2, 0] + 10) / 2
    assert mean[0, 0] == base[0, 0]


@pytest.mark.parametrize("wrong", [8, -1])
def test_an_index_out_of_range_is_a_fault(wrong: int) -> None:
    rows = RNG.standard_normal((8, 4)).astype(np.float32)
    with pytest.raises(TesseraError, match="TSR5002") as fault:
        call("aten::embedding", [rows, np.array([0, wrong])], [((2, 4), "f32")])
    assert f"index {wrong} into a dimension of 8" in str(fault.value)
    assert fault.value.exit_code == 6


def test_types_without_code_are_refused_by_name() -> None:
    pairs = np.ones(4, np.complex64)
    with pytest.raises(TesseraError, match="TSR5001") as refused:
        call("aten::mul.Tensor", [pairs, pairs], [((4,), "c64")])
    assert "`c64`" in refused.value.diagnostics[0].notes[0]
