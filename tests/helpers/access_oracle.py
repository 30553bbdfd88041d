"""What a case touches when the CPU backend runs it, beside what the analysis says.

In: a case with its buffers. Out: per launch the bytes logged and the bytes of the regions, so
that tests and benchmarks can hold them against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.ir.graph.access import Access, AccessKind, Certainty
from tessera.ir.program import program as ir
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import region_bytes
from tessera.passes.dependences.launch_report import StepAccesses
from tests.kernels.case import Case, Run
from tests.kernels.cpu import MAX_STEPS, parameter, read_module, resolve

Log = tuple[BufferAccess, ...]


def run_logged(
    case: Case, run: Run, contents: Mapping[str, NDArray], max_steps: int = MAX_STEPS
) -> list[Log]:
    """The log of each launch, with other contents for the buffers that are named."""
    with Device() as device:
        module = device.load(read_module(case.ptx))
        arrays = {
            name: device.array(contents.get(name, array), name)
            for name, array in run.buffers.items()
        }
        for name, words in run.pointers.items():
            raw = arrays[name].view().reshape(-1).view(np.uint8)
            for offset, text in words.items():
                word = np.array([resolve(text, arrays)], np.uint64)
                raw[offset : offset + 8] = word.view(np.uint8)
        return [
            module[launch.kernel]
            .launch(
                launch.grid,
                launch.block,
                [parameter(argument, arrays) for argument in launch.args],
                shared=launch.smem,
                cooperative=launch.cooperative,
                max_steps=max_steps,
            )
            .accesses
            for launch in run.launches
        ]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One buffer in one launch: bytes logged, and bytes of the regions."""

    buffer: ir.Buffer
    accesses: tuple[Access, ...]
    read: NDArray
    written: NDArray
    may_read: NDArray
    may_write: NDArray
    must_write: NDArray


def compare(program: ir.Program, step: StepAccesses, log: Log) -> Iterator[Comparison]:
    """Every buffer that a launch touched or may touch."""
    logged = {entry.buffer: entry for entry in log}
    for buffer in program.buffers:
        entry = logged.get(buffer.name.removeprefix("m."))
        mine = tuple(a for a in step.accesses if a.buffer == buffer.id)
        if entry is None and not mine:
            continue

        def total(*kinds: AccessKind, must: bool = False) -> NDArray:
            chosen = [
                region_bytes(access.region, buffer.bytes)  # noqa: B023
                for access in mine  # noqa: B023
                if access.kind in kinds and (not must or access.certainty is Certainty.MUST)
            ]
            return intervals.union(chosen)

        yield Comparison(
            buffer,
            mine,
            intervals.from_pairs(entry.reads if entry else ()),
            intervals.from_pairs(entry.writes if entry else ()),
            total(AccessKind.READ, AccessKind.ATOMIC),
            total(AccessKind.WRITE, AccessKind.ATOMIC),
            total(AccessKind.WRITE, must=True),
        )
