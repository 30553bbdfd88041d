"""Chats and completions over a real engine: chances, JSON, templates, and clients that do harm.

`examples/traces/mixed_generated.json` has what transformers answers with this model, and the
log-probability that it gives every token.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `serve` is not installed")
pytest.importorskip("starlette", reason="the extra `serve` is not installed")
pytest.importorskip("jinja2", reason="the extra `serve` is not installed")

from tessera.driver.serve.completion_requests import GenerationDefaults
from tests.helpers.small_site import END, TRACES, Pieces, small_site
from tests.helpers.toy_site import Site, toy_site

USER = {"role": "user", "content": "the cat"}
EURO = {"type": "json_schema", "json_schema": {"name": "euro", "schema": {"const": "\u20ac"}}}
ORIGIN = "https://example.org"
UNLIKELY_JSON = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 3, "maximum": 9}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    defaults = GenerationDefaults(temperature=0.0, max_new_tokens=3)
    with small_site(defaults, origins=(ORIGIN,)) as made:
        yield made


def chat(site: Site, **body: Any) -> tuple[int, dict[str, Any]]:
    status, _, content = site.ask("POST", "/v1/chat/completions", {"messages": [USER]} | body)
    return status, json.loads(content)


def events(site: Site, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    status, headers, content = site.ask("POST", path, body | {"stream": True})
    assert (status, headers["content-type"][:17]) == (200, "text/event-stream")
    lines = [line[6:] for line in content.decode().split("\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_chances_of_prompts_and_answers_are_those_of_transformers(site: Site) -> None:
    cases = json.loads((TRACES / "mixed_generated.json").read_text("utf-8"))[:3]

    def ask(case: dict[str, Any]) -> dict[str, Any]:
        count = len(case["answer"])
        given = {"prompt": case["prompt"], "max_tokens": count, "echo": True, "logprobs": 3}
        return site.complete(**given)[1]["choices"][0]

    with ThreadPoolExecutor() as pool:
        for case, choice in zip(cases, pool.map(ask, cases), strict=True):
            answer = [token for token in case["answer"] if token != END]
            assert choice["token_ids"] == answer
            told, wanted = choice["logprobs"], case["logprobs"]
            count = len(case["prompt"]) - 1 + len(answer)
            assert told["token_logprobs"][0] is None
            assert told["token_logprobs"][1:] == pytest.approx(wanted[:count], abs=1e-4)
            for log, listed in zip(told["token_logprobs"], told["top_logprobs"], strict=True):
                assert log is None or (log in listed.values() and 3 <= len(listed) <= 4)
            assert choice["text"] == Pieces().decode([*case["prompt"], *answer])


def test_a_chat_is_the_completion_of_its_template(site: Site) -> None:
    listed = site.ask("POST", "/tokenize", {"messages": [USER]})
    tokens = json.loads(listed[2])["tokens"]
    assert Pieces().encode("<user>the cat<model>", special=False) == tokens
    status, told = chat(site, logprobs=True, top_logprobs=2)
    assert status == 200
    plain = site.complete(prompt=tokens, max_tokens=3, logprobs=2)[1]["choices"][0]
    (choice,) = told["choices"]
    assert choice["message"] == {"role": "assistant", "content": plain["text"], "refusal": None}
    assert (choice["token_ids"], choice["finish_reason"]) == (plain["token_ids"], "length")
    content = choice["logprobs"]["content"]
    assert [own["logprob"] for own in content] == plain["logprobs"]["token_logprobs"]
    assert [len(own["top_logprobs"]) for own in content] == [2] * 3
    assert bytes(byte for own in content for byte in own["bytes"]).decode() == plain["text"]
    assert told["usage"] == {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def test_a_stream_of_several_answers_has_each_of_them_whole(site: Site) -> None:
    body = {"messages": [USER], "n": 3, "temperature": 1.0, "seed": 5, "max_tokens": 3}
    body |= {"stream_options": {"include_usage": True}, "logprobs": True}
    seen = events(site, "/v1/chat/completions", body)
    whole = chat(site, **body | {"stream_options": None})[1]["choices"]
    assert [choice["index"] for choice in whole] == [0, 1, 2]
    assert len({tuple(choice["token_ids"]) for choice in whole}) > 1
    assert seen[-1]["choices"] == []
    assert seen[-1]["usage"]["prompt_tokens"] == 7
    for choice in whole:
        parts = [c for event in seen for c in event["choices"] if c["index"] == choice["index"]]
        assert parts[0]["delta"]["role"] == "assistant"
        assert not any("role" in part["delta"] for part in parts[1:])
        text = "".join(part["delta"].get("content", "") for part in parts)
        assert text == choice["message"]["content"]
        assert [token for part in parts for token in part["token_ids"]] == choice["token_ids"]
        told = [own for part in parts if part["logprobs"] for own in part["logprobs"]["content"]]
        assert told == choice["logprobs"]["content"]
        ends = [part["finish_reason"] for part in parts if part["finish_reason"]]
        assert ends == [choice["finish_reason"]]
    again = chat(site, temperature=1.0, seed=6, max_tokens=3)[1]["choices"][0]
    assert again["token_ids"] == whole[1]["token_ids"]  # the second answer has the next seed


def test_answers_follow_a_schema(site: Site) -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": UNLIKELY_JSON}}
    bias = {str(token): -100 for token in (*Pieces().encode(" \n", special=False),)}
    given = {"response_format": form, "n": 3, "temperature": 2.0, "seed": 1, "max_tokens": 24}
    for choice in chat(site, **given, logit_bias=bias)[1]["choices"]:
        assert choice["finish_reason"] == "stop"
        assert 3 <= json.loads(choice["message"]["content"])["a"] <= 9


def test_no_character_is_sent_in_halves(site: Site) -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    seen = events(
        site, "/v1/completions", {"prompt": [3], "response_format": EURO, "max_tokens": 9}
    )
    parts = [choice["text"] for event in seen for choice in event["choices"]]
    assert [part for part in parts if part] == ['"', "\u20ac", '"']
    assert len(parts) >= 5  # each of its tokens is an event


def test_penalties_and_biases_change_what_is_chosen(site: Site) -> None:
    def first(**changes: Any) -> list[int]:
        tokens: list[int] = site.complete(prompt=[3], **changes)[1]["choices"][0]["token_ids"]
        return tokens

    plain = first(max_tokens=1)
    assert first(max_tokens=1, logit_bias={str(plain[0]): -100}) != plain
    assert first(max_tokens=3, logit_bias={"30": 100}) == [30] * 3
    assert {*first(max_tokens=3, logit_bias={"30": 30, "31": 30}, **MUCH)} == {30, 31}


MUCH = {"frequency_penalty": 2.0}
PICTURE = [{"type": "image_url", "image_url": {"url": "data:,"}}]


@pytest.mark.parametrize(
    ("body", "code", "field", "words"),
    [
        ({"messages": []}, "invalid_value", "messages", "list of messages"),
        ({"messages": [5]}, "invalid_value", "messages[0]", "an object"),
        ({"messages": [{"role": "king", "content": "a"}]}, "invalid_value", None, "one of: system"),
        ({"messages": [{"role": "user"}]}, "invalid_value", "messages[0].content", "must be text"),
        ({"messages": [{"role": "user", "content": PICTURE}]}, "invalid_value", None, "image_url"),
        ({"messages": [USER, {"role": "tool", "content": "1"}]}, "unsupported_value", None, "tool"),
        ({"messages": [{"role": "user", "content": "no"}]}, "invalid_value", None, "told not to"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "invalid_value", None, "text"),
        ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools", "no tool calls"),
        ({"tool_choice": "auto"}, "unsupported_parameter", "tool_choice", "no tool calls"),
        ({"functions": [1]}, "unsupported_parameter", "functions", "no tool calls"),
        ({"audio": {}}, "unknown_parameter", "audio", "not known"),
        ({"top_logprobs": 0}, "invalid_value", "top_logprobs", "needs `logprobs`"),
        ({"top_logprobs": 21, "logprobs": True}, "invalid_value", "top_logprobs", "from 0 to 20"),
        ({"logprobs": 3}, "invalid_value", "logprobs", "true or false"),
        ({"n": 10**9}, "invalid_value", "n", "from 1 to 128"),
        ({"max_tokens": 999}, "context_length_exceeded", None, "does not fit"),
        ({"messages": [USER] * 9}, "context_length_exceeded", None, "does not fit"),
        ({"chat_template_kwargs": {"messages": 1}}, "invalid_value", None, "must not have"),
        ({"response_format": {"type": "json_schema"}}, "invalid_value", None, "must be an object"),
        ({"model": "gpt-5"}, "model_not_found", "model", "does not exist"),
    ],
)
def test_what_a_chat_cannot_have_is_one_error(
    site: Site, body: dict[str, Any], code: str, field: str | None, words: str
) -> None:
    status, told = chat(site, **body)
    assert (status, told["error"]["code"]) == (404 if "model" in body else 400, code)
    assert words in told["error"]["message"]
    assert field in (None, told["error"]["param"])


@pytest.mark.parametrize("schema", [{"enum": []}, {"type": "x"}, {"not": {}}, {"$ref": "#/a"}])
def test_a_schema_that_nothing_satisfies_is_one_error(site: Site, schema: object) -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    status, told = chat(site, response_format=form)
    assert (status, told["error"]["param"]) == (400, "response_format")


def test_a_schema_that_comes_to_no_end_ends_its_own_answer(site: Site) -> None:
    pytest.importorskip("llguidance", reason="the extra `grammar` is not installed")
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": "\u00df"}}}
    status, told = chat(site, response_format=form)  # no token of this model is in that letter
    assert (status, told["error"]["code"]) == (400, "invalid_value")
    assert chat(site)[0] == 200


def test_one_who_leaves_in_the_middle_gives_all_rows_back(site: Site) -> None:
    body = json.dumps({"messages": [USER], "n": 3, "max_tokens": 26, "stream": True})
    for _ in range(2):
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=300)
        connection.request("POST", "/v1/chat/completions", body)
        connection.getresponse().read(10)
        connection.close()
    for _ in range(600):
        if not site.engine.running and not site.engine.waiting:
            break
        time.sleep(0.05)
    assert site.engine.blocks == (0, 19)
    assert chat(site)[0] == 200


def test_ids_origins_and_readiness(site: Site) -> None:
    def ask(method: str, path: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=300)
        connection.request(method, path, headers=headers)
        reply = connection.getresponse()
        reply.read()
        connection.close()
        return reply

    assert ask("GET", "/live", **{"X-Request-Id": "mine-7"}).headers["x-request-id"] == "mine-7"
    for given in ("", "a b", "x" * 129, "\u00e9"):
        told = ask("GET", "/nothing", **{"X-Request-Id": given.encode("latin-1").decode("latin-1")})
        assert told.headers["x-request-id"].startswith("req_")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "a"}
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://other.org", None)):
        for told in (ask("OPTIONS", "/v1/chat/completions", Origin=origin, **asked),
                     ask("GET", "/ready", Origin=origin)):  # fmt: skip
            assert told.headers["access-control-allow-origin"] == allowed
    text = site.ask("GET", "/metrics")[2].decode()
    assert "\ntessera_kv_blocks 19\n" in text
    assert "\ntessera_ready 1\n" in text


def test_a_server_that_takes_no_prompts_lives_and_is_not_ready() -> None:
    with toy_site(logits=False) as site:
        assert [site.ask("GET", path)[0] for path in ("/live", "/ready", "/health")] == [200] * 3
        status, told = site.complete(prompt=[1], logprobs=1)
        assert (status, told["error"]["code"]) == (400, "invalid_value")
        assert "`logprobs`" in told["error"]["message"]
        assert "--logits" in told["error"]["message"]
        site.engine.close()
        statuses = [site.ask("GET", path)[0] for path in ("/live", "/ready", "/health")]
        assert statuses == [200, 503, 503]
