"""Addresses that a module's variables hold when it is loaded, as words and byte by byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.passes.kernel_facts.initial_pointers import Words, initial_pointers
from tests.helpers.traces import COPY, HEADER, trace

PLAIN = trace(
    "buffer x bytes=256 role=input\nbuffer y bytes=256 role=output\n",
    COPY,
    "launch m.copy grid=1,1,1 block=64,1,1 args=[y, x, u32:64]\n",
)
BYTES = [f"0xFF{'00' * place}(a+12)" for place in range(8)]


def words(held: str) -> Words:
    """What is known of `held`, next to variables `a` and `b`."""
    text = f".global .align 4 .b8 a[64];\n.global .align 4 .b8 b[64];\n.global {held};\n"
    buffers = tuple(
        ir.Buffer(id=ir.BufferId(at), name=f"m.{name}", bytes=64, role=ir.Role.VARIABLE)
        for at, name in enumerate(("a", "b", "held"))
    )
    (module,) = PLAIN.modules
    variant = replace(module.variants[0], ptx=parse_module(HEADER + text + COPY))
    program = replace(
        PLAIN, buffers=buffers, modules=(replace(module, variants=(variant,)),), steps=()
    )
    named = {name: buffer.id for name, buffer in zip(("a", "b", "held"), buffers, strict=True)}
    return initial_pointers(program, {module.id: named}).get(ir.BufferId(2), {})


def of_bytes(listed: list[str]) -> Words:
    return words(f".align 8 .u8 held[{len(listed)}] = {{{', '.join(listed)}}}")


def test_words() -> None:
    a, b = ir.Pointer(ir.BufferId(0), 4), ir.Pointer(ir.BufferId(1), 0)
    assert words(".align 8 .u64 held[3] = {generic(a)+4, 7, b}") == {0: a, 16: b}
    assert words(".align 8 .u64 held[2] = {a-4, 0}") == {}


def test_bytes_of_one_address_are_a_word() -> None:
    whole = ir.Pointer(ir.BufferId(0), 12)
    assert of_bytes(BYTES) == {0: whole}
    assert of_bytes(["1", "2", *BYTES, "3"]) == {2: whole}
    assert of_bytes([*BYTES, *BYTES]) == {0: whole, 8: whole}


@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("other", ["0", "0xFF(b+12)", "{}(b+12)", "{}(a+13)", "0xFF(a+12)"])
def test_other_bytes_are_none(place: int, other: str) -> None:
    changed = other.format(BYTES[place].partition("(")[0])
    listed = [*BYTES[:place], changed, *BYTES[place + 1 :]]
    assert of_bytes(listed) == ({0: ir.Pointer(ir.BufferId(0), 12)} if listed == BYTES else {})
