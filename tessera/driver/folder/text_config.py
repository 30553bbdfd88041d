"""What a model folder says about text: its chat template, special tokens, and generation config.

In: a folder with `tokenizer_config.json`, `chat_template.jinja` or `generation_config.json`; each
may be missing. Out: `ChatFormat` and `GenerationDefaults`. Files are read as JSON and text only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from tessera.driver.folder.model_folder import wrong_folder
from tessera.driver.serve.chat_template import ChatFormat
from tessera.driver.serve.completion_requests import GenerationDefaults
from tessera.frontend.text.readfile import read_source

GENERATION = "generation_config.json"
_TOKENIZER = "tokenizer_config.json"
_TEMPLATES = ("chat_template.jinja", "chat_template.json")


def read_chat_format(folder: Path) -> ChatFormat | None:
    """The chat template of a folder with its special tokens; None if it has no template."""
    config = read_table(folder / _TOKENIZER)
    text, table = (folder / name for name in _TEMPLATES)
    given = config.get("chat_template")
    if text.is_file():
        given = read_source(str(text)).text
    elif table.is_file():
        given = read_table(table).get("chat_template")
    if isinstance(given, list):  # several, by name
        named = {own.get("name"): own.get("template") for own in given if isinstance(own, Mapping)}
        given = named.get("default")
    if given is None:
        return None
    if not isinstance(given, str):
        raise wrong_folder(f"the chat template of `{folder}` is no text")
    tokens = {}
    for name, value in config.items():
        own = value.get("content") if isinstance(value, Mapping) else value
        if name.endswith("_token") and isinstance(own, str):
            tokens[name] = own
    return ChatFormat(template=given, tokens=tokens)


def read_defaults(folder: Path) -> GenerationDefaults:
    """What the generation config of a folder says of requests that leave it open."""
    values = read_table(folder / GENERATION)

    def told(name: str, default: float, least: float, most: float) -> float:
        value = default if values.get(name) is None else values[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= cast("float", value) <= most:
            file = folder / GENERATION
            raise wrong_folder(f"`{name}` of `{file}` must be from {least:g} to {most:g}")
        return cast("float", value)

    is_greedy = values.get("do_sample") is False
    return GenerationDefaults(
        temperature=0.0 if is_greedy else told("temperature", 1.0, 0, 100),
        top_p=told("top_p", 1.0, 1e-6, 1),
        top_k=int(told("top_k", 0, 0, 1 << 31)),
        min_p=told("min_p", 0.0, 0, 1),
        repetition_penalty=told("repetition_penalty", 1.0, 0.01, 100),
        max_new_tokens=int(told("max_new_tokens", 0, 0, 1 << 31)) or None,
    )


def read_table(file: Path) -> Mapping[str, object]:
    """A file of JSON that holds an object; empty if it is not there."""
    if not file.is_file():
        return {}
    try:
        values = json.loads(read_source(str(file)).text)
    except (ValueError, RecursionError) as problem:
        raise wrong_folder(f"`{file}` is not JSON: {problem}") from None
    if not isinstance(values, dict):
        raise wrong_folder(f"`{file}` holds no object")
    return values
