"""Capture into a CUDA graph of PyTorch's, so that one that fails leaves nothing behind.

Up to PyTorch 2.11 a capture that the driver ends with an error counts as under way for good: its
stream stays the current one, its memory is never given back, and a pool of memory that is dropped
later ends the process. Source: PyTorch's pull requests 180395 and 190348.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@contextmanager
def captured_into(graph: torch.cuda.CUDAGraph, **options: object) -> Iterator[None]:
    """What `torch.cuda.graph` does, with its options."""
    import torch

    current, pool = torch.cuda.current_stream(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool, **options):
            yield
    except BaseException:
        torch.cuda.set_stream(current)
        # The first one says so where the capture was ended as it should be; then all is well.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            torch._C._cuda_releasePool(torch.cuda.current_device(), pool)
        raise
