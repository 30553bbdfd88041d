"""What no plan can beat: a linear program over shares of work, memory, batches and links.

In: a `Served`: kinds of GPUs, parts of a model with their times, bytes, requests. Out: a `Most`:
the highest rate (or, with a demand, the least price per hour). It shares nothing with the planner
but the times.

Sequences belong to *streams*; the program chooses how many requests per second each has.

- `Whole(k)`: a GPU of kind `k` has the whole model and the states of the sequence, and takes all
  decode steps. The GPU holds all weights, so its batch is at most what the rest of memory holds.
- `Spread(low, high)`: steps of a sequence run on several GPUs; between `low` and `high` of the
  bytes of its states are on the first kind. A batch is at most what all memory holds.

Sequences of a batch make each token together: the largest launch of their step takes all of them.
Prompts of every stream are read anywhere: where attention of a prompt runs elsewhere than that of
the answer, its states cross the link (roles). Of a part of the model (equal steps of all layers),
tokens per second are divided over kinds, batches and `_Way`s. What every plan has to respect:

- **time**: steps of a batch take what they take, between the sizes that are priced on the line
  between them; a GPU has one second per second;
- **launches**: one GPU takes a launch whole, or several do at once. By sequences, each reads all
  weights for fewer of them; by weights, activations are exchanged. However it is cut, it lasts no
  shorter than if all GPUs of a kind had equal parts of what that kind takes of it;
- **weights**: a sequence has no more of its steps, those of its prompt included, on a kind than the
  kind has of the weights. That is no linear rule: boxes of the parts of the weights that kinds hold
  (`Held`) are bounded, the best first, and halved;
- **states**: a sequence has its states in memory for as long as it is in steps (Little's law) and
  in transfers, all tokens of prompt and answer from the first decode step on; a batch is in memory
  all at once;
- **links**: where less of the producer of a tensor than of its consumer runs on a kind, the
  difference crosses, with latency, bytes, and the time that a transfer takes of both GPUs;
- **time per token**: the steps of a token take no more than the limit.

Waiting, rounding, buffers between steps and transfers between layers cost nothing: all of this only
raises the rate. Kinds are at most two.

Longer than 400 lines because the rules of the program are one list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, pairwise, product
from math import ceil, inf, log

import numpy as np

INTERVALS = 4
NARROW = 1 / 8
"""Boxes of weights are not halved below this."""
BOXES, PATIENCE, CLOSE = 16, 3, 1e-3
"""How many boxes are bounded at most, and after how many with the same bound no more are."""
APART = 1.42
"""How far large batches are apart at most: the next over the one before. Small ones are further."""
SMALL = 0.02
"""Parts below this share of every step are not told apart by ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """GPUs of a kind: how many, bytes of each, bytes per nanosecond of its link, a price.

    `inner` and `inner_latency` are of the links between GPUs of the kind.
    """

    count: float
    memory: float
    wire: float = inf
    usd: float = 0.0
    inner: float = inf
    inner_latency: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal steps of all layers: `steps` of them in a decode step, and in reading a prompt.

    `decode` has nanoseconds per kind and batch, `prompt` per kind (inf: it cannot run there), all
    of them together. `kept` are bytes of states per sequence, `read` those of a prompt alone.
    GPUs that each have a part of the weights of a step exchange `joined` bytes per token for it; at
    0, they may have parts of it for nothing, and at inf, no launch of it is cut.
    """

    decode: tuple[tuple[float, ...], ...]
    prompt: tuple[float, ...]
    weights: float = 0.0
    kept: float = 0.0
    read: float = 0.0
    steps: int = 1
    joined: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """What one part makes for another: in so many pairs of their steps a tensor, and its bytes.

    Bytes are those of a token in a decode step, or those of a whole prompt. No step of either part
    is in two pairs. `waits`: the one step follows the other, so that nothing hides the transfer.
    """

    source: int
    target: int
    pairs: int
    bytes: float
    waits: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A model on GPUs, and requests: `steps` decode steps each. Times are nanoseconds.

    `passed` is what decode steps pass, `prompted` what reading a prompt does. `batches` are the
    sizes with times. With `demand`, kinds may be taken as often as needed.
    """

    kinds: tuple[Kind, ...]
    parts: tuple[Part, ...]
    passed: tuple[Passed, ...]
    prompted: tuple[Passed, ...]
    batches: tuple[int, ...]
    steps: float
    latency: float = 0.0
    transfer: float = 0.0
    tpot: float = inf
    demand: float | None = None

    @property
    def weights(self) -> float:
        """Bytes of all weights."""
        return sum(part.weights for part in self.parts)

    @property
    def kept(self) -> float:
        """Bytes of the states of a sequence."""
        return sum(part.kept for part in self.parts)


@dataclass(frozen=True, slots=True)
class Whole:
    """Sequences with all decode steps on one GPU of a kind."""

    kind: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Sequences on several GPUs, with `low` to `high` of their states on the first kind."""

    low: float
    high: float


Stream = Whole | Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """Which plans are bounded: with prompts elsewhere, spread over GPUs, batches up to `batch`."""

    roles: bool = True
    spread: bool = True
    batch: float = inf


@dataclass(frozen=True, slots=True)
class Held:
    """The part of the weights that a kind of GPU holds, between two numbers; 1: all of them."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Most:
    """Requests per second that no plan exceeds, and dollars per hour; rates per stream."""

    rate: float
    usd: float
    streams: Mapping[Stream, float] = field(default_factory=dict)


def most(served: Served, allowed: Allowed | None = None) -> Most | None:
    """The bound; None if no plan fits."""
    allowed = allowed or Allowed()
    ticket = count()
    boxes: list[tuple[float, int, tuple[Held, ...], Most]] = []

    def bound(box: tuple[Held, ...]) -> None:
        made = _Program(served, allowed, box).solve() if _fits(served, box) else None
        if made is not None and made.rate > 0:
            heappush(boxes, (made.usd if served.demand else -made.rate, next(ticket), box, made))

    for box in product((Held(1.0, inf), Held(0.0, 1.0)), repeat=len(served.kinds)):
        bound(box)
    seen: list[float] = []
    while boxes:
        value, number, box, made = boxes[0]
        wide = [min(held.high, 1.0) - held.low for held in box]
        seen.append(value)
        is_flat = len(seen) > PATIENCE and abs(value / seen[-PATIENCE - 1] - 1) < CLOSE
        if max(wide) <= NARROW or number >= BOXES or is_flat:
            return made
        heappop(boxes)
        at = wide.index(max(wide))
        middle = box[at].low + wide[at] / 2
        for half in (Held(box[at].low, middle), Held(middle, box[at].high)):
            bound((*box[:at], half, *box[at + 1 :]))
    return None


def _fits(served: Served, box: tuple[Held, ...]) -> bool:
    """Whether kinds can hold so much of the weights, and all of them together."""
    rooms = zip(box, served.kinds, strict=True)
    return sum(own.high for own in box) >= 1.0 and all(
        served.demand is not None or own.low * served.weights <= kind.count * kind.memory
        for own, kind in rooms
    )


def _streams(
    served: Served, allowed: Allowed, box: tuple[Held, ...]
) -> Iterator[tuple[Stream, list[_Size]]]:
    """Streams, each with its batches and their times."""
    for stream in _all_streams(served, allowed, box):
        sizes = _sizes(served, min(_most_batch(served, stream, box), allowed.batch))
        if sizes:
            yield stream, sizes


def _all_streams(served: Served, allowed: Allowed, box: tuple[Held, ...]) -> Iterator[Stream]:
    kinds = served.kinds
    for number, own in enumerate(box):
        if own.low >= 1.0:
            yield Whole(number)
    if not allowed.spread or (served.demand is None and sum(kind.count for kind in kinds) < 2):
        return
    if len(kinds) == 1 or not served.kept:
        yield Spread(0.0, 1.0)
        return
    yield Spread(0.0, 0.0)
    yield Spread(1.0, 1.0)
    for low, high in pairwise(n / INTERVALS for n in range(INTERVALS + 1)):
        yield Spread(low, high)


def _most_batch(served: Served, stream: Stream, box: tuple[Held, ...]) -> float:
    """Sequences of one batch: all of them are in memory at once, beside the weights."""
    if isinstance(stream, Whole):
        rooms, shares = [served.kinds[stream.kind].memory - served.weights], [1.0]
    elif served.demand is not None:
        return inf
    else:
        pairs = zip(served.kinds, box, strict=True)
        rooms = [kind.count * kind.memory - own.low * served.weights for kind, own in pairs]
        shares = [stream.low, 1.0 - stream.high][: len(rooms)]
        twice = max(0.0, 1.0 - sum(own.low for own in box))
        rooms.append(sum(rooms) - twice * served.weights)
        shares.append(1.0)
    if min(rooms) < 0:
        return -1.0
    held = (room / (share * served.kept) for room, share in zip(rooms, shares, strict=True)
            if share * served.kept)  # fmt: skip
    return min(held, default=inf)


@dataclass(frozen=True, slots=True)
class _Size:
    """A batch: nanoseconds per part and kind, and how long a launch lasts at least.

    A batch between two sizes counts as some of both, as many as have its time of GPUs per sequence.
    Their launches last longer than its own, by `ratio` at most, and `lasts` is without that.
    `next` is how far the sizes beside it are apart from it.
    """

    batch: float
    next: float
    ratio: float
    ns: tuple[tuple[float, ...], ...]
    lasts: tuple[tuple[float, ...], ...]


def _sizes(served: Served, batch: float) -> list[_Size]:
    """Batches up to a size; empty if not even one sequence fits."""
    known = [float(b) for b in served.batches]
    if batch < known[0]:
        return []
    at = [b for b in known if b <= batch]
    at += [batch] if at[-1] < batch < known[-1] else []
    fine = at[:1]
    for low, high in pairwise(at):
        pieces = ceil(log(high / low) / log(APART if high > at[-1] / 3 else 4 * APART))
        fine += [low * (high / low) ** (n / pieces) for n in range(1, pieces + 1)]
    made = []
    for number, b in enumerate(fine):
        near = [fine[n] for n in (number - 1, number + 1) if 0 <= n < len(fine)]
        ratio = max(((a + b) ** 2 / (4 * a * b) for a in near), default=1.0)
        ns, lasts = [], []
        for part in served.parts:
            ns.append(tuple(_line(b, known, row) for row in part.decode))
            own = []
            for t, row in zip(ns[-1], part.decode, strict=True):
                # The line through two sizes may begin below zero; then that much more is off.
                starts = [(b * _line(a, known, row) - a * t) / (b - a) for a in near if t < inf]
                own.append(max(0.0, t + (ratio - 1) * min([0.0, *starts])) / ratio)
            lasts.append(tuple(own))
        apart = max((max(a / b, b / a) for a in near), default=1.0)
        made.append(_Size(b, apart, ratio, tuple(ns), tuple(lasts)))
    return made


def _line(size: float, known: Sequence[float], ns: tuple[float, ...]) -> float:
    return float(np.interp(size, known, ns)) if inf not in ns else inf


def _least_each(size: float, known: Sequence[float], ns: tuple[float, ...]) -> float:
    """The least time per sequence of all batches up to a size."""
    at = [size, *(b for b in known if b < size)]
    return min(_line(b, known, ns) / b for b in at)


def _least_from(size: float, known: Sequence[float], ns: tuple[float, ...]) -> float:
    """The least time of all batches from a size on."""
    return min(_line(size, known, ns), *(t for b, t in zip(known, ns, strict=True) if b >= size))


Row = defaultdict[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a launch is taken, per kind: GPU time per sequence, and how long it lasts at least.

    Where several GPUs take it, `even` is how long it lasts if those of a kind have equal parts of
    all of it, `waits` the time of exchanges and `exchanged` their bytes per token over links.
    `copied`: both kinds have the weights.
    """

    each: tuple[float, ...]
    lasts: tuple[float, ...]
    even: tuple[float, ...] = ()
    waits: tuple[float, ...] = (0.0, 0.0)
    exchanged: float = 0.0
    copied: bool = False


def _ways(served: Served, p: int, size: _Size, total: Sequence[float]) -> Iterator[_Way]:
    """All ways to take the launches of a part in a batch; `total` is the time of all parts."""
    part, b, known = served.parts[p], size.batch, [float(n) for n in served.batches]
    free = served.demand is not None
    counts = [inf if free else kind.count for kind in served.kinds]
    least = tuple(_least_each(b, known, row) for row in part.decode)
    even = tuple(b * t / n / size.ratio for t, n in zip(least, counts, strict=True))
    if all(t <= SMALL * all_ns for t, all_ns in zip(size.ns[p], total, strict=True)):
        yield _Way(each=least, lasts=tuple(t / sum(counts) for t in size.lasts[p]))
        return
    yield _Way(each=tuple(t / b for t in size.ns[p]), lasts=size.lasts[p])
    if not part.joined:
        floor = tuple(_least_from(known[0], known, row) for row in part.decode)
        yield _Way(each=least, lasts=floor, even=even)
        return
    if part.joined == inf:
        return
    alone = not free and all(n == 1 for n in counts)
    wires = [min(own.wire for own in served.kinds) if alone else k.inner for k in served.kinds]
    latency = [served.latency if alone else k.inner_latency for k in served.kinds]
    yield _Way(
        each=tuple((t + part.steps * served.transfer) / b for t in size.ns[p]),
        lasts=(0.0,) * len(counts),
        even=tuple(t / n for t, n in zip(size.lasts[p], counts, strict=True)),
        waits=tuple(
            part.steps * (wait + b * part.joined / 2 / wire / size.ratio)
            for wait, wire in zip(latency, wires, strict=True)
        ),
        exchanged=part.steps * part.joined if alone else 0.0,
    )
    for halved in range(3):  # by sequences, of which the largest part is so often halved
        most_of = b if not halved else min(b * size.next / 2**halved, known[-1])
        fewest = known[0] if halved == 2 else max(known[0], b / size.next / 2 ** (halved + 1))
        yield _Way(
            each=tuple(_least_each(most_of, known, row) for row in part.decode),
            lasts=tuple(_least_from(fewest, known, row) for row in part.decode),
            even=even,
            copied=alone,
        )


class _Program:
    """The program of one box of weights: the highest rate, or the least dollars."""

    def __init__(self, served: Served, allowed: Allowed, box: tuple[Held, ...]) -> None:
        self.served, self.allowed, self.box = served, allowed, box
        self.bounds: list[tuple[float, float]] = []
        self.cost: list[float] = []
        self.rows: list[tuple[float, Row]] = []
        kinds = range(len(served.kinds))
        free = served.demand is not None
        self.counts = [
            self.variable(inf, kind.usd) if free else self.variable(kind.count)
            for kind in served.kinds
        ]
        self.held = [self.variable(own.high, least=own.low) for own in box]
        self.row(Row(float, dict.fromkeys(self.held, -1.0)), -1.0)
        self.busy, self.memory, self.out, self.into = (
            [Row(float) for _ in kinds] for _ in range(4)
        )
        self.exchanged = Row(float)
        self.streams: dict[Stream, int] = {}
        for stream, sizes in _streams(served, allowed, box):
            self.streams[stream] = self.variable(cost=0.0 if free else -1.0)
            self._stream(stream, sizes)
        if served.demand is not None:
            self.row(Row(float, dict.fromkeys(self.streams.values(), -1.0)), -served.demand)
        for k, kind in enumerate(served.kinds):
            self.memory[k][self.held[k]] += served.weights / 1e9
            for row, each in (
                (self.memory[k], kind.memory / 1e9),
                (self.busy[k], 1.0),
                (self.out[k], kind.wire),
                (self.into[k], kind.wire),
            ):
                if each < inf:
                    row[self.counts[k]] -= each
                    self.row(row)
        if self.exchanged and all(kind.wire < inf for kind in served.kinds):
            for both in (self.out, self.into):
                for row in both:
                    _add(self.exchanged, row)
                self.row(self.exchanged)
                for row in both:
                    _add(self.exchanged, row, -1.0)

    def variable(self, most: float = inf, cost: float = 0.0, least: float = 0.0) -> int:
        """A column."""
        self.bounds.append((least, most))
        self.cost.append(cost)
        return len(self.bounds) - 1

    def row(self, row: Mapping[int, float], most: float = 0.0) -> None:
        """What these columns sum up to is at most `most`."""
        self.rows.append((most, Row(float, row)))

    # Streams: columns are requests per second.

    def _stream(self, stream: Stream, sizes: list[_Size]) -> None:
        served, share = self.served, self.streams[stream]
        kinds = [stream.kind] if isinstance(stream, Whole) else list(range(len(served.kinds)))
        per = served.steps / 1e9  # seconds per request, from nanoseconds per token
        busy = [Row(float) for _ in served.kinds]
        flight = Row(float)  # sequences in steps and in transfers
        done, used = ([[Row(float) for _ in served.kinds] for _ in served.parts] for _ in range(2))
        batches = []
        for size in sizes:
            batches.append(self.variable())
            total = [sum(ns) for ns in zip(*size.ns, strict=True)]
            for p in range(len(served.parts)):
                taken = Row(float, {batches[-1]: 1.0})
                for number, way in enumerate(_ways(served, p, size, total)):
                    if number and isinstance(stream, Whole):
                        break
                    self._way(way, kinds, taken, (busy, flight, done[p], used[p]))
                self.row(taken)
        together = Row(float, dict.fromkeys(batches, -1.0))
        together[share] += 1.0
        self.row(together)
        if served.steps:
            self._crossing(stream, done, busy, flight, max(size.batch for size in sizes))
            self._states(stream, done, flight, share)
        for k in kinds:
            _add(self.busy[k], busy[k])
        if isinstance(stream, Whole):
            self._alone(stream, busy[stream.kind], flight)
        if served.tpot < inf and served.steps:
            limit = Row(float, flight)
            limit[share] -= per * served.tpot
            self.row(limit)
        read = self._prompt(share, done)
        self._weights(share, used, read)

    def _way(
        self,
        way: _Way,
        kinds: list[int],
        taken: Row,
        to: tuple[list[Row], Row, list[Row], list[Row]],
    ) -> None:
        busy, flight, done, used = to
        per = self.served.steps / 1e9
        columns = {k: self.variable() for k in kinds if way.each[k] < inf}
        for k, column in columns.items():
            taken[column] = -1.0
            busy[k][column] += per * way.each[k]
            done[k][column] = 1.0
            for other in range(len(used)) if way.copied else (k,):
                used[other][column] = 1.0
            if way.exchanged:
                self.exchanged[column] = per * way.exchanged
        if not way.even:
            for k, column in columns.items():
                flight[column] = per * way.lasts[k]
            return
        lasts = self.variable()
        flight[lasts] = per
        self.row({lasts: -1.0} | {column: way.lasts[k] for k, column in columns.items()})
        for k, column in columns.items():
            flight[column] = per * way.waits[k]
            self.row({lasts: -1.0, column: way.even[k]})

    def _weights(self, share: int, used: list[list[Row]], read: list[list[Row]]) -> None:
        """A sequence has no more of its steps on a kind than the kind has of the weights."""
        served = self.served
        for k, held in enumerate(self.box):
            if held.high < 1.0:
                here = Row(float, {share: -held.high})
                for p, part in enumerate(served.parts):
                    if part.weights:
                        column = self.variable()
                        here[column] = part.weights / served.weights
                        for own in (used[p][k], read[p][k]):
                            self.row(Row(float, own) | {column: -1.0})
                self.row(here)

    def _crossing(
        self,
        stream: Stream,
        done: list[list[Row]],
        busy: list[Row],
        flight: Row,
        batch: float,
    ) -> None:
        served, per = self.served, self.served.steps / 1e9
        if isinstance(stream, Whole) or len(served.kinds) < 2:
            return
        for tensor, source, target, crossing in self._crossed(
            served.passed, done, self.streams[stream]
        ):
            wire = min(served.kinds[source].wire, served.kinds[target].wire)
            if tensor.waits:
                flight[crossing] += per * (served.latency + tensor.bytes / wire)
            for k in (source, target):
                busy[k][crossing] += per * served.transfer / batch
            self.out[source][crossing] += per * tensor.bytes
            self.into[target][crossing] += per * tensor.bytes

    def _crossed(
        self, passed: Sequence[Passed], done: list[list[Row]], share: int
    ) -> Iterator[tuple[Passed, int, int, int]]:
        """Tensors that leave a kind: its producers that have a consumer, less its consumers."""
        for tensor in passed:
            first, second = (self.served.parts[n].steps for n in (tensor.source, tensor.target))
            for source, target in ((0, 1), (1, 0)):
                more, less = Row(float), Row(float)
                _add(more, done[tensor.source][source], first)
                more[share] -= first - tensor.pairs
                _add(less, done[tensor.target][source], second)
                yield tensor, source, target, self._difference(more, less)

    def _difference(self, more: Row, less: Row) -> int:
        """A column of at least the difference of two."""
        column = self.variable()
        row = Row(float, more)
        _add(row, less, -1.0)
        row[column] -= 1.0
        self.row(row)
        return column

    def _states(
        self,
        stream: Stream,
        done: list[list[Row]],
        flight: Row,
        share: int,
    ) -> None:
        """Sequences in flight hold their states, where attention runs."""
        served = self.served
        if not served.kept:
            return
        held = [self.variable() for _ in served.kinds]  # sequences, by the bytes of their states
        if isinstance(stream, Whole):
            shares = [float(k == stream.kind) for k in range(len(held))]
            bounds = [(low, low) for low in shares]
        elif len(held) == 1:
            bounds = [(1.0, 1.0)]
        else:
            bounds = [(stream.low, stream.high), (1 - stream.high, 1 - stream.low)]
        everything = Row(float, flight)
        for k, column in enumerate(held):
            everything[column] -= 1.0
            self.memory[k][column] += served.kept / 1e9
            low, high = bounds[k]
            least = Row(float, {n: low * x for n, x in flight.items()})
            least[column] -= 1.0
            self.row(least)
            attention = Row(float)
            for own, part in zip(done, served.parts, strict=True):
                _add(attention, own[k], part.kept / served.kept)
            above, below = Row(float, attention), Row(float)
            above[share] -= high
            _add(below, attention, -1.0)
            below[share] += low
            self.row(above)
            self.row(below)
        self.row(everything)

    def _alone(self, stream: Whole, busy: Row, flight: Row) -> None:
        """GPUs that have the whole model: each holds all weights, and so many sequences."""
        k = stream.kind
        gpus = self.variable()
        for limit in (self.counts[k], self.held[k]):
            self.row({gpus: 1.0, limit: -1.0})
        for row, each in ((busy, 1.0), (flight, _most_batch(self.served, stream, self.box))):
            if each < inf:
                self.row(row | {gpus: -each})

    def _prompt(self, share: int, done: list[list[Row]]) -> list[list[Row]]:
        """Prompts are read anywhere, or (without roles) where the answer is made."""
        served = self.served
        read: list[list[Row]] = []
        for p, part in enumerate(served.parts):
            made = [Row(float) for _ in served.kinds]
            everywhere = Row(float, {share: 1.0})
            for k in range(len(served.kinds)):
                if part.prompt[k] == inf:
                    continue
                column = self.variable()
                made[k][column] = 1.0
                everywhere[column] = -1.0
                self.busy[k][column] += part.prompt[k] / 1e9
                if not self.allowed.roles:
                    same = done[p][k] | {column: -1.0}
                    self.row(same)
                    self.row({n: -x for n, x in same.items()})
            self.row(everywhere)
            read.append(made)
        if len(served.kinds) < 2:
            return read
        for tensor, source, target, crossing in self._crossed(served.prompted, read, share):
            self.out[source][crossing] += tensor.bytes / 1e9
            self.into[target][crossing] += tensor.bytes / 1e9
            for k in (source, target):
                self.busy[k][crossing] += served.transfer / 1e9
        for own, after, part in zip(read, done, served.parts, strict=True):
            for source, target in ((0, 1), (1, 0)) if part.read and served.steps else ():
                handed = self._difference(own[source], after[source])
                self.out[source][handed] += part.read / 1e9
                self.into[target][handed] += part.read / 1e9
        return read

    def solve(self) -> Most | None:
        """The bound of this box; None if no plan fits."""
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.bounds), len(self.rows)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.array([least for least, _ in self.bounds])
        lp.col_upper_ = np.array([most for _, most in self.bounds])
        lp.row_lower_ = np.full(len(self.rows), -inf)
        lp.row_upper_ = np.array([most for most, _ in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for _, row in self.rows)])
        lp.a_matrix_.index_ = np.array([n for _, row in self.rows for n in row])
        lp.a_matrix_.value_ = np.array([x for _, row in self.rows for x in row.values()])
        solver = highspy.Highs()
        solver.silent()
        solver.setOptionValue("small_matrix_value", 1e-12)
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = solver.getSolution().col_value
        usd = sum(
            values[n] * kind.usd for n, kind in zip(self.counts, self.served.kinds, strict=True)
        )
        rates = {stream: max(0.0, values[column]) for stream, column in self.streams.items()}
        return Most(rate=sum(rates.values()), usd=usd, streams=rates)


def _add(row: Row, other: Mapping[int, float], times: float = 1.0) -> None:
    for column, value in other.items():
        row[column] += times * value
