"""Options of the CUDA backend alone: how requests are handed over."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.backend.cuda.process_ways import ProcessWays


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """Options of the CUDA backend alone.

    `guard_bytes`: bytes of guards around places, for tests. `trail`: True writes exactly which step
    runs, False writes nothing, and None writes it exactly without graphs and as a mark every few
    steps with graphs. `peers`: if off, copies between GPUs go through the host even where they need
    not. `depth`: requests under way in a slot; None chooses as many as pay off. `priorities`:
    kernels of requests that have come further go first. `spanning`: whether a request over several
    devices is one graph (`strands`); None: if they are slices of one GPU that meet often. `ways`:
    this process has one device of several, and these are its ways to the others.
    """

    graphs: bool = True
    guard_bytes: int = 0
    trail: bool | None = None
    peers: bool = True
    depth: int | None = None
    priorities: bool = True
    spanning: bool | None = None
    ways: ProcessWays | None = None
