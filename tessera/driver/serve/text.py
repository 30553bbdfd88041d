"""Text and tokens: a tokenizer file, growing texts, and texts that stop an answer.

In: a file of the `tokenizers` package. Out: tokens of prompts, text of answers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

from tessera.diagnostics import TesseraError

_HALF = "\ufffd"
"""What a tokenizer gives for a character of which not all bytes have arrived."""

_LEAST_KNOWN = 0.5
"""Share of the model's vocabulary that a tokenizer must have: models have some more tokens, but not
twice as many."""


class Tokenizing(Protocol):
    """The interface of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""


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

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, including those that every prompt begins with."""
        return [int(token) for token in self._tokenizer.encode(text).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))


class GrowingText:
    """The text of an answer as its tokens arrive; stop texts end it.

    Only the last tokens are decoded again: the new ones and those of the part before them, because
    a decoder may treat the first token as the beginning of a text.
    """

    def __init__(self, tokenizer: Tokenizing | None, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._text = ""
        self._given = 0
        self._begin = 0
        self._known = 0
        self.is_stopped = False

    def more(self, tokens: Sequence[int], *, is_over: bool) -> str:
        """The text that can be sent, given all tokens that have arrived."""
        if self._tokenizer is None or self.is_stopped:
            return ""
        before = self._tokenizer.decode(tokens[self._begin : self._known])
        now = self._tokenizer.decode(tokens[self._begin :])
        if is_over or not now.endswith(_HALF):
            self._text += now[len(before) :]
            self._begin, self._known = self._known, len(tokens)
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
