"""What clients of OpenAI expect of a server: models, codes, keys, ends, ids and draws."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tessera.driver.serve.engine import Engine
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.sampling import Sampling
from tessera.driver.serve.server import CompletionServer, ServerOptions, text_model
from tests.helpers.toy_runtime import CONTEXT, POISON, ToyRuntime

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from tests.helpers.toy_site import KEY, Letters, Site, serving, toy_site


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with toy_site(max_waiting=64, logits=True) as made:
        yield made


def test_a_model_is_listed_and_found_by_its_name(site: Site) -> None:
    (listed,) = json.loads(site.ask("GET", "/v1/models")[2])["data"]
    status, _, content = site.ask("GET", "/v1/models/toy")
    assert (status, json.loads(content)) == (200, listed)
    assert listed["id"] == "toy"
    assert type(listed["created"]) is int
    assert site.ask("GET", "/v1/models/toy", key=None)[0] == 401


@pytest.mark.parametrize("name", ["gpt-4", "", "org/name", "Toy", "\ud800"])
def test_another_model_does_not_exist(site: Site, name: str) -> None:
    status, value = site.complete(prompt=[1], model=name, max_tokens=1)
    assert (status, value["error"]["code"], value["error"]["param"]) == (
        404,
        "model_not_found",
        "model",
    )
    if name.isascii():
        status, _, content = site.ask("GET", f"/v1/models/{name}")
        assert (status, json.loads(content)["error"]["code"]) == (404, "model_not_found")


def test_the_model_may_be_named_or_left_out(site: Site) -> None:
    for given in ({}, {"model": None}, {"model": "toy"}):
        status, value = site.complete(prompt=[1], max_tokens=1, temperature=0, **given)
        assert (status, value["model"]) == (200, "toy")
        assert type(value["created"]) is int


@pytest.mark.parametrize(
    ("body", "status", "code", "field"),
    [
        (b"{", 400, "invalid_request", None),
        ({}, 400, "missing_required_parameter", "prompt"),
        ({"prompt": [1], "shape": 2}, 400, "unknown_parameter", "shape"),
        ({"prompt": [1], "model": 5}, 400, "invalid_value", "model"),
        ({"prompt": [1], "temperature": "hot"}, 400, "invalid_value", "temperature"),
        ({"prompt": [1] * 15, "max_tokens": 9}, 400, "context_length_exceeded", None),
        ({"prompt": [200]}, 400, "invalid_value", None),
        ({"prompt": [1], "logprobs": True}, 400, "invalid_value", "logprobs"),
        ({"prompt": [1], "logprobs": 21}, 400, "invalid_value", "logprobs"),
        ({"prompt": [1], "n": True}, 400, "invalid_value", "n"),
        ({"prompt": [1], "n": 129}, 400, "invalid_value", "n"),
        ({"prompt": [[1]] * 65, "n": 2}, 400, "invalid_value", "n"),
        ({"prompt": [1], "best_of": 2}, 400, "unsupported_value", "best_of"),
        ({"prompt": [1], "suffix": "a"}, 400, "unsupported_value", "suffix"),
        ({"prompt": [1], "echo": 0}, 400, "invalid_value", "echo"),
        ({"prompt": [1], "presence_penalty": False}, 400, "invalid_value", "presence_penalty"),
        ({"prompt": [1], "presence_penalty": -2.1}, 400, "invalid_value", "presence_penalty"),
        (b'{"prompt": [1], "frequency_penalty": NaN}', 400, "invalid_value", "frequency_penalty"),
        ({"prompt": [1], "repetition_penalty": 0}, 400, "invalid_value", "repetition_penalty"),
        ({"prompt": [1], "min_p": 1.1}, 400, "invalid_value", "min_p"),
        ({"prompt": [1], "seed": 1 << 63}, 400, "invalid_value", "seed"),
        ({"prompt": [1], "logit_bias": {"50": 1}}, 400, "invalid_value", "logit_bias"),
        ({"prompt": [1], "logit_bias": {"-1": 1}}, 400, "invalid_value", "logit_bias"),
        ({"prompt": [1], "logit_bias": {"1": 101}}, 400, "invalid_value", "logit_bias"),
        ({"prompt": [1], "logit_bias": [1]}, 400, "invalid_value", "logit_bias"),
        ({"prompt": [1], "response_format": "json"}, 400, "invalid_value", "response_format"),
        ({"prompt": [1], "response_format": {"type": "x"}}, 400, "invalid_value", None),
        ({"prompt": [1], "stream_options": {"include_usage": 1}}, 400, "invalid_value", None),
        ({"prompt": [1] * 900}, 413, "request_too_large", None),
        ({"prompt": [3, POISON], "max_tokens": 3, "temperature": 0}, 500, "server_error", None),
    ],
)
def test_errors_have_words_as_codes(
    site: Site, body: object, status: int, code: str, field: str | None
) -> None:
    got, _, content = site.ask("POST", "/v1/completions", body)
    error = json.loads(content)["error"]
    assert (got, error["code"]) == (status, code)
    if field is not None:
        assert error["param"] == field


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "unknown_url"),
        ("GET", "/v1/completions", 405, "method_not_allowed"),
        ("DELETE", "/v1/models/toy", 405, "method_not_allowed"),
    ],
)
def test_paths_have_codes_too(site: Site, method: str, path: str, status: int, code: str) -> None:
    got, _, content = site.ask(method, path)
    assert (got, json.loads(content)["error"]["code"]) == (status, code)


def test_what_asks_for_nothing_is_taken(site: Site) -> None:
    plain = {"logprobs": None, "n": 1, "echo": False, "suffix": "", "presence_penalty": 0.0}
    assert site.complete(prompt=[1], max_tokens=1, temperature=0, **plain)[0] == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_the_scheme_of_a_key_has_no_case(site: Site, scheme: str) -> None:
    assert site.ask("GET", "/v1/models", authorization=f"{scheme} {KEY}")[0] == 200


@pytest.mark.parametrize(
    "header", [KEY, f" {KEY}", f"Basic {KEY}", f"Bearer{KEY}", f"Bearer x{KEY}", "Bearer", "\xe9"]
)
def test_a_key_needs_its_scheme(site: Site, header: str) -> None:
    status, headers, content = site.ask("GET", "/v1/models", authorization=header)
    assert (status, json.loads(content)["error"]["code"]) == (401, "invalid_api_key")
    assert headers["www-authenticate"] == "Bearer"


class Slow(ToyRuntime):
    def _step(self, *given: Any) -> Any:
        time.sleep(0.05)
        return super()._step(*given)


def test_a_missed_deadline_is_no_length() -> None:
    with toy_site(runtime=Slow, deadline_s=0.02) as late:
        for stream in (False, True):
            body = {"prompt": [1], "max_tokens": 15, "temperature": 0, "stream": stream}
            status, _, content = late.ask("POST", "/v1/completions", body)
            assert status == 200
            assert b'"finish_reason":"deadline"' in content
            assert b'"length"' not in content


def test_a_stream_with_usage_has_it_once(site: Site) -> None:
    body = {"prompt": [1], "max_tokens": 3, "temperature": 0, "stream": True}
    body["stream_options"] = {"include_usage": True}
    _, _, content = site.ask("POST", "/v1/completions", body)
    lines = [line[6:] for line in content.decode().splitlines() if line.startswith("data: {")]
    usages = [json.loads(line)["usage"] for line in lines]
    assert usages[-1]["completion_tokens"] == 3
    assert set(usages[:-1]) == {None}


def _drawn(site: Site, prompts: list[list[int]], **more: int) -> tuple[str, list[tuple[int, ...]]]:
    # Of the 40 most likely: the last token of the vocabulary is a fault.
    status, value = site.complete(prompt=prompts, max_tokens=10, top_k=40, temperature=1, **more)
    assert status == 200
    return value["id"], [tuple(choice["token_ids"]) for choice in value["choices"]]


def test_without_a_seed_all_answers_are_drawn_independently(site: Site) -> None:
    replies = [_drawn(site, [[5]] * 6) for _ in range(4)]
    assert len({row for _, rows in replies for row in rows}) == 24
    assert len({name for name, _ in replies}) == 4
    answers = site.engine.generate([[5]] * 6, max_tokens=10, top_k=40, temperature=1.0)
    assert len(set(map(tuple, answers))) == 6


def test_ids_and_draws_do_not_repeat_after_a_restart() -> None:
    seen = []
    for _ in range(2):
        with toy_site() as fresh:
            seen.append(_drawn(fresh, [[5]]))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_with_a_seed_answers_repeat_and_prompts_take_the_seeds_that_follow(site: Site) -> None:
    _, first = _drawn(site, [[5]] * 3, seed=7)
    assert first == _drawn(site, [[5]] * 3, seed=7)[1]
    assert first == [_drawn(site, [[5]], seed=7 + place)[1][0] for place in range(3)]
    wanted = Sampling(temperature=1.0, seed=7)
    assert wanted.draws().random() == wanted.draws().random()
    assert Sampling(temperature=1.0).draws().random() != Sampling().draws().random()


@pytest.mark.parametrize("isolate", [False, True])
def test_keys_share_prefixes_unless_they_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch, isolate: bool
) -> None:
    monkeypatch.setattr("tessera.driver.serve.engine.Runtime", ToyRuntime)
    steps = {"context": CONTEXT, "block": 4}
    with Engine("toy.tsp", steps=steps, rows=2, batches=1, mixed=(2, 8)) as engine:
        options = ServerOptions(keys=("a", "b"), isolate=isolate)
        served = text_model(engine, "toy", Letters())
        with serving(CompletionServer(engine, options, served, Metrics()), engine) as site:
            body = {"prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9], "max_tokens": 2, "temperature": 0}
            reused = []
            for key in ("a", "b", "a"):
                assert site.ask("POST", "/v1/completions", body, key=key)[0] == 200
                reused.append(engine.reused_tokens)
    assert reused == ([0, 0, 8] if isolate else [0, 8, 16])
