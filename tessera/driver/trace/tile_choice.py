"""Chooses tiles by the model of durations, for captures that measure nothing, or only a part.

In: the GPUs that are compiled for. Out: `TileChoice`, which prices products and attention by how
they are cut. With several GPUs, one cut serves all: the one with the best geometric mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, log
from typing import TypeVar

from tessera.frontend.capture.attention.choose import AttentionSize
from tessera.frontend.capture.attention.launch import Tiles
from tessera.frontend.capture.experts.launch import ProductSize, ProductTiles
from tessera.frontend.capture.products import ProductCut
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import Traffic
from tessera.planning.prices.library_calls import Attention, Product
from tessera.planning.prices.library_launches import call_ns
from tessera.planning.prices.tile_costs import Tile, attention_tile_ns, product_tile_ns

Cut = TypeVar("Cut")
_CANNOT_RUN_NS = 1e15  # a tile that a GPU has no room for


class TileChoice:
    """The prices of cuts on some GPUs."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = gpus

    def product_ns(self, cut: ProductCut) -> float:
        """The time of a product in given blocks, in ns."""
        tile = Tile(
            rows=cut.rows,
            columns=cut.columns,
            inner=cut.inner,
            warps=cut.warps,
            stages=cut.stages,
        )
        return self._mean(lambda gpu: product_tile_ns(_product(cut), tile, gpu))

    def library_ns(self, cut: ProductCut) -> float:
        """The time of a product in a library, in ns."""
        product = _product(cut)
        moved = cut.m * cut.k + cut.k * cut.n + cut.m * cut.n
        traffic = Traffic(cold=float(cut.batch * cut.width * moved))
        return self._mean(lambda gpu: call_ns(product, traffic, gpu, gpu.sms))

    def fastest(self, size: object, cuts: list[Cut]) -> Cut:
        """The fastest of several cuts of a call of one of our own kernels; the first of equals."""
        return min(cuts, key=lambda cut: self._cut_ns(size, cut))

    def _cut_ns(self, size: object, cut: object) -> float:
        match size, cut:
            case AttentionSize(), Tiles():
                return self._mean(lambda gpu: attention_tile_ns(*_attention(size, cut), gpu))
            case ProductSize(), ProductTiles():
                return self._mean(lambda gpu: product_tile_ns(*_experts(size, cut), gpu))
            case _:
                return inf

    def _mean(self, ns: Callable[[Gpu], float]) -> float:
        """The geometric mean over the GPUs."""
        times = [ns(gpu) for gpu in self._gpus]
        if inf in times:
            return _CANNOT_RUN_NS
        return float(2.0 ** (sum(log(time, 2) for time in times) / len(times)))


def tiles_here(sms: int) -> TileChoice | None:
    """The prices of cuts on `sms` SMs of the GPU of this machine; 0 means all.

    The prices are for the most similar GPU of the table: only the order of candidates matters.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    here = torch.cuda.get_device_properties(torch.cuda.current_device())
    arch = f"sm_{here.major}{here.minor}"
    alike = [gpu for gpu in gpu_table().values() if gpu.arch.rstrip("af") == arch]
    if not alike:
        return None
    nearest = min(alike, key=lambda gpu: abs(gpu.sms - here.multi_processor_count))
    return TileChoice((replace(nearest, sms=sms or int(here.multi_processor_count)),))


def _product(cut: ProductCut) -> Product:
    return Product(m=cut.m, n=cut.n, k=cut.k, batch=cut.batch, unit=cut.unit, width=cut.width)


def _attention(size: AttentionSize, cut: Tiles) -> tuple[Attention, Tile]:
    shape = Attention(
        batch=size.batch,
        heads=size.heads,
        kv_heads=size.kv_heads,
        queries=size.tokens,
        keys=size.walked,
        size=max(size.size, size.v_size),
        causal=size.causal,
        width=size.bytes,
    )
    tile = Tile(
        rows=cut.rows,
        columns=cut.keys,
        inner=size.size,
        warps=cut.warps,
        stages=cut.stages,
        splits=cut.splits,
        packed=cut.packed,
    )
    return shape, tile


def _experts(size: ProductSize, cut: ProductTiles) -> tuple[Product, Tile]:
    """The products of the experts that have rows, each with its share of the rows."""
    experts = min(size.experts, size.rows)
    shape = Product(
        m=-(-size.rows // experts),
        n=size.columns,
        k=size.inner,
        batch=experts,
        unit="bf16" if size.bytes == 2 else "fp32",
        width=size.bytes,
    )
    tile = Tile(
        rows=cut.rows, columns=cut.columns, inner=cut.inner, warps=cut.warps, stages=cut.stages
    )
    return shape, tile
