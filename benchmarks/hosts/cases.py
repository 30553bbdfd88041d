"""What benchmarks of hosts share: a file with a line per case, and the command line around it.

    python -m benchmarks.NAME run --count 200 --seconds 3600 -o out/cases.jsonl
    python -m benchmarks.NAME report out/cases.jsonl -o FILE

Cases are known by their seed; those that the file has are not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def command_line(doc: str | None, kinds: Sequence[str], count: int) -> argparse.ArgumentParser:
    """The options that all have; `kinds` are what can be done besides `report`."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("what", choices=[*kinds, "report"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("-o", "--output", required=True)
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
    """Those that the file does not have, until the count or the time is reached."""
    output = Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    lines = output.read_text().splitlines() if output.exists() else []
    known = {json.loads(line)["seed"] for line in lines}
    deadline = time.monotonic() + options.seconds
    for seed in range(options.first, options.first + options.count):
        if time.monotonic() > deadline:
            return
        if seed not in known:
            yield seed


def do_case(options: argparse.Namespace, row: Row, case: Callable[[], Row]) -> None:
    """Add a line for a case; one that fails is a result."""
    try:
        row |= case()
    except Exception as problem:
        row |= {"error": f"{type(problem).__name__}: {problem}"[:400], "equal": False}
    row["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(row), flush=True)
    with Path(options.output).open("a") as stream:
        stream.write(json.dumps(row) + "\n")


def rows_of(options: argparse.Namespace) -> list[Row]:
    """All lines of the files."""
    texts = [Path(name).read_text() for name in options.files]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def write_report(options: argparse.Namespace, rows: Sequence[Row], value: Row) -> None:
    """One file of what was done, with the machine."""
    loads = sorted(row["load"] for row in rows)
    value = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "python": platform.python_version(),
        "load": {"median": loads[len(loads) // 2], "most": loads[-1]},
        **value,
    }
    Path(options.output).write_text(json.dumps(value, indent=1) + "\n")
    print(json.dumps(value, indent=1))
