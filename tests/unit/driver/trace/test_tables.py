"""Addresses in memory: found where a launch uses them as such, and nowhere else."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tessera.driver.trace.build import build_program
from tessera.driver.trace.tables import Bytes
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawCode,
    RawLaunch,
    RawMemcpy,
    RawVariant,
)
from tessera.ir.program.program import Program, Role
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
# y[i] = *t[i] for the threads of one block; `extra` says how the address gets to its register.
THROUGH = (
    HEAD
    + """
.visible .entry follow(.param .u64 t, .param .u64 y)
{
    .reg .b64 %rd<9>;
    .reg .b32 %r<3>;
    .reg .f32 %f1;
    .shared .align 8 .b8 space[256];
    ld.param.u64 %rd1, [t];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 8;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.b64 %rd5, [%rd4];
    EXTRA
    ld.global.f32 %f1, [%rd5];
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd7, %rd2, %rd6;
    st.global.f32 [%rd7], %f1;
    ret;
}
"""
)
STAGED = """mov.u64 %rd8, space;
    add.u64 %rd8, %rd8, %rd3;
    st.shared.b64 [%rd8], %rd5;
    bar.sync 0;
    ld.shared.b64 %rd5, [%rd8];"""
DIRECT = THROUGH.replace("EXTRA", "")
X, Y, T, C = 0x7F0000000000, 0x7F0000001000, 0x7F0000002000, 0x7F0000003000
OTHER = 0x7F0000004000


def buffer(name: str, address: int, role: Role = Role.WEIGHT, *, lasting: bool = True) -> RawBuffer:
    return RawBuffer(name=name, address=address, bytes=64, role=role, lasting=lasting)


BUFFERS = (
    buffer("y", Y, Role.OUTPUT, lasting=False),
    buffer("x", X),
    buffer("t", T),
    buffer("c", C, Role.TEMP, lasting=False),
    buffer("other", OTHER),
)


def launch(table: int, threads: int = 4) -> RawLaunch:
    return RawLaunch(
        name="follow",
        function=7,
        grid=(1, 1, 1),
        block=(threads, 1, 1),
        shared_bytes=0,
        arguments=(struct.pack("<Q", table), struct.pack("<Q", Y)),
    )


def table(*words: int) -> Bytes:
    padded = (*words, *[0] * (8 - len(words)))
    return np.frombuffer(struct.pack("<8Q", *padded), np.uint8)


def built(*nodes: object, text: str = DIRECT, contents: dict[str, Bytes]) -> Program:
    code = RawCode(
        function=7, variants=(RawVariant(arch="sm_80", text=text, shared_bytes=0, threads=4),)
    )
    raw = RawCapture(buffers=BUFFERS, nodes=nodes, operators=(), codes=(code,))  # type: ignore
    empty = np.zeros(64, np.uint8)
    return build_program(raw, read=lambda name: contents.get(name, empty))[0]


def words(program: Program) -> dict[str, list[tuple[int, str, int]]]:
    return {
        program.buffers[one.buffer].name: [
            (w.offset, program.buffers[w.target.buffer].name, w.target.offset) for w in one.words
        ]
        for one in program.pointer_tables
    }


def test_words_that_a_launch_follows() -> None:
    """Four threads load four words; the fifth is an address too, but nobody uses it."""
    program = built(launch(T), contents={"t": table(X, X + 8, 5, OTHER + 60, X)})
    assert words(program) == {"t": [(0, "x", 0), (8, "x", 8), (24, "other", 60)]}


def test_a_number_that_looks_like_an_address_stays_one() -> None:
    """`x` holds an address as data, and no launch loads it as one."""
    program = built(launch(T, threads=1), contents={"t": table(X), "x": table(OTHER)})
    assert words(program) == {"t": [(0, "x", 0)]}
    assert "other" not in {b.name for b in program.buffers}


def test_the_launch_is_not_pinned_then() -> None:
    program = built(launch(T), contents={"t": table(X, X, X, OTHER)})
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert step.pins == ()
    names = {program.buffers[access.buffer].name for access in step.accesses}
    assert names == {"t", "x", "y", "other"}


def test_addresses_that_go_through_shared_memory() -> None:
    text = THROUGH.replace("EXTRA", STAGED)
    program = built(launch(T, threads=2), text=text, contents={"t": table(X, OTHER, X)})
    assert words(program) == {"t": [(0, "x", 0), (8, "other", 0)]}


def test_a_table_that_is_copied_before_it_is_used() -> None:
    """The words of the copy come from `t`; the half of `t` that is not copied is not looked at."""
    copy = RawMemcpy(target=C, source=T, bytes=16)
    program = built(copy, launch(C, threads=2), contents={"t": table(X, OTHER, X)})
    assert words(program) == {"t": [(0, "x", 0), (8, "other", 0)]}
    roles = {b.name: b.role for b in program.buffers}
    assert roles["x"] is Role.WEIGHT


@pytest.mark.parametrize("content", [table(), table(5, 6)])
def test_no_addresses_no_record(content: Bytes) -> None:
    program = built(launch(T), contents={"t": content})
    assert program.pointer_tables == ()


def test_a_table_of_tables() -> None:
    """The first load leads to `other`, whose word leads on to `x`."""
    twice = DIRECT.replace(
        "ld.global.f32 %f1, [%rd5];", "ld.global.b64 %rd5, [%rd5];\n    ld.global.f32 %f1, [%rd5];"
    )
    program = built(
        launch(T, threads=1), text=twice, contents={"t": table(OTHER), "other": table(X)}
    )
    assert words(program) == {"t": [(0, "other", 0)], "other": [(0, "x", 0)]}
