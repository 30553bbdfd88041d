"""Take every PTX file under a folder through parse, print, ptxas and back.

    python benchmarks/roundtrip.py DIR [--limit N] [--no-ptxas] [--json FILE]

Prints a line of progress and each failure, and writes the failures as JSON. Files that ptxas
itself refuses are counted apart: they say nothing about Tessera.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.helpers.roundtrip import Trip, check_text  # noqa: E402


def find_files(folder: Path, limit: int | None) -> list[Path]:
    """Every .ptx file in a stable order; with a limit, spread evenly over all of them."""
    files = sorted(path for path in folder.rglob("*.ptx") if path.is_file())
    if limit is None or limit >= len(files):
        return files
    return [files[index * len(files) // limit] for index in range(limit)]


def check_file(path: Path, name: str, with_ptxas: bool) -> Trip:
    """The round trip of one file; a crash of ours is a failure like any other."""
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    try:
        return check_text(text, name, with_ptxas=with_ptxas)
    except Exception as crash:
        return Trip("crash", f"{type(crash).__name__}: {crash}"[:500])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run over a folder; the exit code says whether anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--limit", type=int, help="at most this many files, spread evenly")
    parser.add_argument("--no-ptxas", action="store_true", help="parse and print only")
    parser.add_argument("--json", type=Path, help="where the outcome goes")
    options = parser.parse_args(arguments)

    files = find_files(options.folder, options.limit)
    stages: Counter[str] = Counter()
    failures = []
    started = time.monotonic()
    for number, path in enumerate(files, 1):
        name = path.relative_to(options.folder).as_posix()
        trip = check_file(path, name, not options.no_ptxas)
        stages[trip.stage] += 1
        if not trip.ok:
            failures.append({"file": name, "stage": trip.stage, "detail": trip.detail})
            if trip.stage != "refused":
                print(f"\n{name}: {trip.stage}: {trip.detail[:300]}")
        seconds = time.monotonic() - started
        print(f"\r{number}/{len(files)} {dict(stages)} {seconds:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    outcome = {"files": len(files), "stages": dict(stages), "failures": failures}
    if options.json:
        options.json.write_text(json.dumps(outcome, indent=1) + "\n")
    print(f"{len(files)} files: " + ", ".join(f"{n} {stage}" for stage, n in stages.items()))
    return 1 if stages.keys() - {"ok", "refused"} else 0


if __name__ == "__main__":
    raise SystemExit(main())
