"""Take every PTX file under a folder or in an archive through parse, print, ptxas and back.

    python -m benchmarks.reading.roundtrip PLACE [--refused FILE] [-o FILE]

Prints each failure, and writes the outcome as JSON. Every file is compared: a target that ptxas no
longer makes code for is raised to the oldest it has, and `TESSERA_PTXAS` may name several
assemblers (the first that accepts a file judges it). A file that none accepts is a failure, unless
`--refused FILE` lists it: a line a file, its name, a tab and the reason.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import arguments, write
from benchmarks.reading.accept import read_texts
from tests.helpers.ptxas import architecture, find_all_ptxas, ptxas_version
from tests.helpers.roundtrip import Trip, check_text

OLD = 75


def check_file(text: str, name: str) -> Trip:
    """The round trip of one file; a crash of ours is a failure like any other."""
    try:
        return check_text(text, name, with_ptxas=True)
    except Exception as crash:
        return Trip("crash", f"{type(crash).__name__}: {crash}"[:500])


def read_reasons(path: Path | None) -> dict[str, str]:
    """The files that may be refused, with the reason of each."""
    rows = path.read_text().splitlines() if path else []
    reasons = dict(row.split("\t", 1) for row in rows if row.strip())
    for name, reason in reasons.items():
        if not reason.strip():
            raise SystemExit(f"{name} is listed as refused without a reason")
    return reasons


def is_old(text: str) -> bool:
    """Whether the target is one that ptxas 13 makes no code for."""
    found = re.match(r"sm_(\d+)", architecture(text))
    return found is not None and int(found[1]) < OLD


def main(words: Sequence[str] | None = None) -> int:
    """Run over a place; the exit code says whether anything failed."""
    parser = arguments(__doc__)
    parser.add_argument("place", type=Path, help="a folder or an archive")
    parser.add_argument("--refused", type=Path, help="files that ptxas may refuse, with reasons")
    options = parser.parse_args(words)

    reasons = read_reasons(options.refused)
    stages: Counter[str] = Counter()
    producers: dict[str, Counter[str]] = {}
    failures, old, started = [], 0, time.monotonic()
    for name, content in read_texts(options.place):
        text = content.decode("utf-8", "surrogateescape")
        trip = check_file(text, name)
        stage = "listed" if trip.stage == "refused" and name in reasons else trip.stage
        stages[stage] += 1
        producers.setdefault(name.split("/")[0], Counter())[stage] += 1
        old += stage == "ok" and is_old(text)
        if stage not in ("ok", "listed"):
            failures.append({"file": name, "stage": stage, "detail": trip.detail})
            print(f"{name}: {stage}: {trip.detail[:300]}", flush=True)
    outcome = {
        "ptxas": [ptxas_version(path) for path in find_all_ptxas()],
        "files": stages.total(),
        "stages": dict(stages),
        f"compared below sm_{OLD}": old,
        "listed": reasons,
        "producers": {name: dict(counts) for name, counts in sorted(producers.items())},
        "failures": failures,
    }
    write(outcome, options.output)
    counts = ", ".join(f"{number} {stage}" for stage, number in stages.items())
    print(
        f"{stages.total()} files in {time.monotonic() - started:.0f} s: {counts}; {old} old targets"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
