"""From a config file to a report without a GPU: seconds and memory of each command.

    python -m benchmarks.laptop.meta_capture -o benchmarks/results/meta_capture.json

Cases are steps of `examples/configs`. Each is traced, planned and reported by `tessc`, in processes
of their own: wall time, processor time and peak memory of each. A case that is in the file is not
done again; `--limit` is the wall time of one command, `--trace` leaves plans and reports out. Needs
torch and transformers (extra `hf`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Case:
    """A step of a model, and the GPUs that it is planned for."""

    model: str
    phase: str
    batch: int
    context: int
    gpus: str

    def name(self) -> str:
        return f"{self.model} {self.phase} batch {self.batch} context {self.context} {self.gpus}"


CASES = (
    Case("llama-3-8b", "decode", 32, 4096, "a100,l40s"),
    Case("llama-3-8b", "prefill", 1, 2048, "a100,l40s"),
    Case("llama-3-70b", "decode", 32, 4096, "4xa100,4xl40s"),
    Case("llama-3-70b", "prefill", 1, 2048, "4xa100,4xl40s"),
)


def commands(case: Case, folder: Path) -> dict[str, list[str]]:
    config = ROOT / "examples" / "configs" / f"{case.model}.json"
    step, plan = folder / "step.ptx", folder / "plan.tsp"
    sizes = ["--batch", str(case.batch), "--context", str(case.context)]
    return {
        "trace": ["trace", f"hf:{config}", "-o", str(step), "--phase", case.phase, *sizes],
        "plan": ["plan", str(step), "--gpus", case.gpus, "-o", str(plan)],
        "report": ["report", str(plan), "-o", str(folder / "report.html")],
    }


def measured(arguments: list[str], limit: float) -> dict[str, Any]:
    """One command: its exit code, seconds, processor seconds and largest memory."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tessera", *arguments], cwd=ROOT, stdout=said, stderr=said
        )
        status, usage = 0, None
        while usage is None:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                usage = used
                process.returncode = os.waitstatus_to_exitcode(status)
            elif time.perf_counter() - start > limit:
                os.kill(process.pid, signal.SIGKILL)
                limit = float("inf")
            else:
                time.sleep(0.05)
        said.seek(0)
        lines = said.read().decode(errors="replace").splitlines()
    return {
        "exit_code": os.waitstatus_to_exitcode(status),
        "seconds": round(time.perf_counter() - start, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "megabytes": round(usage.ru_maxrss / 1024),
        "said": lines[:3],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds of one command")
    parser.add_argument("--only", default="", help="a part of the names of cases")
    parser.add_argument("--trace", action="store_true", help="trace alone: no plan, no report")
    given = parser.parse_args()
    document: dict[str, Any] = {"cases": {}}
    if given.output and given.output.exists():
        document = json.loads(given.output.read_text())
    document["machine"] = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs"
    document["python"] = platform.python_version()
    for case in CASES:
        if case.name() in document["cases"] or given.only not in case.name():
            continue
        load = round(os.getloadavg()[0], 1)
        with tempfile.TemporaryDirectory() as folder:
            rows: dict[str, Any] = {"load_before": load}
            for name, arguments in commands(case, Path(folder)).items():
                rows[name] = measured(arguments, given.limit)
                print(case.name(), name, rows[name], flush=True)
                if rows[name]["exit_code"] or given.trace:
                    break
            document["cases"][case.name()] = rows
        if given.output:
            given.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
