"""Measure what ptxas takes and refuses, write it as rules, and hold Tessera against it.

    python -m benchmarks.reading.verdicts learn --headers DIR [--work DIR] [--draws N]
    python -m benchmarks.reading.verdicts judge --headers DIR [--held-out DIR] [--count N] [-o FILE]
    python -m benchmarks.reading.verdicts plant|check|record FILE ...

`learn` measures every statement of the headers (CCCL's `cuda/__ptx`), of the examples in
`tests/data/opcodes` and of the forms in `opcodes.families`, and random neighbours of these, on
every target, and writes `opcodes/families/measured.py`. `judge` draws further statements, targets
and versions, compares verdicts, and says how many Tessera refuses of what ptxas refuses, and what
it refuses that ptxas takes. Answers of ptxas are kept in the work folder, so both go on where they
stopped. `TESSERA_PTXAS` names the assemblers, newest first. `plant`, `check` and `record` are
about faults in whole files: see `planted`.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.common import ROOT, arguments, machine, write
from benchmarks.reading import planted
from benchmarks.reading.accept import ARCHIVE, FUNCTIONS, read_texts
from benchmarks.reading.find_rules import (
    NOT_MEASURED,
    PROBES,
    Rules,
    find_never,
    find_values,
    find_where,
    taken_somewhere,
)
from benchmarks.reading.learn import rules_text
from benchmarks.reading.measure import MEASURED_TARGETS, spans_on, spell, versions_of
from benchmarks.reading.neighbours import Neighbours
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.statements import (
    corpus_statements,
    example_statements,
    header_statements,
    in_kernel,
    module_head,
    name_of,
    special_statements,
    table_statements,
)
from tessera.diagnostics import Severity, Source, TesseraError, in_text_order, summarise
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.opcodes.rules import RULE_LINES
from tessera.ir.opcodes.targets import read_version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx.module import verify_module
from tests.helpers.ptxas import assemble, find_all_ptxas

EXAMPLES = ROOT / "tests" / "data" / "opcodes"
RECORDED = EXAMPLES / "verdicts.txt"
MEASURED = ROOT / "tessera" / "ir" / "opcodes" / "families" / "measured.py"
NOT_ALONE = ("bra", "call", "brx", "@", "prototype")
LEARNT_SEED = 1
SHOWN = 40
_OUT_OF_RANGE = ("unexpected value", "range", "multiple of")


def module_of(statement: str, target: str, version: str) -> str:
    """A module with the statement on its fifth line."""
    lines = [*module_head(target, version), ".entry kernel(.param .b64 pointer) {"]
    return "\n".join([*lines, in_kernel(statement), "}"]) + "\n"


@cache
def _parsed(statement: str) -> ptx.Module | TesseraError:
    try:
        return parse_source(Source("statement", module_of(statement, *PROBES[0])))
    except TesseraError as failure:
        return failure


def tessera_says(statement: str, target: str, version: str) -> str | None:
    """Why Tessera refuses a statement; None if it takes it."""
    module = _parsed(statement)
    if isinstance(module, TesseraError):
        return summarise(module.diagnostics[0])
    size = 64 if read_version(version) >= (2, 3) else None
    here = replace(module, version=read_version(version), target=(target,), address_size=size)
    found = in_text_order(verify_module(here))
    faults = [fault for fault in found if fault.severity is Severity.ERROR]
    return summarise(faults[0]) if faults else None


def _of_corpora(work: Path) -> list[str]:
    """The statements of the packed corpora, from the work folder if they were taken before."""
    path = work / f"corpora_{ARCHIVE.stat().st_size}_{FUNCTIONS.stat().st_size}.txt"
    if not path.exists():
        contents = (content for place in (ARCHIVE, FUNCTIONS) for _, content in read_texts(place))
        texts = (content.decode("utf-8", "surrogateescape") for content in contents)
        path.write_text("\n".join(corpus_statements(texts)))
    return path.read_text().splitlines()


def known_statements(headers: Path, work: Path, seed: int) -> list[str]:
    """The statements of the headers, the examples, the corpora and the forms."""
    known = header_statements(headers) + example_statements(EXAMPLES) + _of_corpora(work)
    known += special_statements()
    known += table_statements(random.Random(seed), 60)
    return [text for text in dict.fromkeys(known) if not text.startswith(NOT_ALONE)]


def sources(
    oracle: Oracle, known: Sequence[str], seed: int, draws: int
) -> tuple[list[str], list[str]]:
    """Statements that some target takes, and statements that none takes."""
    rng = random.Random(seed)
    taken = [text for text, said in taken_somewhere(oracle, known).items() if said is None]
    refused: list[str] = []
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
    RULE_LINES.clear()  # the rules in force have no part in the new ones
    oracles = [Oracle(path, options.work) for path in find_all_ptxas()]
    rng = random.Random(LEARNT_SEED)
    known = known_statements(options.headers, options.work, LEARNT_SEED)
    taken, refused = sources(oracles[0], known, LEARNT_SEED, options.draws)
    taken, refused = (
        [text for text in texts if name_of(text)[0] not in NOT_MEASURED]
        for texts in (taken, refused)
    )
    missed = [text for text in refused if any(tessera_says(text, *p) is None for p in PROBES)]
    print(f"{len(taken)} taken, {len(refused)} refused, {len(missed)} missed", flush=True)
    rules: Rules = defaultdict(list)
    for find in (find_where, find_values, find_never):
        for name, found in find(oracles, taken, missed, rng).items():
            rules[name] += found
        print(f"{find.__name__}: {sum(map(len, rules.values()))} rules", flush=True)
    text = rules_text(
        [oracle.version for oracle in oracles], {".".join(n): r for n, r in rules.items()}
    )
    MEASURED.write_text(text)
    print(f"{len(text)} characters, {text.count('|')} columns")
    return 0


# --- judging -------------------------------------------------------------------------------


def is_compiled(statement: str, target: str, version: str, executable: str) -> bool:
    """Whether ptxas makes code of a statement, and does not only read it (it may crash)."""
    text = module_of(statement, target, version)
    return assemble(text, ("-O0",), executable=executable).accepted


def compare(
    oracle: Oracle,
    statements: Sequence[str],
    target: str,
    version: str,
    tally: Counter[str],
    wrong: list[str],
    missed: Counter[str],
    examples: list[str],
) -> None:
    """Add the verdicts on some statements to a tally; what is refused wrongly, and what missed."""
    answers = oracle.ask(list(dict.fromkeys(statements)), target, version) or {}
    for text in statements if answers else ():
        against, ours = answers[text], tessera_says(text, target, version)
        tally["asked"] += 1
        if against is not None:
            tally["refused by ptxas"] += 1
            tally["refused by both"] += ours is not None
            # The diagnostic names the line of the statement: 5, behind the head of the module.
            tally["on its line"] += ours is not None and ours.startswith("statement:5:")
            if ours is None:
                missed[".".join(name_of(text))] += 1
                examples.append(f"{target} {version} {text} ({against})")
        elif ours is not None:
            if is_compiled(text, target, version, oracle.executable):
                tally["refused wrongly"] += 1
                wrong.append(f"{target} {version} {text} ({ours})")
            else:
                tally["taken, but makes no code"] += 1


def judge(options: argparse.Namespace) -> int:
    """Compare verdicts on the headers, on random combinations and on the held-out source."""
    oracle = Oracle(find_all_ptxas()[0], options.work)
    rng = random.Random(options.seed)
    kinds = {"headers": around_first(oracle, header_statements(options.headers))}
    known = known_statements(options.headers, options.work, LEARNT_SEED)
    taken, _ = sources(oracle, known, LEARNT_SEED, options.draws)
    kinds |= combinations(taken, rng, options.count)
    if options.held_out:
        kinds["held out"] = around_first(oracle, header_statements(options.held_out))
    report: dict[str, object] = {
        **machine(),
        "ptxas": oracle.version,
        "seed": options.seed,
        "targets": MEASURED_TARGETS,
    }
    for kind, asked in kinds.items():
        tally: Counter[str] = Counter()
        wrong: list[str] = []
        missed: Counter[str] = Counter()
        examples: list[str] = []
        for (target, version), statements in asked.items():
            compare(oracle, statements, target, version, tally, wrong, missed, examples)
        refused = max(tally["refused by ptxas"], 1)
        row: dict[str, object] = {
            **tally,
            "share refused": round(tally["refused by both"] / refused, 4),
            "share on its line": round(tally["on its line"] / refused, 4),
            "wrongly": wrong[:SHOWN],
            "missed": rng.sample(examples, min(len(examples), SHOWN)),
            "missed, by name": dict(missed.most_common(12)),
        }
        report[kind] = row
        print(kind, row, flush=True)
    write(report, options.output)
    if options.record:
        rows = [_recorded(oracle, asked, rng) for asked in kinds.values() for _ in range(250)]
        head = f"# ptxas {oracle.version}: target, version, verdict, statement"
        RECORDED.write_text("\n".join([head, *sorted(dict.fromkeys(rows))]) + "\n")
    return 0


def _recorded(oracle: Oracle, asked: Asked, rng: random.Random) -> str:
    """A line with the verdict on one of the statements."""
    target, version = rng.choice(list(asked))
    text = rng.choice(asked[target, version])
    said = (oracle.ask([text], target, version) or {})[text]
    return f"{target} {version} {'taken' if said is None else 'refused'} {text}"


Asked = dict[tuple[str, str], list[str]]


def around_first(oracle: Oracle, statements: Sequence[str]) -> Asked:
    """Each statement on all targets at its first version, the one before and the newest."""
    alone = [text for text in statements if not text.startswith(NOT_ALONE)]
    asked: Asked = defaultdict(list)
    for target in MEASURED_TARGETS:
        versions = versions_of(target)
        spans = spans_on([oracle], alone, target) or {}
        for text in alone:
            first = versions.index(spans[text][0]) if text in spans else 0
            for version in {versions[first], versions[max(first - 1, 0)], versions[-1]}:
                asked[target, spell(version)].append(text)
    return asked


def combinations(taken: Sequence[str], rng: random.Random, count: int) -> dict[str, Asked]:
    """Known statements and as many neighbours of these, each on a random target and version."""
    near = Neighbours(taken)
    kinds: dict[str, Asked] = {}
    for kind in ("random places", "random neighbours"):
        asked = kinds[kind] = defaultdict(list)
        for _ in range(count // 2):
            target = rng.choice(MEASURED_TARGETS)
            version = spell(rng.choice(versions_of(target)))
            near_by = kind == "random neighbours"
            text = near.draw(rng, operands=True) if near_by else rng.choice(near.statements)
            asked[target, version].append(text)
    return kinds


def main(words: Sequence[str]) -> int:
    """Learn, judge, or plant faults."""
    if words and words[0] in planted.COMMANDS:
        return planted.main(words)
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["learn", "judge"])
    parser.add_argument("--headers", type=Path, required=True, help="CCCL's cuda/__ptx")
    parser.add_argument("--held-out", type=Path, help="headers that no rule was learnt from")
    parser.add_argument("--work", type=Path, default=Path("out/verdicts"))
    parser.add_argument("--draws", type=int, default=8_000)
    parser.add_argument("--count", type=int, default=50_000, help="random combinations to judge")
    parser.add_argument("--seed", type=int, default=2, help="of the combinations to judge")
    parser.add_argument("--record", action="store_true", help="keep some verdicts for the tests")
    options = parser.parse_args(words)
    return learn(options) if options.what == "learn" else judge(options)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
