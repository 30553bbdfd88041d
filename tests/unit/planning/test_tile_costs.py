"""Tiles by the model of durations: what fits, and which cut is the best."""

from __future__ import annotations

from math import inf

import pytest

from tessera.driver.trace.tile_choice import TileChoice
from tessera.frontend.capture.attention.choose import AttentionSize, candidates
from tessera.frontend.capture.experts import launch as experts
from tessera.frontend.capture.products import ProductCut
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.planning.prices.library_calls import Product
from tessera.planning.prices.tile_costs import Tile, product_tile_ns

A100, L40S = find_gpu("a100"), find_gpu("l40s")
LARGE = Tile(rows=128, columns=128, inner=64, warps=8, stages=4)
SMALL = Tile(rows=16, columns=32, inner=64, warps=2, stages=4)


def test_a_tile_that_does_not_fit_takes_for_ever() -> None:
    product = Product(m=4096, n=4096, k=4096)
    assert product_tile_ns(product, LARGE, A100) < inf
    assert product_tile_ns(product, LARGE, L40S) == inf  # 128 KiB of shared memory
    registers = Tile(rows=128, columns=256, inner=32, warps=4, stages=2)
    assert product_tile_ns(product, registers, A100) == inf


def test_large_products_want_large_tiles_and_small_ones_small() -> None:
    large, small = Product(m=8192, n=8192, k=4096), Product(m=16, n=4096, k=4096)
    assert product_tile_ns(large, LARGE, A100) < product_tile_ns(large, SMALL, A100)
    assert product_tile_ns(small, SMALL, A100) < product_tile_ns(small, LARGE, A100)


def test_a_tile_takes_no_less_than_memory_and_arithmetic() -> None:
    product = Product(m=8192, n=8192, k=8192)
    rate = A100.flops("bf16")
    assert rate is not None
    assert product_tile_ns(product, LARGE, A100) > 2e9 * 8192**3 / rate
    thin = Product(m=16, n=16384, k=16384)
    assert product_tile_ns(thin, SMALL, A100) > 1e9 * 2 * 16384**2 / A100.memory_bandwidth


def cut(rows: int, columns: int, stages: int = 4) -> ProductCut:
    return ProductCut(
        batch=1,
        m=4096,
        n=4096,
        k=4096,
        width=2,
        unit="bf16",
        rows=rows,
        columns=columns,
        inner=64,
        warps=8,
        stages=stages,
    )


def test_for_several_gpus_a_cut_fits_all() -> None:
    both, first = TileChoice((A100, L40S)), TileChoice((A100,))
    assert first.product_ns(cut(128, 128)) < first.product_ns(cut(32, 32))
    assert both.product_ns(cut(128, 128)) > both.product_ns(cut(32, 32))
    assert both.product_ns(cut(128, 64)) == pytest.approx(
        (first.product_ns(cut(128, 64)) * TileChoice((L40S,)).product_ns(cut(128, 64))) ** 0.5
    )
    assert 0 < both.library_ns(cut(1, 1)) < both.product_ns(cut(16, 16, stages=1))


def attention(batch: int, tokens: int) -> AttentionSize:
    return AttentionSize(
        batch=batch,
        heads=32,
        kv_heads=8,
        tokens=tokens,
        keys=8192,
        size=128,
        v_size=128,
        bytes=2,
        causal=True,
        window=0,
        plain=True,
        paged=False,
        sms=108,
        shared=166_912,
    )


def test_attention_of_few_sequences_is_split() -> None:
    priced = TileChoice((A100,))
    chosen = {}
    for batch in (1, 64):
        size = attention(batch, 1)
        cuts = list(candidates(size))
        chosen[batch] = priced.fastest(size, cuts)
        assert chosen[batch] in cuts
    assert chosen[1].splits > chosen[64].splits


def test_experts_have_a_choice_too() -> None:
    size = experts.ProductSize(
        rows=64, experts=8, inner=4096, columns=14336, bytes=2, turned=True, shared=166_912
    )
    cuts = list(experts.candidates(size))
    assert TileChoice((A100, L40S)).fastest(size, cuts) in cuts
