"""Pools: units that only read prompts, or only make answers, and the links between them.

In: ways of units that serve both phases, the offered GPUs. Out: the same units with one role, and
the `Roads` by which sequences are handed over between the sites of a mix. A site is all units that
reach, and are reached by, the same others through the same shared links.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.mix import Roads
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.ways import NO_HAND_OVER, HandOverTime, UnitWay, WaySearch

POOLS = (EngineRole.PROMPTS, EngineRole.ANSWERS)

_MOST_BUSY = 0.95

Kinds = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PoolLinks:
    """Hand-overs between kinds of GPUs: what each takes; None where there is no link.

    `shared` are the links that several GPUs share: the pairs of kinds that they join, and the most
    hand-overs per second.
    """

    takes: tuple[tuple[HandOverTime | None, ...], ...]
    shared: tuple[tuple[frozenset[tuple[int, int]], float], ...] = ()

    def between(self, source: UnitWay, target: UnitWay) -> HandOverTime | None:
        """The slowest hand-over between GPUs of two units; None if some are not linked."""
        return self._slowest(kinds_of(source), kinds_of(target))

    def known(self, source: UnitWay, target: UnitWay) -> HandOverTime:
        """A hand-over between units that are linked."""
        return self.between(source, target) or NO_HAND_OVER

    def _slowest(self, source: Kinds, target: Kinds) -> HandOverTime | None:
        pairs = [self.takes[a][b] for a, b in product(source, target)]
        return None if None in pairs else _slowest_of(filter(None, pairs))

    def roads(self, ways: Sequence[UnitWay]) -> tuple[list[int], Roads]:
        """The site of each way, and the roads between sites."""
        kinds = [kinds_of(way) for way in ways]
        every = list(dict.fromkeys(kinds))
        keys = {own: tuple(self._road(*p) for o in every for p in ((own, o), (o, own)))
                for own in every}  # fmt: skip
        sites = {key: n for n, key in enumerate(dict.fromkeys(keys.values()))}
        first = {sites[keys[own]]: own for own in reversed(every)}
        pairs = [(a, b) for a, b in product(first, first) if self._road(first[a], first[b])]
        limits = []
        for number, (_, most) in enumerate(self.shared):
            through = [
                n for n, (a, b) in enumerate(pairs) if number in self._road(first[a], first[b])
            ]
            if through:
                limits.append((most, tuple(through)))
        return [sites[keys[own]] for own in kinds], Roads(tuple(pairs), tuple(limits))

    def _road(self, source: Kinds, target: Kinds) -> tuple[int, ...]:
        """-1 and the shared links between two sites; nothing if they are not linked."""
        if self._slowest(source, target) is None:
            return ()
        through = (
            n for n, (pairs, _) in enumerate(self.shared) if pairs & set(product(source, target))
        )
        return (-1, *through)


def kinds_of(way: UnitWay) -> Kinds:
    """The kinds of a unit's GPUs."""
    return tuple(kind for kind, count in enumerate(way.gpus) if count)


def _slowest_of(takes: Iterable[HandOverTime]) -> HandOverTime:
    known = list(takes)
    return HandOverTime(
        max(t.latency_ns for t in known),
        max(t.sequence_ns for t in known),
        max(t.token_ns for t in known),
    )


def pool_links(search: WaySearch) -> PoolLinks:
    """What handing a sequence of the workload over takes, between all kinds."""
    model, offered = search.model, search.offered
    sequence, token = sum(model.row_bytes.values()), sum(model.token_bytes.values())
    kinds = range(len(offered.kinds))
    takes: dict[tuple[int, int], list[HandOverTime]] = {}
    for link in offered.machine.links:
        per_byte = 1e9 / link.bytes_per_second
        takes.setdefault((offered.kind_of[link.source], offered.kind_of[link.target]), []).append(
            HandOverTime(link.latency_ns, sequence * per_byte, token * per_byte)
        )
    rows = tuple(
        tuple(_slowest_of(takes[a, b]) if (a, b) in takes else None for b in kinds) for a in kinds
    )
    return PoolLinks(rows, tuple(_shared(offered, sequence + token * search.work.prompt)))


def _shared(offered: Offered, moved: float) -> Iterator[tuple[frozenset[tuple[int, int]], float]]:
    """The channels that are no port of one GPU, and how often a cache goes through them."""
    for channel in offered.machine.channels:
        ends = [{int(pair[end]) for pair in channel.pairs} for end in (0, 1)]
        if min(map(len, ends)) > 1 and moved:
            kinds = frozenset((offered.kind_of[a], offered.kind_of[b]) for a, b in channel.pairs)
            yield kinds, _MOST_BUSY * channel.bytes_per_second / moved


def pool_ways(ways: Sequence[UnitWay], links: PoolLinks) -> Iterator[UnitWay]:
    """Each way with each role, where another unit is linked."""
    for way in ways:
        for role in POOLS:
            pairs = [(way, o) if role is EngineRole.PROMPTS else (o, way) for o in ways]
            reached = [links.between(*pair) for pair in pairs]
            if any(reached):
                yield replace(
                    way,
                    role=role,
                    handed=_slowest_of(filter(None, reached)),
                    engines=tuple(replace(engine, role=role) for engine in way.engines),
                )
