"""How long Ctrl-C takes: commands at a terminal, interrupted at random moments.

    python -m benchmarks.running.interrupts [--times 5] [--steps 2000] [--seconds 300] [--out FILE]

Each command first runs to its end, which says how long it takes. Then it is started again and again
and gets SIGINT after a random part of that time. What counts is the time until it ends, or until
the terminal shows that it stops: a search goes on to prove the best plan so far, and says so. Such
a search then gets a second SIGINT, which has to end it. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.planning.plan_scale import trace_text

STOPPING = b"stopping"
MLP = Path(__file__).parents[2] / "examples" / "traces" / "llama_decode.ptx"


def start(arguments: list[str], folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "TESSERA_NO_CACHE": "1"}
    command = [sys.executable, "-m", "tessera", *arguments]
    started = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=side, env=environment, cwd=folder
    )
    os.close(side)
    return started, main


def read_until(process: subprocess.Popen[bytes], main: int, until: float, word: bytes) -> bool:
    """Read what it writes until it ends or the time comes; whether it has written the word."""
    seen = b""
    while process.poll() is None and time.monotonic() < until:
        if select.select([main], [], [], 0.02)[0]:
            try:
                seen = seen[-1000:] + os.read(main, 65536)
            except OSError:
                break
        if word and word in seen:
            return True
    return False


def answer(arguments: list[str], folder: Path, after: float) -> dict[str, float | int] | None:
    """Seconds until it answers; None if it had ended before."""
    process, main = start(arguments, folder)
    try:
        read_until(process, main, time.monotonic() + after, b"")
        if process.poll() is not None:
            return None
        row: dict[str, float | int] = {"after_s": round(after, 2)}
        for count in ("first", "second"):
            sent = time.monotonic()
            process.send_signal(signal.SIGINT)
            said = read_until(process, main, sent + 60, STOPPING if count == "first" else b"")
            row[f"{count}_s"] = round(time.monotonic() - sent, 2)
            if not said:
                break
        row["code"] = process.wait(timeout=60)
        return row
    finally:
        process.kill()
        process.wait()
        os.close(main)


def measure(steps: int, times: int, seconds: float, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    until = time.monotonic() + seconds
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "t.ptx").write_text(trace_text(steps))
        plan = ["plan", "t.ptx", "--gpus", "a100,l40s", "-o", "p.tsp"]
        small = ["plan", str(MLP), "--gpus", "a100,l40s", "--strategy", "kernel", "-o", "s.tsp"]
        subprocess.run([sys.executable, "-m", "tessera", *small], cwd=folder, check=True)
        commands = {
            "plan": plan,
            "analyze": ["analyze", "t.ptx"],
            "simulate": ["simulate", "p.tsp", "--noise"],
            "check": ["check", "p.tsp"],
            "run a trace": ["run", str(MLP)],
            "run a plan": [
                "run",
                "s.tsp",
                "--data",
                str(MLP.with_suffix(".npz")),
                "--requests",
                "40",
            ],
        }
        for label, arguments in commands.items():
            began = time.monotonic()
            process, main = start(arguments, folder)
            read_until(process, main, began + 600, b"")
            whole = time.monotonic() - began
            process.kill()
            process.wait()
            os.close(main)
            answers = []
            for _ in range(times):
                if time.monotonic() > until and answers:
                    break
                row = answer(arguments, folder, draw.uniform(0.3, max(0.4, whole)))
                if row is not None:
                    answers.append(row)
            rows.append({"command": label, "whole_s": round(whole, 1), "answers": answers})
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = measure(given.steps, given.times, given.seconds, given.seed)
    found = {
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "steps": given.steps,
        "seed": given.seed,
        "commands": rows,
    }
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
