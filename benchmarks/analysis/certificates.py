"""What the checker of certificates says of example traces, corruptions and a changed analysis.

    python -m benchmarks.analysis.certificates [--part proofs|changes] [--corruptions N]
        [--sample M] [--seed S] [--rows FILE] [-o FILE]

A certificate says why a launch touches what the analysis says (`tests/certificates`). Counted are
the launches of the family, those that are accepted, and corrupted certificates: `false_accepted`
must be 0. Then the analysis is changed as in `tests/sabotage.py`, one thing at a time, and the
checker is asked about the regions that it gives then. Each change is a row in `--rows`, and the
same command goes on where it ended. `--part` does one of both and keeps the other's figures.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path
from random import Random

from benchmarks.common import ROOT, TRACES, Row, add_row, arguments, kept, machine, read_rows, write
from tests.certificates import judge, trial

# Loops and tiles from nvcc and Triton, masks, and few launches.
JUDGED = ("mlp", "mamba", "dit")


def corrupted(all_proofs: list[trial.Proofs], count: int, seed: int) -> Row:
    """What is said of as many corrupted certificates that are false, by kind of corruption."""
    kinds: dict[str, Counter[str]] = {}
    sources = [trial.trials(proofs, Random(f"{seed} {proofs.trace}")) for proofs in all_proofs]
    false = 0
    while false < count:
        for source in sources:
            tried = next(source)
            if tried.refused is not None and "not understood" in tried.refused:
                raise RuntimeError(f"a corruption that cannot be read: {tried}")
            said = "accepted" if tried.refused is None else "refused"
            kinds.setdefault(tried.kind, Counter())[f"{str(tried.is_true).lower()}_{said}"] += 1
            false += not tried.is_true
            if false == count:
                break
    by_kind = {kind: dict(sorted(found.items())) for kind, found in sorted(kinds.items())}
    names = ("false_accepted", "false_refused", "true_accepted", "true_refused")
    total = sum(kinds.values(), Counter())
    return {**{name: total[name] for name in names}, "by_kind": by_kind}


def judged(sample: int, seed: int, rows: Path) -> Row:
    """What is said of regions with a changed analysis, by what tests say of the change."""
    given = judge.proven([TRACES / f"{name}.ptx" for name in JUDGED])
    if clean := judge.answer(given):
        raise RuntimeError(f"refused without a change: {clean}")
    parts = ("path", "function", "site", "how", "text")
    done = {tuple(row[part] for part in parts): row for row in read_rows(rows)}
    found = []
    for group, change in judge.changes(sample, seed):
        key = tuple(change[part] for part in parts)
        if key not in done:
            result = judge.judge(change, given)
            done[key] = {"group": group, "result": result, **dict(zip(parts, key, strict=True))}
            add_row(rows, done[key])
        found.append(done[key])
    counts: dict[str, Counter[str]] = {}
    for row in found:
        counts.setdefault(row["group"], Counter())[row["result"].partition(":")[0]] += 1
    return {
        "traces": JUDGED,
        "launches": sum(len(launches) for _, launches in given),
        "counts": counts,
        "noticed": [row for row in found if row["result"] != "accepted"],
    }


def proved(count: int, seed: int) -> Row:
    """What is said of the example traces, and of corruptions."""
    started = time.process_time()
    all_proofs = [trial.prove(path) for path in sorted(TRACES.glob("*.ptx"))]
    seconds = time.process_time() - started
    outside = sum((proofs.outside for proofs in all_proofs), Counter())
    made = [m for proofs in all_proofs for m in proofs.made.values()]
    refused = [f"{p.trace} {place}: {why}" for p in all_proofs for place, why in p.refused.items()]
    launches = sum(len(proofs.launches) for proofs in all_proofs)
    return {
        "traces": len(all_proofs),
        "launches": launches,
        "in_family": launches - outside.total(),
        "with_loops": sum(any(c["loops"] for c in each.values()) for each in made),
        "accepted": launches - outside.total() - len(refused),
        "refused": refused,
        "outside": dict(outside.most_common()),
        "processor_seconds": round(seconds, 1),
        "corruptions": corrupted(all_proofs, count, seed),
    }


def main() -> None:
    """Run the command."""
    parser = arguments(__doc__, "certificates.json")
    parser.add_argument("--corruptions", type=int, default=2000)
    parser.add_argument("--sample", type=int, default=40)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--rows", type=Path, default=ROOT / "out" / "certificates.jsonl")
    parser.add_argument("--part", choices=("proofs", "changes"))
    given = parser.parse_args()
    os.environ["TESSERA_NO_CACHE"] = "1"
    found = kept(given.output)
    found |= {"benchmark": "certificates", **machine(), "seed": given.seed}
    if given.part != "changes":
        found |= proved(given.corruptions, given.seed)
        write(found, given.output)
    if given.part != "proofs":
        found["changed_analysis"] = judged(given.sample, given.seed, given.rows)
        write(found, given.output)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
