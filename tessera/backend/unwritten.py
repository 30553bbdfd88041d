"""Patterns for unwritten memory in a verified run.

In: a request, a device, a buffer and a byte range of it. Out: the bytes of the range. The bytes
depend on all of these, and every single byte differs between a run and its comparison
(`ComparedSide`), so a result that depends on unwritten memory differs too. Bytes that a plan knows
to be read before a step writes them are not unwritten: a `Fill` has written them, with the same
values on both sides. The CUDA backend generates the same bytes in place (`fill_unwritten` in
`backend/cuda/helpers.cu`).

Values are neither NaN nor infinite in any format, so that a product with zero is zero, and large
enough that no sum rounds them away: a byte is a sign, `100`, three bits of a hash, and the side. Of
every four groups of 16 bytes, one is zero in the run and another one is zero in the comparison, to
detect code that only tests for zero.
"""

from __future__ import annotations

import zlib
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import Bytes, Fill, LoweredReplica
from tessera.ir.program.program import POINTER_BYTES, Buffer, BufferId, Program

_Words = npt.NDArray[np.uint32]
_WORD, _RUN = 4, 16
_BY_WORD, _BY_RUN = np.uint32(0x9E3779B1), np.uint32(0x85EBCA6B)


class ComparedSide(IntEnum):
    """Whose memory it is: that of a run, or that of its comparison."""

    RUN = 0
    ONE_DEVICE = 1


def buffer_key(trace: int, buffer: BufferId) -> int:
    """The key of a buffer."""
    return zlib.crc32(f"{trace}.{int(buffer)}".encode())


def device_key(device: str) -> int:
    """The key of a device."""
    return zlib.crc32(device.encode())


def unwritten_bytes(
    side: ComparedSide, request: int, device: int, buffer: int, start: int, end: int
) -> npt.NDArray[np.uint8]:
    """Bytes of a buffer; `device` and `buffer` are keys."""
    common = _mixed(np.array([(request ^ buffer) & 0xFFFFFFFF], np.uint32))
    own = _mixed(common ^ np.uint32(device))
    first, last = start // _RUN, -(-end // _RUN)
    words = np.arange(first * (_RUN // _WORD), last * (_RUN // _WORD), dtype=np.uint32)
    content = _mixed(own + words * _BY_WORD).astype("<u4").view(np.uint8)
    content &= 0x8E
    content |= 0x40 | side
    runs = np.arange(first, last, dtype=np.uint32)
    content.reshape(-1, _RUN)[_mixed(common + runs * _BY_RUN) & 3 == side] = 0
    return content[start - first * _RUN : end - first * _RUN]


def filled_ranges(lowered: LoweredReplica) -> dict[tuple[int, BufferId], Bytes]:
    """By trace and buffer, the bytes that a plan fills on any device."""
    filled: dict[tuple[int, BufferId], Bytes] = {}
    for trace in lowered.traces:
        for program in trace.programs:
            for queued in program.operations:
                if isinstance(queued.operation, Fill):
                    key = trace.trace, queued.operation.buffer
                    filled[key] = (*filled.get(key, ()), *queued.operation.bytes)
    return filled


def ranges_without_words(program: Program, buffer: Buffer) -> list[tuple[int, int]]:
    """All byte ranges of a buffer except its address words, which are written beforehand."""
    words = sorted(
        word.offset
        for table in program.pointer_tables
        if table.buffer == buffer.id
        for word in table.words
    )
    starts = [0, *(word + POINTER_BYTES for word in words)]
    ends = [*words, buffer.bytes]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def _mixed(x: _Words) -> _Words:
    """A bijection of words that spreads every bit (`lowbias32` of Wellons)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))
