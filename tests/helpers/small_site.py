"""A server over the small model folder of the examples, on the CPU backend, with text made by hand.

Its 64 tokens are bytes and a few words: every character of JSON that is needed is among them, and
the three bytes of a euro sign are three tokens. Token 2 ends answers, as the folder says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tessera
from tessera.driver.serve.chat_template import ChatFormat, ChatTemplate
from tessera.driver.serve.completion_requests import GenerationDefaults
from tessera.driver.serve.engine import Engine
from tessera.driver.serve.metrics import Metrics
from tessera.driver.serve.server import CompletionServer, ServerOptions, text_model
from tests.helpers.corpus import ROOT
from tests.helpers.toy_site import Site, serving

TRACES = ROOT / "examples" / "traces"
END = 2
PIECES = [
    *(b"<pad>", b"<user>", b"<end>", b"<model>"),
    *(bytes([byte]) for byte in "€".encode()),
    *(bytes([byte]) for byte in b' \n{}[]":,-.0123456789abcdefghijklmnopqrstuvwxyz'),
    *(b"true", b"false", b"null", b"the", b"and", b" a", b"\xc3", b"\xa9"),
]
PIECES += [b"word%d" % number for number in range(64 - len(PIECES))]
TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role == 'user' %}<user>{% else %}<model>{% endif %}{{ message.content }}"
    "{%- endfor %}"
    "{%- if messages[0].content == 'no' %}{{ raise_exception('I was told not to') }}{% endif %}"
    "{%- if messages[0].content == 'more' %}"
    "{%- for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}{% endif %}"
    "{%- if add_generation_prompt %}{{ start_token }}{% endif %}"
)


class Pieces:
    """The longest piece that fits comes first; special tokens are no text."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        left, tokens = text.encode(), [3] if special else []
        while left:
            fits = [n for n, piece in enumerate(PIECES) if left.startswith(piece)]
            tokens.append(max(fits, key=lambda number: len(PIECES[number]), default=0))
            left = left[len(PIECES[tokens[-1]]) if fits else 1 :]
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        return b"".join(PIECES[token] for token in tokens if token > 3).decode(errors="replace")

    def piece(self, token: int) -> bytes:
        return PIECES[token]

    def special_tokens(self) -> Collection[int]:
        return (0, 1, 2, 3)


@contextmanager
def small_engine(step: str = "mixed_steps_8") -> Iterator[Engine]:
    """An engine over the folder, with 3 rows and a context of 32 tokens."""
    options = tessera.PlanOptions(gpus="l40s", strategy="single", slots=1, sequences=1)
    plan = tessera.plan([f"{TRACES}/{step}.ptx"], options).plan
    weights = TRACES / "mixed_model"
    with Engine(
        plan, backend="cpu", weights=weights, steps={"end": [END]}, max_waiting=400
    ) as engine:
        yield engine


@contextmanager
def small_site(
    defaults: GenerationDefaults | None = None, step: str = "mixed_steps_8", **options: Any
) -> Iterator[Site]:
    """A site over such an engine."""
    template = ChatTemplate(ChatFormat(template=TEMPLATE, tokens={"start_token": "<model>"}))
    try:
        with small_engine(step) as engine:
            served = text_model(engine, "small", Pieces(), template, defaults)
            server = CompletionServer(engine, ServerOptions(**options), served, Metrics())
            with serving(server, engine) as made:
                yield made
    finally:
        template.close()
