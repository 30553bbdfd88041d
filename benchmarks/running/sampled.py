"""Run a command of Tessera, and note where the clock's time goes.

    python -m benchmarks.running.sampled NOTE.json trace model.py:step -o step.ptx ...

A signal looks at the stack of the main thread every few milliseconds, and counts the time since the
last look for it: a call into C counts for whoever made it. NOTE.json gets seconds by stack;
`parts_of` adds them up by what they are a part of. `benchmarks.running.full_size` does so for
captures.
"""

from __future__ import annotations

import json
import runpy
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.005
# What a stack is counted as, by the innermost call that one of these names: a part of a file's path
# and a function; an empty one stands for all.
PLACES: tuple[tuple[str, str, str], ...] = (
    ("<frozen importlib", "", "imports"),
    ("capture/model_file", "", "the model"),
    ("capture/compiled_folder", "", "checking what was kept"),
    ("torch/_inductor/compile_fx", "", "AOTAutograd and Inductor"),
    ("torch/_functorch", "", "AOTAutograd and Inductor"),
    ("torch/_dynamo/output_graph", "compile_and_call_fx_graph", "AOTAutograd and Inductor"),
    ("torch/_dynamo/convert_frame", "", "Dynamo"),
    ("triton_heuristics", "", "loading and choosing kernels"),
    ("capture/layers", "", "our parts of graphs"),
    ("capture/rewrite", "", "our parts of graphs"),
    ("capture/memory", "", "reading memory"),
    ("capture/kernels", "", "finding PTX"),
    ("capture/cuda_graph", "", "reading the graph"),
    ("capture/no_gpu/on_host", "", "the call on the host"),
    ("capture/session", "_warm_up", "warm calls"),
    ("capture/session", "_capture_graph", "the call that is captured"),
    ("capture/session", "run", "running the call"),
    ("trace/build", "", "making the program"),
    ("trace/hints", "", "hints"),
    ("trace/capture_trace", "write_trace", "writing"),
)


def main() -> None:
    note = Path(sys.argv[1])
    sys.argv[:2] = ["tessc"]
    stacks: dict[str, float] = {}
    last = time.perf_counter()

    def look(_: int, frame: FrameType | None) -> None:
        nonlocal last
        now, calls = time.perf_counter(), []
        while frame is not None:
            calls.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")
            frame = frame.f_back
        stack = ";".join(reversed(calls))
        stacks[stack] = stacks.get(stack, 0.0) + now - last
        last = now

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, EVERY_S, EVERY_S)
    try:
        runpy.run_module("tessera", run_name="__main__")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        note.write_text(json.dumps(stacks))


def parts_of(note: Path) -> dict[str, float]:
    """Seconds by part, the longest first."""
    parts: Counter[str] = Counter()
    for stack, seconds in json.loads(note.read_text()).items():
        parts[_part(stack)] += seconds
    return {name: round(seconds, 2) for name, seconds in parts.most_common()}


def _part(stack: str) -> str:
    for call in reversed(stack.split(";")):
        for place, function, name in PLACES:
            if place in call and (not function or call.endswith(f":{function}")):
                return name
    return "the rest"


if __name__ == "__main__":
    main()
