"""The answers to one request, as clients of OpenAI read them: whole, or as a stream of events.

In: generations of an engine. Out: values for JSON. Ids are random: none repeats, not even after a
restart. `finish_reason` is how an answer has ended: `stop`, `length`, `deadline` or `cancelled`.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from tessera.driver.serve.completion_requests import (
    BadRequest,
    CompletionRequest,
    ErrorCode,
    error_value,
)
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.measures import AnswerEnd
from tessera.driver.serve.text import GrowingText, Tokenizing


class Reply:
    """The answers to one request, as they arrive."""

    def __init__(
        self,
        model: str,
        wanted: CompletionRequest,
        answers: Sequence[Generation],
        tokenizer: Tokenizing | None,
    ) -> None:
        self._head: dict[str, object] = {
            "id": f"cmpl-{secrets.token_hex(16)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        self._wanted = wanted
        self._answers = answers
        self._texts = [GrowingText(tokenizer, wanted.stops) for _ in answers]
        self._given = [0] * len(answers)
        self._news = asyncio.Event()
        loop = asyncio.get_running_loop()
        for answer in answers:
            answer.listen(lambda _: self._wake(loop))

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(RuntimeError):  # the server is gone
            loop.call_soon_threadsafe(self._news.set)

    async def whole(self) -> dict[str, object]:
        """All answers at once."""
        texts = ["" for _ in self._answers]
        tokens: list[list[int]] = [[] for _ in self._answers]
        ends: dict[int, str] = {}
        async for place, text, part, end in self._parts():
            texts[place] += text
            tokens[place] += part
            if end:
                ends[place] = end
        choices = [
            _choice(place, texts[place], tokens[place], ends.get(place))
            for place in range(len(texts))
        ]
        return self._value(choices) | {"usage": self._usage()}

    async def stream(self) -> AsyncIterator[bytes]:
        """Events, each with the new part of one answer."""
        no_usage = {"usage": None} if self._wanted.wants_usage else {}
        try:
            async for place, text, tokens, end in self._parts():
                if text or tokens or end:
                    value = self._value([_choice(place, text, tokens, end or None)])
                    yield _event(value | no_usage)
            if self._wanted.wants_usage:
                yield _event(self._value([]) | {"usage": self._usage()})
            yield b"data: [DONE]\n\n"
        except BadRequest as bad:
            yield _event(error_value(bad))
        finally:
            for answer in self._answers:
                answer.cancel()

    async def _parts(self) -> AsyncIterator[tuple[int, str, list[int], AnswerEnd]]:
        left = set(range(len(self._answers)))
        while left:
            await self._news.wait()
            self._news.clear()
            for place in sorted(left):
                text, tokens, end = self._more(place)
                if end:
                    left.discard(place)
                yield place, text, tokens, end

    def _more(self, place: int) -> tuple[str, list[int], AnswerEnd]:
        """The new text and tokens of an answer, and how it has ended, if it has."""
        answer, text = self._answers[place], self._texts[place]
        end = answer.ended
        if end is AnswerEnd.FAULT:
            raise BadRequest(answer.fault_words(), code=ErrorCode.SERVER_ERROR)
        known = answer.settled()
        part = text.more(known, is_over=bool(end))
        tokens = known[self._given[place] :]
        self._given[place] = len(known)
        if text.is_stopped:
            answer.cancel()
            end = AnswerEnd.STOP
        return part, tokens, end

    def _value(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {**self._head, "choices": choices}

    def _usage(self) -> dict[str, int]:
        going_in = sum(len(answer.prompt) for answer in self._answers)
        coming_out = sum(self._given)
        return {
            "prompt_tokens": going_in,
            "completion_tokens": coming_out,
            "total_tokens": going_in + coming_out,
        }


def _choice(place: int, text: str, tokens: list[int], end: str | None) -> dict[str, object]:
    return {
        "index": place,
        "text": text,
        "token_ids": tokens,
        "logprobs": None,
        "finish_reason": end,
    }


def _event(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
