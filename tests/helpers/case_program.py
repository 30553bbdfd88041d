"""A kernel case (`tests/kernels`) as a program, so that analyses can be held against its runs."""

from __future__ import annotations

import numpy as np

from tessera.frontend.trace.kernels import variables_of
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tests.kernels.case import Argument, Case, Launch, Run, Struct, address, dimensions
from tests.kernels.cpu import read_module


def case_program(case: Case, run: Run) -> ir.Program:
    """The buffers, the module and the launches of a case."""
    module = read_module(case.ptx)
    sizes = {name: np.ascontiguousarray(array).nbytes for name, array in run.buffers.items()}
    ids = {name: ir.BufferId(i) for i, name in enumerate(sizes)}
    buffers = [
        ir.Buffer(id=ids[name], name=name, bytes=size, role=ir.Role.STATE)
        for name, size in sizes.items()
    ]
    for variable in variables_of(module).values():
        buffers.append(
            ir.Buffer(
                id=ir.BufferId(len(buffers)),
                name=f"m.{variable.name}",
                bytes=variable.bytes,
                role=ir.Role.VARIABLE,
            )
        )
    variant = ir.ModuleVariant(arch=module.target[0], text="", ptx=module)
    return ir.Program(
        buffers=tuple(buffers),
        modules=(ir.ProgramModule(ir.ModuleId(0), "m", (variant,)),),
        pointer_tables=tuple(
            ir.PointerTable(
                ids[name],
                tuple(ir.PointerWord(o, _pointer(t, ids)) for o, t in sorted(words.items())),
            )
            for name, words in run.pointers.items()
        ),
        steps=tuple(_launch(i, launch, ids) for i, launch in enumerate(run.launches)),
    )


def _launch(index: int, launch: Launch, ids: dict[str, ir.BufferId]) -> ir.Launch:
    return ir.Launch(
        id=ir.LaunchId(index),
        module=ir.ModuleId(0),
        kernel=launch.kernel,
        grid=dimensions(launch.grid),
        block=dimensions(launch.block),
        arguments=tuple(_argument(a, ids) for a in launch.args),
        shared_bytes=launch.smem,
        cooperative=launch.cooperative,
    )


def _pointer(text: str, ids: dict[str, ir.BufferId]) -> ir.Pointer:
    name, offset = address(text)
    return ir.Pointer(ids[name], offset)


def _argument(argument: Argument, ids: dict[str, ir.BufferId]) -> ir.Argument:
    if isinstance(argument, str):
        return _pointer(argument, ids)
    if isinstance(argument, Struct):
        content = bytearray(argument.data)
        for offset in argument.pointers:
            content[offset : offset + 8] = bytes(8)
        words = sorted(argument.pointers.items())
        return ir.ByValue(
            bytes(content), tuple(ir.PointerWord(o, _pointer(t, ids)) for o, t in words)
        )
    raw = argument.tobytes()
    kinds = {1: DataType.B8, 2: DataType.B16, 4: DataType.B32, 8: DataType.B64}
    return ir.Scalar(kinds[len(raw)], int.from_bytes(raw, "little"))
