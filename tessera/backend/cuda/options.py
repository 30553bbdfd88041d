"""What only the CUDA backend knows: how requests are handed over."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.cuda.process_ways import ProcessWays


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """What only the CUDA backend knows.

    `guard_bytes`: guards round places, for tests. `trail`: write exactly which step runs, or do not
    at all; None is exactly so without graphs, and with them a mark every few steps. `peers` off:
    copies between GPUs go through the host even where they need not. `depth`: requests under way
    in a slot; None is as many as pay. `priorities`: kernels of requests that have come further go
    first. `spanning`: one graph for a request even where it spans devices. `ways`: this
    process has one device of several; the ways to the others.
    """

    graphs: bool = True
    guard_bytes: int = 0
    trail: bool | None = None
    peers: bool = True
    depth: int | None = None
    priorities: bool = True
    spanning: bool = False
    ways: ProcessWays | None = None
