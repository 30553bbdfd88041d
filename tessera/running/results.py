"""The results of a run as a file: every request's outputs, every lane's states.

In: an `Outcome`. Out: a `.npz` or `.safetensors` file. An output has a leading axis, one entry per
finished request of its trace; `tessera.requests` says which requests they are. A state has a
leading axis of lanes, and is there only if the run came to its end. With several traces, names
stand behind that of their trace: `prefill/y`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tessera.backend.service import Bytes
from tessera.frontend.contents_write import write_contents
from tessera.ir.data_type import DataType
from tessera.ir.program import Buffer, BufferId, Role
from tessera.running.outcome import Outcome

REQUESTS = "tessera.requests"


def write_results(outcome: Outcome, path: str | os.PathLike[str]) -> None:
    """Write what has finished; the file appears whole or not at all."""
    write_contents(path, results(outcome))


def results(outcome: Outcome) -> Iterator[tuple[Buffer, Bytes]]:
    """The arrays of the file."""
    traces = outcome.opened.plan.traces
    for trace, program in enumerate(outcome.opened.programs):
        prefix = "" if len(traces) == 1 else f"{_plain(traces[trace].name)}/"
        done = [t.request for t in outcome.turns if t.trace == trace and t.request in outcome.done]
        numbers = np.array(done, np.int64)
        yield _numbered(f"{prefix}{REQUESTS}", len(done)), numbers.view(np.uint8)
        for buffer in program.buffers:
            if buffer.role is Role.OUTPUT:
                parts = [outcome.done[number].outputs[buffer.name] for number in done]
                yield _stacked(buffer, f"{prefix}{buffer.name}", parts)
    seen: set[str] = set()
    for program in outcome.opened.programs if outcome.states is not None else ():
        for buffer in program.buffers:
            if buffer.role is Role.STATE and buffer.name not in seen:
                seen.add(buffer.name)
                parts = [lane[buffer.name] for lane in outcome.states or ()]
                yield _stacked(buffer, buffer.name, parts)


def _plain(name: str) -> str:
    """A name from a plan file as a part of the name of an array, which must not be a path."""
    return re.sub(r"[^A-Za-z0-9_$-]", "_", name)


def _numbered(name: str, count: int) -> Buffer:
    return Buffer(
        id=BufferId(0), name=name, bytes=8 * count, role=Role.OUTPUT, dtype=DataType.S64,
        shape=(count,),
    )  # fmt: skip


def _stacked(buffer: Buffer, name: str, parts: list[Bytes]) -> tuple[Buffer, Bytes]:
    """Equal buffers one after the other, with an axis for them in front."""
    count = len(parts)
    shape = None if buffer.shape is None else (count, *buffer.shape)
    if shape is None and buffer.dtype is not None:
        shape = (count, buffer.bytes // buffer.dtype.bytes)
    content = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return replace(buffer, name=name, bytes=count * buffer.bytes, shape=shape), content
