"""Buffers that hold device addresses, in the programs that `--emit cuda-python` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import Ask, expected, model_of
from tests.helpers.traces import COPY, trace
from tests.unit.backend.cpu_plan.test_pointer_tables import VIA
from tests.unit.backend.cuda.test_emit_python import REQUESTS, run_files

TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}


@pytest.mark.parametrize("role", ["temp", "weight", "input", "state", "output"])
@pytest.mark.parametrize(("target", "placement"), [("y", "aaba"), ("s", "abab")])
def test_tables(
    role: str, target: str, placement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A state whose words point to what is private to a request is written by every request."""
    buffers = f"""
    buffer x bytes=64 role=input dtype=u32 shape=16
    buffer h bytes=64 role=temp dtype=u32 shape=16
    buffer g bytes=64 role=temp dtype=u32 shape=16
    buffer table bytes=32 role={role} dtype=u64 shape=4
    buffer s bytes=64 role=state dtype=u32 shape=16
    buffer y bytes=64 role=output dtype=u32 shape=16
    buffer z bytes=64 role=output dtype=u32 shape=16
    pointers table @{{0:h}}
    pointers table @{{8:{target}}}
    """
    steps = f"""
    launch m.copy grid=1,1,1 block=16,1,1 args=[g, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[h, g, u32:16]
    launch m.via grid=1,1,1 block=16,1,1 args=[table]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, {target}, u32:16]
    """
    # More lanes than slots, so that a lane does not keep its slot.
    model = model_of([trace(buffers, COPY + VIA, steps)], [list(placement)], slots=2, lanes=3)
    found = run_files(model, TARGETS, FakeCuda(seed=1), tmp_path, monkeypatch)
    wanted = expected(model, [Ask(number, 0, number % 3) for number in range(REQUESTS)])
    for number, want in enumerate(wanted):
        for name, content in want.outputs.items():
            np.testing.assert_array_equal(found[f"{name}@{number}"], content)
