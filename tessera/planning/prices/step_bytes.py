"""The distinct bytes of a step: how many there are, and which of them a cache may hold.

In: a step of a `KernelGraph`. Out: `StepBytes`, and from them `Traffic` on a GPU and `StepNeeds`.
Weights and state are assumed not to be cached unless all of them fit in half of L2: a request
touches each of them once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tessera.ir.graph.access import AddressClass
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Region
from tessera.ir.plan.costs import LaunchWork, StepNeeds
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.program import Role
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.planning.prices.call_shapes import Operations
from tessera.planning.prices.device_model import Traffic

PERSISTENT = (Role.WEIGHT, Role.STATE, Role.VARIABLE)
UNSURE = 2.0  # factor on bars and requested bytes if branches depend on data


def distinct_bytes(
    graph: KernelGraph, node: Node, persistent: bool | None = None, *, direct: bool = False
) -> int:
    """The bytes that a step may touch, each counted once, in persistent or in other buffers.

    `direct`: only bytes whose addresses do not come from data.
    """
    regions: dict[int, list[Region]] = {}
    for access in node.accesses:
        if direct and access.address is not AddressClass.DIRECT:
            continue
        role = graph.buffers[access.buffer].role
        if persistent is not None and (role in PERSISTENT) != persistent:
            continue
        regions.setdefault(int(access.buffer), []).append(access.region)
    return sum(
        _bytes_of(tuple(some), graph.buffers[buffer].bytes) for buffer, some in regions.items()
    )


@lru_cache(maxsize=4096)
def _bytes_of(regions: tuple[Region, ...], size: int) -> int:
    """The bytes of regions of one buffer; cached, since equal layers have equal regions."""
    return intervals.size(regions_bytes(regions, size))


@dataclass(frozen=True, slots=True)
class StepBytes:
    """Distinct bytes of a step: of buffers private to a request, and of weights and state.

    `direct` are the bytes of either that it touches regardless of data. It may touch any of the
    others, and looks some of them up.
    """

    private: float
    persistent: float
    direct_private: float
    direct_persistent: float

    @classmethod
    def of(cls, graph: KernelGraph, node: Node) -> StepBytes:
        """The bytes of a step."""
        return cls(
            *(float(distinct_bytes(graph, node, kept)) for kept in (False, True)),
            *(float(distinct_bytes(graph, node, kept, direct=True)) for kept in (False, True)),
        )

    @property
    def total(self) -> float:
        """All distinct bytes."""
        return self.private + self.persistent

    def looked_up(self, work: LaunchWork | None) -> StepBytes:
        """The bytes with indirect ones limited to those that its threads request, if known."""
        others = self.total - self.direct_private - self.direct_persistent
        # Which accesses of a loop of unknown length are looked up is not counted apart.
        most = 0.0 if work is None else work.indexed_bytes if work.sure else work.asked_bytes
        if not 0 < most < others:
            return self
        part = most / others
        return replace(
            self,
            private=self.direct_private + (self.private - self.direct_private) * part,
            persistent=self.direct_persistent + (self.persistent - self.direct_persistent) * part,
        )

    def needs(
        self, kept: float, limit: float | None, operations: Operations, sure: bool
    ) -> StepNeeds:
        """What a step with these bytes cannot do without; if it is not `sure`, nothing is known."""
        if not sure:
            return StepNeeds(kept=kept)
        part = 1.0 if limit is None or self.total <= limit else limit / self.total
        cold, warm = self.persistent * part, self.private * part
        return StepNeeds(cold=cold, warm=warm, operations=operations, kept=kept)

    def traffic(self, gpu: Gpu, everything: float, limit: float | None) -> Traffic:
        """The bytes that are not cached; `limit` is the maximum that the step requests."""
        total = self.total
        part = 1.0 if limit is None or total <= limit else limit / total
        if everything <= gpu.l2_bytes / 2:
            return Traffic(warm=total * part, working=total * part + everything)
        return Traffic(warm=self.private * part, cold=self.persistent * part)
