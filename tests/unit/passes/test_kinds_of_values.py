"""What may be made of an address stays so, whatever it is put together with."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import HARD, LOW, U64, Lanes

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
