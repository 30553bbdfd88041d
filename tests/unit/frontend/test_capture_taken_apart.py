"""Operators taken apart give what PyTorch's own give."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture import taken_apart, transforms
from tessera.frontend.capture.operator_mode import without_fast_paths


def some(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def check(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4, equal_nan=True)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolutions(dims: int) -> None:
    data, weight, bias = some(2, 4, *(5, 6, 4)[:dims]), some(4, 3, *(3, 2, 4)[:dims]), some(6)
    for stride, padding, dilation, groups in product((1, 3), (0, 2), (1, 2), (1, 2)):
        more = [min(1, stride - 1)] * dims
        sizes = ([stride] * dims, [padding] * dims, [dilation] * dims)
        given = (data, weight, bias[: 3 * groups], *sizes, True, more, groups)
        check(taken_apart._transposed(*given), torch.ops.aten.convolution(*given))
    assert taken_apart._transposed(*given[:6], False, *given[7:]) is NotImplemented


@pytest.mark.parametrize(("number", "mode"), [(0, "sum"), (1, "mean"), (2, "max")])
@pytest.mark.parametrize("last", [False, True])
def test_bags_of_rows(number: int, mode: str, last: bool) -> None:
    table, ids = some(10, 4), torch.tensor([3, 1, 9, 3, 0, 7, 3, 2, 2])
    table[5] = float("nan")  # a row that nobody asks for
    offsets = torch.tensor([0, 2, 2, 6, *([8] if last else [])])
    ids = ids[:8] if last else ids
    weights = some(len(ids)) if mode == "sum" else None
    named = {"mode": mode, "include_last_offset": last, "per_sample_weights": weights}
    for padding in (None, 3):
        wanted = torch.nn.functional.embedding_bag(
            ids, table, offsets, padding_idx=padding, **named
        )
        given = (table, ids, offsets, False, number, False, weights, last)
        check(taken_apart._embedding_bag(*given, -1 if padding is None else padding)[0], wanted)


def test_the_best_so_far_is_the_last_of_equal_ones() -> None:
    whole = torch.tensor([[2, 1, 2, 3, 3], [0, 0, 5, 4, 5]])
    odd = torch.tensor([1.0, float("nan"), 2.0, 3.0])
    for data, dim in ((whole, 0), (whole, 1), (some(4, 17), -1), (odd, 0), (torch.tensor(2.0), 0)):
        for ours, theirs in (
            (taken_apart._cummax, torch.cummax),
            (taken_apart._cummin, torch.cummin),
        ):
            check(tuple(ours(data, dim)), tuple(theirs(data, dim)))


@pytest.mark.parametrize("size", [1, 5, 16])
def test_triangular_systems(size: int) -> None:
    matrix, right = some(2, size, size) / 4 + 2 * torch.eye(size), some(2, size, size)
    for upper, left, unit in product((False, True), repeat=3):
        named = {"upper": upper, "left": left, "unitriangular": unit}
        wanted = torch.linalg.solve_triangular(matrix, right, **named)
        check(taken_apart._solve_triangular(matrix, right, **named), wanted)


@pytest.mark.parametrize("dim", [[1], [2], [0, 2]])
def test_fourier_transforms(dim: list[int]) -> None:
    aten = torch.ops.aten
    real, number = some(3, 8, 9), torch.complex(some(3, 8, 9), some(3, 9, 8).reshape(3, 8, 9))
    for norm, is_one in product((0, 1, 2), (True, False)):
        check(transforms.fft_r2c(real, dim, norm, is_one), aten._fft_r2c(real, dim, norm, is_one))
        check(
            transforms.fft_c2c(number, dim, norm, is_one),
            aten._fft_c2c(number, dim, norm, is_one),
        )
        half = aten._fft_r2c(real, dim, norm, True)
        given = (half, dim, norm, real.shape[dim[-1]])
        check(transforms.fft_c2r(*given), aten._fft_c2r(*given))
    assert transforms.fft_r2c(torch.zeros(5000), [0], 0, True) is NotImplemented


def test_the_rest() -> None:
    for dim in (0, 1):
        check(taken_apart._logcumsumexp(some(4, 11), dim), some(4, 11).logcumsumexp(dim))
    aten, volume = torch.ops.aten, some(2, 3, 5, 6, 7)
    for sizes in ((1, 2, 2), (3, 6, 10)):
        wanted = aten._adaptive_avg_pool3d(volume, sizes)
        check(taken_apart._adaptive_avg_pool3d(volume, sizes), wanted)
    for p in (0.0, 1.0, 2.0, 3.0, float("inf")):
        check(
            taken_apart._distances(some(5, 4), some(6, 4), p, None),
            torch.cdist(some(5, 4), some(6, 4), p),
        )
    given = (some(5, 4), some(2, 4, 3), some(5, 3), [1, 3], [0], [1, 2], [2, 3])
    check(taken_apart._trilinear(*given), aten._trilinear(*given))
    added = {"beta": 0.5, "alpha": 2}
    parts = (some(3, 5), some(4, 3, 6), some(4, 6, 5))
    check(taken_apart._addbmm(*parts, **added), torch.addbmm(*parts, **added))


def test_cells() -> None:
    cell, gru, data = torch.nn.LSTMCell(6, 5), torch.nn.GRUCell(6, 5), some(3, 6)
    state, memory = some(3, 5), some(5, 3).reshape(3, 5)
    gates = (data @ cell.weight_ih.T, state @ cell.weight_hh.T, memory, cell.bias_ih, cell.bias_hh)
    check(taken_apart._lstm_cell(*gates)[:2], cell(data, (state, memory)))
    wanted = gru(data, state)
    with without_fast_paths():
        check(gru(data, state), wanted)


def test_the_compiler_gets_its_table_back() -> None:
    from torch._inductor import decomposition

    transposed = torch.ops.aten.convolution.default
    with taken_apart.taken_apart():
        assert transposed in decomposition.select_decomp_table()
    assert transposed not in decomposition.select_decomp_table()


@pytest.mark.parametrize("sizes", [(5,), (4, 3), (2, 3, 2)])
def test_a_convolution_of_single_elements_is_a_product_in_any_dimension(
    sizes: tuple[int, ...],
) -> None:
    """torch.compile takes its own for sound, too, where it fails."""
    from torch._inductor.select_algorithm import extern_kernels

    data, weight = torch.randn(2, 6, *sizes), torch.randn(4, 6, *(1 for _ in sizes))
    wanted = torch.ops.aten.convolution(
        data, weight, None, [1] * len(sizes), [0] * len(sizes), [1] * len(sizes), False, [0], 1
    )
    made = torch.empty_like(wanted)
    with taken_apart.taken_apart():
        extern_kernels.conv1x1_via_mm(data, weight, out=made)
    assert torch.allclose(made, wanted, atol=1e-5)
