"""Operators that torch.compile has no kernels for and a trace cannot hold, as others that do.

In: calls of ATen's operators while torch.compile decomposes a graph. Out: the same with products,
sums and selections. `NotImplemented`: this call stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

import torch

from tessera.frontend.capture.transforms import fft_c2c, fft_c2r, fft_r2c

if TYPE_CHECKING:
    from types import NotImplementedType as Stays


@contextmanager
def taken_apart() -> Iterator[None]:
    """Make torch.compile decompose these operators."""
    from torch._inductor import decomposition
    from torch._inductor.select_algorithm import extern_kernels

    aten = torch.ops.aten
    parts: dict[object, Callable[..., object]] = {
        aten.convolution.default: _transposed,
        aten._embedding_bag.default: _embedding_bag,
        aten._embedding_bag_forward_only.default: _embedding_bag,
        aten._adaptive_avg_pool3d.default: _adaptive_avg_pool3d,
        aten.cummax.default: _cummax,
        aten.cummin.default: _cummin,
        aten.logcumsumexp.default: _logcumsumexp,
        aten._thnn_fused_lstm_cell.default: _lstm_cell,
        aten._cdist_forward.default: _distances,
        aten._trilinear.default: _trilinear,
        aten.addbmm.default: _addbmm,
        aten.linalg_solve_triangular.default: _solve_triangular,
        aten._fft_r2c.default: fft_r2c,
        aten._fft_c2c.default: fft_c2c,
        aten._fft_c2r.default: fft_c2r,
    }
    # PyTorch keeps a copy of the table with its own ways to draw random numbers.
    forget = getattr(decomposition.fast_random_decomps, "cache_clear", lambda: None)
    with (
        mock.patch.dict(decomposition.decompositions, parts),
        mock.patch.object(extern_kernels, "conv1x1_via_mm", _pointwise, create=True),
    ):
        forget()
        try:
            yield
        finally:
            forget()


def _transposed(
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor | Stays:
    """A transposed convolution: a plain one of what has zeros between its elements."""
    if not transposed:
        return NotImplemented
    dims = weight.dim() - 2

    def each(values: Sequence[int]) -> list[int]:
        return list(values) * dims if len(values) == 1 else list(values)

    strides, cut, spread = each(stride), each(padding), each(dilation)
    more = each(output_padding)
    kernel = list(weight.shape[2:])
    margins: list[int] = []
    for n in reversed(range(dims)):
        before = spread[n] * (kernel[n] - 1) - cut[n]
        margins += [before, before + more[n]]
        if strides[n] > 1:
            size = data.shape[2 + n]
            apart = torch.nn.functional.pad(
                data.movedim(2 + n, -1).unsqueeze(-1), (0, strides[n] - 1)
            )
            apart = apart.flatten(-2).narrow(-1, 0, (size - 1) * strides[n] + 1)
            data = apart.movedim(-1, 2 + n)
    ins, outs = weight.shape[:2]
    turned = weight.reshape(groups, ins // groups, outs, *kernel).transpose(1, 2)
    turned = turned.reshape(groups * outs, ins // groups, *kernel).flip(*range(2, dims + 2))
    padded = torch.nn.functional.pad(data, margins)
    ones, zeros = [1] * dims, [0] * dims
    result: torch.Tensor = torch.ops.aten.convolution(
        padded.contiguous(), turned.contiguous(), bias, ones, zeros, spread, False, zeros, groups
    )
    return result


def _pointwise(data: torch.Tensor, weight: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    """A convolution with a kernel of one element, in any number of dimensions: a product.

    torch.compile's own is for pictures, and taken for sound, too.
    """
    turned = weight.flatten(1).transpose(0, 1)
    return torch.matmul(data.movedim(1, -1), turned, out=out.movedim(1, -1))


def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, ...]:
    """Sums, means or maxima of rows by bags, bag by bag over all rows."""
    count, bags = indices.numel(), offsets.numel() - include_last_offset
    place = torch.arange(count, device=indices.device)
    starts = offsets[:bags]
    last = offsets[bags:] if include_last_offset else offsets.new_full((1,), count)
    ends = torch.cat([offsets[1:bags], last])
    inside = (place >= starts[:, None]) & (place < ends[:, None])
    bag = inside.to(torch.int32).argmax(0).to(indices.dtype)
    if padding_idx >= 0:
        inside = inside & (indices != padding_idx)
    rows = weight[indices].float() if weight.dtype.itemsize < 4 else weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    sizes = inside.sum(1)
    filled = torch.where(inside[..., None], rows, float("-inf") if mode == 2 else 0.0)
    result = filled.amax(1) if mode == 2 else filled.sum(1)
    if mode == 1:
        result = result / sizes.clamp_min(1)[:, None]
    if mode == 2:
        result = torch.where(sizes[:, None] > 0, result, 0.0)
    return result.to(weight.dtype), bag, sizes.to(indices.dtype), sizes.to(indices.dtype)


def _adaptive_avg_pool3d(data: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """Means over windows, one dimension after the other."""
    result = data.float() if data.dtype.itemsize < 4 else data
    for dim, wanted in zip((-3, -2, -1), output_size, strict=True):
        size = data.shape[dim]
        number = torch.arange(wanted, device=data.device)
        place = torch.arange(size, device=data.device)
        starts, ends = number * size // wanted, ((number + 1) * size + wanted - 1) // wanted
        inside = (place >= starts[:, None]) & (place < ends[:, None])
        picked = torch.where(inside, result.movedim(dim, -1).unsqueeze(-2), 0.0)
        result = (picked.sum(-1) / (ends - starts)).movedim(-1, dim)
    return result.to(data.dtype)


def _cummax(data: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _running(data, dim, lambda old, new: new >= old)


def _cummin(data: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    return _running(data, dim, lambda old, new: new <= old)


def _running(
    data: torch.Tensor,
    dim: int,
    is_better: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """The best so far and where it is, over distances that double; the last of equal ones."""
    if data.dim() == 0:
        return data.clone(), torch.zeros_like(data, dtype=torch.int64)
    values, size, distance = data.movedim(dim, -1), data.shape[dim], 1
    places = torch.arange(size, device=data.device).expand(values.shape)
    while distance < size:
        old, new = values[..., :-distance], values[..., distance:]
        taken = (
            is_better(old, new) | new.isnan() if new.is_floating_point() else is_better(old, new)
        )
        best = torch.where(taken, new, old)
        where = torch.where(taken, places[..., distance:], places[..., :-distance])
        values = torch.cat([values[..., :distance], best], -1)
        places = torch.cat([places[..., :distance], where], -1)
        distance *= 2
    return values.movedim(-1, dim).clone(), places.movedim(-1, dim).clone()


def _logcumsumexp(data: torch.Tensor, dim: int) -> torch.Tensor:
    """Sums over distances that double."""
    if data.dim() == 0:
        return data.clone()
    sums, distance = data.movedim(dim, -1), 1
    while distance < data.shape[dim]:
        more = torch.logaddexp(sums[..., :-distance], sums[..., distance:])
        sums = torch.cat([sums[..., :distance], more], -1)
        distance *= 2
    return sums.movedim(-1, dim).clone()


def _lstm_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    cell: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gates = input_gates + hidden_gates
    for bias in (input_bias, hidden_bias):
        gates = gates if bias is None else gates + bias
    taken, kept, new, shown = gates.chunk(4, -1)
    cell = torch.sigmoid(kept) * cell + torch.sigmoid(taken) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(cell), cell, gates


def gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hidden: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The cell of a GRU, as PyTorch documents it; what it keeps for gradients is left out."""
    ours = input_gates if input_bias is None else input_gates + input_bias
    theirs = hidden_gates if hidden_bias is None else hidden_gates + hidden_bias
    reset, update, new = ours.chunk(3, -1)
    old_reset, old_update, old_new = theirs.chunk(3, -1)
    new = torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new)
    return new + torch.sigmoid(update + old_update) * (hidden - new), ours


# Where operators are recorded as they are: PyTorch cannot say what shapes the first one gives.
CELLS: dict[str, Callable[..., object]] = {
    "aten::_thnn_fused_gru_cell": gru_cell,
    "aten::_thnn_fused_lstm_cell": _lstm_cell,
}


def _distances(
    one: torch.Tensor, other: torch.Tensor, p: float, compute_mode: int | None
) -> torch.Tensor:
    apart = (one.unsqueeze(-2) - other.unsqueeze(-3)).abs()
    if p == 0:
        return (apart != 0).to(one.dtype).sum(-1)
    if math.isinf(p):
        return apart.amax(-1)
    if p == 1:
        return apart.sum(-1)
    return (apart * apart).sum(-1).sqrt() if p == 2 else apart.pow(p).sum(-1).pow(1 / p)


def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    def wide(tensor: torch.Tensor, places: Sequence[int]) -> torch.Tensor:
        for place in sorted(places):
            tensor = tensor.unsqueeze(place)
        return tensor.float() if tensor.dtype.itemsize < 4 else tensor

    product = wide(first, expand1) * wide(second, expand2) * wide(third, expand3)
    return product.sum(list(sumdim)).to(first.dtype)


def _addbmm(
    data: torch.Tensor,
    batch1: torch.Tensor,
    batch2: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    summed = batch1.transpose(0, 1).flatten(1) @ batch2.flatten(0, 1)
    return (alpha * summed if beta == 0 else beta * data + alpha * summed).to(data.dtype)


def _solve_triangular(
    matrix: torch.Tensor,
    right: torch.Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> torch.Tensor:
    """A product with the inverse, which is made of inverses of blocks that double in size."""
    size = matrix.shape[-1]
    lower = matrix.flip(-2, -1) if upper else matrix
    whole = 1 << max(size - 1, 0).bit_length()
    places = torch.arange(whole, device=matrix.device)
    lower = torch.nn.functional.pad(lower.tril(), (0, whole - size, 0, whole - size))
    ones = places >= (0 if unitriangular else size)
    lower = torch.where((places[:, None] == places) & ones, 1.0, lower)
    inverse = (1 / lower.diagonal(0, -2, -1))[..., None, None]
    half = 1
    while half < whole:
        blocks = lower.unflatten(-1, (-1, 2 * half)).unflatten(-3, (-1, 2 * half))
        corner = blocks.diagonal(0, -4, -2).movedim(-1, -3)[..., half:, :half]
        first, second = inverse[..., ::2, :, :], inverse[..., 1::2, :, :]
        mixed = -(second @ corner @ first)
        above = torch.cat([first, torch.zeros_like(first)], -1)
        inverse = torch.cat([above, torch.cat([mixed, second], -1)], -2)
        half *= 2
    inverse = inverse[..., 0, :size, :size]
    inverse = inverse.flip(-2, -1) if upper else inverse
    return inverse @ right if left else right @ inverse


# --- Fourier transforms: products with matrices of cosines and sines ------------------------------
