"""What several draws of places say of one launch: no less than any of them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tessera.passes.footprint.footprint import DRAWS, Footprint, agreed_footprint

STATES: list[dict[str, Any]] = [
    {},
    {"is_coarse": True},
    {"is_coarse": True, "gave_up": True},
]


def agreed(*states: dict[str, Any]) -> Footprint:
    doubt = next(doubt for doubt, draws in DRAWS.items() if draws == len(states))
    made = [
        Footprint(entries=(), unresolved={}, nulls={}, pins={}, doubt=doubt, **state)
        for state in states
    ]
    return agreed_footprint(None, made.__getitem__)  # type: ignore[arg-type]


@pytest.mark.parametrize("states", [*product(STATES, repeat=3)])
def test_the_least_sure_draw_counts(states: tuple[dict[str, Any], ...]) -> None:
    found = agreed(*states)
    assert found.is_coarse == any(state.get("is_coarse") for state in states)
    assert found.gave_up == any(state.get("gave_up") for state in states)
