"""Text and tokens: a tokenizer file, growing texts, and texts that stop an answer.

In: a file of the `tokenizers` package. Out: tokens of prompts, text of answers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from tessera.diagnostics import TesseraError

_HALF = "\ufffd"
"""What a tokenizer gives for a character of which not all bytes have arrived."""

_MOST_HALVES = 8
"""Most tokens that wait for the rest of a character; more are none."""

_LEAST_KNOWN = 0.5
"""Share of the model's vocabulary that a tokenizer must have: models have some more tokens, but not
twice as many."""


class Tokenizing(Protocol):
    """The interface of a tokenizer."""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text; with `special`, also those that every prompt begins with."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; none if there is no such token."""

    def special_tokens(self) -> Collection[int]:
        """The tokens that are no text."""


class TokenizerFile:
    """A `tokenizer.json`, whose tokens have to be in the vocabulary of the model."""

    def __init__(self, path: str | os.PathLike[str], vocabulary: int) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise not_served(
                "the package `tokenizers` is not installed", "pip install 'tessera-compiler[serve]'"
            ) from None
        try:
            self._tokenizer = Tokenizer.from_file(os.fspath(path))
        except Exception as problem:  # the package raises nothing narrower
            raise not_served(f"`{os.fspath(path)}` is no tokenizer file: {problem}") from None
        numbers = self._tokenizer.get_vocab(with_added_tokens=True).values()
        size, last = len(numbers), max(numbers, default=-1)
        if vocabulary and (last >= vocabulary or size < vocabulary * _LEAST_KNOWN):
            raise not_served(
                f"the tokenizer has {size} tokens, the last of them {last}, and the model a "
                f"vocabulary of {vocabulary}",
                "give the tokenizer file of this model",
            )

        self._special = {
            number
            for number, token in self._tokenizer.get_added_tokens_decoder().items()
            if token.special
        }
        said = json.loads(self._tokenizer.to_str())
        kinds = {*_kinds(said.get("decoder")), *_kinds(said.get("pre_tokenizer"))}
        self._bytes = _letter_bytes() if "ByteLevel" in kinds else None
        self._added = {token["id"] for token in said.get("added_tokens") or ()}

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens of a text; with `special`, also those that every prompt begins with."""
        made = self._tokenizer.encode(text, add_special_tokens=special)
        return [int(token) for token in made.ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for: letters of byte-level tokens, `<0x41>`, or text."""
        text = self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        if token in self._added:
            return str(text).encode()
        if self._bytes is not None and all(letter in self._bytes for letter in text):
            return bytes(self._bytes[letter] for letter in text)
        if len(text) == len("<0x00>") and text.startswith("<0x") and text.endswith(">"):
            with suppress(ValueError):
                return bytes([int(text[3:5], 16)])
        return str(text).replace("\u2581", " ").encode()

    def special_tokens(self) -> Collection[int]:
        """The tokens that are no text."""
        return self._special


def _kinds(part: object) -> Iterator[str]:
    """The types that a part of a tokenizer file has, with those inside of it."""
    if isinstance(part, Mapping):
        yield str(part.get("type"))
        for own in part.values():
            yield from _kinds(own)
    elif isinstance(part, list):
        for own in part:
            yield from _kinds(own)


def _letter_bytes() -> dict[str, int]:
    """The byte of each letter of byte-level tokens: bytes that print are their own letter."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


class GrowingText:
    """The text of an answer as its tokens arrive; stop texts end it.

    Only the last tokens are decoded again: the new ones and those of the part before them, because
    a decoder may treat the first token as the beginning of a text. Tokens are taken one by one, so
    that the text does not depend on how many of them arrive together.
    """

    def __init__(self, tokenizer: Tokenizing | None, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._text = ""
        self._given = 0
        self._begin = 0
        self._known = 0
        self._seen = 0
        self.is_stopped = False

    def more(self, tokens: Sequence[int], *, is_over: bool) -> str:
        """The text that can be sent, given all tokens that have arrived."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        before = self._tokenizer.decode(tokens[self._begin : self._known])
        for end in range(self._seen + 1, len(tokens) + 1):
            now = self._tokenizer.decode(tokens[self._begin : end])
            is_last = is_over and end == len(tokens)
            if is_last or not now.endswith(_HALF) or end - self._known > _MOST_HALVES:
                self._text += now[len(before) :]
                self._begin, self._known = self._known, end
                before = self._tokenizer.decode(tokens[self._begin : end])
        if is_over and self._known < len(tokens):  # half of a character came before
            self._text += self._tokenizer.decode(tokens[self._begin :])[len(before) :]
            self._known = len(tokens)
        self._seen = len(tokens)
        text = self._text
        starts = [max(self._given - len(stop), 0) for stop in self._stops]
        places = [text.find(s, start) for s, start in zip(self._stops, starts, strict=True)]
        stopped = [at for at in places if at >= 0]
        end = len(text)
        if stopped:
            self.is_stopped, end = True, min(stopped)
        elif not is_over:
            end -= self._held(text)
        part, self._given = text[self._given : end], max(end, self._given)
        return part

    def _held(self, text: str) -> int:
        """The number of characters at the end that may begin a stop text."""
        held = 0
        for stop in self._stops:
            for size in range(min(len(stop) - 1, len(text)), 0, -1):
                if stop.startswith(text[len(text) - size :]):
                    held = max(held, size)
                    break
        return held


def not_served(message: str, hint: str | None = None) -> TesseraError:
    """The error for a server that cannot start."""
    return TesseraError.of("TSR5066", message, hint=hint)
