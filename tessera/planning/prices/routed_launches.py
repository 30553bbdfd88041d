"""Launches whose loops and addresses come from routing: products of rows sorted by expert.

In: a launch, its accesses and the buffers behind them. Out: the product, if it is one, and its
`LaunchWork`. Such a kernel goes through the experts that have rows in its tile of rows, so neither
its loops nor the weights that it reads follow from its code. But the shapes of its buffers say what
it computes: rows [row, k], weights [expert, k, n] at addresses from data, an integer for each
expert, results [row, n]. How often a tile visits an expert follows from the law of choices: once
for every tile, and once more where the next expert begins inside of one. The constants are fitted
to such kernels by Triton on an H200 (`benchmarks/prediction/experts.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import ceil, prod, sqrt

from tessera.ir.graph.access import AccessKind, AddressClass
from tessera.ir.graph.graph import Node
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, Program
from tessera.ir.program.routing import Routing
from tessera.planning.prices.expert_routing import expected_experts
from tessera.planning.prices.library_calls import Grouped
from tessera.planning.prices.product_launches import launch_work

_UNITS = {DataType.BF16: "bf16", DataType.F16: "fp16", DataType.F32: "tf32"}
_LEAST_SIDE = 16
_DEPTHS = (256, 128, 64, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitCosts:
    """The fitted constants of a visit of a tile to an expert."""

    instructions: float = 1500.0  # of a thread, beside its steps along k
    step_instructions: float = 320.0
    load_instructions: float = 19.0  # for 16 bytes that a thread loads
    loads: float = 4.85  # one after the other
    matrix: float = 0.49  # fraction of the rate of the matrix units


FITTED_VISITS = VisitCosts()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductBlocks:
    """The blocks of a launch: rows and columns of the results of each, threads, shared memory."""

    high: int
    wide: int
    threads: int
    shared: int


def routed_product(
    program: Program, launch: Launch, node: Node, shared: int
) -> tuple[Grouped, ProductBlocks] | None:
    """The product that a launch computes, if its buffers fit one in one way only."""
    own = [a for a in node.accesses if a.address is not AddressClass.POINTER]
    read = [(program.buffers[a.buffer], a.address) for a in own if a.kind is AccessKind.READ]
    written = {a.buffer for a in own if a.kind is AccessKind.WRITE}
    made = [shape for b in written if len(shape := program.buffers[b].shape or ()) == 2]
    given = [(b.dtype, b.shape) for b, _ in read if b.shape is not None and len(b.shape) == 2]
    counts = {b.shape for b, _ in read if b.dtype in (DataType.S32, DataType.S64)}
    products: set[Grouped] = set()
    for held, address in read:
        if address is not AddressClass.INDEXED or held.dtype not in _UNITS or held.shape is None:
            continue
        if len(held.shape) != 3 or held.shape[:1] not in counts:
            continue
        for (dtype, (rows, k)), (also, n) in product(given, made):
            is_product = held.shape[1:] in ((k, n), (n, k)) and rows == also and rows > 0
            if is_product and dtype is held.dtype:
                width = held.dtype.bytes
                products.add(
                    Grouped(
                        tokens=rows,
                        chosen=1,
                        experts=held.shape[0],
                        n=n,
                        k=k,
                        unit=_UNITS[held.dtype],
                        width=width,
                        weight_width=float(width),
                    )
                )
    return _in_blocks(products.pop(), launch, shared) if len(products) == 1 else None


def _in_blocks(shape: Grouped, launch: Launch, shared: int) -> tuple[Grouped, ProductBlocks]:
    """The blocks of a product by its grid; a part of a launch has its share of rows or columns."""
    grid, part = list(launch.grid), launch.ctas
    if part is not None:
        grid[part.axis] = part.extent
    high, wide = (
        max(_LEAST_SIDE, 1 << (ceil(size / ctas) - 1).bit_length())
        for size, ctas in ((shape.rows, grid[0]), (shape.n, grid[1]))
    )
    if part is not None:
        rows, columns = min(shape.rows, high * launch.grid[0]), min(shape.n, wide * launch.grid[1])
        shape = replace(shape, tokens=rows, n=columns)
    return shape, ProductBlocks(high=high, wide=wide, threads=prod(launch.block), shared=shared)


def visiting_work(
    shape: Grouped, blocks: ProductBlocks, routing: Routing, visits: VisitCosts = FITTED_VISITS
) -> LaunchWork:
    """The work of a product over the experts that tokens choose by a law."""
    high, wide, threads = blocks.high, blocks.wide, blocks.threads
    hit = expected_experts(shape.tokens, shape.chosen, shape.experts, routing)
    tiles, across = ceil(shape.rows / high), ceil(shape.n / wide)
    mean = 1.0 + max(0.0, hit - 1.0) * (1.0 - 1.0 / high) / tiles
    most = mean + sqrt(mean - 1.0)
    both = (high + wide) * shape.width
    deep = next((d for d in _DEPTHS if 2 * both * d <= blocks.shared), _DEPTHS[-1])
    steps, loaded = ceil(shape.k / deep), both * deep
    each = visits.step_instructions + visits.load_instructions * loaded / threads / 16
    instructions = 100.0 + 2.0 * high * wide / threads
    instructions += mean * (visits.instructions + steps * each)
    ctas = tiles * across
    own = (mean * wide + high) * shape.k + high * wide
    done = 2.0 * ctas * mean * high * wide * steps * deep / visits.matrix
    work = launch_work(
        ctas,
        threads,
        instructions,
        float(ctas * own * shape.width),
        units=((shape.unit, done),),
        most=instructions * most / mean,
        waits=(2.0 + most * visits.loads, 0.0),
        shared=(blocks.shared, 2.0 * ctas * mean * steps * loaded),
        registers=min(255, 60 + high * wide // threads),
    )
    return replace(work, indexed_bytes=replace(shape, routing=routing).moved)
