"""Measure statements and find rules: where they are taken, with which constants, what never is.

In: statements that some target takes, and statements that none takes and that Tessera does not
refuse. Out: rules by name. Each rule is tested with statements that it holds for and that were not
measured yet; what these show goes into the next turn.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from benchmarks.reading.learn import (
    VALUES,
    FoundRule,
    Literals,
    holds,
    never_rules,
    places_columns,
    region_by_needs,
    region_of,
    value_bits,
    values_column,
    where_rules,
)
from benchmarks.reading.measure import MEASURED_TARGETS, Span, spans_on, versions_of
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.statements import INTEGER, features, name_of, opcode_of, split_operands
from tessera.ir.opcodes.form_table import FoundForm, find_form
from tessera.ir.opcodes.targets import Needs
from tessera.ir.ptx import syntax as ptx

PROBES = (("sm_107a", "9.4"), ("sm_100a", "9.4"), ("sm_90a", "9.4"), ("sm_120a", "9.4"))
OLD_PROBES = (("sm_72", "6.1"), ("sm_60", "6.0"), ("sm_20", "2.3"))
PER_SHAPE = 2
CHALLENGES = 60
ROUNDS = 3
PER_PLACE = 60
PER_RULE = 4
_EXTREMES = (-1, 0, 77, 2**16)
# Their operands name textures, which these statements cannot.
NOT_MEASURED = frozenset({"istypep", "suld", "suq", "sured", "sust", "tex", "tld4", "txq"})

Rules = dict[tuple[str, ...], list[FoundRule]]


def taken_somewhere(oracle: Oracle, statements: Sequence[str]) -> dict[str, str | None]:
    """For each statement None if a target takes it, else what the newest says against it."""
    said: dict[str, str | None] = dict.fromkeys(statements, "")
    for target, version in (*PROBES, *OLD_PROBES):
        left = [text for text in said if said[text] is not None]
        for text, against in (oracle.ask(left, target, version) or {}).items():
            said[text] = against if against is None else said[text] or against
    return said


def to_measure(taken: Sequence[str]) -> list[str]:
    """One statement of each opcode, and a few of each shape of operands."""
    of_opcode: dict[str, str] = {}
    shapes: Counter[tuple[str, ...]] = Counter()
    chosen: dict[str, None] = {}
    for text in taken:
        of_opcode.setdefault(opcode_of(text), text)
        shape = [x for x in features(text) if x[0] == "#" or "=" in x]
        key = (*name_of(text), *sorted(shape))
        shapes[key] += 1
        if shapes[key] <= PER_SHAPE:
            chosen[text] = None
    return list(dict.fromkeys([*of_opcode.values(), *chosen]))


def find_where(
    oracles: Sequence[Oracle], taken: Sequence[str], missed: Sequence[str], rng: random.Random
) -> Rules:
    """From which version on and on which targets statements are taken."""
    statements = to_measure(taken)
    rules: Rules = {}
    for turn in range(ROUNDS):
        regions, allowed = _regions(oracles, statements)
        rules = {
            name: [
                (literals, places_columns(region, before))
                for literals, region, before in where_rules(regions[name], allowed[name])
            ]
            for name in regions
        }
        more = _others(rules, taken, set(statements), rng) if turn < ROUNDS - 1 else []
        print(f"{len(statements)} measured, {sum(map(len, rules.values()))} rules", flush=True)
        if not more:
            break
        statements += more
    return rules


Regions = dict[tuple[str, ...], dict[Literals, int]]


def _regions(oracles: Sequence[Oracle], statements: Sequence[str]) -> tuple[Regions, Regions]:
    """Where the statements of each name are taken, and where the forms allow them."""
    spans: dict[str, dict[str, Span]] = defaultdict(dict)
    everywhere = 0

    def measure(target: str) -> tuple[str, dict[str, Span] | None]:
        return target, spans_on(oracles, statements, target)

    with ThreadPoolExecutor(2) as pool:
        for target, measured in pool.map(measure, MEASURED_TARGETS):
            if measured is None:
                continue
            versions = versions_of(target)
            everywhere |= region_of({target: (versions[0], versions[-1])})
            for text, span in measured.items():
                spans[text][target] = span
    regions: Regions = defaultdict(lambda: defaultdict(int))
    allowed: Regions = defaultdict(lambda: defaultdict(int))
    for text in statements:
        name, row = name_of(text), features(text)
        region = region_of(spans[text]) if text in spans else everywhere  # only old versions had it
        regions[name][row] |= region
        allowed[name][row] |= everywhere & _allowed(text)
    return regions, allowed


def _others(
    rules: Rules, taken: Sequence[str], measured: set[str], rng: random.Random
) -> list[str]:
    """A few statements that each rule holds for and that were not measured."""
    texts: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text in taken:
        if text not in measured:
            texts[name_of(text)].append(text)
    more: dict[str, None] = {}
    for name, found in rules.items():
        for literals, _ in found:
            known = [text for text in texts[name] if holds(literals, features(text))]
            more |= dict.fromkeys(rng.sample(known, min(len(known), PER_RULE)))
    return list(more)


@cache
def _region_by_needs(needs: Needs) -> int:
    return region_by_needs(needs)


def _allowed(statement: str) -> int:
    """The pairs of target and version that the forms allow a statement."""
    name, *modifiers = opcode_of(statement).split(".")
    form = find_form(ptx.Opcode(name, tuple(modifiers)), False)
    return (
        _region_by_needs(form.needs) if isinstance(form, FoundForm) else _region_by_needs(Needs())
    )


def find_values(
    oracles: Sequence[Oracle], taken: Sequence[str], missed: Sequence[str], rng: random.Random
) -> Rules:
    """The constants that operands may be."""
    oracle = oracles[0]
    chosen: dict[tuple[tuple[str, ...], int], dict[Literals, str]] = defaultdict(dict)
    for text in taken:
        for place, operand in enumerate(split_operands(text)):
            if INTEGER.fullmatch(operand):
                chosen[name_of(text), place].setdefault(features(text), text)
    picked = {
        (name, place): rng.sample(list(rows.values()), min(len(rows), PER_PLACE))
        for (name, place), rows in chosen.items()
    }
    rules: Rules = {}
    for _ in range(ROUNDS):
        keys = [(text, place) for (_, place), texts in picked.items() for text in texts]
        at_first = _taken_values(oracle, keys, _EXTREMES)
        limited = [key for key, values in at_first.items() if len(values) < len(_EXTREMES)]
        limited += [(_with_others(text, place), place) for text, place in limited]
        taken_by = _taken_values(oracle, list(dict.fromkeys(limited)), VALUES)
        rules, more = defaultdict(list), False
        for (name, place), texts in picked.items():
            measured: dict[Literals, int] = defaultdict(int)
            for text in texts:
                other = taken_by.get((_with_others(text, place), place), [])
                bits = value_bits(taken_by.get((text, place), VALUES)) | value_bits(other)
                measured[features(text)] |= bits
            allowed = dict.fromkeys(measured, value_bits(VALUES))
            left = [text for text in chosen[name, place].values() if text not in texts]
            for literals, bits, _before in where_rules(measured, allowed):
                column = values_column(place, bits)
                if column is not None:
                    rules[name].append((literals, column))
                    others = [text for text in left if holds(literals, features(text))]
                    texts += rng.sample(others, min(len(others), PER_RULE))
                    more |= bool(others)
        if not more:
            break
    return rules


def _with_others(statement: str, place: int) -> str:
    """The statement with 16 for its other constants: a size may limit an offset."""
    operands = [
        "16" if INTEGER.fullmatch(operand) and index != place else operand
        for index, operand in enumerate(split_operands(statement))
    ]
    return f"{opcode_of(statement)} {', '.join(operands)};"


def _taken_values(
    oracle: Oracle, places: Sequence[tuple[str, int]], values: Sequence[int]
) -> dict[tuple[str, int], list[int]]:
    """For each statement and place of an operand, the constants that it takes there."""
    texts = {}
    for statement, place in places:
        operands = split_operands(statement)
        for value in values:
            operands[place] = str(value)
            texts[statement, place, value] = f"{opcode_of(statement)} {', '.join(operands)};"
    taken: dict[tuple[str, int], list[int]] = {key: [] for key in places}
    left = dict.fromkeys(statement for statement, _ in places)
    for probe in (*PROBES, *OLD_PROBES):
        answers = oracle.ask(list(left), *probe) or {}
        here = {text for text, said in answers.items() if said is None}
        left = {text: None for text in left if text not in here}
        asked = {key: text for key, text in texts.items() if key[0] in here}
        said = oracle.ask(list(asked.values()), *probe) or {}
        for (statement, place, value), text in asked.items():
            if said[text] is None:
                taken[statement, place].append(value)
    return taken


def find_never(
    oracles: Sequence[Oracle], taken: Sequence[str], missed: Sequence[str], rng: random.Random
) -> Rules:
    """What is taken nowhere; each rule stands until a statement made to break it is taken."""
    good, bad = list(taken), _by_name(missed)
    tested: set[tuple[tuple[str, ...], Literals]] = set()
    rules: Rules = {}
    for _ in range(ROUNDS):
        rows, near = _by_name(good), Neighbours(good)
        texts: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for text in good:
            texts[name_of(text)].append(text)
            texts[name_of(text)[:1]].append(text)
        for name, faults in sorted(bad.items()):
            ordered = sorted(rows[name], key=sorted), sorted(faults - rows[name], key=sorted)
            rules[name] = [(literals, "") for literals in never_rules(*ordered)]
        made: dict[str, None] = {}
        for name, found in rules.items():
            for literals, _column in found:
                if (name, literals) in tested:
                    continue
                tested.add((name, literals))
                made |= dict.fromkeys(_against(near, texts, name, literals, rng))
        said = taken_somewhere(oracles[0], list(made))
        wrong = [text for text in made if said[text] is None]
        print(f"{len(made)} challenges, {len(wrong)} taken", flush=True)
        if not wrong:
            return rules
        good += wrong
    rows = _by_name(good)  # rules that the last turn has shown to be wrong go
    return {
        name: [rule for rule in found if not any(holds(rule[0], row) for row in rows[name])]
        for name, found in rules.items()
    }


def _against(
    near: Neighbours,
    texts: dict[tuple[str, ...], list[str]],
    name: tuple[str, ...],
    literals: Literals,
    rng: random.Random,
) -> Iterator[str]:
    """Statements that a rule holds for, made from statements that are taken."""
    plain = frozenset(x for x in literals if "!" not in x)
    places = [int(x.partition("!")[0]) for x in literals if "!" in x and x[0] != "#"]
    least = max(places, default=-1)
    bases = [text for text in texts[name] if holds(plain, features(text))] or texts[name]
    bases = [text for text in bases if len(split_operands(text)) > least] or bases
    bases = bases or texts[name[:1]] or near.statements
    for _ in range(CHALLENGES):
        text = near.forced(rng.choice(bases), literals, rng)
        if name_of(text) == name and holds(literals, features(text)):
            yield text


def _by_name(statements: Sequence[str]) -> dict[tuple[str, ...], set[Literals]]:
    rows: dict[tuple[str, ...], set[Literals]] = defaultdict(set)
    for text in statements:
        rows[name_of(text)].add(features(text))
    return rows
