"""Captures into a CUDA graph of PyTorch, so that a failed capture leaves nothing behind.

Up to PyTorch 2.11 a capture that the driver ends with an error stays under way: its stream remains
current, its memory is never released, and dropping a memory pool later ends the process. Source:
PyTorch's pull requests 180395 and 190348.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextmanager
def captured_into(graph: torch.cuda.CUDAGraph, **options: object) -> Iterator[None]:
    """Like `torch.cuda.graph`, with its options."""
    import torch

    current, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, **options):
            yield
    except BaseException:
        torch.cuda.set_stream(current)
        # The first call raises if the capture was ended properly; then nothing is left to do.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
        raise
