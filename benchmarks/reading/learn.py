"""Find few rules that say what ptxas refuses, and where it takes the rest.

In: measured instructions of one name, by their features. Out: rules: literals in the notation of
`tessera.ir.opcodes.rules`, and columns. A rule is a set of literals with the union of where the
measured instructions that have them are taken, or of the constants that these take; so no rule
refuses what was measured as taken. Rules of few literals come first, and among these the rule that
explains the most; a rule is kept if it refuses something that the rules before it do not.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from benchmarks.reading.measure import Span, spell
from tessera.ir.opcodes.rules import targets_of
from tessera.ir.opcodes.targets import TARGETS, VERSIONS, Needs, Version

PAIRS = [(t, v) for t, since in TARGETS.items() for v in VERSIONS if v >= since]
_BIT = {pair: 1 << place for place, pair in enumerate(PAIRS)}
_WIDTH = 100
Literals = frozenset[str]
FoundRule = tuple[Literals, str]
"""The literals of a rule, and its columns."""
VALUES = (*range(18), 20, 24, 25, 26, 28, 31, 32, 33, 36, 40, 48, 63, 64, 65, 68, 80, 96, 100)
VALUES = (*VALUES, 127, 128, 129, 132, 136, 144, 192, 240, 250, 252, 255, 256, 257, 264, 511, 512)
VALUES = (*VALUES, 513, 1023, 1024, 1025, 4096, 2**16 - 1, 2**16, 2**16 + 16, 2**20, 2**20 + 16)
VALUES = (*VALUES, -1, -2, -32, 2**31 - 1, 2**31, 2**32 - 1)
"""Constants that are tried."""


def region_of(spans: Mapping[str, Span]) -> int:
    """The pairs of target and version in the spans of each target, as a set of bits."""
    region = 0
    for target, (first, last) in spans.items():
        for version in VERSIONS:
            if first <= version <= last:
                region |= _BIT.get((target, version), 0)
    return region


def region_by_needs(needs: Needs) -> int:
    """The pairs that the requirements of a form allow."""
    return sum(bit for (target, version), bit in _BIT.items() if not needs.missing(version, target))


def value_bits(values: Collection[int]) -> int:
    """Constants as a set of bits."""
    return sum(1 << place for place, value in enumerate(VALUES) if value in values)


def where_rules(
    regions: Mapping[Literals, int], allowed: Mapping[Literals, int]
) -> Iterator[tuple[Literals, int, int]]:
    """Rules that narrow what is allowed down to the regions where instructions are taken.

    Each with its region, and with what was allowed before it to the instructions it holds for.
    """
    rows = list(regions)
    places = _places_of(rows)
    of_region = _grouped(regions[row] for row in rows)
    predicted = [allowed[row] for row in rows]
    for candidates, support in _WHERE:
        while True:
            best, most, region = None, 0, 0
            wrong = [
                row for row, value in zip(rows, predicted, strict=True) if value & ~regions[row]
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
            before = 0
            for place in _bits(_having(best, places, len(rows))):
                before |= predicted[place]
                predicted[place] &= region
            yield best, region, before


def _grouped(values: Iterable[int]) -> dict[int, int]:
    """For each value the places that have it, as a set of bits."""
    groups: dict[int, int] = defaultdict(int)
    for place, value in enumerate(values):
        groups[value] |= 1 << place
    return groups


def never_rules(taken: Sequence[Literals], refused: Sequence[Literals]) -> Iterator[Literals]:
    """What is taken nowhere, among instructions of one name."""
    good, bad = _places_of(taken), _places_of(refused)
    left = (1 << len(refused)) - 1
    for candidates, support in _NEVER:
        covers: dict[Literals, int] = {}
        for literals in {c for place in _bits(left) for c in candidates(refused[place], good)}:
            closed = _closed(literals, good, len(taken))
            if closed is None or _is_thin(closed, good, len(taken)):
                continue
            if not _having(closed, good, len(taken)):
                covers[closed] = _having(closed, bad, len(refused))
        queue = [(-having.bit_count(), sorted(literals)) for literals, having in covers.items()]
        heapq.heapify(queue)
        while queue and -queue[0][0] >= support:
            count, words = heapq.heappop(queue)
            having = covers[frozenset(words)] & left
            if having.bit_count() == -count:
                left &= ~having
                yield frozenset(words)
            else:  # rules before it refuse some of its rows
                heapq.heappush(queue, (-having.bit_count(), words))


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


def holds(literals: Literals, row: Literals) -> bool:
    """Whether a row of features has all literals."""
    return bool(_having(literals, _places_of([row]), 1))


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
        if "?" not in feature and not feature.startswith(f"{prefix}%")
    }
    if any(f"{prefix}%" == feature and members & rows for feature, members in good.items()):
        classes["%"] = good[f"{prefix}%"] & rows
    if sum(members.bit_count() for members in classes.values()) < _FEWEST:
        return None
    return (literals - {open_one}) | {open_one + "/".join(sorted(classes))}


def _is_thin(literals: Literals, good: Mapping[str, int], count: int) -> bool:
    """Whether few instructions show that a modifier must not be missing."""
    plain = frozenset(x for x in literals if x[0] != "-")
    return plain != literals and _having(plain, good, count).bit_count() < _FEWEST


def _bits(rows: int) -> Iterator[int]:
    while rows:
        low = rows & -rows
        yield low.bit_length() - 1
        rows ^= low


# --- candidates ----------------------------------------------------------------------------


def _absent(row: Literals, good: Mapping[str, int]) -> list[str]:
    """The literals of modifiers that the row lacks."""
    return [f"-{x}" for x in good if x not in row and not _is_operand(x)]


def _is_operand(literal: str) -> bool:
    return literal[0] == "#" or "=" in literal


def _modifiers_in(row: Literals) -> list[str]:
    return [x for x in row if not _is_operand(x)]


def _places_in(row: Literals) -> list[str]:
    return [f"{x.partition('=')[0]}!" for x in row if "=" in x] + ["#!"]


def _none(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset()]


def _modifier(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _modifiers_in(row)]


def _missing(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _absent(row, known)]


def _operand(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in row if _is_operand(x) and not x.endswith("?")]


def _two(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    judged = [x for x in row if not x.endswith("?")]
    return map(frozenset, itertools.combinations(judged, 2))


def _closed_place(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _places_in(row)]


def _closed_with(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x, y}) for x in _places_in(row) for y in _modifiers_in(row)]


def _closed_by_count(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    count = next(x for x in row if x[0] == "#")
    return [frozenset({x, count}) for x in _places_in(row)[:-1]]


def _closed_with_two(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    pairs = itertools.combinations(_modifiers_in(row), 2)
    return [frozenset({x, *pair}) for pair in pairs for x in _places_in(row)]


def _two_modifiers(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return map(frozenset, itertools.combinations(_modifiers_in(row), 2))


def _modifier_missing(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    absent = _absent(row, known)
    return [frozenset({x, y}) for x in _modifiers_in(row) for y in absent]


_Candidates = Callable[[Literals, Mapping[str, int]], Iterable[Literals]]
_FEWEST = 16
_WHERE: tuple[tuple[_Candidates, int], ...] = (
    (_none, 1),
    (_modifier, 1),
    (_missing, 3),
    (_operand, 2),
    (_two_modifiers, 2),
    (_modifier_missing, 3),
    (_two, 3),
)
_NEVER: tuple[tuple[_Candidates, int], ...] = (
    (_none, 4),
    (_modifier, 2),
    (_missing, 3),
    (_closed_place, 2),
    (_two_modifiers, 3),
    (_closed_with, 3),
    (_modifier_missing, 4),
    (_closed_by_count, 3),
    (_closed_with_two, 4),
)
"""For each kind of rule its candidates in a row, and how many measured rows must have them."""


# --- writing -------------------------------------------------------------------------------


_TEXT = '''"""What ptxas refuses beyond the forms: measured with ptxas {versions}.

Written by `python -m benchmarks.reading.verdicts learn`; `opcodes.rules` has the notation.
Longer than 400 lines because it is one table.
"""

RULES = """
{lines}
"""
'''


def rules_text(versions: Sequence[str], rules: Mapping[str, Sequence[FoundRule]]) -> str:
    """The module with the rules of each name; a rule that several names have is written once."""
    names: dict[FoundRule, list[str]] = defaultdict(list)
    for name in sorted(rules):
        for rule in rules[name]:
            names[rule].append(name)
    lines = [_line(" ".join(having), *rule) for rule, having in names.items()]
    return _TEXT.format(versions=", ".join(versions), lines="\n".join(lines))


def _line(names: str, literals: Literals, columns: str) -> str:
    written = " ".join(sorted(literals, key=lambda x: (x[0] == "-", x)))
    words = " ".join(f"{names} | {written} | {columns}".split()).split(" ")
    lines, line = [], words[0]
    for word in words[1:]:
        if len(line) + len(word) >= _WIDTH:
            lines.append(line)
            line = "   "
        line += " " + word
    return "\n".join([*lines, line])


def values_column(operand: int, bits: int) -> str | None:
    """The column for the constants that an operand may be; None if few constants are refused."""
    taken = sorted(value for place, value in enumerate(VALUES) if bits >> place & 1)
    if not taken or taken[0] == min(VALUES):
        return None
    for step in (1, 2, 4, 8, 16, 32, 64):
        within = range(taken[0], taken[-1] + 1, step)
        if taken == sorted(filter(within.__contains__, VALUES)) and len(taken) > 2:
            # The first constant that is refused bounds the range, as far as constants were tried.
            beyond = [v for v in VALUES if v > taken[-1] and (v - taken[-1]) % step == 0]
            end = min(beyond) - step if beyond else ""
            return f"{operand}:{taken[0]}..{end}" + f"/{step}" * (step > 1)
    is_list = len(taken) < 10 and taken[-1] <= 1024
    return f"{operand}:{','.join(map(str, taken))}" if is_list else None


def places_columns(region: int, base: int) -> str:
    """The columns of a rule, where only the pairs in `base` matter."""
    return " | ".join(_columns(region, base))


def _columns(region: int, base: int) -> Iterator[str]:
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
