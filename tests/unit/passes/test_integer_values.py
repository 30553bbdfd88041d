"""Costs and footprints agree on what integer instructions do to exact values.

`costs/integer_values` follows one thread with Python's integers, `lane_ops` all threads with
intervals. Shift amounts and bit fields stay inside the register here.
"""

from __future__ import annotations

import random

import pytest

from tessera.ir.ptx import syntax as ptx
from tessera.passes.costs.integer_values import OPERATIONS, fit
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import lane_function, source_bits

SOURCES = {"mov": 1, "not": 1, "neg": 1, "abs": 1, "mad": 3, "bfe": 3}
PLAIN = ("mov", "add", "sub", "and", "or", "xor", "not", "neg", "abs", "min", "max", "shl", "shr")
FORMS = [
    *((name, ()) for name in (*PLAIN, "div", "rem", "bfe")),
    *((name, (part,)) for name in ("mul", "mad") for part in ("lo", "hi", "wide")),
    *(("setp", (name,)) for name in ("eq", "ne", "lt", "le", "gt", "ge")),
]
TYPES = [f"{letter}{bits}" for bits in (16, 32, 64) for letter in "us"]
CASES = [
    (name, modifiers, type)
    for name, modifiers in FORMS
    for type in TYPES
    if not (name == "abs" and type[0] == "u") and not ("wide" in modifiers and type[1:] == "64")
]


def draw(source: random.Random, opcode: ptx.Opcode, bits: int) -> list[int]:
    """Small numbers, large ones, and those at the edges, as a register holds them."""
    drawn = []
    for place in range(SOURCES.get(opcode.name, 2)):
        width = source_bits(opcode, place, bits)
        edge = 1 << (width - 1)
        drawn.append(
            source.choice((source.getrandbits(width), source.randrange(8), edge, edge - 1))
        )
    if opcode.name in ("shl", "shr"):
        drawn[1] = source.randrange(bits + 2)
    if opcode.name == "bfe":
        drawn[1] = source.randrange(bits)
        drawn[2] = source.randrange(bits - drawn[1] + 1)
    return drawn


@pytest.mark.parametrize(("name", "modifiers", "type"), CASES)
def test_both_have_the_same_result(name: str, modifiers: tuple[str, ...], type: str) -> None:
    signed, bits = type[0] == "s", int(type[1:])
    opcode = ptx.Opcode(name, (*modifiers, type))
    function = lane_function(opcode)
    assert function is not None
    width = 1 if name == "setp" else 2 * bits if "wide" in modifiers else bits
    source = random.Random(f"{opcode}")
    compared = 0
    for _ in range(100):
        values = draw(source, opcode, bits)
        given = [fit(v, source_bits(opcode, n, bits), signed) for n, v in enumerate(values)]
        followed = OPERATIONS[name](given, opcode.modifiers, bits, signed)
        result = function([lanes.scalar(value) for value in values])
        if followed is None:
            assert name in ("div", "rem")
            assert values[1] == 0
            continue
        assert result.span is None
        assert followed & ((1 << width) - 1) == int(result.lo.flat[0]), values
        compared += 1
    assert compared > 50
