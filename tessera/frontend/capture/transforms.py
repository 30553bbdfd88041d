"""Fourier transforms as products with matrices, for `taken_apart`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from types import NotImplementedType as Stays

# Elements of a transform up to which it is a product with a matrix.
_LONGEST = 4096


def _waves(size: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines by time and frequency."""
    number = torch.arange(size, device=like.device)
    angles = (number[:, None] * number % size).to(like.dtype) * (2 * math.pi / size)
    return angles.cos(), angles.sin()


def _scale(sizes: Sequence[int], normalization: int) -> float:
    power = {0: 0.0, 1: -0.5, 2: -1.0}[normalization]
    return math.pow(math.prod(sizes), power)


def _turned(
    real: torch.Tensor, imaginary: torch.Tensor | None, dim: int, sign: Literal[-1, 1]
) -> tuple[torch.Tensor, torch.Tensor]:
    """One dimension transformed: times `exp(sign * i * angle)`, added up."""
    cosines, sines = _waves(real.shape[dim], real)
    real = real.movedim(dim, -1)
    first, second = real @ cosines, sign * (real @ sines)
    if imaginary is not None:
        imaginary = imaginary.movedim(dim, -1)
        first, second = first - sign * (imaginary @ sines), second + imaginary @ cosines
    return first.movedim(-1, dim), second.movedim(-1, dim)


def fft_r2c(
    data: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool
) -> torch.Tensor | Stays:
    """The transform of real numbers: one half of the frequencies, or all."""
    sizes = [data.shape[place] for place in dim]
    if max(sizes) > _LONGEST:
        return NotImplemented
    real, imaginary = _turned(data, None, dim[-1], -1)
    if onesided:
        half = sizes[-1] // 2 + 1
        real, imaginary = (part.narrow(dim[-1], 0, half) for part in (real, imaginary))
    for place in dim[:-1]:
        real, imaginary = _turned(real, imaginary, place, -1)
    scale = _scale(sizes, normalization)
    return torch.complex(real * scale, imaginary * scale)


def fft_c2c(
    data: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool
) -> torch.Tensor | Stays:
    """The transform of complex numbers, forward or back."""
    sizes = [data.shape[place] for place in dim]
    if max(sizes) > _LONGEST:
        return NotImplemented
    real, imaginary = torch.view_as_real(data).unbind(-1)
    for place in dim:
        real, imaginary = _turned(real, imaginary, place, -1 if forward else 1)
    scale = _scale(sizes, normalization)
    return torch.complex(real * scale, imaginary * scale)


def fft_c2r(
    data: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int
) -> torch.Tensor | Stays:
    """Back to real numbers, from one half of the frequencies."""
    sizes = [*(data.shape[place] for place in dim[:-1]), last_dim_size]
    if max(sizes) > _LONGEST:
        return NotImplemented
    real, imaginary = torch.view_as_real(data).unbind(-1)
    for place in dim[:-1]:
        real, imaginary = _turned(real, imaginary, place, 1)
    half = last_dim_size // 2 + 1
    real, imaginary = (part.movedim(dim[-1], -1)[..., :half] for part in (real, imaginary))
    cosines, sines = (wave[:half] for wave in _waves(last_dim_size, real))
    # Frequencies between the first and the middle one stand for two.
    number = torch.arange(half, device=data.device)
    twice = torch.where((number > 0) & (2 * number < last_dim_size), 2.0, 1.0).to(real.dtype)
    result = ((real * twice) @ cosines - (imaginary * twice) @ sines).movedim(-1, dim[-1])
    return result * _scale(sizes, normalization)
