"""Find few rules that say what ptxas refuses, and where it takes the rest.

In: measured instructions, by their features. Out: lines in the notation of
`tessera.ir.opcodes.rules`. A rule is a set of literals with the union of where the measured
instructions that have them are taken; so no rule refuses what was measured as taken. Rules of few
literals come first, and among these the rule that explains the most; a rule is kept if it refuses
something that the rules before it do not.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.reading.measure import Span, spell
from tessera.ir.opcodes.rules import targets_of
from tessera.ir.opcodes.targets import TARGETS, VERSIONS, Version

PAIRS = [(t, v) for t, since in TARGETS.items() for v in VERSIONS if v >= since]
_BIT = {pair: 1 << place for place, pair in enumerate(PAIRS)}
_WIDTH = 100
Literals = frozenset[str]


def region_of(spans: Mapping[str, Span]) -> int:
    """The pairs of target and version in the spans of each target, as a set of bits."""
    region = 0
    for target, (first, last) in spans.items():
        for version in VERSIONS:
            if first <= version <= last:
                region |= _BIT.get((target, version), 0)
    return region


def where_rules(head: str, regions: Mapping[Literals, int], everywhere: int) -> Iterator[str]:
    """Where the instructions of one first word are taken."""
    rows = list(regions)
    places = _places_of(rows)
    of_region = _grouped(regions[row] for row in rows)
    predicted = [everywhere] * len(rows)
    base = everywhere
    for candidates, support in _WHERE:
        while True:
            best, most, region = None, 0, 0
            wrong = [
                row for row, value in zip(rows, predicted, strict=True) if value != regions[row]
            ]
            of_predicted = _grouped(predicted)
            for literals in {c for row in wrong for c in candidates(row, places)}:
                having = _having(literals, places, len(rows))
                if having.bit_count() < support:
                    continue
                union = 0
                for value, members in of_region.items():
                    union |= value if members & having else 0
                gain = sum(
                    (value & ~union).bit_count() * (members & having).bit_count()
                    for value, members in of_predicted.items()
                    if value & ~union
                )
                if (gain, sorted(literals)) > (most, sorted(best or ())) and gain:
                    best, most, region = literals, gain, union
            if best is None:
                break
            for place in _bits(_having(best, places, len(rows))):
                predicted[place] &= region
            yield _line(head, best, region, base)
            base = base if best else region


def _grouped(values: Iterable[int]) -> dict[int, int]:
    """For each value the places that have it, as a set of bits."""
    groups: dict[int, int] = defaultdict(int)
    for place, value in enumerate(values):
        groups[value] |= 1 << place
    return groups


def never_rules(head: str, taken: Sequence[Literals], refused: Sequence[Literals]) -> Iterator[str]:
    """What is taken nowhere, among instructions of one first word."""
    good = _places_of(taken)
    bad = _places_of(refused)
    left = (1 << len(refused)) - 1
    for candidates, support in _NEVER:
        while True:
            best, most = None, support - 1
            for literals in {c for place in _bits(left) for c in candidates(refused[place], good)}:
                closed = _closed(literals, good, len(taken))
                if closed is None:
                    continue
                count = (_having(closed, bad, len(refused)) & left).bit_count()
                if count > most and not _having(closed, good, len(taken)):
                    best, most = closed, count
            if best is None:
                break
            left &= ~_having(best, bad, len(refused))
            yield _line(head, best, 0, 0)


def _places_of(rows: Sequence[Literals]) -> dict[str, int]:
    """For each feature the rows that have it, as a set of bits."""
    places: dict[str, int] = defaultdict(int)
    for place, row in enumerate(rows):
        for feature in row:
            places[feature] |= 1 << place
            if _is_operand(feature) and not feature.endswith("?"):
                places["#" if feature[0] == "#" else feature.partition("=")[0] + "="] |= 1 << place
    return places


def _having(literals: Literals, places: Mapping[str, int], count: int) -> int:
    rows = (1 << count) - 1
    for literal in literals:
        what, closed, classes = literal.partition("!")
        absent = literal[0] == "-"
        has = places.get(literal[absent:], 0)
        if closed:
            sign = "" if what == "#" else "="
            has = places.get(f"{what}{sign}", 0)
            for word in classes.split("/"):
                has &= ~places.get(f"{what}{sign}{word}", 0)
        rows &= ~has if absent else has
    return rows


def _closed(literals: Literals, good: Mapping[str, int], count: int) -> Literals | None:
    """The literals, with `1!` and `#!` closed: any class or number that was not measured as taken.

    None if too few instructions that have the literals were measured as taken.
    """
    open_one = next((literal for literal in literals if literal[-1] == "!"), None)
    if open_one is None:
        return literals
    rows = _having(literals - {open_one}, good, count)
    prefix = open_one[:-1] if open_one[0] == "#" else open_one[:-1] + "="
    classes = {
        feature.removeprefix(prefix): members & rows
        for feature, members in good.items()
        if feature.startswith(prefix) and feature != prefix and members & rows
    }
    if sum(members.bit_count() for members in classes.values()) < _FEWEST:
        return None
    return (literals - {open_one}) | {open_one + "/".join(sorted(classes))}


def _bits(rows: int) -> Iterator[int]:
    while rows:
        low = rows & -rows
        yield low.bit_length() - 1
        rows ^= low


def _absent(row: Literals, good: Mapping[str, int]) -> list[str]:
    """The literals of modifiers that the row lacks."""
    return [f"-{x}" for x in good if x not in row and not _is_operand(x)]


def _is_operand(literal: str) -> bool:
    return literal[0] == "#" or "=" in literal


def _none(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset()]


def _modifier(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in row if not _is_operand(x)]


def _missing(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _absent(row, known)]


def _two(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    judged = [x for x in row if not x.endswith("?")]
    return map(frozenset, itertools.combinations(judged, 2))


def _places_in(row: Literals) -> list[str]:
    return [f"{x.partition('=')[0]}!" for x in row if "=" in x] + ["#!"]


def _closed_place(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _places_in(row)]


def _closed_with(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x, y}) for x in _places_in(row) for y in row if not _is_operand(y)]


def _closed_with_two(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    pairs = itertools.combinations([y for y in row if not _is_operand(y)], 2)
    return [frozenset({x, *pair}) for pair in pairs for x in _places_in(row)]


def _two_modifiers(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return map(frozenset, itertools.combinations([x for x in row if not _is_operand(x)], 2))


def _modifier_missing(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    absent = _absent(row, known)
    return [frozenset({x, y}) for x in row if not _is_operand(x) for y in absent]


_FEWEST = 40
_WHERE = (
    (_none, 1),
    (_modifier, 1),
    (_missing, 3),
    (_two_modifiers, 3),
    (_modifier_missing, 4),
    (_two, 6),
)
_NEVER = (
    (_modifier, 2),
    (_missing, 2),
    (_closed_place, 2),
    (_two_modifiers, 3),
    (_closed_with, 3),
    (_modifier_missing, 3),
    (_closed_with_two, 3),
)
"""For each kind of rule its candidates in a row, and how many measured rows must have them."""


_TEXT = '''"""What ptxas refuses beyond the forms: measured with ptxas {versions}.

Written by `python -m benchmarks.reading.verdicts learn`; `opcodes.rules` has the notation. A first
word has rules only if the measured statements cover it densely (`benchmarks.reading.verdicts`).
"""

RULES = """
{lines}
"""
'''


def rules_text(versions: Sequence[str], lines: Sequence[str]) -> str:
    """The module with the rules."""
    return _TEXT.format(versions=", ".join(versions), lines="\n".join(lines))


# --- writing -------------------------------------------------------------------------------


def _line(head: str, literals: Literals, region: int, base: int) -> str:
    subject = " ".join([head, *sorted(literals, key=lambda x: (x[0] == "-", x))])
    words = f"{subject} | {' | '.join(_places(region, base))}".split()
    lines, line = [], words[0]
    for word in words[1:]:
        if len(line) + len(word) >= _WIDTH:
            lines.append(line)
            line = "   "
        line += " " + word
    return "\n".join([*lines, line])


def _places(region: int, base: int) -> Iterator[str]:
    """The columns of a rule, where only the pairs in `base` matter."""
    spans = {t: s for t in TARGETS if (s := _span(region & base, t)) is not None}
    least = {t: s[0] for t in TARGETS if (s := _span(base, t)) is not None}
    ends = {t: s[1] for t in TARGETS if (s := _span(base, t)) is not None}
    left = set(spans)
    while left:
        by_version: dict[tuple[Version, Version | None], set[str]] = defaultdict(set)
        for target in left:
            first, last = spans[target]
            end = None if last == ends[target] else last
            for version in {spans[other][0] for other in left}:
                if max(version, least[target]) == first:
                    by_version[version, end].add(target)
        (version, end), names = max(
            by_version.items(), key=lambda item: (len(item[1]), [-x for x in item[0][0]])
        )
        until = f"-{spell(end)}" if end else ""
        yield " ".join([spell(version) + until, *_target_words(names, set(least))])
        left -= names


def _span(region: int, target: str) -> Span | None:
    taken = [v for v in VERSIONS if v >= TARGETS[target] and region & _BIT[target, v]]
    return (taken[0], taken[-1]) if taken else None


def _target_words(names: set[str], matter: set[str]) -> list[str]:
    """The fewest words for targets; those that do not matter may be in or out."""
    if names == matter:
        return []
    words: list[str] = []
    left = set(names)
    wide = [f"{t}+" for t in TARGETS if t[-1].isdigit()] + [f"{t}+" for t in TARGETS if "f" in t]
    while left:
        fitting = [w for w in wide if targets_of(w) & matter <= names and targets_of(w) & left]
        best = max(fitting, key=lambda w: len(targets_of(w) & left), default=None)
        if best is None or len(targets_of(best) & left) < 2:
            return [*words, *sorted(left, key=list(TARGETS).index)]
        words.append(best)
        left -= targets_of(best)
    return words
