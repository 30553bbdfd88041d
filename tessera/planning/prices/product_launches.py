"""Products as launches: the tiles that a library may cut them into.

In: a `Product`, or the `Grouped` products of experts. Out: `LaunchWork` records. Few tiles are cut
along their depth; a tile of experts has rows of one expert, so that its last tile is partly empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, gcd

from tessera.ir.plan.costs import LaunchWork
from tessera.planning.prices.expert_routing import expected_tiles
from tessera.planning.prices.library_calls import Grouped, Product

_SIDES = (96, 144, 160, 176, 192, 256)
_TILES = (
    *((side, 128) for side in _SIDES),
    *((128, side) for side in _SIDES),
    *((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (16, 64)),
)
_PLAIN_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (32, 32))
_OLDER_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (32, 32))
_EXPERT_TILES = (
    (16, 32),
    (16, 64),
    (16, 128),
    (32, 64),
    (64, 64),
    (64, 128),
    (128, 128),
    (128, 256),
)
_PLAIN_DEPTH = 8
_PLAIN_INSTRUCTIONS = 1.25  # per addition, including the loads of its operands
_ALIGNED = 16  # bytes; the hardware copies tiles whose rows have this alignment
_NARROW = 4  # bytes of an access that costs as much as a wide one
_FIRST_LOADS = 16.0  # until the first copy of a tile has come; the smallest products take 2.5 us
_AT_ONCE = 128
_DEPTH = 64
_SPLITS = (1, 2, 4, 8, 16)
_MOST_SPLIT = 1024  # CTAs
_STAGES = 4
_OWN_LOADS = 0.8  # fraction of a tile's loads; neighbours share the rest
_JOINING_LOADS = 22.0  # a second kernel adds the parts up


def launch_work(
    ctas: int,
    threads: int,
    instructions: float,
    asked: float,
    *,
    units: tuple[tuple[str, float], ...] = (),
    most: float = 0.0,
    narrow: float = 0.0,
    waits: tuple[float, float] = (1.0, 0.0),
    stops: float = 0.0,
    shared: tuple[int, float] = (0, 0.0),
    registers: int = 0,
) -> LaunchWork:
    """Work of CTAs whose threads run a number of instructions, `most` in the longest of them.

    `waits` are loads and barriers, `stops` waits for copies, one after the other.
    """
    return LaunchWork(
        ctas=ctas,
        threads=ctas * threads,
        instructions=ctas * threads * instructions,
        memory_instructions=narrow,
        asked_bytes=asked,
        units=units,
        chain=most or instructions,
        chain_loads=waits[0],
        chain_barriers=waits[1],
        chain_waits=stops,
        shared_bytes=shared[0],
        shared_traffic=shared[1],
        registers=registers,
        sure=True,
    )


def products(shape: Product) -> Iterator[LaunchWork]:
    """Tiles of several sizes; few of them are cut along the depth. Warps that load run ahead."""
    if shape.unit in ("fp32", "fp64"):
        yield from _plain_products(shape)
        return
    step = shape.step or gcd(shape.n, shape.k)
    together = gcd(step, max(1, _ALIGNED // shape.width))
    if together * shape.width < _ALIGNED and 1 not in (shape.m, shape.n):
        yield from _unaligned_products(shape, together)
        return
    for high, wide, parts, ctas in _cut(shape, _TILES):
        yield _tiles(shape, high, wide, parts, ctas)


def _tiles(
    shape: Product, high: int, wide: int, parts: int, ctas: int, rate: float = 1.0
) -> LaunchWork:
    """Tiles by matrix units, which reach this part of their rate."""
    threads = 256 if high * wide >= 128 * 128 else 128
    steps = ceil(-(-shape.k // parts) / _DEPTH)
    loaded = float((high + wide) * steps * _DEPTH * shape.width)
    first = _FIRST_LOADS * min(1.0, _AT_ONCE / ctas)  # CTAs stay, and load ahead
    return launch_work(
        ctas,
        threads,
        60.0 + 24.0 * steps + 2.0 * high * wide / threads,
        ctas * (_OWN_LOADS * loaded + _left(shape, high, wide, parts)),
        units=((shape.unit, 2.0 * ctas * high * wide * steps * _DEPTH / rate),),
        waits=(2.0 + first + (0.0 if parts == 1 else _JOINING_LOADS), 0.0),
        shared=((high + wide) * _DEPTH * shape.width * _STAGES, ctas * loaded),
        registers=min(255, 48 + high * wide // threads),
    )


def grouped(shape: Grouped, rate: float) -> Iterator[LaunchWork]:
    """Tiles of rows of one expert: the last of each expert is partly empty."""
    product = Product(m=shape.rows, n=shape.n, k=shape.k, unit=shape.unit, width=shape.width)
    for high, wide in _EXPERT_TILES:
        if wide < 2 * max(shape.n, 32):
            tiles = expected_tiles(shape.tokens, shape.chosen, shape.experts, shape.routing, high)
            ctas = max(1, ceil(tiles)) * ceil(shape.n / wide)
            yield _tiles(product, high, wide, 1, ctas, rate)


def _cut(shape: Product, tiles: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int, int, int]]:
    """Ways to do a product: the sides of its tiles, parts of the depth, and CTAs in all."""
    for high, wide in tiles:
        if (high > 64 and high >= 2 * shape.m) or wide >= 2 * max(shape.n, 32):
            continue
        count = shape.batch * ceil(shape.m / high) * ceil(shape.n / wide)
        for parts in _SPLITS:
            depth = -(-shape.k // parts)
            if parts > 1 and (depth < 2 * _DEPTH or count * parts > _MOST_SPLIT):
                break
            yield high, wide, parts, count * parts


def _left(shape: Product, high: int, wide: int, parts: int) -> int:
    """Bytes that a tile writes; parts are written and read again in FP32."""
    return high * wide * (shape.width if parts == 1 else 12)


def _plain_products(shape: Product) -> Iterator[LaunchWork]:
    """Products without tensor cores: 64 result elements per thread, through shared memory."""
    for high, wide, parts, ctas in _cut(shape, _PLAIN_TILES):
        threads = max(32, high * wide // 64)
        steps = ceil(-(-shape.k // parts) / _PLAIN_DEPTH)
        loaded = float((high + wide) * steps * _PLAIN_DEPTH * shape.width)
        sums = high * wide * steps * _PLAIN_DEPTH
        yield launch_work(
            ctas,
            threads,
            60.0 + (_PLAIN_INSTRUCTIONS * sums + 2.0 * high * wide) / threads,
            ctas * (loaded + _left(shape, high, wide, parts)),
            units=((shape.unit, 2.0 * ctas * sums),),
            waits=(2.0 if parts == 1 else 2.0 + _JOINING_LOADS, float(steps)),
            stops=float(steps),
            shared=((high + wide) * _PLAIN_DEPTH * shape.width * _STAGES, ctas * loaded),
            registers=128,
        )


def _unaligned_products(shape: Product, together: int) -> Iterator[LaunchWork]:
    """Rows that do not begin at 16 bytes: older kernels, at half the rate of the matrix units.

    `together` elements at a time go through a register to shared memory.
    """
    for high, wide, parts, ctas in _cut(shape, _OLDER_TILES):
        steps = ceil(-(-shape.k // parts) / _DEPTH)
        elements = (high + wide) * steps * _DEPTH
        narrow = together * shape.width <= _NARROW
        moved = ctas * (2.0 * elements + high * wide) / together
        yield launch_work(
            ctas,
            128,
            60.0 + (4.0 * elements / together + 2.0 * high * wide) / 128,
            ctas * float(elements * shape.width + _left(shape, high, wide, parts)),
            units=((shape.unit, 4.0 * ctas * high * wide * steps * _DEPTH),),
            waits=(2.0 if parts == 1 else 2.0 + _JOINING_LOADS, float(steps)),
            stops=float(steps),
            narrow=moved if narrow else 0.0,
            shared=(2 * (high + wide) * 32 * shape.width, ctas * float(elements * shape.width)),
            registers=min(255, 48 + high * wide // 128),
        )
