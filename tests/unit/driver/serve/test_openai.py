"""The `openai` package's own calls against a server over a real engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openai", reason="the package `openai` is not installed")
pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("jinja2", reason="the extra `serve` is not installed")

import openai

from tests.helpers.small_site import small_site
from tests.unit.driver.serve.test_chat import UNLIKELY_JSON, USER

KEYS = ("first-key", "second-key")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with small_site(keys=KEYS) as site:
        url = f"http://127.0.0.1:{site.port}/v1"
        with openai.OpenAI(api_key=KEYS[1], base_url=url, max_retries=0, timeout=300) as made:
            yield made


def ask(client: Any, **given: Any) -> Any:
    chosen = {"model": "small", "messages": [USER], "temperature": 0, "max_tokens": 3} | given
    return client.chat.completions.create(**chosen)


def test_chats_whole_and_streamed(client: Any) -> None:
    whole = ask(client, n=2, temperature=1, seed=3, logprobs=True, top_logprobs=2)
    parts = {0: "", 1: ""}
    usage = None
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    for event in ask(client, n=2, temperature=1, seed=3, **streamed):
        for choice in event.choices:
            parts[choice.index] += choice.delta.content or ""
        usage = event.usage or usage
    assert [choice.message.content for choice in whole.choices] == list(parts.values())
    assert usage == whole.usage
    for choice in whole.choices:
        assert all(len(own.top_logprobs) == 2 for own in choice.logprobs.content)
        assert choice.finish_reason in ("length", "stop")
    stopped = {"model": "small", "messages": [USER], "temperature": 0, "stop": ["w", "\u20ac"]}
    with client.chat.completions.stream(**stopped) as stream:
        final = stream.get_final_completion()
    plain = ask(client).choices[0].message.content
    assert final.choices[0].message.content == plain[: plain.index("w")] != ""


def test_completions_with_echo_and_logprobs(client: Any) -> None:
    made = client.completions.create(
        model="small", prompt=["the", [3, 5]], max_tokens=2, echo=True, logprobs=1, temperature=0
    )
    assert [choice.text.startswith("the") for choice in made.choices] == [True, False]
    told = made.choices[0].logprobs
    assert len(told.tokens) == len(told.token_logprobs) == len(told.text_offset) == 4
    for log, listed in zip(told.token_logprobs[1:], told.top_logprobs[1:], strict=True):
        assert log in listed.values()


def test_json_by_a_schema(client: Any) -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    form = {"name": "x", "schema": UNLIKELY_JSON, "strict": True}
    made = ask(
        client,
        response_format={"type": "json_schema", "json_schema": form},
        logit_bias={"7": -100, "8": -100},
        max_tokens=12,
    )
    assert 3 <= json.loads(made.choices[0].message.content)["a"] <= 9


def test_errors_are_those_that_the_package_knows(client: Any) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    for given, kind, code in (
        ({"model": "gpt-5"}, openai.NotFoundError, "model_not_found"),
        ({"tools": [tool]}, openai.BadRequestError, "unsupported_parameter"),
        ({"top_logprobs": 21, "logprobs": True}, openai.BadRequestError, "invalid_value"),
        ({"max_tokens": 1000}, openai.BadRequestError, "context_length_exceeded"),
        ({"messages": [{"role": "user", "content": "no"}]}, openai.BadRequestError, None),
    ):
        with pytest.raises(kind) as refusal:
            ask(client, **given)
        assert code in (None, refusal.value.code)
        assert refusal.value.request_id
    with pytest.raises(openai.NotFoundError, match="embeddings are not offered"):
        client.embeddings.create(model="small", input="a")
    with pytest.raises(openai.AuthenticationError):
        ask(client.with_options(api_key="third-key"))
    assert [model.id for model in client.models.list()] == ["small"]
    assert ask(client)._request_id.startswith("req_")
