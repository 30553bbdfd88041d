"""What no plan can beat: a linear program over shares of work, memory, batches and links.

In: a `Served`: kinds of GPUs, parts of a model with their times, bytes, requests. Out: a `Most`:
the highest rate (or, with a demand, the least price per hour). It shares nothing with the planner
but the times.

Sequences belong to *streams*; the program chooses how many requests per second each has.

- `Whole(k)`: a GPU of kind `k` has the whole model and the states of the sequence, and takes all
  decode steps. The GPU holds all weights, so its batch is at most what the rest of memory holds.
- `Spread(low, high)`: steps of a sequence run on several GPUs; between `low` and `high` of the
  bytes of its states are on the first kind. A batch is at most what all memory holds.

Prompts of every stream are read anywhere: where attention of a prompt runs elsewhere than that of
the answer, its states cross the link (roles). Of a part of the model (equal steps of all layers),
tokens per second are divided over kinds and batches. What every plan has to respect:

- **time**: steps of a batch take what they take, between the sizes that are priced on the line
  between them; a GPU has one second per second;
- **weights**: a kind that takes a share of a part holds at least that share of its weights, and
  no sequence has more of its steps there than there are weights. The second is no linear rule: all
  intervals of the part of the weights that each kind holds (`Held`) are gone through;
- **states**: a sequence has its states in memory for as long as it is in steps (Little's law) and
  in transfers, all tokens of prompt and answer from the first decode step on; a batch is in memory
  all at once;
- **links**: where less of the producer of a tensor than of its consumer runs on a kind, the
  difference crosses, with latency, bytes, and the time that a transfer takes of both GPUs;
- **time per token**: the steps of a token take no more than the limit.

Waiting, rounding, buffers between steps and transfers between layers cost nothing, and several
GPUs that share a step take no more than a latency and a transfer for it: all of this only raises
the rate. Kinds are at most two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, product
from math import inf

import numpy as np

INTERVALS = 8
PIECES = 4
CLOSE = 1e-3
"""How near the highest rate is searched for; the upper end is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """GPUs of a kind: how many, bytes of each, bytes per nanosecond of its link, a price."""

    count: float
    memory: float
    wire: float = inf
    usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Equal steps of all layers: `steps` of them in a decode step, and in reading a prompt.

    `decode` has nanoseconds per kind and batch, `prompt` per kind (inf: it cannot run there), all
    of them together. `kept` are bytes of states per sequence, `read` those of a prompt alone.
    """

    decode: tuple[tuple[float, ...], ...]
    prompt: tuple[float, ...]
    weights: float = 0.0
    kept: float = 0.0
    read: float = 0.0
    steps: int = 1


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
    best: Most | None = None
    if served.demand is not None:
        for held in _weights_held(served):
            made = _Program(served, allowed, held, served.demand).solve()
            if made is not None and (best is None or made.usd < best.usd):
                best = made
        return best
    high = _upper(served)
    reached = 1e-6 * high  # the highest rate that some way to hold weights reaches
    for held in _weights_held(served):
        # What does not beat the ways before it is not searched for its own highest rate.
        rate, top = reached * (1 + CLOSE), high
        while rate < top:
            at = _Program(served, allowed, held, rate).solve()
            if at is not None:
                best, reached = at, rate
            elif rate <= reached * (1 + CLOSE):
                break
            else:
                top = rate
            rate = max((reached * top) ** 0.5, reached * (1 + CLOSE))
    return None if best is None else replace(best, rate=reached * (1 + CLOSE))


def _weights_held(served: Served) -> Iterator[tuple[Held, ...]]:
    """All ways to hold weights, by intervals of their part on each kind; whole copies first."""
    pieces = [Held(1.0, inf)]
    pieces += [Held(low, high) for low, high in pairwise(n / PIECES for n in range(PIECES + 1))]
    for held in product(pieces, repeat=len(served.kinds)):
        enough = sum(own.high for own in held) >= 1.0
        rooms = zip(held, served.kinds, strict=True)
        free = served.demand is not None
        if enough and all(
            free or own.low * served.weights <= kind.count * kind.memory for own, kind in rooms
        ):
            yield held


def _upper(served: Served) -> float:
    """Requests per second if every part ran where it is fastest, on all GPUs, in large batches."""
    ns = 0.0
    for part in served.parts:
        fastest = min(
            t / b for own in part.decode for t, b in zip(own, served.batches, strict=True)
        )
        ns += min(part.prompt) + served.steps * fastest
    return 1.01e9 * sum(kind.count for kind in served.kinds) / max(ns, 1e-9)


def _streams(
    served: Served, allowed: Allowed, held: tuple[Held, ...]
) -> Iterator[tuple[Stream, Times]]:
    """Streams, each with its batches and their times."""
    for stream in _all_streams(served, allowed, held):
        times = _times(served, min(_most_batch(served, stream, held), allowed.batch))
        if times:
            yield stream, times


def _all_streams(served: Served, allowed: Allowed, held: tuple[Held, ...]) -> Iterator[Stream]:
    kinds = served.kinds
    for number, own in enumerate(held):
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


def _most_batch(served: Served, stream: Stream, held: tuple[Held, ...]) -> float:
    """Sequences of one batch: all of them are in memory at once, beside the weights."""
    if isinstance(stream, Whole):
        room = served.kinds[stream.kind].memory - served.weights
    elif served.demand is not None:
        return inf
    else:
        room = sum(kind.count * kind.memory for kind in served.kinds)
        room -= served.weights * max(1.0, sum(own.low for own in held))
    return -1.0 if room < 0 else (room / served.kept if served.kept else inf)


Times = dict[float, list[list[float]]]
"""Batches, each with nanoseconds per part and kind."""


def _times(served: Served, batch: float) -> Times:
    """Batches up to a size; empty if not even one sequence fits."""
    known = [float(b) for b in served.batches]
    if batch < known[0]:
        return {}
    at = [b for b in known if b <= batch]
    at += [batch] if at[-1] < batch < known[-1] else []
    return {b: [[_line(b, known, own) for own in part.decode] for part in served.parts] for b in at}


def _line(size: float, known: list[float], ns: tuple[float, ...]) -> float:
    return float(np.interp(size, known, ns)) if inf not in ns else inf


Row = defaultdict[int, float]


class _Program:
    """The program at one rate: is it reached, and what are the least dollars?"""

    def __init__(
        self,
        served: Served,
        allowed: Allowed,
        weights: tuple[Held, ...],
        rate: float,
    ) -> None:
        self.served, self.rate, self.allowed, self.weights = served, rate, allowed, weights
        streams = dict(_streams(served, allowed, weights))
        self.most: list[float] = []
        self.cost: list[float] = []
        self.rows: list[tuple[float, Row]] = []
        kinds, parts = range(len(served.kinds)), range(len(served.parts))
        free = served.demand is not None
        self.counts = [
            self.variable(inf if free else kind.count, kind.usd) for kind in served.kinds
        ]
        self.busy, self.memory, self.out, self.into = (
            [Row(float) for _ in kinds] for _ in range(4)
        )
        self.held = [[self.variable() for _ in kinds] for _ in parts]
        self.shares = [[[Row(float) for _ in kinds] for _ in parts] for _ in range(2)]
        self.streams = {stream: self.variable() for stream in streams}
        for stream, sizes in streams.items():
            self._stream(stream, sizes)
        together = Row(float, dict.fromkeys(self.streams.values(), -1.0))
        self.row(together, -1.0)
        for k, kind in enumerate(served.kinds):
            for part in parts:
                self.memory[k][self.held[part][k]] += served.parts[part].weights / 1e9
                for own in self.shares:
                    own[part][k][self.held[part][k]] -= 1.0
                    self.row(own[part][k])
            copies = Row(float)
            for part, own in zip(served.parts, self.held, strict=True):
                copies[own[k]] -= part.weights / 1e9
            self.row(copies, -weights[k].low * served.weights / 1e9)
            for row, each in (
                (self.memory[k], kind.memory / 1e9),
                (self.busy[k], 1.0),
                (self.out[k], kind.wire),
                (self.into[k], kind.wire),
            ):
                if each < inf:
                    row[self.counts[k]] -= each
                    self.row(row)

    def variable(self, most: float = inf, cost: float = 0.0) -> int:
        """A column from zero on."""
        self.most.append(most)
        self.cost.append(cost)
        return len(self.most) - 1

    def row(self, row: Row, most: float = 0.0) -> None:
        """What these columns sum up to is at most `most`."""
        self.rows.append((most, row))

    # Streams: of all requests, so `per` turns something of each request into something per second.

    def _stream(self, stream: Stream, sizes: Times) -> None:
        served, share = self.served, self.streams[stream]
        kinds = [stream.kind] if isinstance(stream, Whole) else list(range(len(served.kinds)))
        tokens = self.rate * served.steps / 1e9  # seconds per second, from nanoseconds per token
        busy = [Row(float) for _ in served.kinds]
        flight = Row(float)  # sequences in steps and in transfers
        done: list[list[Row]] = []
        gpus = inf if served.demand is not None else sum(kind.count for kind in served.kinds)
        for p, part in enumerate(served.parts):
            made = [Row(float) for _ in served.kinds]
            for k in kinds:
                for size, ns in sizes.items():
                    each = ns[p][k]
                    if each == inf:
                        continue
                    column = self.variable()
                    made[k][column] = 1.0
                    busy[k][column] += tokens * each / size
                    flight[column] += tokens * each
                    if (
                        isinstance(stream, Spread)
                        and gpus > 1
                        and each / gpus < each - served.latency * part.steps
                    ):
                        shared = self.variable()  # several GPUs share the step
                        made[k][shared] = 1.0
                        tax = part.steps * served.transfer
                        busy[k][shared] += tokens * (each + tax) / size
                        flight[shared] += tokens * (each / gpus + part.steps * served.latency)
            self._whole(made, share)
            for k in kinds:
                _add(self.shares[0][p][k], made[k])
            done.append(made)
        if served.steps:
            self._crossing(stream, done, busy, flight, tokens, max(sizes))
            self._states(stream, done, flight, share, sizes)
        self._weights(done, share)
        for k in kinds:
            _add(self.busy[k], busy[k])
        if isinstance(stream, Whole):
            self._alone(stream, busy[stream.kind], flight, sizes)
        if served.tpot < inf and served.steps:
            limit = Row(float, flight)
            limit[share] -= tokens * served.tpot
            self.row(limit)
        self._prompt(stream, share, done)

    def _whole(self, made: list[Row], share: int) -> None:
        """All of a part is done somewhere."""
        total = Row(float)
        for row in made:
            _add(total, row, -1.0)
        total[share] += 1.0
        self.row(total)

    def _weights(self, done: list[list[Row]], share: int) -> None:
        """A sequence has no more of its steps on a kind than the kind has of the weights."""
        for k, held in enumerate(self.weights):
            if held.high < 1.0:
                used = Row(float)
                for own, part in zip(done, self.served.parts, strict=True):
                    _add(used, own[k], part.weights / self.served.weights)
                used[share] -= held.high
                self.row(used)

    def _crossing(
        self,
        stream: Stream,
        done: list[list[Row]],
        busy: list[Row],
        flight: Row,
        tokens: float,
        batch: float,
    ) -> None:
        served = self.served
        if isinstance(stream, Whole) or len(served.kinds) < 2:
            return
        for tensor, source, target, crossing in self._crossed(
            served.passed, done, self.streams[stream]
        ):
            wire = min(served.kinds[source].wire, served.kinds[target].wire)
            if tensor.waits:
                flight[crossing] += tokens * (served.latency + tensor.bytes / wire)
            for k in (source, target):
                busy[k][crossing] += tokens * served.transfer / batch
            self.out[source][crossing] += tokens * tensor.bytes
            self.into[target][crossing] += tokens * tensor.bytes

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
        sizes: Times,
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

    def _alone(self, stream: Whole, busy: Row, flight: Row, sizes: Times) -> None:
        """GPUs that have the whole model: each holds all weights, and so many sequences."""
        k = stream.kind
        gpus = self.variable()
        self.row(Row(float, {gpus: 1.0, self.counts[k]: -1.0}))
        for own in self.held:
            self.row(Row(float, {gpus: 1.0, own[k]: -1.0}))
        for row, each in ((busy, 1.0), (flight, _most_batch(self.served, stream, self.weights))):
            if each < inf:
                limited = Row(float, row)
                limited[gpus] -= each
                self.row(limited)

    def _prompt(self, stream: Stream, share: int, done: list[list[Row]]) -> None:
        """Prompts are read anywhere, or (without roles) where the answer is made."""
        served = self.served
        read: list[list[Row]] = []
        second = self.rate / 1e9
        for p, part in enumerate(served.parts):
            made = [Row(float) for _ in served.kinds]
            for k in range(len(served.kinds)):
                if part.prompt[k] == inf:
                    continue
                column = self.variable()
                made[k][column] = 1.0
                self.busy[k][column] += second * part.prompt[k]
                if not self.allowed.roles:
                    same = Row(float, done[p][k])
                    same[column] -= 1.0
                    self.row(same)
                    self.row(Row(float, {n: -x for n, x in same.items()}))
            self._whole(made, share)
            for k in range(len(served.kinds)):
                _add(self.shares[1][p][k], made[k])
            read.append(made)
        self._weights(read, share)
        if len(served.kinds) < 2:
            return
        for tensor, source, target, crossing in self._crossed(served.prompted, read, share):
            self.out[source][crossing] += second * tensor.bytes
            self.into[target][crossing] += second * tensor.bytes
            for k in (source, target):
                self.busy[k][crossing] += second * served.transfer
        for own, after, part in zip(read, done, served.parts, strict=True):
            for source, target in ((0, 1), (1, 0)) if part.read and served.steps else ():
                handed = self._difference(own[source], after[source])
                self.out[source][handed] += second * part.read
                self.into[target][handed] += second * part.read

    def solve(self) -> Most | None:
        """The cheapest way to reach the rate; None if there is none."""
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.most), len(self.rows)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_ = np.zeros(len(self.most))
        lp.col_upper_ = np.array(self.most)
        lp.row_lower_ = np.full(len(self.rows), -inf)
        lp.row_upper_ = np.array([most for most, _ in self.rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(row) for _, row in self.rows)])
        lp.a_matrix_.index_ = np.array([n for _, row in self.rows for n in row])
        lp.a_matrix_.value_ = np.array([x for _, row in self.rows for x in row.values()])
        solver = highspy.Highs()
        solver.silent()
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        values = solver.getSolution().col_value
        usd = sum(x * cost for x, cost in zip(values, self.cost, strict=True))
        rates = {stream: self.rate * values[column] for stream, column in self.streams.items()}
        return Most(rate=self.rate, usd=usd, streams=rates)


def _add(row: Row, other: Mapping[int, float], times: float = 1.0) -> None:
    for column, value in other.items():
        row[column] += times * value
