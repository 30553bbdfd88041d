"""Library calls as launches: the kernels that a library would choose from, with their work.

In: what a call computes, with its sizes. Out: `LaunchWork` records, of which the fastest is assumed
to run. The code of a library is not visible, so these are kernels as they are usually written:
products in tiles, cut along their depth where there are few; attention by tiles of queries, or cut
along the keys; rows that a few warps read twice; scans along a row, part by part. `Habits` are
fitted to PyTorch on an H200.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, gcd

from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import FITTED, Constants, Traffic, launch_ns

_SIDES = (96, 144, 160, 176, 192, 256)
_TILES = (
    *((side, 128) for side in _SIDES),
    *((128, side) for side in _SIDES),
    *((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (16, 64)),
)
_PLAIN_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (32, 64), (32, 32))
_OLDER_TILES = ((128, 128), (128, 64), (64, 128), (64, 64), (32, 32))
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
_QUERIES, _KEYS = 128, 128
_FEW_QUERIES = 64
_KEY_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_FEW_ROWS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Products of `m` by `k` with `k` by `n` elements of `width` bytes.

    Rows begin at multiples of `step` elements; 0: they are contiguous.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    step: int = 0
    unit: str = "bf16"
    width: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Queries of `heads` heads over the keys of `kv_heads`, all of `size` elements."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    size: int
    causal: bool
    unit: str = "bf16"
    width: int = 2


class RowKind(enum.Enum):
    """The operation on rows."""

    NORM = "norm"
    SOFTMAX = "softmax"
    SCAN = "scan"
    GATHER = "gather"


@dataclass(frozen=True, slots=True)
class RowCall:
    """`rows` rows of `elements` elements of `width` bytes each."""

    kind: RowKind
    rows: int
    elements: int
    width: int


@dataclass(frozen=True, slots=True)
class Plain:
    """An elementwise operation."""

    elements: float
    operations: float
    bytes: float


CallShape = Product | Attention | RowCall | Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The fitted constants of library kernels."""

    attention_instructions: float = 3.78  # per score
    second_loads: float = 36.1  # if a second kernel combines the results of the first
    norm_loads: float = 3.78  # of a thread, one after the other, per 512 elements of a row
    norm_barriers: float = 3.15  # likewise
    softmax_instructions: float = 90.4  # per element
    scan_instructions: float = 46.2  # of a thread, at each level of a tree
    scan_barriers: float = 0.819  # likewise
    gather_loads: float = 3.97  # of a row
    plain_instructions: float = 2.95  # per operation


USUAL = Habits()


@lru_cache(maxsize=1 << 14)
def call_ns(
    shape: CallShape,
    traffic: Traffic,
    gpu: Gpu,
    sms: int,
    constants: Constants = FITTED,
    habits: Habits = USUAL,
) -> float:
    """The time of a library call on `sms` SMs of a GPU."""
    found = launches(shape, habits)
    return min(launch_ns(work, traffic, gpu, sms, constants) for work in found)


def launches(shape: CallShape, habits: Habits = USUAL) -> Iterator[LaunchWork]:
    """The kernels from which a library chooses one for this shape."""
    match shape:
        case Product():
            yield from _products(shape)
        case Attention():
            yield from _attentions(shape, habits)
        case RowCall(kind=RowKind.NORM):
            steps = max(1.0, shape.elements / 512)
            waits = habits.norm_loads * steps, habits.norm_barriers * steps
            yield _by_rows(shape, 128, 20.0, waits)
        case RowCall(kind=RowKind.SOFTMAX):
            threads = min(1024, max(32, ceil(shape.elements / 256) * 32))
            yield _by_rows(shape, threads, habits.softmax_instructions, (1.0, 0.0))
        case RowCall(kind=RowKind.SCAN):
            yield _scan(shape, habits)
        case RowCall(kind=RowKind.GATHER):
            yield _gather(shape, habits)
        case Plain():
            ctas = max(1, ceil(shape.elements / 1024))
            each = 30.0 + habits.plain_instructions * shape.operations / (ctas * 128)
            units = (("fp32", shape.operations),)
            yield _launch(ctas, 128, each, shape.bytes, units=units)


def _launch(
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


def _products(shape: Product) -> Iterator[LaunchWork]:
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
        threads = 256 if high * wide >= 128 * 128 else 128
        steps = ceil(-(-shape.k // parts) / _DEPTH)
        loaded = float((high + wide) * steps * _DEPTH * shape.width)
        first = _FIRST_LOADS * min(1.0, _AT_ONCE / ctas)  # CTAs stay, and load ahead
        yield _launch(
            ctas,
            threads,
            60.0 + 24.0 * steps + 2.0 * high * wide / threads,
            ctas * (_OWN_LOADS * loaded + _left(shape, high, wide, parts)),
            units=((shape.unit, 2.0 * ctas * high * wide * steps * _DEPTH),),
            waits=(2.0 + first + (0.0 if parts == 1 else _JOINING_LOADS), 0.0),
            shared=((high + wide) * _DEPTH * shape.width * _STAGES, ctas * loaded),
            registers=min(255, 48 + high * wide // threads),
        )


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
        yield _launch(
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
        yield _launch(
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


def _attentions(shape: Attention, habits: Habits) -> Iterator[LaunchWork]:
    """Tiles of queries over all keys they see; or one tile for each part of the keys."""
    few = shape.queries * (shape.heads // shape.kv_heads) <= _FEW_QUERIES
    rows = _FEW_QUERIES if few else _QUERIES
    tiles = shape.kv_heads if few else shape.heads * ceil(shape.queries / rows)
    for parts in _KEY_SPLITS if few else (1,):
        if parts > 1 and shape.keys // parts < _KEYS:
            break
        most = ceil(shape.keys / parts / _KEYS)
        halves = shape.causal and shape.queries == shape.keys
        mean = (most + 1) / 2 if halves else float(most)
        ctas, threads = shape.batch * tiles * parts, 128 if few else 256
        scores = float(rows * _KEYS)
        kept = rows * shape.size * shape.width
        loaded = 2.0 * _KEYS * shape.size * shape.width
        each = habits.attention_instructions * scores / threads
        yield _launch(
            ctas,
            threads,
            100.0 + mean * each,
            ctas * (mean * loaded + 2.0 * kept),
            units=(
                (shape.unit, ctas * mean * 4.0 * scores * shape.size),
                ("special", ctas * mean * scores),
            ),
            most=100.0 + most * each,
            waits=(3.0 + (habits.second_loads if few else 0.0), 0.0),
            shared=(int(2 * loaded + kept), ctas * mean * loaded),
            registers=168,
        )


def _by_rows(
    shape: RowCall, threads: int, instructions: float, waits: tuple[float, float]
) -> LaunchWork:
    """A CTA for each row; `instructions` for each element."""
    elements = float(shape.rows * shape.elements)
    return _launch(
        shape.rows,
        threads,
        instructions * shape.elements / threads + 60.0,
        3.0 * elements * shape.width,
        units=(("fp32", 10.0 * elements),),
        waits=waits,
    )


def _scan(shape: RowCall, habits: Habits) -> LaunchWork:
    """Running sums: trees over parts of a row, one part after the other.

    PyTorch divides 512 threads among more rows the more rows there are relative to their elements.
    """
    more = (shape.elements - 1).bit_length() - (shape.rows - 1).bit_length()
    across = min(max(4, (9 + more) // 2), 9)
    ctas = ceil(shape.rows / (512 >> across))
    steps = ceil(shape.elements / (2 << across))
    levels = float(steps * (across + 1))
    elements = float(shape.rows * shape.elements)
    return _launch(
        ctas,
        512,
        60.0 + levels * habits.scan_instructions,
        2.0 * elements * shape.width,
        units=(("fp32", 2.0 * elements),),
        waits=(float(steps), 2.0 * levels * habits.scan_barriers),
    )


def _gather(shape: RowCall, habits: Habits) -> LaunchWork:
    """Rows of a table: PyTorch takes a few of them one after the other."""
    few = shape.rows <= _FEW_ROWS
    ctas = ceil(shape.elements / 128) if few else ceil(shape.rows * shape.elements / 1024)
    loads = habits.gather_loads * (shape.rows if few else 1)
    moved = 2.0 * shape.rows * shape.elements * shape.width
    return _launch(max(1, ctas), 128, 30.0, moved, waits=(loads, 0.0))
