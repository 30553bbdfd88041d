"""The GPUs and slices that stand for the devices of a plan.

In: a target per device, `cuda:0` (a whole GPU) or `cuda:0:84sm` (a slice of it: a green context
with that many SMs). Out: open devices. Slices of one GPU have SMs of their own, and share memory
and copy engines. All calls go through the primary context of the GPU, which also reaches the
streams of its green contexts. A green context itself is never made current, since it may be current
in only one thread at a time.

Source: CUDA driver API, green contexts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from tessera.backend.cuda.api import Driver, DriverError, GpuFacts, Handle, bindings
from tessera.backend.cuda.faults import explain, missing, start_failed
from tessera.backend.cuda.slices import TooFewSms, split_gpu
from tessera.settings import set_default

_TARGET = re.compile(r"cuda:(\d{1,3})(?::(\d{1,4})sm)?\Z")


@dataclass(frozen=True, slots=True)
class GpuTarget:
    """A GPU by ordinal, or `sms` SMs of it."""

    ordinal: int
    sms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDevice:
    """A device of the plan, ready to use. `sms` is its number of SMs."""

    name: str
    gpu: GpuFacts
    context: Handle
    green: Handle | None
    sms: int


def open_driver(driver: Driver | None = None) -> Driver:
    """The driver, initialised; raises TSR5100 if there is none."""
    # Streams share hardware queues, 8 by default: a transfer could wait behind an unrelated kernel.
    set_default("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    try:
        driver = driver or Driver(bindings())
    except ImportError:
        raise missing(
            "TSR5100",
            "the CUDA backend needs the package `cuda-python`, which is not installed",
            hint="install `tessera-compiler[cuda]`; `tessc run` also has `--backend cpu`",
        ) from None
    try:
        driver.initialise()
    except (DriverError, RuntimeError, OSError) as problem:
        reason = explain(problem) if isinstance(problem, DriverError) else str(problem)
        raise missing(
            "TSR5100",
            "there is no CUDA driver that works",
            notes=(reason,),
            hint="`tessc doctor` shows what is there; `--backend cpu` needs no GPU",
        ) from None
    return driver


def parse_target(text: str) -> GpuTarget:
    """The target of a text such as `cuda:0` or `cuda:0:84sm`."""
    match = _TARGET.match(text)
    if match is None or (match[2] is not None and not int(match[2])):
        raise missing(
            "TSR5055",
            f"`{text}` is no CUDA device",
            hint="write `cuda:0` for a GPU or `cuda:0:84sm` for a slice of one",
        )
    return GpuTarget(int(match[1]), None if match[2] is None else int(match[2]))


def find_gpu_of(driver: Driver, name: str, target: str) -> int:
    """The ordinal of the GPU of a device; raises TSR5055 if the GPU does not exist."""
    ordinal = parse_target(target).ordinal
    gpus = driver.gpus()
    if ordinal >= len(gpus):
        raise _not_there(name, ordinal, gpus)
    return ordinal


def open_devices(
    driver: Driver, names: Sequence[str], targets: Mapping[str, str]
) -> tuple[OpenDevice, ...]:
    """Open every device of a plan on its target; devices without a target take GPUs in order."""
    gpus = driver.gpus()
    # Includes devices of other replicas: slices of one GPU must not overlap.
    every = {name: parse_target(text) for name, text in targets.items()}
    for index, name in enumerate(names):
        every.setdefault(name, GpuTarget(index))
        if every[name].ordinal >= len(gpus):
            raise _not_there(name, every[name].ordinal, gpus)
    ordinals = dict.fromkeys(every[name].ordinal for name in names)
    try:
        return _open(driver, [gpus[ordinal] for ordinal in ordinals], every, names)
    except DriverError as problem:
        where = ", ".join(f"cuda:{ordinal}" for ordinal in ordinals)
        raise start_failed(problem, f"a context on {where}") from None


def _open(
    driver: Driver, gpus: Sequence[GpuFacts], every: Mapping[str, GpuTarget], names: Sequence[str]
) -> tuple[OpenDevice, ...]:
    """Open the devices `names` on these GPUs; after an error, none is left open."""
    opened: dict[str, OpenDevice] = {}
    contexts: dict[int, Handle] = {}
    with ExitStack() as kept:
        for gpu in gpus:
            contexts[gpu.ordinal] = driver.retain(gpu.ordinal)
            kept.callback(driver.release, gpu.ordinal)
        for gpu in gpus:
            here = {name: target for name, target in every.items() if target.ordinal == gpu.ordinal}
            made = _open_on(driver, gpu, contexts[gpu.ordinal], here, names)
            kept.callback(_close_slices, driver, tuple(made.values()))
            opened |= made
        _join(driver, contexts)
        kept.pop_all()  # the caller owns them now
    return tuple(opened[name] for name in names)


def _close_slices(driver: Driver, devices: Sequence[OpenDevice]) -> None:
    for device in devices:
        if device.green is not None:
            driver.destroy_green(device.green)


def close_devices(driver: Driver, devices: Sequence[OpenDevice]) -> None:
    """Release contexts."""
    _close_slices(driver, devices)
    for ordinal in dict.fromkeys(device.gpu.ordinal for device in devices):
        driver.release(ordinal)


def have_peers(driver: Driver, source: OpenDevice, target: OpenDevice) -> bool:
    """Whether two devices copy to each other directly."""
    pair = (source.gpu.ordinal, target.gpu.ordinal)
    return pair[0] == pair[1] or (driver.peers(*pair) and driver.peers(pair[1], pair[0]))


def _open_on(
    driver: Driver,
    gpu: GpuFacts,
    context: Handle,
    here: Mapping[str, GpuTarget],
    names: Sequence[str],
) -> dict[str, OpenDevice]:
    """Open the devices `names` on one GPU: one device for the whole GPU, or disjoint slices."""
    driver.use(context)
    own = {name: target for name, target in here.items() if name in names}
    if any(target.sms is None for target in own.values()):
        if len(own) > 1:
            raise _shared(gpu, own)
        return {
            name: OpenDevice(name=name, gpu=gpu, context=context, green=None, sms=gpu.sms)
            for name in own
        }
    slices = {name: target.sms for name, target in here.items() if target.sms is not None}
    counts = list(slices.values())
    wanted = [index for index, name in enumerate(slices) if name in names]
    try:
        made = split_gpu(driver, gpu.ordinal, counts, wanted)
    except (DriverError, TooFewSms) as problem:
        asked = " + ".join(map(str, counts))
        raise missing(
            "TSR5105",
            f"cuda:{gpu.ordinal} ({gpu.name}) cannot be cut into slices of {asked} SMs",
            notes=(
                f"it has {gpu.sms} SMs",
                explain(problem) if isinstance(problem, DriverError) else str(problem),
            ),
            hint="on recent GPUs slices are multiples of 8 SMs; leave some SMs unused",
        ) from None
    mine = [name for name in slices if name in names]
    return {
        name: OpenDevice(name=name, gpu=gpu, context=context, green=green, sms=sms)
        for name, (green, sms) in zip(mine, made, strict=True)
    }


def _join(driver: Driver, contexts: Mapping[int, Handle]) -> None:
    """Enable peer access between all GPUs that support it."""
    for source, context in contexts.items():
        driver.use(context)
        for target, peer in contexts.items():
            if source != target and driver.peers(source, target):
                driver.enable_peer(peer)


def _not_there(name: str, ordinal: int, gpus: Sequence[GpuFacts]) -> Exception:
    there = ", ".join(f"cuda:{gpu.ordinal} ({gpu.name})" for gpu in gpus) or "no GPU"
    return missing(
        "TSR5055",
        f"device `{name}` of the plan needs cuda:{ordinal}, which is not there",
        notes=(f"this machine has {there}",),
        hint=f"map it: `--map {name}=cuda:0`, or a slice `{name}=cuda:0:64sm`, or use "
        "`--backend cpu`",
    )


def _shared(gpu: GpuFacts, here: Mapping[str, GpuTarget]) -> Exception:
    names = ", ".join(f"`{name}`" for name in here)
    return missing(
        "TSR5055",
        f"devices {names} of the plan cannot all be the whole of cuda:{gpu.ordinal}",
        hint="give each a slice of it, such as `cuda:0:64sm`",
    )
