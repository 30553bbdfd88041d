"""Patterns: launches that differ only in their buffers.

In: a launch with the settings of its variants. Out: its buffers in order of appearance, and a key
that is equal for launches of one kernel whose accesses are the same up to these buffers. The key
holds the scenes, the sizes and roles of the buffers, and the zones that share a buffer, so that the
buffers of launches with equal keys correspond one to one.

`KernelMemory` keeps the results for a kernel across analyses, in a `Store` of JSON values: the
facts from which the scene of a launch is built (`KernelFacts`), and the patterns of launches. A
launch with a stored pattern needs neither the kernel's code nor a run of it. The name of an entry
contains the texts of the module, so an entry is never out of date. Launches with pins or findings
are not stored, because these concern a single launch; that a launch is coarse is part of its
pattern.

`PatternCodec` converts a pattern to lists, numbers and texts, and back. Buffers are numbered in the
order of the pattern; positions are stored as offsets in the texts of the module's variants. The
decoder raises `ValueError` for values that the encoder cannot have written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from tessera.diagnostics import Span
from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty, Need, NeedKind
from tessera.ir.graph.region import (
    Affine,
    Descriptor,
    Dimension,
    Interval,
    Region,
    Unknown,
    WholeBuffer,
)
from tessera.ir.program import program as ir
from tessera.passes.base import Store
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.dependences.launch_scene import LaunchSetting
from tessera.wording import Wording

Buffers = tuple[ir.BufferId, ...]


def launch_pattern(
    program: ir.Program, launch: ir.Launch, settings: Sequence[LaunchSetting]
) -> tuple[Buffers, tuple[object, ...]]:
    """The buffers of a launch, and the key that launches with equal accesses share."""
    order: dict[ir.BufferId, int] = {}
    zones: list[object] = []
    for setting in settings:
        zones.append(setting.key)
        for zone, buffer in setting.buffers.items():
            place = order.setdefault(buffer, len(order))
            zones.append((zone, place, setting.offsets.get(zone, 0)))
        for zone, targets in setting.targets.items():
            places = tuple(order.setdefault(buffer, len(order)) for buffer in targets)
            zones.append((zone, places))
    kinds = tuple((program.buffers[b].bytes, program.buffers[b].role) for b in order)
    asks = (launch.cooperative, launch.cluster)
    return tuple(order), (asks, tuple(zones), kinds)


@dataclass(frozen=True, slots=True)
class PatternContents:
    """The buffers whose contents decided what a launch touches, and those that could decide it."""

    looked_up: tuple[int, ...] = ()
    asked: tuple[int, ...] = ()


@dataclass(slots=True)
class Pattern:
    """The accesses of the first launch of a pattern; other launches only replace the buffers."""

    first: StepAccesses
    buffers: Buffers
    contents: PatternContents = PatternContents()
    _known: dict[Buffers, tuple[Access, ...]] = field(default_factory=dict)

    def report(self, step: ir.LaunchId, buffers: Buffers) -> StepAccesses:
        """The accesses of another launch of this pattern."""
        if buffers == self.buffers:
            return replace(self.first, id=step)
        accesses = self._known.get(buffers)
        if accesses is None:
            new = dict(zip(self.buffers, buffers, strict=True))
            accesses = tuple(_moved(access, new[access.buffer]) for access in self.first.accesses)
            self._known[buffers] = accesses
        return replace(self.first, id=step, accesses=accesses)


def _moved(access: Access, buffer: ir.BufferId) -> Access:
    return Access(
        buffer=buffer,
        kind=access.kind,
        certainty=access.certainty,
        address=access.address,
        region=access.region,
        text=access.text,
        span=access.span,
    )


MOST_PATTERNS = 4096


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Parameters by use. The value of a `valued` parameter matters beyond being the base of an
    address. No access depends on an `unneeded` parameter."""

    valued: frozenset[str]
    unneeded: frozenset[str]


class KernelMemory:
    """The memory of one kernel of one module."""

    def __init__(self, store: Store, module: ir.ProgramModule, kernel: str) -> None:
        self.store = store
        self.codec = PatternCodec(module)
        self.name = _name(module, kernel)
        self.changed = False
        known = store.find(self.name)
        self.facts: dict[str, object] = {}
        self.patterns: dict[str, object] = {}
        match known:
            case [dict() as facts, dict() as patterns]:
                self.facts, self.patterns = facts, patterns

    def find_facts(self, arch: str) -> KernelFacts | None:
        """The facts about the code for an architecture."""
        match self.facts.get(arch):
            case [[*valued], [*unneeded]] if _are_texts(valued) and _are_texts(unneeded):
                return KernelFacts(frozenset(valued), frozenset(unneeded))
        return None

    def keep_facts(self, arch: str, facts: KernelFacts) -> None:
        """Keep the facts about the code for an architecture."""
        self.facts[arch] = [sorted(facts.valued), sorted(facts.unneeded)]
        self.changed = True

    def find(self, key: object, step: ir.LaunchId, name: str, buffers: Buffers) -> Pattern | None:
        """The pattern with this key, for a launch that gets these buffers."""
        value = self.patterns.get(_digest(key))
        if value is None:
            return None
        try:
            return self.codec.decode(value, step, name, buffers)
        except ValueError:
            return None

    def keep(self, key: object, pattern: Pattern) -> None:
        """Keep a pattern under a key."""
        if len(self.patterns) >= MOST_PATTERNS:
            return
        try:
            self.patterns[_digest(key)] = self.codec.encode(pattern)
            self.changed = True
        except ValueError:
            return

    def close(self) -> None:
        """Write new facts and patterns to the store."""
        if self.changed:
            self.store.keep(self.name, [self.facts, self.patterns])


def _are_texts(values: list[object]) -> TypeGuard[list[str]]:
    return all(isinstance(value, str) for value in values)


def _name(module: ir.ProgramModule, kernel: str) -> str:
    digest = hashlib.blake2b(digest_size=24, person=b"tessera-regions")
    for part in (kernel, *(t for v in module.variants for t in (v.arch, v.text))):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _digest(key: object) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=24).hexdigest()


class PatternCodec:
    """Writes and reads the patterns of one module's launches."""

    def __init__(self, module: ir.ProgramModule) -> None:
        self.sources = [variant.ptx.source for variant in module.variants]

    def encode(self, pattern: Pattern) -> list[object]:
        """A pattern as JSON values; `ValueError` if a position is in no text of the module."""
        report = pattern.first
        order = {buffer: place for place, buffer in enumerate(pattern.buffers)}
        # Regions that differ only in their position compare equal, so the key has the position too.
        regions: dict[tuple[Region, Span | None], int] = {}
        accesses = [
            [
                order[access.buffer],
                access.kind.value,
                access.certainty.value,
                access.address.value,
                regions.setdefault((access.region, _position(access.region)), len(regions)),
                access.text,
                self._place(access.span),
            ]
            for access in report.accesses
        ]
        needs = [
            [need.kind.value, str(need.reason), self._place(need.span)] for need in report.needs
        ]
        contents = [pattern.contents.looked_up, pattern.contents.asked]
        known = [self._region(region) for region, _ in regions]
        return [accesses, known, needs, contents, report.is_coarse]

    def decode(self, value: object, step: ir.LaunchId, name: str, buffers: Buffers) -> Pattern:
        """The pattern of a launch that gets these buffers."""
        try:
            accesses, regions, needs, contents, is_coarse = _list(value)
            if type(is_coarse) is not bool:
                raise TypeError
            looked_up, asked = _list(contents)
            known = [self._read_region(region) for region in _list(regions)]
            report = StepAccesses(
                id=step,
                name=name,
                accesses=tuple(self._read_access(a, known, buffers) for a in _list(accesses)),
                needs=tuple(
                    Need(NeedKind(kind), Wording(_text(reason)), self._span(place))
                    for kind, reason, place in map(_list, _list(needs))
                ),
                is_coarse=is_coarse,
            )
            used = PatternContents(_places(looked_up, buffers), _places(asked, buffers))
        except (TypeError, IndexError, KeyError) as wrong:
            raise ValueError("not a pattern") from wrong
        return Pattern(report, buffers, used)

    def _read_access(self, value: object, regions: Sequence[Region], buffers: Buffers) -> Access:
        buffer, kind, certainty, address, region, text, place = _list(value)
        return Access(
            buffer=buffers[_number(buffer)],
            kind=AccessKind(kind),
            certainty=Certainty(certainty),
            address=AddressClass(address),
            region=regions[_number(region)],
            text=_text(text),
            span=self._span(place),
        )

    # --- positions -------------------------------------------------------------------------

    def _place(self, span: Span | None) -> list[int] | None:
        if span is None:
            return None
        for number, source in enumerate(self.sources):
            if source is span.source:
                return [number, span.start, span.end]
        raise ValueError("a position outside the module")

    def _span(self, place: object) -> Span | None:
        if place is None:
            return None
        number, start, end = (_number(part) for part in _list(place))
        source = self.sources[number]
        if source is None or not start <= end <= len(source.text):
            raise ValueError("a position outside the module")
        return Span(source, start, end)

    # --- regions ---------------------------------------------------------------------------

    def _region(self, region: Region) -> list[object]:
        match region:
            case Interval(start, end):
                return ["interval", start, end]
            case Affine(pieces):
                rows = [
                    [piece.offset, piece.width, [[d.stride, d.count] for d in piece.dimensions]]
                    for piece in pieces
                ]
                return ["affine", rows]
            case WholeBuffer(reason, span):
                return ["whole", str(reason), self._place(span)]
            case Unknown(reason, span):
                return ["unknown", str(reason), self._place(span)]

    def _read_region(self, value: object) -> Region:
        match value:
            case ["interval", start, end]:
                return Interval(_number(start), _number(end))
            case ["affine", rows]:
                return Affine(tuple(_descriptor(row) for row in _list(rows)))
            case ["whole", reason, place]:
                return WholeBuffer(Wording(_text(reason)), self._span(place))
            case ["unknown", reason, place]:
                return Unknown(Wording(_text(reason)), self._span(place))
        raise ValueError("not a region")


def _position(region: Region) -> Span | None:
    return region.span if isinstance(region, WholeBuffer | Unknown) else None


def _descriptor(row: object) -> Descriptor:
    offset, width, dimensions = _list(row)
    pairs = map(_list, _list(dimensions))
    axes = tuple(Dimension(_number(stride), _number(count)) for stride, count in pairs)
    return Descriptor(_number(offset), _number(width), axes)


def _places(values: object, buffers: Buffers) -> tuple[int, ...]:
    places = tuple(_number(value) for value in _list(values))
    if any(place >= len(buffers) for place in places):
        raise ValueError("not a buffer")
    return places


def _list(value: object) -> Sequence[object]:
    if not isinstance(value, list | tuple):
        raise ValueError("not a list")
    return value


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value
