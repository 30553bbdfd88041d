"""`profile`: measure every step of a trace on GPUs and slices of GPUs of this machine.

In: a trace and a list of devices (`h200,h200:84sm`). Out: a profile, as the JSON that
`tessc plan --profile` reads: for every step and device a time with its spread, cold and warm caches
told apart, beside a busy neighbour for slices, and transfers by size. The stages, in order:

1. `load`: the trace, as a `Program`.
2. `parse_gpus`, `find_card`: what the devices are called, and which GPU of this machine each is.
3. `timer_of`: the kernel graph and the contents, for all devices (`timer`).
4. `_measure_device`, for each device: all variants of steps that have several there, then every
   step (with its fastest variant), the whole trace, transfers, and times beside a neighbour.
5. The record of the machine, and all rows.

The time that plans use lies between warm and cold, at the same fraction for all steps, such that
the steps add up to the time of the whole trace. If the whole trace takes longer than all steps
cold, the rest is the cost of going from one step to the next (another kernel, other code): every
step has an equal part of it. The same holds for the times beside a neighbour.

If memory allows, the time of a request on a device while it and the rest of its GPU stay busy is
measured too: with one request at a time each (`steady_ns`) and with two (`together_ns`).
"""

from __future__ import annotations

import json
import os
from functools import partial
from typing import TYPE_CHECKING

from tessera.driver.load import load
from tessera.driver.profile.trace_timer import (
    ProfileOptions,
    TraceTimer,
    find_card,
    open_contexts,
    timer_of,
)
from tessera.frontend.machine.gpus import GpuEntry, parse_gpus
from tessera.frontend.machine.profile import SCHEMA
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.print_trace import program_digest
from tessera.ir.progress import Count, OnProgress, counter

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver, GpuFacts
    from tessera.backend.cuda.measure.times import DeviceTimes, StepTimes

__all__ = [
    "ProfileOptions",
    "TraceTimer",
    "busy_times",
    "find_card",
    "open_contexts",
    "profile",
    "profile_text",
    "timer_of",
]

_LEAST_NS = 0.1
# The number of requests at a time is doubled as long as each takes no more than this share of its
# time at the last number: then the device was not full.
_NOT_FULL, _MOST_SLOTS = 0.6, 8
# The lists of a profile, each with rows for all devices.
_LISTS = ("rows", "wholes", "transfers")


def profile(
    path: str | os.PathLike[str],
    options: ProfileOptions,
    on_progress: OnProgress | None = None,
    driver: Driver | None = None,
) -> dict[str, object]:
    """The profile of a trace as JSON data; `on_progress` is called with the progress."""
    from tessera.backend.cuda.doctor import driver_version
    from tessera.backend.cuda.measure.host_calls import host_byte_ns, host_call_ns
    from tessera.backend.cuda.targets import open_driver

    program = load(path)
    # A device that is named twice is measured once.
    named = {(entry.gpu.key, entry.sms): entry for entry in parse_gpus(options.devices)}
    entries = tuple(named.values())
    driver = open_driver(driver)
    cards = driver.gpus()
    ordinals = [find_card(entry.gpu, cards) for entry in entries]
    on_step = counter(on_progress, "measuring", "steps")
    timer = timer_of(program, path, options, driver)
    measured = []
    with open_contexts(driver, ordinals):
        for index, (entry, ordinal) in enumerate(zip(entries, ordinals, strict=True)):
            tell = partial(_tell, on_step, index, len(entries) * len(timer.graph.nodes))
            measured.append(_measure_device(timer, entry, cards[ordinal], tell))
        call_ns = host_call_ns(driver, ordinals[0], options.limit_s)
        byte_ns = host_byte_ns(driver, ordinals[0])
    first = cards[ordinals[0]]
    machine = {
        "gpu": first.name,
        "cuda": driver.version(),
        "driver": driver_version(),
        "sms": first.sms,
        "repeats": options.repeats,
        "host_call_ns": _rounded(call_ns),
        "host_byte_ns": max(round(byte_ns, 4), _LEAST_NS),
    }
    return {
        "schema": SCHEMA,
        "program": program_digest(program),
        "machine": machine,
        "seeded": timer.is_seeded(),
        **{key: [row for device in measured for row in device[key]] for key in _LISTS},
    }


def _tell(on_step: Count, devices_done: int, count: int, done: int, total: int) -> None:
    """Report the number of steps done, of those on all devices."""
    on_step(devices_done * total + done, count)


def _measure_device(
    timer: TraceTimer, entry: GpuEntry, card: GpuFacts, tell: Count
) -> dict[str, list[dict[str, object]]]:
    """Everything on one device, as a profile holds it."""
    variants = timer.try_variants(entry, card.ordinal)
    times = timer.measure(entry, card.ordinal, tell)
    share, gap_ns = _share(times)
    device = {"gpu": entry.gpu.key, "sms": times.sms}
    whole = {
        **device,
        "card": card.name,
        "ns": times.whole_ns,
        "cold_share": round(share, 3),
        "gap_ns": round(gap_ns, 1),
        "clock_mhz": times.clock_mhz,
    }
    rows = [
        _row(timer, entry.gpu, times.sms, step, code, (share, gap_ns))
        for taken, arch in zip(times.steps, timer.arches(entry.gpu, times.sms), strict=True)
        for code, step in ({arch: taken} | _others(variants.get(taken.step, {}), arch)).items()
    ]
    busy = busy_times(timer, entry, card.ordinal)
    transfers = [
        {**device, "kind": copy.kind, "bytes": copy.bytes, "ns": _rounded(copy.ns)}
        for copy in times.transfers
    ]
    return {
        "rows": rows,
        "wholes": [whole | {key: ns for key, ns in busy.items() if ns is not None}],
        "transfers": transfers,
    }


def busy_times(timer: TraceTimer, entry: GpuEntry, ordinal: int) -> dict[str, float | None]:
    """The time of a request on a device that stays busy: alone there, and among others.

    "Others" are as many requests as fill the device; None if it cannot be measured.
    """
    steady = before = timer.together(entry, ordinal, 1)
    together, slots = timer.together(entry, ordinal, 2), 2
    while together and before and together < _NOT_FULL * before and slots < _MOST_SLOTS:
        slots *= 2
        before, together = together, timer.together(entry, ordinal, slots) or together
    return {"steady_ns": steady, "together_ns": together}


def _share(times: DeviceTimes) -> tuple[float, float]:
    """How far from warm to cold the steps are when the whole trace runs, and what is left of it
    for each step beyond that.
    """
    warm = sum(step.alone.warm_ns for step in times.steps)
    cold = sum(step.alone.cold_ns for step in times.steps)
    if times.whole_ns > cold:
        return 1.0, (times.whole_ns - cold) / max(len(times.steps), 1)
    if cold <= warm:
        return 0.0, 0.0
    return min(max((times.whole_ns - warm) / (cold - warm), 0.0), 1.0), 0.0


def _others(variants: dict[str, StepTimes], arch: str) -> dict[str, StepTimes]:
    """The variants that are slower than the chosen one."""
    return {code: timed for code, timed in variants.items() if code != arch}


def _row(
    timer: TraceTimer, gpu: Gpu, sms: int, step: StepTimes, code: str, added: tuple[float, float]
) -> dict[str, object]:
    """A step by some code; `added`: how far it is from warm to cold, and what comes on top."""
    share, gap_ns = added
    alone = step.alone
    row: dict[str, object] = {
        "step": step.step,
        "name": timer.graph.nodes[step.step].name,
        "gpu": gpu.key,
        "sms": sms,
        "ns": _rounded(alone.at(share) + gap_ns),
        "error": round(max(alone.spread, 0.02), 4),
        "warm_ns": _rounded(alone.warm_ns),
        "cold_ns": _rounded(alone.cold_ns),
    }
    if code:
        row["variant"] = code
    for key, pair in (("compute", step.beside_compute), ("memory", step.beside_memory)):
        if pair is not None:
            row[f"beside_{key}_ns"] = _rounded(pair.at(share) + gap_ns)
    return row


def _rounded(ns: float) -> float:
    """A time as the file holds it: never 0, which no plan could use."""
    return max(round(ns, 1), _LEAST_NS)


def profile_text(data: dict[str, object]) -> str:
    """The profile as its file holds it: a row per line."""
    parts = []
    for key, value in data.items():
        if isinstance(value, list):
            lines = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(f"{json.dumps(key)}: [\n{lines}\n]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value)}")
    return "{" + ",\n".join(parts) + "}\n"
