"""Hold Tessera's verdicts on single statements against those of ptxas, by source and by family.

In: statements with targets and versions. Out: for each source how many ptxas takes and Tessera
refuses, and how many both refuse, on the statement's own line too.
"""

from __future__ import annotations

import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.reading.measure import MEASURED_TARGETS, spans_on, spell, versions_of
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.ours import edges, module_of, tessera_says
from benchmarks.reading.statements import name_of
from tessera.ir.opcodes.families import FAMILIES
from tessera.ir.opcodes.form_notation import written_lines
from tests.helpers.ptxas import assemble

SHOWN = 40
PER_PLACE = 50
TOGETHER = 500
SECONDS = 10
"""ptxas does not end on some statements that it has no code for."""
LINE = "statement:5:"
"""How a fault on the statement itself begins: it stands behind the head of the module."""
Asked = Mapping[tuple[str, str], Sequence[str]]
_FAMILY_OF = {
    name[0]: family.__name__.rpartition(".")[2]
    for family in FAMILIES
    for name, _ in written_lines(family.FORMS)
}


@dataclass(slots=True)
class Tally:
    """Verdicts on statements of one source."""

    counts: Counter[str] = field(default_factory=Counter)
    families: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    wrong: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    missed_names: Counter[str] = field(default_factory=Counter)
    targets: set[str] = field(default_factory=set)
    left_out: bool = False

    def add(
        self, oracle: Oracle, text: str, target: str, version: str, against: str | None
    ) -> None:
        """Compare the verdicts on one statement."""
        ours = tessera_says(text, target, version)
        self.rows.append(f"{target} {version} {'taken' if against is None else 'refused'} {text}")
        family = self.families[_FAMILY_OF.get(name_of(text)[0], "unknown")]
        both = against is not None and ours is not None
        outcome = {
            "taken by ptxas": against is None,
            "refused by ptxas": against is not None,
            "refused by both": both,
            "on its line": both and ours is not None and ours.startswith(LINE),
        }
        if against is None and ours is not None:
            module = module_of(text, target, version)
            # `-arch compute_XX` takes a few that ptxas then makes no code of, or that crash it.
            is_code = assemble(module, ("-O0",), SECONDS, executable=oracle.executable).accepted
            outcome["refused wrongly" if is_code else "taken, but makes no code"] = True
            if is_code:
                self.wrong.append(f"{target} {version} {text} ({ours})")
        if against is not None and ours is None:
            self.missed_names[".".join(name_of(text))] += 1
            self.missed.append(f"{target} {version} {text} ({against})")
        for counter in (self.counts, family):
            counter.update(what for what, holds in outcome.items() if holds)

    def to_json(self, rng: random.Random) -> dict[str, object]:
        """The tally as plain data, with a sample of what was missed."""
        return {
            **_shares(self.counts),
            "targets": len(self.targets),
            "ended by the budget": self.left_out,
            "wrongly": self.wrong[:SHOWN],
            "missed": rng.sample(self.missed, min(len(self.missed), SHOWN)),
            "missed, by name": dict(self.missed_names.most_common(12)),
            "families": {name: _shares(self.families[name]) for name in sorted(self.families)},
        }


def _shares(counts: Counter[str]) -> dict[str, object]:
    refused = max(counts["refused by ptxas"], 1)
    return {
        "taken by ptxas": counts["taken by ptxas"],
        "refused wrongly": counts["refused wrongly"],
        **({"taken, but makes no code": n} if (n := counts["taken, but makes no code"]) else {}),
        "refused by ptxas": counts["refused by ptxas"],
        "share refused": round(counts["refused by both"] / refused, 4),
        "share on its line": round(counts["on its line"] / refused, 4),
    }


def compare(oracle: Oracle, pieces: Iterable[Asked], seconds: float = math.inf) -> Tally:
    """The verdicts on the statements of a source, as far as the processor time goes."""
    tally, until = Tally(), processor_seconds() + seconds
    for asked in pieces:
        if processor_seconds() > until:
            tally.left_out = True
            break
        for (target, version), statements in asked.items():
            answers = oracle.ask(list(dict.fromkeys(statements)), target, version) or {}
            for text in statements if answers else ():
                tally.targets.add(target)
                tally.add(oracle, text, target, version, answers[text])
    return tally


def processor_seconds() -> float:
    """The processor time of this process and of every ptxas that ended."""
    return sum(os.times()[:4])


# --- what is asked ---------------------------------------------------------------------------


def around_first(
    oracle: Oracle, statements: Sequence[str], targets: Sequence[str]
) -> Iterator[Asked]:
    """Each statement on some targets at its first version, the one before and the newest."""
    for target in targets:
        asked: dict[tuple[str, str], list[str]] = defaultdict(list)
        versions = versions_of(target)
        spans = spans_on([oracle], statements, target) or {}
        for text in statements:
            first = versions.index(spans[text][0]) if text in spans else 0
            for version in {versions[first], versions[max(first - 1, 0)], versions[-1]}:
                asked[target, spell(version)].append(text)
        yield asked


def at_random(
    statements: Sequence[str], rng: random.Random, count: int, *, newest: bool = False
) -> Iterator[Asked]:
    """Random ones of some statements, each on one of some random targets and versions.

    Every opcode is as likely as any other, however many statements have it. With `newest`, the
    version is the newest.
    """
    by_name: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for text in statements:
        by_name[name_of(text)].append(text)
    groups = list(by_name.values())
    for _ in range(count // PER_PLACE):
        target = rng.choice(MEASURED_TARGETS)
        place = target, spell(rng.choice(versions_of(target)[-1 if newest else 0 :]))
        yield {place: [rng.choice(group) for group in rng.choices(groups, k=PER_PLACE)]}


def neighbours(taken: Sequence[str], rng: random.Random, count: int) -> list[str]:
    """Statements that differ from known ones in a modifier or an operand."""
    near = Neighbours(taken)
    return [near.draw(rng, operands=True) for _ in range(count)]


def at_edges(statements: Sequence[str], rng: random.Random) -> Iterator[Asked]:
    """Statements where Tessera begins to refuse them."""
    distinct = list(dict.fromkeys(statements))
    for start in range(0, len(distinct), TOGETHER):
        asked: dict[tuple[str, str], list[str]] = defaultdict(list)
        for text in distinct[start : start + TOGETHER]:
            for target, version in edges(text, rng, 2):
                asked[target, spell(version)].append(text)
        yield asked
