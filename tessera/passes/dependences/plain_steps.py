"""The accesses of steps that are not launches: fills, copies and library calls.

In: a record of a trace. Out: its accesses. A fill and a copy touch the bytes in their record; a
library call touches its operands, in the way that the table of operators states.

Source: the strides of `ir.program.program.Operand`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tessera.diagnostics import Span
from tessera.ir.arrays import Ranges
from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.region import Interval, Region
from tessera.ir.program import program as ir
from tessera.ir.program.program import BufferId, Operand, Pointer
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import may_region, must_region


def _plain(
    pointer: ir.Pointer, count: int, kind: AccessKind, text: str, span: Span | None
) -> Access:
    return Access(
        buffer=pointer.buffer,
        kind=kind,
        certainty=Certainty.MUST,
        address=AddressClass.DIRECT,
        region=Interval(pointer.offset, pointer.offset + count),
        text=text,
        span=span,
    )


def memset_accesses(step: ir.Memset) -> tuple[Access, ...]:
    """The accesses of a fill."""
    if step.bytes == 0:
        return ()
    return (_plain(step.target, step.bytes, AccessKind.WRITE, "memset", step.span),)


def memcpy_accesses(step: ir.Memcpy) -> tuple[Access, ...]:
    """The accesses of a copy."""
    if step.bytes == 0:
        return ()
    return (
        _plain(step.source, step.bytes, AccessKind.READ, "memcpy", step.span),
        _plain(step.target, step.bytes, AccessKind.WRITE, "memcpy", step.span),
    )


def library_accesses(step: ir.LibraryCall) -> Iterator[Access]:
    """The accesses of the declared operands, as the table of operators states them.

    Libraries leave the padding between strides alone.
    """
    # Imported here because few traces call a library, and the table is large.
    from tessera.ir.operators.records import Reach
    from tessera.ir.operators.table import reaches

    read, written = reaches(step)
    uses = [(AccessKind.READ, *use) for use in zip(step.reads, read, strict=True)]
    uses += [(AccessKind.WRITE, *use) for use in zip(step.writes, written, strict=True)]
    for kind, operand, reach in uses:
        if 0 not in operand.shape and reach is not Reach.NONE:
            anywhere = Pointer(BufferId(0), operand.pointer.offset)
            whole, is_exact = _region_of(replace(operand, pointer=anywhere))
            is_sure = reach is Reach.WHOLE and is_exact
            yield Access(
                buffer=operand.pointer.buffer,
                kind=kind,
                certainty=Certainty.MUST if is_sure else Certainty.MAY,
                address=AddressClass.DIRECT if reach is Reach.WHOLE else AddressClass.INDEXED,
                region=whole,
                text=step.operator,
                span=step.span,
            )


_MOST = 1 << 20
_MOST_KNOWN = 4096


@lru_cache(maxsize=_MOST_KNOWN)
def _region_of(operand: Operand) -> tuple[Region, bool]:
    """The region of an operand, and whether it has just these bytes; equal layers share it."""
    ranges = operand_bytes(operand)
    whole = may_region(ranges)
    return whole, must_region(ranges) == whole


def operand_bytes(operand: Operand) -> Ranges:
    """The bytes of an operand; past a limit on runs, all bytes from the first to the last."""
    if 0 in operand.shape:
        return intervals.EMPTY
    width = operand.dtype.bytes
    dimensions = sorted(
        (stride * width, count)
        for stride, count in zip(operand.element_strides(), operand.shape, strict=True)
        if stride and count > 1
    )
    starts = np.array([operand.pointer.offset], dtype=np.int64)
    run = width
    for stride, count in dimensions:
        if stride <= run:
            run = stride * (count - 1) + run
            continue
        if len(starts) * count > _MOST:
            start = operand.pointer.offset
            return intervals.interval(start, start + operand.extent_bytes())
        steps = np.arange(count, dtype=np.int64) * stride
        starts = (starts[None, :] + steps[:, None]).ravel()
    return intervals.words(starts, run)
