"""What hand-overs between batches take: bytes and time, by the paths of a plan.

In: the replicas of a plan, how hand-overs between them are made, and hardware. Out: bytes and
nanoseconds for a sequence of any length, and whether a hand-over pays after a switch of policies.
Bytes are those that steps may read later; between two lengths they are taken to grow evenly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.diagnostics import TesseraError
from tessera.driver.serve.batches import Batch, Sizes
from tessera.driver.serve.follow import Pays
from tessera.driver.serve.jobs import Job
from tessera.driver.serve.policies import LATENCY, PolicySwitch
from tessera.driver.serve.step_clocks import RatedClock, batches_of
from tessera.driver.serve.step_roles import UNBOUNDED
from tessera.ir.plan.hand_over import MovedSequence, RowPlace
from tessera.ir.plan.plan import Replica
from tessera.planning.lower.hand_over import HandOverMaker
from tessera.simulation.hand_over import hand_over_ns
from tessera.simulation.hardware import Hardware

_MOST_LOAD = 0.9
"""Steps beside the work of other requests take at most ten times as long as alone."""


class MovePrices:
    """Bytes and times of hand-overs between the batches of a plan."""

    def __init__(
        self,
        sizes: Sizes,
        replicas: Sequence[Replica],
        hardware: Hardware,
        make: Callable[[], HandOverMaker],
    ) -> None:
        """`make` is called when the first price is asked for: it may analyse traces."""
        self._sizes = sizes
        self._hardware = hardware
        self._places = [replica for replica, _ in batches_of(replicas)]
        self._make = make
        self._made: HandOverMaker | None = None
        self._known: dict[tuple[int, int], tuple[tuple[int, float], tuple[int, float]]] = {}
        self._longest = 2 if sizes.context == UNBOUNDED else max(sizes.context, 2)

    def of(self, source: int, target: int, tokens: int) -> tuple[int, float]:
        """Bytes and nanoseconds of the hand-over of a sequence with so many tokens.

        Raises TSR4020 if the states cannot go from one replica to the other.
        """
        pair = self._places[source], self._places[target]
        if pair not in self._known:
            self._known[pair] = self._measured(*pair, 1), self._measured(*pair, self._longest)
        (fewest, least_ns), (most, most_ns) = self._known[pair]
        part = min(max(tokens - 1, 0) / (self._longest - 1), 1.0)
        return fewest + round((most - fewest) * part), least_ns + (most_ns - least_ns) * part

    def _measured(self, source: int, target: int, tokens: int) -> tuple[int, float]:
        block = self._sizes.block
        place = RowPlace(blocks=tuple(range(1, 1 + -(-tokens // block)))) if block else RowPlace(0)
        moved = [MovedSequence(place, place, tokens)]
        self._made = self._made or self._make()
        made = self._made.make(source, target, moved, self._sizes.token_axis)
        return made.size, hand_over_ns(made, self._hardware)


def check_moves(sizes: Sizes, prices: MovePrices) -> None:
    """Raise TSR4020 if a replica reads prompts that no other one can take over."""
    batches = [Batch(number, sizes) for number in range(sizes.batches if sizes.serves else 0)]
    for source in batches:
        for target in batches:
            if source.surplus and target.decodes > target.fills:
                prices.of(source.number, target.number, 1)


def rule_of_moves(
    sizes: Sizes,
    replicas: Sequence[Replica],
    hardware: Hardware,
    prices: MovePrices,
    switch: PolicySwitch,
) -> Pays:
    """Whether the rest of an answer is faster by more than its hand-over takes from all rows.

    Few requests are answered soonest where a step alone is short, beside the work of those that
    come; many where steps that are never idle are short: that is what the rest of an answer is
    priced by, after a switch to one or the other. How long an answer will be is not known: the mean
    of those that have ended is taken.
    """
    traces = 1 + max(placed.trace for replica in replicas for placed in replica.traces)
    clock = RatedClock(replicas, hardware, traces)
    places = [replica for replica, _ in batches_of(replicas)]
    widest = max(sizes.decode, key=lambda step: (step.rows, -step.context))

    def token_ns(batch: Batch, policy: str) -> float:
        place = places[batch.number]
        if policy == LATENCY:
            return clock.alone_ns(widest.trace, place)
        return clock.step_ns(widest.trace, [place]) / widest.rows

    def pays(job: Job, source: Batch, target: Batch) -> bool:
        policy = switch.policy
        tokens = source.position(job)
        beside = 1 - min(switch.load, _MOST_LOAD) if policy == LATENCY else 1.0
        gain_ns = (token_ns(source, policy) - token_ns(target, policy) / beside) * switch.pace
        rest = switch.expected(job.answer) - max(tokens - job.prompt, 0)
        if gain_ns * rest <= 0:
            return False
        try:
            _, move_ns = prices.of(source.number, target.number, tokens)
        except TesseraError:  # the states stay where they are
            return False
        return gain_ns * rest > move_ns * (source.answering + target.answering)

    return pays
