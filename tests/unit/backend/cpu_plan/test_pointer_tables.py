"""Buffers that hold device addresses: each device, slot and lane has its own."""

from __future__ import annotations

import pytest

from tessera.backend.cpu_plan.inline import InlineBackend
from tests.helpers.served import Ask, assert_equal, expected, model_of, serve
from tests.helpers.table_traces import table_trace


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize("target", ["y", "s"])
@pytest.mark.parametrize("placement", ["aaba", "abab", "abba"])
def test_tables(role: str, target: str, placement: str) -> None:
    model = model_of([table_trace(role, target)], [list(placement)], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(4)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
