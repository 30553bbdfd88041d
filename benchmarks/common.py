"""What benchmarks share: places, arguments, the machine, rows that are kept, commands of Tessera.

A benchmark prints what it finds and writes it as JSON, with the machine that it ran on. Long ones
keep a line of JSON per case (`add_row`, `read_rows`), so that the same command goes on where it
ended.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
KERNELS = ROOT / "benchmarks" / "kernels"
TRACES = ROOT / "examples" / "traces"
MODELS = ROOT / "examples" / "models"
LARGE = ROOT / "examples" / "large"
TESSC = (sys.executable, "-m", "tessera")

Row = dict[str, Any]


def arguments(doc: str | None, result: str | None = None) -> argparse.ArgumentParser:
    """A parser whose help is the docstring of the script, with `-o FILE` for its JSON.

    Without `-o` the file is the one of this name in `benchmarks/results`; without a name there is
    no file.
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    place = None if result is None else RESULTS / result
    parser.add_argument("-o", "--out", dest="output", type=Path, default=place, metavar="FILE")
    return parser


def machine() -> Row:
    """The machine, how busy it is, and the commit that is measured."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "machine": f"{platform.system()} {_processor()}",
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    # `platform.processor()` is empty on most Linux systems.
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def write(document: Mapping[str, Any] | Sequence[Any], path: Path | None) -> None:
    """Write JSON to a file; without a path, nothing."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def kept(path: Path | None) -> Row:
    """What a file of JSON has; nothing without a file."""
    document: Row = json.loads(path.read_text("utf-8")) if path and path.exists() else {}
    return document


def add_row(path: Path, row: Mapping[str, Any]) -> None:
    """Append a row to a file of JSON lines, so that it survives the end of the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")


def read_rows(*paths: Path) -> list[Row]:
    """The rows of files of JSON lines; missing files and cut lines are left out."""
    rows = []
    for path in paths:
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def tessc(
    *words: str,
    folder: Path = ROOT,
    settings: Mapping[str, str] | None = None,
    by: Sequence[str] = ("tessera",),
) -> str:
    """The output of a command of Tessera; if it fails, an exception with its error message.

    `by` is the module that runs the command, with its own arguments.
    """
    done = subprocess.run(
        [sys.executable, "-m", *by, *words],
        cwd=folder,
        env={**os.environ, **(settings or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"tessc {words[0]} ended with {done.returncode}: {done.stderr[-900:]}")
    return done.stdout


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of the clock and of the processor, megabytes at the peak, and the exit code."""

    seconds: float
    processor_s: float
    peak_mb: float
    code: int


def cost_of(
    command: Sequence[str],
    *,
    folder: Path = ROOT,
    settings: Mapping[str, str] | None = None,
    seconds: float | None = None,
    stdout: IO[str] | int = subprocess.DEVNULL,
    stderr: IO[str] | int = subprocess.DEVNULL,
) -> Cost:
    """Run a command and measure its wall-clock time, its processor time and its memory.

    The command is killed after `seconds`.
    """
    begun = time.perf_counter()
    process = subprocess.Popen(
        list(command),
        cwd=folder,
        env={**os.environ, **(settings or {})},
        stdout=stdout,
        stderr=stderr,
    )
    until = None if seconds is None else begun + seconds
    # `wait4` has the usage of this child alone; `RUSAGE_CHILDREN` would add up all of them.
    while True:
        done, status, used = os.wait4(process.pid, 0 if until is None else os.WNOHANG)
        if done:
            break
        if until is not None and time.perf_counter() > until:
            process.kill()
            until = None
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    took = time.perf_counter() - begun
    return Cost(took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, process.returncode)


def million_calls_s() -> float:
    """Seconds of the processor for a million calls of an empty function: 0.05 on an idle core."""

    def nothing() -> None:
        pass

    begun = time.process_time()
    for _ in range(1_000_000):
        nothing()
    return round(time.process_time() - begun, 3)


def peak_mb() -> float:
    """The peak memory of this process, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
