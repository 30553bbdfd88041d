"""Kernels from nvcc that keep pointers and indices in shared memory."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.passes.byte_sets import intervals
from tests.helpers.access_oracle import compare
from tests.helpers.rule_cases import analyse, case_of, check, run_of
from tests.kernels.case import Launch, Run
from tests.kernels.cpu import run_case


def run_once(kernel: str) -> Run:
    buffers = {
        "a": np.arange(1024, dtype=np.float32),
        "b": np.arange(1024, dtype=np.float32),
        "out": np.zeros(1024, dtype=np.float32),
        "idx": np.arange(64, dtype=np.int32),
    }
    return run_of(buffers, Launch(kernel, 2, 64, ["a", "b", "out", "idx"], smem=1024))


@pytest.mark.parametrize("kernel", ["pointers", "reused", "rounds", "permuted", "called"])
def test_regions_are_the_bytes_touched(kernel: str) -> None:
    run = run_once(kernel)
    program, (step,) = analyse("shared", run)
    assert not step.pins
    (log,) = run_case(case_of("shared"), run).logs
    for found in compare(program, step, log):
        assert np.array_equal(found.may_read, found.read), found.buffer.name
        assert np.array_equal(found.may_write, found.written), found.buffer.name
        assert np.array_equal(found.must_write, found.written), found.buffer.name
    check("shared", run)


def test_a_list_that_data_makes() -> None:
    run = run_once("listed")
    program, (step,) = analyse("shared", run)
    assert not step.pins
    found = {one.buffer.name: one for one in compare(program, step, ())}
    assert intervals.pairs(found["a"].may_read) == ((0, 4096),)
    assert intervals.pairs(found["out"].must_write) == ((0, 512),)
    check("shared", run)
