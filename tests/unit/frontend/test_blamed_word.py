"""A syntax error names one word, even where the lexer took whole statements in one token."""

from __future__ import annotations

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module

HEAD = ".version 8.0\n.target sm_80\n.entry k()\n{\n"


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        (".reg .b32 x y; ret; ret;", "y"),
        ('.pragma "nounroll" ret; exit;', "ret"),
        (".pragma nounroll; ret;", "nounroll"),
        ("@!%p1 @%p2 ret; ret;", "@"),
        ("} ret; exit;", "ret"),
    ],
)
def test_one_word_is_blamed(statement: str, word: str) -> None:
    with pytest.raises(TesseraError) as failure:
        parse_module(f"{HEAD}{statement}\n}}\n")
    found = failure.value.diagnostics[0]
    assert str(found.headline) == f"unexpected `{word}`"
    assert found.primary is not None
    span = found.primary.span
    assert span.source.text[span.start : span.end] == word
