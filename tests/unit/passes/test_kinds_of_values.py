"""What may be made of an address stays so, whatever it is put together with."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_kinds import result_kind
from tessera.passes.lane_values.lanes import HARD, LOW, NUMBER, POINTER, U64, Lanes

PLAIN = [
    lanes.scalar(64),
    Lanes(np.array([[1, 2, 3, 4]], dtype=U64)),
    Lanes(np.array([[8]], dtype=U64), np.array([[5]], dtype=U64), 0),
]


@pytest.mark.parametrize("kinds", [*product((0, LOW, HARD), repeat=2)])
def test_values_of_some_threads_each(kinds: tuple[int, int]) -> None:
    mask = np.array([[True, False, True, False]])
    for pair in product(PLAIN, repeat=2):
        new, old = (lanes.of_kind(value, kind) for value, kind in zip(pair, kinds, strict=True))
        assert lanes.merge(mask, new, old).kind == max(kinds)
        assert lanes.join(new, old, 64).kind >= max(kinds)


@pytest.mark.parametrize("name", ["rem.u64", "and.b64"])
def test_low_bits_of_an_address_are_those_below_its_alignment(name: str) -> None:
    """Whatever a remainder by zero is, it may depend on the address."""
    opcode = ptx.Opcode(*(lambda name, *rest: (name, rest))(*name.split(".")))
    address = lanes.of_kind(lanes.scalar(1 << 20), POINTER)
    for number in (0, 1, 2, 3, 4, 6, 64, 128, 255, 256, 257, 512, 1 << 32, (1 << 64) - 1):
        power = number > 0 and number & (number - 1) == 0
        plain = number < 256 if name == "and.b64" else power and number <= 256
        kind = result_kind(opcode, [address, lanes.scalar(number)], 64)
        assert (kind == NUMBER) == plain, number
        hard = lanes.of_kind(address, HARD)
        assert result_kind(opcode, [hard, lanes.scalar(number)], 64) == HARD
