"""The receiver of launches and choices that would go to a GPU, where there is none.

In: launches as Triton asks for them, choices between kernels as Inductor has them. Out: records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from tessera.frontend.capture.products import Inner, ProductPrices


@dataclass(frozen=True, slots=True, kw_only=True)
class TritonLaunch:
    """A launch as Triton asks for it: the kernel's parameters by name with the types that Triton
    gives them (`constexpr` ones are no parameters), and what its compiler says of it."""

    function: int
    grid: tuple[int, int, int]
    parameters: Mapping[str, str]
    arguments: Mapping[str, object]
    metadata: Inner


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """The receiver of what would run on a GPU: launches, and choices between kernels.

    `address_of` says where a tensor without memory would be.
    """

    on_launch: Callable[[TritonLaunch], None]
    prices: ProductPrices
    address_of: Callable[[torch.Tensor], int]
