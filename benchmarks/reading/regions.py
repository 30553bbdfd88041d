"""What rules allow, as sets of bits while they are sought, and as the text that is kept.

In: spans of versions by target, constants, rules. Out: bits, columns and lines in the notation of
`tessera.ir.opcodes.rules`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

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


def rule_line(name: tuple[str, ...], rule: FoundRule) -> str:
    """The rule as it is read, on one line."""
    return _written(".".join(name), *rule)


def _written(names: str, literals: Literals, columns: str) -> str:
    written = " ".join(sorted(literals, key=lambda x: (x[0] == "-", x)))
    return " ".join(f"{names} | {written} | {columns}".split())


def _line(names: str, literals: Literals, columns: str) -> str:
    words = _written(names, literals, columns).split(" ")
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
