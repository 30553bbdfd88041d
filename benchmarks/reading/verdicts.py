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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.common import ROOT, arguments, write
from benchmarks.reading import planted
from benchmarks.reading.learn import PAIRS, never_rules, region_of, rules_text, where_rules
from benchmarks.reading.measure import Span, spans_on, spell, versions_of
from benchmarks.reading.oracle import Oracle
from benchmarks.reading.statements import (
    Neighbours,
    example_statements,
    features,
    header_statements,
    in_kernel,
    module_head,
    opcode_of,
    table_statements,
)
from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import load_module
from tessera.ir.opcodes.targets import TARGETS
from tests.helpers.ptxas import assemble, find_all_ptxas

EXAMPLES = ROOT / "tests" / "data" / "opcodes"
MEASURED = ROOT / "tessera" / "ir" / "opcodes" / "families" / "measured.py"
PROBES = (("sm_107a", "9.4"), ("sm_100a", "9.4"), ("sm_90a", "9.4"), ("sm_120a", "9.4"))
OLDEST_PROBE = ("sm_60", "6.0")
PER_SHAPE = 3
NOT_ALONE = ("bra", "call", "brx", "@")
# First words whose statements the headers cover densely enough that a rule is no accident. What the
# others need is written in their forms.
COVERED = frozenset(
    {"applypriority", "barrier", "clusterlaunchcontrol", "cp", "elect", "fabric", "fence"}
    | {"mbarrier", "multimem", "redux", "setmaxnreg", "shfl", "spcompress", "spdecompress"}
    | {"stmatrix", "tcgen05", "tensormap", "vote", "wgmma"}
)
# How many registers it has follows from shape and type, which few examples cannot show.
FEW_SHAPES = frozenset({"wgmma"})
_OUT_OF_RANGE = ("unexpected value", "range")


def module_of(statement: str, target: str, version: str) -> str:
    """A module with the statement on its fifth line."""
    lines = [*module_head(target, version), ".entry kernel(.param .b64 pointer) {"]
    return "\n".join([*lines, in_kernel(statement), "}"]) + "\n"


def tessera_says(statement: str, target: str, version: str) -> str | None:
    """Why Tessera refuses a statement; None if it takes it."""
    try:
        load_module(Source("statement", module_of(statement, target, version)))
    except TesseraError as failure:
        return summarise(failure.diagnostics[0])
    return None


def taken_somewhere(oracle: Oracle, statements: Sequence[str]) -> dict[str, str | None]:
    """For each statement None if a target takes it, else what the newest says against it."""
    said: dict[str, str | None] = dict.fromkeys(statements, "")
    for target, version in (*PROBES, OLDEST_PROBE):
        left = [text for text in statements if said[text] is not None]
        for text, against in (oracle.ask(left, target, version) or {}).items():
            said[text] = against if against is None else said[text] or against
    return said


def sources(oracle: Oracle, headers: Path, seed: int, draws: int) -> tuple[list[str], list[str]]:
    """Statements that some target takes, and statements that none takes."""
    rng = random.Random(seed)
    known = header_statements(headers) + example_statements(EXAMPLES) + table_statements(rng, 60)
    alone = [text for text in dict.fromkeys(known) if not text.startswith(NOT_ALONE)]
    taken = [text for text, said in taken_somewhere(oracle, alone).items() if said is None]
    refused: list[str] = []
    for operands in (False, True):
        near = Neighbours(taken)
        drawn = list(dict.fromkeys(near.draw(rng, operands=operands) for _ in range(draws)))
        said = taken_somewhere(oracle, drawn)
        taken = list(dict.fromkeys([*taken, *(text for text in drawn if said[text] is None)]))
        refused += [
            text
            for text in drawn
            if (why := said[text]) is not None and not any(word in why for word in _OUT_OF_RANGE)
        ]
    return taken, refused


def to_measure(taken: Sequence[str]) -> list[str]:
    """One statement of each opcode, and a few of each shape of operands."""
    of_opcode: dict[str, str] = {}
    shapes: Counter[tuple[str, ...]] = Counter()
    chosen: dict[str, None] = {}
    for text in taken:
        opcode = opcode_of(text)
        of_opcode.setdefault(opcode, text)
        shape = [x for x in features(text) if x[0] == "#" or "=" in x]
        shapes[opcode.partition(".")[0], *sorted(shape)] += 1
        if shapes[opcode.partition(".")[0], *sorted(shape)] <= PER_SHAPE:
            chosen[text] = None
    return list(dict.fromkeys([*of_opcode.values(), *chosen]))


def learn(options: argparse.Namespace) -> int:
    """Measure, find the rules and write them."""
    oracles = [Oracle(path, options.work) for path in find_all_ptxas()]
    taken, refused = sources(oracles[0], options.headers, options.seed, options.draws)
    statements = to_measure(taken)
    print(f"{len(taken)} taken, {len(refused)} refused, {len(statements)} to measure", flush=True)
    spans: dict[str, dict[str, Span]] = defaultdict(dict)
    everywhere = 0
    for target in TARGETS:
        measured = spans_on(oracles, statements, target)
        if measured is None:
            continue
        versions = versions_of(target)
        everywhere |= region_of({target: (versions[0], versions[-1])})
        for text, span in measured.items():
            spans[text][target] = span
        print(f"{target}: {len(measured)}", flush=True)
    newest = max((PAIRS[-1][1], *(version for _, version in PAIRS)))
    missed = [text for text in refused if tessera_says(text, PROBES[0][0], spell(newest)) is None]
    lines = list(_rules(statements, spans, everywhere, taken, missed))
    MEASURED.write_text(rules_text([oracle.version for oracle in oracles], lines))
    print(f"{len(lines)} rules")
    return 0


def _rules(
    statements: Sequence[str],
    spans: Mapping[str, Mapping[str, Span]],
    everywhere: int,
    taken: Sequence[str],
    missed: Sequence[str],
) -> Iterator[str]:
    regions: dict[str, dict[frozenset[str], int]] = defaultdict(lambda: defaultdict(int))
    for text in statements:
        regions[_head(text)][features(text)] |= region_of(spans[text])
    good, bad = _by_head(taken), _by_head(missed)
    for head in sorted(COVERED):
        yield from where_rules(head, regions[head], everywhere)
        if head not in FEW_SHAPES:
            rows = sorted(bad[head] - good[head], key=sorted)
            yield from never_rules(head, sorted(good[head], key=sorted), rows)


def _head(statement: str) -> str:
    return opcode_of(statement).partition(".")[0]


def _by_head(statements: Sequence[str]) -> dict[str, set[frozenset[str]]]:
    rows: dict[str, set[frozenset[str]]] = defaultdict(set)
    for text in statements:
        rows[_head(text)].add(features(text))
    return rows


# --- judging -------------------------------------------------------------------------------


def is_compiled(statement: str, target: str, version: str, executable: str) -> bool:
    """Whether ptxas makes code of a statement, and does not only read it (it may crash)."""
    text = module_of(statement, target, version)
    return assemble(text, ("-O0",), executable=executable).accepted


def compare(
    oracle: Oracle, statements: Sequence[str], target: str, version: str, tally: Counter[str]
) -> list[str]:
    """Add the verdicts on some statements to a tally; what Tessera refuses wrongly."""
    wrong = []
    for text, against in (oracle.ask(statements, target, version) or {}).items():
        ours = tessera_says(text, target, version)
        if against is not None:
            tally["refused by ptxas"] += 1
            tally["refused by both"] += ours is not None
            # The diagnostic names the line of the statement: 5, behind the head of the module.
            tally["on its line"] += ours is not None and ours.startswith("statement:5:")
        else:
            tally["taken by ptxas"] += 1
        if against is None and ours is not None:
            if is_compiled(text, target, version, oracle.executable):
                tally["refused wrongly"] += 1
                wrong.append(f"{target} {version} {text} ({ours})")
            else:
                tally["taken, but makes no code"] += 1
    return wrong


def judge(options: argparse.Namespace) -> int:
    """Compare verdicts on the headers, on random statements and on the held-out source."""
    oracle = Oracle(find_all_ptxas()[0], options.work)
    rng = random.Random(options.seed)
    headers = header_statements(options.headers)
    near = Neighbours(sources(oracle, options.headers, 1, options.draws)[0])
    kinds = {"headers": headers, "random": None}
    if options.held_out:
        kinds["held out"] = header_statements(options.held_out)
    report: dict[str, object] = {"ptxas": oracle.version, "seed": options.seed}
    for kind, statements in kinds.items():
        tally: Counter[str] = Counter()
        wrong: list[str] = []
        for target in options.targets or [name for name in TARGETS if TARGETS[name] >= (7, 0)]:
            for version in _versions(target, rng):
                drawn = statements or [near.draw(rng, operands=True) for _ in range(options.count)]
                wrong += compare(oracle, list(dict.fromkeys(drawn)), target, version, tally)
        refused = max(tally["refused by ptxas"], 1)
        row: dict[str, object] = {
            **tally,
            "share refused": round(tally["refused by both"] / refused, 4),
            "share on its line": round(tally["on its line"] / refused, 4),
            "wrongly": wrong[:40],
        }
        report[kind] = row
        print(kind, {key: value for key, value in row.items() if key != "wrongly"})
    write(report, options.output)
    return 0


def _versions(target: str, rng: random.Random) -> list[str]:
    """The first and the newest version of a target, and one between."""
    versions = versions_of(target)
    return [spell(v) for v in dict.fromkeys((versions[0], rng.choice(versions), versions[-1]))]


def main(words: Sequence[str]) -> int:
    """Learn, judge, or plant faults."""
    if words and words[0] in planted.COMMANDS:
        return planted.main(words)
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["learn", "judge"])
    parser.add_argument("--headers", type=Path, required=True, help="CCCL's cuda/__ptx")
    parser.add_argument("--held-out", type=Path, help="headers that no rule was learnt from")
    parser.add_argument("--work", type=Path, default=Path("out/verdicts"))
    parser.add_argument("--draws", type=int, default=30_000)
    parser.add_argument("--count", type=int, default=400, help="random statements per target")
    parser.add_argument("--targets", nargs="*", choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=2)
    options = parser.parse_args(words)
    return learn(options) if options.what == "learn" else judge(options)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
