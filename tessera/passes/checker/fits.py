"""Whether every step can run on the device that a plan gives it.

In: a plan, and the programs and graphs of its traces. Out: findings.

Code runs on its own architecture and later ones, unless the suffix of its name excludes them. A
block has to fit a multiprocessor. CTAs that wait for each other have to run at the same time, or
the step never ends; the check allows as many as threads and shared memory of the device permit.
Registers may permit fewer CTAs, so a step that is refused here certainly cannot run.

Source: CUDA C++ Programming Guide, compute capabilities; PTX ISA, `.target`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod

from tessera.ir.graph.access import NeedKind
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.plan.plan import PlacedStep, Plan, Replica
from tessera.ir.program.program import Launch, Program, for_arch
from tessera.passes.checker.findings import Findings

# The number of SMs that code is tuned for does not limit the devices on which it runs.
_ARCH = re.compile(r"sm_(\d+)([af]?)(?::\d+sm)?")
_CLUSTERS_FROM = 90
_THREADS_PER_BLOCK = 1024
_WARP = 32
_KIB = 1024
# Per architecture: threads and blocks of a multiprocessor; KiB of shared memory of a multiprocessor
# and of one block. `ir.architecture` has the same numbers, but the checker does not rely on it; a
# test compares the two.
_LIMITS = {
    70: (2048, 32, 96, 96),
    72: (2048, 32, 96, 96),
    75: (1024, 16, 64, 64),
    80: (2048, 32, 164, 163),
    86: (1536, 16, 100, 99),
    87: (1536, 16, 164, 163),
    88: (1536, 16, 100, 99),
    89: (1536, 24, 100, 99),
    90: (2048, 32, 228, 227),
    100: (2048, 32, 228, 227),
    101: (1536, 24, 228, 227),
    103: (2048, 32, 228, 227),
    110: (1536, 24, 228, 227),
    120: (1536, 24, 100, 99),
    121: (1536, 24, 100, 99),
}
_LARGEST = (2048, 32, 228, 227)


def check_fits(
    replica: Replica,
    plan: Plan,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    findings: Findings,
) -> None:
    """Check that every step is on a device that can run it."""
    arch_of = {card.name: card.arch for card in plan.cards}
    devices = {device.name: (arch_of.get(device.card, ""), device.sms) for device in plan.devices}
    for placed in replica.traces:
        if not 0 <= placed.trace < len(programs):
            continue  # reported elsewhere
        rows = zip(
            placed.steps, programs[placed.trace].work(), graphs[placed.trace].nodes, strict=False
        )
        for step, work, node in rows:
            arch, sms = devices.get(step.device, ("", 0))
            here = _ARCH.fullmatch(arch)
            if here is None:
                continue
            why = _foreign(step, here)
            if not why and isinstance(work, Launch):
                why = _too_large(for_arch(work, step.arch), node, int(here[1]), sms)
            if why:
                where = f"on `{step.device}`, which is `{arch}` with {sms} SMs"
                what = f"step `#{step.step} {step.name}` cannot run {where}: {why}"
                findings.add("TSR4013", what, at=step)


def _foreign(step: PlacedStep, here: re.Match[str]) -> str:
    code = _ARCH.fullmatch(step.arch)
    if code is None:
        return ""
    made, there = int(code[1]), int(here[1])
    runs = {"": made <= there, "a": made == there, "f": made <= there < made // 10 * 10 + 10}
    return "" if runs[code[2]] else f"its code is for `{step.arch}`"


def _too_large(launch: Launch, node: Node, arch: int, sms: int) -> str:
    threads_per_sm, blocks_per_sm, shared_per_sm, shared_per_block = _LIMITS.get(arch, _LARGEST)
    threads, shared = prod(launch.block), launch.shared_bytes
    if threads > _THREADS_PER_BLOCK:
        return f"it has {threads} threads per block"
    if shared > shared_per_block * _KIB:
        return f"it has {shared} bytes of shared memory per block"
    kinds = {need.kind for need in node.needs}
    if arch < _CLUSTERS_FROM and (launch.cluster is not None or NeedKind.CLUSTER in kinds):
        return "it is launched in clusters"
    if not launch.cooperative and not kinds & {NeedKind.GRID, NeedKind.WAIT}:
        return ""
    resident = min(blocks_per_sm, threads_per_sm // (-(-threads // _WARP) * _WARP))
    if shared:
        resident = min(resident, shared_per_sm * _KIB // shared)
    if prod(launch.grid) > resident * sms:
        return (
            f"its {prod(launch.grid)} blocks wait for each other, and at most {resident * sms} "
            "run at the same time"
        )
    return ""
