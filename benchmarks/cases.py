"""Cases of a benchmark, each in a process of its own, several at a time, within a time.

The process of a case is `python -m MODULE --one NAME ...` and prints its row as the last line, in
JSON. A row is written as soon as it is there, and a case that has one is not done again, so the
same command goes on where the last one stopped.
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
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.common import ROOT, Row, arguments, kept, write

_LEAST_LEFT = 15.0  # seconds: with less no case is begun


def parser_of(doc: str | None, *, seconds: float, jobs: int) -> argparse.ArgumentParser:
    """The command line of a benchmark that runs cases."""
    parser = arguments(doc)
    parser.add_argument("--work", type=Path, required=True, help="a folder for traces")
    parser.add_argument("--only", default="", help="names, with commas; all of them if not given")
    parser.add_argument("--seconds", type=float, default=seconds, help="for all of them")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds for one of them")
    parser.add_argument("--jobs", type=int, default=jobs, help="cases at a time")
    parser.add_argument("--again", action="store_true", help="repeat those that failed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser


def run_cases(
    module: str,
    names: Sequence[str],
    options: argparse.Namespace,
    one: Callable[[str], Row],
    *,
    more: Sequence[str] = (),
    sums: Callable[[Mapping[str, Row]], Row] = lambda rows: {},
) -> None:
    """Do the case that `--one` names, or all cases without a row; `sums` is written, too."""
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.one:
        try:
            row = one(options.one)
        except BaseException as problem:
            row = {"failed": why(problem)}
        print(json.dumps(row), flush=True)
        return
    if options.output is None:
        raise SystemExit("`-o FILE` says where rows go")
    path: Path = options.output
    rows: dict[str, Row] = kept(path).get("rows", {})
    wanted = [name for name in options.only.split(",") if name] or list(names)
    todo = [n for n in wanted if n not in rows or (options.again and "failed" in rows[n])]
    until = time.monotonic() + options.seconds
    lock = threading.Lock()

    def work(name: str) -> None:
        left = until - time.monotonic()
        row = _row(module, name, options, more, left) if left > _LEAST_LEFT else None
        # After every row, so that a run that is ended loses only what is under way.
        if row is not None:
            with lock:
                rows[name] = row
                write({**sums(rows), "rows": rows}, path)
                print(name, json.dumps(row), flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(work, todo))
    print("not reached:", ", ".join(n for n in wanted if n not in rows) or "none", flush=True)


def _row(
    module: str, name: str, options: argparse.Namespace, more: Sequence[str], left: float
) -> Row | None:
    """The row that a case prints; None if the time for all cases ended it."""
    begun = time.perf_counter()
    limit = min(left, options.limit)
    # Cases run side by side: each has its share of the cores, unless the user says otherwise.
    own = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    own["TESSERA_COMPILE_PROCESSES"] = str(max(1, (os.cpu_count() or 1) // options.jobs))
    process = subprocess.Popen(
        [sys.executable, "-m", module, "--one", name, "--work", str(options.work), *more],
        cwd=ROOT,
        env=own | os.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, log = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # The group has what the case has started: compilers, processes of devices.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None if limit < options.limit else {"failed": f"not within {limit:.0f} s"}
    # Libraries print too: the row is the last line.
    try:
        row: Row = json.loads(told.splitlines()[-1])
    except (IndexError, ValueError):
        row = {"failed": f"exit code {process.returncode}: {log[-600:]}"}
    return row | {"seconds": round(time.perf_counter() - begun, 1)}


def why(problem: BaseException) -> str:
    """The text of an error, in a line or two."""
    diagnostics = getattr(problem, "diagnostics", None)
    if diagnostics:
        first = diagnostics[0]
        return f"{first.code} {first.headline} {first.notes} {first.hint or ''}"[:900]
    where = traceback.format_tb(problem.__traceback__)[-1].strip()
    return f"{type(problem).__name__}: {str(problem)[:700]}; {where}"[:1100]


def run_stages(
    document: Row,
    stages: Iterable[tuple[str, Callable[[], Row]]],
    seconds: float,
    *,
    keep: Callable[[], None],
    needed: Sequence[str] = (),
) -> None:
    """Stages in order, each a row of `document["stages"]`; `keep` is called after each.

    A stage that has a row without a failure is not done again, and no stage begins after `seconds`.
    A stage that fails is a row with the reason; if its first word is in `needed`, nothing follows.
    """
    until = time.monotonic() + seconds
    for name, work in stages:
        if "failed" not in document["stages"].get(name, {"failed": ""}):
            continue
        if time.monotonic() > until:
            print(f"no time for `{name}` and what follows", flush=True)
            return
        begun = time.perf_counter()
        try:
            row = work()
        except Exception as problem:
            row = {"failed": f"{type(problem).__name__}: {problem}"[:1500]}
        row = {"seconds": round(time.perf_counter() - begun, 2), **row}
        document["stages"][name] = row
        print(name, json.dumps(row), flush=True)
        keep()
        if "failed" in row and name.split()[0] in needed:
            return
