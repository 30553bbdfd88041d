"""Ways to damage PTX text: each takes a text and a random generator and gives a damaged text.

`mutate` applies one to three of them. Everything is drawn from the generator, so a case is
reproduced by its seed and number alone.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

TOKEN = re.compile(r"\s+|//[^\n]*|[%$._A-Za-z][\w$.%:]*|0[xXfFdD][0-9a-fA-F]+|\d+|.", re.DOTALL)
INJECTIONS = (
    "{",
    "}",
    "{{{{",
    "}}}}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    '"',
    "'",
    "/*",
    "*/",
    "//",
    ";",
    ";;",
    ",",
    ",,",
    ":",
    "::",
    "@",
    "@!",
    "!",
    "|",
    "_",
    ".",
    "..",
    "+",
    "-",
    "%",
    "%%",
    "$",
    "\\",
    "?",
    "{" * 3000,
    "(" * 3000,
    "[" * 500,
    "-" * 3000,
    "!" * 2000,
    "1+" * 2000 + "1",
    "a|" * 500,
    "99999999999999999999999999999999",
    "0x" + "f" * 400,
    "0f3F80000",
    "0d3FF",
    "1e999999",
    "0b2",
    "9" * 5000,
    "-0",
    "0x",
    "1.2.3.4",
    "08",
    "0f",
    "0U",
    "1.",
    "1e",
    ".5e+",
    ".reg .b32 %r<99999999999>;",
    ".reg .b32 %r<0>;",
    ".reg .b32 %r<-1>;",
    ".align 3",
    ".align 0",
    ".entry",
    ".func",
    ".version 99.99",
    ".version 8.0",
    ".target",
    ".target sm_999",
    ".loc 1 2",
    ".file 1",
    ".section .debug_info {",
    ".pragma",
    ".alias a, b;",
    ".extern",
    ".visible .weak",
    ".branchtargets",
    ".callprototype",
    "call",
    "ret;",
    "bra x;",
    "@p",
    "L:",
    "mov",
    "ld.param",
    "generic(",
    "0xFF(",
    "(.s64)",
    "(.u64)(",
    "1?2",
    "?:",
    "a[",
    "a[1",
    "%r1.x.y",
    "<<",
    ">>>",
    "\0",
    "\x01",
    "\x1a",
    "\x7f",
    "\x85",
    "\u2028",
    "\ufeff",
    "\u00e9",
    "\U0001f600",
    "\r",
    "\r\n",
    "\v",
    "\f",
    "\udc80",
)


def flip_characters(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Change one to eight characters, one bit each."""
    letters = list(text)
    for _unused in range(rng.randint(1, 8)):
        if letters:
            at = rng.randrange(len(letters))
            letters[at] = chr(ord(letters[at]) ^ (1 << rng.randrange(7)))
    return "".join(letters)


def random_characters(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Overwrite a short run with arbitrary Latin-1 characters."""
    at = rng.randrange(len(text) + 1)
    noise = "".join(chr(rng.randrange(256)) for _unused in range(rng.randint(1, 20)))
    return text[:at] + noise + text[at + len(noise) :]


def edit_tokens(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Delete, double, swap or move one to four tokens."""
    tokens = TOKEN.findall(text)
    for _unused in range(rng.randint(1, 4)):
        if len(tokens) < 2:
            break
        at, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        match rng.randrange(5):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens.insert(other, tokens.pop(at))
            case _:
                tokens[at] = tokens[other]
    return "".join(tokens)


def edit_lines(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Delete, double or swap whole lines, or join two."""
    lines = text.split("\n")
    for _unused in range(rng.randint(1, 3)):
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(4):
            case 0 if len(lines) > 1:
                del lines[at]
            case 1:
                lines.insert(at, lines[at])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case _:
                lines[at] = lines[at] + lines[other]
    return "\n".join(lines)


def truncate(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Keep a beginning or an end."""
    at = rng.randrange(len(text) + 1)
    return text[:at] if rng.random() < 0.8 else text[at:]


def splice(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Go on with another file from somewhere."""
    other = rng.choice(others)
    return text[: rng.randrange(len(text) + 1)] + other[rng.randrange(len(other) + 1) :]


def transplant(text: str, rng: random.Random, others: Sequence[str]) -> str:
    """Insert a few lines of another file."""
    lines, donor = text.split("\n"), rng.choice(others).split("\n")
    at, start = rng.randrange(len(lines) + 1), rng.randrange(len(donor))
    return "\n".join(lines[:at] + donor[start : start + rng.randint(1, 6)] + lines[at:])


def inject(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Insert a piece that opens, closes, overflows or does not belong."""
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(INJECTIONS) + text[at:]


def inject_at_token(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """The same between two tokens, or instead of one."""
    tokens = TOKEN.findall(text)
    at = rng.randrange(len(tokens) + 1)
    return "".join(tokens[:at]) + rng.choice(INJECTIONS) + "".join(tokens[at + rng.randint(0, 1) :])


def repeat(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Repeat a stretch many times."""
    start = rng.randrange(len(text) + 1)
    piece = text[start : start + rng.randint(1, 200)]
    return text[:start] + piece * rng.choice((2, 10, 100)) + text[start:]


def change_numbers(text: str, rng: random.Random, _: Sequence[str]) -> str:
    """Replace one number by an extreme one."""
    found = list(re.finditer(r"\d+", text))
    if not found:
        return text
    place = rng.choice(found)
    extreme = rng.choice(("0", "-1", "255", "4294967296", str(2**63), str(2**64), "9" * 300, "1e5"))
    return text[: place.start()] + extreme + text[place.end() :]


MUTATIONS: tuple[Callable[[str, random.Random, Sequence[str]], str], ...] = (
    flip_characters,
    random_characters,
    edit_tokens,
    edit_tokens,
    edit_lines,
    truncate,
    splice,
    transplant,
    inject,
    inject_at_token,
    inject_at_token,
    repeat,
    change_numbers,
)


def mutate(rng: random.Random, sources: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """A damaged text, and the names of what was done to it."""
    text = rng.choice(sources)
    done = []
    for _unused in range(rng.choice((1, 1, 1, 2, 3))):
        mutation = rng.choice(MUTATIONS)
        text = mutation(text, rng, sources)
        done.append(mutation.__name__)
    return text, tuple(done)
