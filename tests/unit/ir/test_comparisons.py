"""The table of comparisons against numbers: signs, opposites and mirrors mean what they say."""

from __future__ import annotations

import pytest

from tessera.ir.opcodes.comparisons import (
    COMPARISON_SIGNS,
    COMPARISON_TESTS,
    INVERSE_COMPARISONS,
    MIRRORED_COMPARISONS,
    UNSIGNED_NAMES,
)

PAIRS = [(left, right) for left in range(3) for right in range(3)]


def test_every_operator_has_every_entry() -> None:
    names = {"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs"}
    assert set(COMPARISON_SIGNS) == set(COMPARISON_TESTS) == set(INVERSE_COMPARISONS) == names
    assert set(MIRRORED_COMPARISONS) == names - set(UNSIGNED_NAMES)


@pytest.mark.parametrize("name", COMPARISON_SIGNS)
def test_an_operator_means_its_sign(name: str) -> None:
    for left, right in PAIRS:
        holds = eval(f"{left} {COMPARISON_SIGNS[name]} {right}")
        assert COMPARISON_TESTS[name](left, right) is holds
        assert COMPARISON_TESTS[INVERSE_COMPARISONS[name]](left, right) is not holds
        mirrored = MIRRORED_COMPARISONS[UNSIGNED_NAMES.get(name, name)]
        assert COMPARISON_TESTS[mirrored](right, left) is holds
