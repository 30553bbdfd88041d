"""Captured traces with random legal cuts, shares and twins on several devices, to the byte.

`benchmarks.running.divided_models` does the same for all traces of the examples and the zoo, and
for models of the transformers library.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.helpers.corpus import ROOT
from tests.helpers.divided import divided_trace
from tests.helpers.share import share

TRACES = ROOT / "examples" / "traces"


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("mlp", share(range(3))),
        ("llama_decode_library", share(range(2))),
        ("recurrent_steps_decode", range(1)),
    ],
)
def test_divided_traces_leave_the_bytes_of_one_device(name: str, seeds: Sequence[int]) -> None:
    trace = divided_trace(TRACES / f"{name}.ptx", requests=2)
    trials = [trace.trial(seed, "abc"[: 2 + seed % 2]) for seed in seeds]
    assert sum(len(trial.division.cuts) + len(trial.division.twins) for trial in trials)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("*.ptx")))
def test_every_example_divided_many_times(name: str) -> None:
    trace = divided_trace(TRACES / f"{name}.ptx", requests=2)
    for seed in range(34):
        trace.trial(seed, "abc"[: 2 + seed % 2])
