"""Bytes of a buffer: a small union of linear access descriptors, or a coarser bound.

In: nothing. Out: frozen records. Order, from exact to unknown: `Affine`, `Interval`,
`WholeBuffer`, `Unknown`. A descriptor is `offset + sum of stride_i * [0, count_i)`, each `width`
bytes long (the LMAD of Paek, Hoeflinger and Padua, "Simplification of array access patterns for
compiler optimizations").

The pieces of an `Affine` are sorted by offset. An `Interval` is one contiguous run of bytes.
`WholeBuffer` and `Unknown` give the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.diagnostics import Span
from tessera.wording import Wording


@dataclass(frozen=True, slots=True)
class Dimension:
    """`stride * [0, count)`; the stride is positive."""

    stride: int
    count: int


@dataclass(frozen=True, slots=True)
class Descriptor:
    """`width` bytes at `offset`, repeated along each dimension, outermost first."""

    offset: int
    width: int
    dimensions: tuple[Dimension, ...] = ()

    @property
    def end(self) -> int:
        """One past the last byte."""
        reach = sum(d.stride * (d.count - 1) for d in self.dimensions)
        return self.offset + reach + self.width


@dataclass(frozen=True, slots=True)
class Affine:
    """A union of descriptors."""

    pieces: tuple[Descriptor, ...]


@dataclass(frozen=True, slots=True)
class Interval:
    """Bytes `start` to `end` (exclusive)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WholeBuffer:
    """Any byte of the buffer."""

    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Any byte of any buffer."""

    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)


Region = Affine | Interval | WholeBuffer | Unknown


def region_text(region: Region) -> str:
    """A region as the `.tsg` format and reports spell it."""
    match region:
        case Affine():
            return "|".join(_descriptor_text(piece) for piece in region.pieces)
        case Interval():
            return f"{region.start}:{region.end}"
        case WholeBuffer():
            return "whole"
        case Unknown():
            return "unknown"


def _descriptor_text(piece: Descriptor) -> str:
    base = f"{piece.offset}:{piece.offset + piece.width}"
    return base + "".join(f"+{d.stride}*{d.count}" for d in piece.dimensions)
