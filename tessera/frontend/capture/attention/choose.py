"""How a call of the attention kernels is cut: candidates by rule, the best of them by measuring.

In: the tensors of a call, and a function that runs it with given `Tiles`. Out: `Tiles`. On a GPU
each candidate is timed inside a CUDA graph over copies of keys and values that do not fit into L2,
once for calls of the same kind; elsewhere, and while a graph is being captured, the first is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.frontend.capture.attention.launch import Tiles

if TYPE_CHECKING:
    import torch

Run = Callable[..., "torch.Tensor"]

_PACKED = 64  # rows of all heads of a group: up to here they share a tile
_COLD = 160_000_000  # bytes of copies: more than the L2 of any GPU holds
_FREE = 0.25  # the part of free memory that copies may take


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSize:
    """What decides how a call is best cut."""

    batch: int
    heads: int
    kv_heads: int
    tokens: int
    keys: int
    size: int
    v_size: int
    bytes: int
    causal: bool
    window: int
    plain: bool
    paged: bool
    sms: int
    shared: int

    @property
    def rows(self) -> int:
        """Rows of a tile with all heads of a group."""
        return self.tokens * self.heads // self.kv_heads

    @property
    def walked(self) -> int:
        """About how many keys a tile sees at most."""
        return min(self.keys, self.window + self.tokens) if self.window else self.keys


_FOUND: dict[tuple[AttentionSize, str], Tiles] = {}


def choose(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    run: Run,
    *,
    causal: bool,
    window: int,
    plain: bool,
    table: torch.Tensor | None,
) -> Tiles:
    """The tiles for a call; measured when its kind is first seen."""
    problem = _problem(q, k, v, causal=causal, window=window, plain=plain, table=table)
    key = (problem, str(q.device))
    if key not in _FOUND:
        tiles = list(candidates(problem))
        if not _may_measure(q):
            return tiles[0]
        _FOUND[key] = _fastest(tiles, k, v, run)
    return _FOUND[key]


def _problem(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    window: int,
    plain: bool,
    table: torch.Tensor | None,
) -> AttentionSize:
    sms, shared = 108, 101_376
    if q.is_cuda:
        import torch

        device = torch.cuda.get_device_properties(q.device)
        sms = int(device.multi_processor_count)
        shared = int(getattr(device, "shared_memory_per_block_optin", shared))
    batch, heads, tokens, size = q.shape
    return AttentionSize(
        batch=batch,
        heads=heads,
        kv_heads=k.shape[1],
        tokens=tokens,
        keys=k.shape[2] if table is None else table.shape[1] * k.shape[2],
        size=size,
        v_size=v.shape[3],
        bytes=q.element_size(),
        causal=causal,
        window=window,
        plain=plain,
        paged=table is not None,
        sms=sms,
        shared=shared,
    )


def candidates(problem: AttentionSize) -> Iterator[Tiles]:
    """Ways to cut a call, the one that is best by rule first."""
    made = _decode(problem) if problem.rows <= _PACKED else _prefill(problem)
    fitting = [tiles for tiles in made if _shared(tiles, problem) <= problem.shared]
    yield from fitting or [Tiles(rows=16, keys=16, warps=4, stages=1)]


def _shared(tiles: Tiles, problem: AttentionSize) -> int:
    """Bytes of shared memory, about: queries, and blocks of keys and values under way."""
    wide = _power(problem.size) if problem.size > 128 else problem.size
    each = tiles.keys * (wide + _power(problem.v_size)) * max(tiles.stages, 1)
    return (tiles.rows * wide + each) * problem.bytes


def _decode(problem: AttentionSize) -> Iterator[Tiles]:
    """A tile has all heads of a group; the cache is split so that every SM has work."""
    rows = max(16, _power(problem.rows))
    programs = problem.batch * problem.kv_heads
    shapes = ((64, 4, 3), (64, 4, 4), (32, 4, 4))
    if max(problem.size, problem.v_size) > 128:
        shapes = ((32, 4, 3), (64, 4, 2), (32, 4, 2))
    for keys, warps, stages in shapes:
        most = min(64, math.ceil(problem.walked / keys))
        for each in (2, 4):
            splits = max(1, min(most, each * problem.sms // programs))
            yield Tiles(
                rows=rows, keys=keys, warps=warps, stages=stages, packed=True, splits=splits
            )
            if splits in (1, most):
                break


def _prefill(problem: AttentionSize) -> Iterator[Tiles]:
    """A tile has rows of one head."""
    shapes = ((64, 64, 4, 3), (128, 64, 8, 3), (128, 128, 8, 3), (64, 64, 4, 2))
    if max(problem.size, problem.v_size) > 128:
        shapes = ((64, 64, 4, 2), (128, 64, 8, 2), (64, 32, 4, 2), (32, 32, 4, 1))
    for rows, keys, warps, stages in shapes:
        yield Tiles(rows=rows, keys=keys, warps=warps, stages=stages)


def _may_measure(q: torch.Tensor) -> bool:
    import torch

    return q.is_cuda and not torch.cuda.is_current_stream_capturing()


def _fastest(tiles: list[Tiles], k: torch.Tensor, v: torch.Tensor, run: Run) -> Tiles:
    """The candidate that takes least time; one that does not compile or fit is left out."""
    import torch

    torch.cuda.current_stream().synchronize()
    size = k.numel() * k.element_size() + v.numel() * v.element_size()
    room = int(torch.cuda.mem_get_info()[0] * _FREE)
    count = max(1, min(math.ceil(_COLD / size), 8, room // size))
    pairs = [(k, v)] + [(k.clone(), v.clone()) for _ in range(count - 1)]
    times: dict[Tiles, float] = {}
    problems: list[Exception] = []
    for cut in tiles:
        try:
            times[cut] = _time([lambda p=p, cut=cut: run(cut, *p) for p in pairs])  # type: ignore[misc]
        except Exception as problem:  # the compiler's errors are of many kinds
            problems.append(problem)
    if not times:
        raise problems[0]
    return min(times, key=lambda cut: times[cut])


def _time(calls: list[Callable[[], object]]) -> float:
    """Milliseconds of all calls one after the other, as a graph: the least of a few."""
    import torch

    for call in calls:  # compile
        call()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls * max(1, 16 // len(calls)):
            call()
    times = []
    for _ in range(4):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)))
    return min(times[1:])


def _power(number: int) -> int:
    return 1 << (number - 1).bit_length()
