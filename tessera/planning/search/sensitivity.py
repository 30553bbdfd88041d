"""The gain from more of a resource: links, memory, a GPU, slots.

In: a `Problem` and the `Choice` made for it. Out: `Sensitivity` records, the largest gain first.
Each capacity is doubled in turn and the relaxation solved again: the plan can gain at most what the
bound gains. A capacity without a dual is not scarce and is left out unsolved. What slots would buy
is read off the plan: the next limit under it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from tessera.planning.bound.class_model import build_class_model
from tessera.planning.bound.coarse import coarsen
from tessera.planning.bound.model import PERIOD, build_model
from tessera.planning.bound.relax import Relaxation, relax
from tessera.planning.problem.device_types import (
    DIRECT_DEVICES,
    aggregate,
    types_of,
    usable_devices,
)
from tessera.planning.problem.period_limits import LimitKind
from tessera.planning.problem.problem import INFINITY, Problem, Wire
from tessera.planning.search.candidates import slots_needed
from tessera.planning.search.many import is_large
from tessera.planning.search.plans import Choice

_LEAST_GAIN = 1e-4
_MOST_TASKS = 2_000
_MOST_TASKS_OF_TYPES = 500  # with many devices there is a type more for every question


class Resource(StrEnum):
    """A resource of which a plan could have more."""

    LINKS = "links"
    LINK = "link"  # one pipe
    MEMORY = "memory"
    DEVICE = "device"
    SLOTS = "slots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """With `factor` times as much of it, requests per second can grow by `gain` at most.

    `name` says which of its kind; `price` is its dual: the part of the period that each part of it
    is worth.
    """

    kind: Resource
    name: str
    factor: float
    gain: float
    price: float = 0.0

    @property
    def text(self) -> str:
        """The change and its gain."""
        times = f"{self.factor:g} times"
        match self.kind:
            case Resource.LINKS:
                what = f"all links {times} as fast"
            case Resource.LINK:
                what = f"{self.name} {times} as fast"
            case Resource.MEMORY:
                what = f"{times} the memory of {self.name}"
            case Resource.DEVICE:
                what = f"a GPU {times} as fast in place of {self.name}"
            case Resource.SLOTS:
                what = f"{times} the slots"
        return f"{what}: at most {self.gain:+.1%} requests/s"


def sensitivities(problem: Problem, choice: Choice, factor: float = 2.0) -> tuple[Sensitivity, ...]:
    """The limits of the throughput, and the gain from raising each."""
    base = _relaxed(problem)
    if base is None or not choice.candidates:
        return ()
    period = float(base.values[PERIOD])
    duals = {
        name: -value / (period if name.startswith("room[") else 1.0) for name, value in base.duals
    }
    # Devices that are alike gain alike: one of each type is asked.
    asked = {group[0] for group in types_of(problem)}
    gains = [_slots(problem, choice, factor)]
    if problem.pipes:
        faster = tuple(replace(p, ns_per_byte=p.ns_per_byte / factor) for p in problem.pipes)
        total = sum(value for name, value in duals.items() if name.startswith("pipe["))
        changed = replace(problem, pipes=faster, wires=_faster_wires(problem, factor))
        gains.append(_gain(Resource.LINKS, "all", changed, base, factor, total))
    # With many devices the relaxation knows types, not ports.
    many = len(usable_devices(problem)) > DIRECT_DEVICES
    for index, pipe in enumerate(() if many else problem.pipes):
        price = duals.get(f"pipe[{pipe.name}]", 0.0)
        faster_pipe = replace(pipe, ns_per_byte=pipe.ns_per_byte / factor)
        pipes = (*problem.pipes[:index], faster_pipe, *problem.pipes[index + 1 :])
        gains.append(
            _gain(Resource.LINK, pipe.name, replace(problem, pipes=pipes), base, factor, price)
        )
    for index, room in enumerate(problem.rooms):
        if not asked & set(room.devices):
            continue
        price = duals.get(f"room[{room.name}]", 0.0)
        larger = replace(room, bytes=int(room.bytes * factor))
        rooms = (*problem.rooms[:index], larger, *problem.rooms[index + 1 :])
        gains.append(
            _gain(Resource.MEMORY, room.name, replace(problem, rooms=rooms), base, factor, price)
        )
    for device in sorted(asked):
        name = problem.devices[device]
        price = duals.get(f"device[{name}]", 0.0)
        gains.append(
            _gain(Resource.DEVICE, name, _faster(problem, device, factor), base, factor, price)
        )
    kept = [gain for gain in gains if gain is not None and gain.gain >= _LEAST_GAIN]
    return tuple(sorted(kept, key=lambda gain: -gain.gain))


def _relaxed(problem: Problem) -> Relaxation | None:
    """The relaxation; of types where there are many devices, so that prices are per type.

    Of very many tasks some are taken together: then the gain is that of plans which do so. With
    many devices, too, links are free, so nothing is said of them.
    """
    if is_large(problem):
        return relax(build_class_model(problem, None))
    most = _MOST_TASKS
    if len(usable_devices(problem)) > DIRECT_DEVICES:
        problem, most = aggregate(problem)[0], _MOST_TASKS_OF_TYPES
    if len(problem.tasks) > most:
        problem = coarsen(problem, most).problem
    return relax(build_model(problem))


def _gain(
    kind: Resource, name: str, changed: Problem, base: Relaxation, factor: float, price: float
) -> Sensitivity | None:
    """The gain of the bound; None if the capacity has no price."""
    many = len(usable_devices(changed)) > DIRECT_DEVICES
    if price <= 0 and not (many or kind is Resource.MEMORY):
        return None
    after = _relaxed(changed)
    if after is None or after.bound_ns <= 0:
        return None
    gain = base.bound_ns / after.bound_ns - 1.0
    return Sensitivity(kind=kind, name=name, factor=factor, gain=gain, price=max(price, 0.0))


def _faster_wires(problem: Problem, factor: float) -> tuple[Wire, ...]:
    return tuple(replace(wire, ns_per_byte=wire.ns_per_byte / factor) for wire in problem.wires)


def _faster(problem: Problem, device: int, factor: float) -> Problem:
    """The problem with one device that takes less time for every task."""

    def shorter(ns: tuple[float | None, ...]) -> tuple[float | None, ...]:
        value = ns[device]
        return (*ns[:device], None if value is None else value / factor, *ns[device + 1 :])

    return replace(
        problem, tasks=tuple(replace(task, ns=shorter(task.ns)) for task in problem.tasks)
    )


def _slots(problem: Problem, choice: Choice, factor: float) -> Sensitivity | None:
    """The gain of the plan from more requests under way."""
    best = choice.best
    if problem.slots is None or not best.limits or best.limits[0].kind != LimitKind.SLOTS:
        return None
    other = next((limit.ns for limit in best.limits if limit.kind != LimitKind.SLOTS), 0.0)
    floor = max(other, best.limits[0].ns / factor)
    if not 0 < floor < INFINITY:
        return None
    gain = best.period_ns / floor - 1.0
    name = f"{problem.slots} slots; {slots_needed(best)} keep the busiest device busy"
    return Sensitivity(kind=Resource.SLOTS, name=name, factor=factor, gain=gain, price=1.0)
