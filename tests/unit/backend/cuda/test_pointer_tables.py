"""Buffers that hold device addresses, on the CUDA backend."""

from __future__ import annotations

import pytest

from tessera.backend.cuda.api import Driver
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.service import BackendOptions
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import Ask, assert_equal, expected, model_of, serve
from tests.helpers.table_traces import table_trace
from tests.helpers.traces import trace
from tests.helpers.word_traces import swap_trace
from tests.unit.driver.run.test_verify import STORE, STORE_BUFFERS

TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize("target", ["y", "s"])
@pytest.mark.parametrize("placement", ["aaba", "abab"])
def test_tables(role: str, target: str, placement: str) -> None:
    model = model_of([table_trace(role, target)], [list(placement)], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(4)]
    options = BackendOptions(targets=TARGETS, timeline=False)
    graphs = CudaOptions(graphs=placement == "abab")
    backend = CudaBackend(model, options, cuda=graphs, driver=Driver(FakeCuda(seed=1)))
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)


@pytest.mark.parametrize("target", ["t+512", "s+8"])
def test_words_of_states_that_steps_overwrite(target: str) -> None:
    """They read as what they point at, as on one device."""
    steps = f"""
    memset t bytes=1024 value=1
    launch m.store grid=1,1,1 block=1,1,1 args=[s, {target}]
    memcpy y t bytes=64
    """
    model = model_of([trace(STORE_BUFFERS, STORE, steps)], [["a", "a", "b"]], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(4)]
    options = BackendOptions(targets=TARGETS, timeline=False)
    backend = CudaBackend(model, options, driver=Driver(FakeCuda(seed=1)))
    done, states = serve(backend, model, asks)
    assert states[0]["s"][:16].any()
    assert_equal(model, asks, expected(model, asks), done, states)


@pytest.mark.parametrize("role", ["state", "temp"])
@pytest.mark.parametrize("graphs", [True, False])
def test_states_carry_addresses_that_a_step_overwrites(role: str, graphs: bool) -> None:
    model = model_of([swap_trace(role)], [["a", "a", "b"]], slots=2, lanes=2)
    asks = [Ask(n, lane=n % 2) for n in range(6)]
    options = BackendOptions(targets=TARGETS, timeline=False)
    driver = Driver(FakeCuda(seed=1))
    backend = CudaBackend(model, options, cuda=CudaOptions(graphs=graphs), driver=driver)
    done, states = serve(backend, model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
