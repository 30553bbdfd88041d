"""Write the table of known statements: what the verifier says of common ones, everywhere.

    python -m benchmarks.reading.known [--draws N] [PLACE ...]

In: the packed corpora, the files of the test suite, and statements of every form. `PLACE` adds
folders or archives of PTX. Out: `tessera/data/statements.txt`: the statements that some version
and target takes, by the places that take them. To be run when a rule of statements has changed; it
takes six minutes.
"""

from __future__ import annotations

import random
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT, arguments
from benchmarks.reading.accept import FUNCTIONS, read_texts
from benchmarks.reading.measure import spell
from benchmarks.reading.ours import module_of
from benchmarks.reading.statements import example_statements, special_statements, table_statements
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.ptx.statement_runs import RunSplitter
from tessera.ir.opcodes.targets import NEWEST_VERSION, TARGETS, VERSIONS, Version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx import accept_outline
from tessera.ir.verify_ptx.accept_outline import accepts_text
from tessera.ir.verify_ptx.instruction import Ground
from tessera.ir.verify_ptx.known_statements import TABLE, read_table, split_statement
from tessera.ir.verify_ptx.names import kind_token
from tests.helpers.corpus import ARCHIVE

LONGEST = 300
PLACES = (ARCHIVE, FUNCTIONS, ROOT / "tests" / "data", ROOT / "examples")
EXAMPLES = ROOT / "tests" / "data" / "opcodes"
TELLING = (("sm_100a", "9.5"), ("sm_90a", "8.6"), ("sm_120a", "9.5"), ("sm_60", "6.2"))
_TOKEN = re.compile(r"%0((?:[A-Za-z0-9]|\$[0-9a-f]+\$)+)")


class Trial:
    """A verifier of one instruction on some ground."""

    def __init__(self, version: Version, target: str) -> None:
        self.module = ptx.Module(version=version, target=(target,), address_size=64, items=())
        self.ground, self.is_new = Ground(version, target, False), False


GROUNDS = {
    target: [Trial(version, target) for version in VERSIONS if version >= since]
    for target, since in TARGETS.items()
}


def read_statements(texts: Iterable[str]) -> Iterator[str]:
    """The canonical statements of modules, without guards, blanks and displacements."""
    accept_outline.forget()
    read_table()[1].clear()
    for text in texts:
        try:
            parse_module(text)
        except (TesseraError, RecursionError):
            continue
    for good, _ in accept_outline.GOOD_TEXTS.values():
        for opcode, operands in map(split_statement, good):
            yield f"{opcode} {operands}"


def instruction_of(statement: str) -> ptx.Instruction | None:
    """The instruction that a canonical statement stands for."""
    for kind in _TOKEN.findall(statement):
        kind_token(re.sub(r"\$([0-9a-f]+)\$", lambda match: chr(int(match[1], 16)), kind))
    found = RunSplitter().split(f"{statement};", 0)
    return found[0] if len(found) == 1 and isinstance(found[0], ptx.Instruction) else None


def places_of(instruction: ptx.Instruction) -> str:
    """The versions and targets that take an instruction; empty for none."""
    spans: dict[str, list[str]] = defaultdict(list)
    for target, trials in GROUNDS.items():
        taken = [accepts_text(trial, instruction) for trial in trials]
        for first, last in _runs(taken):
            start = "1.0" if first == 0 else spell(trials[first].ground.version)
            end = trials[last].ground.version
            spans[start if end == NEWEST_VERSION else f"{start}-{spell(end)}"].append(target)
    everywhere = len(TARGETS)
    return " | ".join(
        span if len(names) == everywhere else f"{span} {' '.join(names)}"
        for span, names in sorted(spans.items())
    )


def _runs(taken: Sequence[bool]) -> Iterator[tuple[int, int]]:
    first = None
    for place, here in enumerate([*taken, False]):
        if here and first is None:
            first = place
        if not here and first is not None:
            yield first, place - 1
            first = None


def write_table(statements: Iterable[str]) -> int:
    """Ask about each statement and write the table; how many are in it."""
    classes: dict[str, int] = {}
    rows: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    count = 0
    for statement in sorted(set(statements)):
        instruction = instruction_of(statement) if len(statement) <= LONGEST else None
        places = places_of(instruction) if instruction is not None else ""
        if places:
            opcode, _, operands = statement.partition(" ")
            rows[opcode][classes.setdefault(places, len(classes))].append(operands)
            count += 1
    lines = [
        " ".join([opcode, *(f"{n}:{';'.join(texts)}" for n, texts in groups.items())])
        for opcode, groups in rows.items()
    ]
    head = "# Statements that the verifier takes; written by benchmarks.reading.known"
    TABLE.write_text("\n".join([head, *classes, "", *lines]) + "\n", "ascii")
    return count


def main(words: Sequence[str] | None = None) -> int:
    """Collect, ask and write."""
    parser = arguments(__doc__, None)
    parser.add_argument("places", nargs="*", type=Path, metavar="PLACE")
    parser.add_argument("--draws", type=int, default=2, help="statements of each form")
    options = parser.parse_args(words)
    contents = (content for place in (*PLACES, *options.places) for _, content in read_texts(place))
    texts = [content.decode("utf-8", "surrogateescape") for content in contents]
    made = table_statements(random.Random(1), options.draws)
    made += example_statements(EXAMPLES) + special_statements()
    texts += [module_of(text, *place) for text in made for place in TELLING]
    statements = list(dict.fromkeys(read_statements(texts)))
    print(f"{len(statements)} statements")
    print(write_table(statements), "in the table")
    return 0


if __name__ == "__main__":
    sys.exit(main())
