"""Run a case on the CPU backend.

In: a case and its `Run`. Out: the buffers after the launches, what the kernels printed, and the
log of each launch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device, DeviceArray
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tests.kernels.case import Argument, Case, Run, Struct, address

# The longest case takes 7000 steps; a hanging one must not hold up the tests.
MAX_STEPS = 200_000


@functools.cache
def read_module(path: Path) -> ptx.Module:
    """Each PTX file is parsed once in a test session."""
    return parse_module(path.read_text(), path.name)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The buffers after the launches of a case, what was printed, and what each launch touched."""

    buffers: dict[str, NDArray]
    printed: str
    logs: list[tuple[BufferAccess, ...]]


@functools.cache
def case_result(case: Case) -> CaseResult:
    """What a case gives with its own inputs, found once in a test session; nobody changes it."""
    return run_case(case, case.make())


def run_case(
    case: Case, run: Run, contents: Mapping[str, NDArray] | None = None, max_steps: int = MAX_STEPS
) -> CaseResult:
    """Run the launches of a case on a fresh device, with other contents for the buffers named."""
    with Device() as device:
        module = device.load(read_module(case.ptx))
        given = run.buffers | dict(contents or {})
        arrays = {name: device.array(given[name], name) for name in run.buffers}
        for name, words in run.pointers.items():
            raw = arrays[name].view().reshape(-1).view(np.uint8)
            for offset, text in words.items():
                raw[offset : offset + 8] = np.array([resolve(text, arrays)], np.uint64).view(
                    np.uint8
                )
        launched = [
            module[launch.kernel].launch(
                launch.grid,
                launch.block,
                [parameter(argument, arrays) for argument in launch.args],
                shared=launch.smem,
                cooperative=launch.cooperative,
                max_steps=max_steps,
            )
            for launch in run.launches
        ]
        return CaseResult(
            buffers={name: array.numpy() for name, array in arrays.items()},
            printed="".join(result.output for result in launched),
            logs=[result.accesses for result in launched],
        )


def resolve(text: str, arrays: dict[str, DeviceArray]) -> int:
    """The device address of `"x+16"`."""
    name, offset = address(text)
    return arrays[name].address + offset


def parameter(argument: Argument, arrays: dict[str, DeviceArray]) -> Any:
    """An argument as the backend takes it."""
    if isinstance(argument, str):
        name, offset = address(argument)
        return arrays[name].at(offset)
    if isinstance(argument, Struct):
        data = bytearray(argument.data)
        for offset, text in argument.pointers.items():
            data[offset : offset + 8] = resolve(text, arrays).to_bytes(8, "little")
        return bytes(data)
    return argument
