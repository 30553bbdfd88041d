"""What is known about launches of one pattern, as JSON values and back.

In: a `Pattern`, and the module that its launches are of. Out: lists, numbers and
texts. Buffers are numbered in the order of the pattern, positions are kept as places in the
texts of the module's variants. Reading refuses (`ValueError`) whatever does not look like what
writing gives.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from tessera.passes.dependences.launch_pattern import Buffers, Pattern, PatternContents
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.wording import Wording


class PatternCodec:
    """Writes and reads the patterns of one module's launches."""

    def __init__(self, module: ir.ProgramModule) -> None:
        self.sources = [variant.ptx.source for variant in module.variants]

    def encode(self, pattern: Pattern) -> list[object]:
        """A pattern as JSON values; `ValueError` where a position is in no text of the module."""
        report = pattern.first
        order = {buffer: place for place, buffer in enumerate(pattern.buffers)}
        # Positions are no part of equality, and are kept all the same.
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
        return [accesses, [self._region(region) for region, _ in regions], needs, contents]

    def decode(self, value: object, step: ir.LaunchId, name: str, buffers: Buffers) -> Pattern:
        """The pattern of a launch that gets these buffers."""
        try:
            accesses, regions, needs, contents = _list(value)
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
