"""Buffers that hold device addresses, in the programs that `--emit cuda-python` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import Ask, expected, model_of
from tests.helpers.table_traces import table_trace
from tests.helpers.word_traces import swap_trace
from tests.unit.backend.cuda.test_emit_python import REQUESTS, run_files

TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize(("target", "placement"), [("y", "aaba"), ("s", "abab")])
def test_tables(
    role: str, target: str, placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state whose words point to what is private to a request is written by every request."""
    # More lanes than slots, so that a lane does not keep its slot.
    model = model_of([table_trace(role, target, records=2)], [list(placement)], slots=2, lanes=3)
    found = run_files(model, TARGETS, FakeCuda(seed=1), tmp_path, monkeypatch)
    wanted = expected(model, [Ask(number, 0, number % 3) for number in range(REQUESTS)])
    for number, want in enumerate(wanted):
        for name, content in want.outputs.items():
            np.testing.assert_array_equal(found[f"{name}@{number}"], content)


@pytest.mark.parametrize("role", ["state", "temp"])
def test_states_carry_addresses_that_a_step_overwrites(
    role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of([swap_trace(role)], [["a", "a", "b"]], slots=2, lanes=1)
    found = run_files(model, TARGETS, FakeCuda(seed=1), tmp_path, monkeypatch)
    wanted = expected(model, [Ask(number) for number in range(REQUESTS)])
    for number, want in enumerate(wanted):
        np.testing.assert_array_equal(found[f"y@{number}"], want.outputs["y"])
