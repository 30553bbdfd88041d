"""The machine as the simulation sees it: how bytes travel, and which queues a transfer occupies.

In: a `Machine`. Out: a `Hardware`: for every pair of devices a `Path` with its rate, its latency
and the capacities that it shares, and the time a transfer takes from the compute queue at each end.

A backend sets the remaining fields. `buffered`: a send ends when its bytes have left for a buffer
of the host, and the receive takes them from there (the processes of the CPU backend). Otherwise a
transfer is one copy, which begins when both ends have reached it and holds both queues until the
bytes have arrived (CUDA). `depth`: the number of requests that are handed to a slot at a time.
`host_call_ns`: the time of a host call that hands work over. `host_byte_ns`: the time to copy one
byte of an input or output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tessera.ir.plan.launch_program import HOST, LoweredTrace
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Plan, PlanCapacity, PlanPath

UNLIMITED = float("inf")
FILL_NS = 2_000.0
"""Minimum time in ns of a memory fill, which is a small kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """The route from one end to another. `shares` names the capacities that it uses.

    `tax_ns` and `tax_ns_per_byte` are the time a transfer takes from the compute queue at each end.
    """

    bytes_per_second: float
    latency_ns: float
    shares: tuple[str, ...]
    tax_ns: float = 0.0
    tax_ns_per_byte: float = 0.0

    def end_ns(self, size: float) -> float:
        """The time that a transfer of `size` bytes takes at each end."""
        return self.tax_ns + self.tax_ns_per_byte * size


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Paths by their two ends (the host can be an end), and capacities in bytes per second by name.

    `neighbours` are the other slices of a device's card.
    """

    paths: Mapping[tuple[str, str], Path]
    capacities: Mapping[str, float]
    fill_ns_per_byte: Mapping[str, float] = field(default_factory=dict)
    fill_ns: float = FILL_NS
    buffered: bool = False
    depth: int = 1
    host_call_ns: float = 0.0
    host_byte_ns: float = 0.0
    neighbours: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def is_one_card(self, lowered: LoweredTrace) -> bool:
        """Whether all devices of a request are slices of one card."""
        devices = {program.device for program in lowered.programs}
        return any(devices <= {name, *self.neighbours.get(name, ())} for name in devices)


def hardware_of(plan: Plan) -> Hardware | None:
    """The hardware of a plan; None if the plan does not record it (version 1)."""
    if not plan.paths:
        return None
    speeds = {device.name: device.memory_bytes_per_second for device in plan.devices}
    cards = {device.name: device.card for device in plan.devices}
    hardware = _hardware(plan.capacities, plan.paths, speeds, cards)
    return replace(hardware, host_call_ns=plan.host_call_ns, host_byte_ns=plan.host_byte_ns)


def _hardware(
    capacities: Iterable[PlanCapacity],
    paths: Iterable[PlanPath],
    speeds: Mapping[str, float],
    cards: Mapping[str, object],
) -> Hardware:
    return Hardware(
        paths={
            (path.source, path.target): Path(
                bytes_per_second=path.bytes_per_second,
                latency_ns=path.latency_ns,
                shares=path.shares,
                tax_ns=path.tax_ns,
                tax_ns_per_byte=path.tax_ns_per_byte,
            )
            for path in paths
        },
        capacities={capacity.name: capacity.bytes_per_second for capacity in capacities},
        fill_ns_per_byte={name: 1e9 / speed for name, speed in speeds.items() if speed},
        neighbours={
            name: tuple(other for other, where in cards.items() if where == card and other != name)
            for name, card in cards.items()
        },
    )


def machine_hardware(machine: Machine, *, copies_take_memory: bool = True) -> Hardware:
    """The hardware of a machine, as recorded in a plan for it."""
    capacities, paths = paths_of(machine, copies_take_memory=copies_take_memory)
    speeds = {d.name: machine.gpu_of(d).memory_bandwidth for d in machine.devices}
    cards = {device.name: device.card for device in machine.devices}
    hardware = _hardware(capacities, paths, speeds, cards)
    return replace(hardware, host_call_ns=machine.host_call_ns, host_byte_ns=machine.host_byte_ns)


def paths_of(
    machine: Machine, *, copies_take_memory: bool = True
) -> tuple[tuple[PlanCapacity, ...], tuple[PlanPath, ...]]:
    """The capacities and paths of a machine.

    `copies_take_memory`: the step times do not include the slowdown by copies between slices.
    """
    names = {device.id: device.name for device in machine.devices}
    through: dict[tuple[str, str], list[str]] = {}
    capacities: dict[str, float] = {}
    for channel in machine.channels:
        capacities[channel.name] = channel.bytes_per_second
        for pair in channel.pairs:
            through.setdefault((names[pair[0]], names[pair[1]]), []).append(channel.name)
    paths = []
    for link in machine.links:
        source, target = names[link.source], names[link.target]
        own = f"{source} to {target}"
        shared = through.get((source, target), [])
        rate = min([link.bytes_per_second, *(capacities[name] for name in shared)])
        capacities[own] = link.bytes_per_second
        paths.append(
            PlanPath(
                source=source,
                target=target,
                bytes_per_second=rate,
                latency_ns=link.latency_ns,
                shares=(own, *shared),
                tax_ns=machine.transfer_ns,
                tax_ns_per_byte=machine.end_ns_per_byte(link) if copies_take_memory else 0.0,
            )
        )
    for device in machine.devices:
        card = machine.cards[device.card]
        for source, target, way in ((HOST, device.name, "in"), (device.name, HOST, "out")):
            lanes = f"{card.name} pcie {way}"
            capacities[lanes] = card.gpu.pcie_bandwidth
            paths.append(
                PlanPath(
                    source=source,
                    target=target,
                    bytes_per_second=card.gpu.pcie_bandwidth,
                    latency_ns=machine.transfer_ns,
                    shares=(lanes,),
                )
            )
    return (
        tuple(PlanCapacity(name=name, bytes_per_second=rate) for name, rate in capacities.items()),
        tuple(paths),
    )


def process_hardware(devices: tuple[str, ...], bytes_per_second: float | None) -> Hardware:
    """The CPU backend: a process per device, one thread that sends, transfers through memory."""
    capacities = {f"{name} out": bytes_per_second or UNLIMITED for name in devices}
    paths = {
        (source, target): Path(
            bytes_per_second=bytes_per_second or UNLIMITED,
            latency_ns=0.0,
            shares=(f"{source} out",),
        )
        for source in devices
        for target in (*devices, HOST)
        if source != target
    }
    free = Path(bytes_per_second=UNLIMITED, latency_ns=0.0, shares=())
    paths |= {(HOST, name): free for name in devices}
    return Hardware(paths=paths, capacities=capacities, fill_ns=0.0, buffered=True)


def throttled(hardware: Hardware, bytes_per_second: float) -> Hardware:
    """The hardware with every path between two devices throttled in the way backends throttle it.

    A throttled path carries one transfer at a time.
    """
    paths = dict(hardware.paths)
    capacities = dict(hardware.capacities)
    for (source, target), path in hardware.paths.items():
        if HOST in (source, target) or path.bytes_per_second <= bytes_per_second:
            continue
        own = f"{source} to {target}, throttled"
        capacities[own] = bytes_per_second
        paths[source, target] = replace(
            path, bytes_per_second=bytes_per_second, shares=(*path.shares, own)
        )
    return replace(hardware, paths=paths, capacities=capacities)
