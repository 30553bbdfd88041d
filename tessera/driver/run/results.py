"""The results of a run as a file: every request's outputs, every sequence's states.

In: an `Outcome`. Out: a `.npz` or `.safetensors` file. An output has a leading axis, one entry per
finished request of its trace; `tessera.requests` says which requests they are. A state has a
leading axis of sequences, and is there only if the run came to its end. Types that the file lacks
are rows of bytes. With several traces, names stand behind that of their trace: `prefill/y`. Where
two names would be the same, the later one (of the requests: that one) has `_` at its end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tessera.backend.service import Bytes
from tessera.driver.run.outcome import Outcome
from tessera.frontend.contents.write import has_type, write_contents
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role

REQUESTS = "tessera.requests"


def write_results(outcome: Outcome, path: str | os.PathLike[str]) -> None:
    """Write what has finished; the file appears whole or not at all."""
    rows = results(outcome)
    write_contents(path, (r if has_type(path, r[0]) else (_as_bytes(r[0]), r[1]) for r in rows))


def results(outcome: Outcome) -> Iterator[tuple[Buffer, Bytes | list[Bytes]]]:
    """The arrays of the file."""
    prefixes = _prefixes([trace.name for trace in outcome.opened.plan.traces])
    for trace, program in enumerate(outcome.opened.programs):
        prefix = prefixes[trace]
        done = [t.request for t in outcome.turns if t.trace == trace and t.request in outcome.done]
        numbers = np.array(done, np.int64)
        names = {prefix + b.name for b in program.buffers if b.role in (Role.OUTPUT, Role.STATE)}
        yield _numbered(_free(prefix + REQUESTS, names), len(done)), numbers.view(np.uint8)
        for buffer in program.buffers:
            if buffer.role is Role.OUTPUT:
                parts = [outcome.done[number].outputs[buffer.name] for number in done]
                yield _stacked(buffer, f"{prefix}{buffer.name}", parts)
    seen: set[str] = set()
    for program in outcome.opened.programs if outcome.states is not None else ():
        for buffer in program.buffers:
            if buffer.role is Role.STATE and buffer.name not in seen:
                seen.add(buffer.name)
                parts = [states[buffer.name] for states in outcome.states or ()]
                yield _stacked(buffer, buffer.name, parts)


def _prefixes(traces: Sequence[str]) -> list[str]:
    """What stands before the names of each trace: nothing if there is only one.

    A name from a plan file is a part of the name of an array, which must not be a path.
    """
    prefixes: list[str] = []
    for name in traces:
        prefixes.append(_free(re.sub(r"[^A-Za-z0-9_$-]", "_", name), prefixes))
    return [""] if len(prefixes) == 1 else [f"{name}/" for name in prefixes]


def _free(name: str, taken: Container[str]) -> str:
    """A name that is not taken: itself, or with `_` behind it."""
    while name in taken:
        name += "_"
    return name


def _numbered(name: str, count: int) -> Buffer:
    return Buffer(
        id=BufferId(0),
        name=name,
        bytes=8 * count,
        role=Role.OUTPUT,
        dtype=DataType.S64,
        shape=(count,),
    )


def _as_bytes(stacked: Buffer) -> Buffer:
    """The same bytes with their first axis kept, of a type that every file has."""
    assert stacked.shape is not None
    assert stacked.dtype is not None
    count, *inner = stacked.shape
    return replace(stacked, dtype=DataType.U8, shape=(count, prod(inner) * stacked.dtype.bytes))


def _stacked(buffer: Buffer, name: str, parts: list[Bytes]) -> tuple[Buffer, list[Bytes]]:
    """Equal buffers one after the other, with an axis for them in front."""
    count = len(parts)
    dtype = buffer.dtype or DataType.U8
    inner = (buffer.bytes // dtype.bytes,) if buffer.shape is None else buffer.shape
    size = count * buffer.bytes
    return replace(buffer, name=name, bytes=size, dtype=dtype, shape=(count, *inner)), parts
