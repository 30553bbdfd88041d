"""Roles in the example traces are those that a capture gives: from what the launches may write.

A capture of each trace is made up again: buffers at addresses, launches with bytes as arguments,
everything that lasts a weight at first, and the code that ran only. `build_program` must find the
same roles, and the same pointers among the arguments, though nothing says which buffers were seen
to change.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.driver.trace.build import build_program
from tessera.frontend.capture.raw import RawBuffer, RawCapture, RawCode, RawLaunch, RawVariant
from tessera.frontend.trace.read_trace import read_trace
from tessera.ir.program import program as ir

TRACES = Path(__file__).parents[4] / "examples" / "traces"
START = 0x7F0000000000
LASTING = (ir.Role.WEIGHT, ir.Role.STATE, ir.Role.INPUT)


def raw_capture(program: ir.Program) -> RawCapture:
    """What a capture would have found."""
    buffers, at = [], START
    for buffer in program.declared_buffers():
        role = ir.Role.WEIGHT if buffer.role is ir.Role.STATE else buffer.role
        buffers.append(
            RawBuffer(
                name=buffer.name,
                address=at,
                bytes=buffer.bytes,
                role=role,
                lasting=buffer.role in LASTING,
                dtype=buffer.dtype,
                shape=buffer.shape,
            )
        )
        at += -(-buffer.bytes // 512) * 512
    launches = [step for step in program.steps if isinstance(step, ir.Launch)]
    assert len(launches) == len(program.steps)
    starts = [buffer.address for buffer in buffers]
    codes = {
        int(launch.module): _code(program.modules[launch.module], launch) for launch in launches
    }
    return RawCapture(
        buffers=tuple(buffers),
        nodes=tuple(_node(launch, starts) for launch in launches),
        operators=(),
        codes=tuple(codes.values()),
    )


def _code(module: ir.ProgramModule, launch: ir.Launch) -> RawCode:
    first = module.variants[0]
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    variant = RawVariant(
        arch=first.arch, text=first.text, shared_bytes=launch.shared_bytes, threads=threads
    )
    return RawCode(function=int(module.id), variants=(variant,))


def _node(launch: ir.Launch, starts: list[int]) -> RawLaunch:
    return RawLaunch(
        name=launch.kernel,
        function=int(launch.module),
        grid=launch.grid,
        block=launch.block,
        shared_bytes=launch.shared_bytes,
        cluster=launch.cluster,
        arguments=tuple(_bytes(argument, starts) for argument in launch.arguments),
    )


def _bytes(argument: ir.Argument, starts: list[int]) -> bytes:
    match argument:
        case ir.Pointer():
            return (starts[argument.buffer] + argument.offset).to_bytes(8, "little")
        case ir.Scalar():
            return argument.bits.to_bytes(argument.type.bytes, "little")
        case ir.ByValue():
            content = bytearray(argument.content)
            for word in argument.pointers:
                address = starts[word.target.buffer] + word.target.offset
                content[word.offset : word.offset + 8] = address.to_bytes(8, "little")
            return bytes(content)


@pytest.mark.parametrize(
    "model", ["llama_prefill", pytest.param("vision_language", marks=pytest.mark.slow)]
)
def test_roles_follow_from_what_launches_write(model: str) -> None:
    program = read_trace(TRACES / f"{model}.ptx")
    built, _ = build_program(raw_capture(program))
    expected = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    found = {buffer.name: buffer.role for buffer in built.declared_buffers()}
    assert found == expected
    for old, new in zip(program.steps, built.steps, strict=True):
        assert isinstance(old, ir.Launch)
        assert isinstance(new, ir.Launch)
        assert new.arguments == old.arguments
