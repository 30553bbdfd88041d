"""Is a fault reported where it is? One known fault per text, against the line ptxas names.

In: valid files with one statement per line. Out: per kind of fault, how many were refused, how
often our first line is the faulty line, how often it is the line ptxas names, and how often it
is either. For a missing `;` the two differ by design: ptxas names the next token's line.
"""

from __future__ import annotations

import functools
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from tests.fuzz.oracle import judge
from tests.helpers.corpus import corpus_texts
from tests.helpers.ptxas import assemble

STATEMENT = re.compile(r"^\s+(?!\.|//|@@)(@!?%p\d+\s+)?[a-z][\w.:]*\s+[^;{}/\"]+;\s*$")
LARGEST = 60_000
PATIENCE = 5.0

Lines = list[str]
Fault = Callable[[Lines, int, random.Random], int | None]


def missing_semicolon(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines[at] = lines[at].rstrip()[:-1]
    return at


def missing_comma(lines: Lines, at: int, rng: random.Random) -> int | None:
    if "," not in lines[at]:
        return None
    lines[at] = lines[at].replace(",", " ", 1)
    return at


def unbalanced_bracket(lines: Lines, at: int, rng: random.Random) -> int | None:
    if "]" not in lines[at]:
        return None
    lines[at] = lines[at].replace("]", "", 1)
    return at


def undeclared_register(lines: Lines, at: int, rng: random.Random) -> int | None:
    changed = re.sub(r"%(r|rd|f|fd|rs)\d+", "%undeclared7", lines[at], count=1)
    if changed == lines[at]:
        return None
    lines[at] = changed
    return at


def bad_literal(lines: Lines, at: int, rng: random.Random) -> int | None:
    changed = re.sub(r"(?<=, )-?\d+(?=;)", rng.choice(("0xZZ", "12abc", "0f12", "0b3")), lines[at])
    if changed == lines[at]:
        return None
    lines[at] = changed
    return at


def bad_directive(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "\t.nonsense 5;")
    return at


def bad_type_of_variable(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "\t.reg .q17 %wrong;")
    return at


def stray_brace(lines: Lines, at: int, rng: random.Random) -> int | None:
    ends = [index for index, line in enumerate(lines) if line.rstrip() == "}"]
    if not ends:
        return None
    lines.insert(ends[0] + 1, "}")
    return ends[0] + 1


def missing_label(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "\tbra nowhere_at_all;")
    return at


def duplicate_label(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "twice:")
    lines.insert(at + 1, "twice:")
    return at + 1


def duplicate_register(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "\t.reg .b32 once;")
    lines.insert(at + 1, "\t.reg .b32 once;")
    return at + 1


def too_many_operands(lines: Lines, at: int, rng: random.Random) -> int | None:
    match = re.match(r"^(\s+(?:add|sub|and|or|xor|shl)\.[\w.]+\s+.*);", lines[at])
    if match is None:
        return None
    lines[at] = f"{match[1]}, 1;"
    return at


def too_few_operands(lines: Lines, at: int, rng: random.Random) -> int | None:
    match = re.match(
        r"^(\s+)(add|sub|and|or|xor|shl|mul)(\.[\w.]+)(\s+)([^,]+), ([^,]+),.*;", lines[at]
    )
    if match is None:
        return None
    lines[at] = f"{match[1]}{match[2]}{match[3]}{match[4]}{match[5]}, {match[6]};"
    return at


def unknown_character(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines[at] = lines[at].rstrip() + " `"
    return at


def open_comment(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "/* never closed")
    return at


def bad_guard(lines: Lines, at: int, rng: random.Random) -> int | None:
    lines.insert(at, "\t@ 5 ret;")
    return at


def bad_version(lines: Lines, at: int, rng: random.Random) -> int | None:
    places = [index for index, line in enumerate(lines) if line.startswith(".version")]
    lines[places[0]] = ".version eight"
    return places[0]


FAULTS: tuple[Fault, ...] = (
    missing_semicolon,
    missing_comma,
    unbalanced_bracket,
    undeclared_register,
    bad_literal,
    bad_directive,
    bad_type_of_variable,
    stray_brace,
    missing_label,
    duplicate_label,
    duplicate_register,
    too_many_operands,
    too_few_operands,
    unknown_character,
    open_comment,
    bad_guard,
    bad_version,
)


@functools.cache
def plain_texts() -> list[tuple[str, str]]:
    """Corpus files that hold one statement per line and are quick to assemble."""
    chosen = []
    for name, text in corpus_texts(LARGEST):
        lines = text.split("\n")
        if sum(map(bool, map(STATEMENT.match, lines))) > 20:
            chosen.append((name, text))
    return chosen


def inject(text: str, fault: Fault, rng: random.Random) -> tuple[str, int] | None:
    """The text with one fault, and its line (from 1); None where it does not fit."""
    lines = text.split("\n")
    places = [index for index, line in enumerate(lines) if STATEMENT.match(line)]
    for at in rng.sample(places, min(40, len(places))):
        changed = list(lines)
        line = fault(changed, at, rng)
        if line is not None:
            return "\n".join(changed), line + 1
    return None


def check_positions(
    per_kind: int = 12, seed: int = 1, texts: Sequence[tuple[str, str]] | None = None
) -> dict[str, Any]:
    """Agreement by kind of fault over some texts."""
    rng = random.Random(seed)
    texts = texts if texts is not None else plain_texts()
    table: dict[str, Any] = {}
    for fault in FAULTS:
        counts: Counter[str] = Counter()
        away = []
        for name, text in rng.sample(texts, min(per_kind, len(texts))):
            injected = inject(text, fault, rng)
            if injected is None:
                continue
            row = compare(*injected)
            counts.update(key for key, holds in row["holds"].items() if holds)
            if row["holds"]["ptxas refuses"] and not row["holds"]["at either line"]:
                away.append({"file": name, **row["lines"]})
        table[fault.__name__] = {**counts, "elsewhere": away}
    return table


def compare(text: str, line: int) -> dict[str, Any]:
    """Where the fault is, where ptxas says it is, and where we say it is."""
    ours, theirs = judge(text), assemble(text, (), PATIENCE)
    named = theirs.complaints[0][0] if theirs.complaints else None
    return {
        "lines": {"fault": line, "ptxas": named, "ours": ours.line, "code": ours.detail},
        "holds": {
            "cases": True,
            "ptxas refuses": not theirs.accepted,
            "we refuse": ours.outcome == "refused",
            "at the fault": ours.line == line,
            "at ptxas's line": ours.line == named,
            "at either line": ours.line is not None and ours.line in (line, named),
        },
    }
