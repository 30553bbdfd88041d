"""`diff`: what differs between two plans, and which of it changes the predictions.

In: two plan files or `Plan` records. Out: a `PlanDiff`. The stages, in order:

1. `read_followed`: both plans, read and checked like any plan.
2. Differences by record: traces, options, devices, links, slots; for traces that both plans serve
   also where steps run, how long they take there, and what is moved.
3. `_causes`: the first plan is simulated again with one thing after the other taken from the second
   plan: durations of the steps that keep their device, links, slots, and finally everything. The
   effect of a change depends on those before it, so the order is part of the answer.

Devices are the same if their names are equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.ir.choices import Ending
from tessera.ir.graph.layers import kernel_family
from tessera.ir.plan.plan import PlacedStep, Plan, PlannedTrace, Replica, parts_of_placed
from tessera.ir.progress import OnProgress, StageProgress
from tessera.simulation.hardware import Hardware, hardware_of
from tessera.simulation.simulate import alone, shares_of, with_counts
from tessera.simulation.simulate_plan import check_followed, read_followed
from tessera.simulation.steady import saturate

_SAME = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FigurePair:
    """A value in both plans; None if a plan does not have it."""

    name: str
    unit: str
    before: float | None
    after: float | None

    @property
    def is_same(self) -> bool:
        """Whether both are equal, up to rounding."""
        if self.before is None or self.after is None:
            return self.before is self.after
        return abs(self.after - self.before) <= _SAME * max(abs(self.before), abs(self.after))


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedSteps:
    """Steps of one family that run on another device."""

    trace: str
    family: str
    source: str
    target: str
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retimed:
    """Steps of one family that keep their device and have another predicted time there."""

    trace: str
    family: str
    device: str
    steps: int
    before_ns: float
    after_ns: float
    sources: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """The simulated figures once the first plan also takes this from the second."""

    name: str
    period_ns: float
    latency_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDiff:
    """The differences between two plans. `notes` say what cannot be compared, and why."""

    names: tuple[str, str]
    plans: tuple[Plan, Plan]
    figures: tuple[FigurePair, ...]
    settings: tuple[tuple[str, str, str], ...]
    traces: tuple[tuple[str, str], ...]
    moves: tuple[MovedSteps, ...]
    stayed: int
    retimed: tuple[Retimed, ...]
    devices: tuple[FigurePair, ...]
    memory: tuple[FigurePair, ...]
    transfers: tuple[FigurePair, ...]
    links: tuple[FigurePair, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]

    @property
    def is_equal(self) -> bool:
        """Whether the plans are the same, whatever the names of their files."""
        return self.plans[0] == self.plans[1]


def diff(
    before: Plan | str | os.PathLike[str],
    after: Plan | str | os.PathLike[str],
    on_progress: OnProgress | None = None,
) -> PlanDiff:
    """The differences between two plans; `on_progress` is called with the progress."""
    (old, old_name), (new, new_name) = read_followed(before), read_followed(after)
    notes: list[str] = []
    shared = _shared_traces(old, new, notes)
    causes: tuple[Cause, ...] = ()
    if old != new:
        causes = tuple(_causes(old, new, notes, on_progress))
    moves, stayed = _moves(old, new, shared)
    return PlanDiff(
        names=(old_name, new_name),
        plans=(old, new),
        figures=tuple(_figures(old, new)),
        settings=tuple(_settings(old, new)),
        traces=tuple(_traces(old, new)),
        moves=moves,
        stayed=stayed,
        retimed=_retimed(old, new, shared),
        devices=_pairs("ns", _busy(old), _busy(new)),
        memory=_pairs(
            "bytes", *({c.name: float(c.used_bytes) for c in p.cards} for p in (old, new))
        ),
        transfers=_pairs("bytes", _transfers(old), _transfers(new)),
        links=(
            *_pairs("speed", *map(_speeds, (old, new))),
            *_pairs("ns", *map(_delays, (old, new))),
        ),
        causes=causes,
        notes=tuple(notes),
    )


# --- records -----------------------------------------------------------------------------------


def _figures(old: Plan, new: Plan) -> Iterator[FigurePair]:
    rows: tuple[tuple[str, str, Callable[[Plan], float]], ...] = (
        ("rate", "requests/s", lambda plan: 1e9 / plan.period_ns if plan.period_ns > 0 else 0.0),
        ("latency alone", "ns", lambda plan: plan.latency_ns),
        ("latency at that rate", "ns", lambda plan: plan.loaded_latency_ns),
        ("cost per request", "usd", lambda plan: plan.usd_per_request),
        ("memory", "bytes", lambda plan: float(sum(card.used_bytes for card in plan.cards))),
        ("gap to the bound", "share", lambda plan: plan.gap),
    )
    for name, unit, value in rows:
        yield FigurePair(name=name, unit=unit, before=value(old), after=value(new))


def _settings(old: Plan, new: Plan) -> Iterator[tuple[str, str, str]]:
    """Differences in the options and the machine."""
    rows: tuple[tuple[str, Callable[[Plan], str]], ...] = (
        ("strategy", lambda plan: plan.strategy),
        ("objective", lambda plan: plan.objective),
        ("search ended by", lambda plan: Ending(plan.ended).text),
        ("options", lambda plan: plan.options),
        ("GPUs", lambda plan: ", ".join(f"{card.name} {card.gpu}" for card in plan.cards)),
        ("joined by", lambda plan: plan.link),
        ("replicas", lambda plan: str(len(plan.replicas))),
        ("slots", lambda plan: ", ".join(str(replica.slots) for replica in plan.replicas)),
        ("sequences", lambda plan: ", ".join(str(replica.lanes) for replica in plan.replicas)),
    )
    for name, value in rows:
        before, after = value(old), value(new)
        if before != after:
            yield name, before, after
    if old.machine_digest != new.machine_digest:
        yield "machine", f"sha256 {old.machine_digest[:12]}", f"sha256 {new.machine_digest[:12]}"


def _traces(old: Plan, new: Plan) -> Iterator[tuple[str, str]]:
    """Every trace by name, and whether it was added, removed or changed."""
    before, after = ({trace.name: trace for trace in plan.traces} for plan in (old, new))
    for name in dict.fromkeys((*before, *after)):
        yield name, _trace_said(before.get(name), after.get(name))


def _trace_said(before: PlannedTrace | None, after: PlannedTrace | None) -> str:
    if before is None or after is None:
        return "in the second plan only" if before is None else "in the first plan only"
    if before.digest != after.digest:
        return "another text"
    if before.contents_digest != after.contents_digest:
        return "the same text, other contents"
    if before.division != after.division:
        return "the same text, other parts of steps"
    if abs(before.share - after.share) > _SAME:
        return f"{before.share:.2%} of requests, now {after.share:.2%}"
    return "the same"


def _shared_traces(old: Plan, new: Plan, notes: list[str]) -> list[tuple[int, int]]:
    """Pairs of traces with equal texts, whose steps can be compared."""
    places = {trace.digest: number for number, trace in enumerate(new.traces)}
    shared = [(i, places[t.digest]) for i, t in enumerate(old.traces) if t.digest in places]
    if not shared:
        notes.append("the plans serve different traces: their steps cannot be compared")
    elif len(shared) < max(len(old.traces), len(new.traces)):
        notes.append("steps are compared for traces that are in both plans only")
    return shared


_PlacedPart = tuple[PlacedStep, tuple[int, str]]
"""A placed step, and the step of the trace and which part of it: if equal, two plans do the same
there."""


def _placed(plan: Plan, trace: int, replicas: Sequence[Replica]) -> Iterator[_PlacedPart]:
    """Every step of a trace on replicas, with what it is of the trace."""
    for replica in replicas:
        for placed in replica.traces:
            if placed.trace == trace:
                parts = parts_of_placed(placed, plan.traces[trace].division)
                for step in placed.steps:
                    part = parts[step.step]
                    words = " [twin]" if part.is_twin else f"{part.words(step.arch)}"
                    yield step, (part.origin, words)


def _where(plan: Plan, trace: int) -> dict[int, tuple[str, str]]:
    """The name and places of every step of the trace, over all parts and replicas, each once."""
    names: dict[int, str] = {}
    places: dict[int, dict[str, None]] = {}
    for step, (origin, words) in _placed(plan, trace, plan.replicas):
        names[origin] = step.name
        places.setdefault(origin, {})[f"{step.device}{words}"] = None
    return {step: (names[step], " and ".join(sorted(places[step]))) for step in names}


def _moves(
    old: Plan, new: Plan, shared: Sequence[tuple[int, int]]
) -> tuple[tuple[MovedSteps, ...], int]:
    moved: dict[tuple[str, str, str, str], list[int]] = {}
    stayed = 0
    for before, after in shared:
        there = _where(new, after)
        for step, (name, place) in _where(old, before).items():
            target = there[step][1]
            if place == target:
                stayed += 1
                continue
            key = (old.traces[before].name, kernel_family(name), place, target)
            moved.setdefault(key, []).append(step)
    moves = [
        MovedSteps(trace=trace, family=kind, source=source, target=target, steps=tuple(steps))
        for (trace, kind, source, target), steps in moved.items()
    ]
    return tuple(sorted(moves, key=lambda move: -len(move.steps))), stayed


def _retimed(old: Plan, new: Plan, shared: Sequence[tuple[int, int]]) -> tuple[Retimed, ...]:
    changed: dict[tuple[str, str, str, str, str], list[tuple[float, float]]] = {}
    for before, after in shared:
        there = {(own, s.device): s for s, own in _placed(new, after, new.replicas)}
        seen: set[Hashable] = set()
        for step, own in _placed(old, before, old.replicas):
            now = there.get((own, step.device))
            if now is None or (own, step.device) in seen:
                continue
            seen.add((own, step.device))
            if (now.predicted_ns, now.source) != (step.predicted_ns, step.source):
                trace = old.traces[before].name
                key = (trace, kernel_family(step.name), step.device, step.source, now.source)
                changed.setdefault(key, []).append((step.predicted_ns, now.predicted_ns))
    rows = [
        Retimed(
            trace=trace,
            family=kind,
            device=device,
            steps=len(times),
            before_ns=sum(time for time, _ in times),
            after_ns=sum(time for _, time in times),
            sources=(source, now),
        )
        for (trace, kind, device, source, now), times in changed.items()
    ]
    return tuple(sorted(rows, key=lambda row: -abs(row.after_ns - row.before_ns)))


def _busy(plan: Plan) -> dict[str, float]:
    return {device.name: device.busy_ns for device in plan.devices}


def _transfers(plan: Plan) -> dict[str, float]:
    """Bytes per request from device to device, over all replicas and traces by their shares."""
    moved: dict[str, float] = {}
    for replica in plan.replicas:
        for lowered in replica.lowered.traces:
            part = replica.serves(lowered.trace) * plan.traces[lowered.trace].share
            for move in lowered.transfers:
                way = f"{move.source} to {move.target}"
                moved[way] = moved.get(way, 0.0) + part * move.size
    return moved


def _speeds(plan: Plan) -> dict[str, float]:
    return {f"{path.source} to {path.target}": path.bytes_per_second for path in plan.paths}


def _delays(plan: Plan) -> dict[str, float]:
    return {f"latency, {path.source} to {path.target}": path.latency_ns for path in plan.paths}


def _pairs(unit: str, before: dict[str, float], after: dict[str, float]) -> tuple[FigurePair, ...]:
    """The entries in which two tables differ."""
    names = dict.fromkeys((*before, *after))
    rows = (FigurePair(name=n, unit=unit, before=before.get(n), after=after.get(n)) for n in names)
    return tuple(row for row in rows if not row.is_same)


# --- causes ------------------------------------------------------------------------------------


def _causes(
    old: Plan, new: Plan, notes: list[str], on_progress: OnProgress | None
) -> Iterator[Cause]:
    """Simulations of the first plan with more and more of the second."""
    hardware, other = hardware_of(old), hardware_of(new)
    if hardware is None or other is None:
        notes.append("a plan of version 1 does not say how devices are joined: nothing simulated")
        return
    if any(replica.policy for plan in (old, new) for replica in plan.replicas):
        notes.append("a plan has several policies, and only one is in use at a time: not simulated")
        return
    replicas, ways = list(old.replicas), hardware
    yield _followed("the first plan", old, replicas, ways, on_progress)
    if [t.digest for t in old.traces] == [t.digest for t in new.traces]:
        timed = [_with_times(replica, old, new) for replica in replicas]
        if timed != replicas:
            replicas = timed
            name = "durations of steps that stay where they are"
            yield _followed(name, old, replicas, ways, on_progress)
        if other != ways:
            if set(other.paths) >= set(ways.paths):
                ways = other
                yield _followed("links and memory", old, replicas, ways, on_progress)
            else:
                notes.append("the devices have other names, so links are not simulated alone")
        counts = [(r.slots, r.lanes) for r in new.replicas]
        if len(counts) == len(replicas) and counts != [(r.slots, r.lanes) for r in replicas]:
            replicas = [with_counts(r, *c) for r, c in zip(replicas, counts, strict=True)]
            yield _followed("slots and sequences", old, replicas, ways, on_progress)
    else:
        notes.append("the traces differ, so no cause is simulated alone")
    yield _followed(
        "the second plan: placement and the rest", new, new.replicas, other, on_progress
    )


def _with_times(replica: Replica, old: Plan, new: Plan) -> Replica:
    """The replica, with the times of another plan for steps on the same device."""
    traces = []
    for placed in replica.traces:
        trace = placed.trace
        known = {(own, s.device): s for s, own in _placed(new, trace, new.replicas)}
        steps = (
            replace(known.get((own, step.device), step), step=step.step)
            for step, own in _placed(old, trace, [replica])
        )
        traces.append(replace(placed, steps=tuple(steps)))
    return replace(replica, traces=tuple(traces))


def _followed(
    name: str,
    plan: Plan,
    replicas: Sequence[Replica],
    hardware: Hardware,
    on_progress: OnProgress | None,
) -> Cause:
    if on_progress is not None:
        on_progress(StageProgress("simulating", note=name))
    check_followed(plan, replicas, hardware)
    shares = shares_of(plan)
    full = saturate(replicas, shares, hardware)
    return Cause(name=name, period_ns=full.period_ns, latency_ns=alone(replicas, shares, hardware))
