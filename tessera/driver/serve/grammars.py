"""Answers that follow a JSON schema, by the package `llguidance`.

In: the bytes of every token, and a schema. Out: `Grammar`, which makes a `Constraint` for each
answer. The tokens are handed to the package when the first schema comes. A schema that it does not
know, or that nothing satisfies, is refused before anything is generated; one that turns out to be
too complex ends its own answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.driver.serve.api_errors import BadRequest, ErrorCode
from tessera.driver.serve.text import Tokenizing

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

_FIELD = "response_format"
_BLANKS = r"[ \n]{0,40}"
"""Some white space, since models like to indent; endless white space would be an answer, too."""
_MOST_SAID = 200


class Grammars:
    """Makes grammars for a model whose tokens have these bytes."""

    def __init__(self, tokenizer: Tokenizing, vocabulary: int, end: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._end = list(end)
        self._known: LLTokenizer | None = None
        self._lock = threading.Lock()

    def of_schema(self, schema: Mapping[str, object]) -> Grammar:
        """The grammar of a schema."""
        try:
            from llguidance import LLMatcher, LLParserLimits
        except ImportError:
            raise BadRequest(
                "JSON needs the package `llguidance` on the server: "
                "pip install 'tessera-compiler[grammar]'",
                code=ErrorCode.UNSUPPORTED_VALUE,
                field=_FIELD,
            ) from None
        # A few milliseconds for each token: the steps of others wait meanwhile.
        limits = LLParserLimits(step_lexer_fuel=50_000, step_max_items=20_000, verbose_errors=False)
        try:
            text = LLMatcher.grammar_from_json_schema(
                json.dumps(schema), overrides={"whitespace_pattern": _BLANKS}
            )
        except (ValueError, RecursionError) as problem:
            raise _refused(str(problem)) from None
        matcher = LLMatcher(self._tokens(), text, log_level=0, limits=limits)
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return Grammar(matcher)

    def _tokens(self) -> LLTokenizer:
        with self._lock:
            if self._known is None:
                self._known = _made_known(self._tokenizer, self._vocabulary, self._end)
            return self._known


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar before its first token."""

    matcher: LLMatcher

    def constraint(self) -> GrammarConstraint:
        """A constraint for one answer."""
        return GrammarConstraint(self.matcher.deep_copy())


class GrammarConstraint:
    """The place that an answer has reached in a grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Which tokens may come next."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        mask = np.unpackbits(bits, bitorder="little")[:size].astype(bool)
        if self._matcher.is_error() or not mask.any():
            raise self._problem()
        return np.pad(mask, (0, size - len(mask)))

    def accept(self, token: int) -> bool:
        """Note the next token; returns whether nothing can follow it."""
        if not self._matcher.consume_token(token):
            raise self._problem()
        return bool(self._matcher.is_stopped())

    def _problem(self) -> TesseraError:
        said = _first_line(self._matcher.get_error() or "no token can follow")
        return TesseraError.of("TSR5064", f"`{_FIELD}` cannot be followed any further: {said}")


class _TokenBytes:
    """The tokens of a model as the package asks for them."""

    def __init__(self, tokenizer: Tokenizing, size: int, end: list[int]) -> None:
        self.eos_token_id = end[0]
        self.bos_token_id = None
        self.tokens = [tokenizer.piece(token) for token in range(size)]
        self.special_token_ids = sorted({*end, *tokenizer.special_tokens()})
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, special=False)


def _made_known(tokenizer: Tokenizing, size: int, end: list[int]) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    if not end:  # the package wants one: a token that no step gives
        size, end = size + 1, [size]
    wrapped = TokenizerWrapper(_TokenBytes(tokenizer, size, end))
    return LLTokenizer(wrapped, n_vocab=size, eos_token=end)


def _refused(said: str) -> BadRequest:
    message = f"`{_FIELD}` has a schema that cannot be followed: {_first_line(said)}"
    return BadRequest(message, field=_FIELD)


def _first_line(said: str) -> str:
    return (said.strip().splitlines() or ["it is none"])[0][:_MOST_SAID]
