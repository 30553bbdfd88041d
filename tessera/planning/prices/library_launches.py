"""Library calls as launches: the kernels that a library would choose from, with their work.

In: what a call computes, with its sizes. Out: `LaunchWork` records, of which the fastest is assumed
to run. The code of a library is not visible, so these are kernels as they are usually written:
products in tiles, cut along their depth where there are few; attention by tiles of queries, or cut
along the keys; rows that a few warps read twice; scans along a row, part by part. `Habits` are
fitted to PyTorch on an H200. Most calls are one launch. Some are a few, one after the other
(`stages`): products of experts, fitted to `torch._grouped_mm` and, for all that experts do, to
vLLM; products whose first matrix has to be narrowed, and attention of an engine that also writes
its cache, fitted to the tables of three engines (`benchmarks/prediction/model_bars.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.device_model import FITTED, Constants, Traffic, launch_ns
from tessera.planning.prices.library_calls import (
    Attention,
    CallShape,
    Experts,
    Grouped,
    Plain,
    Product,
    RowCall,
    RowKind,
)
from tessera.planning.prices.product_launches import grouped, launch_work, products

_QUERIES, _KEYS = 128, 128
_FEW_QUERIES = 64
_KEY_SPLITS = (1, 2, 4, 8, 16, 32, 64)
_FEW_ROWS = 16
_DIVIDED = 5  # instructions of a division by a product, as PyTorch finds the place in a dimension


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The fitted constants of library kernels."""

    attention_instructions: float = 3.78  # per score
    few_loads: float = 18.2  # of a tile of few queries, one after the other
    second_loads: float = 28.0  # if a second kernel combines the results of the first
    engine_matrix: float = 0.86  # fraction of the rate of the matrix units, of prompts in an engine
    put_loads: float = 46.9  # until an engine has planned the attention of a decode step
    prompt_loads: float = 104.0  # likewise of prompts
    put_moves: float = 4.9  # of a new key or value, from where it is made to the cache
    narrow_loads: float = 45.3  # of launches that find the scales of what is narrowed
    narrow_row_loads: float = 28.0  # of a row that is narrowed, and barriers
    norm_loads: float = 3.78  # of a thread, one after the other, per 512 elements of a row
    norm_barriers: float = 3.15  # likewise
    softmax_instructions: float = 90.4  # per element
    scan_instructions: float = 46.2  # of a thread, at each level of a tree
    scan_barriers: float = 0.819  # likewise
    gather_loads: float = 3.97  # of a row
    plain_instructions: float = 2.95  # per operation
    grouped_loads: float = 162.0  # of launches before the products of experts
    grouped_memory: float = 0.66  # fraction of the memory bandwidth that these products reach
    grouped_matrix: float = 0.85  # fraction of the rate of the matrix units
    expert_loads: float = 227.0  # until an engine has sorted rows by expert
    expert_matrix: float = 0.7  # as `grouped_matrix`, of an engine
    widened_matrix: float = 0.4  # of that, if the weights are narrower than what is computed with
    widened_product: float = 1.5  # of a product alone, likewise: over its time without widening


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
    ns = sum(
        min(launch_ns(work, moved, gpu, sms, constants) for work in works)
        for works, moved in stages(shape, traffic, habits)
    )
    is_widened = isinstance(shape, Product) and shape.is_widened
    return ns * (habits.widened_product if is_widened else 1.0)


def stages(
    shape: CallShape, traffic: Traffic, habits: Habits = USUAL
) -> Iterator[tuple[Iterable[LaunchWork], Traffic]]:
    """The launches of a call, one after the other: the kernels that each may be, and its bytes."""
    match shape:
        case Grouped():
            yield [_route(shape.rows, habits.grouped_loads)], Traffic()
            cold = traffic.cold / habits.grouped_memory
            yield grouped(shape, habits.grouped_matrix), replace(traffic, cold=cold)
        case Experts(up=up, down=down):
            rows, width = float(up.rows), float(up.width)
            yield [_route(up.rows, habits.expert_loads)], Traffic()
            rate = habits.expert_matrix
            is_widened = up.weight_width < up.width and up.unit != "fp8"
            rate *= habits.widened_matrix if is_widened else 1.0
            yield grouped(up, rate), _share(shape, up, up.tokens, traffic)
            gated = Plain(rows * down.k, 10.0 * rows * down.k, width * rows * (up.n + down.k))
            yield launches(gated, habits), Traffic(warm=gated.bytes)
            yield grouped(down, rate), _share(shape, down, up.rows, traffic)
            results = float(up.tokens * down.n)
            added = Plain(results, 2.0 * rows * down.n, width * (rows * down.n + results))
            yield launches(added, habits), Traffic(warm=added.bytes)
        case Product(narrowed=True):
            given = RowCall(RowKind.NORM, shape.m * shape.batch, shape.k, 2)
            waits = habits.narrow_row_loads, habits.narrow_row_loads
            read = 2.0 * given.width * given.rows * given.elements
            yield [_alone(habits.narrow_loads)], Traffic()
            yield [_by_rows(given, 256, 10.0, waits)], Traffic(warm=read)
            yield launches(shape, habits), traffic
        case Attention(put=True):
            new = 2.0 * shape.batch * shape.queries * shape.kv_heads * shape.size
            put = Plain(new, new, habits.put_moves * new * shape.width)
            yield [_alone(habits.prompt_loads if shape.causal else habits.put_loads)], Traffic()
            yield launches(put, habits), Traffic(warm=put.bytes)
            yield launches(shape, habits), traffic
        case _:
            yield launches(shape, habits), traffic


def _alone(loads: float) -> LaunchWork:
    """One CTA that waits for loads."""
    return launch_work(1, 128, 60.0, 1e3, waits=(loads, 0.0))


def _share(shape: Experts, part: Grouped, read: int, traffic: Traffic) -> Traffic:
    """The bytes of one of the two products: its weights, the rows that it reads, its results."""
    whole = shape.up.n * shape.up.k + shape.down.n * shape.down.k
    share = part.n * part.k / whole
    own = float(part.width * (read * part.k + part.rows * part.n))
    working = traffic.working + own if traffic.working else 0.0
    return Traffic(cold=traffic.cold * share, warm=traffic.warm * share + own, working=working)


def _route(rows: int, loads: float) -> LaunchWork:
    """One CTA that counts the rows of each expert and places them."""
    return launch_work(1, 1024, 60.0 + rows / 128, 16.0 * rows, waits=(loads, 0.0))


def launches(shape: CallShape, habits: Habits = USUAL) -> Iterator[LaunchWork]:
    """The kernels from which a library chooses one for this shape."""
    match shape:
        case Product():
            yield from _product_kernels(shape)
        case Attention():
            yield from _attentions(shape, habits)
        case Grouped():
            yield from grouped(shape, habits.grouped_matrix)
        case Experts():
            for part in (shape.up, shape.down):
                yield from grouped(part, habits.expert_matrix)
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
            if shape.dims > 1:
                places = shape.dims * (_DIVIDED + shape.operands)
                each += places * shape.elements / (ctas * 128)
                narrow = shape.elements * shape.operands
                yield launch_work(ctas, 128, each, shape.asked, units=units, narrow=narrow)
            else:
                yield launch_work(ctas, 128, each, shape.bytes, units=units)


@lru_cache(maxsize=1 << 10)
def _product_kernels(shape: Product) -> tuple[LaunchWork, ...]:
    """Kept, since a product is priced on every GPU of the table."""
    return tuple(products(shape))


def _attentions(shape: Attention, habits: Habits) -> Iterator[LaunchWork]:
    """Tiles of queries over all keys they see; or, of few queries, tiles for each part of the keys.

    Few queries of all heads that share keys are in one tile, or in several if they do not fit.
    """
    together = shape.queries * (shape.heads // shape.kv_heads)
    few = together <= _FEW_QUERIES or shape.queries <= _FEW_ROWS < shape.keys
    rows = _FEW_QUERIES if few else _QUERIES
    tiles = shape.kv_heads * ceil(together / rows)
    if not few:
        tiles = shape.heads * ceil(shape.queries / rows)
    loads = habits.few_loads if few else 3.0
    rate = habits.engine_matrix if shape.put and not few else 1.0
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
        yield launch_work(
            ctas,
            threads,
            100.0 + mean * each,
            ctas * (mean * loaded + 2.0 * kept),
            units=(
                (shape.unit, ctas * mean * 4.0 * scores * shape.size / rate),
                ("special", ctas * mean * scores),
            ),
            most=100.0 + most * each,
            waits=(loads + (habits.second_loads if parts > 1 else 0.0), 0.0),
            shared=(int(2 * loaded + kept), ctas * mean * loaded),
            registers=168,
        )


def _by_rows(
    shape: RowCall, threads: int, instructions: float, waits: tuple[float, float]
) -> LaunchWork:
    """A CTA for each row; `instructions` for each element."""
    elements = float(shape.rows * shape.elements)
    return launch_work(
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
    return launch_work(
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
    return launch_work(max(1, ctas), 128, 30.0, moved, waits=(loads, 0.0))
