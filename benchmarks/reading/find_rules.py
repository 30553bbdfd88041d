"""Measure statements and find rules: where they are taken, with which constants, what never is.

In: statements that some target takes, and statements that none takes and that Tessera does not
refuse. Out: rules by name. Every rule is tested with statements made for it, and all rules together
with neighbours of what is taken: at the places where Tessera begins to refuse them, ptxas must
refuse them too. What it takes there is measured, and the rules of these names are found again.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from benchmarks.reading.judge import processor_seconds
from benchmarks.reading.learn import holds, never_rules, where_rules
from benchmarks.reading.measure import MEASURED_TARGETS, spans_on, spell, versions_of
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.ours import allowed, edges, install, is_refused, tessera_says
from benchmarks.reading.regions import (
    VALUES,
    FoundRule,
    Literals,
    places_columns,
    region_by_needs,
    region_of,
    rule_line,
    value_bits,
    values_column,
)
from benchmarks.reading.statements import INTEGER, features, name_of, opcode_of, split_operands
from tessera.ir.opcodes.rules import ValueRange, read_rule
from tessera.ir.opcodes.targets import read_version

PROBES = (("sm_107a", "9.4"), ("sm_100a", "9.4"), ("sm_90a", "9.4"), ("sm_120a", "9.4"))
OLD_PROBES = (("sm_72", "6.1"), ("sm_60", "6.0"), ("sm_20", "2.3"))
TURNS = 5
CHALLENGES = 25
NEIGHBOURS = 10_000
PER_PLACE = 40
LONGEST = 300
_EXTREMES = (-1, 0, 77, 2**16)

FEW_SHAPES = frozenset({"wgmma"})
"""How many registers these have follows from shape and type, which few statements show."""

Name = tuple[str, ...]
Rules = dict[Name, list[FoundRule]]
Pair = tuple[str, str]


def taken_somewhere(oracle: Oracle, statements: Sequence[str]) -> dict[str, str | None]:
    """For each statement None if a target takes it, else what the newest says against it."""
    said: dict[str, str | None] = dict.fromkeys(statements, "")
    for target, version in (*PROBES, *OLD_PROBES):
        left = [text for text in said if said[text] is not None]
        for text, against in (oracle.ask(left, target, version) or {}).items():
            said[text] = against if against is None else said[text] or against
    return said


class Finder:
    """What is known of ptxas, by name, and the rules that follow from it.

    Statements in `regions` were measured on every target; of those in `partial` some places are
    known where they are taken.
    """

    def __init__(
        self,
        oracles: Sequence[Oracle],
        taken: Sequence[str],
        refused: Sequence[str],
        seed: int,
        until: float,
    ) -> None:
        self.until = until
        self.oracles = oracles
        self.rng = random.Random(seed)
        self.taken: dict[Name, dict[str, None]] = defaultdict(dict)
        self.refused: dict[Name, set[Literals]] = defaultdict(set)
        self.rules: Rules = {}
        self.everywhere = 0
        self.regions: dict[str, int] = {}
        self.partial: dict[str, int] = defaultdict(int)
        self.tested: set[tuple[Name, FoundRule]] = set()
        self.surprises: dict[str, Pair] = {}
        self.measure(taken)
        for text in refused:
            self.refused[name_of(text)].add(features(text))

    def measure(self, statements: Sequence[str]) -> None:
        """Measure where statements are taken, on every target."""
        for text in statements:
            self.taken[name_of(text)][text] = None
            self.regions[text] = 0
        for target in MEASURED_TARGETS:
            measured = spans_on(self.oracles, statements, target)
            if measured is None:
                continue
            versions = versions_of(target)
            self.everywhere |= region_of({target: (versions[0], versions[-1])})
            for text, span in measured.items():
                self.regions[text] |= region_of({target: span})
        for text in statements:  # only versions that few targets have took it
            self.regions[text] = self.regions[text] or self.everywhere

    def remember(self, taken: Iterable[tuple[str, str, str]]) -> None:
        """Add statements, each with a place where it is taken, and so in later versions."""
        for text, target, version in taken:
            if text not in self.regions:
                self.partial[text] |= _from(target, version)
        for text in self.partial:
            self.taken[name_of(text)][text] = None

    def find(self) -> Rules:
        """The rules of all names."""
        stale = set(self.taken) | set(self.refused)
        seen: dict[str, Pair] = {}
        for turn in range(TURNS):
            self.find_for(stale)
            wrong = self.wrongly_refused()
            print(f"turn {turn}: {sum(map(len, self.rules.values()))} rules, ", end="")
            print(f"{len(wrong)} statements refused wrongly", flush=True)
            self.remember((text, *pair) for text, pair in wrong.items())
            stale, self.surprises = {name_of(text) for text in wrong}, wrong
            seen |= wrong
            if not wrong or processor_seconds() > self.until:
                break
        self.find_for(stale)
        self.install()
        for text, pair in seen.items():
            if is_refused(text, *pair) or tessera_says(text, *pair) is not None:
                print(f"refused by a form: {pair} {text}")
        return self.rules

    def find_for(self, names: Iterable[Name]) -> None:
        """Find the rules of some names."""
        for name in sorted(names):
            self.rules[name] = [*self.where(name), *self.values(name), *self.never(name)]

    def install(self) -> None:
        """Have Tessera judge by these rules."""
        install({name: [rule_line(name, r) for r in found] for name, found in self.rules.items()})

    def wrongly_refused(self) -> dict[str, Pair]:
        """Statements that ptxas takes and Tessera refuses, each with one place."""
        self.install()
        texts = {name: list(group) for name, group in self.taken.items()}
        near = Neighbours([text for group in texts.values() for text in group])
        made = dict.fromkeys(self.against_all(near, texts))
        made |= dict.fromkeys(near.draw(self.rng, operands=True) for _ in range(NEIGHBOURS))
        for text in self.surprises:
            made |= dict.fromkeys(near.changed(text, self.rng, operands=True) for _ in range(10))
        asked: dict[Pair, list[str]] = defaultdict(list)
        for text in made:
            for target, version in edges(text, self.rng, 4) if text not in self.regions else ():
                asked[target, spell(version)].append(text)
        found: dict[str, Pair] = {}
        for pair in sorted(asked):
            for text, said in (self.oracles[0].ask(asked[pair], *pair) or {}).items():
                if said is None:
                    found[text] = pair
        print(f"{len(made)} asked at {sum(map(len, asked.values()))} edges, ", end="")
        return found

    def against_all(self, near: Neighbours, texts: dict[Name, list[str]]) -> Iterator[str]:
        """Statements made to break each rule that was not tested before."""
        for name, found in sorted(self.rules.items()):
            for rule in found:
                if (name, rule) not in self.tested:
                    self.tested.add((name, rule))
                    yield from self.against(near, texts, name, rule)

    def against(
        self, near: Neighbours, texts: dict[Name, list[str]], name: Name, rule: FoundRule
    ) -> Iterator[str]:
        """Statements that a rule holds for, made from statements that are taken."""
        literals, column = rule
        limit = read_rule(f"x | | {column}").values
        plain = frozenset(x for x in literals if "=" not in x)
        places = [int(x.partition("=")[0]) for x in literals if x[0].isdigit() and "=" in x]
        least = max(places, default=-1)
        bases = [text for text in texts.get(name, ()) if holds(plain, features(text))]
        bases = bases or texts.get(name) or texts.get(name[:1]) or near.statements
        bases = [text for text in bases if len(split_operands(text)) > least] or bases
        for _ in range(CHALLENGES):
            text = near.forced(self.rng.choice(bases), literals, self.rng)
            if self.rng.random() < 0.5:
                text = near.changed(text, self.rng, operands=limit is None)
            if limit is not None:
                text = _beyond(text, limit, self.rng)
            if name_of(text) == name and holds(literals, features(text)):
                yield text

    # --- the three kinds of rules ---------------------------------------------------------

    def where(self, name: Name) -> Iterator[FoundRule]:
        """From which version on and on which targets statements are taken."""
        regions: dict[Literals, int] = defaultdict(int)
        may: dict[Literals, int] = defaultdict(int)
        for text in self.taken[name]:
            row = features(text)
            regions[row] |= self.regions.get(text, 0) | self.partial.get(text, 0)
            is_measured = text in self.regions
            form = region_by_needs(allowed(text)) if is_measured else self.partial[text]
            may[row] |= self.everywhere & form
        for literals, region, before in where_rules(regions, may):
            yield literals, places_columns(region, before)

    def never(self, name: Name) -> Iterator[FoundRule]:
        """What is taken nowhere."""
        if name[0] in FEW_SHAPES:
            return
        rows = {features(text) for text in self.taken[name]}
        faults = self.refused[name] - rows
        for literals in never_rules(sorted(rows, key=sorted), sorted(faults, key=sorted)):
            yield literals, ""

    def values(self, name: Name) -> Iterator[FoundRule]:
        """The constants that operands may be."""
        chosen: dict[int, dict[Literals, str]] = defaultdict(dict)
        for text in [t for t in self.taken[name] if t in self.regions and len(t) < LONGEST]:
            for place, operand in enumerate(split_operands(text)):
                if INTEGER.fullmatch(operand):
                    chosen[place].setdefault(features(text), text)
        for place, rows in sorted(chosen.items()):
            texts = self.rng.sample(list(rows.values()), min(len(rows), PER_PLACE))
            at_first = self.taken_values([(text, place) for text in texts], _EXTREMES)
            limited = [key for key, values in at_first.items() if len(values) < len(_EXTREMES)]
            others = {key: (_with_others(*key), place) for key in limited}
            taken_by = self.taken_values(list(dict.fromkeys([*limited, *others.values()])), VALUES)
            measured = {features(text): value_bits(VALUES) for text in texts}
            for key in limited:
                values = [*taken_by[key], *taken_by[others[key]]]
                measured[features(key[0])] = value_bits(values)
            bits = dict.fromkeys(measured, value_bits(VALUES))
            for literals, within, _before in where_rules(measured, bits):
                column = values_column(place, within)
                if column is not None and self.stands(name, literals, column):
                    yield literals, column

    def stands(self, name: Name, literals: Literals, column: str) -> bool:
        """Whether no statement that is taken has a constant outside a range."""
        limit = read_rule(f"x | | {column}").values
        for text in self.taken[name] if limit else ():
            operand = split_operands(text)[limit.operand : limit.operand + 1]
            if operand and INTEGER.fullmatch(operand[0]):
                value = int(operand[0].rstrip("U"), 0)
                if not limit.takes(value) and holds(literals, features(text)):
                    return False
        return True

    def taken_values(
        self, places: Sequence[tuple[str, int]], values: Sequence[int]
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
            answers = self.oracles[0].ask(list(left), *probe) or {}
            here = {text for text, said in answers.items() if said is None}
            left = {text: None for text in left if text not in here}
            asked = {key: text for key, text in texts.items() if key[0] in here}
            said = self.oracles[0].ask(list(asked.values()), *probe) or {}
            for (statement, place, value), text in asked.items():
                if said[text] is None:
                    taken[statement, place].append(value)
        return taken


@cache
def _from(target: str, version: str) -> int:
    return region_of({target: (read_version(version), versions_of(target)[-1])})


def _with_others(statement: str, place: int) -> str:
    """The statement with 16 for its other constants: a size may limit an offset."""
    operands = [
        "16" if INTEGER.fullmatch(operand) and index != place else operand
        for index, operand in enumerate(split_operands(statement))
    ]
    return f"{opcode_of(statement)} {', '.join(operands)};"


def _beyond(statement: str, limit: ValueRange, rng: random.Random) -> str:
    """The statement with a constant outside a range, and others for its other constants."""
    operands = split_operands(statement)
    for index, operand in enumerate(operands):
        if INTEGER.fullmatch(operand) and index != limit.operand and rng.random() < 0.5:
            operands[index] = str(rng.choice(VALUES))
    if limit.operand < len(operands):
        outside = [n for n in VALUES if not any(n in values for values in limit.ranges)]
        operands[limit.operand] = str(rng.choice(outside))
    return f"{opcode_of(statement)} {', '.join(operands)};"
