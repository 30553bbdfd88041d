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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from benchmarks.reading.regions import Literals


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
        wrong = [row for row, value in zip(rows, predicted, strict=True) if value & ~regions[row]]
        of_predicted = _grouped(predicted)
        found: dict[Literals, tuple[int, int]] = {}
        queue = []
        for literals in {c for row in wrong for c in candidates(row, places)}:
            having = _having(literals, places, len(rows))
            if having.bit_count() >= support:
                union = 0
                for value, members in of_region.items():
                    union |= value if members & having else 0
                gain = _gain(of_predicted, having, union)
                if gain:
                    found[literals] = having, union
                    queue.append((-gain, sorted(literals)))
        heapq.heapify(queue)
        while queue:
            said, words = heapq.heappop(queue)
            having, union = found[frozenset(words)]
            gain = _gain(of_predicted, having, union)
            if gain and gain == -said:
                before = 0
                for place in _bits(having):
                    before |= predicted[place]
                    predicted[place] &= union
                of_predicted = _grouped(predicted)
                yield frozenset(words), union, before
            elif gain:  # rules before it narrow some of its rows
                heapq.heappush(queue, (-gain, words))


def _gain(predicted: Mapping[int, int], having: int, union: int) -> int:
    """How many pairs of some rows a rule takes away."""
    return sum(
        (value & ~union).bit_count() * (members & having).bit_count()
        for value, members in predicted.items()
        if value & ~union and members & having
    )


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
            filled = _filled(literals, good, bad, (len(taken), len(refused)))
            if filled is None or _is_thin(filled, good, len(taken)):
                continue
            if not _having(filled, good, len(taken)):
                covers[filled] = _having(filled, bad, len(refused))
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
        absent = literal[0] == "-"
        what, one_of, classes = literal[absent:].partition("=")
        has = places.get(literal[absent:], 0)
        for word in classes.split("/") if one_of else ():
            has |= places.get(f"#{word}" if what == "#" else f"{what}={word}", 0)
        rows &= ~has if absent else has
    return rows


def holds(literals: Literals, row: Literals) -> bool:
    """Whether a row of features has all literals."""
    return bool(_having(literals, _places_of([row]), 1))


def _filled(
    literals: Literals, good: Mapping[str, int], bad: Mapping[str, int], counts: tuple[int, int]
) -> Literals | None:
    """The literals, with `1!` and `#!` filled in: classes or numbers that only refused rows have.

    None if there are none, or if too few rows show what is taken.
    """
    open_one = next((literal for literal in literals if literal[-1] == "!"), None)
    if open_one is None:
        return literals
    others = literals - {open_one}
    taken, refused = _having(others, good, counts[0]), _having(others, bad, counts[1])
    prefix = open_one[:-1] if open_one[0] == "#" else open_one[:-1] + "="
    words = [
        feature.removeprefix(prefix)
        for feature, members in bad.items()
        if feature.startswith(prefix) and members & refused and not good.get(feature, 0) & taken
    ]
    words = sorted(w for w in words if w and "?" not in w and (w[0] != "%" or w == "%"))
    if not words or (taken & good.get(prefix, 0)).bit_count() < _FEWEST:
        return None
    return others | {f"{prefix.rstrip('=')}={'/'.join(words)}"}


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


def _one_place(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x}) for x in _places_in(row)]


def _place_with(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    return [frozenset({x, y}) for x in _places_in(row) for y in _modifiers_in(row)]


def _place_by_count(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
    count = next(x for x in row if x[0] == "#")
    return [frozenset({x, count}) for x in _places_in(row)[:-1]]


def _place_with_two(row: Literals, known: Mapping[str, int]) -> Iterable[Literals]:
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
    (_missing, 4),
    (_operand, 4),
    (_two_modifiers, 3),
    (_modifier_missing, 5),
    (_two, 6),
)
_NEVER: tuple[tuple[_Candidates, int], ...] = (
    (_none, 4),
    (_modifier, 2),
    (_missing, 3),
    (_one_place, 2),
    (_two_modifiers, 3),
    (_place_with, 3),
    (_modifier_missing, 4),
    (_place_by_count, 3),
    (_place_with_two, 4),
)
"""For each kind of rule its candidates in a row, and how many measured rows must have them."""
