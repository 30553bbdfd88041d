"""Chooses how a call of the attention kernels is cut: candidates by rule, the best by measuring.

In: the tensors of a call, and a function that runs it with given `Tiles`. Out: `Tiles`
(`tuning` measures, with copies of keys and values).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.frontend.capture.attention.launch import Tiles, least_power
from tessera.frontend.capture.graphs.tuning import tuned

if TYPE_CHECKING:
    import torch

Run = Callable[..., "torch.Tensor"]

_PACKED = 64  # up to this number of rows, all heads of a group share a tile


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSize:
    """The sizes that decide how a call is best cut."""

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
        """The approximate maximum of keys that a tile sees."""
        return min(self.keys, self.window + self.tokens) if self.window else self.keys


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
    """The tiles for a call; measured for the first call of each kind."""
    problem = _problem(q, k, v, causal=causal, window=window, plain=plain, table=table)
    return tuned(problem, list(candidates(problem)), (k, v), run, lambda tiles: tiles.splits)


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
    """Ways to cut a call; the best by rule comes first."""
    made = _decode(problem) if problem.rows <= _PACKED else _prefill(problem)
    fitting = [tiles for tiles in made if _shared(tiles, problem) <= problem.shared]
    yield from fitting or [Tiles(rows=16, keys=16, warps=4, stages=1)]


def _shared(tiles: Tiles, problem: AttentionSize) -> int:
    """Approximate bytes of shared memory: queries, and blocks of keys and values in flight."""
    wide = least_power(problem.size) if problem.size > 128 else problem.size
    each = tiles.keys * (wide + least_power(problem.v_size)) * max(tiles.stages, 1)
    return (tiles.rows * wide + each) * problem.bytes


def _decode(problem: AttentionSize) -> Iterator[Tiles]:
    """A tile has all heads of a group; the cache is split so that every SM has work."""
    rows = max(16, least_power(problem.rows))
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
