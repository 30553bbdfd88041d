"""Adjustment of costs by the user: measurements, and steps pinned to or barred from a GPU.

In: `Costs` and a `Machine`. Out: `Costs`. A measurement overrides a model, and a later profile an
earlier one. A measurement does not lift a bar: missing code cannot run. Nor does it count for
experts if its weights were from a seed and it is below the time of the bytes that they are expected
to read: biases from a seed send all tokens to a few of them. If several variants of a
step's code were measured on a device, the fastest one counts. On a slice that shares its card with
others, the time beside a busy neighbour counts if it was measured: halfway between a neighbour that
computes and one that moves memory, until the work of the neighbours is known. Patterns name steps:
`#3`, a kernel's name, or one with `*` and `?`; devices are named as the plan prints them, or by the
first part of their name (`a100` for all of `a100-0`, `a100-1`).

Links between slices of one card are as fast as the copies measured there (`with_measured_copies`).
A copy takes a latency, that of the smallest copy measured, and a time per byte that reproduces the
largest copy. Other links stay unchanged: copies from and to the host in a profile of one GPU say
little about links between GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from tessera.ir.plan.costs import (
    Barred,
    Cost,
    Costs,
    CostSource,
    Duration,
    Measured,
    MeasuredCopy,
    Profile,
    StepCosts,
)
from tessera.ir.plan.machine import Device, Link, Machine
from tessera.planning.prices.floors import floor_ns
from tessera.wording import Wording

LOADED_HOST = 1.3
"""The factor by which calls and copies take longer while requests run: between 1.0 and 1.4 in two
sessions on machines with an H200."""


def with_measured_copies(machine: Machine, profiles: Iterable[Profile]) -> Machine:
    """The machine with links between slices as measured on the sending slice."""
    curves: dict[tuple[str, int], list[MeasuredCopy]] = {}
    for profile in profiles:
        for copy in profile.copies:
            if copy.kind == "device":
                curves.setdefault((copy.gpu, copy.sms), []).append(copy)

    def measured(link: Link) -> Link:
        source, target = machine.devices[link.source], machine.devices[link.target]
        copies = curves.get((machine.gpu_of(source).key, source.sms), [])
        if source.card != target.card or len({copy.bytes for copy in copies}) < 2:
            return link
        least = min(copies, key=lambda copy: copy.bytes)
        most = max(copies, key=lambda copy: copy.bytes)
        slope = (most.ns - least.ns) / (most.bytes - least.bytes)
        if slope <= 0:
            return link
        return replace(link, bytes_per_second=1e9 / slope, latency_ns=least.ns)

    return replace(machine, links=tuple(map(measured, machine.links)))


def with_measured_host(machine: Machine, profiles: Iterable[Profile]) -> Machine:
    """The machine with the longest measured times of a host call and a host byte."""
    known = [(profile.host_call_ns, profile.host_byte_ns) for profile in profiles]
    call_ns, byte_ns = (
        max(times, default=0.0) for times in zip(*(known or [(0.0, 0.0)]), strict=True)
    )
    return replace(machine, host_call_ns=LOADED_HOST * call_ns, host_byte_ns=LOADED_HOST * byte_ns)


_TOO_FEW = (
    "the profile has {:.3g} us, with weights from a seed, by which tokens chose fewer experts than"
    " expected: the bytes of those take {:.3g} us"
)
MOST_NS = 3.6e12  # the limit of a time in a profile


def merge_profiles(costs: Costs, machine: Machine, profiles: Iterable[Profile]) -> Costs:
    """The costs with measured times in place of estimates if step and device match."""
    known: dict[tuple[int, str, str, int], list[Measured]] = {}
    for profile in profiles:
        latest: dict[tuple[int, str, str, int], list[Measured]] = {}
        for row in profile.rows:
            latest.setdefault((row.step, row.name, row.gpu, row.sms), []).append(row)
        known |= latest

    def measured(step: StepCosts, device: Device, cost: Cost) -> Cost:
        key = (int(step.step), step.name, machine.gpu_of(device).key, device.sms)
        if key not in known or isinstance(cost, Barred):
            return cost
        is_slice = len(machine.slices_of(device.card)) > 1
        times = (_duration(row, is_slice=is_slice) for row in known[key])
        fastest = min(times, key=lambda duration: duration.ns)
        if known[key][0].seeded and step.needs is not None and step.needs.routed:
            least = floor_ns(step.needs, machine.gpu_of(device), device.sms)
            if fastest.ns < least:
                return replace(cost, origin=_TOO_FEW.format(fastest.ns / 1e3, least / 1e3))
        return fastest

    return Costs(
        tuple(
            replace(
                step,
                on_device=tuple(
                    measured(step, device, cost)
                    for device, cost in zip(machine.devices, step.on_device, strict=True)
                ),
            )
            for step in costs.steps
        )
    )


def _duration(row: Measured, *, is_slice: bool) -> Duration:
    """The duration in a row for a whole GPU, or for a slice with neighbours."""
    if not is_slice:
        return Duration(ns=row.ns, source=CostSource.PROFILE, error=row.error, variant=row.variant)
    compute, memory = row.beside_compute_ns, row.beside_memory_ns
    both = None if compute is None or memory is None else (compute, memory)
    busy = [ns for ns in (compute, memory) if ns is not None] or [row.ns]
    ns = sum(busy) / len(busy)
    return Duration(
        ns=ns,
        source=CostSource.PROFILE,
        error=row.error,
        beside=both,
        quiet_ns=min(row.ns, ns),  # measured times may be in the opposite order
        variant=row.variant,
    )


def beside_neighbours(costs: Costs, shares: Sequence[float]) -> Costs:
    """The costs if the neighbours of each device draw these shares of the memory bandwidth, as
    fractions of the bandwidth that the measuring neighbour drew.
    """

    def between(cost: Cost, share: float) -> Cost:
        if isinstance(cost, Barred) or cost.beside is None:
            return cost
        compute, memory = cost.beside
        return replace(cost, ns=compute + share * (memory - compute))

    return Costs(
        tuple(
            replace(step, on_device=tuple(map(between, step.on_device, shares)))
            for step in costs.steps
        )
    )


@dataclass(frozen=True, slots=True)
class Crowd:
    """Factors by which requests on a device take longer than the sum of its steps.

    `crowded` applies while the device and its neighbours are always busy, `alone` while one request
    at a time is there. `lonely`: no neighbour ever computes.
    """

    crowded: float = 1.0
    alone: float = 1.0
    lonely: bool = False


def in_crowds(costs: Costs, crowds: Sequence[Crowd]) -> Costs:
    """The costs scaled by the crowds of the devices."""

    def scaled(cost: Cost, crowd: Crowd) -> Cost:
        if isinstance(cost, Barred):
            return cost
        alone = cost.ns * crowd.alone
        quiet = alone if cost.quiet_ns is None else min(cost.quiet_ns, alone)
        ns = cost.ns * crowd.crowded
        if crowd.lonely:
            alone, ns = quiet, ns * quiet / alone if alone else ns
        return replace(
            cost,
            ns=ns,
            alone_ns=None if alone == ns else alone,
            quiet_ns=None if quiet == alone else quiet,
        )

    return Costs(
        tuple(
            replace(step, on_device=tuple(map(scaled, step.on_device, crowds)))
            for step in costs.steps
        )
    )


def bar_endless(costs: Costs) -> Costs:
    """The costs with steps barred from devices where they would take more than an hour.

    No plan could say for how long such a step keeps its device.
    """

    def bounded(cost: Cost) -> Cost:
        if isinstance(cost, Barred) or cost.ns <= MOST_NS:
            return cost
        return Barred(Wording(f"it would take about {cost.ns / MOST_NS:.2g} hours there"))

    return Costs(
        tuple(replace(step, on_device=tuple(map(bounded, step.on_device))) for step in costs.steps)
    )


def restrict_steps(
    costs: Costs, machine: Machine, steps: str, devices: str, *, forbid: bool
) -> Costs | None:
    """Pin the steps of a pattern to devices, or forbid them there.

    None if no step or no device matches.
    """
    named = {d.id for d in machine.devices if names_device(machine, d, devices)}
    chosen = [s for s in costs.steps if f"#{s.step}" == steps or fnmatchcase(s.name, steps)]
    if not named or not chosen:
        return None
    reason = Wording(f"{'forbidden' if forbid else 'pinned'} by `{steps}={devices}`")
    touched = {step.step for step in chosen}
    return Costs(
        tuple(
            replace(
                step,
                on_device=tuple(
                    Barred(reason, asked=True) if (device in named) == forbid else cost
                    for device, cost in enumerate(step.on_device)
                ),
            )
            if step.step in touched
            else step
            for step in costs.steps
        )
    )


def names_device(machine: Machine, device: Device, name: str) -> bool:
    """Whether a name refers to a device: its own name, or that of its card or kind."""
    card = machine.cards[device.card]
    return name in (device.name, card.name, card.label)
