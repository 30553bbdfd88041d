"""The words of a syntax error: the tokens that were expected, and the word that was found.

In: Lark's exception. Out: words for people.
"""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedInput, UnexpectedToken

TERMINAL_NAMES = {
    "SEMICOLON": "`;`",
    "COMMA": "`,`",
    "COLON": "`:`",
    "RPAR": "`)`",
    "LPAR": "`(`",
    "RSQB": "`]`",
    "LBRACKET": "`[`",
    "RBRACE": "`}`",
    "LBRACE": "`{`",
    "EQUAL": "`=`",
    "MORETHAN": "`>`",
    "GREATER": "`>`",
    "QMARK": "`?`",
    "NAME": "a name",
    "SINK": "`_`",
    "MODIFIER": "a type or modifier",
    "NATURAL": "a number",
    "FLOAT": "a number",
    "STRING": "a string",
    "SPACE": "a state space",
    "VERSION": "`.version`",
    "TARGET": "`.target`",
    "__ADDRESS_SIZE": "`.address_size`",
    "ENTRY": "`.entry`",
    "FUNC": "`.func`",
    "INLINED_AT": "`inlined_at`",
    "FUNCTION_NAME": "`function_name`",
    "RUN": "an instruction",
    "$END": "the end of the file",
}
# Expected sets are long where an expression may start or continue; these represent the others.
EXPRESSION_START = {"NAME", "NATURAL", "FLOAT", "LPAR", "NOT", "TILDE", "PLUS", "MINUS", "SINK"}
OPERATORS = {
    "OR_OR",
    "AND_AND",
    "BAR",
    "CARET",
    "AMPERSAND",
    "EQUALITY",
    "COMPARE",
    "LESS",
    "GREATER",
    "SHIFT",
    "PLUS",
    "MINUS",
    "PRODUCT",
    "QMARK",
}
_WORD = re.compile(r"[%$\w.]+|.", re.S)


def expected_words(fault: UnexpectedInput) -> list[str]:
    """The expected tokens in words, the most telling first."""
    if isinstance(fault, UnexpectedToken):
        names = set(fault.accepts or fault.expected)
    else:
        names = set(getattr(fault, "allowed", None) or ())
    words = ["a value"] if names >= EXPRESSION_START else []
    rest = names - EXPRESSION_START if words else names
    if OPERATORS - {"QMARK"} <= names:
        rest -= OPERATORS
    if "RUN" in rest:
        return ["an instruction or a declaration", "`}`"]
    if "ENTRY" in rest and "SPACE" in rest and "FILE" in rest:
        return ["a function, a variable or a directive"]
    known = {TERMINAL_NAMES[name] for name in rest if name in TERMINAL_NAMES}
    return words + sorted(known, key=lambda word: (word != "`;`", word))


def expected_sentence(expected: list[str]) -> str:
    """`expected a, b or c`."""
    if not expected:
        return ""
    if len(expected) == 1:
        return f"expected {expected[0]}"
    return f"expected {', '.join(expected[:-1])} or {expected[-1]}"


def word_at(text: str, position: int) -> str:
    """The word that starts at a position."""
    match = _WORD.match(text, position, position + 200)
    return match[0] if match else ""


def shorten(word: str) -> str:
    """At most 40 characters of the first line."""
    word = word.splitlines()[0] if word else word
    return word if len(word) <= 40 else word[:37] + "..."
