"""Whether there is room for the variables of all modules that a device loads.

In: a lowered replica, the programs of its traces, the device and the code of each step. Out:
findings.

To load a module is to have all its `.global` and `.const` variables in memory, whether a step
touches them or not. A device loads the modules of the launches that run there: every trace its own,
and every variant that one of its launches takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessera.ir.plan.launch_program import AreaKind, LoweredReplica
from tessera.ir.program.program import Launch, Program, Role
from tessera.passes.checker.findings import Findings

Arches = Mapping[int, Sequence[str]]
"""Per trace the variant of each step."""


def check_modules(
    replica: LoweredReplica,
    programs: Sequence[Program],
    placements: Mapping[int, Sequence[str]],
    arches: Arches,
    findings: Findings,
) -> None:
    """The module area of every device holds what its modules bring along."""
    loaded: dict[str, set[tuple[int, int, str]]] = {}
    for trace in sorted({trace_programs.trace for trace_programs in replica.traces}):
        own = arches.get(trace, ())
        for number, step in enumerate(programs[trace].work()):
            if isinstance(step, Launch):
                arch = own[number] if number < len(own) else ""
                here = loaded.setdefault(placements[trace][number], set())
                here.add((trace, int(step.module), arch))
    sizes = {trace: _variable_bytes(programs[trace]) for trace in placements}
    rooms = {a.device: a for a in replica.areas if a.kind is AreaKind.MODULE}
    for device, modules in sorted(loaded.items()):
        need = sum(sizes[trace].get(module, 0) for trace, module, _ in modules)
        area = rooms.get(device)
        room = 0 if area is None else area.bytes
        if need > room:
            findings.add(
                "TSR4009",
                f"the module area of `{device}` has {room} bytes, and the variables of the modules "
                f"that it loads take {need}",
                "a module brings all its variables along, used or not",
                at=area,
            )


def _variable_bytes(program: Program) -> dict[int, int]:
    """Per module the bytes of its variables."""
    numbers = {module.name: int(module.id) for module in program.modules}
    bytes_of: dict[int, int] = {}
    for variable in program.buffers:
        if variable.role is Role.VARIABLE:
            module = numbers.get(variable.name.rpartition(".")[0])
            if module is not None:
                bytes_of[module] = bytes_of.get(module, 0) + variable.bytes
    return bytes_of
