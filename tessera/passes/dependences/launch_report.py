"""A launch's footprint in terms of buffers: accesses, pins and findings.

In: a launch, its kernel's code, the setting it ran in and the footprint. Out: `StepAccesses`.
`combine_variants` combines the reports for several variants of a kernel: an access may happen if it
may happen in any variant, and is certain only if it is certain in all of them.

`launch_needs` finds the requirements of a launch on the machine: the kernel's needs, and those of a
cluster launch or a cooperative launch, even if the kernel does not use them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tessera.diagnostics import Diagnostic, Span
from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import (
    Access,
    AccessKind,
    AddressClass,
    Certainty,
    Need,
    NeedKind,
    Pin,
    PinKind,
)
from tessera.ir.graph.region import Affine, Region, Unknown, WholeBuffer
from tessera.ir.opcodes import MemoryAction as Effect
from tessera.ir.opcodes import MemoryEffect, TensorBox
from tessera.ir.program import program as ir
from tessera.passes import findings
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import (
    MOST_PIECES,
    exact_region,
    may_region,
    must_region,
    region_bytes,
)
from tessera.passes.dependences.launch_scene import LaunchSetting
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.wording import Wording

if TYPE_CHECKING:
    from tessera.passes.footprint.footprint import Footprint, FootprintEntry
    from tessera.passes.kernel_facts.kernel_code import KernelCode, Step


# Total pieces of a launch above which each further access gets fewer pieces.
_MANY_PIECES = 1 << 15
_FEW_PIECES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccesses:
    """One step: its accesses, the reasons if it is pinned, and its findings.

    Steps of the same `pattern` differ only in the buffers that they touch. `is_coarse`: too many
    threads or rounds differ to follow each, so the accesses are wider than what happens.
    """

    id: ir.LaunchId
    name: str
    accesses: tuple[Access, ...]
    pins: tuple[Pin, ...] = ()
    needs: tuple[Need, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    is_coarse: bool = False
    pattern: int | None = None


def anywhere(
    program: ir.Program,
    why: Wording,
    span: Span | None,
    among: frozenset[ir.BufferId] | None = None,
    *,
    writes: bool = True,
) -> Iterator[Access]:
    """Reads of all buffers, or of those `among`; with `writes`, also writes of all but weights."""
    for buffer in program.buffers:
        kept = buffer.role is ir.Role.WEIGHT or not writes
        kind = AccessKind.READ if kept else AccessKind.ATOMIC
        if buffer.bytes and (among is None or buffer.id in among):
            yield Access(
                buffer=buffer.id,
                kind=kind,
                certainty=Certainty.MAY,
                address=AddressClass.POINTER,
                region=Unknown(why, span),
                span=span,
            )


class LaunchReport:
    """One launch's footprint in terms of buffers."""

    def __init__(
        self,
        program: ir.Program,
        launch: ir.Launch,
        name: str,
        code: KernelCode,
        setting: LaunchSetting,
        footprint: Footprint,
    ) -> None:
        self.program = program
        self.launch = launch
        self.name = name
        self.code = code
        self.setting = setting
        self.footprint = footprint
        self.steps = {s.index: s for block in code.blocks for s in block}
        self.diagnostics: list[Diagnostic] = []
        self.accesses: list[Access] = []
        self.pieces = 0

    def build(self) -> StepAccesses:
        """The accesses, pins, needs and findings of the launch."""
        for entry in self.footprint.entries:
            self._entry(entry)
        pins = self._pins()
        given = self._given_buffers()
        for pin in pins:
            launch = self.launch.span
            self.diagnostics.append(findings.pinned(self.name, pin, launch, given is not None))
        if pins:
            pin = pins[0]
            writes = self._may_write_anywhere()
            touched = anywhere(self.program, pin.reason, pin.span, given, writes=writes)
            self.accesses.extend(touched)
        for index, known in self.footprint.nulls.items():
            if known:
                span = self._span(index)
                self.diagnostics.append(findings.null_access(self.name, span, self.launch.span))
        accesses = tuple(dict.fromkeys(self.accesses))
        self.diagnostics.extend(findings.written_weights(self.program, self.name, accesses))
        return StepAccesses(
            id=self.launch.id,
            name=self.name,
            accesses=accesses,
            pins=pins,
            needs=launch_needs(self.code, self.launch),
            diagnostics=tuple(self.diagnostics),
            is_coarse=self.footprint.is_coarse,
        )

    def _may_write_anywhere(self) -> bool:
        """Whether an instruction that writes, and not only loads, has an unknown address."""
        return bool(self.footprint.pins) or any(
            number >= 0 and _kind(self.steps[index].effects[number]) is not AccessKind.READ
            for index, number in self.footprint.unresolved
        )

    def _given_buffers(self) -> frozenset[ir.BufferId] | None:
        """The buffers that the pins are limited to; None if they may concern all buffers."""
        if self.footprint.unresolved or not self.footprint.pins.keys() <= self.footprint.bounded:
            return None
        return frozenset(self.setting.buffers.values())

    def _pins(self) -> tuple[Pin, ...]:
        pins = [
            Pin(reason, self._span(at), PinKind.INSTRUCTION)
            for at, reason in self.footprint.pins.items()
        ]
        for effect, why in self.footprint.unresolved.items():
            at = why if why >= 0 and effect not in self.footprint.mixed else effect[0]
            kind, what = self._unresolved(effect, why)
            text = f"the address of `{self.code.opcode_text(effect[0])}` {what}"
            pins.append(Pin(Wording(text), self._span(at), kind))
        return tuple(dict.fromkeys(pins))

    def _unresolved(self, effect: tuple[int, int], why: int) -> tuple[PinKind, str]:
        """The kind of pin for the unresolved address of an effect, and the reason in words."""
        if effect in self.footprint.mixed:
            what = "is made of several pointers, and no one buffer is left of them"
            return PinKind.POINTERS, what
        if why == effect[0]:
            return PinKind.NUMBER, "is a number that points into no buffer of the trace"
        source = f" (loaded by `{self.code.opcode_text(why)}`)" if why >= 0 else ""
        return PinKind.MEMORY, f"comes from memory{source}"

    def _span(self, index: int) -> Span | None:
        return None if index < 0 else self.code.span(index)

    def _entry(self, entry: FootprintEntry) -> None:
        step = self.steps[entry.key.at]
        buffer_id = self.setting.buffers.get(entry.key.zone)
        if buffer_id is not None:
            start = self.setting.offsets.get(entry.key.zone, 0)
            may, sure = intervals.shift(entry.may, start), intervals.shift(entry.sure, start)
            moved = replace(entry, may=may, sure=sure) if start else entry
            self._in_buffer(moved, step, self.program.buffers[buffer_id])
            return
        for target in self.setting.targets.get(entry.key.zone, ()):
            reason = Wording("the address comes from a table of pointers")
            region = WholeBuffer(reason, self._span(entry.key.at))
            self._add(step, entry, target, region, Certainty.MAY, AddressClass.POINTER)

    def _in_buffer(self, entry: FootprintEntry, step: Step, buffer: ir.Buffer) -> None:
        if entry.whole is not None:
            loader = self.code.opcode_text(max(entry.whole, 0))
            reason = Wording(f"the index is loaded by `{loader}`")
            region = WholeBuffer(reason, self._span(entry.whole))
            self._add(step, entry, buffer.id, region, Certainty.MAY, AddressClass.INDEXED)
        inside = intervals.clip(entry.may, 0, buffer.bytes)
        if entry.exact and intervals.size(inside) != intervals.size(entry.may):
            self._outside(entry, step, buffer)
        sure = intervals.clip(entry.sure, 0, buffer.bytes)
        if entry.whole is not None:
            certain = must_region(sure)
            if certain is not None:
                self._add(step, entry, buffer.id, certain, Certainty.MUST, AddressClass.DIRECT)
            return
        if len(inside) == 0:
            return
        kind = AddressClass.DIRECT if entry.exact else AddressClass.INDEXED
        self._regions(step, entry, buffer, inside, sure, kind)

    def _regions(
        self,
        step: Step,
        entry: FootprintEntry,
        buffer: ir.Buffer,
        inside: Ranges,
        sure: Ranges,
        kind: AddressClass,
    ) -> None:
        most = MOST_PIECES if self.pieces < _MANY_PIECES else _FEW_PIECES
        region = exact_region(inside, most)
        if region is not None and np.array_equal(sure, inside):
            self._add(step, entry, buffer.id, region, Certainty.MUST, kind)
            return
        certain = must_region(sure, most)
        region = may_region(inside, most) if region is None else region
        self._add(step, entry, buffer.id, region, Certainty.MAY, kind)
        if certain is not None:
            self._add(step, entry, buffer.id, certain, Certainty.MUST, kind)

    def _outside(self, entry: FootprintEntry, step: Step, buffer: ir.Buffer) -> None:
        start, end = int(entry.may[0, 0]), int(entry.may[-1, 1])
        certain = intervals.size(intervals.clip(entry.sure, 0, buffer.bytes)) < intervals.size(
            entry.sure
        )
        span = self._span(entry.key.at)
        self.diagnostics.append(
            findings.outside(self.name, buffer, (start, end), certain, span, self.launch.span)
        )

    def _add(
        self,
        step: Step,
        entry: FootprintEntry,
        buffer: ir.BufferId,
        region: Region,
        certainty: Certainty,
        address: AddressClass,
    ) -> None:
        if isinstance(region, Affine):
            self.pieces += len(region.pieces)
        number = entry.key.effect
        kind = AccessKind.READ if number < 0 else _kind(step.effects[number])
        if certainty is Certainty.MUST and kind is AccessKind.ATOMIC:
            certainty = Certainty.MAY
        self.accesses.append(
            Access(
                buffer=buffer,
                kind=kind,
                certainty=certainty,
                address=address,
                region=region,
                text=str(step.instruction.opcode),
                span=self._span(step.index),
            )
        )


def _kind(effect: MemoryEffect) -> AccessKind:
    access = effect.access
    if isinstance(effect.extent, TensorBox) and access is Effect.ASYNC_UPDATE:
        # The bytes that it leaves alone lie outside the tensor, and outside the region.
        return AccessKind.WRITE
    if access.reads and access.writes:
        return AccessKind.ATOMIC
    return AccessKind.WRITE if access.writes else AccessKind.READ


# --- variants ------------------------------------------------------------------------------


def combine_variants(program: ir.Program, reports: list[StepAccesses]) -> StepAccesses:
    """One report that holds whichever variant runs."""
    first = reports[0]
    sums = [_totals(program, report) for report in reports]
    pins = tuple(dict.fromkeys(pin for report in reports for pin in report.pins))
    needs = tuple(dict.fromkeys(need for report in reports for need in report.needs))
    diagnostics = tuple(dict.fromkeys(d for report in reports for d in report.diagnostics))
    coarse = any(report.is_coarse for report in reports)
    first = replace(first, pins=pins, needs=needs, diagnostics=diagnostics, is_coarse=coarse)
    if all(_equal_totals(sums[0], other) for other in sums[1:]):
        return first
    loose = [
        replace(access, certainty=Certainty.MAY) for report in reports for access in report.accesses
    ]
    accesses = [*dict.fromkeys(loose), *_common_writes(sums, first)]
    return replace(first, accesses=tuple(accesses))


_Totals = dict[tuple[int, str], Ranges]


def _totals(program: ir.Program, report: StepAccesses) -> _Totals:
    """The bytes read, written, and certainly written, by buffer."""
    parts: dict[tuple[int, str], list[Ranges]] = {}
    for access in report.accesses:
        ranges = region_bytes(access.region, program.buffers[access.buffer].bytes)
        if access.kind.reads:
            parts.setdefault((access.buffer, "read"), []).append(ranges)
        if access.kind.writes:
            parts.setdefault((access.buffer, "write"), []).append(ranges)
        if access.kind is AccessKind.WRITE and access.certainty is Certainty.MUST:
            parts.setdefault((access.buffer, "must"), []).append(ranges)
    return {key: intervals.union(ranges) for key, ranges in parts.items()}


def _equal_totals(left: _Totals, right: _Totals) -> bool:
    return left.keys() == right.keys() and all(
        left[key].shape == right[key].shape and bool((left[key] == right[key]).all())
        for key in left
    )


def _common_writes(sums: list[_Totals], report: StepAccesses) -> Iterator[Access]:
    for buffer, what in sums[0]:
        if what != "must":
            continue
        common = sums[0][buffer, "must"]
        for other in sums[1:]:
            common = intervals.intersect(common, other.get((buffer, "must"), intervals.EMPTY))
        region = must_region(common)
        if region is None:
            continue
        model = next(
            a for a in report.accesses if a.buffer == buffer and a.kind is AccessKind.WRITE
        )
        yield replace(model, certainty=Certainty.MUST, region=region)


def launch_needs(code: KernelCode, launch: ir.Launch) -> tuple[Need, ...]:
    """The needs of a launch: its own first, then those of its kernel."""
    needs: list[Need] = []
    if launch.cooperative:
        needs.append(
            Need(NeedKind.GRID, Wording("the launch is cooperative"), _grid_line(code, launch))
        )
    if launch.cluster is not None and launch.cluster != (1, 1, 1):
        sizes = "x".join(map(str, launch.cluster))
        needs.append(
            Need(NeedKind.CLUSTER, Wording(f"the launch has clusters of {sizes}"), launch.span)
        )
    for need in code.needs:
        needs.append(Need(need.kind, need.reason, code.span(need.index)))
    return tuple(needs)


def _grid_line(code: KernelCode, launch: ir.Launch) -> Span | None:
    """The position where the kernel gets the barrier over the grid, or else that of the launch."""
    for index, instruction in enumerate(code.flat.instructions):
        for operand in instruction.operands:
            if any(name.startswith("%envreg") for name in registers_in(operand)):
                return code.span(index)
    return launch.span
