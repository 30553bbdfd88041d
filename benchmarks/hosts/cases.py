"""What benchmarks of hosts share: a file with a line per case, and the command line around it.

    python -m benchmarks.FOLDER.SCRIPT run --count 200 --seconds 3600 -o out/cases.jsonl
    python -m benchmarks.FOLDER.SCRIPT report out/cases.jsonl -o FILE

Cases are known by their seed; those that the file has are not done again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.common import Row, add_row, arguments, machine, read_rows, write


def command_line(doc: str | None, kinds: Sequence[str], count: int) -> argparse.ArgumentParser:
    """The common command line; `kinds` are the commands besides `report`."""
    parser = arguments(doc)
    parser.add_argument("what", choices=[*kinds, "report"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    return parser


def act(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], object],
    report: Callable[[argparse.Namespace], object],
) -> None:
    """Do what the command line says."""
    options = parser.parse_args()
    (report if options.what == "report" else run)(options)


def seeds(options: argparse.Namespace) -> Iterator[int]:
    """Seeds without a row, until the count or the time is reached."""
    known = {row["seed"] for row in read_rows(options.output)}
    deadline = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() > deadline:
            return
        if seed not in known:
            yield seed


def do_case(options: argparse.Namespace, row: Row, case: Callable[[], Row]) -> None:
    """Run a case and append its row; a failure is a row, too."""
    try:
        row |= case()
    except Exception as problem:
        row |= {"error": f"{type(problem).__name__}: {problem}"[:400], "equal": False}
    row["load"] = machine()["load"]
    print(json.dumps(row), flush=True)
    add_row(options.output, row)


def rows_of(options: argparse.Namespace) -> list[Row]:
    """The rows of all files."""
    return read_rows(*map(Path, options.files))


def write_report(options: argparse.Namespace, rows: Sequence[Row], value: Row) -> None:
    """Write and print the summary, with the machine and its load."""
    loads = sorted(row["load"] for row in rows)
    load = {"median": loads[len(loads) // 2], "most": loads[-1]}
    value = machine() | {"load": load} | value
    write(value, options.output)
    print(json.dumps(value, indent=1))
