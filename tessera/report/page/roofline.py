"""How close steps come to the limits of their GPUs, and where predicted and measured differ.

In: `Given` with priced steps. Out: a `PageSection`. Per kind of GPU: every kernel as a point of its
operations per byte and its speed, below the roofs of memory and arithmetic. The speed of light of a
step is the least time for its bytes or its operations by the data sheet, each byte once. Operations
are those counted in its code, or those that an operator cannot do without.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tessera.ir.plan.costs import Duration, StepCosts
from tessera.ir.plan.machine import Device, Machine
from tessera.planning.prices.device_model import unit_rate
from tessera.report.page.given import Given, GivenTrace
from tessera.report.page.model import PageSection

_MOST_POINTS = 120
_MOST_DIFFERENCES = 400
_NO_FLOPS = ("int", "special")


@dataclass(slots=True)
class _KernelSum:
    """The steps of one name on one kind of GPU, summed up. Private and mutable."""

    name: str
    trace: str
    steps: int = 0
    ns: float = 0.0
    light_ns: float = 0.0
    operations: float = 0.0
    bytes: float = 0.0
    memory_ns: float = 0.0
    measured: int = 0

    def value(self) -> list[object]:
        """Name, steps, time, speed of light, operations, bytes, limit, number measured, trace."""
        limit = "memory" if self.memory_ns >= 0.5 * self.light_ns else "arithmetic"
        return [
            self.name,
            self.steps,
            round(self.ns, 1),
            round(self.light_ns, 2),
            self.operations,
            self.bytes,
            limit,
            self.measured,
            self.trace,
        ]


def roofline_section(given: Given) -> PageSection | None:
    """The section; None if no step has a duration."""
    machine = given.machine
    if machine is None or not any(trace.costs for trace in given.traces):
        return None
    kinds: dict[tuple[str, int], list[Device]] = {}
    for device in machine.devices:
        kinds.setdefault((machine.gpu_of(device).key, device.sms), []).append(device)
    gpus = [_gpu(given, machine, devices) for devices in kinds.values()]
    shown = [value for value in gpus if value["kernels"]]
    differences = _differences(given)
    if not shown and not differences:
        return None
    data = {
        "headline": _headline(shown, differences),
        "devices": shown,
        "differences": differences[:_MOST_DIFFERENCES],
    }
    return PageSection(kind="roofline", id="roofline", title="Roofline", data=data)


def _headline(devices: list[dict[str, object]], differences: list[list[object]]) -> str:
    parts = []
    for device in devices:
        kernels = device["kernels"]
        assert isinstance(kernels, list)
        ns, light = (sum(row[column] for row in kernels) for column in (2, 3))
        if ns > 0:
            parts.append(f"`{device['name']}` at {min(light / ns, 1.0):.0%} of the speed of light")
    if differences:
        parts.append(f"{len(differences):,} times measured")
    return "; ".join(parts[:4])


def _gpu(given: Given, machine: Machine, devices: list[Device]) -> dict[str, object]:
    """The kernels on devices that are alike."""
    gpu, sms = machine.gpu_of(devices[0]), devices[0].sms
    rates: dict[str, float] = {}
    kernels: dict[tuple[str, str], _KernelSum] = {}
    units: dict[str, float] = defaultdict(float)
    placed = [
        (trace, row)
        for number, trace in enumerate(given.traces)
        for device in devices
        for row in _times_on(given, trace, number, machine, device)
    ]
    for trace, (step, ns, measured) in placed:
        assert trace.costs is not None
        costs = trace.costs.steps[step]
        key = costs.name, trace.name if len(given.traces) > 1 else ""
        own = kernels.setdefault(key, _KernelSum(*key))
        memory = costs.memory_bytes / gpu.memory_bandwidth * 1e9
        arithmetic = 0.0
        for unit, count in _operations(costs):
            rate = rates.setdefault(unit, unit_rate(gpu, unit) * sms / gpu.sms)
            arithmetic += count / rate * 1e9
            own.operations += count
            units[unit] += count
        own.steps += 1
        own.ns += ns
        own.light_ns += max(memory, arithmetic)
        own.memory_ns += memory if memory >= arithmetic else 0.0
        own.bytes += costs.memory_bytes
        own.measured += measured
    ranked = sorted(kernels.values(), key=lambda kernel: -kernel.ns)
    names = [device.name for device in devices]
    return {
        "name": ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]}",
        "color": devices[0].id,
        "gpu": gpu.name,
        "sms": sms,
        "bandwidth": gpu.memory_bandwidth,
        "roofs": [[unit, rates[unit]] for unit in sorted(units, key=lambda unit: -units[unit])[:3]],
        "kernels": [kernel.value() for kernel in ranked[:_MOST_POINTS]],
        "left_out": max(0, len(ranked) - _MOST_POINTS),
    }


def _operations(costs: StepCosts) -> list[tuple[str, float]]:
    """The operations of a step by unit, where they are known."""
    counted = costs.work.units if costs.work is not None else ()
    if costs.work is None and costs.needs is not None:
        counted = costs.needs.operations
    return [(unit, count) for unit, count in counted if count and unit not in _NO_FLOPS]


def _times_on(
    given: Given, trace: GivenTrace, number: int, machine: Machine, device: Device
) -> list[tuple[int, float, bool]]:
    """Steps that run on a device with their times: those that a plan places there, or all."""
    assert trace.costs is not None
    gpu = machine.gpu_of(device)
    measured = {
        row.step: row.ns
        for own in given.profiles
        if own.profile.program_digest == trace.digest
        for row in own.profile.rows
        if row.gpu == gpu.key and row.sms == device.sms
    }
    rows = []
    if given.plan is not None:
        placed = {
            step.step: step.predicted_ns
            for replica in given.plan.replicas
            for own in replica.traces
            if own.trace == number
            for step in own.steps
            if step.device == device.name
        }
    else:
        costs = ((step.step, step.on_device[device.id]) for step in trace.costs.steps)
        placed = {step: cost.ns for step, cost in costs if isinstance(cost, Duration)}
    for step, ns in sorted(placed.items()):
        rows.append((int(step), measured.get(step, ns), step in measured))
    return rows


def _differences(given: Given) -> list[list[object]]:
    """Name, GPU, predicted and measured time, error bar, steps; the furthest off first."""
    machine = given.machine
    assert machine is not None
    found: dict[tuple[str, str], list[float]] = {}
    places = {(machine.gpu_of(d).key, d.sms): d.id for d in machine.devices}
    for trace in given.traces:
        if trace.predicted is None:
            continue
        for own in given.profiles:
            if own.profile.program_digest != trace.digest:
                continue
            for row in own.profile.rows:
                place = places.get((row.gpu, row.sms))
                if place is None or row.step >= len(trace.predicted.steps):
                    continue
                cost = trace.predicted.steps[row.step].on_device[place]
                if isinstance(cost, Duration):
                    kind = (
                        row.gpu if row.sms == _sms(machine, row.gpu) else f"{row.gpu}:{row.sms}sm"
                    )
                    sums = found.setdefault((row.name, kind), [0.0, 0.0, 0.0, 0.0])
                    sums[0] += cost.ns
                    sums[1] += row.ns
                    sums[2] = max(sums[2], cost.error)
                    sums[3] += 1
    rows: list[list[object]] = [
        [name, gpu, round(sums[0], 1), round(sums[1], 1), sums[2], round(sums[3])]
        for (name, gpu), sums in found.items()
    ]
    return sorted(rows, key=_off, reverse=True)


def _off(row: list[object]) -> float:
    predicted, measured = float(str(row[2])), float(str(row[3]))
    return max(predicted, measured) / max(min(predicted, measured), 1e-9)


def _sms(machine: Machine, key: str) -> int:
    return next(card.gpu.sms for card in machine.cards if card.gpu.key == key)
