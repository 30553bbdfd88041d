"""A plan as programs for cuda-python alone: `tessc plan --emit cuda-python`.

In: a report with its plan. Out: files by name. A replica is one set of programs; where a plan has
several, each has a folder. GPUs are numbered as the plan's cards; slices of a card are slices of
its GPU.
"""

from __future__ import annotations

from tessera.backend.cuda.emitted.emit_python import WRITTEN_BY, emit_python
from tessera.backend.known_backends import gpu_target
from tessera.backend.service import ServedTrace
from tessera.driver.traces import proved_kernels
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.one_host import on_one_host
from tessera.ir.plan.plan import Plan, Replica
from tessera.planning.given.setting import PlanSetting

__all__ = ["WRITTEN_BY", "cuda_python_files"]


def cuda_python_files(plan: Plan, setting: PlanSetting) -> dict[str, str]:
    """The files of all replicas."""
    written: dict[str, str] = {}
    targets = _targets(plan, setting.machine)
    for number, replica in enumerate(plan.replicas):
        folder = f"replica_{number}/" if len(plan.replicas) > 1 else ""
        served = _served(plan, replica, setting)
        files = emit_python(on_one_host(replica.lowered), served, targets)
        written |= {folder + name: text for name, text in files.items()}
    return written


def _served(plan: Plan, replica: Replica, setting: PlanSetting) -> tuple[ServedTrace, ...]:
    """Every trace of the plan, with the code that this replica runs."""
    placed = {part.trace: part for part in replica.traces}
    served = []
    for index, (planned, loaded) in enumerate(zip(plan.traces, setting.traces, strict=True)):
        steps = sorted(placed[index].steps, key=lambda s: s.step) if index in placed else ()
        arches = tuple(step.arch for step in steps)
        served.append(
            ServedTrace(name=planned.name, program=proved_kernels(loaded.program), arches=arches)
        )
    return tuple(served)


def _targets(plan: Plan, machine: Machine) -> dict[str, str]:
    """`cuda:0` for the device of the first card, `cuda:0:84sm` for a slice of it."""
    ordinals = {card.name: number for number, card in enumerate(plan.cards)}
    whole = {card.name: card.gpu.sms for card in machine.cards}
    return {
        device.name: gpu_target(
            ordinals[device.card], device.sms, is_whole=device.sms == whole.get(device.card)
        )
        for device in plan.devices
    }
