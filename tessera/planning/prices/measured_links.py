"""Links between slices of one card as fast as copies there were measured to be.

In: a `Machine` and profiles. Out: the machine. A copy takes a latency, that of the smallest one
measured, and a time per byte, such that the largest one takes what it took. Other links stay: what
a profile of one GPU knows of copies from and to the host says little of links between GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tessera.ir.plan.costs import MeasuredCopy, Profile
from tessera.ir.plan.machine import Link, Machine

LOADED_HOST = 1.3
"""Calls and copies take so much longer while requests run than alone: between 1.0 and 1.4 in two
sessions on machines with an H200."""


def with_measured_copies(machine: Machine, profiles: Iterable[Profile]) -> Machine:
    """The machine with links between slices by what was measured on the one that sends."""
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
    """The machine with the times of a call and a byte of the host, the longest measured."""
    known = [(profile.host_call_ns, profile.host_byte_ns) for profile in profiles]
    call_ns, byte_ns = (
        max(times, default=0.0) for times in zip(*(known or [(0.0, 0.0)]), strict=True)
    )
    return replace(machine, host_call_ns=LOADED_HOST * call_ns, host_byte_ns=LOADED_HOST * byte_ns)
