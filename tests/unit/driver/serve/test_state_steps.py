"""Steps of a model with a state space beside attention, on the CPU backend.

`examples/traces/state_generated.json` has answers of `generate` of the transformers library to
prompts for the model folder beside it, greedy, in f32 (`examples/models/mixed_steps.py`).
"""

from __future__ import annotations

import json
from typing import Any

import pytest

import tessera
from tests.helpers.corpus import ROOT
from tests.unit.driver.serve.test_prefixes import ChainedRuntime

TRACES = ROOT / "examples" / "traces"


def test_tokens_are_those_of_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three rows and room for two sequences; they join and leave, and one is given up."""
    options = tessera.PlanOptions(gpus="l40s", strategy="single", slots=1, sequences=1)
    plan = tessera.plan([f"{TRACES}/state_drawing_3.ptx"], options).plan
    monkeypatch.setattr("tessera.driver.serve.engine.Runtime", ChainedRuntime)
    cases = json.loads((TRACES / "state_generated.json").read_text("utf-8"))
    wanted = [[token for token in case["answer"] if token != 2] for case in cases]
    told: Any = {"end": [2], "block": 32}
    with tessera.Engine(
        plan, backend="cpu", weights=TRACES / "state_model", steps=told, isolated=False
    ) as engine:
        assert (engine.sizes.blocks, engine.sizes.prefill, engine.model.resets) == (2, (), False)
        drawn = []
        for some in (len(cases), 1):
            lost = engine.submit([9, 8, 7, 6], max_tokens=20, ignore_end=True)
            lost.listen(lambda answer: answer.cancel() if len(answer.tokens) > 2 else None)
            given = [engine.submit(c["prompt"], max_tokens=len(c["answer"])) for c in cases[:some]]
            warm = engine.submit([5, 6], max_tokens=9, temperature=0.8, top_p=0.9, seed=3)
            assert [answer.result(300) for answer in given] == wanted[:some]
            drawn.append(warm.result(300))
            assert lost.ended == "cancelled"
        assert drawn[0] == drawn[1]
        assert (engine.reused_tokens, engine.preempted, engine.blocks) == (0, 0, (0, 2))
        assert engine.steps_ahead > sum(engine.steps_done.values()) / 4
