"""Chances of tokens as clients of OpenAI read them: `logprobs` of completions and of chats.

In: tokens with their `TokenChances`. Out: values for JSON. A token that is not whole characters is
written as its bytes in the one place where only its text counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.driver.serve.sampling import TokenChances
from tessera.driver.serve.text import Tokenizing

_Tokens = Sequence[tuple[int, TokenChances | None]]


class ChanceTable:
    """The chances of the tokens of one answer, in parts."""

    def __init__(self, tokenizer: Tokenizing | None) -> None:
        self._tokenizer = tokenizer
        self._special = () if tokenizer is None else tokenizer.special_tokens()
        self._offset = 0

    def of_chat(self, tokens: _Tokens) -> dict[str, object]:
        """The `logprobs` of a chat."""
        content = [
            self._entry(token, own.logprob)
            | {"top_logprobs": [self._entry(other, log) for other, log in own.top]}
            for token, own in tokens
            if own is not None
        ]
        return {"content": content, "refusal": None}

    def of_text(self, tokens: _Tokens) -> dict[str, object]:
        """The `logprobs` of a completion; the first token of a prompt has none."""
        offsets = []
        for token, _ in tokens:
            offsets.append(self._offset)
            if token not in self._special:
                self._offset += len(self._bytes(token).decode(errors="replace"))
        return {
            "tokens": [self._name(token) for token, _ in tokens],
            "token_logprobs": [None if own is None else own.logprob for _, own in tokens],
            "top_logprobs": [self._top(token, own) for token, own in tokens],
            "text_offset": offsets,
        }

    def _top(self, token: int, own: TokenChances | None) -> dict[str, float] | None:
        if own is None:
            return None
        listed = {self._name(other): log for other, log in own.top}
        return listed | {self._name(token): own.logprob} if listed else {}

    def _entry(self, token: int, logprob: float) -> dict[str, object]:
        content = self._bytes(token)
        text = content.decode(errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(content)}

    def _bytes(self, token: int) -> bytes:
        if self._tokenizer is None:
            return f"token_id:{token}".encode()
        return self._tokenizer.piece(token)

    def _name(self, token: int) -> str:
        content = self._bytes(token)
        try:
            return content.decode()
        except ValueError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in content)
