"""Holds Tessera against what the host logged: the regions of the analysis, and the CPU backend.

In: a recorded case (PTX, launch, the host's runs). Out: what is wrong, in words, and how tight
the regions are. The comparison is the first place where anything of Tessera is used.

What must hold, for each buffer by itself:
- every byte that the host wrote (and that some run changes) is in a may-write region, and every
  byte of a must-write region was written by the host in every run;
- every byte that decides something (the host changes each byte that it reads in turn) is in a read
  region; where the PTX is not optimised, every byte that the host read is;
- the CPU backend leaves what the host left, writes what the host wrote, and reads no more than the
  host and no less than what decides something; where the PTX is not optimised, exactly the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.access_regions import AccessRegions
from tests.oracle.on_machine import expected
from tests.oracle.recorded import Case, trace_text
from tests.oracle.subset import Bytes, Run, Touched, contents, packed, to_flags, to_ranges

Flags = NDArray[np.bool_]
MAX_STEPS = 200_000


@dataclass(frozen=True, slots=True)
class Stated:
    """What the analysis says of one buffer."""

    read: Flags
    may: Flags
    must: Flags


@dataclass(frozen=True, slots=True)
class Tightness:
    """Bytes stated beyond those touched in some run, writes of all runs unproven, and pins."""

    extra_read: int
    extra_write: int
    unproven: int
    pinned: bool

    @property
    def exact(self) -> bool:
        """Whether regions are what the host touched, no more and no less."""
        return not any(self.values())

    def values(self) -> list[int]:
        """For JSON."""
        return [self.extra_read, self.extra_write, self.unproven, int(self.pinned)]


def analysed(case: Case) -> tuple[ir.Program, Mapping[int, Stated], bool]:
    """The program of a case, what is stated per buffer, and whether the launch is pinned."""
    program = parse_trace(trace_text(case))
    step = AnalysisManager(program).get(AccessRegions).steps[0]
    stated = {
        number: _stated([a for a in step.accesses if a.buffer == number], buffer.bytes)
        for number, buffer in enumerate(program.declared_buffers())
    }
    return program, stated, bool(step.pins)


def _stated(accesses: Sequence[Access], size: int) -> Stated:
    def total(kept: Sequence[Access]) -> Flags:
        flags = np.zeros(size, np.bool_)
        for access in kept:
            for start, end in region_bytes(access.region, size):
                flags[start:end] = True
        return flags

    written = [a for a in accesses if a.kind is AccessKind.WRITE]
    return Stated(
        total([a for a in accesses if a.kind.reads]),
        total([a for a in accesses if a.kind.writes]),
        total([a for a in written if a.certainty is Certainty.MUST]),
    )


def stated_values(stated: Mapping[int, Stated], pinned: bool) -> dict[str, Any]:
    """What is stated, for JSON: ranges per buffer number."""
    parts = {
        name: {str(n): to_ranges(getattr(said, name)) for n, said in stated.items()}
        for name in ("read", "may", "must")
    }
    return {"pinned": pinned, **parts}


def effective(case: Case, runs: Sequence[Run]) -> list[Flags]:
    """Per buffer the bytes that some of the runs change; all, where the PTX is not optimised.

    A compiler may leave out a store that never changes anything (`x[i] += 0`), and the bytes of a
    bit-field's word in which the field has no bits.
    """
    found = [np.full(buffer.bytes, case.plain) for buffer in case.buffers]
    for run in runs:
        given = contents(case.name, case.buffers, run.data)
        for buffer, start, left in run.left:
            after = np.frombuffer(left, np.uint8)
            found[buffer][start : start + len(left)] |= (
                given[buffer][start : start + len(left)] != after
            )
        for buffer, word in run.words:
            found[buffer][word.offset : word.offset + 8] = True
    return found


def region_problems(case: Case, stated: Mapping[int, Stated]) -> Iterator[str]:
    """Where regions and the host's log disagree."""
    changing = effective(case, case.runs)
    for run in case.runs:
        found = {t.buffer: t for t in run.touched}
        for number, buffer in enumerate(case.buffers):
            said, size = stated[number], buffer.bytes
            touched = found.get(number, Touched(number, (), (), ()))
            wrote, read = to_flags(touched.writes, size), to_flags(touched.reads, size)
            needed = read if case.plain else to_flags(touched.needed, size)
            for what, bad in (
                ("written outside the may-write regions", wrote & changing[number] & ~said.may),
                ("stated as surely written, and is not", said.must & ~wrote),
                ("read outside the read regions", needed & ~said.read),
            ):
                if bad.any():
                    yield f"{run.data}: {buffer.name} byte {int(np.argmax(bad))} is {what}"


def tightness(case: Case, stated: Mapping[int, Stated], pinned: bool) -> Tightness:
    """How far the regions are from the host's logs over all runs."""
    extra_read = extra_write = unproven = 0
    for number, buffer in enumerate(case.buffers):
        mine = [t for run in case.runs for t in run.touched if t.buffer == number]
        reads = np.zeros(buffer.bytes, np.bool_)
        writes, always = reads.copy(), np.full(buffer.bytes, len(mine) == len(case.runs))
        for touched in mine:
            reads |= to_flags(touched.reads, buffer.bytes)
            wrote = to_flags(touched.writes, buffer.bytes)
            writes, always = writes | wrote, always & wrote
        said = stated[number]
        extra_read += int((said.read & ~reads).sum())
        extra_write += int((said.may & ~writes).sum())
        unproven += int((always & ~said.must).sum())
    return Tightness(extra_read, extra_write, unproven, pinned)


class OnCpu:
    """A case on the CPU backend."""

    def __init__(self, case: Case, program: ir.Program, device: Device) -> None:
        self.case = case
        self.module = device.load(program.modules[0].variants[0].ptx)
        self.arrays = [
            device.array(np.zeros(buffer.bytes, np.uint8), buffer.name) for buffer in case.buffers
        ]

    def run(self, data: str) -> tuple[list[Bytes], tuple[BufferAccess, ...]]:
        """Launch with some contents: what the buffers hold then, and the log."""
        case = self.case
        for array, content in zip(
            self.arrays, contents(case.name, case.buffers, data), strict=True
        ):
            array.view()[:] = content
        for buffer, word in case.tables:
            target = self.address(word.target.buffer, word.target.offset)
            value = np.array([target], np.uint64).view(np.uint8)
            self.arrays[buffer].view()[word.offset : word.offset + 8] = value
        arguments = [
            packed(argument, lambda at: self.address(at.buffer, at.offset))
            for argument in case.args
        ]
        result = self.module["k"].launch(case.grid, case.block, arguments, max_steps=MAX_STEPS)
        return [array.view().copy() for array in self.arrays], result.accesses

    def address(self, buffer: int, offset: int) -> int:
        """The number of an address on this device."""
        return self.arrays[buffer].address + offset


def cpu_problems(case: Case, program: ir.Program, runs: Sequence[Run]) -> Iterator[str]:
    """Where the CPU backend and the host disagree: bytes and logs."""
    with Device() as device:
        machine = OnCpu(case, program, device)
        for run in runs:
            try:
                memory, log = machine.run(run.data)
            except TesseraError as error:
                yield f"{run.data}: the CPU backend stops: {error}"
                continue
            for buffer, got, want in zip(
                case.buffers, memory, expected(case, run, machine.address), strict=True
            ):
                if not np.array_equal(got, want):
                    at = int(np.argmax(got != want))
                    yield f"{run.data}: {buffer.name} byte {at} is {got[at]:#x}, not {want[at]:#x}"
            yield from _log_problems(case, run, log)


def _log_problems(case: Case, run: Run, log: Sequence[BufferAccess]) -> Iterator[str]:
    logged = {entry.buffer: entry for entry in log}
    changing = effective(case, [run])
    found = {t.buffer: t for t in run.touched}
    for number, buffer in enumerate(case.buffers):
        touched = found.get(number, Touched(number, (), (), ()))
        entry = logged.get(buffer.name)
        size = buffer.bytes
        got_read = to_flags(entry.reads if entry else (), size)
        got_write = to_flags(entry.writes if entry else (), size)
        read, wrote = to_flags(touched.reads, size), to_flags(touched.writes, size)
        # What writes part of a byte or word reads it first; the host's log has only the write.
        least = read if case.plain else to_flags(touched.needed, size)
        for what, bad in (
            ("written by the CPU backend only", got_write & ~wrote),
            ("written by the host only", wrote & changing[number] & ~got_write),
            ("read by the CPU backend only", got_read & ~read & ~wrote),
            ("read by the host only", least & ~got_read),
        ):
            if bad.any():
                yield f"{run.data}: {buffer.name} byte {int(np.argmax(bad))} is {what}"
