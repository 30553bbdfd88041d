"""The duration of a kernel by its tiling, before it is compiled.

In: the sizes of a product or of an attention, a tile, a GPU. Out: nanoseconds, by the model of
durations (`device_model`); infinite if the tile does not fit on the GPU. The kernels are those that
Triton usually generates: loads run ahead by as many steps as there are stages, and all warps meet
once in each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from tessera.ir.architecture import WARP, limits_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import Traffic, launch_ns
from tessera.planning.prices.library_calls import Attention, Product

_OWN_REGISTERS = 40  # in addition to accumulators: addresses, operands under way
_MOST_REGISTERS = 255
_STEP = 24.0  # instructions of a thread in a step, beside those for operands
_BEGIN = 80.0  # instructions of a thread before and after all steps
_COMBINE_NS = 3000.0  # a second kernel that combines parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Rows and columns of a block (of an attention: queries and keys), `inner` of k at once.

    `splits` is the number of parts into which the keys of an attention are cut; `packed`: all heads
    of a group are rows of one block.
    """

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int
    splits: int = 1
    packed: bool = False


def product_tile_ns(product: Product, tile: Tile, gpu: Gpu) -> float:
    """The time of a product in blocks of this size."""
    ctas = product.batch * ceil(product.m / tile.rows) * ceil(product.n / tile.columns)
    steps = ceil(product.k / tile.inner)
    loaded = (tile.rows + tile.columns) * tile.inner * product.width
    sums = tile.rows * tile.columns
    moved = (
        product.batch
        * product.width
        * (product.m * product.k + product.k * product.n + product.m * product.n)
    )
    return _tiled_ns(
        tile,
        gpu,
        ctas=ctas,
        steps=steps,
        loaded=loaded,
        kept=0,
        sums=sums,
        units=((product.unit, 2.0 * sums * tile.inner),),
        written=sums * product.width,
        moved=moved,
    )


def attention_tile_ns(attention: Attention, tile: Tile, gpu: Gpu) -> float:
    """The time of an attention in blocks of this size."""
    group = attention.heads // attention.kv_heads
    heads = attention.kv_heads if tile.packed else attention.heads
    rows = attention.queries * (group if tile.packed else 1)
    ctas = attention.batch * heads * ceil(rows / tile.rows) * tile.splits
    steps = ceil(attention.keys / tile.splits / tile.columns)
    if attention.causal and attention.queries == attention.keys:
        steps = (steps + 1) // 2
    scores = tile.rows * tile.columns
    moved = (
        attention.batch
        * attention.size
        * attention.width
        * 2
        * (attention.kv_heads * attention.keys + attention.heads * attention.queries)
    )
    whole = _tiled_ns(
        tile,
        gpu,
        ctas=ctas,
        steps=max(1, steps),
        loaded=2 * tile.columns * attention.size * attention.width,
        kept=tile.rows * attention.size * attention.width,
        sums=tile.rows * (attention.size + tile.columns),
        units=((attention.unit, 4.0 * scores * attention.size), ("special", float(scores))),
        written=tile.rows * attention.size * (4 if tile.splits > 1 else attention.width),
        moved=moved,
        more=4.0 * scores / (tile.warps * WARP),
    )
    return whole + (_COMBINE_NS if tile.splits > 1 else 0.0)


def _tiled_ns(
    tile: Tile,
    gpu: Gpu,
    *,
    ctas: int,
    steps: int,
    loaded: int,
    kept: int,
    sums: int,
    units: tuple[tuple[str, float], ...],
    written: int,
    moved: float,
    more: float = 0.0,
) -> float:
    """The time of CTAs with `steps` steps each; `loaded` bytes and `units` are per step."""
    threads = tile.warps * WARP
    shared = loaded * max(1, tile.stages) + kept
    registers = _OWN_REGISTERS + sums // threads
    if shared > limits_of(gpu.arch).cta_shared_bytes or registers > _MOST_REGISTERS:
        return inf
    each = _STEP + loaded / threads / 8 + more
    work = LaunchWork(
        ctas=ctas,
        threads=ctas * threads,
        instructions=ctas * threads * (_BEGIN + steps * each + 2.0 * written / threads),
        memory_instructions=0.0,
        asked_bytes=float(ctas * (steps * loaded + kept + written)),
        units=tuple((unit, ctas * steps * operations) for unit, operations in units),
        chain=_BEGIN + steps * each,
        chain_loads=2.0 + steps / max(1, tile.stages - 1),
        chain_barriers=float(steps),
        shared_bytes=shared,
        shared_traffic=float(2 * ctas * steps * loaded),
        registers=registers,
        sure=True,
    )
    return launch_ns(work, Traffic(cold=float(moved)), gpu, gpu.sms)
