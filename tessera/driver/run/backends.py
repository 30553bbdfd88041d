"""Which backend runs a plan, and which GPUs stand for its devices.

In: the user's choice (`--backend`, `--map`) and the GPUs of this machine. Out: a `BackendChoice`,
and backends made from it. `auto` takes the GPUs if there is one for every device of the plan, and
the CPU on a machine without GPUs; otherwise it reports the GPUs it found instead of guessing.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from tessera.backend.known_backends import KNOWN_BACKENDS, BackendName, gpu_target
from tessera.backend.service import Backend, BackendOptions, Model
from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, error, warning
from tessera.driver.hosts.assign import assign_hosts
from tessera.driver.run.open_plan import OpenPlan
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.plan.hosts import HostTable
from tessera.ir.plan.plan import Plan

_TARGET = re.compile("|".join(name.target for name in KNOWN_BACKENDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalGpu:
    """A GPU of this machine."""

    target: str
    name: str
    arch: str
    sms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """The backend and, on GPUs, the GPU that stands for each device."""

    backend: BackendName
    targets: Mapping[str, str]
    hosts: HostTable | None = None


def parse_map(text: str | None) -> dict[str, str]:
    """`a100=cuda:0,l40s=cuda:1:48sm` as a mapping."""
    targets: dict[str, str] = {}
    for part in () if text is None else text.split(","):
        device, equals, target = (word.strip() for word in part.partition("="))
        if not equals or not device or not _TARGET.fullmatch(target) or device in targets:
            raise TesseraError.of(
                "TSR5055",
                f"`{part.strip()}` in `--map` cannot be used",
                hint="write `DEVICE=TARGET,...` with targets such as `cuda:0`, "
                "`cuda:0:48sm` or `cpu`, each device once",
                exit_code=ExitCode.USAGE,
            )
        targets[device] = target
    return targets


def check_asked(backend: str, targets: Mapping[str, str]) -> None:
    """Refuse a backend or a target that cannot exist on any machine."""
    if backend not in [*BackendName]:
        known = ", ".join(f"`{name}`" for name in BackendName)
        raise TesseraError.of(
            "TSR5055",
            f"there is no backend `{backend}`",
            hint=f"choose one of: {known}",
            exit_code=ExitCode.USAGE,
        )
    for device, target in targets.items():
        if not _TARGET.fullmatch(target):
            raise TesseraError.of(
                "TSR5055",
                f"`{target}` cannot stand for `{device}`",
                hint="targets are such as `cuda:0`, `cuda:0:48sm` or `cpu`",
                exit_code=ExitCode.USAGE,
            )


def choose_backend(
    opened: OpenPlan,
    asked: str,
    targets: Mapping[str, str],
    gpus: Sequence[LocalGpu] | None = None,
    *,
    hosts: HostTable | None = None,
) -> BackendChoice:
    """The backend to run on; exit code 4 if the requested one is not available."""
    devices = list(dict.fromkeys(d for r in opened.replicas for d in r.lowered.devices))
    targets = {_device(name, devices): target for name, target in targets.items()}
    for name in targets:
        if name not in devices:
            raise TesseraError.of(
                "TSR5055",
                f"`--map` names `{name}`, which the plan does not use",
                hint=f"its devices are: {', '.join(devices)}",
                exit_code=ExitCode.USAGE,
            )
    kinds = {target.split(":")[0] for target in targets.values()}
    if asked != BackendName.AUTO:
        kinds.add(asked)
    if hosts is not None:
        if BackendName.CUDA not in kinds:
            return BackendChoice(backend=BackendName.CPU, targets={}, hosts=hosts)
        if BackendName.CPU not in kinds:
            assigned = assign_hosts(hosts, opened.plan)
            names = {device: assigned[device].name for device in devices}
            every = _by_number(opened.plan, names, targets)
            return BackendChoice(backend=BackendName.CUDA, targets=every, hosts=hosts)
    if len(kinds) > 1:
        raise TesseraError.of(
            "TSR5055",
            "the devices of a run are all on GPUs or all on the CPU",
            hint="map every device to the same kind, and leave `--backend` out",
            exit_code=ExitCode.USAGE,
        )
    for kind in KNOWN_BACKENDS:
        if kind in kinds and not kind.is_on_gpus:
            return BackendChoice(backend=kind, targets={})
    if not all(name in targets for name in devices):
        _check_hosts(opened.plan, devices)
    here = find_gpus() if gpus is None else gpus
    if not here and not kinds:
        return BackendChoice(backend=BackendName.CPU, targets={})
    if targets or kinds:
        matching = _match(opened.plan, devices, here, targets)
        on_this = dict.fromkeys(devices, "")
        every = matching or _by_number(opened.plan, on_this, targets)
        return BackendChoice(backend=BackendName.CUDA, targets=every)
    matched = _match(opened.plan, devices, here, {})
    if matched is None:
        raise TesseraError(_missing(opened.plan, devices, here), exit_code=ExitCode.NO_DEVICE)
    return BackendChoice(backend=BackendName.CUDA, targets=matched)


def _by_number(plan: Plan, hosts: Mapping[str, str], targets: Mapping[str, str]) -> dict[str, str]:
    """The GPUs of every host by number, one per card, for devices that `--map` does not name.

    `hosts` are by device. The backend refuses missing GPUs: only their own host knows them. A
    device that is a whole card takes a whole GPU of any kind; a slice takes its number of SMs.
    """
    chosen = dict(targets)
    taken = {(hosts[device], target.split(":")[1]) for device, target in targets.items()}
    card_of: dict[str, str] = {}
    cards = {card.name: card for card in plan.cards}
    for device in plan.devices:
        if device.name not in hosts or device.name in chosen:
            continue
        host = hosts[device.name]
        if device.card not in card_of:
            free = (str(n) for n in itertools.count() if (host, str(n)) not in taken)
            card_of[device.card] = next(free)
            taken.add((host, card_of[device.card]))
        kind = gpu_table().get(cards[device.card].gpu)
        is_whole = kind is not None and kind.sms == device.sms
        chosen[device.name] = gpu_target(card_of[device.card], device.sms, is_whole=is_whole)
    return chosen


def _check_hosts(plan: Plan, devices: Sequence[str]) -> None:
    """Refuse a plan across several hosts: on one machine it can only be rehearsed."""
    node_of = {card.name: card.node for card in plan.cards}
    nodes = sorted({node_of[d.card] for d in plan.devices if d.name in devices})
    if len(nodes) > 1:
        raise TesseraError.of(
            "TSR5055",
            f"the plan is for {len(nodes)} hosts, and a run is on one",
            notes=(f"hosts: {', '.join(nodes)}",),
            hint="run it on processes of these hosts with `--hosts hosts.toml`, rehearse it "
            "here with `--backend cpu`, or put every device on what is here with `--map`",
            exit_code=ExitCode.NO_DEVICE,
        )


def _device(name: str, devices: Sequence[str]) -> str:
    """The device that a name stands for: `a100` is `a100-0` if that is the only `a100`."""
    kin = [device for device in devices if re.fullmatch(re.escape(name) + r"-\d+", device)]
    return kin[0] if name not in devices and len(kin) == 1 else name


def _match(
    plan: Plan, devices: Sequence[str], here: Sequence[LocalGpu], targets: Mapping[str, str]
) -> dict[str, str] | None:
    """A GPU of the right kind for every card of the plan, in order; None if one is missing.

    The GPU has as many SMs as the devices of the card together, and each device has its own SMs.
    """
    chosen = dict(targets)
    taken = {target.split(":")[1] for target in targets.values() if ":" in target}
    card_of: dict[str, LocalGpu] = {}
    cards = {card.name: card for card in plan.cards}
    needed = Counter[str]()
    for device in plan.devices:
        needed[device.card] += device.sms
    for device in plan.devices:
        if device.name not in devices or device.name in chosen:
            continue
        card = cards[device.card]
        if device.card not in card_of:
            free = (gpu for gpu in here if _number(gpu) not in taken)
            fitting = (gpu for gpu in free if gpu.sms >= needed[device.card])
            gpu = next((g for g in fitting if _is_kind(g, card.gpu, card.arch)), None)
            if gpu is None:
                return None
            card_of[device.card] = gpu
            taken.add(_number(gpu))
        gpu = card_of[device.card]
        is_whole = device.sms == gpu.sms
        chosen[device.name] = gpu_target(_number(gpu), device.sms, is_whole=is_whole)
    return chosen


def _number(gpu: LocalGpu) -> str:
    return gpu.target.split(":")[1]


def _is_kind(gpu: LocalGpu, kind: str, arch: str) -> bool:
    words = re.findall(r"[a-z0-9]+", gpu.name.lower())
    return kind.split("-")[0].lower() in words and gpu.arch.rstrip("a") == arch.rstrip("a")


def _missing(plan: Plan, devices: Sequence[str], here: Sequence[LocalGpu]) -> Diagnostic:
    cards = {card.name: card for card in plan.cards}
    wanted = ", ".join(
        f"`{device.name}` ({cards[device.card].gpu}, {device.sms} SMs)"
        for device in plan.devices
        if device.name in devices
    )
    return error(
        "TSR5055",
        f"this machine does not have the GPUs of the plan: {wanted}",
        notes=tuple(f"found: {gpu.target} ({gpu.name}, {gpu.sms} SMs)" for gpu in here),
        hint="put the devices on what is there with `--map DEVICE=cuda:0:48sm,...`, "
        "or rehearse with `--backend cpu`",
    )


def find_gpus() -> tuple[LocalGpu, ...]:
    """The GPUs of this machine; none without a driver or without `cuda-python`."""
    from tessera.backend.cuda.targets import open_driver

    try:
        cards = open_driver().gpus()
    except TesseraError:
        return ()
    return tuple(
        LocalGpu(target=f"cuda:{gpu.ordinal}", name=gpu.name, arch=gpu.arch, sms=gpu.sms)
        for gpu in cards
    )


def make_backend(choice: BackendChoice, model: Model, options: BackendOptions) -> Backend:
    """The backend of one replica. Only this function knows the classes of backends."""
    match choice.backend:
        case BackendName.CPU:
            from tessera.backend.processes.workers import CpuBackend

            return CpuBackend(model, options)
        case BackendName.CUDA:
            from tessera.backend.cuda.backend import CudaBackend
            from tessera.ir.plan.one_host import on_one_host

            return CudaBackend(replace(model, lowered=on_one_host(model.lowered)), options)
        case BackendName.AUTO:
            raise ValueError("`auto` is chosen by `choose_backend`; it cannot be made")
        case _ as never:
            assert_never(never)


def rehearsal(seconds: float) -> Diagnostic:
    """A warning that a plan for GPUs runs on the CPU, and how long it may take."""
    return warning(
        "TSR5058",
        "there is no GPU here: the plan is rehearsed on the CPU",
        notes=(f"about {_duration(seconds)}, if its devices took turns",),
        hint="`--backend cpu` says that this is meant",
    )


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(seconds, 0.1):.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
