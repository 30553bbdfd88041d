"""Tokens drawn in the steps of a model folder, by the engine and over HTTP, on the CPU backend.

They are those that the rules of the transformers library leave of its own logits, drawn by the
numbers of the request's seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.folder.text_config import read_defaults
from tessera.driver.serve.sampling import Sampling
from tests.helpers.small_site import TRACES, small_site
from tests.helpers.toy_site import Site

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("triton", reason="needs Triton")
pytest.importorskip("starlette", reason="needs Starlette")
pytest.importorskip("uvicorn", reason="needs uvicorn")

TOLD = {"temperature": 1.3, "top_k": 20, "top_p": 0.8, "min_p": 0.01}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("told")
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, **TOLD}))
    with small_site(read_defaults(folder), "mixed_drawing_8") as made:
        yield made


@pytest.fixture(scope="module")
def model() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(TRACES / "mixed_model").eval()


def wanted(model: Any, prompt: list[int], count: int, own: Sampling) -> list[int]:
    """The answer by the library's logits and rules, and the numbers of the seed."""
    from tessera.frontend.capture.mixed.drawing import gumbel

    steps = [transformers.TemperatureLogitsWarper(float(own.temperature))]
    steps += [transformers.TopKLogitsWarper(own.top_k)] if own.top_k else []
    steps += [transformers.TopPLogitsWarper(own.top_p)] if own.top_p < 1 else []
    steps += [transformers.MinPLogitsWarper(own.min_p)] if own.min_p else []
    numbers, made = own.draws(), list(prompt)
    for _ in range(count):
        with torch.no_grad():
            scores = model(torch.tensor([made])).logits[:, -1].double()
        for step in steps:
            scores = step(torch.tensor([made]), scores)
        uniform = torch.tensor(numbers.random(dtype=np.float32))
        noise = gumbel((uniform * (1 << 24)).long(), torch.arange(scores.shape[-1]))
        made.append(int((scores[0] + noise).argmax()))
    return made[len(prompt) :]


LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"top_k": 3},
    {"top_p": 0.5},
    {"min_p": 0.2},
    {"top_k": 9, "top_p": 0.7, "min_p": 0.05},
    {"top_k": 500, "top_p": 0.999},
)


def test_an_answer_is_drawn_from_what_its_limits_leave(site: Site, model: Any) -> None:
    asked = []
    for number, limits in enumerate(LIMITS * 2):
        prompt = [5 + number, 9, 30 - number]
        own = Sampling(temperature=1.5 if number % 2 else 0.9, seed=number, **limits)
        given = site.engine.submit(prompt, max_tokens=8, ignore_end=True, sampling=own)
        asked.append((given, prompt, own))
    greedy = site.engine.submit([4, 5], max_tokens=8, ignore_end=True)
    assert greedy.result(300) == wanted(model, [4, 5], 8, Sampling(temperature=1e-4, seed=0))
    answers = [given.result(300) for given, _, _ in asked]
    assert answers == [wanted(model, prompt, 8, own) for _, prompt, own in asked]


def test_the_generation_config_counts(site: Site, model: Any) -> None:
    body: dict[str, Any] = {"prompt": [7, 8, 9], "max_tokens": 8, "seed": 3, "ignore_eos": True}
    for changed in ({}, {"top_p": 1.0}, {"top_k": 2}, {"temperature": 2.0, "min_p": 0}):
        status, value = site.complete(**body, **changed)
        assert status == 200
        own = Sampling(seed=3, **(TOLD | changed))
        assert value["choices"][0]["token_ids"] == wanted(model, [7, 8, 9], 8, own)


def test_what_the_step_cannot_do_is_refused(site: Site) -> None:
    status, value = site.complete(prompt=[7], presence_penalty=1.0)
    assert (status, "no `presence_penalty`" in value["error"]["message"]) == (400, True)
    with pytest.raises(TesseraError, match=r"TSR5064.*no `logprobs`"):
        site.engine.submit([7], sampling=Sampling(top_k=3, temperature=1.0, chances=0))
