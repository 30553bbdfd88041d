"""Small random cases, and the best of all plans that can be written down for them one by one.

In: a seed. Out: a `Served` for the linear program, and the best rate over all plans of two GPUs and
a model of `LAYERS` layers with attention and all the rest:

- both GPUs have the whole model; each reads a share of the prompts and makes a share of the answers
  (data parallel, one GPU alone, phases, roles), shares in steps of `GRID`;
- one replica over both: every step of both phases on either GPU (layers, attention apart, kernels),
  with one to three batches under way;
- the same with attention of decode steps split by sequences over both;
- all steps of a layer on both at once, by columns and heads, with one exchange per layer.

Rates are those of devices and links that are never idle but for want of batches, so no simulation
of such a plan is faster.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

import numpy as np
import numpy.typing as npt

from benchmarks.gain.relaxation import Kind, Part, Passed, Served

LAYERS = 8
GRID = 24
LANES = (1, 2, 3)
SPLITS = (0.25, 0.5, 0.75)
ATTENTION, REST = 0, 1

Floats = npt.NDArray[np.float64]


def random_case(seed: int) -> Served:
    """Two GPUs that are good at different things; memory from scarce to plenty."""
    draw = random.Random(seed)
    batches = (1, 4, 16, 64)
    speed = (1.0, draw.uniform(0.3, 3.0))
    decode: tuple[list[tuple[float, ...]], ...] = ([], [])
    prompt: tuple[list[float], ...] = ([], [])
    for factor in speed:
        fixed, each = draw.uniform(1e3, 1e4), draw.uniform(2e2, 4e3) * draw.uniform(0.3, 3.0)
        decode[ATTENTION].append(tuple(LAYERS * (fixed + each * b) for b in batches))
        floor, each = draw.uniform(2e4, 1e5) * factor, draw.uniform(2e2, 4e3) * factor
        decode[REST].append(tuple(LAYERS * (max(floor, each * b) + each * b / 10) for b in batches))
        prompt[ATTENTION].append(LAYERS * draw.uniform(2e4, 1e6) * draw.uniform(0.3, 3.0))
        prompt[REST].append(LAYERS * draw.uniform(1e5, 3e6) * factor * draw.uniform(0.5, 2.0))
    weights = draw.uniform(2e8, 2e9)
    kept = draw.uniform(1e7, 2e8)
    rooms = [LAYERS * weights * draw.uniform(0.5, 5.0) + kept for _ in speed]
    wire = draw.choice((0.125, 1.25, 12.5, 125.0))
    passed = kept * draw.uniform(1e-5, 1e-3)
    attention = Part(
        decode=tuple(decode[ATTENTION]),
        prompt=tuple(prompt[ATTENTION]),
        kept=LAYERS * kept,
        read=LAYERS * kept * draw.uniform(0.3, 1.0),
        steps=LAYERS,
    )
    rest = Part(
        decode=tuple(decode[REST]),
        prompt=tuple(prompt[REST]),
        weights=LAYERS * weights,
        steps=LAYERS,
        joined=passed,
    )
    pairs = ((ATTENTION, REST, LAYERS), (REST, ATTENTION, LAYERS - 1))
    tokens, prompts = (
        tuple(Passed(source=a, target=b, pairs=n, bytes=size) for a, b, n in pairs)
        for size in (passed, 64 * passed)
    )
    return Served(
        kinds=tuple(Kind(count=1, memory=room, wire=wire) for room in rooms),
        parts=(attention, rest),
        passed=tokens,
        prompted=prompts,
        batches=batches,
        steps=draw.choice((1.0, 8.0, 32.0, 128.0)),
        latency=draw.choice((0.0, 1e4)),
        transfer=draw.choice((0.0, 2e3)),
        tpot=draw.choice((inf, inf, draw.uniform(2e5, 2e6))),
    )


def best_plan(served: Served) -> float:
    """The highest rate of all plans; 0 if none fits."""
    return max(itertools.chain([0.0], _replicas(served), _spread(served)))


def _ns(served: Served, part: int, kind: int, batch: float) -> float:
    """The steps of a part in all layers."""
    return float(np.interp(batch, served.batches, served.parts[part].decode[kind]))


def _batches(most: float, served: Served) -> list[float]:
    """Batches to try: those with times, a few between, and the largest that memory holds."""
    largest = min(most, served.batches[-1])
    tried = {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, int(largest) if largest >= 1 else 0}
    return [b for b in sorted(tried) if 1 <= b <= largest]


# --- a replica on each GPU --------------------------------------------------------------------


def _replicas(served: Served) -> Iterator[float]:
    weights, kept = served.weights, served.kept
    fits = [kind.memory >= weights for kind in served.kinds]
    made = []  # nanoseconds of a request's decode steps, in the best batch
    for k, kind in enumerate(served.kinds):
        whole = [
            (sum(_ns(served, part, k, b) for part in (ATTENTION, REST)), b)
            for b in _batches((kind.memory - weights) / kept, served)
        ]
        made.append(
            min((served.steps * ns / b for ns, b in whole if ns <= served.tpot), default=inf)
        )
    read = [sum(part.prompt[k] for part in served.parts) if fits[k] else inf for k in (0, 1)]
    handed = sum(part.read for part in served.parts) / served.kinds[0].wire
    for reads, makes in itertools.product(range(GRID + 1), repeat=2):
        shares = ((reads / GRID, makes / GRID), (1 - reads / GRID, 1 - makes / GRID))
        loads = [
            (p * read[k] if p else 0.0) + (d * made[k] if d else 0.0)
            for k, (p, d) in enumerate(shares)
        ]
        yield 1e9 / max(*loads, abs(reads - makes) / GRID * handed)


# --- one replica over both ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """Steps on the two GPUs, in columns: one row per placement of all layers.

    `attention` and `rest` have the share of layers on each GPU, `sent` the tensors that leave it.
    """

    attention: Floats
    rest: Floats
    sent: Floats


_AROUND = ((0, 0), (0, 1), (1, 1), (1, 0))
"""Places of attention and the rest of a layer, in an order in which neighbours send nothing."""


@lru_cache(maxsize=1)
def _placements() -> _Placed:
    """All numbers of layers with each pair of places, in the order that sends the least."""
    rows = []
    for cuts in itertools.combinations_with_replacement(range(LAYERS + 1), len(_AROUND) - 1):
        ends = (0, *cuts, LAYERS)
        counts = [b - a for a, b in itertools.pairwise(ends)]
        rounds = [(*range(first, 4), *range(first)) for first in range(4)]
        orders = [[k for n in turn for k in _AROUND[n] * counts[n]] for turn in rounds]
        rows.append(min(orders, key=lambda places: sum(_sent(places))))
    return _placed(rows)


def _sent(places: Sequence[int]) -> list[int]:
    pairs = list(itertools.pairwise(places))
    return [sum(a == k != b for a, b in pairs) for k in (0, 1)]


def _placed(rows: Sequence[Sequence[int]]) -> _Placed:
    table = np.array(rows)
    attention, rest = (
        np.stack([(table[:, part::2] == k).mean(axis=1) for k in (0, 1)], axis=1)
        for part in (ATTENTION, REST)
    )
    return _Placed(attention, rest, np.array([_sent(row) for row in rows], dtype=float))


@dataclass(frozen=True, slots=True)
class _Taken:
    """Nanoseconds of a step alone, of each GPU, of the link from each; a row per placement."""

    ns: Floats
    busy: Floats
    wires: Floats


def _taken(served: Served, placed: _Placed, ns: Sequence[Sequence[float]], size: float) -> _Taken:
    """A step of the model, by nanoseconds per part and GPU; a tensor has `size` bytes."""
    own = placed.attention * np.array(ns[ATTENTION]) + placed.rest * np.array(ns[REST])
    wires = placed.sent * size / served.kinds[0].wire
    count = placed.sent.sum(axis=1)
    alone = own.sum(axis=1) + wires.sum(axis=1)
    alone += count * (served.latency + 2 * served.transfer)
    return _Taken(alone, own + count[:, None] * served.transfer, wires)


def _spread(served: Served) -> Iterator[float]:
    size = served.passed[0].bytes
    placed = _placements()
    prompt = _taken(
        served, placed, [part.prompt for part in served.parts], served.prompted[0].bytes
    )
    for batch in _batches(inf, served):
        ns = [[_ns(served, part, k, batch) for k in (0, 1)] for part in (ATTENTION, REST)]
        step = _taken(served, placed, ns, batch * size)
        for lanes in LANES:
            yield _best(served, lanes, batch, (placed, step), (placed, prompt))
        for share in SPLITS:
            split, step = _split(served, batch, (share, 1.0 - share))
            for lanes in LANES if batch * min(share, 1.0 - share) >= 1 else ():
                yield _best(served, lanes, batch, (split, step), (placed, prompt))
            for lanes in LANES:
                both = _by_columns(served, ns, batch, (share, 1.0 - share))
                yield _best(served, lanes, batch, both, (placed, prompt))


def _by_columns(
    served: Served, ns: Sequence[Sequence[float]], batch: float, shares: tuple[float, float]
) -> tuple[_Placed, _Taken]:
    """Each GPU has a share of the heads and of the columns of every layer."""
    own = np.array([[share * t for share, t in zip(shares, row, strict=True)] for row in ns])
    size = LAYERS * batch * served.passed[0].bytes / served.kinds[0].wire
    wires = np.array([[share * size for share in shares]])  # each sends what the other lacks
    waits = LAYERS * (served.latency + 2 * served.transfer) + wires.max()
    busy = own.sum(axis=0) + LAYERS * served.transfer
    held = np.array([shares])
    return _Placed(held, held, held), _Taken(
        np.array([own.max(axis=1).sum() + waits]), busy[None, :], wires
    )


def _split(served: Served, batch: float, shares: tuple[float, float]) -> tuple[_Placed, _Taken]:
    """Each GPU takes attention of a share of the sequences; the first layers' rest is on one."""
    each = [_ns(served, ATTENTION, k, shares[k] * batch) for k in (0, 1)]
    rows = [(ATTENTION, n, first) for n in range(LAYERS + 1) for first in (0, 1)]
    rest = np.array([[n if k == first else LAYERS - n for k in (0, 1)] for _, n, first in rows])
    rest = rest / LAYERS
    # From the rest of a layer to attention on the other GPU, and back.
    size = batch * served.passed[0].bytes
    away = np.array([[r[k] * LAYERS for k in (0, 1)] for r in rest])
    sent = np.stack(
        [
            np.maximum(away[:, k] - 1, 0) * shares[1 - k] + away[:, 1 - k] * shares[k]
            for k in (0, 1)
        ],
        axis=1,
    )
    wires = sent * size / served.kinds[0].wire
    count = np.maximum(away - 1, 0).sum(axis=1) + LAYERS
    own = rest * np.array([_ns(served, REST, k, batch) for k in (0, 1)])
    alone = own.sum(axis=1) + max(each) + wires.sum(axis=1)
    alone += count * (served.latency + 2 * served.transfer)
    busy = own + np.array(each) + count[:, None] * served.transfer
    held = np.tile(np.array(shares), (len(rows), 1))
    return _Placed(held, rest, sent), _Taken(alone, busy, wires)


def _best(
    served: Served,
    lanes: int,
    batch: float,
    decode: tuple[_Placed, _Taken],
    prompt: tuple[_Placed, _Taken],
) -> float:
    """The best rate over all pairs of placements that fit in memory."""
    (made, step), (read, reading) = decode, prompt
    if not (step.ns <= served.tpot).any():
        return 0.0
    kept, handed = served.kept, sum(part.read for part in served.parts)
    fits = (step.ns <= served.tpot)[:, None] & np.ones(len(reading.ns), dtype=bool)[None, :]
    period = (step.ns * served.steps / batch)[:, None] + reading.ns[None, :]
    period /= lanes
    for k in (0, 1):
        # Layers of both phases begin at the same end, so the larger share has the smaller.
        weights = np.maximum(made.rest[:, k][:, None], read.rest[:, k][None, :])
        states = lanes * batch * kept * made.attention[:, k]
        fits &= weights * served.weights + states[:, None] <= served.kinds[k].memory
        moved = np.maximum(read.attention[:, k][None, :] - made.attention[:, k][:, None], 0.0)
        each = served.steps / batch
        busy = (step.busy[:, k] * each)[:, None] + reading.busy[:, k][None, :]
        wire = (step.wires[:, k] * each)[:, None] + reading.wires[:, k][None, :]
        wire += moved * handed / served.kinds[0].wire
        period = np.maximum(period, np.maximum(busy, wire))
    return float((1e9 / period[fits]).max()) if fits.any() else 0.0
