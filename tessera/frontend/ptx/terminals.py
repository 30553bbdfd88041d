"""The terminals of `grammars/ptx.lark` as regular expressions, and expressions made of them.

In: the grammar's text. Out: one constant per terminal that an expression for more than a token is
made of. Only the grammar spells a terminal; what stands here are combinations. One limit is added:
integers are short enough to fit in 64 bits whatever their digits. Longer integers, like everything
else that an expression does not match, are read token by token.
"""

from __future__ import annotations

import re

from tessera.frontend.text.grammar import grammar_text

_DEFINITION = re.compile(
    r'^([A-Z_]+)(?:\.-?[0-9]+)?: (?:/((?:[^/\\\n]|\\.)+)/|"([^"\n]+)")', re.MULTILINE
)
_CLASS = re.compile(r"\[[^]]+\]\+")


def read_terminals(grammar: str) -> dict[str, str]:
    """The terminals of a grammar that are an expression or a word, by name."""
    return {
        name: f"(?:{pattern})".replace(r"\/", "/") if pattern else re.escape(word)
        for name, pattern, word in _DEFINITION.findall(grammar)
    }


TERMINALS = read_terminals(grammar_text("ptx"))

NAME = TERMINALS["NAME"]
NAME_CHARACTERS = "".join(
    re.escape(character)
    for character in map(chr, range(128))
    if re.fullmatch(NAME, f"%a{character}")
)
"""What may follow in a name, for a class of characters."""
SINK = TERMINALS["SINK"]
MODIFIER = TERMINALS["MODIFIER"]
STRING = TERMINALS["STRING"]
SPACE = TERMINALS["SPACE"]
LINKAGE = TERMINALS["LINKAGE"]
COMMENT = TERMINALS["COMMENT"]
INTEGER = rf"(?![1-9][0-9]{{19}}|0\w{{18}}){TERMINALS['NATURAL']}(?!\()"
FLOAT = TERMINALS["FLOAT"]
# The sign of a float in hexadecimal is part of its bits.
NUMBER = rf"(?:{INTEGER}|{FLOAT}|-(?:{INTEGER}|(?!0[fFdD]){FLOAT}))"

_WHITESPACE = TERMINALS["WHITESPACE"][3:-1]
BLANK = f"{_WHITESPACE[:-1]}*+" if _CLASS.fullmatch(_WHITESPACE) else f"(?:{_WHITESPACE})*+"
BLANKS = "".join(filter(re.compile(_WHITESPACE).fullmatch, map(chr, range(128))))
GAP = rf"{BLANK}(?:(?>{COMMENT}|{TERMINALS['LINE_MARKER']}){BLANK})*+"


def listed(element: str, closers: str) -> str:
    """One or more elements separated by commas, up to one of the closing characters.

    `element(, element)*` would hold the element twice, and lists of lists four times; compiling
    such an expression takes longer than reading a small file.
    """
    return rf"(?:{element}{BLANK}(?:,{BLANK}(?![{closers}])|(?=[{closers}])))++"


NUMBER_LIST = rf"\{{{BLANK}{listed(NUMBER, '}')}\}}"
