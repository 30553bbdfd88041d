"""Words in memory that are device addresses, found by how launches use them.

In: the known accesses of a program's steps, and the bytes of its lasting buffers.
Out: the words that some launch uses as addresses, with the value of each.

For an address that comes from memory, the accesses of a launch name the load (`access_regions`).
The bytes that this load may read are searched: a word that points into memory of the call is an
address. If the load reads bytes that an earlier step has written, the bytes that this step reads
are searched instead: it may have copied them. If the address came through shared memory, every
64-bit load and every copy of the launch is searched. A number in a buffer that no launch uses as an
address stays a number, whatever its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.ir.graph.access import Access, PinKind
from tessera.ir.graph.region import Unknown
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.launch_report import StepAccesses

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Writers = dict[ir.BufferId, list[tuple[int, Access]]]


@dataclass(frozen=True, slots=True)
class AddressWord:
    """A word of a buffer whose value a launch uses as an address."""

    buffer: str
    offset: int
    value: int


@dataclass(frozen=True, slots=True)
class Holdings:
    """The bytes of lasting memory by buffer, None for other buffers; and which values point into
    memory of the call."""

    read: Callable[[ir.Buffer], Bytes | None]
    points: Callable[[Words], npt.NDArray[np.bool_]]


def find_words(
    program: ir.Program, steps: tuple[StepAccesses, ...], holdings: Holdings
) -> list[AddressWord]:
    """The words that steps use as addresses, including those that `pointers` records name."""
    words: dict[tuple[int, int], int] = {}
    writers = _writers(steps)
    for number, step in enumerate(steps):
        for access in _origins(steps, writers, number, _address_loads(step)):
            for offset, value in _words(access, program.buffers[access.buffer], holdings):
                words.setdefault((int(access.buffer), offset), value)
    return [
        AddressWord(program.buffers[number].name, offset, value)
        for (number, offset), value in sorted(words.items())
    ]


def _address_loads(step: StepAccesses) -> list[Access]:
    """The reads that an address of this step may come from."""
    pins = [pin for pin in step.pins if pin.kind is PinKind.MEMORY]
    if not pins:
        return []
    reads = [access for access in _known(step) if access.kind.reads]
    spans = {pin.span for pin in pins if pin.span is not None}
    direct = [access for access in reads if access.span in spans]
    if {access.span for access in direct} == spans and direct:
        return direct
    return [access for access in reads if _may_carry(access)]


def _origins(
    steps: tuple[StepAccesses, ...], writers: Writers, number: int, loads: list[Access]
) -> list[Access]:
    """These reads, and the reads of earlier steps that may have written the bytes they read."""
    origins = dict.fromkeys(loads)
    work = [(number, access) for access in origins]
    while work:
        at, access = work.pop()
        before = (
            writer
            for writer, wrote in writers.get(access.buffer, ())
            if writer < at
            if _meet(access, wrote)
        )
        for writer in sorted(set(before)):
            for more in _known(steps[writer]):
                if more.kind.reads and _may_carry(more) and more not in origins:
                    origins[more] = None
                    work.append((writer, more))
    return list(origins)


def _writers(steps: tuple[StepAccesses, ...]) -> Writers:
    """The writes of steps in order, by buffer."""
    writers: Writers = {}
    for number, step in enumerate(steps):
        for access in _known(step):
            if access.kind.writes:
                writers.setdefault(access.buffer, []).append((number, access))
    return writers


def _known(step: StepAccesses) -> Iterator[Access]:
    return (access for access in step.accesses if not isinstance(access.region, Unknown))


def _may_carry(access: Access) -> bool:
    """Whether a read may bring whole addresses: a 64-bit load, or a copy."""
    return access.text.endswith("64") or not access.text.startswith("ld")


def _meet(access: Access, other: Access) -> bool:
    size = 1 << 62
    both = intervals.intersect(region_bytes(access.region, size), region_bytes(other.region, size))
    return bool(len(both))


def _words(access: Access, buffer: ir.Buffer, holdings: Holdings) -> Iterator[tuple[int, int]]:
    """Offsets and values of the words that a read may see and that point into memory of the
    call."""
    content = None if buffer.role is ir.Role.VARIABLE else holdings.read(buffer)
    if content is None:
        return
    words = np.frombuffer(content[: buffer.bytes // 8 * 8].tobytes(), "<u8")
    for place in np.flatnonzero(holdings.points(words)).tolist():
        seen = intervals.interval(8 * place, 8 * place + 8)
        if intervals.covers(region_bytes(access.region, buffer.bytes), seen):
            yield 8 * place, int(words[place])
