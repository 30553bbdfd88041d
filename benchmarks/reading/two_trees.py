"""Compare the verdicts of an earlier tree with those of this one, and ask ptxas where they differ.

    python -m benchmarks.reading.two_trees [REVISION] [--count N] [--seed N] [--work DIR] [-o FILE]

The revision is an earlier commit. The statements are those of both trees' recorded verdicts
(`tests/data/opcodes/verdicts.txt`) and of the forms, most of them changed in a modifier, an operand
or a constant, some on another target or version. Each tree judges in a process of its own. What the
earlier tree refused and this one takes, ptxas must take (`taken wrongly`); what the earlier tree
took and this one refuses, ptxas must refuse (`refused wrongly`). The exit code says whether it is
so. `TESSERA_PTXAS` names the ptxas.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.common import ROOT, arguments, machine, write
from benchmarks.reading.measure import MEASURED_TARGETS, spell, versions_of
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.ours import module_of
from benchmarks.reading.regions import VALUES
from benchmarks.reading.statements import INTEGER, opcode_of, split_operands, table_statements
from tests.helpers.ptxas import find_all_ptxas

RECORDED = Path("tests", "data", "opcodes", "verdicts.txt")
Row = tuple[str, str, str]
JUDGE = """
import json, sys
from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import load_module
for line in sys.stdin:
    try:
        load_module(Source("statement", json.loads(line)))
        print("null")
    except TesseraError as failure:
        print(json.dumps(summarise(failure.diagnostics[0])))
"""


def checked_out(revision: str, folder: Path) -> Path:
    """A folder with the files of a commit."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["git", "-C", str(ROOT), "archive", revision]
    files = subprocess.run(command, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=files, check=True)
    return folder


def recorded(tree: Path) -> list[Row]:
    """The target, the version and the statement of each recorded verdict of a tree."""
    lines = (tree / RECORDED).read_text().splitlines()[1:]
    rows = (line.split(" ", 3) for line in lines)
    return [(target, version, text) for target, version, _, text in rows]


def drawn(rows: Sequence[Row], rng: random.Random, count: int) -> list[Row]:
    """The rows, and rows like them with random changes, `count` in all."""
    near = Neighbours([text for _, _, text in rows])
    made = dict.fromkeys(rows)
    while len(made) < count:
        target, version, text = rng.choice(rows)
        if rng.random() < 0.4:
            target = rng.choice(MEASURED_TARGETS)
            version = spell(rng.choice(versions_of(target)))
        if rng.random() < 0.85:
            text = near.changed(text, rng, operands=True)
        if rng.random() < 0.25:
            text = _other_constant(text, rng)
        made[target, version, text] = None
    return list(made)


def _other_constant(statement: str, rng: random.Random) -> str:
    operands = split_operands(statement)
    places = [place for place, text in enumerate(operands) if INTEGER.fullmatch(text)]
    if places:
        operands[rng.choice(places)] = str(rng.choice(VALUES))
    return f"{opcode_of(statement)} {', '.join(operands)}".strip() + ";"


def verdicts(tree: Path, rows: Sequence[Row]) -> Iterator[str | None]:
    """What a tree says against each statement."""
    modules = (module_of(text, target, version) for target, version, text in rows)
    done = subprocess.run(
        [sys.executable, "-c", JUDGE],
        input="".join(json.dumps(module) + "\n" for module in modules),
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return map(json.loads, done.stdout.splitlines())


def asked(oracle: Oracle, rows: Sequence[Row]) -> dict[Row, str | None]:
    """What ptxas says against each statement."""
    places: dict[tuple[str, str], list[str]] = defaultdict(list)
    for target, version, text in rows:
        places[target, version].append(text)
    said = {place: oracle.ask(texts, *place) or {} for place, texts in places.items()}
    return {row: said[row[0], row[1]].get(row[2], "not asked") for row in rows}


def main(words: Sequence[str] | None = None) -> int:
    """Draw, judge twice, ask and report."""
    parser = arguments(__doc__)
    parser.add_argument("revision", nargs="?", default="HEAD~1", help="an earlier commit")
    parser.add_argument("--count", type=int, default=40_000, help="statements to judge")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("out/verdicts"))
    options = parser.parse_args(words)
    rng = random.Random(options.seed)
    tree = checked_out(options.revision, options.work.resolve() / "tree")
    of_forms = [text for text in table_statements(rng, 4) if "{}" not in text]
    newest = [(target, spell(versions_of(target)[-1])) for target in MEASURED_TARGETS]
    rows = [*recorded(tree), *recorded(ROOT), *((*rng.choice(newest), text) for text in of_forms)]
    rows = drawn(list(dict.fromkeys(rows)), rng, options.count)
    before, now = (dict(zip(rows, verdicts(t, rows), strict=True)) for t in (tree, ROOT))
    oracle = Oracle(find_all_ptxas()[0], options.work)
    said = asked(oracle, [r for r in rows if (before[r] is None) != (now[r] is None)])
    taken = [row for row in said if now[row] is None]
    refused = [row for row in said if now[row] is not None]
    report = {
        **{**machine(), "ptxas": oracle.version, "seed": options.seed, "statements": len(rows)},
        "taken only now": len(taken),
        "refused only now": len(refused),
        "taken wrongly": [(*row, said[row]) for row in taken if said[row] is not None],
        "refused wrongly": [(*row, now[row]) for row in refused if said[row] is None],
    }
    write(report, options.output)
    print(report)
    return 1 if report["taken wrongly"] or report["refused wrongly"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
