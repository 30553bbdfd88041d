"""Captured steps of language models on the CPU backend: tokens equal those of other programs.

`examples/traces/generated.json` has answers of `generate` of the transformers library (two
decoders) and of a plain loop over PyTorch (the recurrent model), greedy, in f32.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import tessera
from tests.helpers.corpus import ROOT

TRACES = ROOT / "examples" / "traces"
ANSWERS = json.loads((TRACES / "generated.json").read_text("utf-8"))


def planned(name: str, devices: int) -> tessera.Plan:
    traces = [f"{TRACES}/{name}_steps_prefill.ptx:1", f"{TRACES}/{name}_steps_decode.ptx:4"]
    gpus, strategy = ("a100,l40s", "kernel") if devices == 2 else ("l40s", "single")
    options = tessera.PlanOptions(
        gpus=gpus, strategy=strategy, slots=2, sequences=2, gap=0.2, seconds=2
    )
    return tessera.plan(traces, options).plan


def check(name: str, devices: int) -> None:
    plan = planned(name, devices)
    used = {step.device for r in plan.replicas for placed in r.traces for step in placed.steps}
    assert len(used) == devices
    cases = ANSWERS[name]
    with tessera.Engine(plan, backend="cpu") as engine:
        given = [engine.submit(c["prompt"], max_tokens=len(c["answer"])) for c in cases]
        assert [one_answer.result(300) for one_answer in given] == [c["answer"] for c in cases]
        alone = sum(len(case["answer"]) - 1 for case in cases)
        assert 0 < engine.steps_done[f"{name}_steps_decode"] < alone


def test_a_decoder_with_a_cache_in_rows_on_two_devices() -> None:
    check("llama", 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "devices"),
    [("llama", 1), ("gpt", 1), ("gpt", 2), ("recurrent", 1), ("recurrent", 2)],
)
def test_other_families_and_one_device(name: str, devices: int) -> None:
    check(name, devices)


@pytest.mark.slow
def test_states_are_read_set_and_reset_by_row() -> None:
    with tessera.Runtime(planned("recurrent", 2), backend="cpu") as runtime:
        tokens = np.array([[3], [5], [7]])
        inputs = {"tokens": tokens, "lengths": np.ones(3, np.int64)}
        trace = "recurrent_steps_decode"
        first = runtime.submit(inputs, sequence=1, trace=trace).result()["next"].copy()
        states = runtime.states(1)
        (name,) = states
        assert np.abs(states[name]).sum(axis=(1, 2, 3)).all()
        runtime.reset_states(1, rows=1)
        assert not runtime.states(1)[name][1].any()
        assert np.array_equal(runtime.states(1)[name][[0, 2]], states[name][[0, 2]])
        runtime.reset_states(1)
        again = runtime.submit(inputs, sequence=1, trace=trace).result()["next"]
        assert np.array_equal(again, first)
        assert np.array_equal(runtime.states(1)[name], states[name])
        runtime.set_states({name: states[name]}, 0)
        moved, kept = (
            runtime.submit(inputs, sequence=n, trace=trace).result()["next"] for n in (0, 1)
        )
        assert np.array_equal(moved, kept)
