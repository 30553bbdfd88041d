"""Texts that grow token by token, and the bytes of tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tessera.driver.serve.text import GrowingText, TokenizerFile
from tests.helpers.toy_site import Letters


class Bytes(Letters):
    """Every byte is a token."""

    def __init__(self) -> None:
        self.longest = 0

    def decode(self, tokens: Sequence[int]) -> str:
        self.longest = max(self.longest, len(tokens))
        return bytes(tokens).decode(errors="replace")


def grown(tokens: Sequence[int], ends: Sequence[int], tokenizer: Bytes) -> str:
    text = GrowingText(tokenizer)
    parts = [text.more(tokens[:end], is_over=False) for end in ends]
    return "".join([*parts, text.more(tokens, is_over=True)])


@pytest.mark.parametrize("seed", range(60))
def test_a_text_does_not_depend_on_how_its_tokens_arrive(seed: int) -> None:
    draw = random.Random(seed)
    letters = "".join(draw.choice("aé€😀\n") for _ in range(draw.randint(1, 30)))
    is_text = draw.random() < 0.5
    tokens = list(letters.encode()) if is_text else [draw.randrange(256) for _ in range(60)]
    tokenizer = Bytes()
    singly = grown(tokens, range(1, len(tokens)), tokenizer)
    assert tokenizer.longest <= 32  # endless halves of characters are not decoded over and over
    for _ in range(3):
        ends = sorted(draw.sample(range(len(tokens)), draw.randint(0, min(5, len(tokens)))))
        assert grown(tokens, ends, Bytes()) == singly
    if is_text:
        assert singly == letters
        parts = GrowingText(Bytes())
        for end in range(1, len(tokens)):
            assert "\ufffd" not in parts.more(tokens[:end], is_over=False)


def test_tokens_of_tokenizer_files_have_bytes(tmp_path: Path) -> None:
    tokenizers: Any = pytest.importorskip("tokenizers", reason="the extra `serve` is missing")
    path = tmp_path / "tokenizer.json"
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {letter: number for number, letter in enumerate(["<end>", *letters])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=words, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<end>"])
    made.save(str(path))
    file = TokenizerFile(path, 300)
    text = "a €é\n😀"
    tokens = file.encode(text)
    assert b"".join(map(file.piece, tokens)) == text.encode()
    assert {file.piece(number) for number in range(1, 257)} == {bytes([b]) for b in range(256)}
    assert (file.piece(0), file.piece(299)) == (b"<end>", b"")
    assert set(file.special_tokens()) == {0}
    pieces = {"<0xE2>": 0, "<0x82>": 1, "<0xAC>": 2, "\u2581the": 3, "<0xZZ>": 4, "<unk>": 5}
    made = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=pieces, merges=[], byte_fallback=True, unk_token="<unk>")
    )
    decoders = tokenizers.decoders
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence(steps)
    made.save(str(path))
    file = TokenizerFile(path, 6)
    assert b"".join(map(file.piece, (0, 1, 2, 3))).decode() == file.decode([0, 1, 2, 3]) == "€ the"
    assert file.piece(4) == b"<0xZZ>"
