"""Layers from three compilers: regions are exactly what the CPU backend logs, writes are certain.

`benchmarks/analysis/tightness.py` measures the same over all kernels; here a layer that becomes
wider, or whose write is no longer proven, fails.
"""

from __future__ import annotations

import numpy as np
import pytest

from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.access_oracle import compare
from tests.helpers.case_program import case_program
from tests.kernels.cpu import run_case
from tests.kernels.layers import LAYERS, Layer

# Where a token goes is in memory, so nobody can know it from the launch.
BY_DATA = frozenset({"kv_slots_nvcc", "kv_slots_nvrtc", "triton_kv_paged"})


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_regions_of_layers(layer: Layer) -> None:
    run = layer.make()
    program = case_program(layer, run)
    steps = AnalysisManager(program).get(AccessRegions).steps
    for step, log in zip(steps, run_case(layer, run).logs, strict=True):
        assert not step.pins
        for found in compare(program, step, log):
            where = f"{layer.name}: {found.buffer.name}"
            assert intervals.covers(found.may_read, found.read), where
            assert intervals.covers(found.may_write, found.written), where
            assert intervals.covers(found.written, found.must_write), where
            if layer.name in BY_DATA and found.buffer.name == "cache":
                continue
            assert np.array_equal(found.may_read, found.read), where
            assert np.array_equal(found.may_write, found.written), where
            if "atomic" not in layer.name:
                assert np.array_equal(found.must_write, found.written), where


def test_every_class_has_two_compilers() -> None:
    for kind in ("rotary", "transpose", "kv-write", "split-k"):
        layers = [layer for layer in LAYERS if layer.kind == kind]
        assert len(layers) >= 5
        assert {"nvcc", "nvrtc", "triton"} <= {layer.compiler for layer in layers}
