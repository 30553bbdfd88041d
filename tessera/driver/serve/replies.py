"""The answers to one request, as clients of OpenAI read them: whole, or as a stream of events.

In: generations of an engine. Out: values for JSON, in the shape of a completion or of a chat. Ids
are random: none repeats, not even after a restart. `finish_reason` is how an answer has ended:
`stop`, `length`, `deadline` or `cancelled`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tessera.driver.serve.api_errors import BadRequest, ErrorCode, error_value
from tessera.driver.serve.chance_values import ChanceTable
from tessera.driver.serve.completion_requests import CompletionRequest, TextModel
from tessera.driver.serve.generation import Generation
from tessera.driver.serve.measures import AnswerEnd
from tessera.driver.serve.sampling import NO_CHANCES, TokenChances
from tessera.driver.serve.text import GrowingText

_log = logging.getLogger("tessera.serve")


@dataclass(slots=True)
class AnswerPart:
    """What has arrived of an answer since the last part: `begins` and `end` mark its ends."""

    place: int
    text: str = ""
    tokens: list[int] = field(default_factory=list)
    chances: list[tuple[int, TokenChances | None]] = field(default_factory=list)
    """Tokens with their chances, those of an echoed prompt first; the first of all has none."""
    begins: bool = False
    end: AnswerEnd = AnswerEnd.UNDER_WAY

    def join(self, other: AnswerPart) -> None:
        """Add the part that follows."""
        self.text += other.text
        self.tokens += other.tokens
        self.chances += other.chances
        self.end = other.end


class Reply:
    """The answers to one request, as they arrive."""

    def __init__(
        self,
        served: TextModel,
        wanted: CompletionRequest,
        answers: Sequence[Generation],
        request: str,
    ) -> None:
        """`request` is the id that a fault is reported with."""
        kind = "chatcmpl" if wanted.is_chat else "cmpl"
        self._head: dict[str, object] = {
            "id": f"{kind}-{secrets.token_hex(16)}",
            "object": "chat.completion" if wanted.is_chat else "text_completion",
            "created": int(time.time()),
            "model": served.name,
        }
        self._served = served
        self._request = request
        self._wanted = wanted
        self._answers = answers
        self._texts = [GrowingText(served.tokenizer, wanted.stops) for _ in answers]
        self._chances = [ChanceTable(served.tokenizer) for _ in answers]
        self._given = [-1] * len(answers)
        """Tokens that were given of each answer; -1: not even its beginning."""
        self._news = asyncio.Event()
        self._is_called = False
        """Whether the loop has been called and has not looked yet."""
        loop = asyncio.get_running_loop()
        for answer in answers:
            answer.listen(partial(self._wake, loop))

    def _wake(self, loop: asyncio.AbstractEventLoop, answer: Generation) -> None:
        """Call the loop, unless nothing is to be done until the answer has ended."""
        is_news = self._wanted.is_streamed or self._wanted.stops or answer.ended
        if is_news and not self._is_called:
            self._is_called = True
            with suppress(RuntimeError):  # the server is gone
                loop.call_soon_threadsafe(self._news.set)

    async def whole(self) -> dict[str, object]:
        """All answers at once."""
        joined = [AnswerPart(place) for place in range(len(self._answers))]
        async for part in self._parts():
            joined[part.place].join(part)
        choices = [self._choice(part, is_whole=True) for part in joined]
        return self._value(choices) | {"usage": self._usage()}

    async def stream(self) -> AsyncIterator[bytes]:
        """Events, each with the new part of one answer."""
        if self._wanted.is_chat:
            self._head["object"] = "chat.completion.chunk"
        no_usage = {"usage": None} if self._wanted.wants_usage else {}
        try:
            async for part in self._parts():
                if part.text or part.tokens or part.end or part.begins:
                    choice = self._choice(part, is_whole=False)
                    yield _event(self._value([choice]) | no_usage)
            if self._wanted.wants_usage:
                yield _event(self._value([]) | {"usage": self._usage()})
            yield b"data: [DONE]\n\n"
        except BadRequest as bad:
            yield _event(error_value(bad))
        finally:
            for answer in self._answers:
                answer.cancel()

    async def _parts(self) -> AsyncIterator[AnswerPart]:
        left = set(range(len(self._answers)))
        while left:
            await self._news.wait()
            self._news.clear()
            self._is_called = False  # before tokens are read: later ones call again
            for place in sorted(left):
                part = self._more(place)
                if part.end:
                    left.discard(place)
                yield part

    def _more(self, place: int) -> AnswerPart:
        """What is new of an answer, and how it has ended, if it has."""
        answer, text = self._answers[place], self._texts[place]
        part = AnswerPart(place, end=answer.ended)
        if part.end is AnswerEnd.FAULT:
            raise self._fault(answer)
        known = answer.settled()[: self._wanted.most]
        if self._given[place] < 0 and (known or part.end):
            self._begin(part, answer)
            self._given[place] = 0
        begin = max(self._given[place], 0)
        part.text += text.more(known, is_over=bool(part.end))
        part.tokens = known[begin:]
        if self._wanted.sampling.chances != NO_CHANCES:
            part.chances += zip(part.tokens, answer.chances[begin : len(known)], strict=True)
        self._given[place] += len(part.tokens)
        if text.is_stopped:
            answer.cancel()
            part.end = AnswerEnd.STOP
        return part

    def _begin(self, part: AnswerPart, answer: Generation) -> None:
        """Begin an answer, with its prompt if that is wanted."""
        part.begins = True
        if not self._wanted.echoes:
            return
        if self._served.tokenizer is not None:
            part.text = self._served.tokenizer.decode(answer.prompt)
        if self._wanted.reads_prompt:
            part.chances += zip(answer.prompt, [None, *answer.prompt_chances], strict=True)

    def _fault(self, answer: Generation) -> BadRequest:
        words, fault = answer.fault_words(), answer.fault
        if fault is not None and fault.diagnostics[0].code == "TSR5064":
            return BadRequest(words)
        _log.error("request %s: %s", self._request, words)
        return BadRequest(f"{words} (request {self._request})", code=ErrorCode.SERVER_ERROR)

    # --- values -----------------------------------------------------------------------------------

    def _choice(self, part: AnswerPart, *, is_whole: bool) -> dict[str, object]:
        logprobs = None
        if self._wanted.sampling.chances != NO_CHANCES and (part.chances or is_whole):
            table = self._chances[part.place]
            logprobs = (table.of_chat if self._wanted.is_chat else table.of_text)(part.chances)
        choice: dict[str, object] = {"index": part.place}
        if not self._wanted.is_chat:
            choice["text"] = part.text
        elif is_whole:
            choice["message"] = {"role": "assistant", "content": part.text, "refusal": None}
        else:
            role = {"role": "assistant"} if part.begins else {}
            content = {"content": part.text} if part.text or part.begins else {}
            choice["delta"] = role | content
        choice["token_ids"] = part.tokens
        return choice | {"logprobs": logprobs, "finish_reason": part.end or None}

    def _value(self, choices: list[dict[str, object]]) -> dict[str, object]:
        return {**self._head, "choices": choices}

    def _usage(self) -> dict[str, int]:
        going_in = sum(len(prompt) for prompt in self._wanted.prompts)
        coming_out = sum(max(given, 0) for given in self._given)
        return {
            "prompt_tokens": going_in,
            "completion_tokens": coming_out,
            "total_tokens": going_in + coming_out,
        }


def _event(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"
