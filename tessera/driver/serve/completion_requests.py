"""The bodies of requests for text, checked: completions, and chats by the model's template.

In: bytes, and the `TextModel`. Out: a `CompletionRequest`, or `BadRequest` with a status and a
message for the client. Fields are those of OpenAI. An unknown field that would change an answer is
refused; a field that changes nothing (`user`) is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from tessera.driver.serve.api_errors import BadRequest, ErrorCode
from tessera.driver.serve.chat_template import ChatTemplate
from tessera.driver.serve.grammars import Grammar, GrammarConstraint, Grammars
from tessera.driver.serve.request_fields import (
    Fields,
    is_text,
    is_whole,
    read_fields,
    read_tokens_field,
    shown,
)
from tessera.driver.serve.sampling import MOST_CHANCES, NO_CHANCES, Sampling
from tessera.driver.serve.text import Tokenizing

_SHARED = (
    *("model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "n", "seed", "user"),
    *("stop", "stop_token_ids", "ignore_eos", "stream", "stream_options", "logprobs"),
    *("logit_bias", "presence_penalty", "frequency_penalty", "repetition_penalty"),
    "response_format",
)
_COMPLETION = {*_SHARED, "prompt", "echo", "best_of", "suffix"}
_CHAT = {
    *_SHARED,
    *("messages", "max_completion_tokens", "top_logprobs", "chat_template_kwargs"),
    *("metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "modalities"),
}
_TOOLS = ("tools", "tool_choice", "functions", "function_call", "parallel_tool_calls")
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
MOST_PROMPTS = 128
"""Most answers of a request: prompts times `n`."""
MOST_STOPS = 64
"""Most texts that may end an answer: each is searched for after every token, while others wait."""
_MOST_BIASES = 1024
_SEEDS = 1 << 63
_DRAWN = 1 << 62
"""Seeds that draws know; those of a request are any whole numbers of 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What holds for fields that a request leaves out, by the model's generation config."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int | None = None

    def left_out_of(self, told: GenerationDefaults) -> tuple[str, ...]:
        """The fields that a generation config has set, and that are something else here."""
        plain = GenerationDefaults()
        set_ones = (own.name for own in fields(told) if _differ(own.name, told, plain))
        return tuple(name for name in set_ones if _differ(name, told, self))


def _differ(name: str, one: GenerationDefaults, other: GenerationDefaults) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """The model that requests are read for; without a tokenizer it takes token ids alone.

    `vocabulary` is 0 if it is not known.
    """

    name: str
    tokenizer: Tokenizing | None = None
    template: ChatTemplate | None = None
    grammars: Grammars | None = None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    vocabulary: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """Prompts as tokens, and how to answer each of them `count` times.

    Without `most`, an answer may be as long as the context allows. `echoes`: answers begin with
    their prompt.
    """

    prompts: tuple[tuple[int, ...], ...]
    count: int
    most: int | None
    sampling: Sampling
    stops: tuple[str, ...]
    stop_tokens: tuple[int, ...]
    is_streamed: bool
    wants_usage: bool
    ignores_end: bool
    is_chat: bool = False
    echoes: bool = False
    grammar: Grammar | None = None

    @property
    def reads_prompt(self) -> bool:
        """Whether the chances of the prompt's tokens are wanted."""
        return self.echoes and self.sampling.chances != NO_CHANCES

    def constraint(self) -> GrammarConstraint | None:
        """What one of the answers may consist of; each has its own."""
        return None if self.grammar is None else self.grammar.constraint()


def read_completion(body: bytes, served: TextModel) -> CompletionRequest:
    """The request in the body of a completion."""
    given = read_fields(body)
    check_model(given.get("model", served.name), served.name)
    given.refuse_unknown(_COMPLETION)
    count = _count(given)
    given.refuse_others({"best_of": count, "suffix": ""})
    given.needed("prompt")
    echoes = given.flag("echo")
    is_asked = given.get("logprobs", False) is not False
    chances = given.whole("logprobs", 0, 0, MOST_CHANCES) if is_asked else NO_CHANCES
    prompts = _prompts(given.get("prompt"), served.tokenizer)
    _check_answers(len(prompts) * count)
    most = given.whole("max_tokens", 16, 0 if echoes else 1)
    return _request(given, served, prompts, count=count, most=most, chances=chances, echoes=echoes)


def read_chat(body: bytes, served: TextModel) -> CompletionRequest:
    """The request in the body of a chat."""
    given = read_fields(body)
    check_model(given.get("model", served.name), served.name)
    for key in _TOOLS:
        if given.get(key, []) not in ([], "none"):
            raise BadRequest(
                f"`{key}` is not offered here: this server makes no tool calls",
                code=ErrorCode.UNSUPPORTED_PARAMETER,
                field=key,
            )
    given.refuse_unknown(_CHAT | set(_TOOLS))
    given.refuse_others({"modalities": ["text"]})
    count = _count(given)
    _check_answers(count)
    if "top_logprobs" in given and not given.flag("logprobs"):
        raise BadRequest("`top_logprobs` needs `logprobs` to be true", field="top_logprobs")
    top = given.whole("top_logprobs", 0, 0, MOST_CHANCES)
    key = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    limit = served.defaults.max_new_tokens
    return _request(
        given,
        served,
        (chat_prompt(given, served),),
        count=count,
        most=given.whole(key, 1, 1) if key in given else limit,
        chances=top if given.flag("logprobs") else NO_CHANCES,
        is_chat=True,
    )


def chat_prompt(given: Fields, served: TextModel) -> tuple[int, ...]:
    """The messages of a chat as tokens, by the model's template."""
    messages = _messages(given.needed("messages"))
    if served.template is None or served.tokenizer is None:
        raise BadRequest(
            "the model has no chat template: use POST /v1/completions",
            code=ErrorCode.UNSUPPORTED_VALUE,
            field="messages",
        )
    text = served.template.render(messages, dict(given.part("chat_template_kwargs").items()))
    return tuple(served.tokenizer.encode(text, special=False))


def _request(
    given: Fields,
    served: TextModel,
    prompts: tuple[tuple[int, ...], ...],
    *,
    count: int,
    most: int | None,
    chances: int,
    is_chat: bool = False,
    echoes: bool = False,
) -> CompletionRequest:
    """The fields that completions and chats share."""
    own, tokenizer = served.defaults, served.tokenizer
    sampling = Sampling(
        temperature=given.number("temperature", own.temperature, 0.0, 100.0),
        top_p=given.number("top_p", own.top_p, 1e-6, 1.0),
        top_k=max(given.whole("top_k", own.top_k, -1), 0),
        min_p=given.number("min_p", own.min_p, 0.0, 1.0),
        seed=given.whole("seed", 0, -_SEEDS, _SEEDS - 1) % (_SEEDS >> 1)
        if "seed" in given
        else None,
        presence=given.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency=given.number("frequency_penalty", 0.0, -2.0, 2.0),
        repetition=given.number("repetition_penalty", own.repetition_penalty, 0.01, 100.0),
        bias=_biases(given.part("logit_bias"), served.vocabulary),
        chances=chances,
    )
    return CompletionRequest(
        prompts=prompts,
        count=count,
        most=most,
        sampling=sampling,
        stops=_stops(given.get("stop", ()), tokenizer),
        stop_tokens=read_tokens_field(given.get("stop_token_ids", []), "stop_token_ids"),
        is_streamed=given.flag("stream"),
        wants_usage=given.part("stream_options").flag("include_usage"),
        ignores_end=given.flag("ignore_eos"),
        is_chat=is_chat,
        echoes=echoes,
        grammar=_grammar(given.part("response_format"), served),
    )


def check_model(given: object, served: str) -> None:
    """Raise if the requested model is not the one that is served."""
    if not isinstance(given, str):
        raise BadRequest("`model` must be a text", field="model")
    if given != served:
        raise BadRequest(
            f"the model `{shown(given)}` does not exist: this server has `{served}`",
            code=ErrorCode.MODEL_NOT_FOUND,
            field="model",
        )


def _count(given: Fields) -> int:
    return given.whole("n", 1, 1, MOST_PROMPTS)


def _check_answers(answers: int) -> None:
    if answers > MOST_PROMPTS:
        message = f"prompts times `n` must be at most {MOST_PROMPTS} answers, not {answers}"
        raise BadRequest(message, field="n")


def _prompts(given: object, tokenizer: Tokenizing | None) -> tuple[tuple[int, ...], ...]:
    listed = given if isinstance(given, list) else [given]
    if listed and all(is_whole(token) for token in listed):
        return (read_tokens_field(listed, "prompt"),)
    if not 0 < len(listed) <= MOST_PROMPTS:
        raise BadRequest(f"`prompt` must have 1 to {MOST_PROMPTS} prompts", field="prompt")
    return tuple(read_prompt(prompt, tokenizer) for prompt in listed)


def read_prompt(
    given: object, tokenizer: Tokenizing | None, *, special: bool = True
) -> tuple[int, ...]:
    """A prompt as tokens: text, or token ids."""
    if not isinstance(given, str):
        return read_tokens_field(given, "prompt")
    if tokenizer is None:
        raise BadRequest("this server has no tokenizer: `prompt` must be token ids", field="prompt")
    if not is_text(given):
        raise BadRequest("`prompt` has half of a letter", field="prompt")
    return tuple(tokenizer.encode(given, special=special))


def _messages(given: object) -> list[dict[str, object]]:
    if not isinstance(given, list) or not given:
        raise BadRequest("`messages` must be a list of messages", field="messages")
    return [_message(f"messages[{place}]", message) for place, message in enumerate(given)]


def _message(place: str, given: object) -> dict[str, object]:
    if not isinstance(given, Mapping):
        raise BadRequest(f"`{place}` must be an object", field=place)
    own = Fields(given)
    role = own.get("role")
    if role in ("tool", "function") or "tool_calls" in own or "function_call" in own:
        raise BadRequest(
            f"`{place}` is of a tool call, and this server makes none",
            code=ErrorCode.UNSUPPORTED_VALUE,
            field=place,
        )
    if not isinstance(role, str) or role not in _ROLES:
        raise BadRequest(f"`{place}.role` must be one of: {', '.join(_ROLES)}", field=place)
    made: dict[str, object] = {"role": _ROLES[role], "content": _content(place, own.get("content"))}
    if is_text(own.get("name")):
        made["name"] = own.get("name")
    return made


def _content(place: str, given: object) -> str:
    """The text of a message; parts of it are joined by lines."""
    parts = given if isinstance(given, list) and given else [{"type": "text", "text": given}]
    texts = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        if kind != "text" or not is_text(text):
            said = f", not `{shown(kind)}`" if isinstance(kind, str) and kind != "text" else ""
            raise BadRequest(f"`{place}.content` must be text{said}", field=f"{place}.content")
        texts.append(cast("str", text))
    return "\n".join(texts)


def _stops(given: object, tokenizer: Tokenizing | None) -> tuple[str, ...]:
    listed = list(given) if isinstance(given, list | tuple) else [given]
    if not all(is_text(stop) and stop for stop in listed):
        raise BadRequest("`stop` must be a text or texts", field="stop")
    if len(listed) > MOST_STOPS:
        raise BadRequest(f"`stop` must have at most {MOST_STOPS} texts", field="stop")
    if listed and tokenizer is None:
        raise BadRequest("this server has no tokenizer: use `stop_token_ids`", field="stop")
    return tuple(cast("list[str]", listed))


def _biases(given: Fields, vocabulary: int) -> tuple[tuple[int, float], ...]:
    biases = []
    for key, _ in given.items():
        if not (key.isascii() and key.isdecimal() and len(key) < 10):
            raise BadRequest(f"`logit_bias` names no token: `{shown(key)}`", field="logit_bias")
        if vocabulary and int(key) >= vocabulary:
            message = f"`logit_bias` names token {key}, and the vocabulary has {vocabulary}"
            raise BadRequest(message, field="logit_bias")
        try:
            biases.append((int(key), given.number(key, 0.0, -100.0, 100.0)))
        except BadRequest:
            message = "`logit_bias` must have numbers from -100 to 100"
            raise BadRequest(message, field="logit_bias") from None
    if len(biases) > _MOST_BIASES:
        message = f"`logit_bias` must have at most {_MOST_BIASES} tokens"
        raise BadRequest(message, field="logit_bias")
    return tuple(biases)


def _grammar(given: Fields, served: TextModel) -> Grammar | None:
    """The grammar of a `response_format`; None for text."""
    kind = given.get("type", "text")
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema"):
        message = "`response_format.type` must be `text`, `json_object` or `json_schema`"
        raise BadRequest(message, field="response_format")
    schema: object = {"type": "object"}
    if kind == "json_schema":
        schema = given.part("json_schema").get("schema")
        if not isinstance(schema, Mapping):
            message = "`response_format.json_schema.schema` must be an object"
            raise BadRequest(message, field="response_format")
    if served.grammars is None:
        message = "this server has no tokenizer, which `response_format` needs"
        raise BadRequest(message, code=ErrorCode.UNSUPPORTED_VALUE, field="response_format")
    return served.grammars.of_schema(cast("Mapping[str, object]", schema))
