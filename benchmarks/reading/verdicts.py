"""Measure what ptxas takes and refuses, write it as rules, and hold Tessera against it.

    python -m benchmarks.reading.verdicts learn --headers DIR [--work DIR] [--draws N]
    python -m benchmarks.reading.verdicts judge --headers DIR [--held-out DIR ...] [-o FILE]
    python -m benchmarks.reading.verdicts plant|check|record FILE ...

`learn` measures every statement of the headers (CCCL's `cuda/__ptx`), of the examples in
`tests/data/opcodes` and of the forms in `opcodes.families`, and random neighbours of these, on
every target, and writes `opcodes/families/measured.py`. `judge` draws further statements, targets
and versions, compares verdicts, and says how many Tessera refuses of what ptxas refuses, and what
it refuses that ptxas takes. Both end after `--minutes` of processor time. Answers of ptxas are kept
in the work folder, so both go on where they stopped. `TESSERA_PTXAS` names the assemblers, newest
first. `plant`, `check` and `record` are about faults in whole files: see `planted`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import ROOT, arguments, machine, write
from benchmarks.reading import planted
from benchmarks.reading.accept import FUNCTIONS, read_texts
from benchmarks.reading.find_rules import PROBES, Finder, taken_somewhere
from benchmarks.reading.judge import (
    around_first,
    at_edges,
    at_random,
    compare,
    neighbours,
    processor_seconds,
)
from benchmarks.reading.measure import MEASURED_TARGETS
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.ours import install, tessera_says
from benchmarks.reading.regions import rules_text
from benchmarks.reading.statements import (
    corpus_statements,
    example_statements,
    header_statements,
    name_of,
    special_statements,
    table_statements,
)
from tests.helpers.corpus import ARCHIVE
from tests.helpers.ptxas import find_all_ptxas

EXAMPLES = ROOT / "tests" / "data" / "opcodes"
RECORDED = EXAMPLES / "verdicts.txt"
MEASURED = ROOT / "tessera" / "ir" / "opcodes" / "families" / "measured.py"
NOT_ALONE = ("bra", "call", "brx", "@", "prototype")
# Their operands name textures, which these statements cannot.
NOT_MEASURED = frozenset({"istypep", "suld", "suq", "sured", "sust", "tex", "tld4", "txq"})
LEARNT_SEED = 1
KERNELS = ROOT / "tests" / "data" / "kernels" / "ptx"
_OUT_OF_RANGE = ("unexpected value", "range", "multiple of")


def _of_corpora(work: Path) -> list[str]:
    """The statements of the packed corpora, from the work folder if they were taken before."""
    path = work / f"corpora_{ARCHIVE.stat().st_size}_{FUNCTIONS.stat().st_size}_kernels.txt"
    if not path.exists():
        places = (ARCHIVE, FUNCTIONS, KERNELS)
        contents = (content for place in places for _, content in read_texts(place))
        texts = (content.decode("utf-8", "surrogateescape") for content in contents)
        path.write_text("\n".join(corpus_statements(texts)))
    return path.read_text().splitlines()


def known_statements(headers: Path, work: Path, seed: int) -> list[str]:
    """The statements of the headers, the examples, the corpora and the forms."""
    known = header_statements(headers) + example_statements(EXAMPLES) + _of_corpora(work)
    known += special_statements()
    known += table_statements(random.Random(seed), 60)
    return _alone(known)


def sources(
    oracle: Oracle, known: Sequence[str], seed: int, draws: int
) -> tuple[list[str], list[str]]:
    """Statements that some target takes, and statements that none takes."""
    rng = random.Random(seed)
    asked = taken_somewhere(oracle, known)
    taken = [text for text, said in asked.items() if said is None]
    refused = [text for text, said in asked.items() if _is_fault(said)]
    for operands in (False, True):
        near = Neighbours(taken)
        drawn = list(dict.fromkeys(near.draw(rng, operands=operands) for _ in range(draws)))
        said = taken_somewhere(oracle, drawn)
        taken = list(dict.fromkeys([*taken, *(text for text in drawn if said[text] is None)]))
        refused += [text for text in drawn if _is_fault(said[text])]
    return taken, refused


def _is_fault(said: str | None) -> bool:
    """Whether ptxas refuses the form of a statement, and not a value in it."""
    return said is not None and not any(word in said for word in _OUT_OF_RANGE)


def learn(options: argparse.Namespace) -> int:
    """Measure, find the rules and write them."""
    install({})  # the rules in force have no part in the new ones
    until = processor_seconds() + 60 * options.minutes
    oracles = [Oracle(path, options.work) for path in find_all_ptxas()]
    known = known_statements(options.headers, options.work, LEARNT_SEED)
    taken, refused = sources(oracles[0], known, LEARNT_SEED, options.draws)
    taken, refused = (
        [text for text in texts if name_of(text)[0] not in NOT_MEASURED]
        for texts in (taken, refused)
    )
    missed = [text for text in refused if any(tessera_says(text, *p) is None for p in PROBES)]
    print(f"{len(taken)} taken, {len(refused)} refused, {len(missed)} missed", flush=True)
    finder = Finder(oracles, taken, missed, LEARNT_SEED, until)
    finder.remember(row for row in oracles[0].taken() if name_of(row[0])[0] not in NOT_MEASURED)
    rules = finder.find()
    text = rules_text(
        [oracle.version for oracle in oracles], {".".join(n): r for n, r in rules.items()}
    )
    MEASURED.write_text(text)
    print(f"{len(text)} characters, {text.count('|')} columns")
    return 0


def judge(options: argparse.Namespace) -> int:
    """Compare verdicts on the headers, on random combinations and on the held-out source."""
    oracle = Oracle(find_all_ptxas()[0], options.work)
    rng = random.Random(options.seed)
    until = processor_seconds() + 60 * options.minutes
    known = known_statements(options.headers, options.work, LEARNT_SEED)
    taken = [text for text, said in taken_somewhere(oracle, known).items() if said is None]
    near, part = neighbours(taken, rng, options.count // 2), options.count // 2
    forms = table_statements(rng, 200)
    targets = rng.sample(options.targets, len(options.targets))  # a budget leaves out any of them
    kinds = {
        "known statements": at_random(taken, rng, part),
        "neighbours of known statements": at_random(near, rng, part),
        "forms": at_random(forms, rng, part),
        "forms and neighbours, newest version": at_random(forms + near, rng, part, newest=True),
        "neighbours at the edges": at_edges(near, rng),
        "headers": around_first(oracle, _alone(header_statements(options.headers)), targets),
    }
    for folder in options.held_out:
        kinds[f"held out: {folder.name}"] = around_first(oracle, _in(folder), targets)
    report: dict[str, object] = {**machine(), "ptxas": oracle.version, "seed": options.seed}
    report["minutes of processor time"] = options.minutes
    rows: list[str] = []
    for place, (kind, pieces) in enumerate(kinds.items()):
        seconds = (until - processor_seconds()) / (len(kinds) - place)
        tally = compare(oracle, pieces, seconds)
        rows += rng.sample(tally.rows, min(len(tally.rows), 100))
        report[kind] = tally.to_json(rng)
        print(kind, report[kind], flush=True)
        write(report, options.output)
    if options.record:
        head = f"# ptxas {oracle.version}: target, version, verdict, statement"
        RECORDED.write_text("\n".join([head, *sorted(dict.fromkeys(rows))]) + "\n")
    return 0


def _in(folder: Path) -> list[str]:
    """The statements in the sources and in the PTX of a folder."""
    texts = (path.read_text(errors="replace") for path in sorted(folder.rglob("*.ptx")))
    return _alone(header_statements(folder) + corpus_statements(texts))


def _alone(statements: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(statements) if not text.startswith(NOT_ALONE)]


def main(words: Sequence[str]) -> int:
    """Learn, judge, or plant faults."""
    if words and words[0] in planted.COMMANDS:
        return planted.main(words)
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["learn", "judge"])
    parser.add_argument("--headers", type=Path, required=True, help="CCCL's cuda/__ptx")
    parser.add_argument(
        "--held-out",
        type=Path,
        nargs="*",
        default=[],
        help="folders of CUDA or PTX that no rule was learnt from",
    )
    parser.add_argument(
        "--minutes", type=float, default=40.0, help="processor time, after which less is asked"
    )
    parser.add_argument("--work", type=Path, default=Path("out/verdicts"))
    parser.add_argument("--draws", type=int, default=12_000)
    parser.add_argument("--count", type=int, default=50_000, help="random combinations to judge")
    parser.add_argument("--targets", nargs="*", choices=MEASURED_TARGETS, default=MEASURED_TARGETS)
    parser.add_argument("--seed", type=int, default=2, help="of the combinations to judge")
    parser.add_argument("--record", action="store_true", help="keep some verdicts for the tests")
    options = parser.parse_args(words)
    return learn(options) if options.what == "learn" else judge(options)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
