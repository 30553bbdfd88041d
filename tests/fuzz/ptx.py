"""Fuzz the PTX reader with damaged real files.

    python -m tests.fuzz.ptx --cases 10000 --seed 1 [--ptxas 500] [--json FILE] [--positions]

Each case is a function of the seed and its number (`--case N` replays one and prints its text).
`--ptxas N` also asks ptxas about N of the cases: a text that ptxas accepts and we refuse is a
failure, unless a number overflows (ptxas takes `%r4294967296` for `%r0`); one that we accept and
ptxas refuses is only counted, since we do not check types. `--positions` adds the check of
`tests.fuzz.positions`.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.mutate import mutate
from tests.fuzz.oracle import Verdict, judge
from tests.fuzz.positions import check_positions
from tests.helpers.corpus import corpus_texts, handwritten_texts
from tests.helpers.ptxas import assemble, find_ptxas

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "fuzz.json"
LARGEST_SOURCE = 30_000
WRAPPED_REGISTER = re.compile(r"%[a-z]*\d{10,}")


def sources() -> list[str]:
    """Undamaged texts: the hand-written files, and the smaller files of the corpus."""
    corpus = [text for _, text in corpus_texts(LARGEST_SOURCE)]
    return [text for _, text in handwritten_texts()] + corpus


def case_text(seed: int, number: int, texts: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The text of one case, and how it came about."""
    return mutate(random.Random(f"{seed}/{number}"), texts)


def run_cases(
    seed: int, numbers: Iterator[int], texts: Sequence[str], ptxas_every: int = 0
) -> dict[str, Any]:
    """Judge some cases and count what happened; failures carry what is needed to replay them."""
    outcomes: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    mutations: Counter[str] = Counter()
    against: Counter[str] = Counter()
    failures: list[dict[str, Any]] = []
    slowest = 0.0
    for number in numbers:
        text, done = case_text(seed, number, texts)
        started = time.perf_counter()
        verdict = judge(text)
        slowest = max(slowest, time.perf_counter() - started)
        outcomes[verdict.outcome] += 1
        mutations.update(done)
        if verdict.outcome == "refused":
            codes[verdict.detail] += 1
        if ptxas_every and number % ptxas_every == 0:
            agreement = compare_with_ptxas(text, verdict)
            against[agreement] += 1
            if agreement == "only ptxas accepts":
                failures.append({"case": number, "outcome": agreement, "detail": verdict.detail})
        if not verdict.sound:
            failures.append({"case": number, "outcome": verdict.outcome, "detail": verdict.detail})
    return {
        "outcomes": dict(sorted(outcomes.items())),
        "codes": dict(sorted(codes.items())),
        "mutations": dict(sorted(mutations.items())),
        "against_ptxas": dict(sorted(against.items())),
        "slowest_case_s": round(slowest, 3),
        "failures": failures,
    }


def compare_with_ptxas(text: str, verdict: Verdict) -> str:
    """Whether ptxas and we agree about a text."""
    try:
        accepted = assemble(text, timeout=30).accepted
    except subprocess.TimeoutExpired:
        return "ptxas hangs"
    if accepted == (verdict.outcome == "accepted"):
        return "both accept" if accepted else "both refuse"
    if not accepted:
        return "only we accept"
    wraps = verdict.detail == "TSR1007" or WRAPPED_REGISTER.search(text) is not None
    return "only ptxas accepts, by overflow" if wraps else "only ptxas accepts"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit code says whether a rule was broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="print the text of one case and its verdict")
    parser.add_argument("--ptxas", type=int, default=0, help="ask ptxas about this many cases")
    parser.add_argument("--positions", action="store_true", help="check positions of known faults")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)

    texts = sources()
    if options.case is not None:
        text, done = case_text(options.seed, options.case, texts)
        sys.stdout.write(text)
        sys.stderr.write(f"{done} {judge(text)}\n")
        return 0
    started = time.monotonic()
    every = max(1, options.cases // options.ptxas) if options.ptxas and find_ptxas() else 0
    outcome: dict[str, Any] = {
        "python": platform.python_version(),
        "commit": _commit(),
        "seed": options.seed,
        "cases": options.cases,
        "source_texts": len(texts),
    }
    outcome |= run_cases(options.seed, iter(range(options.cases)), texts, every)
    if options.positions and find_ptxas():
        outcome["positions"] = check_positions()
    outcome["seconds"] = round(time.monotonic() - started)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(outcome, indent=1) + "\n")
    sys.stdout.write(f"{outcome['outcomes']} {len(outcome['failures'])} failures\n")
    return 1 if outcome["failures"] else 0


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
