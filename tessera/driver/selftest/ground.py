"""The devices of this machine that a self-test tries, as plans name them.

In: `SelftestOptions`. Out: a `TrialGround`: a machine to plan for, and the GPU or slice that stands
for each of its devices. Without `devices`, all GPUs of this machine are taken. One GPU is not
enough, because there would be nothing to compare; the error says how to cut it into slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.card_names import is_card
from tessera.driver.selftest.options import SelftestOptions
from tessera.frontend.machine.gpu_table import aliases_of, gpu_table
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.machine.selftest_links import SELFTEST_LINK
from tessera.ir.plan.machine import Machine

if TYPE_CHECKING:
    from tessera.backend.cuda.api import GpuFacts

_REHEARSED = "a100,l40s"
_SLICE_STEP = 8
_LARGER = 0.62


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialGround:
    """A machine to try. `targets` map its devices by name; empty on the CPU."""

    backend: str
    devices: str
    machine: Machine
    targets: Mapping[str, str]

    def used(self, names: Sequence[str]) -> dict[str, str]:
        """The targets of only these devices."""
        return {name: self.targets[name] for name in names if name in self.targets}


def find_ground(options: SelftestOptions) -> TrialGround:
    """The devices to try; TSR5055 where they are too few, TSR5055 where they are not here."""
    if options.backend == "cpu":
        text = options.devices or _REHEARSED
        machine = machine_of(text, SELFTEST_LINK)
        if len(machine.devices) < 2:
            raise _too_few(f"`{text}` is one device", "name two, such as `a100,l40s`")
        return TrialGround(backend="cpu", devices=text, machine=machine, targets={})
    from tessera.backend.cuda.targets import open_driver

    here = open_driver().gpus()
    text = ",".join(map(_name_of, here)) if options.devices is None else options.devices
    if not here:
        raise _too_few("there is no GPU here", "rehearse without one: `--backend cpu`")
    machine = machine_of(text, SELFTEST_LINK)
    if len(machine.devices) < 2:
        raise _too_few(
            f"there is one device only: {machine.cards[0].gpu.name}",
            f"cut the GPU into slices: `--devices {_cut(machine)}`",
        )
    return TrialGround(
        backend="cuda", devices=text, machine=machine, targets=_targets(machine, here)
    )


def _targets(machine: Machine, here: Sequence[GpuFacts]) -> dict[str, str]:
    """A GPU for every card, each once, and a slice of it if the card is cut."""
    taken: dict[int, int] = {}
    for card in machine.cards:
        for facts in here:
            if facts.ordinal not in taken.values() and is_card(card.gpu, facts):
                taken[card.id] = facts.ordinal
                break
        else:
            there = ", ".join(f"cuda:{f.ordinal} ({f.name}, {f.sms} SMs)" for f in here)
            raise TesseraError.of(
                "TSR5055",
                f"this machine has no GPU for `{card.name}`: {card.gpu.name} ({card.gpu.sms} SMs)",
                notes=(f"it has {there}", "slices fill one GPU after the other"),
                hint="name what is here; `tessc doctor` lists it",
                exit_code=ExitCode.NO_DEVICE,
            )
    targets = {}
    for device in machine.devices:
        whole = device.sms == machine.cards[device.card].gpu.sms
        part = "" if whole else f":{device.sms}sm"
        targets[device.name] = f"cuda:{taken[device.card]}{part}"
    return targets


def _name_of(facts: GpuFacts) -> str:
    """The table's name of a GPU of this machine; of several, the one with the same memory."""
    fitting = [gpu for gpu in gpu_table().values() if is_card(gpu, facts)]
    if not fitting:
        raise TesseraError.of(
            "TSR5055",
            f"cuda:{facts.ordinal} ({facts.name}, {facts.sms} SMs) is not in the table of GPUs",
            notes=("predictions need its data sheet",),
            hint="leave it out by naming the others, such as `--devices a100,l40s`; "
            "`tessc gpus` lists what can be named",
            exit_code=ExitCode.NO_DEVICE,
        )
    gpu = min(fitting, key=lambda known: abs(known.memory_bytes - facts.memory_bytes))
    return next(iter(aliases_of(gpu.key)), gpu.key)


def _cut(machine: Machine) -> str:
    """Two unlike slices of the one GPU."""
    gpu = machine.cards[0].gpu
    name = machine.cards[0].label
    larger = round(_LARGER * gpu.sms / _SLICE_STEP) * _SLICE_STEP
    smaller = (gpu.sms - larger) // _SLICE_STEP * _SLICE_STEP
    return f"{name}:{larger}sm,{name}:{smaller}sm"


def _too_few(headline: str, hint: str) -> TesseraError:
    return TesseraError.of(
        "TSR5055",
        f"a self-test needs two devices: {headline}",
        hint=hint,
        exit_code=ExitCode.NO_DEVICE,
    )
