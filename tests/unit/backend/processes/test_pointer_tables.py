"""Buffers that hold device addresses: each device, slot and lane has its own."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.processes.inline import InlineBackend
from tests.helpers.served import Ask, assert_equal, expected, model_of, serve
from tests.helpers.share import share
from tests.helpers.table_traces import table_trace
from tests.helpers.word_traces import swap_trace, word_trace


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize("target", ["y", "s"])
@pytest.mark.parametrize("placement", ["aaba", "abab", "abba"])
def test_tables(role: str, target: str, placement: str) -> None:
    model = model_of([table_trace(role, target)], [list(placement)], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(4)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)


def test_states_carry_addresses_that_a_step_overwrites() -> None:
    """Requests count in `a` and in `b` by turns: the next one finds what the last one left."""
    model = model_of([swap_trace()], [["a", "a", "b"]], slots=2, lanes=2)
    assert model.lowered.slots == 1
    asks = [Ask(n, lane=n % 2) for n in range(6)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    for lane in range(2):
        first = {name: model.states[lane][name].view(np.uint32)[0] for name in "ab"}
        assert states[lane]["a"].view(np.uint32)[0] == first["a"] + 2
        assert states[lane]["b"].view(np.uint32)[0] == first["b"] + 1


def test_what_is_private_to_a_request_is_put_anew() -> None:
    model = model_of([swap_trace("temp")], [["a", "a", "b"]], slots=2, lanes=1)
    asks = [Ask(n) for n in range(3)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    before = model.states[0]["a"].view(np.uint32)[0]
    assert states[0]["a"].view(np.uint32)[0] == before + 3


@pytest.mark.parametrize("seed", share(range(40)))
def test_random_words(seed: int) -> None:
    """All on one device, where a pinned step has to be: plans and one device agree."""
    program = word_trace(seed)
    count = sum(1 for _ in program.work())
    model = model_of([program], [["a"] * count], slots=2, lanes=2, filled=True)
    asks = [Ask(n, lane=n % 2) for n in range(5)]
    done, states = serve(InlineBackend(model, seed=seed), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
