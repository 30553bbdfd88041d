"""Rows of states that are set: which bytes they are, and which devices keep them.

In: arrays, and rows along the first axis of a state. Out: byte ranges of each device, and what goes
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tessera.backend.service import Bytes, StateParts
from tessera.diagnostics import TesseraError
from tessera.driver.run.arrays import given_array
from tessera.ir.plan.launch_program import AreaKind, LoweredReplica
from tessera.ir.program.program import Buffer, Program, Role


@dataclass(frozen=True, slots=True)
class StateRows:
    """Bytes of a state, in ascending order, and what they are set to, one after the other."""

    ranges: tuple[tuple[int, int], ...]
    content: Bytes


def of_rows(buffer: Buffer, content: Bytes, rows: slice | int) -> Bytes:
    """The bytes of some rows of a buffer, along its first axis."""
    numbers, size = _numbers(buffer, rows)
    return np.asarray(content).reshape(-1, size)[numbers].reshape(-1)


def _numbers(buffer: Buffer, rows: slice | int) -> tuple[Sequence[int], int]:
    """The numbers of rows, and the bytes of one."""
    if not buffer.shape:
        raise TesseraError.of("TSR5053", f"state `{buffer.name}` has no rows")
    try:
        numbers = np.atleast_1d(np.arange(buffer.shape[0])[rows]).tolist()
    except IndexError:
        message = f"state `{buffer.name}` has {buffer.shape[0]} rows, and not these: {rows}"
        raise TesseraError.of("TSR5053", message) from None
    return numbers, buffer.bytes // buffer.shape[0]


def state_rows(buffer: Buffer, given: object, rows: slice | int | None) -> StateRows:
    """The new bytes of a state: the whole state, or some rows of it."""
    array = np.ascontiguousarray(given_array(buffer, given))
    flat = array.reshape(-1).view(np.uint8)
    if rows is None:
        if flat.nbytes != buffer.bytes:
            message = f"state `{buffer.name}` takes {buffer.bytes} bytes, not {flat.nbytes}"
            raise TesseraError.of("TSR5053", message)
        return StateRows(((0, buffer.bytes),) if buffer.bytes else (), flat)
    numbers, size = _numbers(buffer, rows)
    if flat.nbytes != len(numbers) * size:
        taken = len(numbers) * size
        message = f"these rows of state `{buffer.name}` take {taken} bytes, not {flat.nbytes}"
        raise TesseraError.of("TSR5053", message)
    order = np.argsort(numbers)
    ranges = tuple((int(numbers[n]) * size, (int(numbers[n]) + 1) * size) for n in order)
    return StateRows(ranges, flat.reshape(len(numbers), size)[order].reshape(-1))


def parts_of_rows(
    lowered: LoweredReplica, programs: Sequence[Program], given: Mapping[str, StateRows]
) -> Iterator[tuple[str, StateParts, Bytes]]:
    """For each device the bytes that it keeps of some rows, and their new contents, packed."""
    parts: dict[str, dict[str, list[tuple[int, int]]]] = {}
    pieces: dict[str, list[Bytes]] = {}
    for place in lowered.places:
        buffer = programs[place.trace].buffers[place.buffer]
        rows = given.get(buffer.name)
        is_state = place.kind is AreaKind.LANE and buffer.role is Role.STATE
        own = parts.setdefault(place.device, {})
        if rows is None or not is_state or buffer.name in own:
            continue
        here = own.setdefault(buffer.name, [])
        current = lowered.current_bytes(place, buffer.bytes)
        for start, end, at in _overlaps(rows.ranges, current):
            here.append((start, end))
            pieces.setdefault(place.device, []).append(rows.content[at : at + end - start])
    for device, contents in pieces.items():
        yield device, list(parts[device].items()), np.concatenate(contents)


def _overlaps(
    ranges: Sequence[tuple[int, int]], current: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """The common bytes of two ascending lists, and where they are in the first when packed."""
    at, number = 0, 0
    for start, end in ranges:
        while number < len(current) and current[number][1] <= start:
            number += 1
        for low, high in current[number:]:
            if low >= end:
                break
            first, last = max(start, low), min(end, high)
            yield first, last, at + first - start
        at += end - start
