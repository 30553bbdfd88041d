"""What ways are looked for with: a model, what is offered, a workload; and what given places make.

In: counts of GPUs by kind, places of steps. Out: a `GpuUnit`, a `UnitWay`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.driver.fleet.model_steps import ServedModel
from tessera.driver.fleet.offered import Offered, part_of_machine
from tessera.driver.fleet.ways import GpuUnit, Places, UnitWay, cache_room, curves, held_by
from tessera.driver.fleet.workload import Workload
from tessera.ir.choices import Strategy

TENSOR = "tensor"
STRATEGIES = (
    Strategy.SINGLE.value,
    Strategy.LAYERS.value,
    Strategy.PHASE.value,
    Strategy.ATTENTION.value,
    TENSOR,
    Strategy.KERNEL.value,
)


@dataclass(frozen=True, slots=True)
class WaySearch:
    """What ways are looked for with. `allowed` are the strategies that are."""

    model: ServedModel
    offered: Offered
    work: Workload
    allowed: tuple[str, ...] = STRATEGIES

    def unit(self, counts: Sequence[int]) -> GpuUnit | None:
        """The GPUs of a unit; None where there are not so many."""
        devices: list[int] = []
        for kind, count in enumerate(counts):
            own = self.offered.devices(kind, count)
            if len(own) < count or self.offered.kinds[kind].most < count:
                return None
            devices += own
        machine = part_of_machine(self.offered.machine, devices)
        return GpuUnit(machine=machine, kinds=tuple(self.offered.kind_of[d] for d in devices))

    def names(self, counts: Sequence[int]) -> str:
        """As reports call the GPUs: `2xa100+l40s`."""
        kinds = self.offered.kinds
        return "+".join(
            f"{n}x{kinds[k].label}" if n > 1 else kinds[k].label for k, n in enumerate(counts) if n
        )

    @property
    def chunk(self) -> int:
        """Tokens of the largest prefill step."""
        last = self.model.prefill[-1]
        return last.rows * last.tokens

    def rate(self, way: UnitWay) -> float:
        """What a way serves at most."""
        return way.most_rate(self.work, way.rows_of(self.work))

    def counts(self, *pairs: tuple[int, int]) -> tuple[int, ...]:
        """How many of each kind, of (kind, count)."""
        counts = [0] * len(self.offered.kinds)
        for kind, count in pairs:
            counts[kind] += count
        return tuple(counts)


def placed_way(
    search: WaySearch,
    strategy: str,
    counts: tuple[int, ...],
    unit: GpuUnit,
    places: dict[str, Places],
) -> UnitWay | None:
    """The way of given places, with as many lanes as serve the most within memory."""
    shaped = curves(search.model, places, unit, search.work)
    if shaped is None:
        return None
    used = len({place for own in places.values() for place in own})
    held = held_by(search.model, places, unit)
    best: UnitWay | None = None
    for lanes in sorted({1, used, used + 1, 2 * used} if used > 1 else {1}):
        rows, tokens = cache_room(search.model, held, unit, search.work, lanes)
        if rows < 1:
            continue
        way = UnitWay(
            strategy=strategy,
            gpus=counts,
            names=search.names(counts),
            decode=shaped[0],
            prefill=shaped[1],
            chunk=search.chunk,
            rows=rows,
            cache_tokens=tokens,
            lanes=lanes,
        )
        if best is None or search.rate(way) > search.rate(best):
            best = way
    return best
