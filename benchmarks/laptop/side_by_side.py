"""Cases of a benchmark, each in a process of its own, several at a time, within a time.

In: the module that does one case (`python -m MODULE --one NAME ...`) and prints its row as the last
line, in JSON. Out: a row for each case as soon as it is there. A case that has a row is not done
again: the same command goes on where the last one stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LEAST_LEFT = 15.0  # seconds: with less no case is begun


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """How cases are run: by which module, with what, so many at a time, for how long."""

    module: str
    arguments: Sequence[str]
    jobs: int
    seconds: float
    limit: float

    def run(self, names: Sequence[str], add: Callable[[str, dict[str, Any]], None]) -> list[str]:
        """Run all of them; `add` gets each row. Those for which there was no time come back."""
        until = time.monotonic() + self.seconds
        lock = threading.Lock()
        missed: list[str] = []

        def work(name: str) -> None:
            left = until - time.monotonic()
            row = self._row(name, min(left, self.limit)) if left > _LEAST_LEFT else None
            with lock:
                if row is None:
                    missed.append(name)
                    return
                add(name, row)
                print(name, json.dumps(row), flush=True)

        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(work, names))
        print("not reached:", ", ".join(missed) or "none", flush=True)
        return missed

    def _row(self, name: str, limit: float) -> dict[str, Any] | None:
        """What a case says of itself; None if its time was over before the limit of one case."""
        begun = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", self.module, "--one", name, *self.arguments],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            told, log = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.communicate()
            return None if limit < self.limit else {"failed": f"not within {limit:.0f} s"}
        try:
            row: dict[str, Any] = json.loads(told.splitlines()[-1])
        except (IndexError, ValueError):
            row = {"failed": f"exit code {process.returncode}: {log[-600:]}"}
        return row | {"seconds": round(time.perf_counter() - begun, 1)}


def add_options(parser: argparse.ArgumentParser, *, seconds: float, jobs: int) -> None:
    """What every such benchmark is told on its command line."""
    parser.add_argument("-o", "--output", type=Path, help="rows that are there already are kept")
    parser.add_argument("--work", type=Path, required=True, help="a folder for traces")
    parser.add_argument("--only", default="", help="names, with commas; all of them if not given")
    parser.add_argument("--seconds", type=float, default=seconds, help="for all of them")
    parser.add_argument("--limit", type=float, default=200.0, help="seconds for one of them")
    parser.add_argument("--jobs", type=int, default=jobs, help="so many at a time")
    parser.add_argument("--again", action="store_true", help="repeat those that failed")
    parser.add_argument("--one", help=argparse.SUPPRESS)


def run_cases(
    module: str,
    names: Sequence[str],
    options: argparse.Namespace,
    more: Sequence[str] = (),
) -> None:
    """Run what has no row yet, and write a document of all rows after each."""
    if options.output is None:
        raise SystemExit("`-o FILE` says where rows go")
    path: Path = options.output
    rows: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    wanted = [name for name in options.only.split(",") if name] or list(names)
    todo = [n for n in wanted if n not in rows or (options.again and "failed" in rows[n])]
    path.parent.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)

    def add(name: str, row: dict[str, Any]) -> None:
        rows[name] = row
        new = path.with_name(f"{path.name}.new")
        new.write_text(json.dumps(rows, indent=1) + "\n")
        new.replace(path)

    cases = Cases(
        module=module,
        arguments=("--work", str(options.work), *more),
        jobs=options.jobs,
        seconds=options.seconds,
        limit=options.limit,
    )
    cases.run(todo, add)
