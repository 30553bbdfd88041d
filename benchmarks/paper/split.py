"""Splits of two sides of GPUs, for the paper's figures: a linear program, coarse splits, a queue.

In: `Part`s of a request (a trace's steps, how much of it a request needs), what two sides have.
Out: periods, in ns between two requests in the steady state.

A side is one GPU, or `n` of one kind that hold the layers in turn: it does n times as much.
`best_split` is exact where both sides hold all weights and each request has a placement of its own:
x is the share of requests for which a step runs on the first side, and a tensor crosses for as many
as its producer's share exceeds a consumer's. Placements `x >= level` for levels spread evenly over
0 to 1 have these very shares, since the mean over levels of "here and not there" is the
difference of the two. All coarse splits of the same GPUs are points of this program.

Longer than 400 lines because the linear program, coarse splits and the queue share its records.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TypeVar

import highspy
import numpy as np

from tessera.planning.problem.problem import Tensor

T = TypeVar("T")

ALONE = 0.05
"""What the time of a request alone weighs beside the period."""
MOST_LANES = 8
"""Batches under way for each GPU of a side, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A trace: times on both kinds, per request; what its steps make, keep and hold.

    `caches` are states by name, with the steps that use them; `share` is how often a request runs
    the trace, `tensors` are as the trace has them.
    """

    ns: tuple[tuple[float, float], ...]
    tensors: tuple[Tensor, ...]
    caches: dict[str, list[int]]
    attends: tuple[bool, ...]
    share: float
    sources: tuple[tuple[str, str], ...] = ()

    def repeated(self, times: int) -> Part:
        """The part with the steps between the caches of its second and fourth layer so many times
        more.

        A trace of four layers becomes one of four and twice as many: the two in the middle come
        again, with caches of their own.
        """
        layers: dict[str, int] = {}
        for name, users in self.caches.items():
            layer = name.partition(".")[0]
            layers[layer] = min(*users, layers.get(layer, users[0]))
        firsts = sorted(layers.values())
        low, high = firsts[1], firsts[3]
        size = high - low

        def wider(values: tuple[T, ...]) -> tuple[T, ...]:
            return values[:high] + values[low:high] * times + values[high:]

        def moved(tensor: Tensor, by: int) -> Tensor:
            consumers = tuple(c + by for c in tensor.consumers)
            return replace(tensor, producer=tensor.producer + by, consumers=consumers)

        tensors = []
        for tensor in self.tensors:
            if low <= tensor.producer < high:
                tensors += [moved(tensor, size * n) for n in range(times + 1)]
            else:
                tensors.append(moved(tensor, 0 if tensor.producer < low else size * times))
        caches: dict[str, list[int]] = {}
        for name, users in self.caches.items():
            at = min(users)
            copies = range(times + 1) if low <= at < high else (0 if at < low else times,)
            for n in copies:
                label = name if n in (0, copies[0]) else f"{name}@{n}"
                caches[label] = [user + size * n for user in users]
        return replace(
            self,
            ns=wider(self.ns),
            tensors=tuple(tensors),
            caches=caches,
            attends=wider(self.attends),
            sources=wider(self.sources),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """Two sides: how many GPUs, memory of each, the links between, and what a transfer costs."""

    count: int
    memory: tuple[float, float]
    links: int
    bytes_per_second: float
    latency_ns: float
    transfer_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes: all weights; of each cache those of a batch; of each cache those that a request's
    prompt leaves, which move where prompts are read apart."""

    weights: float
    batch: dict[str, float]
    handed: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What the program says: the period, what limits it, a request alone, and the shares.

    `lanes` batches under way would do if none waited for another; memory has `room` for so many.
    """

    period: float
    loads: tuple[float, float]
    link: float
    alone: float
    lanes: int
    room: int
    shares: tuple[np.ndarray, ...]


def best_split(
    parts: Sequence[Part], sides: Sides, held: Held, *, alone: float = ALONE
) -> Split | None:
    """The split by kernels that serves the most; None if memory does not hold it.

    `alone` is what the time of a request alone weighs beside the period.
    """
    first = np.cumsum([0, *(len(part.ns) for part in parts)])
    count = int(first[-1])
    crossings: list[tuple[int, tuple[int, ...], float, float]] = []
    equal: list[tuple[int, int]] = []
    for number, part in enumerate(parts):
        base = int(first[number])
        for tensor in part.tensors:
            crossings.append(
                (
                    base + tensor.producer,
                    tuple(base + c for c in tensor.consumers),
                    tensor.bytes * part.share,
                    tensor.count * part.share,
                )
            )
        for users in part.caches.values():
            equal += [(base + users[0], base + user) for user in users[1:]]
    if len(parts) > 1:  # the cache of a prompt moves where it is read apart
        for name, size in held.handed.items():
            if all(name in part.caches for part in parts[:2]):
                a, b = (int(first[k]) + parts[k].caches[name][0] for k in (0, 1))
                crossings.append((a, (b,), size, parts[0].share))
    best: Split | None = None
    for limit in (None, 4, 3, 2, 1):
        kept = [] if limit is None else _kept(parts, first, held, limit * sides.count)
        solution = _solve(parts, count, crossings, equal, sides, held.weights, kept, alone)
        if solution is None:
            continue
        x = np.clip(solution[:count], 0.0, 1.0)
        mean = _means(parts, x, crossings, sides)
        needed = max(1, ceil(mean[3] / max(mean[0], 1e-9) - 1e-6))
        most = MOST_LANES * sides.count
        fits = [n for n in range(1, most + 1) if _holds(parts, x, first, sides, held, n)]
        if not fits:
            continue
        lanes = min(needed, max(fits))
        period = float(max(mean[0], mean[3] / lanes))
        if best is None or period < best.period:
            best = Split(
                period=period,
                loads=mean[1],
                link=mean[2],
                alone=float(mean[3]),
                lanes=lanes,
                room=max(fits),
                shares=tuple(x[first[k] : first[k + 1]] for k in range(len(parts))),
            )
        if lanes == needed:
            break
    return best


def _kept(
    parts: Sequence[Part], first: np.ndarray, held: Held, lanes: int
) -> list[tuple[int, float]]:
    """Bytes of the caches of `batches` batches, by the step that they are with."""
    last = len(parts) - 1
    base = int(first[last])
    sums: dict[int, float] = {}
    for name, users in parts[last].caches.items():
        step = base + users[0]
        sums[step] = sums.get(step, 0.0) + held.batch.get(name, 0.0) * lanes
    return list(sums.items())


def _solve(
    parts: Sequence[Part],
    count: int,
    crossings: Sequence[tuple[int, tuple[int, ...], float, float]],
    equal: Sequence[tuple[int, int]],
    sides: Sides,
    weights: float,
    kept: Sequence[tuple[int, float]],
    weight: float,
) -> np.ndarray | None:
    """Columns: x, then both directions of each crossing, then the period in units of its scale."""
    times = np.array([row for part in parts for row in (np.array(part.ns) * part.share)])
    scale = float(times.min(axis=1).sum()) / sides.count
    per = 1e9 / (sides.bytes_per_second * sides.links) / scale
    tax = sides.transfer_ns / scale / sides.count
    last = count + 2 * len(crossings)
    rows: list[list[tuple[int, float]]] = [[(last, 1.0)] for _ in range(4)]
    lower = [0.0, 0.0, 0.0, 0.0]
    upper = [inf] * 4
    # period >= loads: the second side has all that the first has not
    for step, (a, b) in enumerate(times / scale / sides.count):
        rows[0].append((step, -float(a)))
        rows[1].append((step, float(b)))
        lower[1] += float(b)
    for number, (producer, consumers, size, transfers) in enumerate(crossings):
        for way in (0, 1):
            column = count + 2 * number + way
            rows[0].append((column, -tax * transfers))
            rows[1].append((column, -tax * transfers))
            rows[2 + way].append((column, -size * per))
            sign = 1.0 if way == 0 else -1.0
            for consumer in consumers:
                if consumer != producer:
                    rows.append([(column, 1.0), (producer, -sign), (consumer, sign)])
                    lower.append(0.0)
                    upper.append(inf)
    for a, b in equal:
        rows.append([(a, 1.0), (b, -1.0)])
        lower.append(0.0)
        upper.append(0.0)
    if kept:  # memory, in parts of what all caches take: both sides hold all weights
        whole = sum(size for _, size in kept) or 1.0
        rooms = [(own * sides.count - weights) / whole for own in sides.memory]
        if rooms[0] < 0 or rooms[1] < 0 or sum(rooms) < 1:
            return None
        rows.append([(step, size / whole) for step, size in kept])
        lower.append(1.0 - rooms[1])
        upper.append(rooms[0])
    # Of nearly equal ones, that in which a request alone takes the least: it waits less for others.
    cost = np.zeros(last + 1)
    cost[:count] = weight * (times[:, 0] - times[:, 1]) / scale
    for number, (_, _, size, transfers) in enumerate(crossings):
        alone = transfers * (2 * sides.transfer_ns + sides.latency_ns)
        alone += size * 1e9 / sides.bytes_per_second
        cost[count + 2 * number : count + 2 * number + 2] = weight * alone / scale
    cost[last] = 1.0
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = last + 1, len(rows)
    model.col_cost_ = cost
    model.col_lower_ = np.zeros(last + 1)
    model.col_upper_ = np.r_[np.ones(last), highspy.kHighsInf]
    model.row_lower_ = np.array(lower)
    model.row_upper_ = np.array([highspy.kHighsInf if u == inf else u for u in upper])
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0, *(len(row) for row in rows)])
    model.a_matrix_.index_ = np.array([column for row in rows for column, _ in row])
    model.a_matrix_.value_ = np.array([value for row in rows for _, value in row])
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    return np.array(solver.getSolution().col_value)


def _means(
    parts: Sequence[Part],
    x: np.ndarray,
    crossings: Sequence[tuple[int, tuple[int, ...], float, float]],
    sides: Sides,
) -> tuple[float, tuple[float, float], float, float]:
    """Period, loads of both sides, of the busier link direction, and a request alone."""
    times = np.array([row for part in parts for row in (np.array(part.ns) * part.share)])
    on = [float((times[:, 0] * x).sum()), float((times[:, 1] * (1 - x)).sum())]
    tax, alone = 0.0, sum(on)
    bytes_ = [0.0, 0.0]
    for producer, consumers, size, transfers in crossings:
        for way, sign in ((0, 1.0), (1, -1.0)):
            part = max(0.0, *(sign * (x[producer] - x[c]) for c in consumers), 0.0)
            bytes_[way] += part * size
            tax += part * transfers * sides.transfer_ns
            alone += part * transfers * (2 * sides.transfer_ns + sides.latency_ns)
            alone += part * size * 1e9 / sides.bytes_per_second
    loads = ((on[0] + tax) / sides.count, (on[1] + tax) / sides.count)
    link = max(bytes_) * 1e9 / sides.bytes_per_second / sides.links
    return max(*loads, link), loads, link, alone


def _holds(
    parts: Sequence[Part],
    x: np.ndarray,
    first: np.ndarray,
    sides: Sides,
    held: Held,
    lanes: int,
) -> bool:
    """Whether both sides hold all weights, and the caches of these batches by their shares."""
    kept = [held.weights, held.weights]
    for step, size in _kept(parts, first, held, lanes):
        kept[0] += size * float(x[step])
        kept[1] += size * (1 - float(x[step]))
    return all(
        size <= memory * sides.count * (1 + 1e-6)
        for size, memory in zip(kept, sides.memory, strict=True)
    )


def coarse_splits(parts: Sequence[Part], sides: Sides, held: Held) -> dict[str, float]:
    """Periods of what people do without a search; those that memory does not hold are missing."""
    caches = sum(held.batch.values())
    room = [memory * sides.count for memory in sides.memory]
    total = [[sum(row[k] for row in part.ns) * part.share for part in parts] for k in (0, 1)]
    fits = [held.weights + caches * sides.count <= own for own in room]
    made: dict[str, float] = {}
    for kind, name in enumerate(("first", "second")):
        if fits[kind]:
            made[name] = sum(total[kind]) / sides.count
    if fits[0]:
        made["two_first"] = sum(total[0]) / sides.count / 2
    if all(fits):
        made["dp"] = 1 / (1 / made["first"] + 1 / made["second"])
    if len(parts) > 1:
        link = sum(held.handed.values()) * 1e9 / sides.bytes_per_second / sides.links
        ways = [
            max(total[a][0] / sides.count, total[1 - a][1] / sides.count, link)
            for a in (0, 1)
            if held.weights <= room[a] and fits[1 - a]
        ]
        if ways:
            made["phase"] = min(ways)
    cut = _layers(parts, sides, held, caches)
    if cut is not None:
        made["layers"] = cut
    apart = [w for w in (_attention(parts, sides, held, k, caches) for k in (0, 1)) if w]
    if apart:
        made["attention"] = min(apart)
    return made


def _one_placement(parts: Sequence[Part], places: Sequence[Sequence[int]], sides: Sides) -> float:
    """The period of one placement for all requests: the busiest side or direction."""
    on, tax, sent = [0.0, 0.0], 0.0, [0.0, 0.0]
    for part, where in zip(parts, places, strict=True):
        for row, place in zip(part.ns, where, strict=True):
            on[place] += row[place] * part.share
        for tensor in part.tensors:
            source = where[tensor.producer]
            if any(where[c] != source for c in tensor.consumers):
                tax += tensor.count * part.share * sides.transfer_ns
                sent[source] += tensor.bytes * part.share
    loads = [(own + tax) / sides.count for own in on]
    return max(*loads, max(sent) * 1e9 / sides.bytes_per_second / sides.links)


def _layers(parts: Sequence[Part], sides: Sides, held: Held, caches: float) -> float | None:
    """The first steps on one side, the rest on the other, weights in proportion; two batches."""
    best: float | None = None
    for side in (0, 1):
        for cut in range(1, 64):
            share = cut / 64
            keep = (held.weights + 2 * sides.count * caches) * np.array([share, 1 - share])
            if keep[0] > sides.memory[side] * sides.count:
                continue
            if keep[1] > sides.memory[1 - side] * sides.count:
                continue
            places = [
                [side if n < share * len(part.ns) else 1 - side for n in range(len(part.ns))]
                for part in parts
            ]
            period = _one_placement(parts, places, sides)
            best = period if best is None else min(best, period)
    return best


def _attention(
    parts: Sequence[Part], sides: Sides, held: Held, holder: int, caches: float
) -> float | None:
    """Attention and caches on one side, all the rest on the other."""
    places = []
    for part in parts:
        stays = {n for users in part.caches.values() for n in users}
        stays |= {n for n, attends in enumerate(part.attends) if attends}
        if not stays or len(stays) == len(part.ns):
            return None
        places.append([holder if n in stays else 1 - holder for n in range(len(part.ns))])
    if 2 * sides.count * caches > sides.memory[holder] * sides.count:
        return None
    if held.weights > sides.memory[1 - holder] * sides.count:
        return None
    return _one_placement(parts, places, sides)


def bound(parts: Sequence[Part], count: int) -> float:
    """Work that divides at will, transfers free: steps in the order of their ratio, one cut."""
    items = [(a * part.share, b * part.share) for part in parts for a, b in part.ns]
    items.sort(key=lambda item: item[0] / max(item[1], 1e-12))
    left, right = 0.0, sum(b for _, b in items)
    for a, b in items:
        if left + a >= right - b:
            return (left + a * (right - left) / (a + b)) / count
        left, right = left + a, right - b
    return left / count


# --- in which order ------------------------------------------------------------------------------


def queued_period(
    parts: Sequence[Part], split: Split, sides: Sides, *, by_age: bool, requests: int = 80
) -> float:
    """The period when requests wait for one another, each with a placement of its own.

    Steps follow one another; a GPU takes the oldest request that waits, or whichever came first.
    One GPU on each side; as many requests are under way as memory has room for.
    """
    levels = [(0.5 + k * 0.618033988749895) % 1.0 for k in range(requests)]
    chains = [_chain(parts, split, sides, level) for level in levels]
    waiting: list[list[tuple[float, float, int]]] = [[], []]
    free = [0.0, 0.0]
    events: list[tuple[float, int, int]] = []  # when a request comes to the next of its stretches
    at = [0] * requests
    ended: list[float] = []
    coming = iter(range(requests))

    def begin(now: float) -> None:
        number = next(coming, None)
        if number is not None:
            heapq.heappush(events, (now, number, chains[number][0][0]))

    for _ in range(split.room):
        begin(0.0)
    now = 0.0
    while events or any(waiting):
        moments = [event[0] for event in events[:1]]
        moments += [free[d] for d in (0, 1) if waiting[d]]
        now = max(now, min(moments))
        while events and events[0][0] <= now:
            when, number, device = heapq.heappop(events)
            rank = float(number) if by_age else when
            heapq.heappush(waiting[device], (rank, when, number))
        for device in (0, 1):
            if not waiting[device] or free[device] > now:
                continue
            _, _, number = heapq.heappop(waiting[device])
            _, busy, after = chains[number][at[number]]
            free[device] = now + busy
            at[number] += 1
            if at[number] == len(chains[number]):
                ended.append(now + busy)
                begin(now + busy)
            else:
                target = chains[number][at[number]][0]
                heapq.heappush(events, (now + busy + after, number, target))
    ended.sort()
    skip = requests // 4
    return (ended[-1 - skip] - ended[skip]) / (requests - 1 - 2 * skip)


def _chain(
    parts: Sequence[Part], split: Split, sides: Sides, level: float
) -> list[tuple[int, float, float]]:
    """Steps of a request: device, time, and how long what it sends is under way."""
    chain: list[tuple[int, float, float]] = []
    for part, shares in zip(parts, split.shares, strict=True):
        sent = {}
        for tensor in part.tensors:
            sent[tensor.producer] = max(sent.get(tensor.producer, 0.0), tensor.bytes)
        for number, (row, share) in enumerate(zip(part.ns, shares, strict=True)):
            device = 0 if share >= level else 1
            ns = row[device] * part.share
            if chain and chain[-1][0] != device:
                size = sent.get(number - 1, 0.0) * part.share
                move = sides.latency_ns * part.share + size * 1e9 / sides.bytes_per_second
                tax = sides.transfer_ns * part.share
                chain[-1] = (chain[-1][0], chain[-1][1] + tax, move)
                ns += tax
            chain.append((device, ns, 0.0))
    return chain
