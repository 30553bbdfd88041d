"""Checks that every buffer has a place of its own, inside the memory of its device.

In: a lowered replica and the programs of its traces. Out: a `Memory`, the place of each buffer of
each trace, and findings.

An area exists once (weights, module variables), once per sequence (state) or once per slot (the
rest), and its kind follows from the role of a buffer. Weights and states of equal name are one
buffer for all traces: they have one place on a device, which nothing else shares. Places in a slot
may overlap: `checker.versions` proves that their tenants do not overlap in time. The address of a
variable is only known when its module is loaded; no two variables share bytes. A weight with words
of a `pointers` record may be in a slot, because the buffers that it points to may be in a slot.

A place may hold a range of its buffer. It begins at a multiple of the alignment, so that every
pointer into the buffer is as aligned as before. `checker.versions` and `checker.homes` prove that
nothing on the device touches other bytes. A buffer with words of a `pointers` record, or that such
a word points to, is whole.

A loaded module has all its `.global` and `.const` variables in memory, whether a step touches them
or not (`check_modules`). A device loads the modules of the launches that run there: separate copies
for every trace, and every variant that one of its launches takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tessera.ir.plan.launch_program import (
    HOST,
    PLACE_ALIGNMENT,
    Area,
    AreaKind,
    LoweredReplica,
    Place,
)
from tessera.ir.program.program import Launch, Program, Role
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.tables import check_tables

KIND_OF: Mapping[Role, AreaKind] = {
    Role.WEIGHT: AreaKind.WEIGHTS,
    Role.STATE: AreaKind.LANE,
    Role.INPUT: AreaKind.SLOT,
    Role.OUTPUT: AreaKind.SLOT,
    Role.TEMP: AreaKind.SLOT,
    Role.VARIABLE: AreaKind.MODULE,
}
# Larger than any memory, and small enough that sums of such numbers fit in 64 bits.
MOST_BYTES = 1 << 56
MOST_DEVICES = 1024
_SHARED = (AreaKind.WEIGHTS, AreaKind.LANE)


@dataclass(frozen=True, slots=True)
class Memory:
    """The places of a replica by trace, device and buffer."""

    places: dict[tuple[int, str, int], Place] = field(default_factory=dict)

    def place(self, trace: int, device: str, buffer: int) -> Place | None:
        """The place of a buffer on a device, or None."""
        return self.places.get((trace, device, buffer))


def check_memory(
    replica: LoweredReplica, programs: Sequence[Program], findings: Findings
) -> Memory | None:
    """The places of a replica, or None if they cannot be used."""
    before = findings.count
    _check_devices(replica, findings)
    areas = _areas(replica, findings)
    memory = Memory()
    for place in replica.places:
        fault = _place_fault(place, replica, programs, areas)
        key = (place.trace, place.device, int(place.buffer))
        if fault is None and key in memory.places:
            fault = "has two places there"
        if fault is None:
            memory.places[key] = place
            continue
        name = _name(place, programs)
        findings.add(
            "TSR4009", f"{name} of trace {place.trace} on `{place.device}` {fault}", at=place
        )
    if findings.count > before:
        return None
    _check_shared(memory, programs, findings)
    _check_slot_weights(memory, programs, findings)
    check_tables(memory.places, areas, programs, findings)
    _check_variables(memory, areas, programs, findings)
    return memory if findings.count == before else None


def _check_devices(replica: LoweredReplica, findings: Findings) -> None:
    if not 1 <= replica.slots <= 1 << 20 or not 1 <= replica.lanes <= 1 << 20:
        findings.add(
            "TSR4013", f"a replica cannot have {replica.slots} slots and {replica.lanes} sequences"
        )
    if len(replica.devices) > MOST_DEVICES:
        findings.add(
            "TSR4015", f"a replica of {len(replica.devices)} devices is too large to be proved"
        )
    if HOST in replica.devices or len(set(replica.devices)) < len(replica.devices):
        findings.add("TSR4013", f"the devices of a replica need names of their own, not `{HOST}`")


def _areas(replica: LoweredReplica, findings: Findings) -> dict[tuple[str, AreaKind], Area]:
    counts = {
        AreaKind.WEIGHTS: 1,
        AreaKind.MODULE: 1,
        AreaKind.LANE: replica.lanes,
        AreaKind.SLOT: replica.slots,
    }
    areas: dict[tuple[str, AreaKind], Area] = {}
    for area in replica.areas:
        what = f"the {area.kind.value} area of `{area.device}`"
        if area.device not in replica.devices:
            findings.add("TSR4009", f"{what} is on no device of the replica", at=area)
        elif (area.device, area.kind) in areas:
            findings.add("TSR4009", f"{what} is there twice", at=area)
        elif not 0 <= area.bytes <= MOST_BYTES:
            findings.add("TSR4009", f"{what} cannot have {area.bytes} bytes", at=area)
        elif area.count != counts[area.kind]:
            findings.add(
                "TSR4009", f"{what} is there {area.count} times, not {counts[area.kind]}", at=area
            )
        elif area.count > 1 and area.bytes % PLACE_ALIGNMENT:
            findings.add(
                "TSR4009",
                f"{what} has copies of {area.bytes} bytes, no multiple of {PLACE_ALIGNMENT}",
                at=area,
            )
        else:
            areas[area.device, area.kind] = area
    return areas


def _place_fault(
    place: Place,
    replica: LoweredReplica,
    programs: Sequence[Program],
    areas: Mapping[tuple[str, AreaKind], Area],
) -> str | None:
    if not 0 <= place.trace < len(programs):
        return "is of a trace that is not there"
    program = programs[place.trace]
    if not 0 <= place.buffer < len(program.buffers):
        return "is a buffer that is not there"
    if place.device not in replica.devices:
        return "is on no device of the replica"
    buffer = program.buffers[place.buffer]
    wanted = KIND_OF[buffer.role]
    if place.kind is AreaKind.SLOT and _has_words(program, place.buffer):
        wanted = AreaKind.SLOT if buffer.role is Role.WEIGHT else wanted
    if place.kind is not wanted:
        return (
            f"is of role {buffer.role.value} and must be in the {wanted.value} area, not in "
            f"{place.kind.value}"
        )
    area = areas.get((place.device, place.kind))
    if area is None:
        return f"is in the {place.kind.value} area, which is not there"
    fault = _range_fault(place, buffer.bytes, program)
    if fault is not None or place.kind is AreaKind.MODULE:
        return fault
    start, end = place.taken(buffer.bytes)
    if start < 0 or end > area.bytes:
        return f"takes bytes {start}:{end} of an area of {area.bytes} bytes"
    if place.offset % PLACE_ALIGNMENT:
        return f"is at {place.offset}, no multiple of {PLACE_ALIGNMENT}"
    return None


def _range_fault(place: Place, size: int, program: Program) -> str | None:
    """Why a place cannot hold its range of a buffer of `size` bytes."""
    if (place.first, place.end) == (0, None):
        return None
    first, end = place.held(size)
    if not 0 <= first < end <= size:
        return f"holds bytes {first}:{end} of {size}"
    if first % PLACE_ALIGNMENT:
        return f"holds bytes from {first}, no multiple of {PLACE_ALIGNMENT}"
    if place.kind is AreaKind.MODULE:
        return "is a variable, and a part of it is loaded"
    if any(
        place.buffer in (table.buffer, word.target.buffer)
        for table in program.pointer_tables
        for word in table.words
    ):
        return "is in part, and holds addresses or is pointed to from memory"
    return None


def _name(place: Place, programs: Sequence[Program]) -> str:
    if 0 <= place.trace < len(programs):
        buffers = programs[place.trace].buffers
        if 0 <= place.buffer < len(buffers):
            return f"`{buffers[place.buffer].name}`"
    return f"buffer {place.buffer}"


def _check_shared(memory: Memory, programs: Sequence[Program], findings: Findings) -> None:
    """Check that buffers of equal name have one size and one place, and others share no bytes."""
    sizes: dict[str, tuple[int, Role]] = {}
    for trace in sorted({trace for trace, _, _ in memory.places}):
        for held in programs[trace].buffers:
            if KIND_OF[held.role] not in _SHARED:
                continue
            size, role = sizes.setdefault(held.name, (held.bytes, held.role))
            if (size, role) != (held.bytes, held.role):
                findings.add(
                    "TSR4013",
                    f"traces share `{held.name}`: a {role.value} of {size} bytes, and a "
                    f"{held.role.value} of {held.bytes}",
                )
    areas: dict[tuple[str, AreaKind], dict[str, tuple[int, int]]] = {}
    bases: dict[tuple[str, str], int] = {}
    for (trace, device, number), place in memory.places.items():
        if place.kind not in _SHARED:
            continue
        buffer = programs[trace].buffers[number]
        named = areas.setdefault((device, place.kind), {})
        own = place.taken(buffer.bytes)
        known, base = (
            named.setdefault(buffer.name, own),
            bases.setdefault((device, buffer.name), place.base),
        )
        if (known, base) != (own, place.base):
            findings.add(
                "TSR4009",
                f"traces share `{buffer.name}` on `{device}` and put it in different places",
                f"{place_text(known, base)}, and {place_text(own, place.base)}",
                at=place,
            )
    for (device, kind), named in areas.items():
        _check_apart(f"the {kind.value} area of `{device}`", named, findings)


def place_text(taken: tuple[int, int], base: int) -> str:
    """The bytes of an area that a place takes, in words; `base` is where byte 0 would be."""
    start, end = taken
    first = "" if start == base else f" from byte {start - base} on"
    return f"{end - start} bytes{first} at {start}"


def _check_slot_weights(memory: Memory, programs: Sequence[Program], findings: Findings) -> None:
    """Check that during a request nothing shares the bytes of a weight that is in a slot."""
    for (trace, device, number), place in memory.places.items():
        weight = programs[trace].buffers[number]
        if place.kind is not AreaKind.SLOT or weight.role is not Role.WEIGHT:
            continue
        start, end = place.taken(weight.bytes)
        for (other_trace, other_device, other), used in memory.places.items():
            if (other_trace, other_device) != (trace, device) or other == number:
                continue
            begin, stop = used.taken(programs[trace].buffers[other].bytes)
            if used.kind is AreaKind.SLOT and begin < end and start < stop:
                name = programs[trace].buffers[other].name
                findings.add(
                    "TSR4009",
                    f"`{name}` shares bytes with the weight `{weight.name}` in the slot area of"
                    f" `{device}`",
                    at=used,
                )


def _check_apart(where: str, named: Mapping[str, tuple[int, int]], findings: Findings) -> None:
    """Check that no two of the named ranges share bytes."""
    rows = sorted((start, end, name) for name, (start, end) in named.items() if start < end)
    for (_, end, name), (start, _, other) in pairwise(rows):
        if start < end:
            findings.add("TSR4009", f"`{name}` and `{other}` share bytes {start}:{end} of {where}")


def _has_words(program: Program, buffer: int) -> bool:
    return any(table.buffer == buffer and table.words for table in program.pointer_tables)


def _check_variables(
    memory: Memory,
    areas: Mapping[tuple[str, AreaKind], Area],
    programs: Sequence[Program],
    findings: Findings,
) -> None:
    """Check that the module area has room for the variables: every trace loads its own modules."""
    taken: dict[str, int] = {}
    for (trace, device, number), place in memory.places.items():
        if place.kind is AreaKind.MODULE:
            taken[device] = taken.get(device, 0) + programs[trace].buffers[number].bytes
    for device, need in taken.items():
        room = areas[device, AreaKind.MODULE].bytes
        if need > room:
            findings.add(
                "TSR4009",
                f"the module area of `{device}` has {room} bytes and its variables take {need}",
            )


def check_capacity(
    areas: Sequence[Area],
    card_of: Mapping[str, str],
    capacities: Mapping[str, int],
    findings: Findings,
) -> dict[str, int]:
    """Check that the areas of all devices of a card, slices included, fit; return bytes by card."""
    used = dict.fromkeys(capacities, 0)
    for area in areas:
        card = card_of.get(area.device)
        if card in used:
            used[card] += area.bytes * area.count
    for card, need in used.items():
        if need > capacities[card]:
            findings.add(
                "TSR4009",
                f"the plan needs {need} bytes on `{card}`, which has {capacities[card]}",
                hint="plan again, with fewer slots or for GPUs with more memory",
            )
    return used


Arches = Mapping[int, Sequence[str]]
"""The variant of each step, by trace."""


def check_modules(
    replica: LoweredReplica,
    programs: Sequence[Program],
    placements: Mapping[int, Sequence[str]],
    arches: Arches,
    findings: Findings,
) -> None:
    """Check that the module area of every device has room for the variables of its modules."""
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
    """The bytes that the variables of each module take."""
    numbers = {module.name: int(module.id) for module in program.modules}
    bytes_of: dict[int, int] = {}
    for variable in program.buffers:
        if variable.role is Role.VARIABLE:
            module = numbers.get(variable.name.rpartition(".")[0])
            if module is not None:
                bytes_of[module] = bytes_of.get(module, 0) + variable.bytes
    return bytes_of
